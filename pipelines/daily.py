"""Daily: publish what is new, from cron. Silent where nothing is new, so that cron writes no mail.

usage: daily.py CONFIG

    15 6 * * *  /opt/env/bin/python daily.py /srv/sst/sst.yaml

A run that is still going when the next one starts is left alone (exit code 0). What failed and can be resumed is resumed by
tomorrow's call.
"""

from __future__ import annotations

import argparse
import sys

import drystone
from drystone.errors import DrystoneError, LeaseError


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    asked = parser.parse_args(words)
    try:
        report = drystone.run(asked.config)
    except LeaseError:
        return 0
    except DrystoneError as error:
        print(f"{asked.config}: {error.kind}: {error}", file=sys.stderr)
        return error.exit_code
    if report.release is not None:
        print("\n".join(report.lines()))
    return 0


if __name__ == "__main__":  # worker processes import this file
    raise SystemExit(main())
