"""Examples for the reference page, by the path of the section they belong to; the tests of the documentation run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["EXAMPLES"]

_ARCHIVE = """\
Final granules replace their preliminary forms, and the names say which is which:

```yaml title="versions.yaml"
name: oisst
archive:
  granules: "raw/oisst-avhrr-v02r01.*.nc"
  versions: {of: "{stem}_preliminary", prefer: final}
outputs:
  - virtual: icechunk
    at: oisst.icechunk
```
```bash
drystone check versions.yaml | grep "the final one replaces the others"
```
"""

_ALONG = """\
A word is the usual case: `along: time`. A word for an axis is its position: `along: {time: coordinate}`. Several axes are a
list of names or a mapping; the first is the one that most granules lie along. A dimension that no array has becomes a new
one, in front, in which each granule has one place.

**Slots.** With `axis: slots` a place is (value - origin) / step. A missing day stays a gap, a late granule goes where it
belongs, and the order of the list does not matter. The origin is fixed when the archive is first published. Steps in `M` and
`Y` count calendar months and years: the place is the month that holds the value.

```yaml title="slots.yaml"
name: oisst
granules: "raw/*.nc"
combine:
  along: {time: {axis: slots, step: 1D, origin: 1981-09-01}}
  duplicates: newest
  gaps: fill
outputs:
  - virtual: icechunk
    at: oisst.icechunk
```

**New axes**, here a scenario from the file's name and a member from a global attribute:

```yaml title="ensemble.yaml"
name: scenarios
granules: "raw/*.nc"
combine:
  along:
    time: coordinate
    scenario: {position: name, pattern: "(ssp[0-9]+)_"}
    member: {position: attribute, attribute: realization_index}
outputs:
  - store: zarr
    at: scenarios.zarr
```

A number in the name that counts places, such as a tile's grid index, is `{position: name, pattern: "y([0-9]+)", axis: slots,
step: 1}`. With `origin`, `stop` and `step`, granules are laid onto a given axis, and no chunk moves.

**Mosaics.** `mosaic` is another way to write `along` and `overlap`: tiles lie where their coordinates say. With `overlap: crop`
neighbours are cut half way: each gives up half of what both hold, the first along the axis keeps the middle of an odd number.

```yaml title="mosaic.yaml"
name: elevation
granules: "tiles/*.nc"
combine:
  mosaic: {y: coordinate, x: coordinate, overlap: last}
outputs:
  - virtual: icechunk
    at: elevation.icechunk
    grid: rectilinear
```
```bash
drystone check slots.yaml | grep "time, placed by coordinate in slots of 1D from 1981-09-01"
drystone check ensemble.yaml | grep "member, placed by attribute realization_index"
drystone check mosaic.yaml | grep "overlap: last"
```

What does not go together is said, all of it at once:

```bash
sed 's/step: 1D/stop: 1980-01-01/' slots.yaml > wrong.yaml
! drystone check wrong.yaml 2> problems.txt
grep "combine.along.time.step: expected a step, as axis is slots" problems.txt
grep "combine.along.time.stop: expected a value beyond origin" problems.txt
```
"""

_SELECT = """\
What is taken of a dimension is said in one of these ways. Values are the coordinate's own, as stored; times are ISO 8601.

| written | takes |
|---|---|
| `zlev: 0` | the one place whose coordinate *value* is 0; the dimension is dropped. A number is never a place's number |
| `scenario: ssp585` | the same by a label; `time: 2001-01-16` by a time |
| `lat: [-80, 80]` | a range of values, both ends included, whichever way the coordinate runs; `[null, 80]`: open |
| `time: {from: 1981-09, to: "2000", step: 2}` | with a stride; a date as `to` is the whole of that year, month or day |
| `x: {step: 4}` | every fourth place |
| `lev: {values: [10, 850]}` | the places with exactly these values |
| `zlev: {index: 0}` | the place with this *number*, from 0, or from -1 backwards; the dimension is dropped |
| `x: {index: [5, 0, 9]}` | places by number, in that order |
| `x: {index: {start: 10, stop: 20, step: 2}}` | a slice by number, `stop` excluded, as in Python |
| `lat: {points: [10.5, 11]}` | one place for each point, by value; by number: `{points: {index: [4, 5]}}` |

All dimensions with `points` are gathered into one new dimension `points`: `lat: {points: [10.5, 11]}, lon: {points: [20, 25]}`
takes two places of a map. A year alone is a number in YAML, so as a time it is written with quotes or with its month: `"2000"`.

```yaml title="crop.yaml"
name: sst
granules: "raw/*.nc"
combine:
  variables: [sst]
  select: {zlev: 0, lat: [-80, 80], time: {from: 1991-01-01, to: 2020-12-31}}
outputs:
  - store: zarr
    at: sst.zarr
```
```bash
drystone check crop.yaml | grep "of zlev: the place at 0"
drystone check crop.yaml | grep "of lat: -80 to 80"
```
"""

_DIFFERENCES = """\
[When granules differ](../how-to/when-granules-differ.md) has the policies in plain words. In short: `refuse` stops and names
both granules; `era` makes runs of granules that agree groups of their own in virtual outputs, and one array, by value, in
stores; `rechunk` leaves the array out of virtual outputs; `first` takes what the first granule says for all, where that
changes no number; `fill` lets a granule's place read as missing.

```yaml title="differences.yaml"
name: sst
granules: "raw/*.nc"
combine:
  differences: {codec: rechunk, units: first, missing_variable: refuse, coordinates: {tolerance: 1e-5}}
outputs:
  - store: zarr
    at: sst.zarr
```
```bash
drystone check differences.yaml | grep "where granules differ: codec rechunk"
```
"""

_VIRTUAL = """\
`drystone check` says which readers an output has, and loses by `grid: rectilinear` and `crop: true`:

```yaml title="tiles.yaml"
name: tiles
granules: "raw/*.nc"
outputs:
  - virtual: icechunk
    at: tiles.icechunk
    grid: rectilinear
    crop: true
```
```bash
drystone check tiles.yaml | grep "array.rectilinear_chunks"
drystone check tiles.yaml | grep "where drystone is installed"
```
"""

_STORE = """\
```yaml title="store.yaml"
name: sst
granules: "raw/*.nc"
outputs:
  - store: zarr
    at: sst.zarr
    chunks: {time: 128, "*": 512 kB}
    codecs: [{blosc: {cname: zstd, level: 3}}]
    values: decoded
    coverage: true
```
```bash
drystone check store.yaml | grep "with coverage, decoded values"
```
"""

EXAMPLES: Final[Mapping[str, str]] = {
    "archive.versions": _ARCHIVE,
    "combine.along.<a dimension>": _ALONG,
    "combine.select.<a dimension>": _SELECT,
    "combine.differences": _DIFFERENCES,
    "outputs[] with virtual": _VIRTUAL,
    "outputs[] with store": _STORE,
}
