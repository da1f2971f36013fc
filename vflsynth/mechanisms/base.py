"""What a mechanism is: a value with parameters, which plans noise and a ledger by public numbers.

A plan is made before any record is read. It depends on numbers of columns and, where the
neighbouring relation makes it public, on the number of records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone

from vflsynth.columns import PublicSchema
from vflsynth.exceptions import ParameterError, PrivacyParameterError
from vflsynth.mechanisms.discriminators import Discriminators
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.events import NeighbouringRelation, SampledRelease, Sampler, without_numpy
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
from vflsynth.privacy.padding import Padding
from vflsynth.protocol.schedule import Length, default_epochs
from vflsynth.registry import Choice, Number, Optional, Rule, check_parameters

E = TypeVar("E", bound=BaseEstimator)

Reports = Literal["nothing", "fake scores", "fake scores and penalties", "losses"]

POSITIVE = Number(0, closed=(False, True))

CLIPPING = Number(1e-6, 1e6)
"""Of what bounds gradients: the noise of more overflows in networks' floats, of less vanishes."""

LARGEST_DELTA = 0.01
"""From a hundred records on, more is 1/n or more; tables to be modelled have as many."""


@dataclass(frozen=True)
class Asked:
    """What a run asks of a mechanism: public numbers only.

    `n_records`, those matched, is public under "replace_one" only: a mechanism that is accounted
    for under "add_or_remove_one" must not use it. `batch_size` and `epochs` are the user's; without
    them the mechanism has its own. `plain` is what the method would take without privacy, and
    `default_epochs` its epochs by records and batch size. `groups` are the sizes of each party's
    groups of columns, for a latent tree.
    """

    n_records: int
    owners: Discriminators
    batch_size: int | None = None
    epochs: int | None = None
    learning_rate: float = 5e-4
    discriminator_steps: int = 5
    plain: Length | None = None
    default_epochs: Callable[[int, int], int] = default_epochs
    groups: Mapping[str, Sequence[int]] | None = None

    def __post_init__(self) -> None:
        without_numpy(self)


@dataclass(frozen=True)
class Cover:
    """Which release, by its purpose in the ledger, pays for a message made of real records.

    `noised` says whether the message itself is noisy or computed from what is. It is False where
    the noise is in what the server computes from it: that receives it masked, or is trusted.
    """

    purpose: str
    noised: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Calibrated noise of a run, and the ledger it will have.

    Without a `histogram_noise_multiplier`, of all columns together, there are no histograms;
    without a `length` nothing is trained step by step; without a `sample_rate` of Poisson samples
    batches have a fixed size. `covers` are the messages made of real records that may leave a
    party, by class name.
    """

    ledger: PrivacyLedger
    histogram_noise_multiplier: float | None = None
    length: Length | None = None
    sample_rate: float | None = None
    covers: Mapping[str, Cover] = field(default_factory=dict)

    @cached_property
    def paid(self) -> frozenset[str]:
        """Messages that may leave a party: those whose entry the ledger has, by class name."""
        purposes = {entry.purpose for entry in self.ledger.entries}
        return frozenset(name for name, cover in self.covers.items() if cover.purpose in purposes)

    @property
    def steps(self) -> int:
        """Steps of training on records."""
        return 0 if self.length is None else self.length.steps

    def releases(self, first_epoch: int, last_epoch: int | None = None) -> tuple[LedgerEntry, ...]:
        """Return what is released from one epoch to another, both included, in the ledger's order.

        Epochs count from 1, to which all belongs that is released before training. Without a
        `last_epoch` it is the last of all.
        """
        if last_epoch is not None and last_epoch < first_epoch:
            return ()
        found = []
        for entry in self.ledger.entries:
            if self.length is not None and isinstance(entry.event, SampledRelease):
                last = min(self.length.epochs, last_epoch or self.length.epochs)
                steps = self._steps_until(entry.event, last)
                steps -= self._steps_until(entry.event, first_epoch - 1)
                if steps > 0:
                    found.append(replace(entry, event=replace(entry.event, steps=steps)))
            elif first_epoch == 1:
                found.append(entry)
        return tuple(found)

    def _steps_until(self, event: SampledRelease, epoch: int) -> int:
        """Count an event's steps up to the end of an epoch, which all have as many."""
        assert self.length is not None, "only training has epochs"
        each, rest = divmod(event.steps, self.length.epochs)
        assert not rest, "a plan whose epochs differ counts for itself"
        return epoch * each


@dataclass(repr=False, eq=False, kw_only=True)
class Mechanism(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of all mechanisms of differential privacy; noise is Gaussian.

    A mechanism is a value, with `get_params` and `set_params` as scikit-learn's estimators have.
    `check` looks at its parameters, `plan` at public numbers; neither reads a record.

    Parameters
    ----------
    epsilon : float, optional
        Budget of everything that is released, all parties and preprocessing included. Noise is
        calibrated so that it is never exceeded. Give this or `noise_multiplier`, not both.
    delta : float
        Required. Well below one over the number of records; the VFLGAN paper uses 5e-4 for 1,599.
        More than 0.01 is refused, and 1/n or more where the number of records n is public:
        publishing a few records as they are would satisfy such a guarantee. Where n is private, a
        party warns if the noisy histograms that it published say so.
    noise_multiplier : float, optional
        Noise standard deviation over joint sensitivity, instead of `epsilon`.
    neighbouring_relation : {"add_or_remove_one", "replace_one"}, optional
        Which two tables must be hard to tell apart: one of them has one record more, or one record
        differs. Default: `default_relation`. Fixed-size batches know "replace_one" only.
    large_delta : bool, default=False
        Insist on a `delta` of 1/n or more, or of more than 0.01.
    intersection_epsilon : float, optional
        Hide how many records the parties have in common from the server: with this ε, and `delta`,
        it cannot tell that number from one more or less, as dummies of a random number are among
        them (`vflsynth.privacy.padding`). It comes on top of `epsilon`, for the server alone, anew
        in every run. For mechanisms with `secure_sums`. Default: the server sees the number.
    """

    name: ClassVar[str]
    """For command line and jobs."""

    sampler: ClassVar[Sampler]
    """How batches of real records are drawn."""

    default_relation: ClassVar[NeighbouringRelation] = NeighbouringRelation.ADD_OR_REMOVE_ONE

    registry_group: ClassVar[str] = "mechanisms"

    one_release: ClassVar[bool] = False
    """Whether a run makes one model: every further one would be a release that nobody counts."""

    secure_sums: ClassVar[bool] = False
    """Whether nobody sees records, so that dummies can be among them."""

    protects_synthetic_data: ClassVar[bool] = True
    """Whether ε is about the synthetic data; if so, what no entry covers is refused."""

    rules: ClassVar[dict[str, Rule]] = {
        "epsilon": Optional(POSITIVE),
        "delta": Optional(Number(0, 1, closed=(False, False))),
        "noise_multiplier": Optional(Number(0, 1e12, closed=(False, True))),
        "neighbouring_relation": Optional(Choice(tuple(map(str, NeighbouringRelation)))),
        "large_delta": Choice((False, True)),
        "intersection_epsilon": Optional(Number(0.01)),
    }
    """Ranges of parameters, by name."""

    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    neighbouring_relation: str | None = None
    large_delta: bool = False
    intersection_epsilon: float | None = None

    @property
    def relation(self) -> NeighbouringRelation:
        """The neighbouring relation in force: the one given, or the mechanism's own."""
        return NeighbouringRelation(self.neighbouring_relation or self.default_relation)

    def check(self) -> None:
        """Check all parameters, before any record is read.

        Raises
        ------
        ParameterError
            Naming the parameter, what it is and what it must be.
        """
        if self.sampler is Sampler.NONE and not self.one_release:
            raise ParameterError(
                f"{type(self).__name__} draws no batches, so a run is one release, which the class "
                "does not say. Fix: one_release = True in its body"
            )
        check_parameters(type(self).__name__, self.get_params(deep=False), self.rules)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise PrivacyParameterError(
                "epsilon",
                self.epsilon,
                f"given, or else noise_multiplier (here {self.noise_multiplier!r}), but not both",
            )
        if self.delta is None:
            raise PrivacyParameterError(
                "delta", None, "given, and well below one over the number of records"
            )
        if self.delta > LARGEST_DELTA and not self.large_delta:
            raise PrivacyParameterError(
                "delta",
                self.delta,
                f"at most {LARGEST_DELTA:g}, and well below one over the number of records: with "
                "this probability a record may be published as it is. large_delta=True insists",
            )
        if (
            self.sampler is Sampler.WITHOUT_REPLACEMENT
            and self.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE
        ):
            raise PrivacyParameterError(
                "neighbouring_relation",
                self.neighbouring_relation,
                f"'replace_one' for {type(self).__name__}: its fixed-size batches or shards are "
                "not accounted for under any other relation",
            )

    def padding(self, n_parties: int) -> Padding | None:
        """Return how many dummies hide what parties have in common; None if they do not."""
        if self.intersection_epsilon is None or self.delta is None or n_parties < 2:
            return None
        return Padding.of_groups(self.intersection_epsilon, self.delta, n_parties)

    def public_number(self, n_records: int) -> int | None:
        """Return a public number of records: the true one, if it is public, or None."""
        return n_records if self.relation is NeighbouringRelation.REPLACE_ONE else None

    def check_delta(self, n_records: int) -> None:
        """Refuse a `delta` of 1/n or more, with PrivacyParameterError, unless it is insisted on.

        The number of matched records is looked at only if it is public: where records may be added
        or removed, a refusal would tell whether there are as many as 1 / `delta`. There a party
        warns, by the noisy histograms that it has published (`vflsynth.learning.base`).
        """
        public = self.public_number(n_records)
        if public is not None and not self.large_delta and (self.delta or 0.0) * public >= 1.0:
            raise PrivacyParameterError(
                "delta",
                self.delta,
                f"below one over the number of records, {public}: publishing a record as it is "
                "would satisfy it. large_delta=True insists",
            )

    @property
    def reports(self) -> Reports:
        """What parties may report after every epoch; what is more would have to be paid for."""
        return "nothing"

    @abstractmethod
    def plan(self, columns: Mapping[str, ColumnCounts], asked: Asked) -> Plan:
        """Calibrate the noise.

        Parameters
        ----------
        columns : mapping of party to ColumnCounts
            Of a joined table, its holder's alone.
        asked : Asked

        Raises
        ------
        ParameterError
            If a parameter is out of range, see `check`.
        PrivacyBudgetError
            If no noise meets the budget.
        """


@dataclass(repr=False, eq=False, kw_only=True)
class HistogramMechanism(Mechanism):
    """Base of mechanisms that scale columns by noisy histograms, or by public bounds alone.

    Parameters
    ----------
    **shared
        See `Mechanism`.
    public_schema : PublicSchema, optional
        Bounds and categories that are known without looking at the records. Ranges and categories
        of columns that it does not list are published with noise, out of `preprocessing_share`
        (see `vflsynth.privacy.discovery`): stating them is cheaper and better. Types of columns are
        public; do not let a program infer them from the records.
    preprocessing_share : float, default=0.2
        Share of the budget (of squared Gaussian-DP mu) for the histograms that scale the columns,
        and for ranges and categories that `public_schema` does not list. 0 scales by the public
        bounds alone, where the mechanism can do without histograms.
    n_bins : int, default=32
        Equal bins of a numeric column's first histogram; the second one's are fitted to it, at most
        about four times as many (`NoisyHistogram.divided`).
    """

    rules = Mechanism.rules | {
        "preprocessing_share": Number(0, 1, closed=(True, False)),
        "n_bins": Number(2, 10_000, whole=True),
    }

    public_schema: PublicSchema | None = None
    preprocessing_share: float = 0.2
    n_bins: int = 32

    def check(self) -> None:
        """Check all parameters, before any record is read; see `Mechanism.check`."""
        super().check()
        if not isinstance(self.public_schema, PublicSchema | None):
            raise PrivacyParameterError(
                "public_schema", self.public_schema, "a PublicSchema(bounds=..., categories=...)"
            )
        if self.public_schema is None and self.preprocessing_share == 0:
            raise PrivacyParameterError(
                "public_schema",
                None,
                "given where preprocessing_share is 0: bounds and categories cannot be read off "
                "the records for free",
            )


@dataclass(repr=False, eq=False, kw_only=True)
class SecureSums(HistogramMechanism):
    """Base of mechanisms that publish sums over all parties' records, which nobody else sees."""

    sampler = Sampler.NONE
    one_release = True
    secure_sums = True
    rules = HistogramMechanism.rules | {"preprocessing_share": Number(0, 1, closed=(False, False))}


def in_full_precision(of: E) -> E:
    """Return a mechanism or estimator with Python's numbers: NumPy's small types wrap around."""
    given = of.get_params(deep=False).items()
    plain = {name: own for name, value in given if (own := _plain(value)) is not value}
    made: E = clone(of).set_params(**plain) if plain else of
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, np.number):
        return value.item()
    if isinstance(value, list | tuple) and any(isinstance(own, np.number) for own in value):
        return tuple(map(_plain, value))
    return value
