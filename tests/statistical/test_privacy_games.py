"""What an attacker gets out of whole private fits, against what their ledgers claim."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.distinguishing import MECHANISMS, distinguish
from tests import planted
from vflsynth import MixtureSynthesizer, PairwiseTables, VertiGANSynthesizer, VFLGANSynthesizer
from vflsynth.adversary import RegularisedLogistic
from vflsynth.audit import Claim, audit_mechanism, audit_with_canaries
from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.privacy import PublicSchema

SCHEMA = PublicSchema(dtypes="given", bounds={"x": (-8.0, 8.0), "y": (-8.0, 8.0)})
N_RECORDS, N_RUNS = 24, 200


def two_parties(n, seed=0):
    """Two parties whose one column each is nearly the same number."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"y": x + 0.1 * rng.normal(size=n)})}


def game(privacy):
    """Many models with and without an outlier; the attacker sees moments of their samples."""
    frames = two_parties(N_RECORDS + 1)
    for frame in frames.values():
        frame.iloc[0] = 7.0
    model = VFLGANSynthesizer(
        privacy=privacy,
        epochs=250,
        batch_size=8,
        generator_hidden=(16,),
        first_part=(16,),
        shared_hidden=(16,),
        discriminator_steps=1,
        learning_rate=2e-3,
        device="cpu",
        verbose=0,
    )
    worlds = {}
    for inside in (True, False):
        rows = np.arange(N_RECORDS) + (not inside)  # replaces the outlier by another record
        models = model.fit_replicas(
            frames, random_states=[None] * N_RUNS, replica_rows=np.tile(rows, (N_RUNS, 1))
        )
        worlds[inside] = [moments(fitted.sample(300)) for fitted in models]
        ledger = models[0].privacy_ledger_
    report = audit_mechanism(
        lambda inside: worlds[inside].pop(),
        n_runs=N_RUNS,
        adversaries=[RegularisedLogistic()],
        claim=Claim(ledger.epsilon(), ledger.delta, ledger.relation),
    )
    return ledger.epsilon(), report.targets[0].strongest


def moments(table):
    """What the attacker sees; a constant column, of a model that collapsed, has no correlation."""
    correlation = table["x"].corr(table["y"]) if (table.std() > 0.0).all() else 0.0
    return [*table.mean(), *table.std(), *table.max(), correlation]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_first_layer_leaks_more_than_its_epsilon():
    """The paper's mechanism, drowned in noise: a record is seen all the same."""
    privacy = FirstLayer(noise_multiplier=1e4, delta=1e-3)
    claimed, attack = game(privacy)
    assert claimed < 0.1
    assert attack.epsilon > 1.0


@pytest.mark.slow
def test_dpsgd_leaks_no_more_than_its_epsilon():
    """The same game, the same attacker: the outlier is public knowledge only by the schema."""
    privacy = DPSGD(
        epsilon=1.0,
        delta=1e-3,
        neighbouring_relation="replace_one",
        public_schema=SCHEMA,
        preprocessing_share=0.0,
    )
    claimed, attack = game(privacy)
    assert 0.9 < claimed <= 1.0
    assert attack.epsilon <= claimed


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_saved_model_tells_no_more_than_its_epsilon(mechanism):
    report, ledger = distinguish(mechanism, n_models=60, epsilon=1.0)
    assert 0.9 < ledger.epsilon() <= 1.0 < report.epsilon_ceiling  # so it could be above
    assert not report.contradicts_claim


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "bug"),
    [
        ("DPLT, LatentTree", planted.no_noise),
        ("DPLT, LatentTree", planted.a_tenth_of_the_noise),
        ("VertiGAN, DPSGD", planted.no_noise),  # a tenth of it hides enough from 60 models
    ],
)
def test_noise_that_is_missing_is_found_in_saved_models(mechanism, bug, monkeypatch):
    bug(monkeypatch)
    report, _ = distinguish(mechanism, n_models=60, epsilon=1.0)
    assert report.contradicts_claim


# With 200 canaries and a larger delta, the price of delta leaves no room for a bound above 1.
CANARY_DELTA = 1e-5
ONE_SHOT = PairwiseTables(epsilon=1.0, delta=CANARY_DELTA, public_schema=SCHEMA)
SHORT = {
    "epochs": 10,
    "batch_size": 64,
    "device": "cpu",
    "verbose": 0,
    "generator_hidden": (16,),
}
GRADIENTS = DPSGD(epsilon=1.0, delta=CANARY_DELTA, public_schema=SCHEMA, n_records=300)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        MixtureSynthesizer(privacy=ONE_SHOT, n_components=8),
        VFLGANSynthesizer(privacy=GRADIENTS, **SHORT),
        VertiGANSynthesizer(privacy=GRADIENTS, **SHORT),
    ],
    ids=["pairwise_tables", "dpsgd", "VertiGAN, dpsgd"],
)
def test_canaries_of_sound_mechanisms_stay_below_their_epsilon(model):
    audit = audit_with_canaries(
        model, two_parties(200), n_canaries=200, claim=Claim(1.0, CANARY_DELTA), random_state=1
    )
    assert audit.epsilon_ceiling > 1.0  # so it could be above
    assert audit.epsilon <= 1.0
