"""Private fits of the autoregressive synthesizer: what one step of all parties releases."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from tests import planted
from tests.unit.synthesizers.private_steps import (
    BATCH,
    RECORDS,
    SCHEMA,
    assert_noise_is_claimed,
    make_frames,
    rounding,
    sessions_of,
    with_one_more,
)
from vflsynth import AutoregressiveSynthesizer
from vflsynth._keys import HiddenStreams
from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.exceptions import ParameterError, PrivacyBudgetError
from vflsynth.mechanisms import DPSGD as DPSGDMechanism
from vflsynth.methods.autoregressive import conditional
from vflsynth.methods.autoregressive import dpsgd as autoregressive_dpsgd
from vflsynth.methods.autoregressive.conditional import ConditionalNetwork
from vflsynth.methods.autoregressive.dpsgd import (
    PrivateAutoregressiveParty,
    likelihood_traces,
    per_parameter,
)
from vflsynth.methods.autoregressive.layout import Layout, at_rows
from vflsynth.privacy.dpsgd import clip_factors, clipped_gradient_sum, per_example_norms
from vflsynth.privacy.events import releases_in
from vflsynth.protocol import PlacedPoissonSchedule

NOISE, BOUND = 1.5, 0.3
DPSGD = DPSGDMechanism(
    noise_multiplier=NOISE,
    delta=1e-3,
    public_schema=SCHEMA,
    n_records=60,
    preprocessing_share=0.0,
    max_grad_norm=BOUND,
)


def synthesizer(privacy=DPSGD, **parameters):
    small = {"epochs": 1, "batch_size": BATCH, "hidden": 5, "n_features": 6, "device": "cpu"}
    return AutoregressiveSynthesizer(
        protocol="one_message", privacy=privacy, random_state=0, verbose=0, **small | parameters
    )


@pytest.fixture
def session_of(monkeypatch):
    make = sessions_of(monkeypatch, synthesizer)
    monkeypatch.setattr(autoregressive_dpsgd, "_DRAWN_RECORDS", 64)
    monkeypatch.setattr(conditional, "_STARTING_STEPS", 5)

    def begun(frames, privacy=DPSGD, **options):
        session = make(frames, privacy, **options)
        session.algorithm.begin()
        return session

    return begun


def split(frames, n_parties):
    """The same records with one party, two or three."""
    if n_parties == 1:
        return {"clinic": frames["clinic"]}
    if n_parties == 2:
        return frames
    bank = frames["bank"]
    return frames | {"bank": bank[["income"]], "school": bank[["grade"]]}


def step_of(session, step=0):
    """Every party's gradient of a step, (replica, coordinate), times the expected batch size."""
    found = {}
    for name, party in session.parties.items():
        party.descend_noisily(party.network, step)
        gradients = torch.split(
            party.optimizer.gradient, [p.numel() for p in party.optimizer.parameters]
        )
        replicas = len(party.codes)
        found[name] = torch.cat([g.view(replicas, -1) for g in gradients], 1) * BATCH
    return found


def slow_gradients(network, codes, values, contexts):
    """Each record's gradient, by automatic differentiation, (record, coordinate)."""
    found = []
    for one in zip(codes[0].split(1), values[0].split(1), contexts[0].split(1)):
        code, value, context = (part.unsqueeze(0) for part in one)
        loss = -network.log_likelihood(code.long(), value, context).sum()
        found.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(network.parameters()))])
        )
    return torch.stack(found)


def slow_sums(session, bound, step=0):
    found = {}
    for name, party in session.parties.items():
        rows = party.schedule.rows(step)[:, : int(party.schedule.n_real(step)[0])]
        batch = (at_rows(own, rows) for own in (party.codes, party.values, party.contexts))
        gradients = slow_gradients(party.network, *batch)
        norms = gradients.double().norm(dim=1, keepdim=True)
        found[name] = (gradients * (bound / norms).clamp_max(1.0)).sum(0, keepdim=True)
    return found


# -- one record at a time --------------------------------------------------------------------------


def test_traces_are_the_gradients_of_single_records():
    spans = [
        OutputSpan(0, 1, "tanh", "a", "number", gate=1),
        OutputSpan(1, 4, "softmax", "a", "state"),
        OutputSpan(4, 9, "softmax", "b", "category"),
        OutputSpan(9, 10, "tanh", "c", "number"),
    ]
    streams = RandomStreams([b"one", b"two"], "cpu")
    network = ConditionalNetwork(Layout(spans), 3, 4, streams)
    rng = np.random.default_rng(0)
    codes = torch.from_numpy(np.stack([rng.integers(0, n, (2, 7)) for n in (3, 5, 1)], -1))
    values = torch.from_numpy(rng.normal(size=(2, 7, 2))).float()
    contexts = torch.from_numpy(rng.normal(size=(2, 7, 3))).float()
    with torch.no_grad():
        network.last.mul_(20.0)
    traces = likelihood_traces(network, codes, values, contexts)
    norms = per_example_norms(traces)
    factors = clip_factors(norms, bound := float(norms.median()))
    found = per_parameter(network, clipped_gradient_sum(traces, factors))
    for replica in range(2):
        loss = network.log_likelihood(codes, values, contexts).sum((1,))[replica]
        expected = [torch.zeros_like(p[replica]) for p in network.parameters()]
        for k in range(7):
            own = torch.autograd.grad(-loss[k], list(network.parameters()), retain_graph=True)
            norm = math.sqrt(sum(g.double().square().sum().item() for g in own))
            assert norm == pytest.approx(norms[replica, k].item(), rel=1e-4)
            for total, g in zip(expected, own):
                total += g[replica] * min(1.0, bound / norm)
        for name, one, other in zip(dict(network.named_parameters()), found, expected):
            torch.testing.assert_close(one[replica], other, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("n_parties", [1, 2, 3])
@pytest.mark.parametrize("bound", [BOUND, 1e3])
def test_every_party_clips_one_record_at_a_time(monkeypatch, session_of, n_parties, bound):
    planted.no_noise(monkeypatch)
    privacy = clone(DPSGD).set_params(max_grad_norm=bound)
    session = session_of(split(make_frames(), n_parties), privacy)
    expected = slow_sums(session, bound)
    for name, found in step_of(session).items():
        torch.testing.assert_close(
            found.double(), expected[name], atol=BATCH * rounding(bound), rtol=5e-4
        )


def moved_by_one_record(session_of, record):
    """Norm of what a record more moves, by party, in the first batch that it is in."""
    frames = make_frames()
    without, with_it = session_of(frames), session_of(with_one_more(frames, record))
    schedules = [next(iter(s.parties.values())).schedule for s in (without, with_it)]
    step = next(k for k in range(99) if schedules[0].n_real(k) < schedules[1].n_real(k))
    before, after = step_of(without, step), step_of(with_it, step)
    return {name: (after[name] - before[name]).norm().item() for name in before}


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_more_moves_every_sum_by_no_more_than_the_bound(monkeypatch, session_of, record):
    planted.no_noise(monkeypatch)
    moved = moved_by_one_record(session_of, record)
    assert all(0.0 < norm <= BOUND + 1e-5 for norm in moved.values()), moved
    assert math.hypot(*moved.values()) <= math.sqrt(2.0) * BOUND + 1e-5


@pytest.mark.parametrize("bug", [planted.no_clipping, planted.clipping_of_the_whole_batch])
def test_a_record_that_moves_more_is_noticed(monkeypatch, session_of, bug):
    planted.no_noise(monkeypatch)
    bug(monkeypatch)
    assert max(moved_by_one_record(session_of, RECORDS[1]).values()) > 1.1 * BOUND


def test_contexts_of_other_records_would_be_noticed(monkeypatch, session_of):
    """Features counted from the other end, so that one record more moves those of all others."""
    planted.no_noise(monkeypatch)
    take = PrivateAutoregressiveParty.take

    def deliver(self, message):
        take(self, message)
        self.contexts = 50.0 * self.contexts.flip(1)

    monkeypatch.setattr(PrivateAutoregressiveParty, "take", deliver)
    assert max(moved_by_one_record(session_of, RECORDS[1]).values()) > 1.1 * BOUND


# -- noise -----------------------------------------------------------------------------------------


def noise_of_a_step(frames, session_of):
    """What was added to the sums, in units of what the ledger claims, (replica, coordinate)."""
    with pytest.MonkeyPatch.context() as patch:
        planted.no_noise(patch)
        exact = step_of(session_of(frames, n_models=8))
    session = session_of(frames, n_models=8)
    noisy = step_of(session)
    plan = next(iter(session.nodes.values())).method.plan
    stds = {r.party: r.noise_std for r in releases_in(plan.ledger.event)}
    claimed = NOISE * math.sqrt(len(frames)) * BOUND
    assert list(stds.values()) == pytest.approx([claimed] * len(frames))
    found = {}
    for name in frames:
        added = (noisy[name] - exact[name]) / stds[name]
        has = exact[name].abs().amax(0) > 0.0
        found[name] = added[:, has]
    return found


@pytest.mark.parametrize("n_parties", [1, 2, 3])
def test_noise_is_what_the_ledger_says(session_of, n_parties):
    assert_noise_is_claimed(noise_of_a_step(split(make_frames(), n_parties), session_of))


@pytest.mark.parametrize(
    "bug",
    [
        planted.no_noise,
        planted.one_scalar,
        lambda patch: planted.in_noise(patch, lambda draw, shape: draw(shape, 0.7)),
    ],
)
def test_noise_that_is_another_is_noticed(monkeypatch, session_of, bug):
    def noise():
        exact = step_of(session_of(make_frames(), n_models=8))
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            noisy = step_of(session_of(make_frames(), n_models=8))
        std = NOISE * math.sqrt(2.0) * BOUND
        return {n: ((noisy[n] - exact[n]) / std)[:, exact[n].abs().amax(0) > 0] for n in exact}

    planted.no_noise(monkeypatch)
    found = noise()
    with pytest.raises(AssertionError):
        assert_noise_is_claimed(found)


def test_a_step_more_than_was_paid_for_is_refused(session_of):
    session = session_of(make_frames())
    party = session.parties["bank"]
    for step in range(4):
        party.descend_noisily(party.network, step)
    with pytest.raises(PrivacyBudgetError):
        party.descend_noisily(party.network, 4)


# -- the whole fit ---------------------------------------------------------------------------------


def test_nothing_that_is_kept_tells_how_many_records_there_are():
    synth = synthesizer(epochs=2).fit(make_frames())
    assert not {"n_held_out", "n_featured"} & set(synth.settings_)
    assert 60 not in synth.settings_.values()
    assert set(synth.history_.columns) <= {"chosen", "seconds"}
    ledger = " ".join(str(synth.privacy_ledger_).split())
    assert "the server: it sees fixed features of every record without noise" in ledger
    assert "the later parties: they see these features" in ledger
    assert "network of densities [bank, clinic]" in ledger
    assert len(synth.sample(7)) == 7


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol": "bounded"}, "needs protocol='one_message', got 'bounded'.*MixtureSynth"),
        ({"protocol": "trained"}, "needs protocol='one_message', got 'trained'"),
        ({"privacy__gradient_penalty_at": "records"}, "it has no gradient penalty"),
        ({"dropout": 0.5}, "dropout=0.5 has no effect with DPSGD"),
        ({"patience": 3}, "patience=3 has no effect with DPSGD"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, reason):
    synth = synthesizer(clone(DPSGD)).set_params(**changes)
    with pytest.raises(ParameterError, match=reason):
        synth.fit(make_frames())


def test_probabilities_are_there_and_kinds_that_give_none_are_refused(monkeypatch):
    synth = synthesizer().fit(make_frames())
    assert np.isfinite(synth.log_prob(make_frames()["bank"])).all()
    monkeypatch.setattr("vflsynth.columns.evidence._OWN_KINDS", ())
    with pytest.raises(ParameterError, match="there are no densities"):
        synth.log_prob(make_frames()["bank"])
    assert (synth.sample(3, conditions={"smoker": "no"})["smoker"] == "no").all()


def test_replicas_learn_of_their_own_records_alone(session_of):
    frames, rows = make_frames(), np.stack([np.arange(30), np.arange(30, 60)])
    one, other = synthesizer().fit_replicas(frames, random_states=[1, 2], replica_rows=rows)
    assert not one.sample(20).equals(other.sample(20))
    everybody = session_of(frames).parties["bank"]
    schedule = PlacedPoissonSchedule(
        RandomStreams([b"one", b"two"], "cpu"),
        sampling=HiddenStreams([b"one", b"two"]),
        sample_rate=0.3,
        n_records=30,
        batch_size=9,
        replica_rows=torch.from_numpy(rows),
    )
    assert int(schedule.rows(0).max()) < 30  # places in the replica's own order
    everybody.build(everybody.settings, schedule, RandomStreams([b"one", b"two"], "cpu"))
    whole = everybody._split(everybody.matched(), torch.device("cpu"))[1]
    assert torch.equal(everybody.values, torch.stack([whole[:30], whole[30:]]))
