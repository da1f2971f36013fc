"""Private fits of every GAN through the real code: what one step releases, what planted bugs do."""

import dataclasses
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from tests import planted
from tests.crossing import EVERY_RUN
from tests.later import later
from tests.unit.synthesizers.private_steps import (
    BATCH,
    BOUND,
    GANS,
    NOISE,
    PRIVACY,
    RECORDS,
    REPLICAS,
    assert_noise_drowns_the_records,
    assert_noise_is_claimed,
    assert_one_more_record_moves_no_step_further,
    assert_step_is_the_clipped_sum,
    assert_the_step_after_the_last_is_refused,
    first_layer_noise,
    make_frames,
    mechanism,
    noise_of_a_step,
    saved_and_loaded,
    sessions_of,
    step_of,
    stopped_before_training,
    synthesizer,
)
from vflsynth import DPSGD, FirstLayer, VertiGANSynthesizer, VFLGANSynthesizer
from vflsynth.exceptions import (
    NoPrivacyWarning,
    ParameterError,
    PartyDataError,
    PrivacyParameterError,
    ProtocolError,
)
from vflsynth.learning.messages import MaskedFake, MaskedReal
from vflsynth.mechanisms import first_layer as first_layer_mechanism
from vflsynth.mechanisms import noisy_descent as dpsgd_module
from vflsynth.methods.gan.critics import Critic, FirstLayerCritic
from vflsynth.methods.vflgan.party import Cut, FirstLayerCut
from vflsynth.methods.wgan_gp import gs_wgan as gs_wgan_mechanism
from vflsynth.privacy import Sampler
from vflsynth.privacy.events import releases_in
from vflsynth.protocol.channel import Transcript
from vflsynth.run import local

pytestmark = pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")

PROTECTING = [
    ("VFLGAN", "dpsgd"),
    ("VertiGAN", "dpsgd"),
    ("WGAN-GP", "dpsgd"),
    ("WGAN-GP", "dpsgd_gan"),
    ("WGAN-GP", "gs_wgan"),
]
LEARNING = {
    "privacy": FirstLayer(noise_multiplier=1e4, delta=1e-3),
    "batch_size": 32,
    "device": "cpu",
    "verbose": 0,
}
SOONER = [*PROTECTING[:2], *later(PROTECTING[2]), *PROTECTING[3:]]
"""The joined table's DP-SGD is that of one party with VertiGAN."""
CRITICS = [(gan, name) for gan, name in PROTECTING[1:] if name != "gs_wgan"]


@pytest.fixture(autouse=True)
def short_pretraining(monkeypatch):
    monkeypatch.setattr(gs_wgan_mechanism, "PRETRAINING_STEPS", 10)


@pytest.fixture
def session_of(monkeypatch):
    return sessions_of(monkeypatch)


@pytest.fixture
def frames():
    return make_frames()


def split(frames, n_parties):
    """The same records with two or three parties."""
    if n_parties == 2:
        return frames
    bank = frames["bank"]
    return frames | {"bank": bank[["income"]], "school": bank[["grade"]]}


def owners_of(gan, frames):
    """Who has a discriminator: by default the parties, in order."""
    return {"VFLGAN": [*sorted(frames), "server"], "WGAN-GP": ["joined"]}.get(gan, sorted(frames))


# -- one step, one record at a time ----------------------------------------------------------------


@pytest.mark.parametrize("bound", [BOUND, 25.0])
@pytest.mark.parametrize(
    ("gan", "name", "n_parties"),
    [*((*case, 2) for case in CRITICS), *later(("VertiGAN", "dpsgd", 3))],
)
def test_a_step_is_the_clipped_sum_one_at_a_time(
    frames, session_of, monkeypatch, gan, name, n_parties, bound
):
    planted.no_noise(monkeypatch)
    session = session_of(gan, split(frames, n_parties), mechanism(name, max_grad_norm=bound))
    assert len(session.parties) == (1 if gan == "WGAN-GP" else n_parties)
    assert_step_is_the_clipped_sum(name, session, bound)


@pytest.mark.parametrize(
    ("gan", "name", "plant"),
    [
        ("VertiGAN", "dpsgd", planted.clipping_of_the_whole_batch),
        ("WGAN-GP", "dpsgd", planted.no_clipping),
        ("WGAN-GP", "dpsgd_gan", planted.no_clipping),
    ],
)
def test_planted_bugs_in_clipping_are_noticed(frames, session_of, monkeypatch, gan, name, plant):
    planted.no_noise(monkeypatch)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_step_is_the_clipped_sum(name, session_of(gan, frames, PRIVACY[name]))


# -- the noise -------------------------------------------------------------------------------------

# Their gradient is zero for ever: a constant in all scores.
SCORE_BIASES = {
    *((party, "second_part.bias") for party in ("clinic", "bank")),
    ("server", "linears.1.bias"),
    *((party, "linears.2.bias") for party in ("clinic", "bank", "school", "joined")),
}


def assert_a_step_has_the_claimed_noise(session_of, gan, name, frames):
    """Noise multiplier, joint sensitivity of all owners, expected batch size."""
    of_one = 2.0 * BOUND if name == "dpsgd_gan" else BOUND
    std = NOISE * math.sqrt(len(owners_of(gan, frames))) * of_one / BATCH
    found = noise_of_a_step(lambda: session_of(gan, frames, PRIVACY[name], n_models=REPLICAS), std)
    assert_noise_is_claimed(found, SCORE_BIASES)


@pytest.mark.parametrize(
    ("gan", "name", "n_parties"),
    [
        ("VFLGAN", "dpsgd", 2),
        ("VertiGAN", "dpsgd", 2),
        ("WGAN-GP", "dpsgd_gan", 2),
        *later(("VertiGAN", "dpsgd", 3), ("WGAN-GP", "dpsgd", 2)),
    ],
)
def test_every_coordinate_of_every_owner_has_independent_noise(
    frames, session_of, gan, name, n_parties
):
    assert_a_step_has_the_claimed_noise(session_of, gan, name, split(frames, n_parties))


def plant_in_noise(scale, position=0):
    """A bug in the noise of one owner alone: so many times what it should be."""

    def plant(patch):
        honest_add, owners = dpsgd_module.NoisyDescent.add, []

        def add(self, *args):
            if self not in owners:  # the server comes first, then parties in the order of frames
                owners.append(self)
            with pytest.MonkeyPatch.context() as inner:
                if owners.index(self) == position:
                    planted.in_noise(inner, lambda draw, shape: draw(shape, scale))
                honest_add(self, *args)

        patch.setattr(dpsgd_module.NoisyDescent, "add", add)

    return plant


def plant_in_all_noise(scale):
    return lambda patch: planted.in_noise(patch, lambda draw, shape: draw(shape, scale))


def plant_the_same_noise_in_all_parties(patch):
    honest = dpsgd_module.noisy_mean

    def noisy_mean(total, *a, **rest):  # from the end, as first layers have different widths
        rest |= {"rng": torch.Generator().manual_seed(0)}
        return honest(total.flip(0), *a, **rest).flip(0)

    patch.setattr(dpsgd_module, "noisy_mean", noisy_mean)


OF_ONE_OWNER = [planted.no_noise, planted.one_scalar, planted.last_layer_without_noise]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gan", "name", "plant"),
    [
        *(("VFLGAN", "dpsgd", plant) for plant in OF_ONE_OWNER),
        ("VFLGAN", "dpsgd", plant_in_noise(0.0, 1)),  # a forgotten party: the server comes first
        ("VFLGAN", "dpsgd", plant_in_all_noise(1.0 / math.sqrt(3.0))),  # for one owner
        ("VertiGAN", "dpsgd", planted.no_noise),
        ("VertiGAN", "dpsgd", plant_in_noise(0.0)),
        ("VertiGAN", "dpsgd", plant_in_noise(1.0 / math.sqrt(2.0))),  # for one owner
        ("VertiGAN", "dpsgd", plant_in_noise(1.2)),
        ("VertiGAN", "dpsgd", plant_in_all_noise(math.sqrt(1.5))),  # for a server, which has none
        ("VertiGAN", "dpsgd", plant_the_same_noise_in_all_parties),
        *(("WGAN-GP", "dpsgd", plant) for plant in OF_ONE_OWNER),
        *(("WGAN-GP", "dpsgd_gan", plant) for plant in OF_ONE_OWNER),
    ],
)
def test_planted_bugs_in_the_noise_are_noticed(frames, session_of, gan, name, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_a_step_has_the_claimed_noise(session_of, gan, name, frames)


@pytest.mark.parametrize(("relation", "factor"), [("add_or_remove_one", 1), ("replace_one", 2)])
@pytest.mark.parametrize(
    ("gan", "n_parties"), [("VFLGAN", 2), ("VertiGAN", 2), ("VertiGAN", 3), ("WGAN-GP", 2)]
)
def test_the_claimed_noise_is_the_noise_of_training(
    frames, session_of, gan, n_parties, relation, factor
):
    """Ledger and owners state the same standard deviation, under both relations."""
    privacy = mechanism("dpsgd", neighbouring_relation=relation)
    frames = split(frames, n_parties)
    owners, session = owners_of(gan, frames), session_of(gan, frames, privacy)
    joint = factor * math.sqrt(len(owners)) * BOUND
    used = [party.descent.noisy.plan for party in session.parties.values()]
    if gan == "VFLGAN":
        used.append(session.algorithm.server.noisy.plan)
    for plan in used:
        assert plan.sensitivity == pytest.approx(joint)
        assert plan.noise_multiplier == pytest.approx(NOISE)
    ledger = synthesizer(gan, privacy).fit(frames).privacy_ledger_
    (training,) = ledger.event.events
    assert [r.party for r in training.releases] == owners
    assert [r.noise_std for r in training.releases] == pytest.approx([NOISE * joint] * len(owners))
    assert training.joint_noise_multiplier == pytest.approx(NOISE)
    assert (training.sampler, training.steps) == (Sampler.POISSON, 4)
    assert training.sample_rate == BATCH / 60


# -- sensitivity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize(
    ("gan", "n_parties", "seed"),
    [
        ("VFLGAN", 2, 0),
        ("VFLGAN", 2, 1),
        ("VertiGAN", 2, 0),
        ("VertiGAN", 3, 0),
        *later(("VFLGAN", 2, 2), ("VFLGAN", 2, 3), ("VFLGAN", 2, 4)),
        *later(("VertiGAN", 2, 1), ("VertiGAN", 3, 1)),
    ],
)
def test_one_more_record_moves_a_step_by_at_most_its_sensitivity(
    session_of, monkeypatch, gan, n_parties, seed, record
):
    def make(table):
        return session_of(gan, split(table, n_parties))

    assert_one_more_record_moves_no_step_further(make, monkeypatch, record, seed)


@pytest.mark.parametrize("gan", ["VFLGAN", "VertiGAN"])
def test_a_record_that_is_not_clipped_would_be_noticed(session_of, monkeypatch, gan):
    planted.no_clipping(monkeypatch)
    record = {"age": 40, "smoker": "no", "income": 9.0, "grade": 1}
    with pytest.raises(AssertionError):
        assert_one_more_record_moves_no_step_further(
            partial(session_of, gan), monkeypatch, record, 0
        )


# -- no learning without information ---------------------------------------------------------------


@pytest.mark.parametrize(("gan", "name"), SOONER)
def test_with_noise_to_infinity_two_populations_give_the_same_model(frames, gan, name):
    """The records drown: the very same synthetic table, whatever they were."""

    def make(noise_multiplier):
        return synthesizer(gan, mechanism(name, noise_multiplier=noise_multiplier), epochs=2)

    # A shard's noise is so much larger that more would be needed to learn.
    assert_noise_drowns_the_records(make, frames, quiet=1e-3 if name == "gs_wgan" else 1.0)


@pytest.mark.slow
def test_first_layer_learns_with_noise_to_infinity_with_vflgan():
    """A claimed epsilon of nearly zero, and the synthetic table shows the relation all the same."""
    x, error = np.random.default_rng(0).normal(size=(2, 256))
    frames = {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"y": x + 0.1 * error})}
    for seed in range(3):
        model = VFLGANSynthesizer(epochs=120, random_state=seed, **LEARNING).fit(frames)
        assert model.privacy_ledger_.epsilon() < 0.5
        table = model.sample(2000, random_state=0)
        assert table["x"].corr(table["y"]) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_first_layer_learns_with_noise_to_infinity_with_vertigan(sign):
    """Two populations are told apart: they differ in the relation of one party's columns alone."""
    x, error, z = np.random.default_rng(0).normal(size=(3, 256))
    frames = {
        "a": pd.DataFrame({"x": x, "y": sign * x + 0.1 * error}),
        "b": pd.DataFrame({"z": z}),
    }
    networks = {"discriminator_hidden": (64, 64, 64)}
    for seed in range(2):
        model = VertiGANSynthesizer(epochs=200, random_state=seed, **LEARNING, **networks)
        assert model.fit(frames).privacy_ledger_.epsilon() < 0.5
        table = model.sample(2000, random_state=0)
        assert sign * table["x"].corr(table["y"]) > 0.4


# -- what is read, sent and kept -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gan", "kinds"),
    [
        (
            "VFLGAN",
            "Shape SampledFeatures DiscriminatorGradients GeneratorFeatures GeneratorGradients",
        ),
        ("VertiGAN", "BackboneGradients SummedBackboneGradients"),
    ],
)
def test_only_declared_messages_cross_and_no_masked_record_does(frames, monkeypatch, gan, kinds):
    kept = Transcript(keep_messages=True)
    monkeypatch.setattr(local, "Transcript", lambda: kept)
    synthesizer(gan).fit(frames, transcript=True)
    also = {*kinds.split(), "SelectionNotice", "TrainingReport"}
    assert {type(message).__name__ for message in kept.messages} == EVERY_RUN | also
    for message in kept.messages:  # the generators' step sends features of fakes only
        if type(message).__name__ == "GeneratorFeatures":
            assert message.features.shape[1] == BATCH


def test_parties_draw_the_same_records_from_what_nobody_can_repeat(frames):
    drawn, latents = [], []
    for _ in range(2):
        parties = stopped_before_training([synthesizer("VertiGAN")], frames).parties
        own = [
            [party.schedule.rows(step).tolist() for step in range(5)] for party in parties.values()
        ]
        assert own[0] == own[1]
        drawn.append(own[0])
        latents.append(parties["bank"].schedule.latent(0))
    assert drawn[0] != drawn[1]
    assert torch.equal(*latents)


@pytest.mark.parametrize(("gan", "name"), PROTECTING)
def test_nobody_looks_at_records_to_choose_a_model(frames, session_of, gan, name):
    session = session_of(gan, frames, PRIVACY[name])
    assert not session.algorithm.selects
    for party in session.nodes.values():
        for kind in (MaskedReal, MaskedFake):
            with pytest.raises(ProtocolError, match="no entry"):
                party.answer(kind, 0)


@pytest.mark.parametrize(
    ("gan", "name", "kinds", "owners"),
    [
        ("VFLGAN", "dpsgd", ("fake_score", "penalty"), ("shared", "clinic", "bank")),
        ("VertiGAN", "dpsgd", ("fake_score", "penalty"), ("clinic", "bank")),
        ("WGAN-GP", "dpsgd", ("fake_score", "penalty"), ("joined",)),
        ("WGAN-GP", "dpsgd_gan", ("fake_score",), ("joined",)),
        ("WGAN-GP", "gs_wgan", (), ("joined",)),
    ],
)
def test_the_history_holds_what_was_paid_for(frames, gan, name, kinds, owners):
    history = synthesizer(gan, PRIVACY[name], epochs=2).fit(frames).history_
    columns = {f"{kind}_{owner}" for kind in kinds for owner in owners}
    assert set(history) - {"seconds", "chosen"} == columns


@pytest.mark.parametrize(("gan", "name"), [*PROTECTING, *((gan, "first_layer") for gan in GANS)])
def test_the_step_after_the_last_is_refused_before_records_are_read(frames, session_of, gan, name):
    assert_the_step_after_the_last_is_refused(session_of(gan, frames, PRIVACY[name]))


def test_poisson_batches_are_sampled_as_the_ledger_says(session_of):
    """Sizes vary around the right mean, and every record is drawn as often."""
    frames, privacy = make_frames(400), mechanism("dpsgd", n_records=400)
    schedule = session_of("VFLGAN", frames, privacy).parties["bank"].schedule
    sizes = np.array([int(schedule.n_real(step)[0]) for step in range(2000)])
    assert abs(sizes.mean() - BATCH) < 5 * math.sqrt(BATCH / 2000)
    assert sizes.var() == pytest.approx(BATCH * (1 - BATCH / 400), rel=0.15)
    drawn = [schedule.rows(s)[0, : sizes[s]].numpy() for s in range(2000)]
    counts = np.bincount(np.concatenate(drawn), minlength=400)
    assert abs(counts - 2000 * BATCH / 400).max() < 5.5 * math.sqrt(2000 * BATCH / 400)


@pytest.mark.parametrize(("gan", "name"), [("VFLGAN", "first_layer"), ("WGAN-GP", "dpsgd_gan")])
def test_batches_without_replacement_are_sampled_as_the_ledger_says(session_of, gan, name):
    """Distinct rows, afresh at every step: not a walk through one permutation."""
    _, party = session_of(gan, make_frames(400), PRIVACY[name]).parties.popitem()
    batches = [party.schedule.rows(step)[0].tolist() for step in range(300)]
    assert all(len(set(batch)) == BATCH for batch in batches)
    assert any(set(first) & set(second) for first, second in zip(batches, batches[1:]))


@pytest.mark.parametrize(("gan", "name"), SOONER)
def test_the_ledger_is_within_budget_and_the_model_is_saved(frames, gan, name, tmp_path):
    of_public = {"n_records": 50} if name == "dpsgd" else {}
    privacy = mechanism(
        name, epsilon=4.0, noise_multiplier=None, preprocessing_share=0.2, **of_public
    )
    model = synthesizer(gan, privacy, epochs=2).fit(frames, transcript=True)
    ledger = model.privacy_ledger_
    assert ledger.covers_synthetic_data
    assert 3.9 < ledger.epsilon() <= 4.0
    assert [entry.purpose for entry in ledger.entries] == ["preprocessing", "training"]
    preprocessing, training = (entry.event for entry in ledger.entries)
    assert {r.party for r in releases_in(preprocessing)} == set(owners_of(gan, frames)) - {"server"}
    assert {r.party for r in releases_in(training)} == set(owners_of(gan, frames))
    seen = "the server: it sees backbone gradients" in " ".join(ledger.protected_against)
    assert seen == (gan == "VertiGAN")
    if name == "dpsgd":
        assert training.sampler is Sampler.POISSON
        assert (training.sample_rate, training.steps) == (BATCH / 50, 2 * 4)
    loaded = saved_and_loaded(model, tmp_path / "model")
    assert loaded.privacy.get_params(deep=False) == privacy.get_params(deep=False)


@pytest.mark.parametrize("gan", ["VFLGAN", "VertiGAN"])
def test_replicas_have_noise_and_samples_of_their_own(frames, gan):
    models = synthesizer(gan, epochs=2).fit_replicas(
        frames, random_states=[0, 0], keep_discriminators=True
    )
    first, second = (model.sample(20, random_state=1) for model in models)
    assert not first.equals(second)
    assert all(model.privacy_ledger_ is not None for model in models)
    assert all(set(model.local_discriminators_) == set(frames) for model in models)


def test_a_fit_without_privacy_has_no_ledger_of_an_earlier_one(frames):
    model = synthesizer("VertiGAN").fit(frames)
    assert type(clone(model).privacy) is DPSGD
    assert model.set_params(privacy=None).fit(frames).privacy_ledger_ is None


# -- the paper's mechanism -------------------------------------------------------------------------


def assert_first_layer_is_equations_20_and_21(session_of, gan, frames):
    """Of every party the first layer, whole-batch clip and noise per coordinate; nothing else."""
    privacy = PRIVACY["first_layer"]
    first = "first_part.linears.0" if gan == "VFLGAN" else "linears.0"
    found = first_layer_noise(
        lambda: step_of(session_of(gan, frames, privacy, n_models=REPLICAS)), first
    )
    parties = set(owners_of(gan, frames)) - {"server"}
    assert set(found) == {(p, f"{first}.{part}") for p in parties for part in ("weight", "bias")}
    assert_noise_is_claimed(found)


@pytest.mark.parametrize(
    ("gan", "n_parties"),
    [("VFLGAN", 2), ("VertiGAN", 2), ("WGAN-GP", 2), *later(("VertiGAN", 3))],
)
def test_first_layer_changes_the_gradient_of_the_first_layer_alone(
    frames, session_of, gan, n_parties
):
    assert_first_layer_is_equations_20_and_21(session_of, gan, split(frames, n_parties))


def plant_a_bank_without_noise(noisy, plain, patch):
    """Have one party descend as one does whose first layer has no noise."""
    honest = noisy.descend

    def descend(self, party, *rest):
        return (plain.descend if party.name == "bank" else honest)(self, party, *rest)

    patch.setattr(noisy, "descend", descend)


def plant_noise_on_the_second_layer(noisy, plain, layers, patch):
    def descend(self, party, message):
        losses = plain.descend(self, party, message)
        self.perturb(layers(party.discriminator)[1])
        return losses

    patch.setattr(noisy, "descend", descend)


def plant_first_layer_scaled_by_one_party(patch):
    honest = FirstLayerCritic.descend

    def scaled(self, party, step):
        if party.name == "bank":
            more = 1.2 * self.plan.noise_multiplier
            self.plan = dataclasses.replace(self.plan, noise_multiplier=more)
        return honest(self, party, step)

    patch.setattr(FirstLayerCritic, "descend", scaled)


def plant_first_layer_scalar(patch):
    """What the paper's red-wine scripts do: one number for a whole matrix."""
    planted.in_noise(patch, lambda draw, shape: draw((shape[0], 1, 1)))


def plant_first_layer_same_for_all_models(patch):
    planted.in_noise(patch, lambda draw, shape: draw((1, *shape[1:])))


def plant_first_layer_bias_without_noise(patch):
    planted.in_noise(patch, lambda draw, shape: draw(shape, 0.0 if shape[1] == 1 else 1.0))


def plant_first_layer_weight_without_noise(patch):
    planted.in_noise(patch, lambda draw, shape: draw(shape, 1.0 if shape[1] == 1 else 0.0))


def plant_first_layer_sensitivity_of_removal(patch):
    patch.setattr(first_layer_mechanism, "first_layer_sensitivity", lambda bound: bound)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gan", "plant"),
    [
        ("VFLGAN", planted.no_noise),
        ("VFLGAN", plant_first_layer_scalar),
        ("VFLGAN", plant_first_layer_same_for_all_models),
        ("VFLGAN", partial(plant_a_bank_without_noise, FirstLayerCut, Cut)),
        ("VFLGAN", plant_first_layer_bias_without_noise),
        ("VFLGAN", plant_first_layer_weight_without_noise),
        (
            "VFLGAN",
            partial(
                plant_noise_on_the_second_layer, FirstLayerCut, Cut, lambda d: d.first_part.layers
            ),
        ),
        ("VFLGAN", plant_first_layer_sensitivity_of_removal),
        ("VertiGAN", partial(plant_a_bank_without_noise, FirstLayerCritic, Critic)),
        ("VertiGAN", plant_first_layer_scaled_by_one_party),
        ("VertiGAN", planted.no_noise),
        (
            "VertiGAN",
            partial(plant_noise_on_the_second_layer, FirstLayerCritic, Critic, lambda d: d.layers),
        ),
    ],
)
def test_planted_bugs_in_the_first_layer_are_noticed(frames, session_of, gan, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_first_layer_is_equations_20_and_21(session_of, gan, frames)


@pytest.mark.parametrize(
    ("gan", "raw"),
    [
        ("VFLGAN", "private heads and shared discriminator: raw gradients"),
        ("VertiGAN", "shared backbone of the generators: they learn through those layers"),
        ("WGAN-GP", "the generator: it learns through those layers"),
    ],
)
@pytest.mark.filterwarnings("default::vflsynth.exceptions.NoPrivacyWarning")
def test_first_layer_warns_and_its_ledger_says_what_epsilon_is_not(frames, gan, raw, tmp_path):
    with pytest.warns(NoPrivacyWarning, match="does not protect the synthetic data"):
        model = synthesizer(gan, PRIVACY["first_layer"], model_selection="best").fit(frames)
    ledger = model.privacy_ledger_
    text = " ".join(str(ledger).split())
    assert "NOT A GUARANTEE FOR THE SYNTHETIC DATA" in text
    assert raw in text
    assert ("features" in text) == (gan == "VFLGAN")  # others send none
    parties = [owner for owner in owners_of(gan, frames) if owner != "server"]
    assert [release.party for release in releases_in(ledger.event)] == parties
    assert model.history_["frechet_distance"].notna().all()  # as without privacy
    model.save(tmp_path / "model")
    assert type(model).load(tmp_path / "model").privacy_ledger_ == ledger


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gan", "name"), PROTECTING)
def test_a_column_without_public_bounds_is_named_where_nothing_pays_for_them(frames, gan, name):
    frames["bank"]["debt"] = 1.0
    with pytest.raises(PartyDataError, match=r"'bank', column 'debt'.*public bounds"):
        synthesizer(gan, PRIVACY[name]).fit(frames)


@pytest.mark.parametrize(("gan", "name"), PROTECTING)
def test_what_would_release_more_than_is_counted_is_refused(frames, gan, name, tmp_path):
    model = synthesizer(gan, PRIVACY[name])
    for option in ("checkpoint", "resume"):
        with pytest.raises(ParameterError, match=option):
            model.fit(frames, **{option: tmp_path / "c"})
    with pytest.raises(ParameterError, match="estimate_memory"):
        model.estimate_memory(frames)


def test_a_record_is_not_counted_twice(frames):
    rows = np.r_[np.arange(50), 7][None]
    with pytest.raises(ParameterError, match="must not repeat a record"):
        synthesizer("VertiGAN").fit_replicas(frames, random_states=[0], replica_rows=rows)


def test_a_mechanism_of_others_is_refused_with_the_fix(frames):
    with pytest.raises(PrivacyParameterError) as refused:
        synthesizer("VertiGAN", PRIVACY["gs_wgan"]).fit(frames)
    text = str(refused.value)
    assert "privacy must be DPSGD or FirstLayer for VertiGANSynthesizer" in text
    assert "GSWGAN is for WGANGPSynthesizer; received 'GSWGAN'" in text


def test_privacy_is_a_mechanism(frames):
    with pytest.raises(ParameterError) as refused:
        synthesizer("VertiGAN", 3.0).fit(frames)
    assert str(refused.value) == (
        "privacy of VertiGANSynthesizer must be None or DPSGD(...) or FirstLayer(...), got 3.0"
    )
    with pytest.raises(ParameterError, match="epsilon must be given"):
        synthesizer("VertiGAN", "dpsgd").fit(frames)
