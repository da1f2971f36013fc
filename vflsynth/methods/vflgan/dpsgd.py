"""DP-SGD for VFLGAN: each owner of a part of the cut discriminator clips its part of a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms import DPSGDPlan
from vflsynth.mechanisms.noisy_descent import NoisyDescent, layer_traces
from vflsynth.methods.gan.critics import DPSGDDescent, between_fakes, descend_critic
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vflgan.messages import SampledFeatures, Shape
from vflsynth.methods.vflgan.party import Cut, VFLGANParty
from vflsynth.methods.vflgan.server import VFLGANServer
from vflsynth.privacy.dpsgd import LayerTrace
from vflsynth.protocol.channel import SERVER, Message
from vflsynth.protocol.messages import CutGradients
from vflsynth.protocol.schedule import PoissonSchedule


class DPSGDCut(DPSGDDescent, Cut):
    """DP-SGD on all parameters of a local discriminator; `noise` is for tests only.

    Source: Abadi et al. 2016, Algorithm 1, in place of VFLGAN Eqs. 14-16. Real records enter by
    ``E[F(x)]`` alone, through `NoisyDescent`. The gradient penalty, taken between fakes, is
    post-processing of earlier steps, as are the generators.

    The head's bias is left at its initial value: it adds the same to all scores.
    """

    def features(self, party: VFLGANParty, step: int) -> Message:
        """Pay, and compute features of a Poisson sample of records, of fakes and mixed points."""
        self.noisy.budget.take()
        real, fake = party.real(step), party.fake(step, "discriminator")
        schedule = _poisson(party)
        mixed = between_fakes(fake, schedule.interpolation(step))
        sent = party.trace(step, torch.cat([real, fake, mixed], 1))[-1]
        if party.settings.gradient_penalty == "paper":  # features are mixed, not records
            sent = sent[:, : -mixed.shape[1]]
        return SampledFeatures(party.name, SERVER, step, sent, schedule.n_real(step))

    def descend(self, party: VFLGANParty, message: CutGradients) -> tuple[Tensor, Tensor]:
        """Set the gradients, where `NoisyDescent` adds what depends on real records."""
        trace = party.answered(message, party.pending_rows.shape[1] - party.schedule.batch_size)
        rows, nothing = message.gradients.shape[1], message.gradients[:, :0]
        mixed, weight = [o[:, rows:] for o in trace], party.settings.gradient_penalty_weight
        judged = party.discriminator.judge(mixed, nothing, weight, upstream=nothing[..., :1])
        _, penalty = party.discriminator.settle(judged)
        return self._add_records(party, [outputs[:, :rows] for outputs in trace], message), penalty

    def _add_records(
        self, party: VFLGANParty, trace: list[Tensor], message: CutGradients
    ) -> Tensor:
        """Add the part of real and fake records; returns the head's mean score of the fakes.

        F is D_s plus the head: its gradient at the features is dD_s/df_i plus the head's weight.
        """
        first, head = party.discriminator.first_part, party.discriminator.second_part
        layers, fake_score = [*first.layers], trace[-1].new_zeros(len(trace[-1]))
        cut_gradients = message.gradients
        if head is not None:
            cut_gradients = cut_gradients + head.weight.mT
        traces = layer_traces(first, trace, first.cotangents(trace, cut_gradients))
        if head is not None:
            ones = torch.ones_like(trace[-1][..., :1])
            layers.append((head.weight, None))
            traces.append(LayerTrace(trace[-1], ones, has_bias=False))
            fake_score = head.forward(trace[-1][:, -party.schedule.batch_size :]).mean((1, 2))
        self.noisy.add(layers, traces, _poisson(party).n_real(message.step))
        return fake_score


def _poisson(party: VFLGANParty) -> PoissonSchedule:
    assert isinstance(party.schedule, PoissonSchedule)
    return party.schedule


class DPSGDServer(VFLGANServer):
    """The server of VFLGAN with DP-SGD on the shared discriminator; `noise` is for tests only.

    Sees the features of every sampled record without noise and must be trusted to add it to what it
    computes from them.
    """

    features = SampledFeatures

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
        blocks, weight = self._blocks(step, received), self.settings.gradient_penalty_weight
        return descend_critic(self.discriminator, self.noisy, *blocks, weight)

    def _blocks(
        self, step: int, received: Mapping[str, SampledFeatures]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Join the parties' features: of real and fake records, of mixed ones; and sample sizes."""
        first, batch = received[min(received)], self.settings.batch_size
        n_sent = first.features.shape[1]
        n_rows = n_sent - (self.settings.sent_blocks - 1) * batch
        for name, message in received.items():
            if n_rows < int(message.n_real.max()) or not torch.equal(message.n_real, first.n_real):
                raise ProtocolError(
                    f"party {name!r} sampled {message.n_real.tolist()} records in "
                    f"{n_rows} rows, where party {first.sender!r} sampled {first.n_real.tolist()}"
                )
        features = self.join(received, n_sent)
        judged = features[:, : n_rows + batch]
        if self.settings.gradient_penalty == "layerwise":
            return judged, features[:, n_rows + batch :], first.n_real
        weights = self.streams.uniform("interpolation", step, (batch, 1))  # features, not records
        return judged, between_fakes(judged[:, n_rows:], weights), first.n_real
