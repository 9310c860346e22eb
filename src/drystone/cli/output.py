"""The one door through which the command line speaks: text or JSON on the standard output, everything else on stderr.

With ``--json`` the standard output holds exactly one JSON document, also when a verb fails; people's words, bars and
errors go to stderr, so that a pipe never sees them.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drystone.errors import DrystoneError

__all__ = ["Output"]


@dataclass(frozen=True, slots=True)
class Output:
    """How this call answers.

    Parameters
    ----------
    as_json
        One JSON document on the standard output instead of text.
    quiet
        Nothing but errors, and JSON where it was asked for.
    debug
        Tracebacks of errors.
    """

    as_json: bool = False
    quiet: bool = False
    debug: bool = False

    def answer(self, document: Mapping[str, object], lines: Iterable[str]) -> None:
        """The verb's result, in the form asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        elif not self.quiet:
            sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()

    def error(self, error: BaseException, kind: str, message: str, facts: Mapping[str, object]) -> None:
        """One failure: a line on stderr, and the JSON document if that was asked for."""
        if self.debug:
            sys.stderr.write("".join(traceback.format_exception(error)))
        sys.stderr.write(f"drystone: error: {message}\n")
        sys.stderr.flush()
        if self.as_json:
            self.answer({"error": {"kind": kind, "message": message, "facts": dict(facts)}}, ())

    def drystone_error(self, error: DrystoneError) -> None:
        """One of our own errors."""
        self.error(error, error.kind, error.message, error.facts)
