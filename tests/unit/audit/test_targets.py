"""Which records stand out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks._data import load_red_wine, load_white_wine
from vflsynth.audit.targets import (
    farthest,
    most_outlying,
    neighbour_distances,
    outlying_attributes,
)
from vflsynth.exceptions import ColumnMismatchError, ParameterError


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(50, 3)), columns=list("abc"), index=range(100, 150))
    frame["label"] = rng.choice(["x", "y"], size=50)
    frame["code"] = rng.integers(0, 3, size=50)
    return frame


def test_outlying_attributes_by_hand():
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0, 9.0], "b": [0.0, 0.0, 0.0, 0.0, 1.0]})
    # a: quartiles 2 and 4, so that 7 is the limit; b: quartiles 0 and 0, so that 1 lies outside.
    assert outlying_attributes(table).tolist() == [0, 0, 0, 0, 2]
    assert outlying_attributes(table, factor=2.5).tolist() == [0, 0, 0, 0, 1]
    assert outlying_attributes(table, categorical=["b"]).tolist() == [0, 0, 0, 0, 1]


def test_neighbour_distances_are_equation_32(table):
    """Against the formula, one pair at a time."""
    numeric, labelled = ["a", "b", "c"], ["label", "code"]
    scaled = (table[numeric] - table[numeric].min()) / (table[numeric].max() - table[numeric].min())
    expected = []
    for i in range(len(table)):
        distances = []
        for j in range(len(table)):
            if i == j:
                continue
            x, y = scaled.iloc[i].to_numpy(), scaled.iloc[j].to_numpy()
            cosine = x @ y / (np.linalg.norm(x) * np.linalg.norm(y))
            # Each one-hot block has norm 1: the cosine is the share of equal labels.
            same = np.mean([table[name].iloc[i] == table[name].iloc[j] for name in labelled])
            distances.append(1 - 2 / 5 * same - 3 / 5 * cosine)
        expected.append(min(distances))
    found = neighbour_distances(table, categorical=["code"])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert farthest(table, ["code"]) == 100 + int(np.argmax(expected))


def test_blocks_of_rows_do_not_matter(table, monkeypatch):
    expected = neighbour_distances(table)
    monkeypatch.setattr("vflsynth.audit.targets._BLOCK_ROWS", 7)
    np.testing.assert_allclose(neighbour_distances(table), expected, rtol=1e-9)  # BLAS rounds


def test_missing_values_and_constants_are_no_error(table):
    odd = table.assign(a=np.where(np.arange(50) % 3, table["a"], np.nan), b=1.0)
    assert np.isfinite(neighbour_distances(odd)).all()
    assert most_outlying(odd) in odd.index


def test_ties_go_to_the_record_that_is_farthest_from_its_neighbour():
    table = pd.DataFrame({"a": [0.0, 0.1, 0.2, 0.3, 0.4, 50.0, 50.1, -90.0]})
    assert most_outlying(table) == 7
    assert most_outlying(table.head(7)) == 5  # and then to the first


def test_bad_requests_are_refused(table):
    with pytest.raises(ParameterError, match="has none"):
        most_outlying(table[["label"]])
    with pytest.raises(ColumnMismatchError, match="'nothing'"):
        farthest(table, ["nothing"])


@pytest.mark.data
@pytest.mark.parametrize(
    ("load", "record_1", "record_2"),
    [(load_red_wine, 1235, 151), (load_white_wine, 1034, 2781)],
    ids=["red", "white"],
)
def test_the_paper_audits_these_records(load, record_1, record_2):
    """Rows of the paper's code; Table 2's Record 1 and Record 2."""
    try:
        table = load().joined()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert farthest(table, ["quality"]) == record_1
    assert most_outlying(table, ["quality"]) == record_2


@pytest.mark.data
def test_the_printed_margin_gives_other_records():
    """One interquartile range, as Appendix A.7 says, is not what was used."""
    try:
        red = load_red_wine().joined()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    counts = outlying_attributes(red, factor=1.0)
    assert counts.index[counts == counts.max()].tolist() == [353, 1017, 1018, 1079, 1081]
