"""VFLGAN Eqs. 4 and 5: VertiGAN's steps against autograd on one graph with one backbone."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vflsynth.columns import TableTransformer
from vflsynth.learning.base import FromRecords
from vflsynth.methods.gan.critics import Critic
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vertigan.method import (
    BackboneGradients,
    VertiGAN,
    VertiGANParty,
)
from vflsynth.networks.layers import BatchNorm
from vflsynth.protocol.channel import LocalChannel
from vflsynth.protocol.schedule import Schedule
from vflsynth.run.local import match_records

BATCH, STEPS, WEIGHT, RATE, BETAS, TAU = 8, 3, 10.0, 0.01, (0.5, 0.9), 0.7
SETTINGS = Settings(
    batch_size=BATCH,
    latent_dim=4,
    generator_hidden=(6, 5),
    first_part=(7, 3),
    shared_hidden=(),
    private_heads=True,
    bias=True,
    batch_norm_eps=0.8,
    gumbel_temperature=TAU,
    gradient_penalty="paper",
    gradient_penalty_weight=WEIGHT,
    learning_rate=RATE,
    betas=BETAS,
    generator_average=0.0,
    n_evaluation=16,
    discriminator_steps=STEPS,
)


@pytest.fixture
def frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    return {
        "a": pd.DataFrame({"x": rng.normal(size=40), "c": rng.choice(["u", "v", "w"], size=40)}),
        "b": pd.DataFrame(rng.normal(size=(40, 3)), columns=["p", "q", "r"]),
    }


@pytest.fixture
def trained(frames, streams):
    """Parties of two replicas, their algorithm, and copies of their state before training."""
    streams = streams(2)
    parties = [VertiGANParty(n, f, None) for n, f in frames.items()]
    channel = LocalChannel(parties)
    match_records(channel, frames, None)
    schedule = Schedule(streams.child("shared"), n_records=40, batch_size=BATCH, latent_dim=4)
    for party in parties:
        party.prepare(FromRecords(TableTransformer()))
        party.build_with(Critic(), SETTINGS, schedule, streams.child(party.name))
        party.records = party.records.double()
    algorithm = VertiGAN(channel, SETTINGS, streams.child("server"), selects=False)
    return algorithm, parties


def test_steps_equal_autograd_with_one_shared_backbone(trained, plain):
    algorithm, parties = trained
    slow = [OneGraph(parties, SETTINGS, replica, plain) for replica in range(2)]
    for step in range(2 * STEPS):
        algorithm.step(step)
        for one in slow:
            one.step(step)
    for one in slow:
        one.assert_equal()


def test_all_parties_keep_the_same_backbone(trained):
    algorithm, (a, b) = trained
    before = {k: v.clone() for k, v in a.generator.hidden.state_dict().items()}
    for step in range(STEPS):
        algorithm.step(step)
    state = a.generator.hidden.state_dict()
    for name, value in b.generator.hidden.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)
    assert not torch.equal(state["0.weight"], before["0.weight"])
    assert not torch.equal(a.generator.output.weight[..., :1], b.generator.output.weight[..., :1])


def test_server_sums(streams):
    algorithm = VertiGAN(None, SETTINGS, streams(1), selects=False)
    sent = {
        name: BackboneGradients(name, "server", 4, torch.full((1, 3), value))
        for name, value in (("a", 1.0), ("b", 2.0), ("c", 5.0))
    }
    for reply in algorithm.sum_gradients(4, sent).values():
        assert reply.gradients.tolist() == [[8.0, 8.0, 8.0]]


def test_one_exchange_per_generator_step(trained):
    algorithm, parties = trained
    asked = []

    class Counting(LocalChannel):
        def gather(self, kind, step):
            asked.append((kind, step))
            return super().gather(kind, step)

    algorithm.channel = Counting(parties)
    for step in range(2 * STEPS + 1):
        algorithm.step(step)
    assert asked == [(BackboneGradients, STEPS - 1), (BackboneGradients, 2 * STEPS - 1)]


class OneGraph:
    """One replica in ordinary torch: one backbone, and per party a head and a critic."""

    def __init__(self, parties, settings, replica, plain):
        self.parties, self.settings, self.replica = parties, settings, replica
        self.backbone = nn.Sequential()
        for layer in parties[0].generator.hidden:
            if isinstance(layer, BatchNorm):
                self.backbone.append(nn.BatchNorm1d(layer.weight.shape[-1], eps=layer.eps))
            elif isinstance(layer, nn.LeakyReLU):
                self.backbone.append(nn.LeakyReLU(0.2))
            else:
                self.backbone.append(plain([layer], replica, False)[0])
        self.heads = [plain([party.generator.output], replica, False) for party in parties]
        self.critics = [plain(party.discriminator.linears, replica, False) for party in parties]
        generators = [*self.backbone.parameters(), *(p for h in self.heads for p in h.parameters())]
        critics = [p for critic in self.critics for p in critic.parameters()]
        rates = {"lr": settings.learning_rate, "betas": settings.betas}
        self.generator_optimizer = torch.optim.Adam(generators, **rates)
        self.critic_optimizer = torch.optim.Adam(critics, **rates)

    def assert_equal(self):
        """Same weights in all layers."""
        for party, head, critic in zip(self.parties, self.heads, self.critics):
            made = party.generator
            pairs = [*zip(_linears(made.hidden), _linears(self.backbone)), (made.output, head[0])]
            pairs += zip(party.discriminator.linears, _linears(critic))
            for layer, copy in pairs:
                torch.testing.assert_close(layer.weight[self.replica].T, copy.weight)
                if layer.bias is not None:
                    torch.testing.assert_close(layer.bias[self.replica, 0], copy.bias)

    def fake(self, i, step, stream):
        party = self.parties[i]
        latent = party.schedule.latent(step)[self.replica]
        raw = self.heads[i](self.backbone(latent))
        if all(span.activation == "identity" for span in party.transformer.spans_):
            return raw
        # Columns of party "a": x, then the one-hot c with a straight-through Gumbel-softmax.
        noise = party.streams.gumbel(f"gumbel.{stream}", step, (BATCH, 3))[self.replica]
        logits = raw[:, 1:] + noise
        soft = torch.softmax(logits / TAU, -1)
        hard = F.one_hot(logits.argmax(-1), 3) + soft - soft.detach()
        return torch.cat([raw[:, :1], hard], 1)

    def step(self, step):
        loss = 0.0
        for i, (party, critic) in enumerate(zip(self.parties, self.critics)):
            real = party.records[party.schedule.rows(step)[self.replica]]
            fake = self.fake(i, step, "discriminator").detach()
            beta = party.schedule.interpolation(step)[self.replica]
            mixed = (beta * real + (1 - beta) * fake).requires_grad_()
            (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
            loss = loss - critic(real).mean() + critic(fake).mean()
            loss = loss + self.settings.gradient_penalty_weight * penalty
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if (step + 1) % self.settings.discriminator_steps == 0:
            # Autograd adds up over the parties what reaches the one backbone: Eq. 5.
            loss = sum(
                -c(self.fake(i, step, "generator")).mean() for i, c in enumerate(self.critics)
            )
            self.generator_optimizer.zero_grad()
            loss.backward()
            self.generator_optimizer.step()


def _linears(network):
    return [layer for layer in network if hasattr(layer, "weight") and not _is_norm(layer)]


def _is_norm(layer):
    return isinstance(layer, (BatchNorm, nn.BatchNorm1d))
