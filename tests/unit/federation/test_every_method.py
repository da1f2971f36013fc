"""Whatever there is to fit runs with every party in a process of its own, or is refused."""

import pytest

from tests.later import later
from tests.unit.federation.conftest import KEY
from tests.unit.federation.trial import assert_same
from vflsynth._random import secret_from
from vflsynth.exceptions import ParameterError, PublishingWarning
from vflsynth.federation.site import Budget
from vflsynth.models.party_model import sample_parties
from vflsynth.registry import Members

pytestmark = pytest.mark.usefixtures("short_searches")

GAN = {"epochs": 2, "batch_size": 16, "latent_dim": 4, "generator_hidden": [8]}
PARAMETERS = {
    "VFLGANSynthesizer": GAN,
    "VertiGANSynthesizer": GAN,
    "AutoregressiveSynthesizer": {"epochs": 2, "hidden": 8, "n_features": 16},
    "IndependentSynthesizer": {},
    "GaussianCopulaSynthesizer": {},
    "DPLTSynthesizer": {},
    "MixtureSynthesizer": {"n_components": 4},
}
PRIVACY = {
    "dpsgd": {"mechanism": "dpsgd", "n_records": 40, "epsilon": None, "noise_multiplier": 10.0},
    "first_layer": {"mechanism": "first_layer", "epsilon": None, "noise_multiplier": 10.0},
    "latent_tree": {"mechanism": "latent_tree", "epsilon": 2.0},
    "pairwise_tables": {"mechanism": "pairwise_tables", "epsilon": 2.0},
}
METHODS = [
    (name, mechanism and mechanism.name)
    for name, kind in Members("synthesizers").items()
    if not kind.joins
    for mechanism in kind.methods
]

SHOWN = ("VFLGANSynthesizer",)
"""Of these `test_run` compares the bytes."""
SECOND = (("VertiGANSynthesizer", "dpsgd"), ("VertiGANSynthesizer", "first_layer"))
"""Mechanisms that another synthesizer shows, too."""


def test_these_are_the_methods():
    """A mechanism that is carried to a synthesizer is tried below without being listed there."""
    assert {
        ("VFLGANSynthesizer", None),
        ("VFLGANSynthesizer", "dpsgd"),
        ("VFLGANSynthesizer", "first_layer"),
        ("VertiGANSynthesizer", None),
        ("VertiGANSynthesizer", "dpsgd"),
        ("VertiGANSynthesizer", "first_layer"),
        ("AutoregressiveSynthesizer", None),
        ("IndependentSynthesizer", None),
        ("GaussianCopulaSynthesizer", None),
        ("DPLTSynthesizer", "latent_tree"),
        ("MixtureSynthesizer", "pairwise_tables"),
    } <= set(METHODS)


@pytest.mark.parametrize("n_parties", [2, *later(3)])
@pytest.mark.parametrize(
    "method",
    [
        *(name for name, mechanism in METHODS if mechanism is None and name not in SHOWN),
        *later(*SHOWN),
    ],
)
def test_without_privacy_the_bytes_are_those_of_a_run_in_one_process(make_trial, method, n_parties):
    trial = make_trial(n_parties, method=method, fast=PARAMETERS[method], kinds=None).finish()
    assert_same(trial, trial.estimator().fit(trial.frames, KEY))


@pytest.mark.parametrize("protocol", ["bounded", *later("trained", "one_message")])
def test_unmatched_records_train_across_processes_as_in_one(make_trial, protocol):
    method = "AutoregressiveSynthesizer"
    chosen = PARAMETERS[method] | {"protocol": protocol, "unmatched": "train"}
    trial = make_trial(2, method=method, fast=chosen, n_unmatched=25).finish()
    synth = trial.estimator()
    with pytest.warns(PublishingWarning, match="train the columns of the party that has them"):
        synth.fit(trial.frames, KEY)
    assert_same(trial, synth)


@pytest.mark.parametrize(
    ("method", "mechanism"),
    [
        *(pair for pair in METHODS if pair[1] and pair not in SECOND),
        *later(*(pair for pair in METHODS if pair in SECOND)),
    ],
)
def test_private_runs_account_for_exactly_the_ledger_and_their_halves_sample(
    make_private_trial, method, mechanism
):
    trial = make_private_trial(
        privacy=PRIVACY[mechanism],
        parameters=PARAMETERS[method],
        method=method,
        budget=Budget(100.0, 1e-3),
    ).finish()
    ledger = trial.server.method.plan.ledger
    for node in ("server", *trial.sites):
        (attempt,) = trial.account(node)
        assert attempt.entries == ledger.entries, node
    halves = {n: trial.half(n) for n in trial.frames}
    samples = sample_parties(halves, 20, secret_from(3))
    for name, frame in trial.frames.items():
        sample = samples[name]
        assert list(sample) == [column for column in frame if column != KEY]
        assert sample.notna().any().all()


@pytest.mark.parametrize("mechanism", [None, "dpsgd"])
def test_what_joins_the_tables_is_refused_with_the_reason(make_trial, mechanism):
    privacy = {} if mechanism is None else {"privacy": PRIVACY[mechanism] | {"delta": 1e-3}}
    trial = make_trial(method="WGANGPSynthesizer", fast=GAN | privacy)
    for make in (trial.job.method_for_node, trial.run):
        with pytest.raises(ParameterError) as refused:
            make()
        text = str(refused.value)
        assert "WGANGPSynthesizer cannot run across processes" in text
        assert "no message that may carry rows" in text
        assert "Fix: VertiGANSynthesizer" in text
