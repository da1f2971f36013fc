"""A method of learning: what each party does, what the server does, and what a step is.

A party has its table, its keys, its encoding. Under a mechanism it is two objects. `Party` has the
records and releases what is paid for; `Learning` makes the half, of releases and of weights that
noisy gradients moved, and has no other way to the records, nor to their number.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone
from torch import Tensor, nn

from vflsynth._random import HiddenStreams, KeySchedule, RandomStreams
from vflsynth.columns import NoisyHistogram, PublicSchema, TableTransformer
from vflsynth.columns.histograms import estimate_n_records, std_of_n_records
from vflsynth.columns.table import check_public
from vflsynth.exceptions import (
    NoPrivacyWarning,
    PartyDataError,
    ProtocolError,
    PublishingWarning,
    warn_user,
)
from vflsynth.frames import check_no_empty_column
from vflsynth.frames.keys import (
    KeyMinter,
    intersect,
    learn_key_minters,
    positions,
    public_key_minters,
)
from vflsynth.frames.party_frames import party_keys, without_labels_of_others
from vflsynth.mechanisms import Asked, Discriminators, Mechanism, Plan
from vflsynth.mechanisms.base import in_full_precision
from vflsynth.models import PartyModel, RowSampler
from vflsynth.networks.layers import FlatAdam
from vflsynth.privacy.discovery import ColumnCounts, PublicEncoding
from vflsynth.privacy.events import Sampler
from vflsynth.privacy.padding import Padding
from vflsynth.privacy.releases import Release
from vflsynth.protocol.channel import SERVER, Channel, Message, Participant, When, answers, takes
from vflsynth.protocol.messages import AlignmentNotice, KeyList
from vflsynth.protocol.schedule import PoissonSchedule, Schedule, SubsetSchedule

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
        with self._naming_rows():
            self.transformer = encoder.fitted(self.name, matched)

    def encode(self) -> npt.NDArray[np.float32]:
        """Encode the matched rows, shape (record, encoded)."""
        with self._naming_rows():
            return self.transformer.transform(self.matched())

    @contextmanager
    def _naming_rows(self) -> Iterator[None]:
        """Name the rows of errors by their positions in the party's table, not among records."""
        try:
            yield
        except PartyDataError as error:
            raise error.about(rows=self.matched_rows[[*error.rows]].tolist()) from None

    def matched(self) -> pd.DataFrame:
        """Return the columns of the matched rows, in the common order, without the key column."""
        return self._columns().take(self.matched_rows)

    def unmatched(self) -> pd.DataFrame:
        """Return the columns of all other rows, in the order of their sorted keys."""
        others = np.ones(len(self._frame), np.bool_)
        others[self.matched_rows] = False
        keys = intersect({self.name: self.keys[others]})
        return self._columns().take(positions(self.keys, keys))

    def _columns(self) -> pd.DataFrame:
        """Return the table without the key column; the index, beside one, means nothing."""
        if self._on is None:
            return self._frame
        return self._frame.drop(columns=[self._on]).rename_axis(index=None)

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
    return labelled(label, module.state_dict()) | labelled(f"{label}.adam", optimizer.state())


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


class AveragingAdam(FlatAdam):
    """Adam with an average of the weights over its steps, and the averages that are kept."""

    def __init__(self, module: nn.Module, *, learning_rate: float, decay: float) -> None:
        super().__init__(module, learning_rate=learning_rate)
        self._decay, self.average, self.selected = decay, self.flat.clone(), self.flat.clone()

    def step(self) -> None:
        """Update the parameters from the flat gradient, and move the average."""
        super().step()
        move_average([self.average], [self.flat], self.steps, self._decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the module the averaged weights for a while."""
        current = self.flat.clone()
        self.flat.copy_(self.average)
        try:
            yield
        finally:
            self.flat.copy_(current)

    def select(self, chosen: Tensor) -> None:
        """Keep the averaged weights of some replicas, a bool of shape (replica,)."""
        if self.parameters:  # without any, there is no device that they and `chosen` share
            self.selected = torch.where(chosen[self.replica_of], self.average, self.selected)

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs, the parameters included."""
        own = {"flat": self.flat, "average": self.average, "selected": self.selected}
        return own | labelled("adam", super().state())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        super().load_state(section(state, "adam"))
        self.flat.copy_(state["flat"])
        self.average, self.selected = state["average"].clone(), state["selected"].clone()


def labelled(label: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put a label in front of every name."""
    return {f"{label}/{name}": value for name, value in state.items()}


def section(state: Mapping[str, Tensor], label: str, mark: str = "/") -> dict[str, Tensor]:
    """Undo `labelled`, or what has another mark after the label, leaving out everything else."""
    prefix = label + mark
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


_COPIES = 6
"""Of the encoded records, while they are masked, scored or counted."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How long to train and how often to look; the last epoch is always evaluated.

    There are 0 epochs for methods that need no step, which is a call of `Algorithm.step`; of a GAN,
    a discriminator step.
    """

    n_epochs: int
    steps_per_epoch: int
    evaluate_every: int = 1

    @property
    def n_steps(self) -> int:
        """Steps of all epochs."""
        return self.n_epochs * self.steps_per_epoch


@dataclass(frozen=True, slots=True)
class Size:
    """How large a fit is; `own_rows` says whether every replica has rows of its own."""

    n_records: int
    n_replicas: int = 1
    own_rows: bool = False


@dataclass(frozen=True, slots=True)
class SharedDraws:
    """What all parties draw from: streams from the secret that they share.

    `sampling` has a secret per replica, new in every attempt, for samples of records whose chance
    the privacy account counts on. `replica_rows` are int64, (replica, record).
    """

    streams: RandomStreams
    sampling: Sequence[bytes]
    replica_rows: Tensor | None = None


class Sent(Protocol):
    """Keeps what was sent, for the same to be sent again if a run begins again."""

    def read(self) -> dict[str, Tensor] | None:
        """Return what was sent; None if nothing was."""

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep what is about to be sent."""


class Algorithm(ABC):
    """One training step after the other, from the coordinator's chair."""

    advice = "Lower learning_rate"
    """What to do when a loss is no longer finite."""

    keys: Sequence[KeySchedule]
    """Of the noise that the coordinator adds, one per replica."""

    sent: Sent | None = None
    """Where it keeps what is sent once per run, if it may begin again."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def tell(self, make: Callable[[str], Message]) -> None:
        """Send every party the message that is made for its name."""
        self.channel.scatter({name: make(name) for name in self.channel.names})

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to learn, though epochs are left."""
        return False

    def begin(self) -> None:  # noqa: B027 (most algorithms have nothing to do)
        """Do what is to be done once, before the first step of a run or of a resumed run."""

    def step(self, step: int) -> None:
        """Do training step number `step`, counted from 0 over all epochs."""
        raise ProtocolError(f"{type(self).__name__} has no training steps")

    def report(self, epoch: int) -> dict[str, Tensor]:
        """Mean losses since the last report by name, each of shape (replica,)."""
        return {}

    def end_epoch(self, epoch: int, *, evaluate: bool) -> dict[str, Any]:
        """Further entries of the epoch's record; `evaluate` tells whether an evaluation is due.

        ``kept`` says whether the models after this epoch are those that will be kept.
        """
        return {"kept": True}

    def end(self, epoch: int) -> None:  # noqa: B027
        """Do what is to be done once, after the last epoch."""

    def state(self) -> dict[str, Tensor]:
        """Everything of the coordinator's that a resumed run needs."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Restore `state`."""

    def fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for a checkpoint to be continued, JSON-safe."""
        return {}


class Method(ABC):
    """One way to learn a model of records that several parties hold, made of an estimator.

    Every node of a run has one, made of the same parameters, and asks it the same questions in the
    same order (`vflsynth.run`): a party to match with, once records are matched an agreement on
    noise, an encoder, settings, networks, and in the end the party's half of the model.

    Of the estimator nothing but its `parameters` is read. `agree` sets `plan`, the calibrated noise
    and ledger, for the `columns` and matched records, dummies included, that it was agreed for.
    `noise` is for tests only, see `vflsynth.privacy.noise`.
    """

    party: ClassVar[type[Party]] = Party
    """What owns one party's table."""

    learner: ClassVar[type[Learning] | None] = None
    """What makes a party's half of a private run; methods that tell it more override `learning`."""

    owners: ClassVar[Discriminators] = Discriminators.PRIVATE
    """Who owns discriminators, for mechanisms that perturb their gradients."""

    encoding: ClassVar[Mapping[str, Any]] = {}
    """Parameters of encodings learned from records, unless a transformer was given."""

    copies: ClassVar[bool] = False
    """Whether numbers that often equal another column's are learned as copies of it."""

    asks: ClassVar[frozenset[type[Message]]] = frozenset()
    """What the server may ask a party for, besides what every run asks."""

    def __init__(
        self,
        parameters: Any,
        privacy: Mechanism | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        self.parameters, self.noise = parameters, noise
        self.privacy = None if privacy is None else in_full_precision(privacy)
        self.plan: Plan | None = None
        self.columns: Mapping[str, ColumnCounts] = {}
        self.n_records = 0

    # -- before and while records are matched -----------------------------------------------------

    @property
    def is_private(self) -> bool:
        """Whether there is a mechanism that protects the synthetic data."""
        return self.privacy is not None and self.privacy.protects_synthetic_data

    @property
    def selects(self) -> bool:
        """Whether the weights of the best epoch are kept; early stopping looks at their measure."""
        return False

    @property
    def trains_unmatched(self) -> bool:
        """Whether records that other parties lack train the columns of the party that has them."""
        return False

    @property
    def public_schema(self) -> PublicSchema | None:
        """What is public about the columns, of a mechanism that takes such a schema."""
        return getattr(self.privacy, "public_schema", None)

    @property
    def stated_dtypes(self) -> Mapping[Hashable, Any]:
        """Types in which files that have none are read, by column, of a private run."""
        schema = self.public_schema if self.is_private else None
        return {} if schema is None else schema.stated_dtypes

    @property
    def private_plan(self) -> Plan:
        """The plan of a private run; ProtocolError before `agree`."""
        if self.plan is None:
            raise ProtocolError("the noise was asked for before it was agreed on")
        return self.plan

    def minter(self, name: str, keys: pd.Index) -> KeyMinter:
        """Learn how to mint keys like a party's; a private run looks at their type only."""
        learn = public_key_minters if self.is_private else learn_key_minters
        return learn({name: keys})[name]

    def key_offset(self, offsets: Sequence[int]) -> int:
        """Choose one offset of minted keys for all parties from their own."""
        # Public offsets are the largest that a type can hold, learned ones the first free keys.
        return min(offsets) if self.is_private else max(offsets)

    def padding(self, n_parties: int) -> Padding | None:
        """Return how many dummies hide what parties have in common; None if they do not."""
        return None if self.privacy is None else self.privacy.padding(n_parties)

    # -- when records are matched -----------------------------------------------------------------

    def agree(self, columns: Mapping[str, ColumnCounts], n_records: int) -> None:
        """Calibrate the noise by public numbers; every node gets the same plan.

        `n_records` are matched.
        """
        if self.privacy is not None and self.plan is None:
            self.privacy.check_delta(n_records)
            self.plan = self.privacy.plan(columns, self._asked(columns, n_records))
        self.columns, self.n_records = columns, n_records

    def _asked(self, columns: Mapping[str, ColumnCounts], n_records: int) -> Asked:
        return Asked(n_records=n_records, owners=self.owners)

    def encoder(
        self,
        template: TableTransformer,
        schema: PublicSchema | None,
        columns: Mapping[str, ColumnCounts],
    ) -> EncodingSource:
        """Return what turns a party's matched table into numbers.

        The template has the kinds that the user declared for this party's columns, the schema what
        is public about them.
        """
        if not self.is_private:
            if self.encoding and self.parameters.transformer is None:
                template = clone(template).set_params(**self.encoding)
            return FromRecords(template)
        check_public(template)
        privacy: Any = self.privacy
        encoding = PublicEncoding.of(
            self.private_plan.histogram_noise_multiplier,
            columns,
            relation=privacy.relation,
            delta=privacy.delta,
            schema=schema,
            n_bins=privacy.n_bins,
            kinds=template.kinds,
        )
        delta = None if privacy.large_delta else privacy.delta
        return FromPublicKnowledge(encoding, template, delta, self.noise)

    # -- when tables are encoded ------------------------------------------------------------------

    @abstractmethod
    def settings(self, n_records: int, widths: Mapping[str, int]) -> Any:
        """Fill in what depends on the data; every node does it and gets the same."""

    @abstractmethod
    def duration(self, n_records: int, settings: Any) -> Duration:
        """Say how long to train."""

    def exchanges(self, settings: Any, n_steps: int) -> int:
        """Return how often server and parties exchange messages in so many steps, about."""
        return n_steps * sum(kind.declared.when is When.STEP for kind in self.asks)

    def schedule(self, shared: SharedDraws, n_records: int, settings: Any) -> Schedule:
        """Make what the parties draw alike."""
        kind: type[Schedule] = Schedule
        drawn: dict[str, Any] = {}
        if self.privacy is not None and self.privacy.sampler is not Sampler.NONE:
            kind, drawn["sampling"] = SubsetSchedule, HiddenStreams(shared.sampling)
            if self.privacy.sampler is Sampler.POISSON:
                kind, drawn["sample_rate"] = PoissonSchedule, self.private_plan.sample_rate
        return kind(
            shared.streams,
            n_records=n_records,
            batch_size=settings.batch_size,
            latent_dim=getattr(settings, "latent_dim", 0),
            replica_rows=shared.replica_rows,
            **drawn,
        )

    telling: frozenset[type[Message]] = frozenset()
    """Messages of which others are told a number of bits of every record, see `told`."""

    def told(self, settings: Any, party: str) -> Mapping[str, float]:
        """Return how many bits of each of a party's records a run tells others, by receiver."""
        return {}

    def n_blocks(self, settings: Any) -> int:
        """Return how many blocks of records there are messages of, at most."""
        return 0

    def build(self, party: Any, settings: Any, schedule: Schedule, streams: RandomStreams) -> None:
        """Make a party's networks."""
        party.build(settings, schedule, streams)

    @abstractmethod
    def algorithm(self, channel: Channel, settings: Any, streams: RandomStreams) -> Algorithm:
        """Make the algorithm and what the server computes."""

    @classmethod
    def without_effect(cls, mechanism: type[Mechanism] | None) -> frozenset[str]:
        """Return parameters of the estimator that are not looked at with a mechanism."""
        return frozenset()

    @classmethod
    def reason_against(cls, parameters: Any, mechanism: Mechanism) -> str | None:
        """Say what parameters a mechanism cannot go with, and what would do; None if it can."""
        return None

    def multiply_adds(self, settings: Any, widths: Mapping[str, int]) -> float:
        """Return the size of a step, which decides how many threads are worth while."""
        return 0.0

    needs_less_memory: ClassVar[str] = "use fewer records or columns"
    """What makes a fit of a table without a wide column smaller: the end of an error's advice."""

    def memory(self, party: Any, settings: Any, size: Size) -> int:
        """Estimate the bytes that a party's half of a fit takes at its peak.

        The party has its encoding. Unless a method knows better, it is what the encoded records
        take several times over.
        """
        return 4 * _COPIES * size.n_records * int(party.transformer.width_)

    # -- when training is over --------------------------------------------------------------------

    def learning(self, known: Known) -> Learning:
        """Return what makes a party's half of a private run, without records.

        Raises ProtocolError if the method makes halves of records only: it has no private mode.
        """
        if self.learner is None:
            raise ProtocolError(f"{type(self).__name__} makes halves of records only")
        return self.learner(known)

    @classmethod
    def learns_of_releases(cls) -> bool:
        """Whether halves can be made of releases alone, as private runs make them."""
        return cls.learner is not None or cls.learning is not Method.learning

    def samplers(self, party: Any, settings: Any) -> Sequence[RowSampler]:
        """Return what draws a party's columns, one per replica, in runs that are not private."""
        raise ProtocolError(f"{type(self).__name__} draws no columns")

    def halves(self, party: Any, settings: Any, on: Hashable, minter: KeyMinter) -> list[Any]:
        """Return a party's half of a model that is not private, one per replica."""
        return [
            PartyModel(party.name, party.transformer, sampler, on=on, minter=minter)
            for sampler in self.samplers(party, settings)
        ]

    def reported(self, settings: Any, duration: Duration) -> dict[str, Any]:
        """Return what becomes ``settings_``: sizes and rates after defaults were filled in."""
        return {}


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Settings of a method that trains nothing step by step; the number of records is not there."""

    batch_size: int = 1


class OneRound(Method):
    """A method that trains nothing step by step."""

    def settings(self, n_records: int, widths: Mapping[str, int]) -> AtOnce:
        """Say that there are no batches."""
        return AtOnce()

    def duration(self, n_records: int, settings: AtOnce) -> Duration:
        """No training step."""
        return Duration(0, 0)
