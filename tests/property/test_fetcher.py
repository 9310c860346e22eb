"""Any orthogonal selection of any archive is what NumPy says, and no chunk is decoded that holds no selected element."""

import itertools
import tempfile

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from unit.fetch.archive import DEFLATE, Archive, combined, spec

from drystone.codecs.chain import Codec, CodecChain
from drystone.fetch import plain
from drystone.model.attributes import Attributes

CHAINS = [DEFLATE, CodecChain.of("bytes"), CodecChain.of("bytes", Codec.of("zlib", level=1), "fletcher32")]
GAP, UNWRITTEN = -7, 5


@st.composite
def archives(draw):
    """(granule values and specs, placements, shape, axis): a row of slabs with gaps, each stored its own way."""
    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(0, rank - 1))
    side = draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    granules, placements, at = [], [], draw(st.integers(0, 2))
    for g in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 6))
        shape = tuple(length if a == axis else n for a, n in enumerate(side))
        one = spec(
            shape,
            tuple(draw(st.integers(1, 4)) for _ in shape),
            draw(st.sampled_from(["<i2", ">i2"])),
            draw(st.sampled_from(CHAINS)),
            np.array(UNWRITTEN, "<i2").tobytes(),
            padded=draw(st.booleans()),
            sparse=draw(st.booleans()),
            attributes=Attributes.of({"_FillValue": np.int16(GAP)}),
        )
        if one.dtype.byteorder == ">":
            one = spec(
                one.shape, one.chunk_shape, ">i2", one.codecs, np.array(UNWRITTEN, ">i2").tobytes(), one.sparse, one.padded
            )
        source = draw(st.integers(0, length - 1))
        count = draw(st.integers(1, length - source))
        holes = set()
        if one.sparse:
            every = list(itertools.product(*(range(n) for n in one.grid_shape)))
            holes = set(draw(st.lists(st.sampled_from(every), max_size=3)))
        granules.append((one, holes))
        placements.append((g, source, count, at, g))
        at += count + draw(st.integers(0, 2))
    return granules, placements, tuple(at if a == axis else n for a, n in enumerate(side)), axis


@st.composite
def selections(draw, n):
    kind = draw(st.sampled_from(["slice", "slice", "index", "array", "mask"]))
    if kind == "slice":
        bound = st.none() | st.integers(-n - 1, n + 1)
        return slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2, -5])))
    if kind == "index":
        return draw(st.integers(-n, n - 1))
    if kind == "mask":
        return np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    return draw(st.lists(st.integers(-n, n - 1), max_size=6))


def build(folder, granules, placements, shape, axis):
    archive = Archive(folder)
    whole = np.full(shape, GAP, "i2")
    for (g, source, count, dest, _), (one, holes) in zip(placements, granules, strict=True):
        values = (np.arange(np.prod(one.shape)) + 1000 * (g + 1)).reshape(one.shape).astype("i2")
        archive.add(g, one, values, holes=holes)
        for coords in holes:
            values[tuple(slice(k * c, (k + 1) * c) for k, c in zip(coords, one.chunk_shape, strict=True))] = UNWRITTEN
        cut = (slice(None),) * axis
        whole[(*cut, slice(dest, dest + count))] = values[(*cut, slice(source, source + count))]
    first = granules[0][0]
    attributes = Attributes.of({"_FillValue": np.int16(GAP)})
    return archive, combined([one for one, _ in granules], placements, shape, axis, attributes=attributes), whole, first


def most_bytes(granules, placements, axis, wanted):
    """Decoded bytes of the chunks that hold a selected element."""
    total = 0
    for (_, source, count, dest, _), (one, holes) in zip(placements, granules, strict=True):
        for coords in itertools.product(*(range(n) for n in one.grid_shape)):
            if coords in holes:
                continue
            touched = True
            for a, (k, c) in enumerate(zip(coords, one.chunk_shape, strict=True)):
                low, high = k * c, (k + 1) * c
                if a == axis:
                    low, high = max(low, source) - source + dest, min(high, source + count) - source + dest
                touched &= any(low <= i < high for i in wanted[a])
            if touched:
                size = [
                    c if one.padded else min(c, n - k * c) for k, c, n in zip(coords, one.chunk_shape, one.shape, strict=True)
                ]
                total += int(np.prod(size)) * 2
    return total


@given(archives(), st.data())
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_any_selection_of_any_archive(made, data):
    granules, placements, shape, axis = made
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        archive, array, whole, _ = build(folder, *made)
        chosen = tuple(data.draw(selections(n)) for n in shape)
        fetcher = archive.fetcher(threads=data.draw(st.sampled_from([1, 2])), bytes_in_flight=200)
        # unfiltered chunks in pieces as large ones are, or whole as small ones are
        least, most, gap = data.draw(st.sampled_from([(1 << 16, 1 << 20, 1 << 16), (0, 8, 0), (0, 20, 6)]))
        for name, value in (("_LEAST_CHUNK", least), ("_MOST_PIECE", most), ("_GAP", gap)):
            patch.setattr(plain, name, value)
        want, wanted = whole, []
        for a in reversed(range(len(shape))):
            part = (
                np.asarray(chosen[a], bool if isinstance(chosen[a], np.ndarray) else int)
                if isinstance(chosen[a], list | np.ndarray)
                else chosen[a]
            )
            want = want[(slice(None),) * a + (part,)]
            wanted.insert(0, np.atleast_1d(np.arange(shape[a])[part]).tolist())
        got = fetcher.read(array, chosen)
        assert got.shape == want.shape
        assert np.array_equal(got, want)
        if least:
            assert fetcher.bytes_decoded == most_bytes(granules, placements, axis, wanted)
        else:
            assert fetcher.bytes_decoded <= most_bytes(granules, placements, axis, wanted)
        # and a box, into a strided target
        start = tuple(data.draw(st.integers(0, n)) for n in shape)
        stop = tuple(data.draw(st.integers(a, n)) for a, n in zip(start, shape, strict=True))
        target = np.zeros((*(b - a for a, b in zip(start, stop, strict=True)), 2), "i2")
        fetcher.read_box(array, start, stop, out=target[..., 1])
        assert np.array_equal(target[..., 1], whole[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))])
        assert not target[..., 0].any()
