"""kerchunk Parquet: references as Parquet files that fsspec, xarray and GDAL read.

Layout: ``.zmetadata`` (Zarr 2 metadata and ``record_size``) and, per array, ``refs.<n>.parq``, in which row ``i`` of
file ``n`` is chunk ``n * record_size + i`` in C order. Written with pyarrow as whole columns, without pandas metadata:
plain nulls are what readers under pandas 2 and 3 both take for a missing chunk. Every file is there and full, since GDAL
opens each with errors on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec
from drystone.emit.addresses import fsspec_address
from drystone.emit.columns import GAP, MISSING, Positional, Slice
from drystone.emit.documents import (
    NO_OPTIONS,
    Layout,
    array_v2,
    explicit_fill,
    explicit_gap,
    groups_of,
    layouts,
    skipped,
    strict_json,
)
from drystone.emit.folder import Folder, fingerprint
from drystone.emit.gaps import gap_chunks
from drystone.emit.layout import ConstantChunks
from drystone.emit.native import native_chunks
from drystone.emit.proof import proof
from drystone.errors import ConfigError
from drystone.model.placement import Combined
from drystone.model.release import OutputIdentity
from drystone.protocols import ReferenceView
from drystone.storage.store import Store
from drystone.table.arrow import column, dictionary

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KerchunkParquetEmitter"]

_FORM = "kerchunk-parquet"
_RECORD_SIZE = 100_000
_PART = re.compile(r"refs\.\d+\.parq")
_DEFLATE = Codec.of("zlib", level=1)


class KerchunkParquetEmitter:
    """Writes references as kerchunk Parquet (see the module).

    Options: ``skip`` (paths that may be left out), ``record_size`` (rows a file; by default 100,000, or the largest
    array's chunks where that is less), ``proof`` (called with the folder before it becomes
    visible; on object stores, which cannot rename, just after), ``fence`` (called just before the form becomes visible;
    raises if it must not), ``owned`` (what lies at the target is known to be the caller's own).
    """

    def problems(self, combined: Combined, options: Mapping[str, object] = NO_OPTIONS) -> dict[str, str]:
        """Arrays that Zarr 2 cannot hold, each with the reason."""
        return layouts(combined, 2, _DEFLATE, options)[1]

    def emit(self, view: ReferenceView, target: Store, key: str, options: Mapping[str, object]) -> OutputIdentity:
        """Write the form; nothing is visible before it is whole.

        Parameters
        ----------
        target, key
            Folder of the form. On a local disk it is written beside and renamed; elsewhere ``.zmetadata`` goes last.

        Raises
        ------
        UnsupportedError
            An array has no form and is not in ``skip``, or a chunk has no reference.
        GranuleChanged, GranuleMissing
            A granule is no longer what was scanned; nothing was published.
        """
        good, problems = layouts(view.combined, 2, _DEFLATE, options)
        skipped(options, problems, _FORM)
        record_size = _record_size(options, good)
        if target.root is None:
            view.recheck()  # an object store has no rename: what stands there is touched only if this can succeed
        folder = Folder(target, key, ".zmetadata", _PART, owned=bool(options.get("owned")))
        try:
            ids = view.granule_ids()
            for path, layout in good.items():
                for n, table in enumerate(_partitions(view, layout, record_size, ids)):
                    folder.put(f"{path[1:]}/refs.{n}.parq", _parquet(table))
            metadata = _metadata(view.combined, good)
            folder.put(".zmetadata", strict_json({"metadata": metadata, "record_size": record_size}))
            view.recheck()
            if folder.staged is not None and not folder.unchanged():
                proof(options, folder.staged)  # what stands there already was proved when it became visible
            fence = options.get("fence")
            if callable(fence):
                fence()
            if folder.publish() and folder.staged is None:
                proof(options, f"{target.url}/{key}")
        finally:
            folder.discard()
        return OutputIdentity(_FORM, f"{target.url}/{key}", fingerprint(folder.digests))


def _record_size(options: Mapping[str, object], good: Mapping[str, Layout]) -> int:
    asked = options.get("record_size")
    if asked is None:
        return max(1, min(_RECORD_SIZE, max((lay.n_chunks for lay in good.values()), default=1)))
    if not isinstance(asked, int) or asked < 1:
        raise ConfigError(f"record_size is a whole number of at least 1, not {asked!r}", kind="record-size")
    return asked


def _metadata(combined: Combined, good: Mapping[str, Layout]) -> dict[str, object]:
    out: dict[str, object] = {}
    for group in groups_of(combined):
        prefix = group.path.strip("/") + "/" if group.path != "/" else ""
        out[f"{prefix}.zgroup"] = {"zarr_format": 2}
        out[f"{prefix}.zattrs"] = group.attributes.values_plain()
    for path, layout in good.items():
        out[f"{path[1:]}/.zarray"], out[f"{path[1:]}/.zattrs"] = array_v2(layout)
    return out


def _partitions(view: ReferenceView, layout: Layout, size: int, ids: NDArray[np.int32]) -> Iterator[pa.Table]:
    constant: dict[int, bytes] = {}
    with Positional(layout.n_chunks) as columns:
        if layout.native:
            for number, (_, data) in enumerate(native_chunks(layout, view.values(layout.array.path))):
                columns.add_raw(number, data)
        else:
            columns.fill(view, layout.array.path, ids)
            if layout.gaps is not None:
                columns.mark_gaps(gap_chunks(layout.array, layout.gaps), layout.grid_shape)
            for kind, element in ((MISSING, explicit_fill(layout, 2)), (GAP, explicit_gap(layout, 2))):
                if element is not None:
                    constant[kind] = ConstantChunks(layout, element)((0,) * len(layout.edges))
        for part in columns.slices(size):
            yield _table(view, part, size, ids, constant)


def _table(view: ReferenceView, part: Slice, size: int, ids: NDArray[np.int32], constant: Mapping[int, bytes]) -> pa.Table:
    """One file: ``size`` rows, the rows past the array's last chunk being missing; ``constant`` are bytes by kind of hole."""
    import pyarrow as pa

    n = len(part.granule)
    granule = np.full(size, MISSING, np.int32)
    granule[:n] = part.granule
    used, code = np.unique(granule, return_inverse=True)
    first = int(np.searchsorted(used, 0))  # MISSING and RAW sort before the granules
    urls = [fsspec_address(*view.public_parts(int(ids[g]))).encode() for g in used[first:].tolist()]
    raw_codes = np.full(size, -1, np.int32)
    blobs = list(part.raw.values())
    raw_codes[list(part.raw)] = np.arange(len(blobs), dtype=np.int32)
    for kind, data in constant.items():
        raw_codes[:n][part.granule == kind] = len(blobs)
        blobs.append(data)
    return pa.table(
        [
            dictionary((code - first).astype(np.int32), urls, pa.string()),
            column(_padded(part.offset, size)),
            column(_padded(part.size, size)),
            dictionary(raw_codes, blobs, pa.binary()),
        ],
        schema=pa.schema(
            [
                pa.field("path", pa.dictionary(pa.int32(), pa.string())),
                pa.field("offset", pa.int64(), nullable=False),
                pa.field("size", pa.int64(), nullable=False),
                pa.field("raw", pa.dictionary(pa.int32(), pa.binary())),
            ]
        ),
    )


def _padded(column: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    out = np.zeros(size, np.int64)
    out[: len(column)] = column
    return out


def _parquet(table: pa.Table) -> memoryview:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    # without the Arrow schema readers see plain strings and bytes, not dictionaries; without null counts in statistics
    # fastparquet takes the integers for nullable and gives floats, which fsspec cannot use as offsets
    pq.write_table(
        table,
        sink,
        row_group_size=table.num_rows,
        compression="zstd",
        write_statistics=["offset", "size"],
        store_schema=False,
        use_dictionary=["path", "raw"],
    )
    return memoryview(sink.getvalue())
