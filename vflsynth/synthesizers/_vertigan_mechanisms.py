"""Noisy gradients for VertiGAN: DP-SGD, and the VFLGAN paper's own mechanism."""

from __future__ import annotations

from vflsynth._random import RandomStreams
from vflsynth.parties import (
    Settings,
    VertiGANDPSGDParty,
    VertiGANFirstLayerParty,
    VertiGANServer,
)
from vflsynth.privacy import Discriminators
from vflsynth.protocol import Channel
from vflsynth.synthesizers._private_gradients import Mechanisms
from vflsynth.synthesizers._vflgan_mechanisms import DPSGDMechanism, FirstLayerMechanism
from vflsynth.training import GANAlgorithm, PrivateVertiGAN


class VertiGANDPSGDMechanism(DPSGDMechanism):
    """Per-record clipping and noise in every party, whose discriminators are all that there are."""

    _party = VertiGANDPSGDParty
    _discriminators = Discriminators.PRIVATE

    def make_algorithm(
        self, channel: Channel, settings: Settings, streams: RandomStreams
    ) -> GANAlgorithm:
        """Make the algorithm; the last generators are kept, whatever they are."""
        at_records = self.dpsgd.penalty_at_records
        return PrivateVertiGAN(
            channel,
            VertiGANServer(settings, streams),
            discriminator_steps=self.model.discriminator_steps,
            reports="fake scores" if at_records else "fake scores and penalties",
        )


class VertiGANFirstLayerMechanism(FirstLayerMechanism):
    """The VFLGAN paper's, for every party's discriminator; everything else as without privacy."""

    _party = VertiGANFirstLayerParty
    _discriminators = Discriminators.PRIVATE


MECHANISMS: Mechanisms = {
    "dpsgd": VertiGANDPSGDMechanism,
    "first_layer": VertiGANFirstLayerMechanism,
}
