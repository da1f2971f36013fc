"""Seats: what one party alone brings into a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd
import torch
from sklearn.base import clone
from torch import Tensor

from vflsynth.columns import PublicSchema, TableTransformer, check_encoders, check_kinds
from vflsynth.exceptions import ParameterError
from vflsynth.frames import key_of
from vflsynth.learning.party import Encoder
from vflsynth.privacy import LedgerEntry
from vflsynth.protocol import Schedule
from vflsynth.run.agreed import Agreed


class Checkpoints(Protocol):
    """Where one node keeps its state."""

    def epochs(self) -> list[int]:
        """Return the epochs after which there is a complete checkpoint, in order."""

    def write(
        self,
        epoch: int,
        tensors: Mapping[str, Tensor],
        fingerprint: Mapping[str, Any],
        history: list[dict[str, Any]],
    ) -> None:
        """Write a checkpoint."""

    def load(
        self, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return state and history, if they are of the same run."""

    def forget_after(self, epoch: int) -> None:
        """Drop checkpoints that other nodes do not have."""


class NoCheckpoints:
    """Keeps nothing."""

    def epochs(self) -> list[int]:
        """Return nothing."""
        return []

    def write(self, *what: object) -> None:
        """Do nothing."""

    def load(self, epoch: int, *what: object) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """There is nothing."""
        raise LookupError(epoch)

    def forget_after(self, epoch: int) -> None:
        """Do nothing."""


class Account(Protocol):
    """Where one node writes down what it releases, before it does."""

    def check(self, entries: Sequence[LedgerEntry]) -> None:
        """Refuse releases that would overshoot."""

    def spend(self, entries: Sequence[LedgerEntry]) -> None:
        """Write down what is about to be released."""


@dataclass(frozen=True)
class Seat:
    """What one party alone brings into a run; nothing of it is sent anywhere.

    Parameters
    ----------
    name : str
    frame : DataFrame
    on : column label or None
        Key column; None matches by the index.
    own : sequence of bytes
        The party's own secrets, one per replica: initial weights and noise of the generator.
    make_schedule : callable
        Of method, number of records, settings and `Agreed`: what the parties draw alike.
    fingerprint : bytes
        Keys the digest by which a checkpoint knows the records.
    device : torch.device
    template : TableTransformer
        With the kinds that the user declared for this party's columns.
    schema : PublicSchema, optional
        What is public about this party's columns.
    checkpoints : Checkpoints
    encoder : Encoder, optional
        In place of the method's.
    holder : str, optional
        Who holds the joined table: this party, or nobody.
    n_training : int, optional
        Training records per replica. Default: all matched records.
    has_columns : bool
        False for an active party that has labels only.
    identity : mapping
        What else must be equal for a checkpoint to be continued, JSON-safe.
    least_records : int
        Matched records without which a model that has no guarantee is not fitted.
    padding_secret : callable, optional
        Of `Agreed`: what the parties draw the number of dummies of, which the server lacks.
    """

    name: str
    frame: pd.DataFrame
    on: Hashable
    own: Sequence[bytes]
    make_schedule: Callable[[Any, int, Any, Agreed], Schedule]
    fingerprint: bytes
    device: torch.device
    template: TableTransformer = field(default_factory=TableTransformer)
    schema: PublicSchema | None = None
    checkpoints: Checkpoints = field(default_factory=NoCheckpoints)
    encoder: Encoder | None = None
    holder: str | None = None
    n_training: int | None = None
    has_columns: bool = True
    identity: Mapping[str, Any] = field(default_factory=dict)
    least_records: int = 1
    padding_secret: Callable[[Agreed], bytes] | None = None


def party_templates(
    transformer: Any, column_kinds: Any, frames: Mapping[str, pd.DataFrame], on: Any
) -> dict[str, TableTransformer]:
    """Make a transformer for every party, with the kinds that concern its columns.

    Parameters
    ----------
    transformer : TableTransformer or None
        Cloned for every party.
    column_kinds : mapping of column to kind, or None
        These come before the transformer's own.
    frames : mapping of party name to DataFrame
    on : column label or None

    Raises
    ------
    ParameterError
        If a parameter is of another type.
    ColumnKindError
        If there is no such column or kind.
    """
    template = TableTransformer() if transformer is None else transformer
    if not isinstance(column_kinds, Mapping | None):
        raise ParameterError(
            f"column_kinds must be None or map labels to kinds, got {column_kinds!r}"
        )
    if not isinstance(template, TableTransformer):
        raise ParameterError(f"transformer must be None or a TableTransformer, got {template!r}")
    owned = {
        name: [c for c in frame.columns if c != key_of(on, name)] for name, frame in frames.items()
    }
    everything = [label for labels in owned.values() for label in labels]
    encoders = check_encoders(template.encoders, everything)
    kinds = dict(template.kinds or {}) | dict(column_kinds or {})
    made = {}
    for name, labels in owned.items():
        own: dict[Hashable, str] = {c: kinds.pop(c) for c in labels if c in kinds}
        made[name] = clone(template).set_params(
            kinds=check_kinds(own, labels, party=name),
            encoders={c: encoders[c] for c in labels if c in encoders} or None,
        )
    check_kinds(kinds, everything)  # of nobody
    return made
