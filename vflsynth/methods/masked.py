"""Masked records in messages of bounded size, whatever the number of records is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from vflsynth.exceptions import ProtocolError
from vflsynth.protocol import Channel
from vflsynth.protocol.messages import MaskedReal

MOST_NUMBERS = 1 << 23
"""Of float32 in a message: 32 MiB."""


def n_masked_blocks(n_records: int, widths: Mapping[str, int]) -> int:
    """Return in how many messages every party sends its masked records.

    Parameters
    ----------
    n_records : int
    widths : mapping of party name to int
        Encoded columns; a constant one is sent with them.
    """
    return max(1, -(-n_records * (max(widths.values()) + 1) // MOST_NUMBERS))


class MaskedBlocks:
    """A party's masked records until the last block was sent.

    Parameters
    ----------
    compute : callable
        Returns them, of shape (replica, record, column).
    n_blocks : int
    """

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
