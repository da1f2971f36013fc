"""Private fits of the joined table through the real code, against slow and obvious code.

The reference computes every record's, pair's or fake's gradient by itself, by automatic
differentiation.
"""

import math

import pytest
import torch
from scipy.stats import chi2
from sklearn.base import clone

from tests import planted
from tests.later import later
from tests.unit.synthesizers import private_steps
from tests.unit.synthesizers.private_steps import (
    BATCH,
    BOUND,
    COMMON,
    NOISE,
    RECORDS,
    REPLICAS,
    SMALL,
    assert_noise_drowns_the_records,
    assert_noise_is_claimed,
    assert_step_is_the_clipped_sum,
    assert_the_step_after_the_last_is_refused,
    first_layer_noise,
    make_frames,
    noise_of_a_step,
    saved_and_loaded,
    score,
    sessions_of,
    step_of,
)
from vflsynth import DPSGDGAN, GSWGAN, WGANGPSynthesizer
from vflsynth.exceptions import (
    NoPrivacyWarning,
    ParameterError,
    PartyDataError,
    ProtocolError,
    TooFewRecordsError,
)
from vflsynth.learning.messages import MaskedFake, MaskedReal
from vflsynth.methods.vertigan import method as vertigan_method
from vflsynth.methods.wgan_gp import gs_wgan as gs_wgan_mechanism
from vflsynth.methods.wgan_gp import gs_wgan as gs_wgan_module
from vflsynth.privacy.events import releases_in
from vflsynth.protocol.messages import TrainingReport

N_SHARDS = 3
PRIVACY = private_steps.PRIVACY | {
    "dpsgd_gan": DPSGDGAN(**COMMON),
    "gs_wgan": GSWGAN(n_shards=N_SHARDS, **COMMON),
}
DPSGD = ["dpsgd", "dpsgd_gan"]
SOUND = [*DPSGD, "gs_wgan"]


@pytest.fixture
def frames():
    return make_frames()


@pytest.fixture(autouse=True)
def short_pretraining(monkeypatch):
    monkeypatch.setattr(gs_wgan_mechanism, "PRETRAINING_STEPS", 10)


def synthesizer(privacy, **parameters):
    small = {**SMALL, "discriminator_hidden": (6, 5), "discriminator_steps": 2}
    return WGANGPSynthesizer(privacy=privacy, **small | parameters)


@pytest.fixture
def session_of(monkeypatch):
    return sessions_of(monkeypatch, synthesizer)


def joined_of(session):
    (party,) = session.parties.values()
    return party


def node_of(session):
    (node,) = session.nodes.values()
    return node


# -- one step, one record at a time ----------------------------------------------------------------


@pytest.mark.parametrize("bound", [BOUND, 25.0])
@pytest.mark.parametrize("name", DPSGD)
def test_a_step_is_the_clipped_sum_one_at_a_time(frames, session_of, monkeypatch, name, bound):
    planted.no_noise(monkeypatch)
    privacy = clone(PRIVACY[name]).set_params(max_grad_norm=bound)
    assert_step_is_the_clipped_sum(name, session_of(frames, privacy), bound)


@pytest.mark.parametrize("name", DPSGD)
def test_what_is_not_clipped_is_noticed(frames, session_of, monkeypatch, name):
    planted.no_noise(monkeypatch)
    planted.no_clipping(monkeypatch)
    with pytest.raises(AssertionError):
        assert_step_is_the_clipped_sum(name, session_of(frames, PRIVACY[name]))


def test_clipping_a_pair_is_not_clipping_its_parts(frames, session_of, monkeypatch):
    """What distinguishes the published mechanism: the reference of one fails for the other."""
    planted.no_noise(monkeypatch)
    session = session_of(frames, PRIVACY["dpsgd_gan"])
    honest = joined_of(session).descent.noisy.release

    def apart(layers, terms, counted=None):
        for term in terms:
            honest(layers, [term], counted)

    joined_of(session).descent.noisy.release = apart
    with pytest.raises(AssertionError):
        assert_step_is_the_clipped_sum("dpsgd_gan", session)


def generator_gradient(session, step=1):
    party = joined_of(session)
    party.backbone_gradients(step)
    return party, torch.cat([g.flatten(1) for g in party._pending], 1)


def assert_the_generator_gets_clipped_gradients(session, bound):
    """At every fake: -dD/dx~ of the shard that was drawn, at most C long, averaged."""
    party, actual = generator_gradient(session)
    fakes = party.fake(1, "generator")
    upstream = torch.zeros_like(fakes)
    for k, fake in enumerate(fakes[0]):
        point = fake.detach().requires_grad_()
        (slope,) = torch.autograd.grad(score(party, point), point)
        upstream[0, k] = -slope * min(1.0, bound / slope.norm().item()) / BATCH
    expected = torch.autograd.grad(fakes, party.generator_optimizer.parameters, upstream)
    expected = torch.cat([g.flatten(1) for g in expected], 1)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("bound", [0.01, 1.0])
def test_the_generator_learns_from_clipped_gradients_alone(frames, session_of, monkeypatch, bound):
    planted.no_noise(monkeypatch)
    privacy = clone(PRIVACY["gs_wgan"]).set_params(max_grad_norm=bound)
    assert_the_generator_gets_clipped_gradients(session_of(frames, privacy), bound)


def test_gradients_to_the_generator_that_are_not_clipped_are_noticed(
    frames, session_of, monkeypatch
):
    monkeypatch.setattr(gs_wgan_module, "sanitised_gradients", lambda g, *a, **k: g)
    privacy = clone(PRIVACY["gs_wgan"]).set_params(max_grad_norm=0.01)
    with pytest.raises(AssertionError):
        assert_the_generator_gets_clipped_gradients(session_of(frames, privacy), 0.01)


# -- the noise -------------------------------------------------------------------------------------

STD = {
    "dpsgd": NOISE * BOUND / BATCH,
    "dpsgd_gan": NOISE * 2.0 * BOUND / BATCH,
}


SCORE_BIAS = {("joined", "linears.2.bias")}
"""Adds the same to all scores: no gradient, no noise."""


def assert_a_step_has_the_claimed_noise(name, session_of, frames):
    found = noise_of_a_step(lambda: session_of(frames, PRIVACY[name], n_models=REPLICAS), STD[name])
    assert_noise_is_claimed(found, SCORE_BIAS)


@pytest.mark.parametrize("name", [*later("dpsgd"), "dpsgd_gan"])
def test_every_coordinate_has_independent_noise(frames, session_of, name):
    assert_a_step_has_the_claimed_noise(name, session_of, frames)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpsgd", "dpsgd_gan"])
@pytest.mark.parametrize(
    "plant", [planted.no_noise, planted.one_scalar, planted.last_layer_without_noise]
)
def test_planted_bugs_in_the_noise_are_noticed(frames, session_of, monkeypatch, name, plant):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_a_step_has_the_claimed_noise(name, session_of, frames)


def assert_what_fakes_are_told_is_noisy(session_of, frames):
    """The upstream gradient itself: what all else is post-processing of."""
    seen = []
    honest = vertigan_method.pulled_back

    def look(outputs, inputs, upstreams):
        seen.extend(upstreams)
        return honest(outputs, inputs, upstreams)

    for silent in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if silent:
                planted.no_noise(patch)
            party = joined_of(session_of(frames, PRIVACY["gs_wgan"]))
            with pytest.MonkeyPatch.context() as spy:
                party.descent._pretrain(party)
                spy.setattr(vertigan_method, "pulled_back", look)
                party.backbone_gradients(1)
    noise = (seen[0] - seen[1])[0] * BATCH / (NOISE * 2.0 * BOUND * math.sqrt(BATCH))
    assert abs(noise.std().item() - 1.0) < 5.0 / math.sqrt(2 * noise.numel())
    for axis in (0, 1):  # independent of each other: means are smaller by the root of their number
        means = noise.mean(axis)
        squares = means.var().item() * noise.shape[axis] * (len(means) - 1)
        low, high = chi2(len(means) - 1).ppf([1e-7, 1.0 - 1e-7])
        assert low < squares < high


def test_every_coordinate_of_every_fake_has_noise(frames, session_of):
    assert_what_fakes_are_told_is_noisy(session_of, frames)


def plant_sensitivity_of_one_fake(patch):
    honest = gs_wgan_module.sanitised_gradients
    patch.setattr(
        gs_wgan_module,
        "sanitised_gradients",
        lambda g, c, s, rng=None: honest(g, c, s / math.sqrt(BATCH)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [planted.no_noise, planted.one_scalar, plant_sensitivity_of_one_fake]
)
def test_planted_bugs_in_what_fakes_are_told_are_noticed(frames, session_of, monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_what_fakes_are_told_is_noisy(session_of, frames)


@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_first_layer_changes_the_gradient_of_the_first_layer_alone(frames, session_of):
    privacy = PRIVACY["first_layer"]
    found = first_layer_noise(
        lambda: step_of(session_of(frames, privacy, n_models=REPLICAS)), "linears.0"
    )
    assert len(found) == 2
    for noise in found.values():
        assert abs(noise.std().item() - 1.0) < 5.0 / math.sqrt(2 * noise.numel())


@pytest.mark.parametrize("name", SOUND)
def test_the_claimed_noise_is_the_noise_of_training(frames, session_of, name):
    party = joined_of(session_of(frames, PRIVACY[name]))
    model = synthesizer(PRIVACY[name]).fit(frames)
    (release,) = releases_in(model.privacy_ledger_.event)
    if name == "gs_wgan":
        std = party.descent.plan.noise_multiplier * 2.0 * BOUND * math.sqrt(BATCH)
        assert model.privacy_ledger_.event.events[0].steps == 2  # of four discriminator steps
    else:
        std = party.descent.noisy.plan.noise_multiplier * party.descent.noisy.plan.sensitivity
        assert model.privacy_ledger_.event.events[0].steps == 4
    assert release.noise_std == pytest.approx(std)
    assert release.party == "joined"


# -- sensitivity, shards ---------------------------------------------------------------------------


def replaced(frames, position, record):
    """The same tables with one record replaced."""
    other = {name: frame.copy() for name, frame in frames.items()}
    for frame in other.values():
        for column in frame:
            frame.loc[position, column] = record[column]
    return other


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("seed", [0, *later(1, 2)])
def test_one_replaced_record_moves_a_step_of_pairs_by_at_most_its_sensitivity(
    session_of, monkeypatch, record, seed
):
    planted.no_noise(monkeypatch)
    frames, steps = make_frames(BATCH, seed), []
    for table in (frames, replaced(frames, 3, record)):
        party = joined_of(session_of(table, PRIVACY["dpsgd_gan"]))
        party.train_discriminator(1)  # all records are in the batch
        steps.append(party.discriminator_optimizer.gradient.clone())
    moved = BATCH * (steps[1] - steps[0]).norm().item()
    assert 1e-3 < moved <= 2.0 * BOUND + 1e-4


def test_shards_are_disjoint_and_of_equal_size_and_drawn_afresh(session_of):
    party = joined_of(session_of(make_frames(62), PRIVACY["gs_wgan"]))
    shards = party.descent.shards.tolist()
    assert [len(shard) for shard in shards] == [20] * N_SHARDS  # two records are left over
    assert len({row for shard in shards for row in shard}) == 60
    chosen, rows, read = [], [], []
    honest = party.descent._of_batch

    def look(party, step, real, fake):
        read.append(real)
        return honest(party, step, real, fake)

    party.descent._of_batch = look
    for step in range(1, 40, 2):
        party.descent.budget.taken = 0
        party.backbone_gradients(step)
        chosen.append(party.descent._shard)
        own = party.records[party.descent.shards[party.descent._shard]]
        assert len(read) == 2  # discriminator steps per generator step
        assert all((own == record).all(1).any() for real in read for record in real[0])
        rows.append(read[-1])
        read.clear()
    assert set(chosen) == set(range(N_SHARDS))
    assert not torch.equal(rows[0], rows[-1])


def test_a_record_changes_the_discriminator_of_its_own_shard_alone(frames, session_of, monkeypatch):
    planted.no_noise(monkeypatch)
    critics = []
    record = {"age": 90, "smoker": "yes", "income": 9.9, "grade": 3}
    for table in (frames, replaced(frames, 7, record)):
        party = joined_of(session_of(table, PRIVACY["gs_wgan"]))
        party.descent._pretrain(party)
        critics.append([optimizer.flat.clone() for _, optimizer in party.descent._critics])
        (own,) = [s for s, rows in enumerate(party.descent.shards.tolist()) if 7 in rows]
    changed = [not torch.equal(*both) for both in zip(*critics)]
    assert changed == [shard == own for shard in range(N_SHARDS)]


# -- no learning without information ---------------------------------------------------------------


@pytest.mark.parametrize("name", [*later("dpsgd"), "dpsgd_gan", "gs_wgan"])
def test_with_noise_to_infinity_two_populations_give_the_same_model(frames, name):
    def make(noise_multiplier):
        privacy = clone(PRIVACY[name]).set_params(noise_multiplier=noise_multiplier)
        return synthesizer(privacy, epochs=2)

    # A shard's noise is so much larger that more would be needed to learn.
    assert_noise_drowns_the_records(make, frames, quiet=1e-3 if name == "gs_wgan" else 1.0)


# -- ledger, history, saving -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*later("dpsgd"), "dpsgd_gan", "gs_wgan"])
def test_the_ledger_is_within_budget_and_the_model_is_saved(frames, name, tmp_path):
    privacy = clone(PRIVACY[name]).set_params(
        epsilon=8.0, noise_multiplier=None, preprocessing_share=0.2
    )
    model = synthesizer(privacy).fit(frames, transcript=True)
    ledger = model.privacy_ledger_
    assert 7.8 < ledger.epsilon() <= 8.0
    assert [entry.purpose for entry in ledger.entries] == ["preprocessing", "training"]
    assert ledger.parties == ("joined",)
    assert set(model.transcript_["message"]) == {"KeyList", "AlignmentNotice"}
    loaded = saved_and_loaded(model, tmp_path / "model")
    assert loaded.privacy.get_params(deep=False).keys() == privacy.get_params(deep=False).keys()


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("dpsgd", {"fake_score_joined", "penalty_joined"}),
        ("dpsgd_gan", {"fake_score_joined"}),
        ("gs_wgan", set()),
    ],
)
def test_the_history_holds_what_was_paid_for(frames, name, columns):
    history = synthesizer(PRIVACY[name], epochs=2).fit(frames).history_
    assert set(history) - {"seconds", "chosen"} == columns


@pytest.mark.parametrize("name", SOUND)
def test_nobody_looks_at_records_to_choose_a_model(frames, session_of, name):
    session = session_of(frames, PRIVACY[name], model_selection="best")
    assert not session.algorithm.selects
    for kind in (MaskedReal, MaskedFake):
        with pytest.raises(ProtocolError, match="no entry"):
            node_of(session).answer(kind, 0)


def test_losses_of_unreleased_discriminators_are_refused(frames, session_of):
    with pytest.raises(ProtocolError, match="no entry"):
        node_of(session_of(frames, PRIVACY["gs_wgan"])).answer(TrainingReport, 1)


@pytest.mark.parametrize("name", [*SOUND, "first_layer"])
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_the_step_after_the_last_is_refused_before_records_are_read(frames, session_of, name):
    assert_the_step_after_the_last_is_refused(session_of(frames, PRIVACY[name]))


def test_batches_are_sampled_as_the_ledger_says(session_of):
    party = joined_of(session_of(make_frames(400), PRIVACY["dpsgd_gan"]))
    batches = [party.schedule.rows(step)[0].tolist() for step in range(100)]
    assert all(len(set(batch)) == BATCH for batch in batches)
    assert any(set(first) & set(second) for first, second in zip(batches, batches[1:]))


def test_first_layer_warns_and_selects_as_without_privacy(frames):
    with pytest.warns(NoPrivacyWarning, match="does not protect the synthetic data"):
        model = synthesizer(PRIVACY["first_layer"]).fit(frames)
    assert "NOT A GUARANTEE FOR THE SYNTHETIC DATA" in str(model.privacy_ledger_)
    assert model.privacy_ledger_.parties == ("joined",)
    assert model.history_["frechet_distance"].notna().all()


# -- errors ----------------------------------------------------------------------------------------


def test_shards_smaller_than_a_batch_are_refused(frames):
    with pytest.raises(TooFewRecordsError, match=r"60 matched records in 5 shards.*lower n_shards"):
        synthesizer(clone(PRIVACY["gs_wgan"]).set_params(n_shards=5)).fit(frames)


def test_what_would_release_more_than_is_counted_is_refused(frames, tmp_path):
    model = synthesizer(PRIVACY["gs_wgan"])
    with pytest.raises(ParameterError, match="resume"):
        model.fit(frames, resume=tmp_path / "c")
    with pytest.raises(ParameterError, match="several models"):
        model.fit_replicas(frames, random_states=[0, 1])
    with pytest.raises(ParameterError, match="keep_discriminators"):
        model.fit_replicas(frames, random_states=[0], keep_discriminators=True)
    with pytest.raises(ParameterError, match="estimate_memory"):
        model.estimate_memory(frames)


@pytest.mark.parametrize("name", SOUND)
def test_a_column_without_public_bounds_is_named_where_nothing_pays_for_them(frames, name):
    frames["bank"]["debt"] = 1.0
    privacy = PRIVACY[name]
    with pytest.raises(PartyDataError, match=r"column 'debt'.*public_schema"):
        synthesizer(privacy).fit(frames)
