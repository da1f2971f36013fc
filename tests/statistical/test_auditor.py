"""Is the auditor to be trusted? Audits of things whose leak is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

from tests import planted
from vflsynth.adversary import (
    LikelihoodRatio,
    Naive,
    Neighbourhood,
    RandomForest,
    RegularisedLogistic,
    SharedValues,
    TargetedQueries,
)
from vflsynth.adversary.intervals import auc_interval
from vflsynth.audit import Claim, audit_mechanism, audit_synthetic_data, audit_with_canaries
from vflsynth.columns.bins import Bins
from vflsynth.columns.schema import Bounds
from vflsynth.mechanisms import first_layer
from vflsynth.privacy import dpsgd, histograms
from vflsynth.privacy.gaussian_dp import delta_of_gaussian, epsilon_of_gaussian

QUICK = RegularisedLogistic(inverse_penalties=(1.0,), n_folds=3)
"""A cheap adversary, for audits by the hundred."""


@pytest.fixture
def few_trees(monkeypatch):
    """A tenth of the paper's trees, wherever nobody says how many: leaks here are blatant."""
    monkeypatch.setattr(RandomForest.__init__, "__defaults__", (100,))


# -- what leaks everything is caught ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_a_synthesizer_that_returns_its_training_rows_is_caught(repeater, numbers):
    audit = audit_synthetic_data(
        repeater, numbers, n_models=60, claim=Claim(1.0), targets=["farthest"], verbose=0
    )
    (target,) = audit.targets
    assert target.target == 7
    assert target.strongest.auc.value == 1.0
    assert target.strongest.auc.low > 0.9
    # As much as 30 + 30 test models can show, and more than was claimed.
    assert target.strongest.epsilon == pytest.approx(audit.epsilon_ceiling)
    assert audit.contradicts_claim


@pytest.mark.slow
def test_a_bootstrap_of_the_training_rows_is_caught_by_looking_at_the_target(bootstrap, numbers):
    """The target is in 63 % of the bootstrap draws of one world, and in none of the other."""
    audit = audit_synthetic_data(
        bootstrap,
        numbers,
        n_models=200,
        targets=[7],
        statistics=[Neighbourhood()],
        adversaries=[RandomForest(n_trees=100)],
        verbose=0,
    )
    strongest = audit.targets[0].strongest
    expected = 0.5 + (1 - 1 / np.e) / 2
    assert strongest.auc.low <= expected <= strongest.auc.high
    assert strongest.tpr[0.01].value == pytest.approx(1 - 1 / np.e, abs=0.12)


def test_canaries_catch_a_synthesizer_that_returns_its_training_rows(repeater, numbers):
    audit = audit_with_canaries(repeater, numbers, n_canaries=300)
    # Not all 300 are guessed right: half are called "in", and the coins were not that even.
    assert audit.n_correct == audit.n_guesses >= 240
    assert 3.5 < audit.epsilon < audit.epsilon_ceiling


def halves(party_frames, random_state):
    """Each party's columns of a record verbatim, joined with those of another record; 60 times."""
    rng = np.random.default_rng(random_state)
    parts = [
        frame.iloc[rng.integers(len(frame), size=60)].reset_index(drop=True)
        for frame in party_frames.values()
    ]
    return pd.concat(parts, axis=1)


def carts(party_frames, random_state):
    """Column by column, a value from the leaf that a small tree of those before leads to."""
    rng = np.random.default_rng(random_state)
    table = pd.concat(list(party_frames.values()), axis=1).to_numpy()
    made = table[rng.integers(len(table), size=60), :1]
    for j in range(1, table.shape[1]):
        tree = DecisionTreeRegressor(min_samples_leaf=2, random_state=random_state)
        leaves = tree.fit(table[:, :j], table[:, j]).apply(table[:, :j])
        drawn = [rng.choice(table[leaves == leaf, j]) for leaf in tree.apply(made)]
        made = np.column_stack([made, drawn])
    return pd.DataFrame(made, columns=[c for f in party_frames.values() for c in f.columns])


@pytest.mark.slow
@pytest.mark.parametrize(("publish", "least"), [(halves, 0.85), (carts, 0.7)])
@pytest.mark.parametrize("target", [7, 20])
def test_a_generator_that_copies_parts_of_records_is_caught(numbers, publish, least, target):
    """No synthetic record is a copy of a whole one; record 20 does not stand out either."""
    audit = audit_synthetic_data(
        publish,
        numbers,
        n_models=80,
        targets=[target],
        statistics=[Neighbourhood(), TargetedQueries(), SharedValues()],
        adversaries=[LikelihoodRatio()],
        verbose=0,
    )
    assert audit.targets[0].strongest.auc.value > least
    assert audit.headline == "An attacker beats guessing."


def test_a_leak_of_one_record_is_found_where_that_record_is_named(oblivious, numbers):
    def leak_20(party_frames, random_state):
        table = clone(oblivious).set_params(random_state=random_state).fit(party_frames).sample(60)
        there = pd.concat(list(party_frames.values()), axis=1)
        table.iloc[0] = there.loc[20] if 20 in there.index else table.iloc[1]
        return table

    options = {
        "n_models": 40, "statistics": [TargetedQueries()], "adversaries": [LikelihoodRatio()],
        "verbose": 0,
    }  # fmt: skip
    named = audit_synthetic_data(leak_20, numbers, targets=[20], **options)
    assert named.targets[0].strongest.auc.value > 0.95
    other = audit_synthetic_data(leak_20, numbers, targets=["farthest"], **options)
    assert not other.beats_guessing(other.targets[0])
    assert audit_with_canaries(leak_20, numbers, n_canaries=50).epsilon == 0.0


def test_canaries_are_guessed_where_a_copy_makes_it_sure(bootstrap, numbers):
    """37 % of the canaries that are in are not published: not being there is weak evidence."""
    audit = audit_with_canaries(bootstrap, numbers, n_canaries=500, n_synthetic=300)
    assert audit.n_correct == audit.n_guesses
    assert audit.epsilon > 2.0


# -- what leaks nothing is at chance ---------------------------------------------------------------


@pytest.mark.slow
def test_intervals_cover_chance_for_a_synthesizer_that_ignores_its_input(oblivious, numbers):
    """95 % intervals over 100 audits, from end to end: each is right in 90 of them at least."""
    covered, warnings = {"auc": 0, "accuracy": 0}, 0
    for seed in range(100):
        audit = audit_synthetic_data(
            oblivious,
            numbers,
            n_models=30,
            targets=[7],
            statistics=[Naive()],
            adversaries=[RandomForest(n_trees=50), QUICK],
            random_state=seed,
            verbose=0,
        )
        attack = audit.targets[0].strongest
        covered["auc"] += attack.auc.low <= 0.5 <= attack.auc.high
        covered["accuracy"] += attack.accuracy.low <= 0.5 <= attack.accuracy.high
        warnings += audit.beats_guessing(audit.targets[0])
    assert covered["auc"] >= 90
    assert covered["accuracy"] >= 90
    assert warnings <= 10


@pytest.mark.slow
def test_canaries_bound_nothing_for_a_synthesizer_that_ignores_its_input(oblivious, numbers):
    bounds = [
        audit_with_canaries(oblivious, numbers, n_canaries=100, random_state=seed).epsilon
        for seed in range(100)
    ]
    assert sum(bound > 0 for bound in bounds) <= 10


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 30, 100])
@pytest.mark.parametrize("area", [0.5, 0.9, 0.995])
def test_auc_intervals_cover_the_true_area(n, area):
    """Two normal distributions whose area is known, up to almost perfect separation."""
    rng = np.random.default_rng([n, round(1000 * area)])
    shift = norm.ppf(area) * np.sqrt(2)
    is_member = np.repeat([True, False], n)
    covered = 0
    for _ in range(300):
        interval = auc_interval(rng.normal(size=2 * n) + shift * is_member, is_member)
        covered += interval.low <= area <= interval.high
    assert covered / 300 >= 0.92


# -- what leaks a known amount gives a bound below it, and not far below ---------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_the_bound_of_a_gaussian_mechanism_is_below_its_epsilon_and_not_far(mu):
    delta = 0.05
    true = epsilon_of_gaussian(mu, delta)
    rng = np.random.default_rng(3)
    audit = audit_mechanism(
        lambda inside: inside * mu + rng.normal(size=1),
        n_runs=20_000,
        adversaries=[QUICK],
        claim=Claim(true, delta),
    )
    bound = audit.targets[0].strongest.epsilon
    assert 0.7 * true <= bound <= true
    assert not audit.contradicts_claim


def test_a_claim_that_is_too_small_is_contradicted():
    """Half of the noise that the claim needs."""
    rng = np.random.default_rng(4)
    audit = audit_mechanism(
        lambda inside: inside + 0.5 * rng.normal(size=1),
        n_runs=2000,
        adversaries=[QUICK],
        claim=Claim(epsilon_of_gaussian(1.0, 0.05), 0.05),
    )
    assert audit.contradicts_claim
    assert delta_of_gaussian(audit.targets[0].strongest.epsilon, 2.0) >= 0.05


def test_canaries_bound_randomised_response_below_its_epsilon_and_not_far(repeater, numbers):
    """An attacker who is told each coin truthfully with probability e / (1 + e): ε is 1."""
    rng = np.random.default_rng(5)

    def score(synthetic, candidates, known):
        there = pd.MultiIndex.from_frame(candidates).isin(pd.MultiIndex.from_frame(synthetic))
        truthful = rng.random(len(candidates)) < np.e / (1 + np.e)
        return np.where(there == truthful, 1.0, -1.0) + 0.01 * rng.random(len(candidates))

    bound = audit_with_canaries(repeater, numbers, n_canaries=2000, score=score).epsilon
    assert 0.75 <= bound <= 1.0


# -- planted bugs in the DP code that this package trains with -------------------------------------


def _dpsgd_step(inside: bool) -> np.ndarray:
    """One noisy gradient of a linear critic over 9 records; the target points its own way."""
    records = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(8, 5)
    target = torch.tensor([[3.0, -1.0, 2.0, 0.5, -2.0]], dtype=torch.float64)
    inputs = torch.cat([records, target] if inside else [records]).unsqueeze(0)
    traces = [
        dpsgd.LayerTrace(inputs, torch.ones(1, inputs.shape[1], 1, dtype=torch.float64), True)
    ]
    grid = dpsgd.gradient_grid(1.0, 1.0)
    ((weight, bias),) = dpsgd.rounded_gradient_sum([traces], 1.0, grid)
    parts = [
        dpsgd.noisy_mean(part, grid, expected_batch_size=9)
        for part in (weight, bias)
        if part is not None
    ]
    return torch.cat([part.flatten() for part in parts]).numpy()


def _first_layer_step(inside: bool) -> np.ndarray:
    """One noisy first-layer gradient; with and without the target it points another way."""
    gradient = torch.ones(1, 4, 3, dtype=torch.float64)
    gradient[0, 0] += 5.0 * (1 if inside else -1)
    (noisy,) = first_layer.perturb_gradient([gradient], 1.0, 1.0)
    return noisy.flatten().numpy()


_CELLS = dict.fromkeys("ab", Bins.even(Bounds(0.0, 8.0), 8))
_COUNTED = pd.DataFrame({"a": [*np.arange(8.0), 6.5], "b": [*np.arange(8.0), 1.5]})


def _histogram_step(inside: bool) -> np.ndarray:
    """Noisy histograms of two columns; their joint sensitivity is the root of two."""
    table = _COUNTED if inside else _COUNTED[:8]
    released = histograms.release_histograms(table, _CELLS, noise_std=np.sqrt(2.0))
    return np.concatenate([histogram.counts for histogram in released.values()])


STEPS = {
    dpsgd: _dpsgd_step,
    first_layer: _first_layer_step,
    histograms: _histogram_step,
}
CLAIM = Claim(epsilon_of_gaussian(1.0, 1e-3), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("module", STEPS, ids=lambda module: module.__name__)
@pytest.mark.parametrize("bug", [planted.no_noise, planted.one_scalar])
@pytest.mark.usefixtures("few_trees")
def test_planted_bugs_in_dp_training_contradict_the_claim(monkeypatch, module, bug):
    bug(monkeypatch)
    torch.manual_seed(6)
    audit = audit_mechanism(STEPS[module], n_runs=400, claim=CLAIM)
    assert audit.contradicts_claim
    assert "contradicts" in " ".join(audit.conclusion(audit.targets[0]))


@pytest.mark.slow
@pytest.mark.parametrize("module", STEPS, ids=lambda module: module.__name__)
@pytest.mark.usefixtures("few_trees")
def test_correct_dp_training_does_not_contradict_the_claim(module):
    audit = audit_mechanism(STEPS[module], n_runs=1000, claim=CLAIM)
    assert not audit.contradicts_claim
    assert audit.targets[0].strongest.auc.low > 0.5  # it leaks, within the claim
