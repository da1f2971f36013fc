"""Tables as parties hold them: reading them, checking them, matching their records.

Nothing here models anything. A party's table is only ever looked at on its own; what is compared
between parties is their column names, the type of their keys, and, in
`vflsynth.frames.keys`, the keys themselves.
"""

from vflsynth.frames.batches import (
    DrawnRecords,
    StoredTable,
    read_lowest,
    read_records,
    stored_table,
)
from vflsynth.frames.io import infers_types, read_table, write_table
from vflsynth.frames.keys import (
    AlignmentReport,
    KeyMinter,
    MatchOn,
    align_keys,
    intersect,
    key_of,
    learn_key_minters,
    positions,
    public_key_minters,
)
from vflsynth.frames.party_frames import (
    align_party_frames,
    check_no_empty_column,
    check_party_frames,
    is_matched,
    party_keys,
    vertical_split,
    with_lost,
    without_labels_of_others,
)
from vflsynth.frames.sources import summarise_rows

__all__ = [
    "AlignmentReport",
    "DrawnRecords",
    "KeyMinter",
    "MatchOn",
    "StoredTable",
    "align_keys",
    "align_party_frames",
    "check_no_empty_column",
    "check_party_frames",
    "infers_types",
    "intersect",
    "is_matched",
    "key_of",
    "learn_key_minters",
    "party_keys",
    "positions",
    "public_key_minters",
    "read_lowest",
    "read_records",
    "read_table",
    "stored_table",
    "summarise_rows",
    "vertical_split",
    "with_lost",
    "without_labels_of_others",
    "write_table",
]
