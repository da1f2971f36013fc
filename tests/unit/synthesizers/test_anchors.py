"""Quick anchors: after seconds of training, what must be there is there."""

import numpy as np
import pandas as pd
import pytest

from vflsynth import VFLGANSynthesizer
from vflsynth.datasets import make_party_frames

KEY = "record_id"
NUMBERS = ("measure", "amount", "count")


@pytest.fixture(scope="module")
def frames():
    """Three numbers per party, related through what the generator of these tables hides."""
    return {
        party: frame[[KEY, *(c for c in frame if c.startswith(NUMBERS))]]
        for party, frame in make_party_frames(600, 2, random_state=1).items()
    }


def train(frames, epochs):
    """At twice the default rate."""
    synth = VFLGANSynthesizer(
        batch_size=64,
        epochs=epochs,
        learning_rate=1e-3,
        model_selection="best",
        evaluate_every=1,
        random_state=0,
        device="cpu",
        verbose=0,
    )
    return synth.fit(frames, KEY)


@pytest.fixture(scope="module")
def trained(frames):
    """A tenth of the default number of steps."""
    return train(frames, epochs=300)


def across(table):
    """Rank correlations between the numbers of party 1 and of party 2."""
    return table.astype(float).corr(method="spearman").to_numpy()[:3, 3:]


@pytest.mark.slow
def test_relations_across_parties_are_learned(frames, trained):
    """Shuffled columns have the same marginals and no relation: the error must be clearly less."""
    one, two = frames.values()
    real = one.merge(two, on=KEY).drop(columns=KEY)
    rng = np.random.default_rng(0)
    shuffled = real.apply(lambda column: column.to_numpy()[rng.permutation(len(real))])
    truth = across(real)
    error = np.abs(across(trained.sample(4000)) - truth).mean()
    assert error < 0.7 * np.abs(across(shuffled) - truth).mean()


@pytest.mark.slow
def test_parties_fed_different_latents_lose_the_relation(trained):
    """The other side of the anchor: it is the shared latent that carries the relation."""
    apart = pd.concat(
        [
            party.sample(4000, random_state=seed)
            for seed, party in enumerate(trained.parties_.values())
        ],
        axis=1,
    )
    assert np.abs(across(apart)).max() < 0.08  # five standard errors of no correlation


@pytest.mark.slow
def test_training_improves_the_distance(frames):
    distance = train(frames, epochs=40).history_["frechet_distance"]
    assert distance.min() < 0.25 * distance.iloc[0]
