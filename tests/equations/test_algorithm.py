"""Training through the message boundary equals one joint autograd graph (VFLGAN, Algorithm 1).

The reference below knows no parties: all networks in one graph, one backward for all
discriminators, one for all generators, `torch.optim.Adam` for each network, gradient penalties by
double backward. Everything is in float64, and only the random draws are shared.
"""

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vflsynth.columns import TableTransformer
from vflsynth.learning.base import FromRecords
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vflgan.messages import Shape
from vflsynth.methods.vflgan.method import VFLGAN
from vflsynth.methods.vflgan.party import Cut, VFLGANParty
from vflsynth.methods.vflgan.server import EndToEndServer, VFLGANServer
from vflsynth.protocol.channel import LocalChannel
from vflsynth.protocol.schedule import Schedule
from vflsynth.run.local import match_records

BATCH = 8
STEEPER = 3.0
STEPS = 11  # two generator steps among them


def settings_of(penalty: str, *, heads: bool, bias: bool) -> Settings:
    return Settings(
        batch_size=BATCH,
        latent_dim=3,
        generator_hidden=(6, 5),
        first_part=(7, 4),
        shared_hidden=(6,),
        private_heads=heads,
        bias=bias,
        batch_norm_eps=0.8,
        gumbel_temperature=0.5,
        gradient_penalty=penalty,
        gradient_penalty_weight=3.0,
        learning_rate=0.01,
        betas=(0.5, 0.999),
        generator_average=0.0,
        n_evaluation=10,
        shared_weights=(0.7, 1.6),
    )


def penalty_is_joint(settings):
    return settings.gradient_penalty == "end_to_end"


def build(frames, settings, streams, replicas):
    """The package's parties, server and algorithm."""
    parties = [VFLGANParty(name, frame, "record_id") for name, frame in frames.items()]
    channel = LocalChannel(parties)
    alignment = match_records(channel, frames, "record_id")
    root = streams(replicas)
    schedule = Schedule(
        root.child("shared"), n_records=alignment.n_matched, batch_size=BATCH, latent_dim=3
    )
    for party in parties:
        party.prepare(FromRecords(TableTransformer()))
        party.build_with(Cut(), settings, schedule, root.child(party.name))
        party.records = party.records.double()
    kind = EndToEndServer if penalty_is_joint(settings) else VFLGANServer
    server = kind(settings, channel.gather(Shape, 0), root.child("server"))
    if penalty_is_joint(settings):  # slopes on both sides of one
        for owner in (*parties, server):
            for weights in owner.discriminator.parameters():
                weights.data.mul_(STEEPER)
    algorithm = VFLGAN(channel, server, selects=False)
    return sorted(parties, key=lambda party: party.name), server, algorithm


class JointVFLGAN:
    """One replica of VFLGAN as one graph, with the same initial weights."""

    def __init__(self, parties, server, settings, replica, plain):
        self.parties, self.settings, self.r = parties, settings, replica
        self.schedule, self.server_streams = parties[0].schedule, server.streams
        self.generators, self.firsts, self.heads = [], [], []
        for party in parties:
            first, second = (plain([party.generator.hidden[i]], replica, False) for i in (0, 2))
            norm = nn.BatchNorm1d(5, eps=settings.batch_norm_eps)
            output = plain([party.generator.output], replica, False)
            leaky = nn.LeakyReLU(0.2)
            self.generators.append(nn.Sequential(first, leaky, second, norm, leaky, output))
            self.firsts.append(plain(party.discriminator.first_part.linears, replica, True))
            if settings.private_heads:
                self.heads.append(plain([party.discriminator.second_part], replica, False))
        self.shared = plain(server.discriminator.linears, replica, False)
        discriminators = [*self.firsts, *self.heads, self.shared]
        self.discriminator_optimizers = [self.adam(network) for network in discriminators]
        self.excesses = []
        self.generator_optimizers = [self.adam(network) for network in self.generators]

    def adam(self, network):
        settings = self.settings
        return torch.optim.Adam(
            network.parameters(), lr=settings.learning_rate, betas=settings.betas
        )

    def fakes(self, step, stream):
        latent = self.schedule.latent(step)[self.r]
        rows = []
        for party, generator in zip(self.parties, self.generators, strict=True):
            raw, activation = generator(latent), party.generator.activation
            noise = torch.zeros_like(raw)
            gumbel = party.generator.noise(party.streams, f"gumbel.{stream}", step, BATCH)
            if gumbel is not None:
                gumbel = gumbel[self.r]
                noise[:, activation.columns[activation.filled]] = gumbel[:, activation.filled]
            columns = list(raw.unbind(1))
            for span in party.transformer.spans_:
                if span.activation == "softmax":
                    place = slice(span.start, span.stop)
                    logits = (raw[:, place] + noise[:, place]) / self.settings.gumbel_temperature
                    soft = torch.softmax(logits, 1)
                    hard = F.one_hot(soft.argmax(1), span.width) + soft - soft.detach()
                    columns[place] = hard.unbind(1)
            for span in party.transformer.spans_:
                if span.gate is not None:
                    columns[span.start] = columns[span.start] * columns[span.gate]
            rows.append(torch.stack(columns, 1))
        return rows

    def discriminator_step(self, step):
        settings, r = self.settings, self.r
        rows = self.schedule.rows(step)[r]
        real = [party.records[rows] for party in self.parties]
        self.drawn = self.fakes(step, "discriminator")
        fake = [rows.detach() for rows in self.drawn]
        a = self.schedule.interpolation(step)[r]
        mixed = [a * x + (1 - a) * y for x, y in zip(real, fake, strict=True)]

        f_real = [first(x) for first, x in zip(self.firsts, real, strict=True)]
        f_fake = [first(x) for first, x in zip(self.firsts, fake, strict=True)]
        loss = self.shared(torch.cat(f_fake, 1)).mean() - self.shared(torch.cat(f_real, 1)).mean()
        loss = settings.shared_weights[0] * loss
        for head, x, y in zip(self.heads, f_real, f_fake, strict=False):
            loss = loss + head(y).mean() - head(x).mean()

        def penalty(network, inputs):
            inputs = inputs.detach().requires_grad_()
            (slopes,) = torch.autograd.grad(network(inputs).sum(), inputs, create_graph=True)
            excess = slopes.norm(dim=1) - 1
            if penalty_is_joint(settings):
                self.excesses.append(excess.detach())
                excess = excess.clamp(min=0)
            return (excess**2).mean()

        if penalty_is_joint(settings):  # slopes of all whole critics at records
            terms = [
                penalty(nn.Sequential(*first, *head), x)
                for first, head, x in zip(self.firsts, self.heads, mixed, strict=False)
            ]
            of_shared = penalty(self.whole_shared, torch.cat(mixed, 1))
        elif settings.gradient_penalty == "layerwise":  # the release's five terms
            f_mixed = [first(x) for first, x in zip(self.firsts, mixed, strict=True)]
            terms = [penalty(first, x) for first, x in zip(self.firsts, mixed, strict=True)]
            terms += [penalty(head, f) for head, f in zip(self.heads, f_mixed, strict=False)]
        else:  # Eq. 8: whole local discriminators, interpolated features for the shared one
            b = self.server_streams.uniform("interpolation", step, (BATCH, 1))[r]
            f_mixed = [b * x + (1 - b) * y for x, y in zip(f_real, f_fake, strict=True)]
            terms = [
                penalty(nn.Sequential(*first, *head), x)
                for first, head, x in zip(self.firsts, self.heads, mixed, strict=False)
            ]
        if not penalty_is_joint(settings):
            of_shared = penalty(self.shared, torch.cat(f_mixed, 1))
        terms.append(settings.shared_weights[0] * of_shared)  # λ_1 of Eq. 8
        loss = loss + settings.gradient_penalty_weight * sum(terms)
        for optimizer in self.discriminator_optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.discriminator_optimizers:
            optimizer.step()

    def whole_shared(self, records):
        """D_s o (C_1 .. C_M) of joint records."""
        parts = records.split([party.transformer.width_ for party in self.parties], 1)
        features = [first(part) for first, part in zip(self.firsts, parts, strict=True)]
        return self.shared(torch.cat(features, 1))

    def generator_step(self):
        """Eqs. 9, 17-19: one loss for all generators."""
        features = [first(x) for first, x in zip(self.firsts, self.drawn, strict=True)]
        loss = -self.settings.shared_weights[1] * self.shared(torch.cat(features, 1)).mean()
        for head, f in zip(self.heads, features, strict=False):
            loss = loss - head(f).mean()
        for optimizer in self.generator_optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.generator_optimizers:
            optimizer.step()

    def assert_equal(self, parties, server):
        """Same weights, same running statistics; slopes were on both sides of one."""
        if self.excesses:
            excesses = torch.cat(self.excesses)
            assert excesses.min() < 0.0 < excesses.max()
        pairs = list(zip(server.discriminator.linears, linears_of(self.shared), strict=True))
        for i, party in enumerate(parties):
            pairs += zip(
                party.discriminator.first_part.linears, linears_of(self.firsts[i]), strict=True
            )
            if self.heads:
                pairs.append((party.discriminator.second_part, self.heads[i][0]))
            hidden, generator = party.generator.hidden, self.generators[i]
            pairs += [(hidden[0], generator[0][0]), (hidden[2], generator[2][0])]
            pairs.append((party.generator.output, generator[5][0]))
            for name in ("weight", "bias", "running_mean", "running_var"):
                close(getattr(hidden[3], name)[self.r, 0], getattr(generator[3], name))
        for mine, theirs in pairs:
            close(mine.weight[self.r], theirs.weight.T)
            if mine.bias is not None:
                close(mine.bias[self.r, 0], theirs.bias)


def linears_of(network):
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-9)


CASES = list(
    itertools.product(["end_to_end", "layerwise", "paper"], [True, False], [True, False], [1, 2, 3])
)
PAIRS = {  # any two choices meet in one of them
    ("end_to_end", True, True, 1),
    ("end_to_end", False, False, 2),
    ("end_to_end", True, False, 3),
    ("layerwise", True, True, 2),
    ("layerwise", False, False, 3),
    ("layerwise", True, False, 1),
    ("paper", True, True, 3),
    ("paper", False, False, 2),
    ("paper", False, True, 1),
}


@pytest.mark.parametrize(
    ("penalty", "heads", "bias", "n_parties"),
    [c if c in PAIRS else pytest.param(*c, marks=pytest.mark.slow) for c in CASES],
)
def test_steps_through_messages_equal_a_joint_graph(
    streams, plain, party_frames, n_parties, penalty, heads, bias
):
    settings = settings_of(penalty, heads=heads, bias=bias)
    frames = party_frames(n_parties, 30)
    parties, server, algorithm = build(frames, settings, streams, replicas=2)
    joint = [JointVFLGAN(parties, server, settings, r, plain) for r in range(2)]
    before = parties[0].generator.output.weight.detach().clone()
    for step in range(STEPS):
        algorithm.step(step)
        for reference in joint:
            reference.discriminator_step(step)
            if step % 5 == 4:
                reference.generator_step()
    assert not torch.equal(before, parties[0].generator.output.weight)
    for reference in joint:
        reference.assert_equal(parties, server)


def test_the_report_is_the_mean_of_the_steps(streams, party_frames):
    """Wasserstein estimates are E[D(x)] - E[D(x~)], penalties without their weight."""
    settings = settings_of("layerwise", heads=True, bias=True)
    parties, _, algorithm = build(party_frames(2, 30), settings, streams, replicas=2)
    seen = {party.name: [] for party in parties}
    for party in parties:
        add = party.losses.add

        def watch(wasserstein, penalty, *, add=add, name=party.name):
            seen[name].append(torch.stack([wasserstein, penalty]))
            add(wasserstein, penalty)

        party.losses.add = watch
    for step in range(4):
        algorithm.step(step)
    report = algorithm.report(1)
    for name, steps in seen.items():
        expected = torch.stack(steps).mean(0)
        torch.testing.assert_close(report[f"wasserstein_{name}"], expected[0])
        torch.testing.assert_close(report[f"penalty_{name}"], expected[1])
    assert set(report) == {
        f"{loss}_{who}"
        for loss in ("wasserstein", "penalty")
        for who in ("shared", "party_1", "party_2")
    }


@pytest.mark.parametrize("n_parties", [1, 2])
def test_a_window_goes_on_with_the_others_slopes_of_its_beginning(
    streams, plain, party_frames, n_parties
):
    """Several steps on one exchange: every owner's own part anew, the others' as it was."""
    settings = replace(settings_of("end_to_end", heads=True, bias=True), steps_per_exchange=3)
    frames = party_frames(n_parties, 30)
    parties, server, algorithm = build(frames, settings, streams, replicas=1)
    joint = JointVFLGAN(parties, server, settings, 0, plain)
    weight, rows = settings.gradient_penalty_weight, joint.schedule.rows(0)[0]
    of_shared = settings.shared_weights[0]
    real = [party.records[rows] for party in parties]
    fake = [rows.detach() for rows in joint.fakes(0, "discriminator")]
    a = joint.schedule.interpolation(0)[0]
    mixed = [(a * x + (1 - a) * y).requires_grad_() for x, y in zip(real, fake, strict=True)]

    def features(of):
        return [first(x) for first, x in zip(joint.firsts, of, strict=True)]

    def inner(f, x):
        return torch.autograd.grad(f.sum(), x, create_graph=True)

    at = [torch.cat(features(x), 1).detach().requires_grad_() for x in (real, fake, mixed)]
    before = of_shared * (joint.shared(at[1]).mean() - joint.shared(at[0]).mean())
    cut = [g.split(4, 1) for g in torch.autograd.grad(before, at[:2])]
    upstream = [c.detach() for c in inner(joint.shared(at[2]), at[2])[0].split(4, 1)]
    pulled = torch.autograd.grad(
        sum((c * f).sum() for c, f in zip(upstream, features(mixed), strict=True)), mixed
    )
    squares = [g.square().sum(1) for g in pulled]
    unit = [g / sum(squares).sqrt().unsqueeze(1) for g in pulled]
    directions = torch.cat(  # J_i u_i, one party's features after the other's
        [
            torch.autograd.functional.jvp(first, x, u)[1]
            for first, x, u in zip(joint.firsts, mixed, unit, strict=True)
        ],
        1,
    ).detach()
    for _ in range(3):
        loss = joint.shared(at[1]).mean() - joint.shared(at[0]).mean()
        (slope,) = inner(joint.shared(at[2]), at[2])
        loss = of_shared * (
            loss + weight * ((slope * directions).sum(1) - 1).relu().square().mean()
        )
        for i, (first, head) in enumerate(zip(joint.firsts, joint.heads, strict=True)):
            f = [first(x[i]) for x in (real, fake)]
            loss = loss + sum((g[i] * x).sum() for g, x in zip(cut, f, strict=True))
            loss = loss - head(f[0]).mean() + head(f[1]).mean()
            (own,) = inner(head(first(mixed[i])), mixed[i])
            loss = loss + weight * (own.norm(dim=1) - 1).relu().square().mean()
            (part,) = inner(upstream[i] * first(mixed[i]), mixed[i])
            norms = (part.square().sum(1) + sum(squares) - squares[i]).sqrt()
            loss = loss + of_shared * weight * (norms - 1).relu().square().mean()
        for optimizer in joint.discriminator_optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in joint.discriminator_optimizers:
            optimizer.step()
    algorithm.step(0)
    joint.assert_equal(parties, server)
