"""Private fits of VertiGAN through the real code: what one step of all parties releases."""

import dataclasses
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from tests import planted
from tests.crossing import MATCHING
from tests.later import later
from tests.unit.synthesizers.private_steps import (
    BATCH,
    BOUND,
    NOISE,
    PRIVACY,
    RECORDS,
    REPLICAS,
    SCHEMA,
    SMALL,
    assert_noise_drowns_the_records,
    assert_noise_is_claimed,
    assert_one_more_record_moves_no_step_further,
    assert_step_is_the_clipped_sum,
    assert_the_step_after_the_last_is_refused,
    first_layer_noise,
    make_frames,
    noise_of_a_step,
    plant_a_bank_without_noise,
    saved_and_loaded,
    sessions_of,
    step_of,
    stopped_before_training,
    with_one_more,
)
from vflsynth import GSWGAN, VertiGANSynthesizer
from vflsynth.exceptions import (
    NoPrivacyWarning,
    ParameterError,
    PrivacyParameterError,
    ProtocolError,
)
from vflsynth.learning.messages import MaskedFake, MaskedReal
from vflsynth.mechanisms import DPSGD as DPSGDMechanism
from vflsynth.mechanisms import FirstLayer
from vflsynth.mechanisms import noisy_descent as dpsgd_module
from vflsynth.methods.gan.critics import Critic, FirstLayerCritic
from vflsynth.privacy import Sampler
from vflsynth.privacy.events import releases_in
from vflsynth.protocol import Transcript
from vflsynth.run import local

DPSGD, FIRST_LAYER = PRIVACY["dpsgd"], PRIVACY["first_layer"]


def split(frames, n_parties):
    """The same records with two or three parties."""
    if n_parties == 2:
        return frames
    bank = frames["bank"]
    return frames | {"bank": bank[["income"]], "school": bank[["grade"]]}


@pytest.fixture
def frames():
    return make_frames()


def synthesizer(privacy=DPSGD, **parameters):
    small = {**SMALL, "discriminator_hidden": (6, 5), "discriminator_steps": 2}
    return VertiGANSynthesizer(privacy=privacy, **small | parameters)


@pytest.fixture
def session_of(monkeypatch):
    make = sessions_of(monkeypatch, synthesizer)
    return lambda frames, privacy=DPSGD, **options: make(frames, privacy, **options)


# -- one step, one record at a time ----------------------------------------------------------------


@pytest.mark.parametrize("bound", [BOUND, 25.0])
@pytest.mark.parametrize("n_parties", [2, *later(3)])
def test_every_party_clips_one_record_at_a_time(frames, session_of, monkeypatch, n_parties, bound):
    planted.no_noise(monkeypatch)
    privacy = clone(DPSGD).set_params(max_grad_norm=bound)
    session = session_of(split(frames, n_parties), privacy)
    assert len(session.parties) == n_parties
    assert_step_is_the_clipped_sum("dpsgd", session, bound)


def test_clipping_of_the_whole_batch_is_noticed(frames, session_of, monkeypatch):
    planted.no_noise(monkeypatch)
    planted.clipping_of_the_whole_batch(monkeypatch)
    with pytest.raises(AssertionError):
        assert_step_is_the_clipped_sum("dpsgd", session_of(frames))


# -- the noise -------------------------------------------------------------------------------------


def assert_a_step_has_the_claimed_noise(session_of, frames):
    std = NOISE * math.sqrt(len(frames)) * BOUND / BATCH  # of as many owners as parties: no server
    found = noise_of_a_step(lambda: session_of(frames, n_models=REPLICAS), std)
    assert_noise_is_claimed(found, SCORE_BIASES)


# Their gradient is zero for ever: a constant in all scores.
SCORE_BIASES = {(party, "linears.2.bias") for party in ("clinic", "bank", "school")}


@pytest.mark.parametrize("n_parties", [2, *later(3)])
def test_every_coordinate_of_every_party_has_independent_noise(frames, session_of, n_parties):
    assert_a_step_has_the_claimed_noise(session_of, split(frames, n_parties))


def plant_in_noise(scale):
    """A bug in the noise of the clinic alone: so many times what it should be."""

    def plant(patch):
        honest_add, owners = dpsgd_module.NoisyDescent.add, []

        def add(self, *args):
            if self not in owners:  # parties take turns in the order of the frames
                owners.append(self)
            with pytest.MonkeyPatch.context() as inner:
                if self is owners[0]:
                    planted.in_noise(inner, lambda draw, shape: draw(shape, scale))
                honest_add(self, *args)

        patch.setattr(dpsgd_module.NoisyDescent, "add", add)

    return plant


plant_forgotten_party = plant_in_noise(0.0)
plant_noise_for_one_owner = plant_in_noise(1.0 / math.sqrt(2.0))
plant_scaled_noise = plant_in_noise(1.2)


def plant_sensitivity_with_a_server(patch):
    """That of VFLGAN, whose server has a discriminator: too much noise, but not what is said."""
    planted.in_noise(patch, lambda draw, shape: draw(shape, math.sqrt(1.5)))


def plant_the_same_noise_in_all_parties(patch):
    honest = dpsgd_module.noisy_mean

    def noisy_mean(total, *a, **rest):  # from the end, as first layers have different widths
        rest |= {"rng": torch.Generator().manual_seed(0)}
        return honest(total.flip(0), *a, **rest).flip(0)

    patch.setattr(dpsgd_module, "noisy_mean", noisy_mean)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        planted.no_noise,
        plant_forgotten_party,
        plant_noise_for_one_owner,
        plant_scaled_noise,
        plant_sensitivity_with_a_server,
        plant_the_same_noise_in_all_parties,
    ],
)
def test_planted_bugs_in_the_noise_are_noticed(frames, session_of, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_a_step_has_the_claimed_noise(session_of, frames)


@pytest.mark.parametrize(("relation", "factor"), [("add_or_remove_one", 1), ("replace_one", 2)])
@pytest.mark.parametrize("n_parties", [2, 3])
def test_the_claimed_noise_is_the_noise_of_training(
    frames, session_of, relation, factor, n_parties
):
    privacy = clone(DPSGD).set_params(neighbouring_relation=relation)
    frames = split(frames, n_parties)
    session, model = session_of(frames, privacy), synthesizer(privacy).fit(frames)
    joint = factor * math.sqrt(n_parties) * BOUND
    for party in session.parties.values():
        used = party.descent.noisy.plan
        assert used.sensitivity == pytest.approx(joint)
        assert used.noise_multiplier == pytest.approx(NOISE)
    (training,) = model.privacy_ledger_.event.events
    assert [r.party for r in training.releases] == sorted(frames)
    assert [r.noise_std for r in training.releases] == pytest.approx([NOISE * joint] * n_parties)
    assert training.joint_noise_multiplier == pytest.approx(NOISE)
    assert (training.sampler, training.steps) == (Sampler.POISSON, 4)
    assert training.sample_rate == BATCH / 60


# -- sensitivity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("n_parties", [2, 3])
@pytest.mark.parametrize("seed", [0, *later(1)])
def test_one_more_record_moves_a_step_by_at_most_its_sensitivity(
    session_of, monkeypatch, record, seed, n_parties
):
    def make(table):
        return session_of(split(table, n_parties))

    assert_one_more_record_moves_no_step_further(make, monkeypatch, record, seed)


def test_a_party_that_does_not_clip_would_be_noticed(session_of, monkeypatch):
    planted.no_clipping(monkeypatch)
    record = {"age": 40, "smoker": "no", "income": 9.0, "grade": 1}
    with pytest.raises(AssertionError):
        assert_one_more_record_moves_no_step_further(session_of, monkeypatch, record, 0)


# -- no learning without information ---------------------------------------------------------------


def test_with_noise_to_infinity_two_populations_give_the_same_model(frames):
    def make(noise_multiplier):
        privacy = clone(DPSGD).set_params(noise_multiplier=noise_multiplier)
        return synthesizer(privacy, epochs=2)

    assert_noise_drowns_the_records(make, frames)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_first_layer_learns_with_noise_to_infinity():
    """A claimed epsilon of nearly zero, and two populations are told apart all the same."""
    x, error, z = np.random.default_rng(0).normal(size=(3, 256))
    privacy = FirstLayer(noise_multiplier=1e4, delta=1e-3)
    for seed in range(2):
        for sign in (1.0, -1.0):  # of the relation of one party's columns; all else is the same
            frames = {
                "a": pd.DataFrame({"x": x, "y": sign * x + 0.1 * error}),
                "b": pd.DataFrame({"z": z}),
            }
            model = VertiGANSynthesizer(
                privacy=privacy,
                discriminator_hidden=(64, 64, 64),
                epochs=200,
                batch_size=32,
                random_state=seed,
                device="cpu",
                verbose=0,
            ).fit(frames)
            assert model.privacy_ledger_.epsilon() < 0.5
            table = model.sample(2000, random_state=0)
            assert sign * table["x"].corr(table["y"]) > 0.4


# -- what is read, sent and kept -------------------------------------------------------------------


def contents(message):
    return {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}


def test_what_leaves_a_party_is_computed_from_the_releases(frames, monkeypatch):
    """Equal releases, other tables, a record more: after matching all messages are the same."""
    monkeypatch.setattr(local, "_entropy", lambda noise: b"sampling" * 4)
    monkeypatch.setattr(dpsgd_module, "noisy_mean", lambda total, *_, **rest: total.double() * 0)
    sent, samples = [], []
    for table in (frames, with_one_more(make_frames(seed=9), RECORDS[0])):
        kept = Transcript(keep_messages=True)
        monkeypatch.setattr(local, "Transcript", lambda kept=kept: kept)
        model = synthesizer(epochs=3, model_selection="best")
        samples.append(model.fit(table, transcript=True).sample(20, random_state=1))
        sent.append([m for m in kept.messages if type(m).__name__ not in MATCHING])
    pd.testing.assert_frame_equal(*samples)
    assert {type(m).__name__ for m in sent[0]} == {
        "EncodedSize",
        "EncodedSizes",
        "BackboneGradients",
        "SummedBackboneGradients",
        "SelectionNotice",
        "TrainingReport",
    }
    for one, other in zip(*sent, strict=True):
        assert type(one) is type(other)
        for field, value in contents(one).items():
            same = contents(other)[field]
            equal = torch.equal(value, same) if isinstance(value, torch.Tensor) else value == same
            assert equal, (type(one).__name__, field)


def test_parties_draw_the_same_records_from_what_nobody_can_repeat(frames):
    drawn, latents = [], []
    for _ in range(2):
        parties = stopped_before_training([synthesizer()], frames).parties
        own = [
            [party.schedule.rows(step).tolist() for step in range(5)] for party in parties.values()
        ]
        assert own[0] == own[1]
        drawn.append(own[0])
        latents.append(parties["bank"].schedule.latent(0))
    assert drawn[0] != drawn[1]
    assert torch.equal(*latents)


def test_nobody_looks_at_records_to_choose_a_model(frames, session_of):
    session = session_of(frames, model_selection="best")
    assert not session.algorithm.selects
    for party in session.nodes.values():
        for kind in (MaskedReal, MaskedFake):
            with pytest.raises(ProtocolError, match="no entry"):
                party.answer(kind, 0)


def test_the_history_holds_what_was_paid_for(frames):
    history = synthesizer(epochs=2).fit(frames).history_
    columns = {f"{kind}_{party}" for kind in ("fake_score", "penalty") for party in frames}
    assert set(history) - {"seconds", "chosen"} == columns


@pytest.mark.parametrize("privacy", [DPSGD, FIRST_LAYER])
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_the_step_after_the_last_is_refused_before_records_are_read(frames, session_of, privacy):
    assert_the_step_after_the_last_is_refused(session_of(frames, privacy))


@pytest.mark.slow
def test_the_ledger_is_within_budget_and_the_model_is_saved(frames, tmp_path):
    privacy = clone(DPSGD).set_params(
        epsilon=4.0, noise_multiplier=None, n_records=50, preprocessing_share=0.2
    )
    model = synthesizer(privacy, epochs=2).fit(frames, transcript=True)
    ledger = model.privacy_ledger_
    assert ledger.covers_synthetic_data
    assert 3.9 < ledger.epsilon() <= 4.0
    preprocessing, training = (entry.event for entry in ledger.entries)
    for releases in (preprocessing.events, training.releases):
        assert {release.party for release in releases} == {"clinic", "bank"}
    assert len(preprocessing.events) == 2 * 2  # every party's histograms, in two rounds
    assert (training.sample_rate, training.steps) == (BATCH / 50, 2 * 4)  # of the public number
    assert "the server: it sees backbone gradients" in " ".join(ledger.protected_against)
    loaded = saved_and_loaded(model, tmp_path / "model")
    assert loaded.privacy.get_params(deep=False) == privacy.get_params(deep=False)


def test_replicas_have_noise_and_samples_of_their_own(frames):
    models = synthesizer(epochs=2).fit_replicas(
        frames, random_states=[0, 0], keep_discriminators=True
    )
    first, second = (model.sample(20, random_state=1) for model in models)
    assert not first.equals(second)
    assert all(model.privacy_ledger_ is not None for model in models)
    assert all(set(model.local_discriminators_) == set(frames) for model in models)


def test_a_fit_without_privacy_has_no_ledger_of_an_earlier_one(frames):
    model = synthesizer(DPSGD).fit(frames)
    assert type(clone(model).privacy) is DPSGDMechanism
    assert model.set_params(privacy=None).fit(frames).privacy_ledger_ is None


# -- the paper's mechanism -------------------------------------------------------------------------


def assert_first_layer_is_equations_20_and_21(session_of, frames):
    """Of every party the first layer, whole-batch clip and noise per coordinate; nothing else."""
    found = first_layer_noise(
        lambda: step_of(session_of(frames, FIRST_LAYER, n_models=REPLICAS)), "linears.0"
    )
    assert len(found) == 2 * len(frames)  # weights and biases
    assert_noise_is_claimed(found)


@pytest.mark.parametrize("n_parties", [2, *later(3)])
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_first_layer_changes_the_gradient_of_the_first_layer_alone(frames, session_of, n_parties):
    assert_first_layer_is_equations_20_and_21(session_of, split(frames, n_parties))


def plant_first_layer_scaled_by_one_party(patch):
    honest = FirstLayerCritic.descend

    def scaled(self, party, step):
        if party.name == "bank":
            more = 1.2 * self.plan.noise_multiplier
            self.plan = dataclasses.replace(self.plan, noise_multiplier=more)
        return honest(self, party, step)

    patch.setattr(FirstLayerCritic, "descend", scaled)


def plant_noise_on_the_second_layer(patch):
    def descend(self, party, step):
        losses = Critic.descend(self, party, step)
        self.perturb(party.discriminator.layers[1])
        return losses

    patch.setattr(FirstLayerCritic, "descend", descend)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        partial(plant_a_bank_without_noise, FirstLayerCritic, Critic),
        plant_first_layer_scaled_by_one_party,
        planted.no_noise,
        plant_noise_on_the_second_layer,
    ],
)
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_planted_bugs_in_the_first_layer_are_noticed(frames, session_of, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_first_layer_is_equations_20_and_21(session_of, frames)


def test_first_layer_warns_and_its_ledger_says_what_epsilon_is_not(frames, tmp_path):
    with pytest.warns(NoPrivacyWarning, match="does not protect the synthetic data"):
        model = synthesizer(FIRST_LAYER).fit(frames)
    ledger = model.privacy_ledger_
    text = " ".join(str(ledger).split())
    assert "NOT A GUARANTEE FOR THE SYNTHETIC DATA" in text
    assert "shared backbone of the generators: they learn through those layers" in text
    assert "features" not in text  # none are sent
    assert [release.party for release in releases_in(ledger.event)] == sorted(frames)
    assert model.history_["frechet_distance"].notna().all()  # as without privacy
    model.save(tmp_path / "model")
    assert VertiGANSynthesizer.load(tmp_path / "model").privacy_ledger_ == ledger


# -- errors ----------------------------------------------------------------------------------------


def test_a_mechanism_of_others_is_refused_with_the_fix(frames):
    with pytest.raises(PrivacyParameterError) as refused:
        synthesizer(GSWGAN(epsilon=1.0, delta=1e-3, public_schema=SCHEMA)).fit(frames)
    text = str(refused.value)
    assert "privacy must be DPSGD or FirstLayer for VertiGANSynthesizer" in text
    assert "GSWGAN is for WGANGPSynthesizer; received 'GSWGAN'" in text


def test_what_would_release_more_than_is_counted_is_refused(frames, tmp_path):
    for option in ("checkpoint", "resume"):
        with pytest.raises(ParameterError, match=option):
            synthesizer().fit(frames, **{option: tmp_path / "c"})
    with pytest.raises(ParameterError, match="estimate_memory"):
        synthesizer().estimate_memory(frames)
    rows = np.r_[np.arange(50), 7][None]
    with pytest.raises(ParameterError, match="must not repeat a record"):
        synthesizer().fit_replicas(frames, random_states=[0], replica_rows=rows)


def test_privacy_is_a_mechanism(frames):
    with pytest.raises(ParameterError) as refused:
        synthesizer(3.0).fit(frames)
    assert str(refused.value) == (
        "privacy of VertiGANSynthesizer must be None or DPSGD(...) or FirstLayer(...), got 3.0"
    )
    with pytest.raises(ParameterError, match="epsilon must be given"):
        synthesizer("dpsgd").fit(frames)
