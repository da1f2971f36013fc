"""A party: its table, its keys, its encoding; and what of it is left in a private run.

Under a mechanism a party is two objects. `Party` has the records and releases what is paid for;
`Learning` makes the half, of releases and of weights that noisy gradients moved, and has no other
way to the records, nor to their number.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.columns import NoisyHistogram, TableTransformer
from vflsynth.columns.histograms import estimate_n_records, std_of_n_records
from vflsynth.exceptions import NoPrivacyWarning, ProtocolError, PublishingWarning, warn_user
from vflsynth.frames import (
    KeyMinter,
    check_no_empty_column,
    intersect,
    party_keys,
    positions,
    without_labels_of_others,
)
from vflsynth.models import PartyModel, RowSampler
from vflsynth.networks.layers import FlatAdam
from vflsynth.privacy.discovery import PublicEncoding
from vflsynth.privacy.releases import Release
from vflsynth.protocol import SERVER, Participant, answers, takes
from vflsynth.protocol.messages import AlignmentNotice, KeyList

ENCODED_AT_ONCE = 1 << 16
"""Records that are one-hot at a time, where it need not be all of them."""

_MOST_FORGOTTEN = 0.5
"""Share of the records whose value is not published, above which the owner is told."""

_SURELY = 3.0
"""Standard errors: noise alone should warn nobody."""


class EncodingSource(Protocol):
    """What makes a party's encoding."""

    def fitted(self, party: str, matched: pd.DataFrame) -> TableTransformer:
        """Return the encoding of a party's matched rows, without the key column."""


@dataclass(frozen=True, slots=True)
class FromRecords:
    """The encoding is learned from the records, by a clone of the template for every party."""

    template: TableTransformer

    def fitted(self, party: str, matched: pd.DataFrame) -> TableTransformer:
        """Fit the template on the matched rows.

        PartyDataError if a column has no value, or its kind does not fit.
        """
        check_no_empty_column(party, matched, among="matched records")
        transformer: TableTransformer = clone(self.template)
        transformer.fit(matched, party=party)
        _warn_of_forgotten(party, matched, transformer)
        return transformer


def _warn_of_forgotten(party: str, matched: pd.DataFrame, fitted: TableTransformer) -> None:
    """Warn of columns that say little any more, as few records share any of their values."""
    for label, column in fitted.transformers_.items():
        if not getattr(column, "merges_", False):
            continue
        values = matched[label]
        share = float((values.notna() & ~values.isin(list(column.categories_))).mean())
        if share > _MOST_FORGOTTEN:
            warn_user(
                f"party {party!r}, column {label!r}: {share:.0%} of the records have a value that "
                f"fewer than {column.rare_records} records hold; such values do not come out, but "
                "others in their place. Fix: group the values, drop the column, or say in a "
                "contract what it is: an identifier, or with rare_records=... which values may "
                "come out",
                PublishingWarning,
            )


@dataclass(frozen=True, slots=True)
class FromPublicKnowledge:
    """The encoding follows from what is public and from noisy histograms, and nothing else.

    The template has the kinds and encoders that users declared. `delta` is the run's; by default it
    is whatever somebody insists on. `noise` is for tests only, see `vflsynth.privacy.noise`.
    """

    encoding: PublicEncoding
    template: TableTransformer
    delta: float | None = None
    noise: torch.Generator | None = None

    def fitted(self, party: str, matched: pd.DataFrame) -> TableTransformer:
        """Publish noisy histograms, if they are paid for, and make the encoding of them.

        Raises PartyDataError if a column has no public bounds or categories and cannot be given
        them.
        """
        histograms = self.encoding.histograms(party, matched, self.noise)
        if self.delta is not None and self.encoding.noise_std is not None:
            _warn_of_delta(party, list(histograms.values()), self.delta)
        types = matched.iloc[:0]
        return TableTransformer.from_histograms(types, histograms, self.template, party=party)


def _warn_of_delta(party: str, published: Sequence[NoisyHistogram], delta: float) -> None:
    """Warn of a delta of 1/n or more by what was published, which costs nothing further.

    No refusal: near 1/n the noise would decide, and what was published is paid for.
    """
    n_records = estimate_n_records(histogram.counts for histogram in published)
    if delta * (n_records - _SURELY * std_of_n_records(published)) >= 1.0:
        warn_user(
            f"party {party!r}: delta={delta:g} is one over the number of records or more, for the "
            f"published histograms count about {n_records:.0f} of them: publishing a few records "
            f"as they are would satisfy such a guarantee. Fix: a delta well below "
            f"{1.0 / n_records:.2g}; large_delta=True insists",
            NoPrivacyWarning,
        )


class Party(Participant):
    """Owns one table and answers what it is asked; no other object reads the table.

    The table is never modified. `on` labels its key column; None matches records by the index.
    After `prepare` the party has `transformer`, which encodes the table.
    """

    transformer: TableTransformer

    def __init__(self, name: str, frame: pd.DataFrame, on: Hashable | None) -> None:
        self.name = name
        self._frame = frame
        self._on = on
        self._rows: npt.NDArray[np.intp] | None = None

    @property
    def keys(self) -> pd.Index:
        """Keys of the party's rows, in its own order."""
        return party_keys(self._frame, self._on)

    @property
    def matched_rows(self) -> npt.NDArray[np.intp]:
        """Positions of the matched records in the party's table, in the common order."""
        if self._rows is None:
            raise ProtocolError(f"the records of party {self.name!r} have not been matched yet")
        return self._rows

    def prepare(self, encoder: EncodingSource) -> None:
        """Make the encoding of the matched rows; cheap, nothing is encoded yet."""
        matched = self.matched()
        if isinstance(encoder, FromRecords) and encoder.template.rare_records:
            matched = without_labels_of_others(matched, self._frame)
        self.transformer = encoder.fitted(self.name, matched)

    def encode(self) -> npt.NDArray[np.float32]:
        """Encode the matched rows, shape (record, encoded)."""
        return self.transformer.transform(self.matched())

    def matched(self) -> pd.DataFrame:
        """Return the columns of the matched rows, in the common order, without the key column."""
        rows = self.matched_rows
        columns = self._frame if self._on is None else self._frame.drop(columns=[self._on])
        return columns.take(rows)

    def unmatched(self) -> pd.DataFrame:
        """Return the columns of all other rows, in the order of their sorted keys."""
        others = np.ones(len(self._frame), np.bool_)
        others[self.matched_rows] = False
        keys = intersect({self.name: self.keys[others]})
        columns = self._frame if self._on is None else self._frame.drop(columns=[self._on])
        return columns.take(positions(self.keys, keys))

    def learned_from(self) -> tuple[pd.DataFrame, ...]:
        """Return the tables of records that are encoded."""
        return (self.matched(),)

    def digest(self, secret: bytes) -> str:
        """Return a keyed digest of the encoding and the encoded records.

        Whoever has the secret can tell whether a later run has the same records, and nothing else.
        """
        found = hmac.new(secret, json.dumps(self.transformer.to_dict()).encode(), hashlib.sha256)
        for table in self.learned_from():
            for start in range(0, len(table), ENCODED_AT_ONCE):
                part = table.iloc[start : start + ENCODED_AT_ONCE]
                found.update(self.transformer.transform(part).tobytes())
        return found.hexdigest()

    def check_shape(self, what: str, found: Tensor, expected: tuple[int, ...]) -> None:
        """Refuse, with ProtocolError, what was received in another shape."""
        if found.shape != expected:
            raise ProtocolError(
                f"party {self.name!r} got {what} of shape {tuple(found.shape)}; expected {expected}"
            )

    @answers(KeyList)
    def key_list(self, step: int) -> KeyList:
        """Return the keys of all rows."""
        return KeyList(self.name, SERVER, step, self.keys)

    @takes(AlignmentNotice)
    def align(self, message: AlignmentNotice) -> None:
        """Learn which records all parties have, and their order."""
        self._rows = positions(self.keys, message.common_keys)


class TrainableParty(Party, ABC):
    """A party with networks, whose training can be checkpointed."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs; randomness is a function of the step."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""

    def trained(self) -> Mapping[str, Tensor]:
        """Return the weights that are kept, which a private run's `Learning` takes over."""
        raise ProtocolError(f"{type(self).__name__} keeps no weights")


class Releasing:
    """What may be asked of a party that has records: releases that are paid for.

    The party adds noise to what it releases, by `Grid.release`. It is let go of after `end`.
    """

    def __init__(self, party: Party) -> None:
        self.__of: Party | None = party

    @property
    def __party(self) -> Party:
        if self.__of is None:
            raise ProtocolError("a party was asked for more after it had given its releases")
        return self.__of

    def end(self) -> None:
        """Let go of the party: what is asked from then on is refused."""
        self.__of = None

    def release(self, what: str, *public: Any) -> list[Release]:
        """Have the party publish by its method `what`.

        The arguments follow from earlier releases and public numbers. ProtocolError if something
        else than releases comes back: it would have no noise.
        """
        found = list(getattr(self.__party, what)(*public))
        for own in found:
            if not isinstance(own, Release):
                raise ProtocolError(
                    f"{type(self.__party).__name__}.{what} gives a {type(own).__name__}; what "
                    "leaves the records of a private run is a Release. Fix: Grid.release"
                )
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return copies of weights that training with noise left, of shapes that are public.

        ProtocolError if the party has no networks that are trained.
        """
        if not isinstance(self.__party, TrainableParty):
            raise ProtocolError(f"{type(self.__party).__name__} has no networks that are trained")
        return {name: own.detach().clone() for name, own in self.__party.trained().items()}


@dataclass(frozen=True, slots=True)
class Known:
    """What a party of a private run knows besides its records.

    The transformer is of published histograms, the settings as the method returns them. `streams`
    are the party's own, `shared` what all parties draw alike.
    """

    name: str
    transformer: TableTransformer
    settings: Any
    streams: RandomStreams
    shared: RandomStreams


class Learning(Participant, ABC):
    """A party of a private run without its records."""

    def __init__(self, known: Known) -> None:
        self.name, self.transformer = known.name, known.transformer

    def learn(self, records: Releasing) -> None:
        """Have published, once, what does not wait for other parties; `records` ends with it."""

    def conclude(self, records: Releasing) -> None:
        """Take what was trained, once, when training is over; `records` ends with it."""

    @abstractmethod
    def samplers(self) -> Sequence[RowSampler]:
        """Return what draws the party's columns, one per replica."""

    def halves(self, on: Hashable, minter: KeyMinter) -> list[Any]:
        """Return the party's half of the model, one per replica: it is saved and loaded alone."""
        return [
            PartyModel(self.name, self.transformer, sampler, on=on, minter=minter)
            for sampler in self.samplers()
        ]


class TrainedLearning(Learning):
    """A party of a private run that trains: the weights that noisy gradients moved are all it has.

    They must fit the settings, which are public numbers.
    """

    trained: dict[str, Tensor]

    def conclude(self, records: Releasing) -> None:
        """Take the networks that noisy gradients trained."""
        self.trained = records.weights()


_RECENT = 64
"""Steps whose losses are kept before they are summed."""


class RunningMeans:
    """Means by name over the steps since the last look."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._recent: dict[str, list[Tensor]] = {}  # of a few steps, summed now and then

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add one step's values, each of shape (replica,)."""
        for name, value in values.items():
            recent = self._recent.setdefault(name, [])
            recent.append(value.detach())
            if len(recent) == _RECENT:
                self._sum_up(name)

    def pop(self) -> dict[str, Tensor]:
        """Return the means, each of shape (replica,), and start again."""
        for name in self._recent:
            self._sum_up(name)
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts, self._recent = {}, {}, {}
        return means

    def _sum_up(self, name: str) -> None:
        recent = self._recent[name]
        if not recent:
            return
        total = torch.stack(recent).sum(0)
        past = self._sums.get(name)
        self._sums[name] = total if past is None else past + total
        self._counts[name] = self._counts.get(name, 0) + len(recent)
        recent.clear()


class RunningLosses:
    """Means of the Wasserstein estimate and the penalty over the steps since the last look."""

    def __init__(self) -> None:
        self._means = RunningMeans()

    def add(self, wasserstein: Tensor, penalty: Tensor) -> None:
        """Add one step's values, each of shape (replica,)."""
        self._means.add({"wasserstein": wasserstein, "penalty": penalty})

    def pop(self) -> tuple[Tensor, Tensor]:
        """Return the two means, each of shape (replica,), and start again."""
        means = self._means.pop()
        if not means:
            raise ProtocolError("a report was asked for before any training step")
        return means["wasserstein"], means["penalty"]


def network_state(label: str, module: nn.Module, optimizer: FlatAdam) -> dict[str, Tensor]:
    """Collect the state of a network and its optimiser, under names that begin with `label`."""
    return {
        **labelled(label, module.state_dict()),
        **labelled(f"{label}.adam", optimizer.state()),
    }


def load_network_state(
    state: Mapping[str, Tensor], label: str, module: nn.Module, optimizer: FlatAdam
) -> None:
    """Restore `network_state`, in place: the optimiser's flat buffer stays the storage."""
    module.load_state_dict(section(state, label))
    optimizer.load_state(section(state, f"{label}.adam"))


def floats(module: nn.Module) -> list[Tensor]:
    """Parameters and running statistics, in a fixed order, without gradients."""
    return [value for value in module.state_dict().values() if value.is_floating_point()]


def move_average(averaged: list[Tensor], current: list[Tensor], n_steps: int, decay: float) -> None:
    """Move averaged weights, from `floats`, towards those after so many steps."""
    # A short average at first, so that it forgets the random start.
    decay = min(decay, (1 + n_steps) / (10 + n_steps))
    torch._foreach_lerp_(averaged, current, 1.0 - decay)


def labelled(label: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a label in front of every name."""
    return {f"{label}/{name}": value for name, value in state.items()}


def section(state: Mapping[str, Tensor], label: str) -> dict[str, Tensor]:
    """Undo `labelled`, leaving out everything else."""
    prefix = f"{label}/"
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
