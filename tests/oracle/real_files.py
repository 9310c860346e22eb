"""Scan every HDF5 file below a folder, and compare each array's values with a manifest of digests.

usage: python tests/oracle/real_files.py FOLDER MANIFEST [PART_OF_PATH]

The manifest is JSON, ``{"files": [{"path", "arrays": [{"path", "shape", "sha256"}]}]}``, made by another reader. Printed:
what was refused and why, what differs, and what the manifest has that the scan does not name. Exit code 1 where any
array that is not refused lacks its digest's values.
"""

import collections
import json
import pathlib
import sys
import time

from scanned_values import by_path, digest, scan, values_of

from drystone.errors import DrystoneError


def main():
    folder, manifest = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    part = sys.argv[3] if len(sys.argv) > 3 else ""
    counts, bad = collections.Counter(), 0
    refused = collections.defaultdict(list)
    for entry in manifest["files"]:
        path = folder / entry["path"]
        if part not in entry["path"] or not path.is_file():
            continue
        started = time.perf_counter()
        try:
            result = scan(path)
        except DrystoneError as error:
            if entry["format"] in ("hdf5", "netcdf4"):
                print(f"FILE {entry['path']}: {error.kind}: {error}")
                bad += 1
            else:
                counts[f"other formats: {error.kind}"] += 1
            continue
        counts["files"] += 1
        bad += compare(entry, path, result, counts, refused)
        if time.perf_counter() - started > 20:
            print(f"SLOW {entry['path']}: {time.perf_counter() - started:.1f} s")
    for (file, kind, reason), paths in refused.items():
        print(f"REFUSED {file}: {len(paths)} x {kind} ({', '.join(paths[:3])}{' …' if len(paths) > 3 else ''}): {reason}")
    print(dict(counts), "bad:", bad)
    return 1 if bad else 0


def compare(entry, path, result, counts, refused):
    arrays = by_path(result)
    reasons = {r.path: r for r in result.refusals}
    bad = 0
    for item in entry["arrays"]:
        name = item["path"]
        if name in reasons:
            r = reasons[name]
            refused[entry["path"], r.kind, r.reason.partition(": ")[2]].append(name)
            counts["refused"] += 1
        elif name not in arrays:
            if item.get("dim_without_variable"):
                counts["dimensions without a variable"] += 1
            else:
                print(f"LOST {entry['path']} {name}: {item}")
                bad += 1
        elif item.get("sha256") is None:
            counts["no digest in the manifest"] += 1
        else:
            try:
                values = values_of(arrays[name], path)
            except DrystoneError as error:
                print(f"UNREADABLE {entry['path']} {name}: {error.kind}: {error}")
                counts["unreadable"] += 1
                bad += 1
                continue
            same = digest(values) == item["sha256"] and list(values.shape) == item["shape"]
            counts["same" if same else "different"] += 1
            if not same:
                bad += 1
                print(f"DIFFERENT {entry['path']} {name}: {arrays[name].spec}\n  {item}")
    known = {i["path"] for i in entry["arrays"]}
    for name in reasons.keys() - known:
        refused[entry["path"], reasons[name].kind, reasons[name].reason.partition(": ")[2]].append(name)
        counts["refused, not in the manifest"] += 1
    counts["arrays not in the manifest"] += len(arrays.keys() - known)
    return bad


if __name__ == "__main__":
    sys.exit(main())
