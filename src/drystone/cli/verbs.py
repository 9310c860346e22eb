"""The verbs: each calls one public function and answers with its report.

Heavy imports happen here, inside the verb that needs them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Protocol

from drystone.cli.output import Output
from drystone.cli.progress import progress_for
from drystone.config.load import problems_error, read_config
from drystone.config.problem import Problem
from drystone.model.options import ArchiveConfig

__all__ = ["run_verb"]


class Report(Protocol):
    """What a public function answers."""

    def to_json(self) -> dict[str, object]:
        """For programs."""
        ...

    def lines(self) -> list[str]:
        """For people."""
        ...


def run_verb(args: argparse.Namespace, output: Output) -> int:
    """Run the verb that was parsed; the exit code.

    Raises
    ------
    DrystoneError
        Whatever the verb's function raises.
    """
    verb: str = args.verb
    if verb == "show":
        return _show(args, output)
    if verb == "doctor" and args.config is None:
        return _doctor(args, None, output)
    config, problems = read_config(args.config)
    if verb == "check":
        return _check(args.config, config, problems, output)
    if config is None:
        return _bad_config(args.config, problems, output)
    return _VERBS[verb](args, config, output)


def _bad_config(path: str, problems: list[Problem], output: Output) -> int:
    error = problems_error(path, problems)
    facts = {**error.facts, "list": [p.to_json() for p in problems]}
    output.error(error, error.kind, error.message, facts)
    return error.exit_code


def _check(path: str, config: ArchiveConfig | None, problems: list[Problem], output: Output) -> int:
    document: dict[str, object] = {
        "file": path,
        "ok": config is not None,
        "problems": [p.to_json() for p in problems],
        "config": None,
    }
    if config is None:
        if output.as_json:
            output.answer(document, ())
        else:
            error = problems_error(path, problems)
            output.error(error, error.kind, error.message, error.facts)
        return 2
    from drystone.cli.summary import config_json, config_lines

    document["config"] = config_json(config)
    output.answer(document, [f"{path}: no problems", *config_lines(config)])
    return 0


def _scan(args: argparse.Namespace, config: ArchiveConfig, output: Output) -> int:
    from drystone.pipeline import api

    with progress_for(output.quiet) as progress:
        report = api.scan(config, progress=progress, dry_run=args.dry_run)
    return _answer(report, output)


def _plan(args: argparse.Namespace, config: ArchiveConfig, output: Output) -> int:  # noqa: ARG001 - verbs share a signature
    from drystone.pipeline import api

    with progress_for(output.quiet) as progress:
        report = api.plan(config, progress=progress)
    return _answer(report, output)


def _run(args: argparse.Namespace, config: ArchiveConfig, output: Output) -> int:
    from drystone.pipeline import api

    with progress_for(output.quiet) as progress:
        report = api.run(config, progress=progress, dry_run=args.dry_run, accept_changes=args.accept_changes)
    return _answer(report, output)


def _status(args: argparse.Namespace, config: ArchiveConfig, output: Output) -> int:  # noqa: ARG001 - verbs share a signature
    from drystone.pipeline import api

    report = api.status(config)
    _answer(report, output)
    return report.exit_code


def _verify(args: argparse.Namespace, config: ArchiveConfig, output: Output) -> int:
    from drystone.pipeline import api

    with progress_for(output.quiet) as progress:
        report = api.verify(config, progress=progress, mode=args.values)
    _answer(report, output)
    return 0 if report.ok else 5


def _show(args: argparse.Namespace, output: Output) -> int:
    from drystone.cli.show import show_path

    report = show_path(args.path, tuple(args.array or ()))
    return _answer(report, output)


def _doctor(args: argparse.Namespace, config: ArchiveConfig | None, output: Output) -> int:
    from drystone.pipeline import api

    with progress_for(output.quiet) as progress:
        report = api.doctor(config, progress=progress, dry_run=args.dry_run)
    _answer(report, output)
    return report.exit_code


def _answer(report: Report, output: Output) -> int:
    output.answer(report.to_json(), report.lines())
    return 0


_VERBS: Mapping[str, Callable[[argparse.Namespace, ArchiveConfig, Output], int]] = {
    "scan": _scan,
    "plan": _plan,
    "run": _run,
    "status": _status,
    "verify": _verify,
    "doctor": _doctor,
}
