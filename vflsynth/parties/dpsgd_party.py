"""A party of VFLGAN whose local discriminator is trained by DP-SGD."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsynth.networks.losses import slope_penalty
from vflsynth.parties.dpsgd import (
    between_fakes,
    layer_traces,
    layers_of,
    penalty_traces,
    towards,
    zero_gradients,
)
from vflsynth.parties.private_party import NoisyDescentParty
from vflsynth.parties.vflgan_party import VFLGANParty
from vflsynth.privacy.dpsgd import LayerTrace
from vflsynth.protocol import CutGradients, Message, PoissonSchedule, SampledFeatures
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER


class DPSGDParty(NoisyDescentParty, VFLGANParty):
    """A party of VFLGAN with DP-SGD on all parameters of its local discriminator.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`; the transformer is replaced by one made of public knowledge.

    Notes
    -----
    Source: Abadi et al. 2016, Algorithm 1, in place of VFLGAN Eqs. 14-16. Real records enter by
    ``E[F(x)]``, through `NoisyDescent`, and by the gradient penalty only if that is taken at
    records, as the paper's is; then every record's penalty is clipped together with its F. Taken
    between fakes, it is post-processing of earlier steps, as are the generators.

    The head's bias is left at its initial value: it adds the same to all scores.
    """

    schedule: PoissonSchedule

    # -- discriminator step ----------------------------------------------------------------------

    @torch.no_grad()
    def sampled_features(self, step: int) -> SampledFeatures:
        """Compute the features of a Poisson sample of records, of fakes and of mixed points."""
        self.descent.budget.take()
        schedule = self.schedule
        real, fake = self.real(step), self.fake(step, "discriminator")
        at_records = self.dpsgd.penalty_at_records
        if at_records:
            mixed = towards(real, fake, partners := schedule.partners(step))
        else:
            mixed = between_fakes(fake, schedule.interpolation(step))
        trace = self.discriminator.first_part.trace(torch.cat([real, fake, mixed], 1))
        self._pending = step, trace
        sent = trace[-1]
        if self.settings.gradient_penalty == "paper":  # features are mixed, not records
            sent, n_real = sent[:, : -mixed.shape[1]], real.shape[1]
            if at_records:  # by the parties: the server must not know who meets whom
                between = towards(sent[:, :n_real], sent[:, n_real:], partners)
                sent = torch.cat([sent, between], 1)
        return SampledFeatures(self.name, SERVER, step, sent, schedule.n_real(step))

    @torch.no_grad()
    def update_discriminator(self, message: CutGradients) -> None:
        """Descend L_{D_i} + L_{D_s}, where `NoisyDescent` adds what depends on real records."""
        assert self._pending is not None
        n_rows, batch = self._pending[1][-1].shape[1], self.schedule.batch_size
        at_records = self.dpsgd.penalty_at_records
        trace = self._answered(message, (n_rows + batch) // 2 if at_records else n_rows - batch)
        rows = message.gradients.shape[1]
        penalties, penalty = None, message.gradients.new_zeros(len(message.gradients))
        if at_records:
            penalties = self._penalties_at_records([outputs[:, rows:] for outputs in trace])
        else:
            nothing = message.gradients[:, :0]
            _, penalty = self.discriminator.write_gradient(
                [outputs[:, rows:] for outputs in trace],
                nothing,
                self.settings.gradient_penalty_weight,
                upstream=nothing[..., :1],
            )
        judged = [outputs[:, :rows] for outputs in trace]
        fake_score = self._add_records(judged, message.gradients, message.step, penalties)
        self.discriminator_optimizer.step()
        self.losses.add(fake_score, penalty)

    def _penalties_at_records(self, mixed: list[Tensor]) -> list[LayerTrace] | None:
        """Per-record gradients of this party's penalty; sets all others, which are public."""
        first, head = self.discriminator.first_part, self.discriminator.second_part
        weight = self.settings.gradient_penalty_weight
        zero_gradients(self.discriminator)
        of_whole = self.settings.gradient_penalty == "paper"
        if head is not None and not of_whole:  # its slope is its weight, whatever the record
            assert head.weight.grad is not None
            head.weight.grad.copy_(slope_penalty(head.weight.mT, weight)[1].mT)
        if head is None and of_whole:
            return None
        slopes = first.cotangents(mixed, self.discriminator.mixed_upstream(mixed[-1]))
        traces, carried = penalty_traces(first, mixed, slopes, weight)
        if head is not None:
            ones = torch.ones_like(carried[..., :1])
            traces.append(
                LayerTrace(carried if of_whole else torch.zeros_like(carried), ones, has_bias=False)
            )
        return traces

    def _add_records(
        self,
        trace: list[Tensor],
        cut_gradients: Tensor,
        step: int,
        penalties: list[LayerTrace] | None,
    ) -> Tensor:
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
        self.descent.add(layers, traces, self.schedule.n_real(step), penalties)
        return fake_score

    # -- messages --------------------------------------------------------------------------------

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        if verb is Verb.DISCRIMINATOR_FEATURES:
            return self.sampled_features(step)
        return super().answer(verb, step)
