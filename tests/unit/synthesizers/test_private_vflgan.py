"""Private fits of VFLGAN through the real code: what one step releases.

The reference computes everything one record at a time, with automatic differentiation of one joint
network that nobody has.
"""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from tests import planted
from tests.unit.synthesizers.private_steps import (
    BATCH,
    make_frames,
    mechanism,
    sessions_of,
    step_of,
    synthesizer,
)
from vflsynth.exceptions import PrivacyParameterError, ProtocolError
from vflsynth.methods.vflgan.messages import SampledFeatures


@pytest.fixture
def frames():
    return make_frames()


@pytest.fixture
def session_of(monkeypatch):
    return partial(sessions_of(monkeypatch), "VFLGAN")


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
        for owner, network in session.discriminators.items()
    }
    for record in records:
        for owner, network in session.discriminators.items():
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


@pytest.mark.parametrize("penalty", ["paper", "layerwise"])
def test_penalties_heads_and_biases_can_be_chosen(frames, penalty):
    model = synthesizer("VFLGAN", gradient_penalty=penalty, private_heads=False, bias=False)
    assert len(model.fit(frames).sample(7)) == 7


# -- errors ----------------------------------------------------------------------------------------


def test_an_unknown_number_of_records_is_refused(frames):
    with pytest.raises(PrivacyParameterError, match="n_records"):
        synthesizer("VFLGAN", mechanism("dpsgd", n_records=None)).fit(frames)
    public = mechanism("dpsgd", n_records=None, neighbouring_relation="replace_one")
    assert "number of records" in synthesizer("VFLGAN", public).fit(frames).privacy_ledger_.public


def test_parties_that_sampled_differently_are_named(frames, session_of):
    session = session_of(frames)
    channel = session.algorithm.channel
    received = channel.gather(SampledFeatures, 0)
    received["clinic"].n_real.add_(1)
    with pytest.raises(ProtocolError, match="sampled"):
        session.algorithm.server.update_discriminator(0, received)
