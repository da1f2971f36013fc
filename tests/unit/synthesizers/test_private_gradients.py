"""Fits with noisy gradients through the real code: what one step releases, what planted bugs do.

The reference computes everything one record at a time, with automatic differentiation of one joint
network that nobody has.
"""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone

from tests import planted
from tests.crossing import EVERY_RUN
from tests.later import later
from tests.unit.synthesizers.private_steps import (
    BATCH,
    BOUND,
    NOISE,
    PRIVACY,
    RECORDS,
    REPLICAS,
    SMALL,
    assert_noise_drowns_the_records,
    assert_noise_is_claimed,
    assert_one_more_record_moves_no_step_further,
    assert_the_step_after_the_last_is_refused,
    first_layer_noise,
    make_frames,
    noise_of_a_step,
    plant_a_bank_without_noise,
    saved_and_loaded,
    sessions_of,
)
from vflsynth import VFLGANSynthesizer
from vflsynth.exceptions import (
    NoPrivacyWarning,
    PartyDataError,
    PrivacyParameterError,
    ProtocolError,
)
from vflsynth.learning.messages import MaskedFake, MaskedReal
from vflsynth.mechanisms import Asked, Discriminators, FirstLayer
from vflsynth.mechanisms import first_layer as first_layer_mechanism
from vflsynth.mechanisms import noisy_descent as dpsgd_module
from vflsynth.methods.vflgan.messages import SampledFeatures
from vflsynth.methods.vflgan.party import Cut, FirstLayerCut
from vflsynth.privacy import Sampler
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol import Transcript
from vflsynth.run import local

DPSGD, FIRST_LAYER = PRIVACY["dpsgd"], PRIVACY["first_layer"]


@pytest.fixture
def frames():
    return make_frames()


def synthesizer(privacy=DPSGD, **parameters):
    small = {**SMALL, "first_part": (6, 5), "shared_hidden": (7,), "discriminator_steps": 1}
    return VFLGANSynthesizer(privacy=privacy, **small | parameters)


@pytest.fixture
def session_of(monkeypatch):
    make = sessions_of(monkeypatch, synthesizer)
    return lambda frames, privacy=DPSGD, **options: make(frames, privacy, **options)


def networks(session):
    """Every owner's discriminator."""
    own = {name: party.discriminator for name, party in session.parties.items()}
    return own | {"server": session.algorithm.server.discriminator}


def step_of(session):
    """Gradients of every owner's discriminator after the first step."""
    session.algorithm.update_discriminators(0)
    return {
        (owner, name): parameter.grad.clone()
        for owner, network in networks(session).items()
        for name, parameter in network.named_parameters()
    }


# -- the reference ---------------------------------------------------------------------------------


def score(session, record):
    """F of one joint record: the shared discriminator's score plus all heads'."""
    features, total = [], 0.0
    for name in sorted(session.parties):
        discriminator = session.parties[name].discriminator
        hidden = record[name]
        for linear in discriminator.first_part.linears:
            hidden = F.leaky_relu(hidden @ linear.weight[0] + linear.bias[0, 0], 0.2)
        if discriminator.second_part is not None:
            total = total + (hidden @ discriminator.second_part.weight[0]).sum()
        features.append(hidden)
    hidden, shared = torch.cat(features), session.algorithm.server.discriminator.linears
    for linear in shared[:-1]:
        hidden = F.leaky_relu(hidden @ linear.weight[0] + linear.bias[0, 0], 0.2)
    weight, _ = session.settings.shared_weights
    return total + weight * (hidden @ shared[-1].weight[0]).sum()


def clipped(session, records):
    """Sum over records of each owner's gradient of F, clipped per record and owner."""
    total = {
        owner: {name: torch.zeros_like(p) for name, p in network.named_parameters()}
        for owner, network in networks(session).items()
    }
    for record in records:
        for owner, network in networks(session).items():
            named = dict(network.named_parameters())
            found = torch.autograd.grad(
                score(session, record), list(named.values()), allow_unused=True
            )
            norm = math.sqrt(sum(g.double().square().sum().item() for g in found if g is not None))
            bound = session.parties["bank"].descent.noisy.plan.max_grad_norm
            if owner == "server":  # λ_1 is a factor of what is clipped and noisy
                bound *= session.settings.shared_weights[0]
            for name, g in zip(named, found):
                if g is not None:
                    total[owner][name] += g * min(1.0, bound / norm)
    return total


def penalty_gradients(session, mixed, weight=10.0):
    """Of the layer-wise penalty between fakes, of every owner."""
    features, found = {}, {}
    for name in sorted(session.parties):
        discriminator = session.parties[name].discriminator
        inputs = mixed[name].detach().requires_grad_()
        features[name] = discriminator.first_part(inputs)
        (slope,) = torch.autograd.grad(features[name].sum(), inputs, create_graph=True)
        penalty = (slope.norm(dim=-1) - 1.0).square().mean()
        if discriminator.second_part is not None:
            penalty = penalty + (discriminator.second_part.weight.norm() - 1.0).square()
        named = dict(discriminator.named_parameters())
        parts = torch.autograd.grad(weight * penalty, list(named.values()), allow_unused=True)
        found[name] = dict(zip(named, parts))
    shared = session.algorithm.server.discriminator
    joined = torch.cat([features[name] for name in sorted(features)], -1).detach().requires_grad_()
    (slope,) = torch.autograd.grad(shared(joined).sum(), joined, create_graph=True)
    named = dict(shared.named_parameters())
    weight *= session.settings.shared_weights[0]
    penalty = weight * (slope.norm(dim=-1) - 1.0).square().mean()
    parts = torch.autograd.grad(penalty, list(named.values()), allow_unused=True)
    return found | {"server": dict(zip(named, parts))}


def batch_of(session, step=0):
    """Real, fake and mixed records of a step, by party."""
    real, fake, mixed = {}, {}, {}
    for name, party in session.parties.items():
        own = party.schedule.rows(step)[0, : int(party.schedule.n_real(step)[0])]
        real[name] = party.records[own]
        with torch.no_grad():
            fake[name] = party.fake(step, "discriminator")[0]
        weights = party.schedule.interpolation(step)[0]
        previous = torch.cat([fake[name][-1:], fake[name][:-1]])
        mixed[name] = (fake[name] + weights * (previous - fake[name])).unsqueeze(0)
    return real, fake, mixed


def joint(parts):
    return [{name: parts[name][k] for name in parts} for k in range(len(parts[min(parts)]))]


def assert_step_is_the_clipped_sum(session):
    real, fake, mixed = batch_of(session)
    assert 0 < len(real["bank"]) != BATCH  # a Poisson sample
    of_real = clipped(session, joint(real))
    of_fake = clipped(session, joint(fake))
    of_penalty = penalty_gradients(session, mixed)
    for (owner, name), actual in step_of(session).items():
        expected = (of_fake[owner][name] - of_real[owner][name]) / BATCH
        if of_penalty[owner][name] is not None:
            expected = expected + of_penalty[owner][name]
        torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-4, msg=f"{owner} {name}")


@pytest.mark.parametrize(("heads", "shared"), [(True, 0.6), (False, 1.0)])
def test_a_step_is_the_clipped_sum_one_record_at_a_time(
    frames, session_of, monkeypatch, heads, shared
):
    planted.no_noise(monkeypatch)
    session = session_of(frames, private_heads=heads, shared_weights=(shared, 1.0))
    assert_step_is_the_clipped_sum(session)


def test_clipping_of_the_whole_batch_is_noticed(frames, session_of, monkeypatch):
    planted.no_noise(monkeypatch)
    planted.clipping_of_the_whole_batch(monkeypatch)
    with pytest.raises(AssertionError):
        assert_step_is_the_clipped_sum(session_of(frames))


# -- the noise -------------------------------------------------------------------------------------

STD = NOISE * math.sqrt(3.0) * BOUND / BATCH
"""Noise multiplier, joint sensitivity of two parties and the server, expected batch size."""


def assert_a_step_has_the_claimed_noise(session_of, frames):
    found = noise_of_a_step(lambda: session_of(frames, n_models=REPLICAS), STD, step_of)
    assert_noise_is_claimed(found, SCORE_BIASES)


# Their gradient is zero for ever: a constant in all scores.
SCORE_BIASES = {("clinic", "second_part.bias"), ("bank", "second_part.bias")} | {
    ("server", "linears.1.bias")
}


def test_every_coordinate_of_every_owner_has_independent_noise(frames, session_of):
    assert_a_step_has_the_claimed_noise(session_of, frames)


def plant_forgotten_party(patch):
    honest = dpsgd_module.NoisyDescent.add
    seen = []

    def add(self, layers, traces, n_real, *rest):
        if self not in seen:
            seen.append(self)
        with pytest.MonkeyPatch.context() as inner:
            if len(seen) == 2:  # the server comes first, then the parties
                planted.no_noise(inner)
            honest(self, layers, traces, n_real, *rest)

    patch.setattr(dpsgd_module.NoisyDescent, "add", add)


def plant_sensitivity_of_one_owner(patch):
    planted.in_noise(patch, lambda draw, shape: draw(shape, 1.0 / math.sqrt(3.0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        planted.no_noise,
        planted.one_scalar,
        plant_forgotten_party,
        planted.last_layer_without_noise,
        plant_sensitivity_of_one_owner,
    ],
)
def test_planted_bugs_in_the_noise_are_noticed(frames, session_of, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_a_step_has_the_claimed_noise(session_of, frames)


# -- sensitivity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("seed", [0, 1, *later(2, 3, 4)])
def test_one_more_record_moves_a_step_by_at_most_its_sensitivity(
    session_of, monkeypatch, record, seed
):
    assert_one_more_record_moves_no_step_further(session_of, monkeypatch, record, seed, step_of)


def test_a_record_that_is_not_clipped_would_be_noticed(session_of, monkeypatch):
    planted.no_clipping(monkeypatch)
    record = {"age": 40, "smoker": "no", "income": 9.0, "grade": 1}
    with pytest.raises(AssertionError):
        assert_one_more_record_moves_no_step_further(session_of, monkeypatch, record, 0, step_of)


# -- no learning without information ---------------------------------------------------------------


def test_with_noise_to_infinity_two_populations_give_the_same_model(frames):
    """DP-SGD drowns: the very same synthetic table, whatever the records were."""

    def make(noise_multiplier):
        privacy = clone(DPSGD).set_params(noise_multiplier=noise_multiplier)
        return synthesizer(privacy, epochs=2)

    assert_noise_drowns_the_records(make, frames)


# -- what is read, sent and kept -------------------------------------------------------------------


def test_only_declared_messages_cross_and_no_masked_record_does(frames, monkeypatch):
    kept = Transcript(keep_messages=True)
    monkeypatch.setattr(local, "Transcript", lambda: kept)
    synthesizer(model_selection="best").fit(frames, transcript=True)
    assert {type(message).__name__ for message in kept.messages} == EVERY_RUN | {
        "Shape",
        "SampledFeatures",
        "DiscriminatorGradients",
        "GeneratorFeatures",
        "GeneratorGradients",
        "SelectionNotice",
        "TrainingReport",
    }
    for message in kept.messages:  # the generators' step sends features of fakes only
        if type(message).__name__ == "GeneratorFeatures":
            assert message.features.shape[1] == BATCH


def test_a_party_refuses_what_the_ledger_has_no_entry_for(frames, session_of):
    for party in session_of(frames).nodes.values():
        for kind in (MaskedReal, MaskedFake):
            with pytest.raises(ProtocolError, match="no entry"):
                party.answer(kind, 0)


def test_the_history_is_computed_from_fakes(frames, session_of, monkeypatch):
    """Reports are equal for two tables when everything that they should depend on is."""
    monkeypatch.setattr(dpsgd_module, "noisy_mean", lambda total, *_, **rest: total.double() * 0)
    reports = []
    for table in (frames, make_frames(seed=9)):
        session = session_of(table)
        session.algorithm.step(0)
        reports.append(session.algorithm.report(1))
    assert set(reports[0]) == {
        f"{kind}_{who}"
        for kind in ("fake_score", "penalty")
        for who in ("shared", "clinic", "bank")
    }
    for name, value in reports[0].items():
        torch.testing.assert_close(value, reports[1][name], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("privacy", [DPSGD, FIRST_LAYER])
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_the_step_after_the_last_is_refused_before_records_are_read(frames, session_of, privacy):
    assert_the_step_after_the_last_is_refused(session_of(frames, privacy))


@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_batches_are_sampled_as_the_ledger_says(session_of):
    """Poisson: sizes vary around the right mean. Without replacement: distinct rows, afresh."""
    frames = make_frames(400)
    poisson = session_of(frames, clone(DPSGD).set_params(n_records=400)).parties["bank"].schedule
    sizes = np.array([int(poisson.n_real(step)[0]) for step in range(2000)])
    assert abs(sizes.mean() - BATCH) < 5 * math.sqrt(BATCH / 2000)
    assert sizes.var() == pytest.approx(BATCH * (1 - BATCH / 400), rel=0.15)
    drawn = [poisson.rows(s)[0, : sizes[s]].numpy() for s in range(2000)]
    counts = np.bincount(np.concatenate(drawn), minlength=400)
    assert abs(counts - 2000 * BATCH / 400).max() < 5.5 * math.sqrt(2000 * BATCH / 400)

    subsets = session_of(frames, FIRST_LAYER).parties["bank"].schedule
    batches = [subsets.rows(step)[0].tolist() for step in range(300)]
    assert all(len(set(batch)) == BATCH for batch in batches)
    # Fresh at every step, not a walk through one permutation.
    assert any(set(first) & set(second) for first, second in zip(batches, batches[1:]))


def test_the_ledger_is_within_budget_and_about_what_was_done(frames, tmp_path):
    privacy = clone(DPSGD).set_params(
        epsilon=4.0, noise_multiplier=None, n_records=50, preprocessing_share=0.2
    )
    model = synthesizer(privacy, epochs=2).fit(frames, transcript=True)
    ledger = model.privacy_ledger_
    assert 3.9 < ledger.epsilon() <= 4.0
    preprocessing, training = (entry.event for entry in ledger.entries)
    assert {release.party for release in preprocessing.events} == {"clinic", "bank"}
    assert training.sampler is Sampler.POISSON
    assert (training.sample_rate, training.steps) == (BATCH / 50, 2 * 4)  # of the public number
    assert {release.party for release in training.releases} == {"clinic", "bank", "server"}
    assert model.settings_["batch_size"] == BATCH
    saved_and_loaded(model, tmp_path / "model")


def test_the_claimed_noise_is_the_noise_of_training(frames, session_of):
    """Ledger and parties state the same standard deviation, under both relations."""
    for relation, factor in (("add_or_remove_one", 1.0), ("replace_one", 2.0)):
        privacy = clone(DPSGD).set_params(neighbouring_relation=relation)
        session = session_of(frames, privacy)
        asked = Asked(n_records=60, owners=Discriminators.LOCAL_AND_SHARED, batch_size=6)
        plan = privacy.plan({"clinic": ColumnCounts(1), "bank": ColumnCounts(1)}, asked)
        (entry,) = plan.ledger.entries
        parties = [party.descent.noisy for party in session.parties.values()]
        for noisy in (*parties, session.algorithm.server.noisy):
            used = noisy.plan
            std = used.noise_multiplier * used.sensitivity
            assert std == pytest.approx(factor * 1.5 * math.sqrt(3.0) * 0.3)
            assert [r.noise_std for r in entry.event.releases] == pytest.approx([std] * 3)


def test_replicas_have_noise_and_samples_of_their_own(frames):
    models = synthesizer(epochs=2).fit_replicas(frames, random_states=[0, 0])
    first, second = (model.sample(20, random_state=1) for model in models)
    assert not first.equals(second)
    assert all(model.privacy_ledger_ is not None for model in models)


@pytest.mark.parametrize("penalty", ["paper", "layerwise"])
def test_penalties_heads_and_biases_can_be_chosen(frames, penalty):
    model = synthesizer(gradient_penalty=penalty, private_heads=False, bias=False).fit(frames)
    assert len(model.sample(7)) == 7


# -- errors ----------------------------------------------------------------------------------------


def test_an_unknown_number_of_records_is_refused(frames):
    with pytest.raises(PrivacyParameterError, match="n_records"):
        synthesizer(clone(DPSGD).set_params(n_records=None)).fit(frames)
    public = clone(DPSGD).set_params(n_records=None, neighbouring_relation="replace_one")
    assert "number of records" in synthesizer(public).fit(frames).privacy_ledger_.public


def test_a_column_without_public_bounds_is_named(frames):
    frames["bank"]["debt"] = 1.0
    with pytest.raises(PartyDataError, match=r"'bank', column 'debt'.*public bounds"):
        synthesizer().fit(frames)


def test_parties_that_sampled_differently_are_named(frames, session_of):
    session = session_of(frames)
    channel = session.algorithm.channel
    received = channel.gather(SampledFeatures, 0)
    received["clinic"].n_real.add_(1)
    with pytest.raises(ProtocolError, match="sampled"):
        session.algorithm.server.update_discriminator(0, received)


# -- the paper's mechanism -------------------------------------------------------------------------


def assert_first_layer_is_equations_20_and_21(session_of, frames):
    """Of every party the first layer, whole-batch clip and noise per coordinate; nothing else."""

    found = first_layer_noise(
        lambda: step_of(session_of(frames, FIRST_LAYER, n_models=REPLICAS)), "first_part.linears.0"
    )
    assert len(found) == 4  # two parties' weights and biases
    assert_noise_is_claimed(found)


@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_first_layer_changes_the_gradient_of_the_first_layer_alone(frames, session_of):
    assert_first_layer_is_equations_20_and_21(session_of, frames)


def plant_first_layer_scalar(patch):
    """What the paper's red-wine scripts do: one number for a whole matrix."""
    planted.in_noise(patch, lambda draw, shape: draw((shape[0], 1, 1)))


def plant_first_layer_same_for_all_models(patch):
    planted.in_noise(patch, lambda draw, shape: draw((1, *shape[1:])))


def plant_first_layer_bias_without_noise(patch):
    planted.in_noise(patch, lambda draw, shape: draw(shape, 0.0 if shape[1] == 1 else 1.0))


def plant_first_layer_weight_without_noise(patch):
    planted.in_noise(patch, lambda draw, shape: draw(shape, 1.0 if shape[1] == 1 else 0.0))


def plant_noise_on_the_second_layer(patch):
    def descend(self, party, message):
        losses = Cut.descend(self, party, message)
        self.perturb(party.discriminator.first_part.layers[1])
        return losses

    patch.setattr(FirstLayerCut, "descend", descend)


def plant_first_layer_sensitivity_of_removal(patch):
    patch.setattr(first_layer_mechanism, "first_layer_sensitivity", lambda bound: bound)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        planted.no_noise,
        plant_first_layer_scalar,
        plant_first_layer_same_for_all_models,
        partial(plant_a_bank_without_noise, FirstLayerCut, Cut),
        plant_first_layer_bias_without_noise,
        plant_first_layer_weight_without_noise,
        plant_noise_on_the_second_layer,
        plant_first_layer_sensitivity_of_removal,
    ],
)
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_planted_bugs_in_the_first_layer_are_noticed(frames, session_of, plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_first_layer_is_equations_20_and_21(session_of, frames)


def test_first_layer_warns_and_its_ledger_says_what_epsilon_is_not(frames):
    with pytest.warns(NoPrivacyWarning, match="does not protect the synthetic data"):
        model = synthesizer(clone(FIRST_LAYER)).fit(frames)
    assert "NOT A GUARANTEE FOR THE SYNTHETIC DATA" in str(model.privacy_ledger_)
    assert model.history_["frechet_distance"].notna().all()  # as without privacy


def correlated(n=256, seed=0):
    """Two parties whose one column each is nearly the same number."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"y": x + 0.1 * rng.normal(size=n)})}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_first_layer_learns_with_noise_to_infinity():
    """A claimed epsilon of nearly zero, and the synthetic table shows the relation all the same."""
    privacy = FirstLayer(noise_multiplier=1e4, delta=1e-3)
    found = []
    for seed in range(3):
        model = VFLGANSynthesizer(
            privacy=privacy, epochs=120, batch_size=32, random_state=seed, device="cpu", verbose=0
        ).fit(correlated())
        assert model.privacy_ledger_.epsilon() < 0.5
        table = model.sample(2000, random_state=0)
        found.append(table["x"].corr(table["y"]))
    assert min(found) > 0.5
