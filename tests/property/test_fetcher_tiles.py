"""Tiles, crops, gaps, new axes and recodes: any selection of any of them is what NumPy says."""

from __future__ import annotations

import itertools
import tempfile
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from property.test_fetcher import selections
from unit.fetch.archive import Archive, spec

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.decode import decode_chunk
from drystone.fetch import plain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import State
from drystone.model.placement import CombinedArray, Placements, Tile
from drystone.model.recode import Recode
from drystone.plan.source_chunks import placed_chunks

CHAINS = [CodecChain.of("bytes"), CodecChain.of("bytes", Codec.of("zlib", level=1)), CodecChain.of("bytes", "fletcher32")]
GAP, UNWRITTEN, MISSING, STORED_FILL = -7, 5, 3, 11


def recodes(dtype: np.dtype, stored: np.dtype) -> list[Recode | None]:
    """Ways from stored numbers to those of the whole."""
    gone = (np.array(MISSING, stored).tobytes(),)
    sentinel = np.array(GAP, dtype).tobytes()
    ways: list[Recode | None] = [
        Recode(dtype),
        Recode(dtype, scale=Fraction(24), offset=Fraction(-48)),
        Recode(dtype, missing=gone, missing_as=sentinel, scale=Fraction(2), offset=Fraction(100)),
    ]
    if stored.kind == "i":
        ways.append(Recode(dtype, unsigned=True, offset=Fraction(1)))
    if dtype.kind == "f":
        ways.append(Recode(dtype, missing=gone, missing_as=sentinel, scale=Fraction(1, 4), offset=Fraction(7)))
    return [None, *ways] if stored == dtype else ways


def recoded(values: np.ndarray, recode: Recode | None, dtype: np.dtype) -> np.ndarray:
    """What recoding means, in double precision, which is exact for numbers as small as ours."""
    if recode is None:
        return values
    if recode.unsigned:
        values = values.astype(values.dtype.str.replace("i", "u"))
    out = values.astype("f8") * float(recode.scale) + float(recode.offset)
    if recode.missing:
        out[values == MISSING] = GAP
    return out.astype(dtype)


@st.composite
def runs(draw, n: int, single: bool):
    """(dest, count) of runs along an axis of ``n`` elements, with gaps or without."""
    if single:
        return [(i, 1) for i in range(n) if draw(st.integers(0, 4))]
    out, at = [], draw(st.integers(0, 1))
    while at < n:
        count = draw(st.integers(1, n - at))
        out.append((at, count))
        at += count + draw(st.sampled_from([0, 0, 0, 1]))
    return out


class Whole:
    """An array of the whole, its granules, and its values."""

    def __init__(self, folder: str, draw) -> None:
        self.archive = Archive(folder)
        rank = draw(st.integers(1, 3))
        self.shape = tuple(draw(st.integers(1, 6)) for _ in range(rank))
        self.lead = draw(st.sampled_from([None, *range(rank)]))
        self.new = tuple(a for a in range(rank) if rank > 1 and draw(st.integers(0, 3)) == 0)
        self.dtype = np.dtype(draw(st.sampled_from(["i4", "f8"])))
        self.values = np.full(self.shape, GAP, self.dtype)
        self.variants, self.recodes, self.granules = [], [], []
        tiles, rows = [], []
        others = [a for a in range(rank) if a != self.lead]
        for number, boxes in enumerate(itertools.product(*(draw(runs(self.shape[a], a in self.new)) for a in others))):
            if not draw(st.integers(0, 4)):
                continue  # a tile that is not there
            tile = {a: (0 if a in self.new else draw(st.integers(0, 2)), n, d) for a, (d, n) in zip(others, boxes, strict=True)}
            if self.lead is None:
                at = [(0, 1)]
            else:
                at = draw(runs(self.shape[self.lead], self.lead in self.new))
            for dest, count in at:
                tile_row = len(tiles)
                rows.append((*self._granule(draw, tile, count), count, dest, tile_row))
                self._deliver(rows[-1], tile)
            tiles.append(tuple(tuple(tile[a][k] if a in tile else 0 for a in range(rank)) for k in range(3)))
            assert number < 400
        self.array = self._combined(draw, tiles, rows)

    def _granule(self, draw, tile, count):
        """(granule id, source offset along the lead axis): one that fits, or a new one."""
        src = 0 if self.lead is None or self.lead in self.new else draw(st.integers(0, 2))
        needs = [
            (1 if self.lead is None else src + count) if a == self.lead else tile[a][0] + tile[a][1]
            for a in range(len(self.shape))
        ]
        for g, (_, one, _) in enumerate(self.granules):
            if all(n <= m for n, m in zip(needs, one.shape, strict=True)) and not draw(st.integers(0, 2)):
                return g, src
        shape = tuple(n if a in self.new else n + draw(st.integers(0, 2)) for a, n in enumerate(needs))
        stored = draw(st.sampled_from(["<i2", ">i2", "u1", self.dtype.str]))
        one = spec(
            shape,
            tuple(1 if a in self.new else draw(st.integers(1, 4)) for a in range(len(shape))),
            stored,
            draw(st.sampled_from(CHAINS)),
            np.array(UNWRITTEN, stored).tobytes(),
            draw(st.booleans()),
            draw(st.booleans()),
        )
        recode = draw(st.sampled_from(recodes(self.dtype, one.native_dtype)))
        g = len(self.granules)
        values = (np.arange(np.prod(shape)) * 7 + 13 * g).reshape(shape) % 200
        values = values.astype(one.native_dtype)
        values.reshape(-1)[g % 3 :: 5] = MISSING
        every = list(itertools.product(*(range(n) for n in one.grid_shape)))
        holes = set(draw(st.lists(st.sampled_from(every), max_size=2))) if one.sparse else set()
        missing = set(draw(st.lists(st.sampled_from(every), max_size=1)))
        self._add(g, one, values, holes, missing)
        for coords in holes | missing:
            values[tuple(slice(k * c, (k + 1) * c) for k, c in zip(coords, one.chunk_shape, strict=True))] = UNWRITTEN
        self.variants.append(one)
        self.recodes.append(recode)
        self.granules.append((g, one, recoded(values, recode, self.dtype)))
        return g, src

    def _inner(self, numbers):
        return tuple(n for a, n in enumerate(numbers) if a not in self.new)

    def _add(self, g, one, values, holes, missing):
        inside = spec(
            self._inner(one.shape), self._inner(one.chunk_shape), one.dtype.str, one.codecs, one.fill, one.sparse,
            one.padded, path="/in/side",
        )  # fmt: skip
        states = {self._inner(c): State.MISSING for c in missing}
        self.archive.add(g, inside, values.reshape(inside.shape), states=states, holes={self._inner(c) for c in holes})

    def _deliver(self, row, tile):
        g, src, count, dest, _ = row
        box = {**tile, self.lead: (src, count, dest)} if self.lead is not None else tile
        axes = range(len(self.shape))
        part = self.granules[g][2][tuple(slice(box[a][0], box[a][0] + box[a][1]) for a in axes)]
        self.values[tuple(slice(box[a][2], box[a][2] + box[a][1]) for a in axes)] = part

    def _combined(self, draw, tiles, rows):
        columns = np.array(rows, np.int64).reshape(-1, 5).T
        placements = Placements(
            self.lead,
            columns[0].astype("i4"),
            columns[1],
            columns[2],
            columns[3],
            columns[0].astype("i4"),
            tuple(Tile(*t) for t in tiles),
            columns[4].astype("i4"),
        )
        base = spec(self.shape, tuple(draw(st.integers(1, 4)) for _ in self.shape))
        if not self.variants:  # all is a gap
            self.variants, self.recodes = [base], [None]
        return CombinedArray(
            "/published",
            base.dims,
            self.shape,
            self.dtype,
            self.dtype.newbyteorder(">"),
            np.array(STORED_FILL, self.dtype.newbyteorder(">")).tobytes(),
            CodecChain.of(Codec.of("bytes", endian="big"), Codec.of("zlib", level=1)),
            Attributes.of({"_FillValue": np.array(GAP, self.dtype)[()]}),
            ChunkGrid.regular(self.shape, base.chunk_shape),
            "recoded",
            placements,
            tuple(self.variants),
            "/in/side",
            self.new,
            tuple(self.recodes) if any(r is not None for r in self.recodes) else (),
        )


@given(st.data())
@settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_any_selection_of_any_mosaic(data):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        whole = Whole(folder, data.draw)
        least, most, gap = data.draw(st.sampled_from([(1 << 16, 1 << 20, 1 << 16), (0, 8, 0), (0, 20, 6)]))
        for name, value in (("_LEAST_CHUNK", least), ("_MOST_PIECE", most), ("_GAP", gap)):
            patch.setattr(plain, name, value)
        fetcher = whole.archive.fetcher(threads=data.draw(st.sampled_from([1, 2])), bytes_in_flight=200)
        chosen = tuple(data.draw(selections(n)) for n in whole.shape)
        want = whole.values
        for a in reversed(range(len(chosen))):
            part = chosen[a]
            if isinstance(part, list | np.ndarray):
                part = np.asarray(part, bool if isinstance(part, np.ndarray) else int)
            want = want[(slice(None),) * a + (part,)]
        got = fetcher.read(whole.array, chosen)
        assert got.shape == want.shape
        assert got.dtype == whole.dtype
        assert np.array_equal(got, want)

        start = tuple(data.draw(st.integers(0, n)) for n in whole.shape)
        stop = tuple(data.draw(st.integers(a, n)) for a, n in zip(start, whole.shape, strict=True))
        target = np.full((*(b - a for a, b in zip(start, stop, strict=True)), 2), 99, whole.dtype)
        fetcher.read_box(whole.array, start, stop, out=target[..., 1])
        assert np.array_equal(target[..., 1], whole.values[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))])
        assert (target[..., 0] == 99).all()


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_encoded_chunks_of_any_mosaic(data):
    with tempfile.TemporaryDirectory() as folder:
        whole = Whole(folder, data.draw)
        array, fetcher = whole.array, whole.archive.fetcher()
        edges = array.grid.regular_shape
        for coords in itertools.product(*(range(n) for n in array.grid.grid_shape)):
            want = np.full(edges, STORED_FILL, whole.dtype)
            part = whole.values[tuple(slice(k * c, (k + 1) * c) for k, c in zip(coords, edges, strict=True))]
            want[tuple(slice(0, n) for n in part.shape)] = part
            encoded = fetcher.encoded_chunk(array, coords)
            assert encoded is not None or (part == STORED_FILL).all()
            if encoded is not None:
                assert np.array_equal(decode_chunk(encoded, array.codecs, array.stored_dtype, edges), want)


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_reads_are_counted(data):
    with tempfile.TemporaryDirectory() as folder:
        whole = Whole(folder, data.draw)
        region = tuple(data.draw(st.integers(1, n)) for n in whole.shape)
        p, chunks, reads = whole.array.placements, 0, 0
        for i in range(len(p)):
            box, edges = p.box(i, whole.shape), whole.variants[int(p.variant[i])].chunk_shape
            found, cut = [], []
            for a, (src, count, dest) in enumerate(zip(box.src_offset, box.count, box.dest, strict=True)):
                elements = np.arange(count)
                mine = {(e + src) // edges[a] for e in elements.tolist()}
                found.append(len(mine))
                cut.append(len({((e + src) // edges[a], (e + dest) // region[a]) for e in elements.tolist()}))
            chunks, reads = chunks + int(np.prod(found)), reads + int(np.prod(cut))
        assert placed_chunks(whole.array) == chunks
        assert placed_chunks(whole.array, ChunkGrid.regular(whole.array.shape, region).dimensions) == reads
