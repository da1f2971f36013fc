"""α-precision and β-recall, against slow and obvious code."""

import numpy as np
import pandas as pd
import pytest

from vflsynth.evaluation import precision_and_recall
from vflsynth.evaluation.support import SHARES


def table(n, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n) + shift
    return pd.DataFrame({"x": x, "y": x + rng.normal(size=n), "c": rng.choice(list("ab"), n)})


def slow(real, synthetic, deviations):
    """Distances between all rows, one by one."""

    def distance(a, b):
        numbers = ((a[0] - b[0]) / deviations[0]) ** 2 + ((a[1] - b[1]) / deviations[1]) ** 2
        return np.sqrt(numbers + (a[2] != b[2]))

    def encoded(rows):
        numbers = np.array([row[:2] for row in rows]) / deviations
        labels = np.array([[row[2] == label for label in "ab"] for row in rows]) / 2**0.5
        return np.column_stack([numbers, labels])

    ours, theirs = encoded(real), encoded(synthetic)
    precision, recall = [], []
    own = np.sqrt(((ours - ours.mean(0)) ** 2).sum(1))
    other = np.sqrt(((theirs - ours.mean(0)) ** 2).sum(1))
    typical = np.sqrt(((theirs - theirs.mean(0)) ** 2).sum(1))
    for share in SHARES:
        precision.append(np.mean([d <= np.quantile(own, share) for d in other]))
        hits = 0
        for i, row in enumerate(real):
            next_real = min(distance(row, r) for j, r in enumerate(real) if j != i)
            to_synthetic = [distance(row, s) for s in synthetic]
            k = int(np.argmin(to_synthetic))
            near = to_synthetic[k] <= next_real
            hits += near and typical[k] <= np.quantile(typical, share)
        recall.append(hits / len(real))
    return [1 - np.abs(np.array(c) - SHARES).sum() / SHARES.sum() for c in (precision, recall)]


def test_precision_and_recall_are_those_of_slow_code():
    real, synthetic = table(40), table(40, seed=1, shift=0.4)
    found = precision_and_recall(real, synthetic)
    deviations = real["x"].std(), real["y"].std()
    expected = slow(real.to_numpy().tolist(), synthetic.to_numpy().tolist(), deviations)
    assert float(found["alpha_precision"]) == pytest.approx(expected[0])
    assert float(found["beta_recall"]) == pytest.approx(expected[1])


def test_dates_among_objects_are_those_of_a_dtype():
    real, synthetic = (table(40, seed=i).assign(day=range(40)) for i in (0, 1))
    for frame in (real, synthetic):
        frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame["day"], "D")
    plain = (frame.assign(day=frame["day"].dt.date) for frame in (real, synthetic))
    found, expected = precision_and_recall(*plain), precision_and_recall(real, synthetic)
    assert [float(m) for m in found.values()] == [float(m) for m in expected.values()]


def test_the_anchors_of_precision_and_recall():
    real, fresh = table(2000), table(2000, seed=1)
    same, other = (
        precision_and_recall(real, fresh),
        precision_and_recall(real, fresh.assign(x=99.0)),
    )
    one = precision_and_recall(real, fresh.iloc[[0] * 2000])
    assert float(same["alpha_precision"]) > 0.95
    assert same["beta_recall"].baseline == pytest.approx(float(same["beta_recall"]), abs=0.1)
    assert float(other["alpha_precision"]) < 0.1
    assert float(one["beta_recall"]) < 0.1
    assert float(precision_and_recall(real, real)["beta_recall"]) > 0.95
