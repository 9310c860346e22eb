"""Run the benchmarks and print one table: drystone, its peers, the ratio to the best of them, the target.

usage: run.py [--only NAME,…] [--quick] [--work FOLDER] [--json FILE] [--no-history]

README.md beside this file says what a benchmark is and prints. The exit code is 1 where a benchmark failed to run; a
missed target is shown and does not fail, since machines differ.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
type Row = dict[str, object]


def run(script: Path, options: list[str], console: Console) -> tuple[list[Row], bool]:
    """Run one benchmark; its JSON lines, and whether it ended well."""
    rows: list[Row] = []
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, str(script), *options], stdout=subprocess.PIPE, text=True, cwd=HERE)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            row = json.loads(line)
            rows.append(row)
            console.print(f"  {row['case']}: {row['subject']} {show(row['value'])} {row['unit']}", style="dim", highlight=False)
    ended = process.wait() == 0
    console.print(f"{script.stem}: {'done' if ended else 'FAILED'} in {time.perf_counter() - start:.0f} s", highlight=False)
    return rows, ended


def show(value: object) -> str:
    number = float(str(value))
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def best_peer(row: Row, rows: list[Row]) -> Row | None:
    """The best figure of a peer for the same bench, case and unit."""
    same = [
        r
        for r in rows
        if r["subject"] != "drystone" and r.get("peer", True) and all(r[k] == row[k] for k in ("bench", "case", "unit"))
    ]
    return (max if row.get("more", True) else min)(same, key=lambda r: float(str(r["value"])), default=None)


def judge(row: Row, rows: list[Row]) -> tuple[str, str, bool | None]:
    """Ratio to the best peer, the target in words, and whether it is met (None: no target)."""
    value, peer, target = float(str(row["value"])), best_peer(row, rows), row.get("target")
    ratio = None
    if peer is not None and value:
        other = float(str(peer["value"]))
        ratio = value / other if row.get("more", True) else other / value
    text = "" if ratio is None or peer is None else f"{ratio:.2g} x {peer['subject']}"
    if not isinstance(target, dict):
        return text, "", None
    if "times" in target:
        return text, f">= {target['times']} x", None if ratio is None else ratio >= target["times"]
    if "at_most" in target:
        return text, f"<= {show(target['at_most'])}", value <= target["at_most"]
    return text, f">= {show(target['at_least'])}", value >= target["at_least"]


def table(rows: list[Row]) -> Table:
    out = Table(title="benchmarks")
    for name in ("bench", "case", "subject", "figure", "unit", "to the best peer", "target", "met", "note"):
        out.add_column(name, justify="right" if name == "figure" else "left")
    for row in rows:
        ours = row["subject"] == "drystone"
        ratio, target, met = judge(row, rows) if ours else ("", "", None)
        mark = "" if met is None else ("yes" if met else "NO")
        out.add_row(
            str(row["bench"]), str(row["case"]), str(row["subject"]), show(row["value"]), str(row["unit"]), ratio, target, mark,
            str(row.get("note", "")), style="bold" if ours else "",
        )  # fmt: skip
    return out


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    known = {p.stem.removesuffix("_bench"): p for p in sorted(HERE.glob("*_bench.py"))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(known), help=f"of {', '.join(known)}")
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-history", action="store_true")
    asked = parser.parse_args()
    unknown = set(asked.only.split(",")) - set(known)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))} (known: {', '.join(known)})")
    options = ["--work", str(asked.work.resolve()), *(["--quick"] if asked.quick else [])]
    console, rows, failed = Console(width=None if sys.stdout.isatty() else 160), [], []
    for name in asked.only.split(","):
        found, ended = run(known[name], options, console)
        rows += found
        if not ended:
            failed.append(name)
    console.print(table(rows))
    if failed:
        console.print(f"failed to run: {', '.join(failed)}", style="red")
    machine = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "machine": platform.machine()}
    record = {
        "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "quick": asked.quick,
        **machine,
        "rows": rows,
    }
    if asked.json:
        asked.json.write_text(json.dumps(record, indent=1) + "\n")
    if not asked.no_history and not asked.quick and not failed:
        with (HERE / "history.jsonl").open("a") as history:
            history.write(json.dumps(record) + "\n")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
