import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from vflsynth.evaluation import proximity
from vflsynth.evaluation.columns import TableEncoder
from vflsynth.evaluation.neighbours import _Search


def test_nearest_agrees_with_all_distances(mixed, make, monkeypatch):
    monkeypatch.setattr("vflsynth.evaluation.columns.CHUNK_ROWS", 41)
    other = make(150, seed=1)
    encoder = TableEncoder(mixed, other)
    search = _Search(encoder, mixed)
    distances = cdist(encoder.encode(other) * search.scale, encoder.encode(mixed) * search.scale)
    np.testing.assert_allclose(search.nearest(other), distances.min(axis=1), atol=1e-12)
    own = cdist(encoder.encode(mixed) * search.scale, encoder.encode(mixed) * search.scale)
    np.testing.assert_allclose(
        search.nearest(mixed, skip_own=True), np.sort(own, axis=1)[:, 1], atol=1e-12
    )


def test_two_labels_are_one_deviation_apart():
    real = pd.DataFrame({"c": ["a", "a"]})
    encoder = TableEncoder(real, pd.DataFrame({"c": ["b", "b"]}))
    assert _Search(encoder, real).nearest(pd.DataFrame({"c": ["b"]})) == pytest.approx([1.0])


def test_a_leaking_table_is_caught(make):
    real, holdout = make(800, seed=0), make(800, seed=1)
    leak = pd.concat([real.head(400), make(400, seed=2)], ignore_index=True)
    results = proximity(real, leak, holdout=holdout)
    assert results["exact_copies"].value == pytest.approx(0.5, abs=0.02)
    assert results["exact_copies"].baseline < 0.02
    assert results["new_row_share"].value == pytest.approx(0.5, abs=0.03)
    low, _ = results["closer_to_training_share"].interval
    assert low > 0.65
    closest = results["distance_to_closest_record"]
    assert closest.value < 0.5 * closest.baseline


def test_ten_copies_prove_no_more_than_ten_rows_can(make):
    leak = proximity(make(80, seed=0), make(80, seed=0).head(10), holdout=make(80, seed=1))
    low, high = leak["closer_to_training_share"].interval
    assert (low, high) == pytest.approx((0.722, 1.0), abs=0.001)


def test_an_innocent_table_is_not(make):
    results = proximity(make(800, seed=0), make(800, seed=2), holdout=make(800, seed=1))
    low, high = results["closer_to_training_share"].interval
    assert low <= 0.5 <= high
    closest = results["distance_to_closest_record"]
    assert closest.value == pytest.approx(closest.baseline, rel=0.2)


def test_copies_are_found_whatever_their_type():
    real = pd.DataFrame({"n": [1, 2, 3], "c": pd.Categorical(["a", "b", None]), "z": [0.0, 1, 2]})
    copies = pd.DataFrame({"z": [-0.0, 2.0], "c": ["a", None], "n": [1.0, 3.0]})
    assert proximity(real, copies)["exact_copies"].value == 1.0
    real = pd.DataFrame({"code": [1, 2, 30], "cat": pd.Categorical([7, 8, 9]), "b": [True] * 3})
    copies = real.astype({"code": float, "cat": float, "b": int})
    assert proximity(real, copies, categorical=["code"])["exact_copies"].value == 1.0


def test_without_held_out_rows_real_neighbours_are_the_baseline(mixed):
    results = proximity(mixed, mixed)
    assert results["closer_to_training_share"].not_applicable == "no held-out rows were given"
    closest = results["distance_to_closest_record"]
    assert closest.value == 0.0
    assert closest.baseline > 0.1


def test_says_that_it_guarantees_nothing(mixed):
    for result in proximity(mixed, mixed).values():
        assert "Not a privacy guarantee" in result.metric.measures
        if result.value is not None:
            assert any("not a privacy guarantee" in note for note in result.notes)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "Int64"])
def test_whole_numbers_beyond_the_floats_are_told_apart(dtype):
    large = pd.DataFrame({"id": pd.array(2**62 + 2 * np.arange(200), dtype=dtype)})
    assert float(proximity(large, large)["exact_copies"]) == 1.0
    assert float(proximity(large, large + 1)["exact_copies"]) == 0.0
    small = pd.DataFrame({"id": pd.array(np.arange(200), dtype=dtype)})
    assert float(proximity(small, small.astype("float64"))["exact_copies"]) == 1.0
