import numpy as np
import pandas as pd
import pytest
from scipy.linalg import sqrtm

from vflsynth.evaluation import frechet_distance


def slow_distance(real, synthetic):
    """The paper's code, for numeric tables without constants."""
    a = (real - real.mean()) / real.std()
    b = (synthetic - real.mean()) / real.std()
    root = np.real(sqrtm(np.cov(a, rowvar=False) @ np.cov(b, rowvar=False)))
    trace = np.trace(np.cov(a, rowvar=False) + np.cov(b, rowvar=False) - 2 * root)
    return ((a.mean() - b.mean()) ** 2).sum() + trace


def test_agrees_with_the_papers_formula(cancer):
    real = cancer.drop(columns="target").iloc[:, :8]
    rng = np.random.default_rng(0)
    synthetic = real.sample(300, random_state=0) * rng.normal(1.0, 0.1, (300, 8))
    result = frechet_distance(real, synthetic)
    assert result.value == pytest.approx(slow_distance(real, synthetic), rel=1e-6)


def test_equal_tables_are_at_distance_zero(mixed):
    result = frechet_distance(mixed, mixed.sample(frac=1, random_state=0))
    assert result.value == pytest.approx(0.0, abs=1e-6)


def test_a_shift_of_one_deviation_costs_one():
    real = pd.DataFrame({"x": np.arange(100.0), "y": np.arange(100.0) ** 2})
    moved = real.assign(x=real["x"] + real["x"].std())
    assert frechet_distance(real, moved).value == pytest.approx(1.0)


def test_marks_bracket_the_values_of_halves_and_of_shuffled_columns(cancer):
    rng = np.random.default_rng(0)
    shuffled = pd.DataFrame({name: rng.permutation(cancer[name]) for name in cancer})
    result = frechet_distance(cancer, shuffled)
    assert result.value == pytest.approx(result.naive, rel=0.05)
    assert result.baseline < 0.1 * result.naive
    order = rng.permutation(len(cancer))
    half = frechet_distance(cancer.iloc[order[:284]], cancer.iloc[order[284:]])
    assert half.value < 0.2 * result.naive


def test_parties_have_parts_of_their_own(mixed, parties):
    rng = np.random.default_rng(0)
    repaired = mixed.copy()
    repaired[parties["lab"]] = mixed[parties["lab"]].iloc[rng.permutation(len(mixed))].to_numpy()
    repaired = repaired.astype(mixed.dtypes)
    parts = frechet_distance(mixed, repaired, parties=parties).parts.set_index("part")
    # Each party's own table is only reordered; what is lost lies between them.
    assert parts.loc["clinic", "value"] == pytest.approx(0.0, abs=1e-6)
    assert parts.loc["lab", "value"] == pytest.approx(0.0, abs=1e-6)
    assert parts.loc["all columns", "value"] > 3 * parts.loc["all columns", "baseline"]


def test_chunks_change_nothing(mixed, make, monkeypatch):
    other = make(500, seed=1)
    whole = frechet_distance(mixed, other)
    monkeypatch.setattr("vflsynth.evaluation.columns.CHUNK_ROWS", 37)
    pieces = frechet_distance(mixed, other)
    # One-hot blocks are singular: the root of a round-off of 1e-16 is one of 1e-8.
    assert pieces.value == pytest.approx(whole.value, abs=1e-6)
    assert pieces.interval == pytest.approx(whole.interval, abs=1e-6)


@pytest.mark.slow
def test_the_interval_is_honest(make):
    """95 % intervals of two independent samples cover the distance of two very large ones."""
    shift = 0.5
    large = make(200_000, seed=99)
    far = make(200_000, seed=98)
    truth = frechet_distance(large, far.assign(age=far["age"] + shift * large["age"].std())).value
    hits = 0
    for seed in range(40):
        real, other = make(2_000, seed=seed), make(2_000, seed=1000 + seed)
        result = frechet_distance(real, other.assign(age=other["age"] + shift * real["age"].std()))
        low, high = result.interval
        hits += low <= truth <= high
    assert hits >= 34  # 38 expected; 33 or fewer has a chance of 1 % at 95 % coverage


@pytest.mark.data
@pytest.mark.parametrize("colour", ["red"])
def test_reference_magnitudes(wine, colour):
    # Measured independently of this package: halves 0.12, every column shuffled about 2.3.
    real = wine(colour)
    rng = np.random.default_rng(0)
    shuffled = pd.DataFrame({name: rng.permutation(real[name]) for name in real})
    result = frechet_distance(real, shuffled, categorical=["quality"])
    assert result.value == pytest.approx(2.3, abs=0.25)
    assert result.baseline == pytest.approx(0.12, abs=0.05)
    assert result.parts.loc[0, "features"] == 17
