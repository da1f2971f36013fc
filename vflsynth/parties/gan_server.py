"""A server that judges generators without seeing a record: model selection."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflsynth._moments import frechet_distance_of_moments
from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError, TrainingDivergedError
from vflsynth.parties.settings import RunningLosses, Settings
from vflsynth.protocol import MaskedRecords


class GANServer:
    """Computes the Fréchet distance from masked records; subclasses add what they train.

    Parameters
    ----------
    settings : Settings
    streams : RandomStreams
        The server's own; never the parties' shared secret.
    """

    def __init__(self, settings: Settings, streams: RandomStreams) -> None:
        self.settings, self.streams = settings, streams
        self.losses = RunningLosses()
        self._real_moments: tuple[Tensor, Tensor] | None = None

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""

    def learn_real_moments(self, received: Mapping[str, MaskedRecords]) -> None:
        """Keep mean and covariance of the real records for `frechet_distance`."""
        self._real_moments = moments(received)

    def frechet_distance(self, received: Mapping[str, MaskedRecords]) -> Tensor:
        """Compute the Fréchet distance (Eq. 23) of real and fake encoded records, (replica,).

        Raises
        ------
        TrainingDivergedError
            If a generator's records are no longer finite.
        """
        if self._real_moments is None:
            raise ProtocolError("the server has not received the masked real records")
        mean, covariance = moments(received)
        if not bool(torch.isfinite(covariance).all()):
            raise TrainingDivergedError("training diverged: generated records are not finite")
        return frechet_distance_of_moments(*self._real_moments, mean, covariance)


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
        If the parties' constant columns differ: they used different secrets or numbers of records.
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
