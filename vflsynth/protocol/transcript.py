"""Transcript: what crossed each boundary, message by message or in total."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd
from torch import Tensor

from vflsynth.protocol.declaration import Message

BITS = "bits_per_record"
"""A message's bound on what it tells of every record."""


@dataclass(slots=True)
class _Total:
    messages: int = 0
    n_bytes: int = 0
    shapes: set[str] = field(default_factory=set)
    bits: float | None = None

    @property
    def told(self) -> set[str]:
        """What receivers were told of every record, by all messages together."""
        return set() if self.bits is None else {f"{BITS} = {self.bits:g}"}


class Transcript:
    """Counts messages and bytes per (kind, sender, receiver); memory does not grow with time.

    Parameters
    ----------
    keep_messages : bool, default=False
        Also keep every message, in order, in `messages`. For tests and audits.
    """

    def __init__(self, *, keep_messages: bool = False) -> None:
        self.messages: list[Message] | None = [] if keep_messages else None
        self._totals: dict[tuple[str, str, str], _Total] = {}

    def record(self, message: Message) -> None:
        """Add one message."""
        key = (type(message).__name__, message.sender, message.receiver)
        total = self._totals.setdefault(key, _Total())
        total.messages += 1
        for name, value in message.contents():
            n_bytes, shape = _size(value)
            total.n_bytes += n_bytes
            if name == BITS and isinstance(value, float):  # those of snapshots add up
                total.bits = (total.bits or 0.0) + value
                continue
            total.shapes.add(f"{name} {shape}")
        if self.messages is not None:
            self.messages.append(message)

    def bytes_of(self, node: str) -> tuple[int, int]:
        """Return how many bytes a node sent and received."""
        sent = sum(t.n_bytes for (_, sender, _), t in self._totals.items() if sender == node)
        got = sum(t.n_bytes for (_, _, receiver), t in self._totals.items() if receiver == node)
        return sent, got

    def to_frame(self) -> pd.DataFrame:
        """One row per kind of message and boundary: how many, how many bytes, which shapes."""
        rows = [
            {
                "message": kind,
                "sender": sender,
                "receiver": receiver,
                "messages": total.messages,
                "bytes": total.n_bytes,
                "contents": "; ".join(sorted(total.shapes | total.told)),
            }
            for (kind, sender, receiver), total in self._totals.items()
        ]
        return pd.DataFrame(
            rows, columns=["message", "sender", "receiver", "messages", "bytes", "contents"]
        )


def _size(value: object) -> tuple[int, str]:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size(), str(tuple(value.shape))
    if isinstance(value, pd.Index):
        return int(value.memory_usage(deep=True)), f"({len(value)},)"
    if isinstance(value, Mapping):
        return len(json.dumps(value).encode()), "JSON"
    return 8, f"= {value:g}" if isinstance(value, float) else "scalar"
