"""The config's door: a YAML file in, a frozen :class:`~drystone.model.options.ArchiveConfig` or every problem out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from drystone.config.apart import check_apart
from drystone.config.build import build
from drystone.config.checks import check, mapping_of
from drystone.config.keys import ROOT
from drystone.config.nodes import MAX_BYTES, parse
from drystone.config.problem import Problem, Report
from drystone.errors import ConfigError
from drystone.model.options import ArchiveConfig

__all__ = ["check_config", "load_config", "problems_error", "read_config"]


def problems_error(path: str, problems: Sequence[Problem]) -> ConfigError:
    """One error that says all problems, a line each."""
    n = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    lines = "".join(f"\n  {p}" for p in problems)
    return ConfigError(f"{path} has {n}; nothing was started{lines}", file=path, problems=len(problems))


def load_config(path: str | os.PathLike[str]) -> ArchiveConfig:
    r"""Read and check a config.

    Parameters
    ----------
    path
        Of the YAML file; relative folders in it start at the file's own folder.

    Raises
    ------
    ConfigError
        With all problems at once, each with file, line, column, what was expected and the nearest known key.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "archive.yaml"
    >>> _ = file.write_text('name: sst\ngranules: "raw/*.nc"\noutputs:\n  - virtual: icechunk\n    at: sst.icechunk')
    >>> config = load_config(file)
    >>> config.granules[0].pattern, config.outputs[0].at, config.places["work"][0]
    ('here:raw/*.nc', 'here:sst.icechunk', 'file:./work')
    """
    name = os.fspath(path)
    config, problems = read_config(name)
    if config is None:
        raise problems_error(name, problems)
    return config


def check_config(path: str | os.PathLike[str]) -> list[Problem]:
    """Every problem of a config, in the order of the file; empty where it is good. Only links of local folders are read."""
    return read_config(os.fspath(path))[1]


def read_config(name: str) -> tuple[ArchiveConfig | None, list[Problem]]:
    """The config, or None and its problems."""
    report = Report(name)
    data = _bytes(name, report)
    root = None if data is None else parse(data, report)
    if root is None:
        return None, report.sorted()
    values = mapping_of(ROOT.read(root, "", report))
    check(values, report)
    if report.problems:
        return None, report.sorted()
    config = build(values, str(Path(name).resolve().parent))
    check_apart(config, report)
    return (None, report.sorted()) if report.problems else (config, [])


def _bytes(name: str, report: Report) -> bytes | None:
    try:
        with open(name, "rb") as f:
            return f.read(MAX_BYTES + 1)
    except FileNotFoundError:
        found = "nothing under this name"
    except IsADirectoryError:
        found = "a folder"
    except OSError as error:
        found = f"one that cannot be read: {error.strerror}"
    report.add("", "a YAML file", found, "", (1, 1))
    return None
