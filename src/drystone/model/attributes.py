"""Attributes with their types and exact bits.

An attribute that passes through text is not the attribute: float32 9.96921e36 written as decimal no longer equals the
data. So the value is kept as dtype, shape and bytes (hex in JSON); text is kept as text; what is neither is kept as
bytes. Projections turn it into what their format can hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Attribute", "Attributes"]

type Json = bool | int | float | str | list[Json] | dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute value.

    Exactly one of three forms: ``text`` (a str, or a tuple of str with ``shape``), numbers (``dtype`` and ``data``), or
    opaque bytes (``dtype == "bytes"``), for text that is no UTF-8 and values that no form can hold.

    Examples
    --------
    >>> a = Attribute.of(np.float32(9.96921e36))
    >>> a.value, a.data.hex()
    (np.float32(9.96921e+36), '0000f07c')
    >>> Attribute.of("°C").value
    '°C'
    >>> Attribute.of(np.array([1.5, np.nan])).to_plain()
    [1.5, 'NaN']
    """

    dtype: str
    shape: tuple[int, ...] | None = None
    data: bytes = b""
    text: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: object) -> Attribute:
        """Take a str, bytes, number, NumPy scalar or array, or a sequence of str."""
        if isinstance(value, str):
            return cls("text", None, b"", (value,))
        if isinstance(value, bytes):
            try:
                return cls("text", None, b"", (value.decode("utf-8"),))
            except UnicodeDecodeError:
                return cls("bytes", None, value)
        array = np.asarray(value)
        shape = None if array.ndim == 0 else array.shape
        if array.dtype.kind in "OUST":
            items = [
                v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()
            ]
            if any(_has_surrogate(v) for v in items):
                joined = b"\0".join(v.encode("utf-8", "surrogateescape") for v in items)
                return cls("bytes", shape, joined)
            # an array of one text is text to every netCDF reader: xarray would decode no time whose units are a list
            return cls("text", None if len(items) == 1 else shape, b"", tuple(items))
        if array.dtype.kind not in "biufc":
            return cls("bytes", shape, array.tobytes())
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return cls(native.dtype.str, shape, native.tobytes())

    @property
    def value(self) -> Any:  # noqa: ANN401 - an attribute's type is data: the one place where Any is the truth
        """The value as Python str, bytes, list of str, NumPy scalar or array."""
        if self.dtype == "text":
            return self.text[0] if self.shape is None else list(self.text)
        if self.dtype == "bytes":
            return self.data
        array = np.frombuffer(self.data, dtype=self.dtype)
        return array[0] if self.shape is None else array.reshape(self.shape)

    def to_plain(self) -> Json:
        """The value as strict JSON: numbers as numbers, NaN and infinities as Zarr's words, bytes as Latin-1 text.

        Bytes that are no UTF-8 are nearly always Latin-1 text ("°C"), so that is how they are shown; the table keeps
        the bytes themselves.
        """
        value = self.value
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return list(value)
        return _plain(value.tolist())

    def to_json(self) -> Json:
        """A form that :meth:`from_json` reads back bit for bit."""
        shape: Json = None if self.shape is None else list(self.shape)
        if self.dtype == "text":
            return self.text[0] if self.shape is None else {"text": list(self.text), "shape": shape}
        return {"dtype": self.dtype, "shape": shape, "hex": self.data.hex()}

    @classmethod
    def from_json(cls, value: Json) -> Attribute:
        """Read back what :meth:`to_json` wrote."""
        if isinstance(value, str):
            return cls("text", None, b"", (value,))
        if not isinstance(value, dict):
            raise ValueError(f"an attribute is text or an object, not {value!r}")
        raw_shape = value.get("shape")
        shape = None if raw_shape is None else tuple(int(n) for n in raw_shape)  # type: ignore[union-attr, arg-type]
        if "text" in value:
            return cls("text", shape, b"", tuple(str(v) for v in value["text"]))  # type: ignore[union-attr]
        return cls(str(value["dtype"]), shape, bytes.fromhex(str(value["hex"])))


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _plain(value: Any) -> Json:  # noqa: ANN401 - as above
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Attributes(Mapping[str, Attribute]):
    """Attributes in the order of the file, immutable and hashable.

    Examples
    --------
    >>> a = Attributes.of({"units": "K", "scale_factor": np.float32(0.01)})
    >>> a["scale_factor"].value
    np.float32(0.01)
    >>> Attributes.from_json(a.to_json()) == a
    True
    """

    items_: tuple[tuple[str, Attribute], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Attributes:
        """Build from plain values."""
        return cls(tuple((k, v if isinstance(v, Attribute) else Attribute.of(v)) for k, v in values.items()))

    def __getitem__(self, key: str) -> Attribute:
        for name, value in self.items_:
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(name for name, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def values_plain(self) -> dict[str, Json]:
        """Every attribute as strict JSON."""
        return {name: value.to_plain() for name, value in self.items_}

    def values_python(self) -> dict[str, Any]:
        """Every attribute as its Python or NumPy value."""
        return {name: value.value for name, value in self.items_}

    def without(self, *names: str) -> Attributes:
        """A copy that lacks these names."""
        return Attributes(tuple((k, v) for k, v in self.items_ if k not in names))

    def to_json(self) -> str:
        """Compact JSON, exact."""
        return json.dumps([[k, v.to_json()] for k, v in self.items_], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Attributes:
        """Read back what :meth:`to_json` wrote."""
        return cls(tuple((str(k), Attribute.from_json(v)) for k, v in json.loads(text)))
