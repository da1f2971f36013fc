"""What parties have in common whose records may be read only as their privacy ledger says."""

from __future__ import annotations

import torch

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.networks.adam import FlatAdam
from vflsynth.parties.dpsgd import DPSGDSettings, NoisyDescent
from vflsynth.parties.gan_party import GANParty
from vflsynth.parties.settings import Settings
from vflsynth.privacy.encoding import PublicEncoding
from vflsynth.protocol import Message, Schedule
from vflsynth.protocol.channel import Verb


class PrivateParty(GANParty):
    """A party that encodes by public knowledge and refuses what its ledger has no entry for."""

    encoding: PublicEncoding
    _noise: torch.Generator | None = None

    def prepare(self) -> None:
        """Publish noisy histograms, if they are paid for, and make the encoding."""
        matched = self.matched()
        self.histograms = self.encoding.histograms(self.name, matched, self._noise)
        self.transformer = self.encoding.transformer(self.name, matched, self.histograms)

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        if verb in (Verb.MASKED_REAL, Verb.MASKED_FAKE):
            raise ProtocolError(
                f"party {self.name!r} refuses {verb.value!r}: the privacy ledger has no entry "
                "for it"
            )
        return super().answer(verb, step)


class NoisyDescentParty(PrivateParty):
    """A private party whose discriminator's gradients are clipped and noisy."""

    discriminator_optimizer: FlatAdam

    def set_privacy(
        self, encoding: PublicEncoding, dpsgd: DPSGDSettings, noise: torch.Generator | None = None
    ) -> None:
        """Learn what the parties agreed on, which may depend on a public number of records."""
        self.encoding, self.dpsgd, self._noise = encoding, dpsgd, noise

    def build(self, settings: Settings, schedule: Schedule, streams: RandomStreams) -> None:
        """Encode the records, and make networks and optimisers."""
        super().build(settings, schedule, streams)
        self.discriminator_optimizer.learning_rate = self.dpsgd.learning_rate
        self.descent = NoisyDescent(self.dpsgd, settings.batch_size, self._noise)
