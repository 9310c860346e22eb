"""The JSON schema of a config, made from the table of keys, so that editors complete and check what drystone takes.

``python -m drystone.config.json_schema`` writes it to the standard output; ``configs/drystone.schema.json`` is that text,
and a test says when it is out of date. The schema knows single keys; what lies between keys (places that exist, shards
that are multiples of chunks) is ``drystone check``'s.
"""

from __future__ import annotations

import json
import sys

from drystone.config.keys import ROOT

__all__ = ["json_schema", "json_schema_text"]


def json_schema() -> dict[str, object]:
    """The schema, draft 7, which editors' YAML plugins know best.

    Examples
    --------
    >>> json_schema()["required"]
    ['name', 'outputs']
    """
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "drystone config",
        "description": "Where an archive's granules are, how they combine, and what to publish.",
        **ROOT.schema(),
        "anyOf": [{"required": ["granules"]}, {"required": ["archive"]}],
    }


def json_schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())
