"""A party of VertiGAN, or holder of a joined table, whose discriminator is trained by DP-SGD."""

from __future__ import annotations

import torch

from vflsynth.parties.dpsgd import (
    between_fakes,
    descend_critic,
    layer_traces,
    layers_of,
    of_rows,
    penalty_traces,
    towards,
    without_last_bias,
    zero_gradients,
)
from vflsynth.parties.private_party import NoisyDescentParty
from vflsynth.parties.vertigan_party import VertiGANParty
from vflsynth.protocol import PoissonSchedule


class VertiGANDPSGDParty(NoisyDescentParty, VertiGANParty):
    """A party of VertiGAN with DP-SGD on all parameters of its discriminator, Poisson batches.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`; the transformer is replaced by one made of public knowledge.

    Notes
    -----
    Source: Abadi et al. 2016, Algorithm 1; what `DPSGDParty` and `DPSGDServer` do, in one place.
    Jiang et al. 2023 have DP-SGD in every party as well, without public code. Alone, such a party
    is WGAN-GP with DP-SGD.

    Privacy: all that leaves the party, gradients of fakes and reports, is computed from its
    discriminator as released. All parties draw the same batches, so a record moves all their
    releases of a step at once: their joint sensitivity counts.
    """

    def _descend_discriminator(self, step: int) -> None:
        """Take one step of D."""
        self.descent.budget.take()
        schedule = self.schedule
        assert isinstance(schedule, PoissonSchedule)
        real, fake = self.real(step), self.fake(step, "discriminator")
        if self.dpsgd.penalty_at_records:
            mixed = towards(real, fake, schedule.partners(step))
        else:
            mixed = between_fakes(fake, schedule.interpolation(step))
        fake_score, penalty, _ = descend_critic(
            self.discriminator,
            self.descent,
            torch.cat([real, fake], 1),
            mixed,
            schedule.n_real(step),
            self.settings.gradient_penalty_weight,
        )
        self.discriminator_optimizer.step()
        self.losses.add(fake_score, penalty)


class DPSGDGANParty(VertiGANDPSGDParty):
    """WGAN-GP as DPSGD-GAN trains it: one clipped gradient per *pair* of a real and a fake record.

    Parameters
    ----------
    name, frame, on, transformer
        See `Party`; the transformer is replaced by one made of public knowledge.

    Notes
    -----
    Source: Zhang, Ji and Wang 2018, in the form that the VFLGAN paper accounts for (§5.2.1): the
    gradient of ``D(x~) - D(x) + λ (|slope of D between x and x~| - 1)²`` is clipped as a whole, for
    a batch of fixed size.

    Departs from the paper, which also groups parameters, adapts the clipping bound to public data
    and warm-starts on them: there are no public records here.

    Differs from `VertiGANDPSGDParty` in three things: the gradient of the fake and of the penalty
    is part of what is clipped and noisy, though neither needs to be; the batch has a fixed size,
    drawn without replacement, accounted for under replace-one; record and fake of a pair meet by
    their place in the batch, which is drawn and follows from nothing about the record.
    """

    def _descend_discriminator(self, step: int) -> None:
        """Take one step of D."""
        self.descent.budget.take()
        discriminator, batch = self.discriminator, self.settings.batch_size
        real, fake = self.real(step), self.fake(step, "discriminator")
        mixed = torch.lerp(fake, real, self.schedule.interpolation(step))
        trace = discriminator.trace(torch.cat([real, fake, mixed], 1))
        cotangents = discriminator.cotangents(trace, torch.ones_like(trace[-1]))
        judged = without_last_bias(layer_traces(discriminator, trace, cotangents))
        penalties, _ = penalty_traces(
            discriminator,
            [outputs[:, 2 * batch :] for outputs in trace],
            [cotangent[:, 2 * batch :] for cotangent in cotangents],
            self.settings.gradient_penalty_weight,
        )
        terms = [
            [of_rows(layer, slice(None, batch), -1.0) for layer in judged],
            [of_rows(layer, slice(batch, 2 * batch)) for layer in judged],
            penalties,
        ]
        zero_gradients(discriminator)
        self.descent.release(layers_of(discriminator), terms)
        self.discriminator_optimizer.step()
        fake_score = trace[-1][:, batch : 2 * batch].mean((1, 2))
        self.losses.add(fake_score, torch.zeros_like(fake_score))
