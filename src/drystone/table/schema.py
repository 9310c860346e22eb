"""Arrow schemas of the reference table. Field order, names and types are stored and never change.

============  =====================================================================================================
table         one row for
============  =====================================================================================================
references    each chunk of each array of each granule and scan attempt
side          a reference row's rare things: inline bytes, filter mask; keyed as the row
arrays        each array of each granule and attempt: structure, attributes, row count, small coordinate values
granules      each scan of each granule: identity, attempt, row count, digest, status; a later row supersedes
placements    each granule and array of a release: where the slab lands
releases      each publish
receipts      each task done
============  =====================================================================================================

A references row counts only where the newest granules row of its granule names its attempt (row validity); newest is
the highest attempt. Granules and placements rows carry the release they are valid from. All tables but the draft of
the next release's placements are only ever appended to: a granules row is valid until a later one supersedes it, so
``valid_to`` is filled in on reading; a placement that ends gets a row with ``valid_to`` equal to ``valid_from``.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["ARRAYS", "GRANULES", "MAX_RANK", "PLACEMENTS", "RECEIPTS", "REFERENCES", "RELEASES", "SCHEMAS", "SIDE"]

MAX_RANK = 8

_DIMS = [pa.field(f"dim_{i}", pa.int32()) for i in range(MAX_RANK)]
_KEY = [
    pa.field("array_id", pa.int32(), nullable=False),
    pa.field("granule_id", pa.int32(), nullable=False),
    pa.field("attempt_id", pa.int32(), nullable=False),
]

REFERENCES = pa.schema(
    [
        *_KEY,
        *_DIMS,
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int32(), nullable=False),  # -1: past 2^31, the true length is in the side table
        pa.field("state", pa.int8(), nullable=False),
    ]
)

SIDE = pa.schema(
    [
        *_KEY,
        *_DIMS,
        pa.field("inline", pa.binary()),
        pa.field("filter_mask", pa.int64()),
        pa.field("long_length", pa.int64()),
        pa.field("checksum", pa.binary()),
    ]
)

ARRAYS = pa.schema(
    [
        *_KEY,
        pa.field("path", pa.string(), nullable=False),
        pa.field("structure", pa.string(), nullable=False),  # ArraySpec.structure()
        pa.field("attributes", pa.string(), nullable=False),  # Attributes.to_json()
        pa.field("n_rows", pa.int64(), nullable=False),
        pa.field("coordinate", pa.binary()),  # native C-order bytes of a small array; text: JSON list
    ]
)

GRANULES = pa.schema(
    [
        pa.field("granule_id", pa.int32(), nullable=False),
        pa.field("address", pa.string(), nullable=False),  # place:relative/path
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime_ns", pa.int64()),
        pa.field("etag", pa.string()),
        pa.field("format", pa.string(), nullable=False),
        pa.field("representation", pa.string(), nullable=False),
        pa.field("attempt_id", pa.int32(), nullable=False),
        pa.field("n_rows", pa.int64(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),  # scanned | set aside | superseded | withdrawn
        pa.field("reason", pa.string()),
        pa.field("groups", pa.string(), nullable=False),  # JSON list of GroupSpec.to_json()
        pa.field("refusals", pa.string(), nullable=False),  # JSON list of [path, kind, reason]
        pa.field("warnings", pa.string(), nullable=False),
        pa.field("companions", pa.string(), nullable=False),  # JSON list of [address, size, mtime_ns, etag]
        pa.field("valid_from", pa.int32(), nullable=False),
        pa.field("valid_to", pa.int32()),
    ]
)

PLACEMENTS = pa.schema(
    [
        pa.field("array_id", pa.int32(), nullable=False),
        pa.field("granule_id", pa.int32(), nullable=False),
        pa.field("axis", pa.int8(), nullable=False),  # -1: static
        pa.field("src_offset", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("dest", pa.int64(), nullable=False),
        pa.field("variant", pa.int32(), nullable=False),  # which of the combined array's variants the granule has
        pa.field("tile", pa.int32(), nullable=False),  # off the lead axis: which of the array's tiles
        pa.field("place", pa.string()),  # that tile as JSON; null: whole
        pa.field("valid_from", pa.int32(), nullable=False),
        pa.field("valid_to", pa.int32()),
    ]
)

RELEASES = pa.schema(
    [
        pa.field("release_id", pa.int32(), nullable=False),
        pa.field("created_ns", pa.int64(), nullable=False),
        pa.field("record", pa.string(), nullable=False),  # Release.to_json()
    ]
)

RECEIPTS = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("array", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),  # Receipt.to_json()
    ]
)

SCHEMAS = {
    "references": REFERENCES,
    "side": SIDE,
    "arrays": ARRAYS,
    "granules": GRANULES,
    "placements": PLACEMENTS,
    "releases": RELEASES,
    "receipts": RECEIPTS,
}
