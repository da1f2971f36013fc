"""Masked records in messages of bounded size, whatever the number of records is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import MaskedReal, MaskedRecords
from vflsynth.protocol import Channel

MOST_NUMBERS = 1 << 23
"""Of float32 in a message: 32 MiB."""


def n_masked_blocks(n_records: int, widths: Mapping[str, int]) -> int:
    """Return in how many messages every party sends its masked records.

    `widths` are encoded columns; a constant one is sent with them.
    """
    return max(1, -(-n_records * (max(widths.values()) + 1) // MOST_NUMBERS))


class MaskedBlocks:
    """A party's masked records, (replica, record, column), until the last block was sent."""

    def __init__(self, compute: Callable[[], Tensor], n_blocks: int) -> None:
        self._compute, self._n_blocks = compute, n_blocks
        self._parts: tuple[Tensor, ...] = ()

    def __getitem__(self, block: int) -> Tensor:
        """Return a block; they are asked for one after the other."""
        if block == 0:
            self._parts = torch.tensor_split(self._compute(), self._n_blocks, dim=1)
        if not 0 <= block < len(self._parts):
            raise ProtocolError(f"block {block} of masked records was asked for out of turn")
        part = self._parts[block]
        if block == self._n_blocks - 1:
            self._parts = ()
        return part


def gather_masked(channel: Channel, n_blocks: int) -> dict[str, MaskedReal]:
    """Ask every party for its masked records; return them as one message each."""
    blocks = [channel.gather(MaskedReal, block) for block in range(n_blocks)]
    if n_blocks == 1:
        return blocks[0]
    return {
        name: replace(first, records=torch.cat([block[name].records for block in blocks], 1))
        for name, first in blocks[0].items()
    }


def moments(received: Mapping[str, MaskedRecords]) -> tuple[Tensor, Tensor]:
    """Mean and covariance (ddof 1) of the joint columns, from masked records alone.

    Shapes (replica, column) and (replica, column, column). Raises ProtocolError if the parties'
    constant columns differ: they used different secrets or numbers of records.
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


_CHUNK = 1 << 14


def _in_double(parts: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Constant and joint columns in float64, in chunks: all at once can be the peak of a fit."""
    for chunk in zip(*(torch.split(part, _CHUNK, dim=1) for part in parts)):
        columns = torch.cat([part[..., 1:] for part in chunk], -1)
        yield chunk[0][..., :1].double(), columns.double()
