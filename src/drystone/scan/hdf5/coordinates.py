"""Values that placing granules needs: read at scan time, small, decoded."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.decode import decode_chunk
from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import ScannedArray
from drystone.scan.hdf5.subject import Subject
from drystone.scan.hdf5.values import native, read_stored

__all__ = ["coordinate_of"]

_TIME_BYTES = 4096
_LARGEST_CHUNK = 64 << 20  # the library decodes whole chunks: a hostile one is not worth a coordinate
_KINDS = "biufcSMmT"


def coordinate_of(array: ScannedArray, subject: Subject, budget: int) -> NDArray[np.generic] | None:
    """Native values of a coordinate; None where the array is none, or is too large.

    Coordinates are scalars, one-dimensional arrays named like their dimension, and short ones along an unlimited
    dimension that say a time (NEMO's ``time_centered``).
    """
    spec = array.spec
    if spec.dtype.kind not in _KINDS or not _is_coordinate(spec) or spec.nbytes > budget:
        return None
    d = subject.description
    if d.chunk_shape is not None and math.prod(d.chunk_shape) * d.stored.element_size > _LARGEST_CHUNK:
        return None
    if d.external or len(subject.stored_shape) != len(d.extent.shape):
        return None
    if d.stored.is_text:
        if 0 in spec.shape:
            return np.empty(spec.shape, spec.dtype)
        return decode_chunk(array.inline[0], spec.codecs, spec.dtype, spec.shape)
    stored = native(read_stored(subject))
    if stored.shape == spec.shape:
        return stored
    # shorter than its unlimited dimension: the rest is fill
    whole = np.zeros(spec.shape, stored.dtype)
    if spec.fill is not None:
        whole[...] = np.frombuffer(spec.fill, d.stored.dtype)[0]
    whole[: stored.shape[0]] = stored
    return whole


def _is_coordinate(spec: ArraySpec) -> bool:
    if not spec.shape:
        return True
    if len(spec.shape) != 1:
        return False
    if spec.dims[0] == spec.name:
        return True
    units = spec.attributes.get("units")
    is_time = units is not None and any(" since " in text.lower() for text in units.text)
    return is_time and spec.unlimited[0] and spec.nbytes <= _TIME_BYTES
