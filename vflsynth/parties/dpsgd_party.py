"""A party of VFLGAN whose local discriminator is trained by DP-SGD."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.parties.dpsgd import (
    DPSGDSettings,
    NoisyDescent,
    between_fakes,
    layer_traces,
    layers_of,
)
from vflsynth.parties.public_encoding import PublicEncoding
from vflsynth.parties.settings import Settings
from vflsynth.parties.vflgan_party import VFLGANParty
from vflsynth.privacy.dpsgd import LayerTrace
from vflsynth.protocol import CutGradients, Message, PoissonSchedule, SampledFeatures, Schedule
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class DPSGDParty(VFLGANParty):
    """A party of VFLGAN with DP-SGD on all parameters of its local discriminator.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`; the transformer is replaced by one made of public knowledge.

    Notes
    -----
    Source: Abadi et al. 2016, Algorithm 1, in place of VFLGAN Eqs. 14-16. Real records enter by
    ``E[F(x)]`` alone, through `NoisyDescent`. The gradient penalty is taken between fakes, which
    are post-processing of earlier steps, as are the generators.

    The head's bias is left at its initial value: it adds the same to all scores.
    """

    schedule: PoissonSchedule

    def set_privacy(
        self, encoding: PublicEncoding, dpsgd: DPSGDSettings, noise: torch.Generator | None = None
    ) -> None:
        """Learn what the parties agreed on, which may depend on a public number of records."""
        self.encoding, self.dpsgd, self._noise = encoding, dpsgd, noise

    def prepare(self) -> None:
        """Publish noisy histograms, if they are paid for, and make the encoding."""
        matched = self.matched()
        self.histograms = self.encoding.histograms(self.name, matched, self._noise)
        self.transformer = self.encoding.transformer(self.name, matched, self.histograms)

    def build(self, settings: Settings, schedule: Schedule, streams: RandomStreams) -> None:
        """Encode the records, and make networks and optimisers."""
        super().build(settings, schedule, streams)
        self.discriminator_optimizer.learning_rate = self.dpsgd.learning_rate
        self.descent = NoisyDescent(self.dpsgd, settings.batch_size, self._noise)

    # -- discriminator step ----------------------------------------------------------------------

    @torch.no_grad()
    def sampled_features(self, step: int) -> SampledFeatures:
        """Compute the features of a Poisson sample of records, of fakes and between fakes."""
        self.descent.budget.take()
        schedule = self.schedule
        fake = self.fake(step, "discriminator")
        mixed = between_fakes(fake, schedule.interpolation(step))
        trace = self.discriminator.first_part.trace(torch.cat([self.real(step), fake, mixed], 1))
        self._pending = step, trace
        sent = trace[-1]
        if self.settings.gradient_penalty == "paper":  # the server mixes features itself
            sent = sent[:, : -schedule.batch_size]
        return SampledFeatures(self.name, SERVER, step, sent, schedule.n_real(step))

    @torch.no_grad()
    def update_discriminator(self, message: CutGradients) -> None:
        """Descend L_{D_i} + L_{D_s}: the penalty as it is, everything else by `NoisyDescent`."""
        assert self._pending is not None
        trace = self._answered(message, self._pending[1][-1].shape[1] - self.schedule.batch_size)
        rows = message.gradients.shape[1]
        nothing = message.gradients[:, :0]
        _, penalty = self.discriminator.write_gradient(
            [outputs[:, rows:] for outputs in trace],
            nothing,
            self.settings.gradient_penalty_weight,
            upstream=nothing[..., :1],
        )
        judged = [outputs[:, :rows] for outputs in trace]
        fake_score = self._add_records(judged, message.gradients, message.step)
        self.discriminator_optimizer.step()
        self.losses.add(fake_score, penalty)

    def _add_records(self, trace: list[Tensor], cut_gradients: Tensor, step: int) -> Tensor:
        """Add the part of real and fake records; returns the head's mean score of the fakes.

        F is D_s plus the head: its gradient at the features is dD_s/df_i plus the head's weight.
        """
        first, head = self.discriminator.first_part, self.discriminator.second_part
        layers, fake_score = layers_of(first), trace[-1].new_zeros(len(trace[-1]))
        if head is not None:
            cut_gradients = cut_gradients + head.weight.mT
        traces = layer_traces(first, trace, first.cotangents(trace, cut_gradients))
        if head is not None:
            ones = torch.ones_like(trace[-1][..., :1])
            layers.append((head.weight, None))
            traces.append(LayerTrace(trace[-1], ones, has_bias=False))
            fake_score = head.forward(trace[-1][:, -self.schedule.batch_size :]).mean((1, 2))
        self.descent.add(layers, traces, self.schedule.n_real(step))
        return fake_score

    # -- messages --------------------------------------------------------------------------------

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        match verb:
            case Verb.DISCRIMINATOR_FEATURES:
                return self.sampled_features(step)
            case Verb.MASKED_REAL | Verb.MASKED_FAKE:
                raise ProtocolError(
                    f"party {self.name!r} refuses {verb.value!r}: the privacy ledger has no entry "
                    "for it"
                )
            case _:
                return super().answer(verb, step)
