"""The benchmark tables are those of the papers. They are not part of the project."""

import numpy as np
import pytest

from benchmarks._data import LOADERS, load_mnist_halves, load_table

pytestmark = pytest.mark.data

# Rows, columns of A and of B, number of categorical columns, rows per class of the target.
EXPECTED = {
    "red-wine": (1599, 6, 6, 1, [10, 53, 681, 638, 199, 18]),
    "white-wine": (4898, 6, 6, 1, [20, 163, 1457, 2198, 880, 175, 5]),
    "adult": (42960, 8, 7, 9, None),
    "south-german-credit": (1000, 10, 11, 18, [300, 700]),
    "hcv": (1385, 14, 15, 9, [336, 332, 355, 362]),
    "spambase": (4601, 29, 29, 1, [2788, 1813]),
    "credit-default": (30000, 11, 13, 10, [23364, 6636]),
    "california-housing": (20640, 4, 5, 0, None),
    "small-mixed": (1003, 4, 3, 3, [672, 331]),
    "small-tight": (1003, 4, 3, 3, [672, 331]),
}


def test_every_table_is_expected():
    assert set(EXPECTED) == set(LOADERS)


@pytest.mark.parametrize("name", EXPECTED)
def test_shapes_and_classes(name):
    n_rows, n_first, n_second, n_categorical, classes = EXPECTED[name]
    table = load_table(name)
    joined = table.joined()
    assert joined.shape == (n_rows, n_first + n_second)
    assert [len(columns) for columns in table.party_columns.values()] == [n_first, n_second]
    assert table.target in table.party_columns["B"]
    assert len(table.categorical) == n_categorical
    assert set(table.categorical) <= set(joined.columns)
    assert not joined.isna().any(axis=None)
    assert (table.task == "regression") == (name == "california-housing")
    if classes:
        assert joined[table.target].value_counts().sort_index().tolist() == classes


def test_adult_has_the_encoded_widths_of_the_paper():
    table = load_table("adult")
    assert "?" not in table.joined().select_dtypes(exclude="number").to_numpy()
    for frame in table.party_frames.values():
        widths = [frame[c].nunique() if c in table.categorical else 1 for c in frame]
        assert sum(widths) == 53


def test_mnist_halves():
    halves, digits = load_mnist_halves()
    assert halves["A"].shape == halves["B"].shape == (60000, 14, 28)
    assert np.bincount(digits).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip


def test_unset_folder_is_explained(monkeypatch):
    monkeypatch.delenv("VFLSYNTH_DATA")
    with pytest.raises(FileNotFoundError, match="VFLSYNTH_DATA is not set"):
        load_table("red-wine")
