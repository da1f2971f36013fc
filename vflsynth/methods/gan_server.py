"""A server that judges generators without seeing a record: model selection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from vflsynth._moments import frechet_distance_of_moments
from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError, TrainingDivergedError
from vflsynth.methods.settings import RunningLosses, Settings
from vflsynth.protocol.messages import MaskedRecords

_CHUNK = 1 << 14


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
    parts = [received[name].records for name in sorted(received)]
    constant = parts[0][..., :1]  # Q 1
    for name, part in zip(sorted(received), parts):
        # Equal but for rounding: the product's last bits depend on the party's number of columns.
        if part.shape[:2] != constant.shape[:2] or not torch.allclose(
            part[..., :1], constant, atol=1e-4
        ):
            raise ProtocolError(f"the masked records of party {name!r} do not match the others'")

    replicas, n, _ = constant.shape
    width = sum(part.shape[-1] - 1 for part in parts)
    mean = constant.new_zeros(replicas, 1, width, dtype=torch.float64)
    for ones, columns in _in_double(parts):
        mean += ones.mT @ columns / n  # 1^T Q^T Q x = 1^T x
    covariance = constant.new_zeros(replicas, width, width, dtype=torch.float64)
    for ones, columns in _in_double(parts):
        centred = columns - ones * mean  # Q (x - mean)
        covariance += centred.mT @ centred / max(1, n - 1)
    return mean.squeeze(1), covariance


def _in_double(parts: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Constant and joint columns in float64, in chunks: all at once can be the peak of a fit."""
    for chunk in zip(*(torch.split(part, _CHUNK, dim=1) for part in parts)):
        columns = torch.cat([part[..., 1:] for part in chunk], -1)
        yield chunk[0][..., :1].double(), columns.double()
