"""WGAN-GP: which mechanisms it can have."""

from __future__ import annotations

from typing import ClassVar

from vflsynth.mechanisms import Discriminators
from vflsynth.methods.gan.critics import (
    DPSGDGANCritic,
)
from vflsynth.methods.vertigan.method import VertiGANMethod
from vflsynth.methods.wgan_gp.dpsgd_gan import DPSGDGAN
from vflsynth.methods.wgan_gp.gs_wgan import GSWGAN
from vflsynth.methods.wgan_gp.gs_wgan_critic import GSWGANCritic


class WGANGPMethod(VertiGANMethod):
    """WGAN-GP: VertiGAN with one party, who holds the joined table."""

    owners = Discriminators.JOINED
    descents: ClassVar = VertiGANMethod.descents | {
        DPSGDGAN: DPSGDGANCritic,
        GSWGAN: lambda plan, _, noise: GSWGANCritic(plan, noise),
    }
