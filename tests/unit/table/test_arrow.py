"""Columns made from buffers are the columns that pyarrow makes, and read back as they were."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from drystone.table import arrow
from drystone.table.arrow import column, numbers, table, texts

KINDS = ["int8", "int32", "int64", "float64"]


@pytest.mark.parametrize("dtype", [*KINDS, "bool"])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000])
def test_a_column_is_what_pyarrow_makes_of_it(dtype: str, n: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.integers(0, 2 if dtype == "bool" else 100, n).astype(dtype)
    null = rng.integers(0, 2, n).astype(bool)
    assert column(values).equals(pa.array(values))
    assert column(values, null).equals(pa.array(values, mask=null))
    assert column(values, null).null_count == null.sum()


@pytest.mark.parametrize("dtype", [*KINDS, "bool"])
@pytest.mark.parametrize(("start", "stop"), [(0, 40), (3, 40), (8, 17), (11, 11), (39, 40)])
def test_numbers_are_read_back_from_any_part_of_a_column(dtype: str, start: int, stop: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2, 40).astype(dtype)
    null = rng.integers(0, 2, 40).astype(bool)
    back = numbers(column(values)[start:stop])
    assert back.dtype == values.dtype
    assert back.tolist() == values[start:stop].tolist()
    filled = numbers(column(values, null)[start:stop], null=1)
    assert filled.dtype == values.dtype
    assert filled.tolist() == np.where(null, values.dtype.type(1), values)[start:stop].tolist()


def test_numbers_of_several_pieces_and_of_none() -> None:
    pieces = [column(np.array([1, 2], np.int32)), column(np.zeros(0, np.int32)), column(np.array([3], np.int32))]
    assert numbers(pa.chunked_array(pieces)).tolist() == [1, 2, 3]
    assert numbers(pa.chunked_array([], pa.int32())).dtype == np.int32
    assert numbers(pa.chunked_array([], pa.bool_())).dtype == np.bool_


def test_a_null_where_none_may_be_is_no_number() -> None:
    with pytest.raises(ValueError, match="lacks 1 of 2"):
        numbers(column(np.array([1, 2]), np.array([False, True])))


def test_texts_are_what_pyarrow_makes_of_them() -> None:
    words = ["", "a", None, "né", "x" * 300]
    assert texts(words, pa.string()).equals(pa.array(words, pa.string()))
    data = [b"", b"\xff\x00", None]
    assert texts(data, pa.binary()).equals(pa.array(data, pa.binary()))
    assert texts([], pa.string()).equals(pa.array([], pa.string()))
    with pytest.raises(UnicodeEncodeError):
        texts(["\udc80"], pa.string())


def test_text_beyond_a_columns_reach_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_MOST_TEXT", 10)
    words = ["abcd", None, "efgh", "ijkl", "a text of more than ten", ""]
    found = texts(words, pa.string())
    assert isinstance(found, pa.ChunkedArray)
    assert found.to_pylist() == words


def test_a_table_takes_what_pyarrow_takes() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.int64())])
    columns = {"c": [1, None, 3], "a": np.arange(3, dtype=np.int32), "b": pa.array(["x", None, "z"])}
    assert table(columns, schema).equals(pa.table(columns, schema=schema))
    with pytest.raises(OverflowError):
        table({**columns, "a": [1, 2, 2**31]}, schema)
    with pytest.raises(TypeError):
        table({**columns, "a": np.arange(3.0)}, schema)


def test_a_dictionary_has_nulls_for_negative_codes() -> None:
    found = arrow.dictionary(np.array([1, -1, 0, 1], np.int32), [b"a", b"bc"], pa.string())
    assert found.to_pylist() == ["bc", None, "a", "bc"]
