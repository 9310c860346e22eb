"""The witness on what combining makes: tiles, gaps, new axes, eras, granules that code their numbers each in their own way.

Published forms are written by hand with zarr alone, right and wrong; the wrong ones are what a combiner publishes that takes
the first granule's packing, units, storage fill or codecs for everyone's.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import cftime
import h5py
import numpy as np
import pytest
import zarr

from drystone.codecs.chain import CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.made import AxisRule
from drystone.model.options import AxisOptions, DifferenceOptions
from drystone.model.placement import Combined, CombinedArray, Placements, Tile
from drystone.model.recode import Recode
from drystone.verify.report import VerifyReport
from drystone.verify.run import verify_output

BYTES = CodecChain.of("bytes")
NAN = float("nan")


def placements(
    axis: int | None, rows: list[tuple[int, int, int, int, int]], tiles: tuple[Tile, ...] = (), tile: tuple[int, ...] = ()
) -> Placements:
    """Rows of granule, src_offset, count, dest, variant."""
    columns = [np.array(c, np.int64) for c in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 5
    g, src, count, dest, variant = columns
    return Placements(axis, g.astype("i4"), src, count, dest, variant.astype("i4"), tiles, np.array(tile, np.int32))


def combined_array(
    path: str,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    dtype: str,
    where: Placements,
    attributes: dict[str, object] | None = None,
    **more: object,
) -> CombinedArray:
    kind = np.dtype(dtype)
    chunks = tuple(max(1, n) for n in shape)
    spec = ArraySpec(path, dims, shape, chunks, kind, None, BYTES)
    variants = (spec,) * (int(where.variant.max(initial=-1)) + 1)
    values: dict[str, object] = {"fill": None, "variants": variants} | more
    return CombinedArray(
        path=path,
        dims=dims,
        shape=shape,
        dtype=kind,
        stored_dtype=kind,
        codecs=BYTES,
        attributes=Attributes.of(attributes or {}),
        grid=ChunkGrid.regular(shape, chunks),
        unaligned=None,
        placements=where,
        **values,  # type: ignore[arg-type]
    )


@dataclass
class Case:
    """Granules and a store in one folder, and the arrays that it should hold."""

    folder: Path
    arrays: list[CombinedArray] = field(default_factory=list)
    coordinates: dict[str, np.ndarray] = field(default_factory=dict)
    rules: dict[str, AxisRule] = field(default_factory=dict)

    def granule(self, number: int, **values: np.ndarray | tuple[np.ndarray, dict[str, object]]) -> None:
        with h5py.File(self.folder / f"g{number}.nc", "a") as f:
            for name, given in values.items():
                data, attributes = given if isinstance(given, tuple) else (given, {})
                d = f.create_dataset(name, data=data)
                for key, value in attributes.items():
                    d.attrs[key] = value

    def publish(self, path: str, values: np.ndarray, dims: tuple[str, ...], **attributes: object) -> None:
        root = zarr.open_group(self.folder / "out", mode="a")
        name = path.strip("/")
        if name in root:
            del root[name]
        chunks = tuple(max(1, -(-n // 2)) for n in values.shape)
        root.create_array(name, data=values, chunks=chunks, dimension_names=dims, attributes=attributes)

    def verify(self, mode: str = "full", **options: object) -> VerifyReport:
        granules = {int(p.stem[1:]): str(p) for p in self.folder.glob("g*.nc")}
        whole = Combined((), tuple(self.arrays), None, self.coordinates, rules=self.rules)
        there = ("zarr", str(self.folder / "out"), whole, granules)
        report = verify_output(*there, mode=mode, **options)  # type: ignore[arg-type]
        if mode == "full":  # digests find what cells find
            by_digest = verify_output(*there, mode="digest", **options)  # type: ignore[arg-type]
            assert [a.ok for a in by_digest.arrays] == [a.ok for a in report.arrays], by_digest.lines()
            assert [a.cells for a in by_digest.arrays] == [a.cells for a in report.arrays]
        return report

    def objects(self, text: str, **options: object) -> None:
        report = self.verify(**options)
        assert not report.ok, report.lines()
        assert re.search(text, report.first_problem()), report.first_problem()

    def accepts(self, **options: object) -> VerifyReport:
        report = self.verify(**options)
        assert report.ok, report.lines()
        return report


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


# ---------------------------------------------------------------------------------------------------------------
# tiles, crops, gaps


def mosaic(case: Case) -> np.ndarray:
    """Two rows of tiles on two steps of time, staggered, cropped, with holes; gaps say -9, unwritten chunks 3."""
    rng = np.random.default_rng(3)
    whole = np.full((4, 6, 10), -9, "i2")
    tiles = (Tile((0, 1, 0), (0, 3, 5), (0, 0, 0)), Tile((0, 0, 2), (0, 3, 4), (0, 3, 6)))
    rows = [(0, 0, 2, 0, 0), (1, 1, 1, 3, 0), (2, 0, 3, 0, 0)]
    for g, (shape, t) in enumerate([((2, 4, 5), 0), ((2, 4, 5), 0), ((3, 3, 6), 1)]):
        data = rng.integers(0, 100, shape).astype(">i2")
        case.granule(g, v=(data, {"_FillValue": np.array([-9], ">i2")}))
        _, src, count, dest, _ = rows[g]
        tile = tiles[t]
        here = (slice(dest, dest + count), *(slice(tile.dest[d], tile.dest[d] + tile.count[d]) for d in (1, 2)))
        there = (slice(src, src + count), *(slice(tile.src_offset[d], tile.src_offset[d] + tile.count[d]) for d in (1, 2)))
        whole[here] = data[there]
    where = placements(0, rows, tiles, (0, 0, 1))
    fill = np.array(3, "i2").tobytes()
    case.arrays = [combined_array("/v", ("t", "y", "x"), whole.shape, "i2", where, {"_FillValue": np.int16(-9)}, fill=fill)]
    case.publish("/v", whole, ("t", "y", "x"), _FillValue=-9)
    return whole


def test_a_mosaic_with_crops_and_gaps(case: Case) -> None:
    whole = mosaic(case)
    report = case.accepts()
    assert report.cells == report.total == whole.size
    case.accepts(mode="sample", share=0.3)
    assert case.accepts(slab_bytes=40).cells == whole.size
    gaps = int((whole == -9).sum())
    wrong = np.where(whole == -9, 3, whole).astype("i2")
    case.publish("/v", wrong, ("t", "y", "x"), _FillValue=-9)
    case.objects(rf"{gaps} of 240 .*first at \(0, 0, 5\): published 3 .*source -9 .*no granule covers it")
    shifted = whole.copy()
    shifted[:3, 3:, 6:] = np.roll(shifted[:3, 3:, 6:], 1, axis=2)
    case.publish("/v", shifted, ("t", "y", "x"), _FillValue=-9)
    case.objects(r"first at \(0, 3, 6\): .*g2.nc has it at \(0, 0, 2\)")


def test_placements_that_are_one_off_are_seen(case: Case) -> None:
    mosaic(case)
    p = case.arrays[0].placements
    case.arrays = [replace(case.arrays[0], placements=replace(p, src_offset=np.array([0, 0, 0])))]
    case.objects(r"first at \(3, 0, 0\)")


def test_a_static_mosaic_has_no_lead_axis(case: Case) -> None:
    left, right = np.arange(6.0).reshape(2, 3), np.arange(4.0).reshape(2, 2) + 10
    case.granule(0, h=left)
    case.granule(1, h=right)
    tiles = (Tile((0, 0), (2, 3), (0, 0)), Tile((0, 1), (2, 1), (0, 4)))
    where = placements(None, [(0, 0, 1, 0, 0), (1, 0, 1, 0, 0)], tiles, (0, 1))
    case.arrays = [combined_array("/h", ("y", "x"), (2, 5), "f8", where)]
    whole = np.full((2, 5), np.nan)  # no _FillValue: a gap of floats is NaN
    whole[:, :3], whole[:, 4:] = left, right[:, 1:]
    case.publish("/h", whole, ("y", "x"))
    case.accepts()
    whole[1, 4] = right[1, 0]
    case.publish("/h", whole, ("y", "x"))
    case.objects(r"first at \(1, 4\): .*g1.nc has it at \(1, 1\)")


def test_rectilinear_chunks_and_the_crop_codec(case: Case) -> None:
    """Padded HDF5 chunks as they lie in the files, cropped by the reader; zarr's own registry offers drystone's class."""
    rng = np.random.default_rng(1)
    rows, parts, at = [], [], 0
    for g, n in enumerate((5, 3, 4)):
        data = rng.integers(0, 999, (n, 4)).astype("<i4")
        parts.append(data)
        rows.append((g, 0, n, at, 0))
        at += n
        with h5py.File(case.folder / f"g{g}.nc", "w") as f:
            f.create_dataset("v", data=data, chunks=(3, 4), maxshape=(None, 4))
    whole = np.concatenate(parts)
    case.arrays = [combined_array("/v", ("t", "x"), whole.shape, "i4", placements(0, rows))]
    zarr.create_group(case.folder / "out")
    folder = case.folder / "out" / "v"
    meta = {
        "zarr_format": 3, "node_type": "array", "shape": [12, 4], "data_type": "int32", "fill_value": 0, "attributes": {},
        "chunk_grid": {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": [[3, 2, 3, 3, 1], [4]]},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [
            {"name": "drystone.crop", "configuration": {"block": [3, 4]}},
            {"name": "bytes", "configuration": {"endian": "little"}},
        ],
        "dimension_names": ["t", "x"],
    }  # fmt: skip
    number = 0
    for g in range(3):
        with h5py.File(case.folder / f"g{g}.nc") as f:
            d = f["v"].id
            for i in range(d.get_num_chunks()):
                info = d.get_chunk_info(i)
                raw = (case.folder / f"g{g}.nc").read_bytes()[info.byte_offset : info.byte_offset + info.size]
                assert len(raw) == 48, "chunks are stored full size"
                (folder / "c" / str(number)).mkdir(parents=True)
                (folder / "c" / str(number) / "0").write_bytes(raw)
                number += 1
    (folder / "zarr.json").write_text(json.dumps(meta))
    report = case.accepts()
    assert report.cells == 48
    case.accepts(mode="sample", share=0.2)
    meta["chunk_grid"]["configuration"]["chunk_shapes"] = [[3, 3, 2, 3, 1], [4]]  # type: ignore[index]
    (folder / "zarr.json").write_text(json.dumps(meta))
    case.objects(r"first at \(5, 0\)")


# ---------------------------------------------------------------------------------------------------------------
# paths within granules, new axes, arrays that no granule holds


def test_members_on_a_new_axis_in_an_era_group(case: Case) -> None:
    values = [np.arange(6, dtype="f4").reshape(2, 3) + 10 * g for g in range(3)]
    for g, v in enumerate(values):
        case.granule(g, v=v, level=np.array(float(g)))
    where = placements(0, [(0, 0, 1, 0, 0), (2, 0, 1, 1, 0), (1, 0, 1, 2, 0)])
    dims = ("member", "y", "x")
    case.arrays = [
        combined_array("/era-2-codecs/v", dims, (3, 2, 3), "f4", where, source="/v", new_axes=(0,)),
        combined_array("/era-2-codecs/level", ("member",), (3,), "f8", where, source="/level", new_axes=(0,)),
        combined_array("/member", ("member",), (3,), "i4", placements(None, []), variants=()),
    ]
    order = [0, 2, 1]
    case.publish("/era-2-codecs/v", np.stack([values[g] for g in order]), dims)
    case.publish("/era-2-codecs/level", np.array([0.0, 2.0, 1.0]), ("member",))
    case.publish("/member", np.array([1, 3, 2], "i4"), ("member",))
    report = case.accepts()
    assert report.made == ("/member",)
    assert report.unverified == ()
    assert "in no granule, so compared with none: /member" in report.lines()[-1]
    assert VerifyReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    case.publish("/era-2-codecs/v", np.stack(values), dims)
    case.objects(r"first at \(1, 0, 0\): .*g2.nc has it at \(0, 0\)")
    case.arrays = [replace(case.arrays[2], shape=(4,))]
    case.objects(r"/member: published with the shape \(3,\), not \(4,\)")


def rule(options: AxisOptions, rows: list[tuple[int, int, int, int]], origin: str | None = None, **more: object) -> AxisRule:
    """Rows of granule, src, count, dest."""
    g, src, count, dest = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    source = f"/{options.name}" if options.position == "coordinate" else ""
    return AxisRule(options, source, origin, g.astype("i4"), src, count, dest, **more)  # type: ignore[arg-type]


def made(case: Case, path: str, n: int, dtype: str, how: AxisRule, **attributes: object) -> None:
    """The case has one array that no granule holds."""
    case.arrays = [combined_array(path, (path[1:],), (n,), dtype, placements(None, []), attributes, variants=())]
    case.rules = {path: how}


def test_slots_without_a_granule_are_counted_from_the_origin(case: Case) -> None:
    units = {"units": "days since 2000-01-01"}
    case.granule(0, time=(np.array([0, 1]), units))
    case.granule(1, time=(np.array([48.0]), {"units": "hours since 2000-01-03", "calendar": "gregorian"}))
    options = AxisOptions("time", axis="slots", step="1D")
    made(case, "/time", 5, "i8", rule(options, [(0, 0, 2, 0), (1, 0, 1, 4)], "2000-01-01"))
    case.publish("/time", np.arange(5), ("time",), **units)
    report = case.accepts()
    assert (report.made, report.arrays[0].cells) == ((), 5)
    case.publish("/time", np.array([0, 1, 0, 3, 4]), ("time",), **units)
    case.objects(r"1 of 5 .*first at \(2,\): published 0 .*source 2000-01-03T00:00:00, origin and 2 steps")
    case.publish("/time", np.array([0, 2, 2, 3, 4]), ("time",), **units)
    case.objects(r"first at \(1,\): published 2 .*source 1 .*g0.nc has it at \(1,\)")
    case.publish("/time", np.arange(5), ("time",), units="days since 2000-01-02")
    case.objects("5 of 5 .*first at .0,.: published 0 .*2000-01-02T00:00:00, source 0 .*2000-01-01T00:00:00")
    case.publish("/time", np.arange(5), ("time",))
    case.objects("only the granule has the attribute units .*counts times, and the other does not")
    # a granule that was put into another slot than its own time is
    case.publish("/time", np.arange(5), ("time",), **units)
    case.rules = {"/time": rule(options, [(0, 0, 2, 0), (1, 0, 1, 3)], "2000-01-01")}
    case.objects(r"first at \(3,\): .*source 48.0 .*2000-01-05T00:00:00 .*g1.nc")


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day", "all_leap", "julian", "proleptic_gregorian"])
def test_month_slots_of_every_calendar(case: Case, calendar: str) -> None:
    """cftime says where months begin."""
    units = "days since 1999-11-30"
    starts = [cftime.date2num(cftime.datetime(1999 + m // 12, m % 12 + 1, 1, calendar=calendar), units) for m in range(10, 20)]
    values = np.array([n + 14 if i in (1, 4) else n for i, n in enumerate(starts)])
    for g, i in enumerate((1, 4)):
        case.granule(g, time=(np.array(values[i]), {"units": units, "calendar": calendar}))
    options = AxisOptions("time", axis="slots", step="1M")
    made(case, "/time", 10, "i8", rule(options, [(0, 0, 1, 1), (1, 0, 1, 4)], "1999-11-15T12:00"))
    case.publish("/time", values, ("time",), units=units, calendar=calendar)
    case.accepts()
    for wrong in (3, 4):
        damaged = values.copy()
        damaged[wrong] += 1
        case.publish("/time", damaged, ("time",), units=units, calendar=calendar)
        case.objects(rf"1 of 10 .*first at \({wrong},\)")
    case.publish("/time", values[[0, 4, 2, 3, 1, 5, 6, 7, 8, 9]], ("time",), units=units, calendar=calendar)
    case.objects(r"2 of 10 .*first at \(1,\)")


def test_slots_of_decimal_numbers(case: Case) -> None:
    depth = np.float32([0.1, 0.3])
    case.granule(0, depth=depth)
    options = AxisOptions("depth", axis="slots", step="0.1")
    made(case, "/depth", 4, "f4", rule(options, [(0, 0, 1, 0), (0, 1, 1, 2)], "0.1"))
    right = np.array([0.1, 0.2, 0.3, 0.4], "f4")
    case.publish("/depth", right, ("depth",))
    case.accepts()
    case.publish("/depth", right.astype("f8"), ("depth",))
    case.objects("4 of 4 .*source 0.1, origin and 0 steps")
    case.publish("/depth", np.nextafter(right, np.float32(1)), ("depth",))
    case.objects("4 of 4")


@pytest.mark.parametrize(
    ("pattern", "labels", "wrong", "text"),
    [
        ("(g[0-9])", np.array(["g0", "g1"]), np.array(["g1", "g1"]), r"1 of 2 .*first at \(0,\): .*source g0 .*g0.nc"),
        ("g([0-9])", np.array([0, 1], "u1"), np.array([0, 2], "u1"), r"1 of 2 .*first at \(1,\): .*source 1 .*g1.nc"),
        ("x([0-9])", np.array([0, 1]), np.array([0, 1]), "the pattern .* finds nothing in 'g0.nc'"),
    ],
)
def test_labels_of_names(case: Case, pattern: str, labels: np.ndarray, wrong: np.ndarray, text: str) -> None:
    for g in range(2):
        case.granule(g, v=np.zeros(1))
    options = AxisOptions("run", position="name", pattern=pattern)
    made(case, "/run", 2, "i8", rule(options, [(0, 0, 1, 0), (1, 0, 1, 1)]))
    case.publish("/run", labels, ("run",))
    if pattern[0] != "x":
        case.accepts()
    case.publish("/run", wrong, ("run",))
    case.objects(text)


def test_a_place_that_no_granule_takes_has_no_label(case: Case) -> None:
    case.granule(0, v=np.zeros(1))
    made(case, "/run", 2, "i8", rule(AxisOptions("run", position="name", pattern="g(.)"), [(0, 0, 1, 0)]))
    case.publish("/run", np.array([0, 1]), ("run",))
    case.objects("no granule takes place 1")


def test_places_taken_of_an_axis(case: Case) -> None:
    units = {"units": "days since 2000-01-01"}
    case.granule(0, time=(np.arange(3), units))
    options = AxisOptions("time", axis="slots", step="1D")
    how = rule(options, [(0, 0, 3, 2)], "1999-12-30", places=np.array([5, 0, 3, 4, 3]))
    made(case, "/time", 5, "i8", how)
    case.publish("/time", np.array([3, -2, 1, 2, 1]), ("time",), **units)
    case.accepts()
    case.publish("/time", np.array([3, -2, 1, 1, 1]), ("time",), **units)
    case.objects(r"1 of 5 .*first at \(3,\): published 1 .*source 2 .*g0.nc has it at \(2,\)")


# ---------------------------------------------------------------------------------------------------------------
# granules that differ


def packed(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two granules that pack differently, and what they mean together."""
    a, b = np.array([1, 2, -99, 4], "i2"), np.array([10, -1, 30, 40], "i2")
    case.granule(0, v=(a, {"scale_factor": 0.1, "add_offset": 5.0, "_FillValue": np.int16(-99)}))
    case.granule(1, v=(b, {"scale_factor": np.float32(0.01), "_FillValue": np.int16(-1)}))
    means = np.concatenate([a * 0.1 + 5.0, b * float(np.float32(0.01))])
    means[[2, 5]] = np.nan
    return a, b, means


def two(recodes: bool, variants: bool = True, dtype: str = "i2", **attributes: object) -> CombinedArray:
    where = placements(0, [(0, 0, 4, 0, 0), (1, 0, 4, 4, int(variants))])
    given = {"recodes": (Recode(np.dtype(dtype)),) * 2} if recodes else {}
    return combined_array("/v", ("t",), (8,), dtype, where, attributes, **given)


@pytest.mark.parametrize("variants", [True, False])
def test_the_second_granules_packing_ignored(case: Case, variants: bool) -> None:
    a, b, _ = packed(case)
    attributes = {"scale_factor": 0.1, "add_offset": 5.0, "_FillValue": -99}
    case.publish("/v", np.concatenate([a, b]), ("t",), **attributes)
    case.arrays = [two(False, variants, **attributes)]
    case.objects(r"scale_factor: published 0.1, stored 0.00999\d+ \(\S+g1.nc\)", mode="sample", share=1.0)
    case.objects("scale_factor", mode="full")
    case.objects("scale_factor", differences=DifferenceOptions(packing="first", fill="first", units="first"))


def test_unpacked_values_by_meaning(case: Case) -> None:
    a, b, means = packed(case)
    case.arrays = [two(True, dtype="f8", _FillValue=np.float64(NAN))]
    case.publish("/v", means, ("t",), _FillValue="AAAAAAAA+H8=")
    report = case.accepts()
    assert report.arrays[0].by_meaning
    assert "by meaning (/v)" in report.lines()[0]
    case.publish("/v", np.nextafter(means, np.inf), ("t",))
    case.accepts()
    for index, value, text in [
        (6, 30 * 0.01, r"1 of 8 .*first at \(6,\): published 0.3 "),  # the double 0.01 is not the float32
        (2, 99.0, r"first at \(2,\): published 99.0 .*source -99"),
        (5, -0.01, r"first at \(5,\)"),
        (0, NAN, r"first at \(0,\): published nan"),
    ]:
        wrong = means.copy()
        wrong[index] = value
        case.publish("/v", wrong, ("t",))
        case.objects(text)
    # and packing that was not undone at all
    case.publish("/v", np.concatenate([a, b]).astype("f8"), ("t",))
    case.objects(r"8 of 8|7 of 8|6 of 8")


def test_decoded_outputs_by_meaning(case: Case) -> None:
    _, _, means = packed(case)
    where = placements(0, [(0, 0, 4, 0, 0)])
    attributes = {"scale_factor": 0.1, "add_offset": 5.0, "_FillValue": np.int16(-99)}
    case.arrays = [combined_array("/v", ("t",), (6,), "i2", where, attributes)]
    whole = np.concatenate([means[:4], [NAN, NAN]])
    case.publish("/v", whole, ("t",))
    case.accepts(decoded=True)
    case.objects("published as float64|only the granule has")
    whole[4] = -99 * 0.1 + 5
    case.publish("/v", whole, ("t",))
    case.objects(r"first at \(4,\): .*no granule covers it", decoded=True)


def test_packed_anew(case: Case) -> None:
    a, b = np.arange(4, dtype="i2"), np.arange(4, dtype="i2") * 7
    case.granule(0, v=(a, {"scale_factor": 0.5, "add_offset": 2.0}))
    case.granule(1, v=(b, {"scale_factor": 0.25, "add_offset": -1.0}))
    means = np.concatenate([a * 0.5 + 2.0, b * 0.25 - 1.0])
    case.arrays = [two(True, dtype="i4", scale_factor=0.25, add_offset=2.0)]
    case.publish("/v", ((means - 2) / 0.25).astype("i4"), ("t",), scale_factor=0.25, add_offset=2.0)
    case.accepts()
    case.publish("/v", np.concatenate([a * 2, b]).astype("i4"), ("t",), scale_factor=0.25, add_offset=2.0)
    case.objects(r"4 of 8 .*first at \(4,\)")


def test_unsigned_and_other_sentinels_and_types(case: Case) -> None:
    case.granule(0, v=(np.array([-1, -2, 3, 4], "i1"), {"_Unsigned": "true", "_FillValue": np.int8(-2)}))
    case.granule(1, v=(np.array([255, 254, 0, 999], "i8"), {"missing_value": np.array([999, 0])}))
    case.arrays = [two(True, dtype="i2", _FillValue=np.int16(-9))]
    case.publish("/v", np.array([255, -9, 3, 4, 255, 254, -9, -9], "i2"), ("t",), _FillValue=-9)
    case.accepts()
    case.publish("/v", np.array([-1, -9, 3, 4, 255, 254, -9, -9], "i2"), ("t",), _FillValue=-9)
    case.objects(r"1 of 8 .*first at \(0,\)")
    case.publish("/v", np.array([255, -9, 3, 4, 255, 254, 0, -9], "i2"), ("t",), _FillValue=-9)
    case.objects(r"1 of 8 .*first at \(6,\)")


def test_large_whole_numbers_are_not_compared_as_doubles(case: Case) -> None:
    big = np.array([2**53 + 1, 2**62, 5, 6], "i8")
    case.granule(0, v=big)
    case.granule(1, v=big.astype("u8"))
    case.arrays = [two(True, dtype="i8")]
    case.publish("/v", np.concatenate([big, big]), ("t",))
    case.accepts()
    case.publish("/v", np.concatenate([big, big.astype("f8").astype("i8")]), ("t",))
    case.objects(r"1 of 8 .*first at \(4,\)")
    case.publish("/v", np.concatenate([big, big]).astype("f8"), ("t",))
    case.objects(r"2 of 8 .*first at \(0,\)")


def times(case: Case, bounds_units: bool) -> None:
    days, hours = {"units": "days since 2000-01-01"}, {"units": "hours since 2000-01-03 06:00", "calendar": "gregorian"}
    for g, (step, units) in enumerate(((1, days), (24, hours))):
        t = np.arange(4, dtype="i4") * step
        edges = np.stack([t, t + step], axis=1)
        case.granule(g, t=(t, units | {"bounds": "t_bnds"}), t_bnds=(edges, units if bounds_units else {}))


def test_times_as_instants_and_bounds_with_their_parents(case: Case) -> None:
    times(case, bounds_units=False)
    where = placements(0, [(0, 0, 4, 0, 0), (1, 0, 4, 4, 1)])
    both = (Recode(np.dtype("i8"), scale=Fraction(24)), Recode(np.dtype("i8"), offset=Fraction(54)))
    units = {"units": "hours since 2000-01-01", "bounds": "t_bnds"}
    case.arrays = [
        combined_array("/t", ("t",), (8,), "i8", where, units, recodes=both),
        combined_array("/t_bnds", ("t", "nv"), (8, 2), "i8", where, {}, recodes=both),
    ]
    hours = np.concatenate([np.arange(4) * 24, np.arange(4) * 24 + 54])
    edges = np.stack([hours, hours + 24], axis=1)
    case.publish("/t", hours, ("t",), **units)
    case.publish("/t_bnds", edges, ("t", "nv"))
    case.accepts()
    case.publish("/t", hours + (hours == 54), ("t",), **units)
    case.objects(r"/t: 1 of 8 .*first at \(4,\)")
    case.publish("/t", hours, ("t",), **units)
    edges[4:] -= 54  # the second granule's own numbers, under the first's date
    case.publish("/t_bnds", edges, ("t", "nv"))
    case.objects(r"/t_bnds: 8 of 16 .*first at \(4, 0\)")


def test_bounds_without_units_under_another_date_are_seen_in_bits_too(case: Case) -> None:
    times(case, bounds_units=False)
    where = placements(0, [(0, 0, 4, 0, 0), (1, 0, 4, 4, 0)])
    units = {"units": "days since 2000-01-01", "bounds": "t_bnds"}
    one = (Recode(np.dtype("i4")),)
    case.arrays = [
        combined_array("/t", ("t",), (8,), "f8", where, units, recodes=one),
        combined_array("/t_bnds", ("t", "nv"), (8, 2), "i4", where, {}),
    ]
    days = np.concatenate([np.arange(4.0), np.arange(4) + 2.25])
    case.publish("/t", days, ("t",), **units)
    step = np.array([1] * 4 + [24] * 4)
    raw = np.concatenate([np.arange(4), np.arange(4) * 24])
    case.publish("/t_bnds", np.stack([raw, raw + step], axis=1).astype("i4"), ("t", "nv"))
    case.objects(r"/t_bnds: attribute units: published days since 2000-01-01, stored hours since .* \(\S+g1.nc\)")


def test_calendars_are_never_mixed(case: Case) -> None:
    case.granule(0, v=(np.arange(4), {"units": "days since 2000-01-01", "calendar": "noleap"}))
    case.granule(1, v=(np.arange(4), {"units": "days since 2000-01-05"}))
    attributes = {"units": "days since 2000-01-01", "calendar": "noleap"}
    case.arrays = [two(True, dtype="i8", **attributes)]
    case.publish("/v", np.arange(8), ("t",), **attributes)
    case.objects(r"4 of 8 .*first at \(4,\)")


def test_spellings_of_one_date_are_one(case: Case) -> None:
    case.granule(0, v=(np.arange(4), {"units": "days since 2000-1-1", "calendar": "gregorian"}))
    case.granule(1, v=(np.arange(4), {"units": "day since 2000-01-01T00:00:00Z"}))
    case.arrays = [two(False, dtype="i8", units="days since 2000-1-1")]
    case.publish("/v", np.concatenate([np.arange(4)] * 2), ("t",), units="days since 2000-1-1", calendar="standard")
    case.accepts()
    case.publish("/v", np.concatenate([np.arange(4)] * 2), ("t",), units="days since 2000-1-2", calendar="standard")
    case.objects("attribute units: published days since 2000-1-2")


def test_units_that_are_no_times_must_be_the_same(case: Case) -> None:
    case.granule(0, v=(np.arange(4.0), {"units": "K"}))
    case.granule(1, v=(np.arange(4, dtype="f4"), {"units": "kelvin"}))
    case.arrays = [two(True, dtype="f8", units="K")]
    case.publish("/v", np.concatenate([np.arange(4.0)] * 2), ("t",), units="K")
    case.objects(r"attribute units: published K, stored kelvin \(\S+g1.nc\)")
    case.accepts(differences=DifferenceOptions(units="first"))


def chunk_of(path: Path, index: int) -> bytes | None:
    """Bytes of a chunk as the file holds them, or None where it is unwritten."""
    with h5py.File(path) as f:
        d = f["v"].id
        for i in range(d.get_num_chunks()):
            info = d.get_chunk_info(i)
            if info.chunk_offset[0] == index:
                return path.read_bytes()[info.byte_offset : info.byte_offset + info.size]
    return None


@pytest.mark.parametrize("fault", ["none", "shuffle", "fill"])
def test_codecs_and_storage_fills_of_the_first_granule_taken_for_all(case: Case, fault: str) -> None:
    """References into granules, under the first one's codecs and fill value."""
    values = np.random.default_rng(0).integers(0, 9, (4, 50)).astype("<i4") * 1000
    for g in range(2):
        with h5py.File(case.folder / f"g{g}.nc", "w") as f:
            d = f.create_dataset(
                "v", (2, 50), "<i4", chunks=(1, 50), compression="gzip",
                shuffle=not (g and fault == "shuffle"), fillvalue=-7 if g and fault == "fill" else -5,
            )  # fmt: skip
            d[0] = values[2 * g]  # the second chunk is never written
    case.arrays = [
        combined_array("/v", ("t", "x"), (4, 50), "i4", placements(0, [(0, 0, 2, 0, 0), (1, 0, 2, 2, 0)])),
    ]
    root = zarr.create_group(case.folder / "out")
    root.create_array(
        "v", shape=(4, 50), chunks=(1, 50), dtype="i4", fill_value=-5, filters=[], dimension_names=("t", "x"),
        compressors=[zarr.codecs.numcodecs.Shuffle(elementsize=4), zarr.codecs.numcodecs.Zlib(level=4)],
    )  # fmt: skip
    for g in range(2):
        target = case.folder / "out" / "v" / "c" / str(2 * g)
        target.mkdir(parents=True)
        (target / "0").write_bytes(chunk_of(case.folder / f"g{g}.nc", 0) or b"")
    if fault == "none":
        case.accepts()
    else:
        where = r"first at \(2, \d+\)" if fault == "shuffle" else r"50 of 200 .*first at \(3, 0\): published -5 .*source -7"
        case.objects(where)
