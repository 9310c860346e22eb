"""``drystone``: parse, run one verb, turn whatever happens into words and an exit code.

Nothing but the standard library and the error tree is imported until a verb is chosen.
"""

from __future__ import annotations

import argparse
import atexit
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from drystone.cli.output import Output
from drystone.cli.parser import build_parser
from drystone.cli.signals import EXIT_STOPPED, StopSignal, stoppable
from drystone.errors import DrystoneError, Stopped

__all__ = ["main"]

_RESUMABLE = {"scan", "run"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        Arguments without the program's name; None: the process's own, and the process ends here.

    Returns
    -------
    int
        The exit code: 0 done, 2 bad config or usage, 3 still running, 4 incomplete, 5 failed, 75 stopped by a signal.

    Examples
    --------
    >>> main(["check", "no-such-file.yaml", "--quiet"])
    2
    """
    if argv is None:
        _leave(_main(sys.argv[1:]))
    return _main(list(argv))


def _leave(code: int) -> NoReturn:
    """End the process without taking the interpreter apart.

    Icechunk's threads may still hold Python objects; when the interpreter is taken apart under them the process dies of
    SIGSEGV (measured: 4 of 40 runs of ``show``), and a scheduler would take a finished run for a failed one.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:  # the reader went away: there is nobody to tell
            continue
    os._exit(code)


def _main(words: list[str]) -> int:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with it closed, as by some schedulers
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
    try:
        args = build_parser().parse_args(words)
    except DrystoneError as error:
        Output(as_json="--json" in words).drystone_error(error)
        return error.exit_code
    output = Output(args.json, args.quiet, args.debug)
    with stoppable():
        try:
            return _guarded(args, output)
        except StopSignal as stop:
            _say_stopped(args, output, stop)
            return EXIT_STOPPED


def _guarded(args: argparse.Namespace, output: Output) -> int:
    from drystone.cli.verbs import run_verb

    try:
        return run_verb(args, output)
    except Stopped as error:
        # a run heard the signal itself and let its tasks end
        output.error(error, error.kind, _stopped_text(args, str(error.facts.get("signal"))), error.facts)
        return error.exit_code
    except DrystoneError as error:
        output.drystone_error(error)
        return error.exit_code
    except BrokenPipeError:
        # the reader of our output went away (| head): nothing is wrong, and nothing more can be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        text = f"{error.strerror or error}{where}; what is done is kept, run again"
        output.error(error, "io", text, {"errno": error.errno})
        return 4
    except MemoryError as error:
        text = "out of memory; what is done is kept: run again where there is more, or with less at a time (execution: "
        output.error(error, "no-memory", text + "{memory_per_worker: …, workers: …})", {})
        return 4
    except Exception as error:  # noqa: BLE001 - the last door: a traceback is no message
        text = f"unexpected {type(error).__name__}: {error}; this is a bug in drystone, --debug prints where"
        output.error(error, "internal", text, {"type": type(error).__name__})
        return 5


def _say_stopped(args: argparse.Namespace, output: Output, stop: StopSignal) -> None:
    output.error(stop, "stopped", _stopped_text(args, stop.name), {"signal": stop.name})


def _stopped_text(args: argparse.Namespace, name: str) -> str:
    if args.verb in _RESUMABLE and not args.dry_run:
        return f"stopped by {name}; what is done is kept: run `drystone {args.verb} {args.config}` again and it continues"
    return f"stopped by {name}; nothing was changed"


if __name__ == "__main__":
    main()
