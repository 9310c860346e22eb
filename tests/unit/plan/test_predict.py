"""Predicted times: what a way does, and how long that takes at given rates."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from drystone.codecs.chain import Codec, CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.placement import CombinedArray
from drystone.model.placements import Placements
from drystone.model.rates import CodecRate, CodecUse, PlaceRates, Rates
from drystone.model.recode import Recode
from drystone.model.rounding import Rounding
from drystone.plan.layout import TargetLayout
from drystone.plan.predict import Coded, Crew, Work, predict
from drystone.plan.shards import weigh
from drystone.plan.work import Ends, works_of

I2 = np.dtype("i2")
DEFLATED = CodecChain.of("bytes", Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=4))
BLOSC = CodecChain.of("bytes", Codec.of("blosc", cname="zstd", clevel=1, shuffle="shuffle", typesize=2))
PLACE = PlaceRates(1e9, 1e9, 0.0, 1e9, 1e9, 0.0, 0.0, 0.0, False)
RATES = Rates(
    "host",
    "1",
    "2026-12-01T00:00:00Z",
    2,
    (CodecRate(CodecUse("zlib"), ((0.1, 1e9), (0.5, 5e8))), CodecRate(CodecUse("shuffle", 0, 2), ((1.0, 1e10),))),
    (CodecRate(CodecUse("blosc-zstd-shuffle", 1, 2), ((0.1, 4e8),)),),
    0.0,
    0.0,
    0.0,
    0.0,
    0.0,
    0.0,
    0.0,
    0.0,
    1e9,
    {"a": PLACE, "b": PLACE},
)
TWO = Crew(1, 2, 2)
NOTHING = Work("a", "b", 1, 1.0, 0, 0, 0, (), (), (), 0, 1, 0)


def seconds(work: Work, rates: Rates = RATES, crew: Crew = TWO) -> float:
    found = predict([work], rates, crew)
    assert found.seconds is not None, found.why
    return found.seconds


def maps(n: int = 90) -> CombinedArray:
    days = np.arange(n, dtype=np.int64)
    one = np.ones(n, np.int64)
    where = Placements(0, days.astype("i4"), 0 * days, one, days, np.zeros(n, "i4"))
    grid = ChunkGrid.regular((n, 400, 500), (1, 400, 500))
    return CombinedArray("/sst", ("t", "y", "x"), grid.shape, I2, I2, None, DEFLATED, Attributes(), grid, None, where, ())


def target(shard: tuple[int, int, int] | None = (90, 200, 250), codecs: CodecChain = BLOSC) -> TargetLayout:
    return TargetLayout("/sst", ("t", "y", "x"), (90, 400, 500), I2, (90, 50, 50), shard, codecs, bytes(2))


def test_rates_survive_json():
    assert Rates.from_json(json.loads(json.dumps(RATES.to_json()))) == RATES


def test_decoding_is_shared_by_the_cores_that_there_are():
    work = replace(NOTHING, tasks=4, decoded=(Coded(CodecUse("zlib"), 10**9, 0.1),))
    assert seconds(work) == pytest.approx(0.5)
    assert seconds(replace(work, tasks=1), crew=Crew(4, 1, 2)) == pytest.approx(1.0)
    assert seconds(work, crew=Crew(4, 1, 2)) == pytest.approx(0.5)
    assert seconds(work, crew=Crew(1, 1, 2)) == pytest.approx(1.0)


def test_data_that_compress_less_take_longer():
    fast = replace(NOTHING, decoded=(Coded(CodecUse("zlib"), 10**9, 0.1),))
    slow = replace(NOTHING, decoded=(Coded(CodecUse("zlib"), 10**9, 0.5),))
    assert seconds(slow) == pytest.approx(2 * seconds(fast))


def test_a_place_gives_no_more_than_it_has():
    slow = replace(RATES, places={"a": replace(PLACE, read=1e8, read_one=1e8), "b": PLACE})
    work = replace(NOTHING, fetched=10**9, decoded=(Coded(CodecUse("zlib"), 10**9, 0.1),))
    # two threads: while one decodes the other reads
    assert seconds(work, slow) == pytest.approx(10.0)


def test_putting_overlaps_with_encoding_but_for_one_cell():
    encode = (Coded(CodecUse("blosc-zstd-shuffle", 1, 2), 8 * 10**8, 0.1),)
    work = replace(NOTHING, encoded=encode, written=10**9, objects=10)
    assert seconds(work) == pytest.approx(1.0 + 1.0 / 10)


def test_the_busiest_worker_decides():
    work = replace(NOTHING, decoded=(Coded(CodecUse("zlib"), 10**9, 0.1),))
    assert seconds(replace(work, busiest=1.5)) == pytest.approx(1.5 * seconds(work))


def test_python_runs_once_a_process():
    rates = replace(RATES, chunk_read=1e-3)
    work = replace(NOTHING, tasks=2, chunks=1000)
    assert seconds(work, rates) == pytest.approx(1.0)
    assert seconds(work, rates, Crew(2, 1, 2)) == pytest.approx(0.5)


def test_two_passes_take_the_sum():
    one = replace(NOTHING, decoded=(Coded(CodecUse("zlib"), 10**9, 0.1),))
    both = predict([one, one], RATES, TWO)
    assert both.seconds == pytest.approx(2 * seconds(one))
    assert dict(both.parts)["decode"] == pytest.approx(2.0)


def test_what_was_not_measured_is_named():
    elsewhere = predict([replace(NOTHING, source="s3://bucket")], RATES, Crew(1, 1, 1))
    assert elsewhere.seconds is None
    assert "s3://bucket" in elsewhere.why
    odd = predict([replace(NOTHING, decoded=(Coded(CodecUse("lzf"), 1, 1.0),))], RATES, Crew(1, 1, 1))
    assert odd.seconds is None
    assert "lzf" in odd.why


def test_work_of_one_pass():
    array, layout = maps(), target()
    (work,) = works_of(weigh(array, layout, 10**9).candidates[0], array, layout, Ends("a", "b", 9 * 40_000, 1))
    assert (work.chunks, work.objects, work.written_chunks) == (90, 4, 80)
    assert [(c.use.name, c.nbytes) for c in work.decoded] == [("shuffle", 36_000_000.0), ("zlib", 36_000_000.0)]
    assert work.decoded[0].share == pytest.approx(0.01)
    assert work.written == pytest.approx(360_000)
    # undoing the shuffle puts values where they belong; cutting inner chunks moves rows of 50
    assert work.moved == ((36_000_000, 100),)


def test_chunks_read_again_are_decoded_again():
    array, layout = maps(), target((90, 100, 250))
    ways = weigh(array, layout, 10**9).candidates
    small = next(c for c in ways if c.amplification > 1)
    (work,) = works_of(small, array, layout, Ends("a", "b", 360_000, 1))
    assert work.decoded[0].nbytes == pytest.approx(36_000_000 * small.amplification)
    assert work.fetched == pytest.approx(360_000 * small.amplification)


def test_two_passes_write_and_read_what_lies_in_between():
    array, layout = maps(), target((90, 100, 250))
    way = weigh(array, layout, 20_000_000, in_flight=1_000_000, slots=2, only="two passes").candidates[0]
    assert way.shuffle is not None
    first, second = works_of(way, array, layout, Ends("a", "b", 360_000, 2, "c"))
    assert (first.source, first.target, second.source, second.target) == ("a", "c", "c", "b")
    assert (first.tasks, second.tasks) == (way.shuffle.n_sources, way.regions.n_chunks)
    assert first.tasks + second.tasks == way.n_tasks
    assert (first.chunks, first.objects, second.granules) == (90, way.shuffle.n_sources, way.shuffle.n_pieces)
    assert first.fetched == pytest.approx(360_000)
    assert second.fetched == first.written == pytest.approx(1.2 * 360_000)
    assert second.written == pytest.approx(360_000)
    assert [c.use.name for c in (*first.encoded, *second.decoded)] == ["blosc-lz4-shuffle"] * 2


def test_the_fastest_way_that_fits_wins_and_not_the_cheapest():
    array, layout = maps(), target((90, 100, 250))
    plain = weigh(array, layout, 10**9).candidates
    favoured = plain[-1].regions
    timed = weigh(array, layout, 10**9, timer=lambda c: 1.0 if c.regions == favoured else 10.0).candidates
    assert timed[0].regions == favoured
    assert {c.regions for c in timed} == {c.regions for c in plain}
    near = weigh(array, layout, 10**9, timer=lambda c: 9.5 if c.regions == favoured else 10.0).candidates
    assert near[0].regions == plain[0].regions


def test_numbers_that_are_rewritten_cost_their_way() -> None:
    spec = ArraySpec(
        "/sst", ("t", "y", "x"), (1, 400, 500), (1, 400, 500), I2, None, DEFLATED, Attributes(), (False,) * 3, False, True
    )
    unpack = Recode(np.dtype("f4"), scale=Fraction(1, 100))
    array = replace(maps(), dtype=np.dtype("f4"), codecs=CodecChain.of("bytes"), variants=(spec,), recodes=(unpack,))
    layout = replace(target(), dtype=np.dtype("f4"), fill=bytes(4), rounding=Rounding(keepbits=9))
    (work,) = works_of(weigh(array, layout, 10**9).candidates[0], array, layout, Ends("a", "b", 360_000, 1))
    # the granules' codecs run, not those of the whole
    assert [c.use.name for c in work.decoded] == ["shuffle", "zlib", "recode-scaled"]
    assert {c.nbytes for c in work.decoded} == {36_000_000.0}
    assert [c.use.name for c in work.encoded] == ["round-bits", "blosc-zstd-shuffle"]
    # values go through a buffer on their way, so they are moved once more
    assert len(work.moved) == 2


def test_small_chunks_pay_for_each_call() -> None:
    rates = replace(RATES, decode=(CodecRate(CodecUse("zlib"), ((0.1, 1e9),), 1e-5),))
    work = replace(NOTHING, decoded=(Coded(CodecUse("zlib"), 10**9, 0.1, 10**5),))
    assert seconds(work, rates) == pytest.approx((1.0 + 1.0) / 2)
