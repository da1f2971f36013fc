"""Tables as parties hold them: reading them, checking them, matching their records.

Nothing here models anything. A party's table is only ever looked at on its own; what is compared
between parties is their column names, the type of their keys, and, in
`vflsynth.frames.keys`, the keys themselves.
"""

from vflsynth.frames.batches import DrawnRecords, StoredTable, read_records, stored_table
from vflsynth.frames.io import read_table, write_table
from vflsynth.frames.keys import AlignmentReport, MatchOn, key_of
from vflsynth.frames.party_frames import align_party_frames, check_no_empty_column, vertical_split
from vflsynth.frames.sources import summarise_rows

__all__ = [
    "AlignmentReport",
    "DrawnRecords",
    "MatchOn",
    "StoredTable",
    "align_party_frames",
    "check_no_empty_column",
    "key_of",
    "read_records",
    "read_table",
    "stored_table",
    "summarise_rows",
    "vertical_split",
    "write_table",
]
