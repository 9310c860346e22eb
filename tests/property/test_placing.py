"""Whatever a placer accepts is right element by element, by brute force; whatever it refuses is off the grid."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drystone.codecs.chain import Codec, CodecChain
from drystone.emit.placing import Placer
from drystone.errors import UnsupportedError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import RowBatch
from drystone.model.placement import CombinedArray, Placements

PLAIN = CodecChain.of("bytes")
PACKED = CodecChain.of("bytes", Codec.of("zlib", level=1))


@st.composite
def dimensions(draw: st.DrawFn) -> DimensionGrid:
    if draw(st.booleans()):
        return RegularDimension(draw(st.integers(1, 24)), draw(st.integers(1, 6)))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    block = max(sizes) + draw(st.integers(0, 1))
    encoded = draw(st.sampled_from([None, [block] * len(sizes), [*sizes[:-1], block]]))
    return RectilinearDimension(tuple(sizes), None if encoded is None else tuple(encoded))


@settings(max_examples=1000, deadline=None)
@given(st.data())
def test_every_accepted_chunk_holds_what_the_whole_has_there(data: st.DataObject) -> None:
    dim = data.draw(dimensions())
    # at and near what fits, or nearly nothing would be accepted
    edges = dim.edges().tolist()
    near = sorted({max(1, n + k) for n in [*np.diff(edges).tolist(), dim.encoded_size(0)] for k in (0, -1, 1)})
    edge = data.draw(st.just(dim.encoded_size(0)) | st.sampled_from(near))
    dest = data.draw(st.sampled_from(edges[:-1]) | st.integers(0, dim.extent - 1))
    ends = [e for e in edges if e > dest]
    count = data.draw(st.just(dim.extent) | st.sampled_from(ends) | st.integers(dest + 1, dim.extent)) - dest
    src = data.draw(st.sampled_from([0, 0, edge, 1]))
    have = src + count + data.draw(st.sampled_from([0, 0, 0, 1, edge]))
    padded, plain = data.draw(st.booleans()), data.draw(st.booleans())
    spec = ArraySpec("/v", ("t",), (have,), (edge,), np.dtype("u1"), None, PLAIN if plain else PACKED, padded=padded)
    one = np.zeros(1, np.int32)
    p = Placements(0, one, np.array([src]), np.array([count]), np.array([dest]), one)
    array = CombinedArray(
        "/v", ("t",), (dim.extent,), np.dtype("u1"), np.dtype("u1"), None, spec.codecs, spec.attributes, ChunkGrid((dim,)),
        None, p, (spec,),
    )  # fmt: skip
    n = spec.n_chunks
    stored = [edge if padded else min(edge, have - c * edge) for c in range(n)]
    offset = np.cumsum([0, *stored[:-1]])  # a byte an element, chunk after chunk: offsets are element numbers
    rows = RowBatch(
        np.zeros(n, np.int32), np.arange(n, dtype=np.int32)[None], offset.astype(np.int64), np.array(stored, np.int64),
        np.zeros(n, np.int8),
    )  # fmt: skip
    try:
        placer = Placer(array)
    except UnsupportedError:
        # the plainest of all placements, chunk by chunk on one regular grid, is never refused
        assert not (
            isinstance(dim, RegularDimension) and dim.size == edge and padded and not (src % edge or dest % edge)
            and (count % edge == 0 or dest + count == dim.extent)
        )  # fmt: skip
        return
    placed, _ = placer.place(rows)
    placer.finish()
    covered = np.zeros(dim.extent, np.int64)
    for k, at, length in zip(placed.coords[0].tolist(), placed.offset.tolist(), placed.length.tolist(), strict=True):
        assert length == dim.encoded_size(k)  # a reader gets as many elements as the grid says
        a = dim.chunk_offset(k)
        for e in range(a, a + dim.data_size(k)):
            assert at + e - a == src + e - dest  # element by element
            covered[e] += 1
    assert covered.tolist() == [int(dest <= e < dest + count) for e in range(dim.extent)]
