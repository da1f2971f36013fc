"""GS-WGAN's accounting: the published number, what it leaves out, and a proof that it matters."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from vflsynth import GSWGAN
from vflsynth.mechanisms import Asked, Discriminators
from vflsynth.privacy import (
    GaussianRelease,
    NeighbouringRelation,
    PublicSchema,
    SampledRelease,
    Sampler,
    WangAccountant,
)
from vflsynth.privacy.discovery import ColumnCounts

SIGMA, BATCH, SHARDS, STEPS, DELTA = 1.07, 32, 1000, 20_000, 1e-5
"""Of the published code; its noise has standard deviation 2 C SIGMA in every coordinate."""


def published_count():
    """Every gradient of every step as a release of a shard drawn afresh."""
    release = GaussianRelease(
        released="gradient at one fake",
        party="joined",
        noise_multiplier=SIGMA,
        sensitivity=2.0,
        relation=NeighbouringRelation.REPLACE_ONE,
    )
    return SampledRelease((release,), Sampler.WITHOUT_REPLACEMENT, 1.0 / SHARDS, STEPS * BATCH)


def ledger_of(noise_multiplier):
    """As many records and epochs as make so many steps, one of a generator for each of a batch."""
    mechanism = GSWGAN(
        noise_multiplier=noise_multiplier,
        delta=DELTA,
        n_shards=SHARDS,
        public_schema=PublicSchema(dtypes="given", bounds={"a": (0, 1)}),
        preprocessing_share=0.0,
    )
    asked = Asked(
        n_records=SHARDS * BATCH,
        owners=Discriminators.JOINED,
        batch_size=BATCH,
        epochs=STEPS // SHARDS,
        discriminator_steps=1,
    )
    return mechanism.plan({"joined": ColumnCounts(1)}, asked).ledger


def test_the_published_number():
    epsilon = WangAccountant().epsilon(published_count(), DELTA)
    assert round(epsilon, 3) == 9.993


def best_lower_bound(noise_std):
    """ε that (ε, δ)-DP must at least have, given one attack on the mechanism's worst case.

    All other discriminators, and the shard's own without the record, say -C in one direction at
    every fake; the record turns its shard's around. The attacker projects every step's gradients on
    that direction, which gives N(0, 1), or N(distance, 1) when the shard was drawn, and counts the
    steps above a threshold. All probabilities are exact.
    """
    distance = 2.0 * math.sqrt(BATCH) / noise_std
    best = 0.0
    for threshold in np.linspace(2.0, 6.0, 17):
        without = norm.sf(threshold)
        with_record = without + (norm.sf(threshold - distance) - without) / SHARDS
        counts = np.arange(200)
        reached = binom.sf(counts, STEPS, with_record) - DELTA
        false = binom.sf(counts, STEPS, without)
        usable = (reached > 0.0) & (false > 1e-300)
        best = max(best, np.max(np.log(reached[usable] / false[usable]), initial=0.0))
    return best


def test_the_published_count_claims_too_little():
    """One shard answers for all fakes of a step: an attack alone proves more than is claimed."""
    assert best_lower_bound(2.0 * SIGMA) > 2.0 * 9.993


def test_the_same_noise_counted_together_gives_no_usable_epsilon():
    ledger = ledger_of(SIGMA / math.sqrt(BATCH))
    (entry,) = ledger.entries
    assert entry.event.releases[0].noise_std == pytest.approx(2.0 * SIGMA)
    assert ledger.epsilon() > best_lower_bound(2.0 * SIGMA)
    assert ledger.epsilon() > 100.0


def test_root_of_batch_times_the_noise_is_one_release_per_step():
    """The ledger's count with √B times the published noise: as many releases as steps."""
    ledger = ledger_of(SIGMA)
    (entry,) = ledger.entries
    assert entry.event.steps == STEPS
    assert entry.event.releases[0].noise_std == pytest.approx(2.0 * SIGMA * math.sqrt(BATCH))
    spent = ledger.epsilons()[WangAccountant().name]
    assert spent == pytest.approx(1.57, abs=0.01)
    assert best_lower_bound(2.0 * SIGMA * math.sqrt(BATCH)) < ledger.epsilon()
