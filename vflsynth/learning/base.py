"""A method of learning: what each party does, what the server does, and what a step is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import pandas as pd
import torch
from sklearn.base import clone
from torch import Tensor

from vflsynth._random import HiddenStreams, KeySchedule, RandomStreams
from vflsynth.columns import PublicSchema, TableTransformer, check_public
from vflsynth.exceptions import ProtocolError
from vflsynth.frames import KeyMinter, learn_key_minters, public_key_minters
from vflsynth.learning.party import (
    EncodingSource,
    FromPublicKnowledge,
    FromRecords,
    Known,
    Learning,
    Party,
)
from vflsynth.mechanisms import Asked, Discriminators, Mechanism, Plan
from vflsynth.models import PartyModel, RowSampler
from vflsynth.privacy.discovery import ColumnCounts, PublicEncoding
from vflsynth.privacy.events import Sampler
from vflsynth.privacy.padding import Padding
from vflsynth.protocol import Channel, Message, PoissonSchedule, Schedule, SubsetSchedule, When

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
    def device(self) -> torch.device:
        """Where the coordinator computes."""
        return torch.device("cpu")

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

    asks: ClassVar[frozenset[type[Message]]] = frozenset()
    """What the server may ask a party for, besides what every run asks."""

    def __init__(
        self,
        parameters: Any,
        privacy: Mechanism | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        self.parameters, self.privacy, self.noise = parameters, privacy, noise
        self.plan: Plan | None = None
        self.columns: Mapping[str, ColumnCounts] = {}
        self.n_records = 0

    # -- before and while records are matched -----------------------------------------------------

    @property
    def is_private(self) -> bool:
        """Whether there is a mechanism that protects the synthetic data."""
        return self.privacy is not None and self.privacy.protects_synthetic_data

    @property
    def trains_unmatched(self) -> bool:
        """Whether records that other parties lack train the columns of the party that has them."""
        return False

    @property
    def public_schema(self) -> PublicSchema | None:
        """What is public about the columns, of a mechanism that takes such a schema."""
        found: PublicSchema | None = getattr(self.privacy, "public_schema", None)
        return found

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
        make: Any = Schedule
        if self.privacy is not None and self.privacy.sampler is not Sampler.NONE:
            drawn = HiddenStreams(shared.sampling)
            make = partial(SubsetSchedule, sampling=drawn)
            if self.privacy.sampler is Sampler.POISSON:
                rate = self.private_plan.sample_rate
                assert rate is not None, "whoever samples so has planned a rate"
                make = partial(PoissonSchedule, sampling=drawn, sample_rate=rate)
        made: Schedule = make(
            shared.streams,
            n_records=n_records,
            batch_size=settings.batch_size,
            latent_dim=getattr(settings, "latent_dim", 0),
            replica_rows=shared.replica_rows,
        )
        return made

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
