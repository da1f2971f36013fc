"""Model completion with guessed labels."""

from __future__ import annotations

import numpy as np
import pytest

from vflsynth._random import RandomStreams
from vflsynth.splitdefense.leakage import attacks
from vflsynth.splitdefense.leakage.attacks import completed_with_guesses
from vflsynth.splitdefense.settings import Perceptron


def clusters(seed):
    """Three clusters of 300 records in 20 dimensions, and 5 known labels of each in three draws."""
    rng = np.random.default_rng(seed)
    labels = np.arange(900) % 3
    records = 1.5 * rng.normal(size=(3, 20))[labels] + rng.normal(size=(900, 20))
    known = [
        np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:5] for c in range(3)])
        for _ in range(3)
    ]
    return records.astype(np.float32), labels, known


def network():
    return Perceptron([20, 32, 16], streams=RandomStreams([b"bottom"]), name="bottom")


def completed(records, labels, known):
    rng = np.random.default_rng(0)
    found = completed_with_guesses(records, labels, known, network(), 3, rng)
    others = [np.setdiff1d(np.arange(len(labels)), rows) for rows in known]
    right = [(p.argmax(1) == labels)[rows].mean() for p, rows in zip(found, others)]
    return float(np.mean(right))


@pytest.mark.slow
def test_guesses_help_where_classes_are_clusters(monkeypatch):
    with_guesses = [completed(*clusters(seed)) for seed in range(3)]
    monkeypatch.setattr(attacks, "_GUESSES_WEIGHT", 0.0)
    without = [completed(*clusters(seed)) for seed in range(3)]
    assert 1 - np.mean(with_guesses) < (1 - np.mean(without)) / 4


@pytest.mark.slow
def test_unknown_labels_are_for_scoring_only():
    records, labels, known = clusters(0)
    renamed = (labels + 1) % 3
    renamed[known[0]] = labels[known[0]]
    assert completed(records, labels, known[:1]) > 0.9
    assert completed(records, renamed, known[:1]) < 0.1


def test_draws_do_not_mix():
    records, labels, known = clusters(0)
    useless = np.flatnonzero(labels == 0)[: len(known[0])]  # of one class
    assert completed(records, labels, [known[0], useless]) == pytest.approx(2 / 3, abs=0.05)


def test_the_bottom_model_stays_as_it_is():
    bottom = network()
    before = [parameter.detach().clone() for parameter in bottom.parameters()]
    completed_with_guesses(*clusters(0), bottom, 3, np.random.default_rng(0))
    assert all((a == b).all() for a, b in zip(before, bottom.parameters()))
