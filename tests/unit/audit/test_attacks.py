"""The published attacks, against definitions and on generators that copy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import gaussian_kde

from tests.later import later
from vflsynth.audit.attacks import (
    ATTACKS,
    attack_auc,
    domias,
    gan_leaks,
    gan_leaks_calibrated,
    monte_carlo,
)
from vflsynth.exceptions import (
    ColumnKindError,
    ParameterError,
    PartyDataError,
    TooFewRecordsError,
)

QUICK = {"LOGAN 0": {"epochs": 30}}
MIXING = np.random.default_rng(7).normal(size=(4, 4))


def _people(n: int, seed: int) -> pd.DataFrame:
    numbers = np.random.default_rng(seed).normal(size=(n, 4)) @ MIXING
    return pd.DataFrame(numbers, columns=list("abcd"))


@pytest.fixture
def tables() -> dict[str, pd.DataFrame]:
    """Members, non-members, reference; and a generator that copies members with some noise."""
    members = _people(60, 1)
    noise = 0.1 * np.random.default_rng(4).normal(size=(600, 4))
    return {
        "members": members,
        "non_members": _people(60, 2),
        "reference": _people(300, 3),
        "copies": pd.concat([members] * 10, ignore_index=True) + noise,
        "fresh": _people(600, 5),
    }


@pytest.mark.parametrize(
    "name", [*later("LOGAN D1"), *(n for n in ATTACKS if not n.startswith("LOGAN"))]
)
def test_copies_are_recognised_and_fresh_records_are_not(tables, name):
    others = tables["members"], tables["non_members"], tables["reference"]
    copied = attack_auc(ATTACKS[name], tables["copies"], *others)
    assert copied.low > 0.6
    fresh = attack_auc(ATTACKS[name], tables["fresh"], *others, confidence=0.999)
    assert fresh.low <= 0.5 <= fresh.high


def test_tables_that_cannot_be_compared_are_refused(tables):
    copies, members, others = (tables[name] for name in ("copies", "members", "non_members"))
    with pytest.raises(PartyDataError, match="column 'b': the non-member table has no such"):
        attack_auc(gan_leaks, copies, members, others.drop(columns="b"))
    with pytest.raises(PartyDataError, match=r"columns that the member table has not: .'b'"):
        attack_auc(gan_leaks, copies, members.drop(columns="b"), others)
    with pytest.raises(ColumnKindError, match=r"column 'b': numbers of .* in the member table"):
        attack_auc(gan_leaks, copies, members, others.astype({"b": str}))
    with pytest.raises(TooFewRecordsError):
        attack_auc(gan_leaks, copies, members, others.head(0))
    with pytest.raises(ParameterError, match="confidence"):
        attack_auc(gan_leaks, copies, members, others, confidence=95)


def test_rounding_of_a_constant_hides_no_copies(tables):
    constant = {key: table.assign(e=0.1) for key, table in tables.items()}
    assert 0.0 < constant["reference"]["e"].to_numpy().std() < 1e-12
    noise = 1e-9 * np.random.default_rng(6).normal(size=600)
    others = constant["members"], constant["non_members"], constant["reference"]
    found = attack_auc(gan_leaks_calibrated, constant["copies"].assign(e=0.1 + noise), *others)
    assert found.low > 0.6


def test_logan_0_scores_what_looks_synthetic_higher(tables):
    """Its critic knows where synthetic records are; a generator that copies hides nothing there."""
    far = tables["non_members"] + 8.0
    found = attack_auc(
        ATTACKS["LOGAN 0"], tables["copies"], tables["members"], far, **QUICK["LOGAN 0"]
    )
    assert found.low > 0.9


@pytest.mark.parametrize(
    "name", [*later("LOGAN 0", "LOGAN D1"), *(n for n in ATTACKS if not n.startswith("LOGAN"))]
)
def test_scores_are_finite_one_per_candidate_and_repeatable(tables, name):
    labelled = {
        key: table.assign(
            label=np.where(table["a"] > 0, "up", "down"), code=np.arange(len(table)) % 3
        )
        for key, table in tables.items()
    }
    candidates = labelled["members"].assign(label="never seen")
    arguments = labelled["copies"], candidates, labelled["reference"]
    options = {"categorical": ["code"], **QUICK.get(name, {})}
    scores = ATTACKS[name](*arguments, **options)
    assert scores.shape == (60,)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores, ATTACKS[name](*arguments, **options))


@pytest.mark.parametrize("name", ["LOGAN D1", "GAN-leaks CAL", "DOMIAS"])
def test_attacks_that_need_a_reference_say_so(tables, name):
    with pytest.raises(ParameterError, match="reference="):
        ATTACKS[name](tables["copies"], tables["members"], None)


def _standardised(tables, scale_of):
    centre, scale = tables[scale_of].mean(), tables[scale_of].std(ddof=0)
    return {name: ((table - centre) / scale).to_numpy() for name, table in tables.items()}


def test_distance_attacks_are_their_definitions(tables):
    plain = _standardised(tables, "reference")
    squared = {
        name: ((plain["members"][:, None] - plain[name]) ** 2).sum(-1)
        for name in ("copies", "reference")
    }
    nearest = squared["copies"].min(1)
    arguments = tables["copies"], tables["members"], tables["reference"]
    np.testing.assert_allclose(gan_leaks(*arguments), -np.sqrt(nearest))
    np.testing.assert_allclose(
        gan_leaks_calibrated(*arguments), squared["reference"].min(1) - nearest
    )
    expected = (squared["copies"] < np.median(nearest)).mean(1)
    np.testing.assert_allclose(monte_carlo(*arguments), expected)


def test_domias_is_the_ratio_of_kernel_densities(tables):
    plain = _standardised(tables, "reference")
    points = plain["members"].T
    expected = gaussian_kde(plain["copies"].T).logpdf(points) - gaussian_kde(
        plain["reference"].T
    ).logpdf(points)
    found = domias(tables["copies"], tables["members"], tables["reference"])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_blocks_of_candidates_do_not_matter(tables, monkeypatch):
    arguments = tables["copies"], tables["members"], tables["reference"]
    before = [attack(*arguments) for attack in (monte_carlo, domias)]
    monkeypatch.setattr("vflsynth.adversary.encoding._BLOCK_ELEMENTS", 3000)
    for attack, expected in zip((monte_carlo, domias), before):
        np.testing.assert_allclose(attack(*arguments), expected)
