"""The server of VFLGAN whose shared discriminator is trained by DP-SGD."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.parties.dpsgd import (
    DPSGDSettings,
    NoisyDescent,
    between_fakes,
    descend_critic,
)
from vflsynth.parties.settings import Settings
from vflsynth.parties.vflgan_server import VFLGANServer
from vflsynth.protocol import CutGradients, SampledFeatures, Shape


class DPSGDServer(VFLGANServer):
    """The server of VFLGAN with DP-SGD on the shared discriminator.

    Parameters
    ----------
    settings, shapes, streams
        See `VFLGANServer`.
    dpsgd : DPSGDSettings
    noise : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.

    Notes
    -----
    Sees the features of every sampled record without noise and must be trusted to add it to what it
    computes from them.
    """

    def __init__(
        self,
        settings: Settings,
        shapes: Mapping[str, Shape],
        streams: RandomStreams,
        dpsgd: DPSGDSettings,
        noise: torch.Generator | None = None,
    ) -> None:
        super().__init__(settings, shapes, streams)
        self.optimizer.learning_rate = dpsgd.learning_rate
        self.descent = NoisyDescent(dpsgd, settings.batch_size, noise)

    @torch.no_grad()
    def update_on_sample(
        self, step: int, received: Mapping[str, SampledFeatures]
    ) -> dict[str, CutGradients]:
        """Take one step of D_s; the replies are dD_s(f)/df_i of real and fake records.

        They are neither averaged nor negated, because each party clips per record.
        """
        self.descent.budget.take()
        judged, mixed, n_real = self._blocks(step, received)
        fake_score, penalty, gradients = descend_critic(
            self.discriminator,
            self.descent,
            judged,
            mixed,
            n_real,
            self.settings.gradient_penalty_weight,
        )
        self.optimizer.step()
        self.losses.add(fake_score, penalty)
        return self._split(step, gradients)

    def _blocks(
        self, step: int, received: Mapping[str, SampledFeatures]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Join the parties' features: of real and fake records, of mixed ones; and sample sizes."""
        first, batch = received[min(received)], self.settings.batch_size
        at_records = self.descent.settings.penalty_at_records
        n_sent = first.features.shape[1]
        n_public = (1 if at_records else self.settings.sent_blocks - 1) * batch
        n_rows = (n_sent - n_public) // (2 if at_records else 1)
        for name, message in received.items():
            if n_rows < int(message.n_real.max()) or not torch.equal(message.n_real, first.n_real):
                raise ProtocolError(
                    f"party {name!r} sampled {message.n_real.tolist()} records in "
                    f"{n_rows} rows, where party {first.sender!r} sampled {first.n_real.tolist()}"
                )
        features = self._join(received, n_sent)
        judged = features[:, : n_rows + batch]
        if at_records or self.settings.gradient_penalty == "layerwise":
            return judged, features[:, n_rows + batch :], first.n_real
        weights = self.streams.uniform("interpolation", step, (batch, 1))  # features, not records
        return judged, between_fakes(judged[:, n_rows:], weights), first.n_real
