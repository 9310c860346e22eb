"""The words of the command line. Standard library only: ``--help`` must be instant."""

from __future__ import annotations

import argparse
from typing import NoReturn

from drystone import __version__
from drystone.errors import ConfigError

__all__ = ["build_parser"]

_EPILOG = """exit codes: 0 done, 2 bad config or usage, 3 still running (another driver holds the lease), 4 incomplete: run
again, 5 failed, 75 stopped by a signal: run again. Every verb may be run twice: what is done is not done again."""

type _Verbs = argparse._SubParsersAction[_Parser]


class _Parser(argparse.ArgumentParser):
    """Usage errors are drystone's own errors, so that ``--json`` tells them too."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving."""
        raise ConfigError(f"{message} (try: {self.prog} --help)", kind="usage")


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``drystone``.

    Examples
    --------
    >>> args = build_parser().parse_args(["run", "archive.yaml", "--dry-run", "--json"])
    >>> args.verb, args.config, args.dry_run, args.json
    ('run', 'archive.yaml', True, True)
    """
    parser = _Parser(
        prog="drystone",
        description="Lay an archive's chunks edge to edge: scan files into a table of byte ranges, publish them as one array "
        "store, virtual or rechunked.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"drystone {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)
    for add in (_check, _scan, _plan, _run, _status, _verify, _show, _doctor):
        add(verbs)
    return parser


def _verb(verbs: _Verbs, name: str, text: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=_EPILOG)
    verb.add_argument("--json", action="store_true", help="answer with one JSON document on the standard output")
    verb.add_argument("--quiet", "-q", action="store_true", help="print nothing but errors (and JSON, where asked for)")
    verb.add_argument("--debug", action="store_true", help="print tracebacks of errors")
    return verb


def _config(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("config", metavar="CONFIG", help="the archive's YAML file")


def _dry_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")


def _check(verbs: _Verbs) -> None:
    _config(_verb(verbs, "check", "tell every problem of a config, and who can read each of its outputs"))


def _scan(verbs: _Verbs) -> None:
    verb = _verb(verbs, "scan", "list and scan new or changed granules into the reference table")
    _config(verb)
    _dry_run(verb)


def _plan(verbs: _Verbs) -> None:
    _config(_verb(verbs, "plan", "say what run would do: modes, tasks, bytes, memory, and what reads cost before and after"))


def _run(verbs: _Verbs) -> None:
    verb = _verb(verbs, "run", "scan, plan, write, verify and publish; continue where an earlier run stopped")
    _config(verb)
    _dry_run(verb)
    verb.add_argument(
        "--accept-changes",
        action="store_true",
        help="redo outputs whose config, granules or codecs changed since they were begun",
    )


def _status(verbs: _Verbs) -> None:
    _config(_verb(verbs, "status", "tell how far the last run is, while it runs and after it died"))


def _verify(verbs: _Verbs) -> None:
    verb = _verb(verbs, "verify", "compare published outputs with the granules, by readers that are not drystone's")
    _config(verb)
    verb.add_argument(
        "--values", choices=("sample", "full", "digest"), help="how much to compare (default: as the config says)"
    )


def _show(verbs: _Verbs) -> None:
    verb = _verb(verbs, "show", "draw a config, a netCDF or HDF5 file, or a store: grid, chunks, codecs, sizes")
    verb.add_argument("path", metavar="PATH", help="a file, a folder or a URL")
    verb.add_argument("--array", action="append", metavar="NAME", help="only this array, by name or path (may be repeated)")


def _doctor(verbs: _Verbs) -> None:
    verb = _verb(verbs, "doctor", "measure this machine and a config's places, say what is odd, keep rates for predicted times")
    verb.add_argument("config", metavar="CONFIG", nargs="?", help="the archive's YAML file; without it, the machine alone")
    _dry_run(verb)
