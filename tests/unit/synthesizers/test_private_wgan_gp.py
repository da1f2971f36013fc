"""Private fits of the joined table through the real code, against slow and obvious code.

The reference computes every record's, pair's or fake's gradient by itself, by automatic
differentiation.
"""

import math
from functools import partial

import pytest
import torch
from scipy.stats import chi2

from tests import planted
from tests.later import later
from tests.unit.synthesizers.private_steps import (
    BATCH,
    BOUND,
    N_SHARDS,
    NOISE,
    PRIVACY,
    RECORDS,
    assert_step_is_the_clipped_sum,
    make_frames,
    mechanism,
    score,
    sessions_of,
    synthesizer,
)
from vflsynth.exceptions import (
    ParameterError,
    ProtocolError,
    TooFewRecordsError,
)
from vflsynth.methods.vertigan import method as vertigan_method
from vflsynth.methods.wgan_gp import gs_wgan as gs_wgan_module
from vflsynth.privacy.events import releases_in
from vflsynth.protocol.messages import TrainingReport


@pytest.fixture
def frames():
    return make_frames()


@pytest.fixture(autouse=True)
def short_pretraining(monkeypatch):
    monkeypatch.setattr(gs_wgan_module, "PRETRAINING_STEPS", 10)


@pytest.fixture
def session_of(monkeypatch):
    return partial(sessions_of(monkeypatch), "WGAN-GP")


def joined_of(session):
    (party,) = session.parties.values()
    return party


def node_of(session):
    (node,) = session.nodes.values()
    return node


# -- one step, one record at a time ----------------------------------------------------------------


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
    privacy = mechanism("gs_wgan", max_grad_norm=bound)
    assert_the_generator_gets_clipped_gradients(session_of(frames, privacy), bound)


def test_gradients_to_the_generator_that_are_not_clipped_are_noticed(
    frames, session_of, monkeypatch
):
    monkeypatch.setattr(gs_wgan_module, "sanitised_gradients", lambda g, *a, **k: g)
    privacy = mechanism("gs_wgan", max_grad_norm=0.01)
    with pytest.raises(AssertionError):
        assert_the_generator_gets_clipped_gradients(session_of(frames, privacy), 0.01)


# -- the noise -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", ["dpsgd_gan", "gs_wgan"])
def test_the_claimed_noise_is_the_noise_of_training(frames, session_of, name):
    party = joined_of(session_of(frames, PRIVACY[name]))
    model = synthesizer("WGAN-GP", PRIVACY[name]).fit(frames)
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


# -- ledger, history, saving -----------------------------------------------------------------------


def test_losses_of_unreleased_discriminators_are_refused(frames, session_of):
    with pytest.raises(ProtocolError, match="no entry"):
        node_of(session_of(frames, PRIVACY["gs_wgan"])).answer(TrainingReport, 1)


# -- errors ----------------------------------------------------------------------------------------


def test_shards_smaller_than_a_batch_are_refused(frames):
    with pytest.raises(TooFewRecordsError, match=r"60 matched records in 5 shards.*lower n_shards"):
        synthesizer("WGAN-GP", mechanism("gs_wgan", n_shards=5)).fit(frames)


def test_what_would_release_more_than_is_counted_is_refused(frames):
    model = synthesizer("WGAN-GP", PRIVACY["gs_wgan"])
    with pytest.raises(ParameterError, match="several models"):
        model.fit_replicas(frames, random_states=[0, 1])
    with pytest.raises(ParameterError, match="keep_discriminators"):
        model.fit_replicas(frames, random_states=[0], keep_discriminators=True)
