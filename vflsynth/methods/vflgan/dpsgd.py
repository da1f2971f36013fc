"""DP-SGD for VFLGAN: each owner of a part of the cut discriminator clips its part of a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms import DPSGDPlan
from vflsynth.mechanisms.noisy_descent import NoisyDescent, layer_traces, layers_of, zero_gradients
from vflsynth.methods.gan.critics import (
    between_fakes,
    descend_critic,
    penalty_traces,
    towards,
)
from vflsynth.methods.gan.discriminator import slope_penalty
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vflgan.messages import SampledFeatures, Shape
from vflsynth.methods.vflgan.party import Cut, VFLGANParty
from vflsynth.methods.vflgan.server import VFLGANServer
from vflsynth.privacy.dpsgd import LayerTrace
from vflsynth.protocol import SERVER, Message, PoissonSchedule
from vflsynth.protocol.messages import CutGradients


class DPSGDCut(Cut):
    """DP-SGD on all parameters of a local discriminator; `noise` is for tests only.

    Source: Abadi et al. 2016, Algorithm 1, in place of VFLGAN Eqs. 14-16. Real records enter by
    ``E[F(x)]``, through `NoisyDescent`, and by the gradient penalty only if that is taken at
    records, as the paper's is; then every record's penalty is clipped together with its F. Taken
    between fakes, it is post-processing of earlier steps, as are the generators.

    The head's bias is left at its initial value: it adds the same to all scores.
    """

    def __init__(
        self, plan: DPSGDPlan, batch_size: int, noise: torch.Generator | None = None
    ) -> None:
        self.noisy = NoisyDescent(plan, batch_size, noise)

    def start(self, party: VFLGANParty) -> None:
        """Give the discriminator the mechanism's learning rate."""
        party.discriminator_optimizer.learning_rate = self.noisy.plan.learning_rate

    def features(self, party: VFLGANParty, step: int) -> Message:
        """Pay, and compute features of a Poisson sample of records, of fakes and mixed points."""
        self.noisy.budget.take()
        real, fake = party.real(step), party.fake(step, "discriminator")
        schedule, at_records = _poisson(party), self.noisy.plan.penalty_at_records
        if at_records:
            mixed = towards(real, fake, partners := schedule.partners(step))
        else:
            mixed = between_fakes(fake, schedule.interpolation(step))
        sent = party.trace(step, torch.cat([real, fake, mixed], 1))[-1]
        if party.settings.gradient_penalty == "paper":  # features are mixed, not records
            sent, n_real = sent[:, : -mixed.shape[1]], real.shape[1]
            if at_records:  # by the parties: the server must not know who meets whom
                between = towards(sent[:, :n_real], sent[:, n_real:], partners)
                sent = torch.cat([sent, between], 1)
        return SampledFeatures(party.name, SERVER, step, sent, schedule.n_real(step))

    def descend(self, party: VFLGANParty, message: CutGradients) -> tuple[Tensor, Tensor]:
        """Set the gradients, where `NoisyDescent` adds what depends on real records."""
        n_rows, batch = party.n_pending, party.schedule.batch_size
        at_records = self.noisy.plan.penalty_at_records
        trace = party.answered(message, (n_rows + batch) // 2 if at_records else n_rows - batch)
        rows = message.gradients.shape[1]
        penalties, penalty = None, message.gradients.new_zeros(len(message.gradients))
        if at_records:
            penalties = _penalties_at_records(party, [outputs[:, rows:] for outputs in trace])
        else:
            nothing = message.gradients[:, :0]
            _, penalty = party.discriminator.write_gradient(
                [outputs[:, rows:] for outputs in trace],
                nothing,
                party.settings.gradient_penalty_weight,
                upstream=nothing[..., :1],
            )
        judged = [outputs[:, :rows] for outputs in trace]
        return self._add_records(party, judged, message, penalties), penalty

    def _add_records(
        self,
        party: VFLGANParty,
        trace: list[Tensor],
        message: CutGradients,
        penalties: list[LayerTrace] | None,
    ) -> Tensor:
        """Add the part of real and fake records; returns the head's mean score of the fakes.

        F is D_s plus the head: its gradient at the features is dD_s/df_i plus the head's weight.
        """
        first, head = party.discriminator.first_part, party.discriminator.second_part
        layers, fake_score = layers_of(first), trace[-1].new_zeros(len(trace[-1]))
        cut_gradients = message.gradients
        if head is not None:
            cut_gradients = cut_gradients + head.weight.mT
        traces = layer_traces(first, trace, first.cotangents(trace, cut_gradients))
        if head is not None:
            ones = torch.ones_like(trace[-1][..., :1])
            layers.append((head.weight, None))
            traces.append(LayerTrace(trace[-1], ones, has_bias=False))
            fake_score = head.forward(trace[-1][:, -party.schedule.batch_size :]).mean((1, 2))
        self.noisy.add(layers, traces, _poisson(party).n_real(message.step), penalties)
        return fake_score


def _penalties_at_records(party: VFLGANParty, mixed: list[Tensor]) -> list[LayerTrace] | None:
    """Per-record gradients of this party's penalty; sets all others, which are public."""
    first, head = party.discriminator.first_part, party.discriminator.second_part
    weight = party.settings.gradient_penalty_weight
    zero_gradients(party.discriminator)
    of_whole = party.settings.gradient_penalty == "paper"
    if head is not None and not of_whole:  # its slope is its weight, whatever the record
        assert head.weight.grad is not None
        head.weight.grad.copy_(slope_penalty(head.weight.mT, weight)[1].mT)
    if head is None and of_whole:
        return None
    slopes = first.cotangents(mixed, party.discriminator.mixed_upstream(mixed[-1]))
    traces, carried = penalty_traces(first, mixed, slopes, weight)
    if head is not None:
        ones = torch.ones_like(carried[..., :1])
        traces.append(
            LayerTrace(carried if of_whole else torch.zeros_like(carried), ones, has_bias=False)
        )
    return traces


def _poisson(party: VFLGANParty) -> PoissonSchedule:
    assert isinstance(party.schedule, PoissonSchedule)
    return party.schedule


class DPSGDServer(VFLGANServer):
    """The server of VFLGAN with DP-SGD on the shared discriminator; `noise` is for tests only.

    Sees the features of every sampled record without noise and must be trusted to add it to what it
    computes from them.
    """

    def __init__(
        self,
        settings: Settings,
        shapes: Mapping[str, Shape],
        streams: RandomStreams,
        plan: DPSGDPlan,
        noise: torch.Generator | None = None,
    ) -> None:
        super().__init__(settings, shapes, streams)
        self.optimizer.learning_rate = plan.learning_rate
        self.noisy = NoisyDescent(plan, settings.batch_size, noise)

    def descend(  # type: ignore[override]
        self, step: int, received: Mapping[str, SampledFeatures]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Set the gradients of D_s, and return those of dD_s(f)/df of real and fake records.

        They are neither averaged nor negated, because each party clips per record.
        """
        self.noisy.budget.take()
        judged, mixed, n_real = self._blocks(step, received)
        return descend_critic(
            self.discriminator,
            self.noisy,
            judged,
            mixed,
            n_real,
            self.settings.gradient_penalty_weight,
        )

    def _blocks(
        self, step: int, received: Mapping[str, SampledFeatures]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Join the parties' features: of real and fake records, of mixed ones; and sample sizes."""
        first, batch = received[min(received)], self.settings.batch_size
        at_records = self.noisy.plan.penalty_at_records
        n_sent = first.features.shape[1]
        n_public = (1 if at_records else self.settings.sent_blocks - 1) * batch
        n_rows = (n_sent - n_public) // (2 if at_records else 1)
        for name, message in received.items():
            if n_rows < int(message.n_real.max()) or not torch.equal(message.n_real, first.n_real):
                raise ProtocolError(
                    f"party {name!r} sampled {message.n_real.tolist()} records in "
                    f"{n_rows} rows, where party {first.sender!r} sampled {first.n_real.tolist()}"
                )
        features = self.join(received, n_sent)
        judged = features[:, : n_rows + batch]
        if at_records or self.settings.gradient_penalty == "layerwise":
            return judged, features[:, n_rows + batch :], first.n_real
        weights = self.streams.uniform("interpolation", step, (batch, 1))  # features, not records
        return judged, between_fakes(judged[:, n_rows:], weights), first.n_real
