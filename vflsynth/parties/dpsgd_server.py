"""The server of VFLGAN whose shared discriminator is trained by DP-SGD."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.networks.losses import fake_upstream
from vflsynth.parties.dpsgd import (
    DPSGDSettings,
    NoisyDescent,
    between_fakes,
    layer_traces,
    layers_of,
)
from vflsynth.parties.settings import Settings
from vflsynth.parties.vflgan_server import VFLGANServer
from vflsynth.privacy.dpsgd import LayerTrace
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
    computes from them. The bias of the last layer stays at its initial value: it adds the same to
    all scores.
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
        """Take one step of D_s; the replies are those of each record's own score, and of fakes.

        The rows of real records are dD_s(f)/df_i, neither averaged nor negated, because each party
        clips per record; those of fakes are dL_{D_s}/df~_i.
        """
        self.descent.budget.take()
        real, public, n_real = self._blocks(received)
        discriminator, weight = self.discriminator, self.settings.gradient_penalty_weight
        replicas, batch = public.shape[0], self.settings.batch_size
        upstream = fake_upstream(replicas, batch, public.device, public.dtype)
        wasserstein, penalty, at_fakes = discriminator.critic_gradient(
            self._with_mixed(step, public), weight, upstream
        )
        trace = discriminator.trace(real)
        cotangents = discriminator.cotangents(trace, torch.ones_like(trace[-1]))
        traces = layer_traces(discriminator, trace, cotangents)
        last = traces[-1]
        traces[-1] = LayerTrace(last.inputs, last.output_gradients, has_bias=False)
        layers = layers_of(discriminator)
        if (bias := layers[-1][1]) is not None and bias.grad is not None:
            bias.grad.zero_()
        self.descent.add(layers, traces, n_real)
        at_real = discriminator.input_gradient(cotangents)
        self.optimizer.step()
        self.losses.add(wasserstein, penalty)
        return self._split(step, torch.cat([at_real, at_fakes], 1))

    def _with_mixed(self, step: int, public: Tensor) -> Tensor:
        """Features of fakes and between fakes; for the paper's penalty, mix features here."""
        if self.settings.gradient_penalty == "layerwise":
            return public
        weights = self.streams.uniform("interpolation", step, (self.settings.batch_size, 1))
        return torch.cat([public, between_fakes(public, weights)], 1)

    def _blocks(self, received: Mapping[str, SampledFeatures]) -> tuple[Tensor, Tensor, Tensor]:
        """Join the parties' features: real rows, rows computed from fakes, and the sample sizes."""
        first = received[min(received)]
        n_public = (self.settings.sent_blocks - 1) * self.settings.batch_size
        n_rows = first.features.shape[1] - n_public
        for name, message in received.items():
            if n_rows < int(message.n_real.max()) or not torch.equal(message.n_real, first.n_real):
                raise ProtocolError(
                    f"party {name!r} sampled {message.n_real.tolist()} records in "
                    f"{n_rows} rows, where party {first.sender!r} sampled {first.n_real.tolist()}"
                )
        features = self._join(received, n_rows + n_public)
        return features[:, :n_rows], features[:, n_rows:], first.n_real
