"""Several rows per key become one, whose columns depend on no value."""

import numpy as np
import pandas as pd
import pytest

from vflsynth.exceptions import ColumnNameError, MissingKeyError, PartyDataError
from vflsynth.frames import read_table, summarise_rows

VISITS = pd.DataFrame(
    {
        "id": [2, 1, 2, 2, 3, None],
        "sex": ["f", "m", "f", "f", "m", "m"],
        "when": pd.to_datetime(["2024-03-01", "2024-01-01", None, "2024-02-01", None, None]),
        "cost": [5, 1, 7, 6, 4, 9],
        "ward": pd.Categorical(["B", "A", "A", "B", None, "A"]),
        "late": [True, False, False, True, True, True],
        "note": ["x", "y", "w", "v", None, "z"],
    }
)


def test_summaries_are_what_a_loop_finds():
    table = summarise_rows(VISITS, "id", constant=["sex"])
    assert summarise_rows(VISITS, "id", constant="sex").equals(table)
    assert table["id"].tolist() == [1, 2, 3]
    assert table["rows"].tolist() == [1, 3, 1]
    assert table["sex"].tolist() == ["m", "f", "m"]
    for row in table.to_dict("records"):
        own = VISITS[VISITS["id"] == row["id"]]
        assert row["cost smallest"] == min(own["cost"])
        assert row["cost mean"] == sum(own["cost"]) / len(own)
        assert row["cost largest"] == max(own["cost"])
        whens = own["when"].dropna()
        assert (len(whens) == 0) == pd.isna(row["when first"])
        assert not len(whens) or (row["when first"], row["when last"]) == (min(whens), max(whens))
        for label in ("ward", "late", "note"):
            values = own[label].dropna().tolist()
            assert row[f"{label} different"] == len(set(values))
            if values:
                most = max(values.count(v) for v in values)
                usual = min(str(v) for v in values if values.count(v) == most)
                assert str(row[f"{label} most frequent"]) == usual
    assert table["ward most frequent"].dtype == VISITS["ward"].dtype
    assert pd.isna(table["note most frequent"].iloc[2])


@pytest.mark.parametrize("name", ["count", "text", "key", "value"])
def test_columns_may_have_any_name(name):
    wards = VISITS.assign(ward=pd.Categorical([2, 1, 1, 2, None, 1]))
    plain = summarise_rows(wards[["id", "ward"]], "id")
    own = summarise_rows(wards[["id", "ward"]].rename(columns={"ward": name}), "id")
    key = summarise_rows(wards[["id", "ward"]].rename(columns={"id": name}), name)
    assert plain["ward most frequent"].tolist()[:2] == [1, 2]
    assert own.to_numpy(object)[:2].tolist() == plain.to_numpy(object)[:2].tolist()
    assert key.to_numpy(object)[:2].tolist() == plain.to_numpy(object)[:2].tolist()


def test_columns_depend_on_types_alone():
    rng = np.random.default_rng(0)
    shuffled = VISITS.assign(id=rng.permutation(6), cost=rng.integers(0, 9, 6))
    tables = [summarise_rows(t.drop(columns="sex"), "id") for t in (VISITS, shuffled)]
    assert list(tables[0]) == list(tables[1])
    assert list(tables[0])[:2] == ["id", "rows"]


def test_what_cannot_be_is_named():
    with pytest.raises(MissingKeyError, match="party 'lab', column 'key'"):
        summarise_rows(VISITS, "key", party="lab")
    with pytest.raises(PartyDataError, match="column 'cost': 1 keys have several values"):
        summarise_rows(VISITS, "id", constant=["cost"])
    with pytest.raises(ColumnNameError, match="column 'rows'"):
        summarise_rows(VISITS.assign(rows=1), "id", constant=["rows"])


def test_a_description_asks_for_it(tmp_path):
    VISITS.to_csv(tmp_path / "visits.csv", index=False)
    said = 'file = "visits.csv"\none_row_per = "id"\n'
    (tmp_path / "lab.toml").write_text(said + 'constant = "sex, "')
    assert len(read_table(tmp_path / "lab.toml")) == 3
    (tmp_path / "lab.toml").write_text('file = "visits.csv"\nconstant = "sex"')
    with pytest.raises(PartyDataError, match="one_row_per"):
        read_table(tmp_path / "lab.toml")
