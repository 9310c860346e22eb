"""What a scanner says of one array or group inside one granule."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field

import numpy as np

from drystone.codecs.chain import CodecChain
from drystone.model.attributes import Attributes

__all__ = ["ArraySpec", "Dimension", "GroupSpec", "dtype_from_json", "dtype_to_json"]


def dtype_to_json(dtype: np.dtype) -> str | list[object]:
    """A NumPy dtype as JSON: ``"string"``, ``"<f4"``, or a list of fields with offsets for compounds.

    Examples
    --------
    >>> dtype_to_json(np.dtype(">i2"))
    '>i2'
    >>> dtype_from_json(dtype_to_json(np.dtype([("a", "i1"), ("b", "<f8")], align=True))).itemsize
    16
    """
    if dtype.kind == "T":
        return "string"
    if dtype.names is None:
        if dtype.subdtype is not None:
            base, shape = dtype.subdtype
            return ["array", dtype_to_json(base), list(shape)]
        return dtype.str
    assert dtype.fields is not None
    fields = [[n, dtype_to_json(dtype.fields[n][0]), int(dtype.fields[n][1])] for n in dtype.names]
    return ["struct", fields, dtype.itemsize]


def dtype_from_json(value: object) -> np.dtype:
    """Read back what :func:`dtype_to_json` wrote."""
    if value == "string":
        return np.dtypes.StringDType()
    if isinstance(value, str):
        return np.dtype(value)
    assert isinstance(value, list)
    if value[0] == "array":
        return np.dtype((dtype_from_json(value[1]), tuple(value[2])))
    names, formats, offsets = zip(*[(n, dtype_from_json(d), o) for n, d, o in value[1]], strict=True)
    return np.dtype({"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": value[2]})


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension that a group declares."""

    name: str
    size: int
    unlimited: bool = False


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group of a granule: its path (``/`` is the root), attributes and the dimensions it declares."""

    path: str
    attributes: Attributes = field(default_factory=Attributes)
    dimensions: tuple[Dimension, ...] = ()

    def to_json(self) -> str:
        """Exact JSON."""
        dims = [[d.name, d.size, d.unlimited] for d in self.dimensions]
        return json.dumps([self.path, self.attributes.to_json(), dims], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> GroupSpec:
        """Read back what :meth:`to_json` wrote."""
        path, attributes, dims = json.loads(text)
        return cls(path, Attributes.from_json(attributes), tuple(Dimension(*d) for d in dims))


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array inside one granule, without its chunk rows.

    Parameters
    ----------
    path
        ``/group/name``.
    dims
        One short dimension name an axis.
    shape, chunk_shape
        In elements; every chunk edge is at least 1, also where the shape has a 0.
    dtype
        As stored: with byte order; ``StringDType`` for variable-length text. Values are delivered in native order.
    fill
        One element in stored form, which an unwritten chunk reads as; None where the format defines none (then zero).
        Not the ``_FillValue`` attribute: that one marks missing data and is left in ``attributes``.
    codecs
        From stored bytes to elements, in encoding order.
    attributes
        Exact.
    unlimited
        Per axis, whether the format lets it grow.
    sparse
        True where chunks without a row are unwritten. Elsewhere each chunk has a row, and a row that is not there is
        an error, never a fill value.
    padded
        True where edge chunks are stored full size (HDF5 chunked), False where they are stored short.

    Examples
    --------
    >>> from drystone.codecs.chain import CodecChain
    >>> a = ArraySpec("/sst", ("t", "y"), (3, 10), (1, 10), np.dtype(">i2"), None, CodecChain.of("bytes"))
    >>> a.grid_shape, a.native_dtype
    ((3, 1), dtype('int16'))
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: np.dtype
    fill: bytes | None
    codecs: CodecChain
    attributes: Attributes = field(default_factory=Attributes)
    unlimited: tuple[bool, ...] = ()
    sparse: bool = False
    padded: bool = True

    def __post_init__(self) -> None:
        if not len(self.dims) == len(self.shape) == len(self.chunk_shape):
            raise ValueError(f"{self.path}: {self.dims}, {self.shape} and {self.chunk_shape} have different ranks")
        if any(c < 1 for c in self.chunk_shape) or any(n < 0 for n in self.shape):
            raise ValueError(
                f"{self.path}: chunk edges must be at least 1 and sizes at least 0: {self.chunk_shape}, {self.shape}"
            )

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def group(self) -> str:
        """The path of the group that holds it."""
        return self.path.rsplit("/", 1)[0] or "/"

    @property
    def native_dtype(self) -> np.dtype:
        """The dtype of delivered values: native byte order."""
        return self.dtype if self.dtype.kind == "T" else self.dtype.newbyteorder("=")

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk_shape, strict=True))

    @property
    def n_chunks(self) -> int:
        """Chunks in all, stored or not."""
        return math.prod(self.grid_shape)

    @property
    def nbytes(self) -> int:
        """Decoded size; text counts as 16 bytes an element."""
        return math.prod(self.shape) * self.dtype.itemsize

    def structure(self) -> str:
        """All but the attributes, as canonical JSON."""
        return json.dumps(
            {
                "path": self.path,
                "dims": self.dims,
                "shape": self.shape,
                "chunk_shape": self.chunk_shape,
                "dtype": dtype_to_json(self.dtype),
                "fill": None if self.fill is None else self.fill.hex(),
                "codecs": self.codecs.to_json(),
                "unlimited": self.unlimited,
                "sparse": self.sparse,
                "padded": self.padded,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def from_parts(cls, structure: str, attributes: str) -> ArraySpec:
        """Read back :meth:`structure` and ``attributes.to_json()``."""
        d = json.loads(structure)
        return cls(
            d["path"],
            tuple(d["dims"]),
            tuple(d["shape"]),
            tuple(d["chunk_shape"]),
            dtype_from_json(d["dtype"]),
            None if d["fill"] is None else bytes.fromhex(d["fill"]),
            CodecChain.from_json(d["codecs"]),
            Attributes.from_json(attributes),
            tuple(d["unlimited"]),
            d["sparse"],
            d["padded"],
        )


def array_id(path: str) -> int:
    """The id of an array in the table: 31 bits of a hash of its path, so that workers need not ask.

    The driver refuses a scan in which two paths share an id (one chance in some thousand for a thousand arrays).

    Examples
    --------
    >>> array_id("/sst") == array_id("/sst") != array_id("/err")
    True
    """
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=4).digest(), "little") & 0x7FFFFFFF
