"""A party before any network."""

import pandas as pd
import pytest

from vflsynth.columns import TableTransformer
from vflsynth.learning.base import FromRecords, Party
from vflsynth.protocol.messages import AlignmentNotice


@pytest.fixture
def party():
    found = Party("a", pd.DataFrame({"x": [1.5, 2.5, None, 4.0], "y": list("uvuv")}), None)
    found.align(AlignmentNotice("server", "a", 0, pd.RangeIndex(4)))
    found.prepare(FromRecords(TableTransformer()))
    return found


def test_a_digest_does_not_depend_on_how_many_records_are_encoded_at_once(party, monkeypatch):
    whole = party.digest(b"secret")
    monkeypatch.setattr("vflsynth.learning.base.ENCODED_AT_ONCE", 3)
    assert party.digest(b"secret") == whole
    assert party.digest(b"another") != whole
