"""The server of VFLGAN: the shared discriminator, and the Fréchet distance of model selection."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth._moments import frechet_distance_of_moments
from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.networks import SharedDiscriminator
from vflsynth.parties.settings import RunningLosses, Settings
from vflsynth.protocol import CutGradients, IntermediateFeatures, MaskedRecords, Shape
from vflsynth.protocol.messages import SERVER


class VFLGANServer:
    """The server: D_s, its optimiser, and the Fréchet distance from masked records.

    Parameters
    ----------
    settings : Settings
    shapes : mapping of party name to Shape
    streams : RandomStreams
        The server's own: initial weights and interpolation; never the parties' shared secret.

    Notes
    -----
    Sees intermediate features, masked records and sizes. Has no records, labels or generators.
    """

    def __init__(
        self, settings: Settings, shapes: Mapping[str, Shape], streams: RandomStreams
    ) -> None:
        self.settings, self.streams = settings, streams
        self.feature_dims = {name: shape.feature_dim for name, shape in sorted(shapes.items())}
        self.discriminator = SharedDiscriminator(
            sum(self.feature_dims.values()),
            settings.shared_hidden,
            bias=settings.bias,
            streams=streams,
        )
        self.optimizer = settings.optimizer(self.discriminator)
        self.losses = RunningLosses()
        self._real_moments: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def update_discriminator(
        self, step: int, received: Mapping[str, IntermediateFeatures]
    ) -> dict[str, CutGradients]:
        """One step of D_s (Eqs. 13, 16); the replies are dL_{D_s}/df_i at the old D_s."""
        batch = self.settings.batch_size
        features = self._join(received, self.settings.sent_blocks * batch)
        if self.settings.gradient_penalty == "paper":  # interpolate features, not records
            weights = self.streams.uniform("interpolation", step, (batch, 1))
            mixed = torch.lerp(features[:, batch:], features[:, :batch], weights)
            features = torch.cat([features, mixed], 1)
        wasserstein, penalty, gradients = self.discriminator.critic_gradient(
            features, self.settings.gradient_penalty_weight
        )
        self.optimizer.step()
        self.losses.add(wasserstein, penalty)
        return self._split(step, gradients)

    @torch.no_grad()
    def score_fakes(
        self, step: int, received: Mapping[str, IntermediateFeatures]
    ) -> dict[str, CutGradients]:
        """The replies are d(-E[D_s(f~)])/df~_i (Eq. 17); nothing is updated."""
        features = self._join(received, self.settings.batch_size)
        return self._split(step, self.discriminator.fake_gradient(features))

    def learn_real_moments(self, received: Mapping[str, MaskedRecords]) -> None:
        """Keep mean and covariance of the real records for `frechet_distance`."""
        self._real_moments = moments(received)

    def frechet_distance(self, received: Mapping[str, MaskedRecords]) -> Tensor:
        """Fréchet distance (Eq. 23) between real and fake encoded records, shape (replica,)."""
        if self._real_moments is None:
            raise ProtocolError("the server has not received the masked real records")
        return frechet_distance_of_moments(*self._real_moments, *moments(received))

    def _join(self, received: Mapping[str, IntermediateFeatures], rows: int) -> Tensor:
        for name, dim in self.feature_dims.items():
            shape = tuple(received[name].features.shape)
            expected = (len(self.streams.secrets), rows, dim)
            if shape != expected:
                raise ProtocolError(
                    f"party {name!r} sent intermediate features of shape {shape}; expected {expected}"
                )
        return torch.cat([received[name].features for name in self.feature_dims], -1)

    def _split(self, step: int, gradients: Tensor) -> dict[str, CutGradients]:
        parts = gradients.split(list(self.feature_dims.values()), dim=-1)
        return {
            name: CutGradients(SERVER, name, step, part)
            for name, part in zip(self.feature_dims, parts)
        }


def moments(received: Mapping[str, MaskedRecords]) -> tuple[Tensor, Tensor]:
    """Mean and covariance (ddof 1) of the joint columns, from masked records alone.

    Parameters
    ----------
    received : mapping of party name to MaskedRecords

    Returns
    -------
    mean : Tensor, shape (replica, column)
    covariance : Tensor, shape (replica, column, column)

    Raises
    ------
    ProtocolError
        If the parties' constant columns differ: they did not use the same records and rotation.
    """
    blocks = [received[name].records.double() for name in sorted(received)]
    constant = blocks[0][..., :1]  # Q 1
    for name, block in zip(sorted(received), blocks):
        # Equal but for rounding: the product's last bits depend on the party's number of columns.
        if block.shape[:2] != constant.shape[:2] or not torch.allclose(
            block[..., :1], constant, atol=1e-4
        ):
            raise ProtocolError(f"the masked records of party {name!r} do not match the others'")
    columns = torch.cat([block[..., 1:] for block in blocks], -1)
    n = columns.shape[1]
    mean = (constant.mT @ columns).squeeze(1) / n  # 1^T Q^T Q x = 1^T x
    centred = columns - constant * mean.unsqueeze(1)  # Q (x - mean)
    return mean, centred.mT @ centred / max(1, n - 1)
