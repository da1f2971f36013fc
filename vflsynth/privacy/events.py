"""What was released, as frozen values that an accountant can judge and an auditor can recompute.

Rules for changing this file: never give an old field a new meaning, only add. A stored event must
mean the same thing to every later version.

One convention holds throughout: ``noise_multiplier = noise_std / sensitivity``, where the
sensitivity belongs to the event's own neighbouring relation. A clipped sum with bound C has
sensitivity C when a record is added or removed and 2C when it is replaced, so the same noise has
two noise multipliers. VFLGAN's σ (std 2σC, Eq. 21) and Opacus' ``noise_multiplier`` (std σC) both
follow it, each under its own relation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import numpy as np

from vflsynth._artefacts import refusing
from vflsynth.exceptions import PrivacyParameterError
from vflsynth.registry import Number

RECORD_ACROSS_PARTIES = "one record across all parties"
"""Unit of privacy: everything that all parties together hold about one individual."""


ONE_LABEL = "one label"
"""Unit of label privacy: the columns of a record are not protected."""


class _Words(StrEnum):
    """Base of a few words, of which others are refused."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        noun = "relation" if cls is NeighbouringRelation else "sampler"
        raise PrivacyParameterError(noun, value, " or ".join(repr(str(one)) for one in cls))


class NeighbouringRelation(_Words):
    """Which two tables must be hard to tell apart."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    """One table has one record more. The number of records is private."""
    REPLACE_ONE = "replace_one"
    """One record differs. The number of records is public."""


class Sampler(_Words):
    """How the records of one batch are drawn."""

    NONE = "none"
    """Every record takes part in every step."""
    POISSON = "poisson"
    """Every record takes part independently with probability ``sample_rate``."""
    WITHOUT_REPLACEMENT = "without_replacement"
    """A uniform subset of fixed size; ``sample_rate`` is its size over the number of records."""


@dataclass(frozen=True, slots=True)
class GaussianRelease:
    """One vector computed from the records and published with Gaussian noise in every coordinate.

    Parameters
    ----------
    released : str
        What the vector is, in words a reader of the ledger understands.
    party : str
        Who computes the vector and releases it: a party's name, or "server".
    noise_multiplier : float
        Noise standard deviation over ``sensitivity``, dimensionless. 0 means released exactly.
    sensitivity : float
        Largest L2 distance between the vectors of two neighbouring tables, in units of the vector.
    relation : NeighbouringRelation
        The relation under which the sensitivity holds.
    record_norm : float, optional
        If the vector is a sum over records of terms whose L2 norm is bounded, that bound. Needed
        only to account for Poisson sampling under ``replace_one``.
    unit : str
        The unit of privacy.
    failure_probability : float, default=0.0
        Probability with which the release reveals something that the noise does not cover, such as
        a category that one record alone has and that passes a threshold. It comes off δ.

    Raises
    ------
    PrivacyParameterError
        If a number is out of range.
    """

    released: str
    party: str
    noise_multiplier: float
    sensitivity: float
    relation: NeighbouringRelation
    record_norm: float | None = None
    unit: str = RECORD_ACROSS_PARTIES
    failure_probability: float = 0.0

    def __post_init__(self) -> None:
        without_numpy(self)
        object.__setattr__(self, "relation", NeighbouringRelation(self.relation))
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise PrivacyParameterError(
                "noise_multiplier", self.noise_multiplier, "a finite number of at least 0"
            )
        if not (math.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise PrivacyParameterError("sensitivity", self.sensitivity, "a positive number")
        if not 0.0 <= self.failure_probability < 1.0:
            raise PrivacyParameterError(
                "failure_probability", self.failure_probability, "a number in [0, 1)"
            )
        norm = self.record_norm
        if norm is None:
            return
        factor = 2.0 if self.relation is NeighbouringRelation.REPLACE_ONE else 1.0
        if not (
            math.isfinite(norm) and norm > 0 and self.sensitivity <= factor * norm * (1 + 1e-9)
        ):
            raise PrivacyParameterError(
                "record_norm",
                norm,
                f"a positive number that explains the sensitivity {self.sensitivity}: at least "
                f"sensitivity / {factor:g} under {self.relation}",
            )

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of each coordinate, in units of the vector."""
        return self.noise_multiplier * self.sensitivity


@dataclass(frozen=True, slots=True)
class SampledRelease:
    """The same releases made in every one of ``steps`` steps, each time from a fresh random batch.

    Parameters
    ----------
    releases : tuple of GaussianRelease
        Everything released from *one and the same* batch. Vectors of several parties belong in one
        event: they are one Gaussian mechanism with noise multiplier `joint_noise_multiplier`.
    sampler : Sampler
    sample_rate : float
        Between 0 and 1; exactly 1 without sampling.
    steps : int
        Number of independently drawn batches.

    Raises
    ------
    PrivacyParameterError
        If a number is out of range or the releases disagree on relation or unit.

    Notes
    -----
    Composing one event per party would be wrong, not only different: composition needs independent
    sampling, and parties share the batch. For red wine (VFLGAN §5, σ 1.39) it would claim ε = 15.75
    where the joint mechanism has 16.06.
    """

    releases: tuple[GaussianRelease, ...]
    sampler: Sampler
    sample_rate: float
    steps: int

    def __post_init__(self) -> None:
        without_numpy(self)
        object.__setattr__(self, "releases", tuple(self.releases))
        object.__setattr__(self, "sampler", Sampler(self.sampler))
        if not self.releases:
            raise PrivacyParameterError("releases", self.releases, "at least one release")
        _require_agreement(self.releases)
        if self.sampler is Sampler.NONE and self.sample_rate != 1.0:
            raise PrivacyParameterError("sample_rate", self.sample_rate, "1 without sampling")
        if not 0.0 < self.sample_rate <= 1.0:
            raise PrivacyParameterError("sample_rate", self.sample_rate, "a number in (0, 1]")
        if not Number(0, whole=True).accepts(self.steps):
            raise PrivacyParameterError("steps", self.steps, "a whole number of at least 0")

    @property
    def relation(self) -> NeighbouringRelation:
        """The neighbouring relation of all releases."""
        return self.releases[0].relation

    @property
    def joint_noise_multiplier(self) -> float:
        """Noise multiplier of a batch's releases taken as one vector; 0 if one has no noise.

        Scaled to unit noise, the blocks' sensitivities are ``1 / noise_multiplier``, and a record
        that moves all of them moves the whole by the root of the sum of squares.
        """
        if any(release.noise_multiplier == 0.0 for release in self.releases):
            return 0.0
        return 1.0 / math.hypot(*(1.0 / release.noise_multiplier for release in self.releases))

    @property
    def joint_record_noise_multiplier(self) -> float | None:
        """Noise over the norm of one record's term, for all releases of one batch taken together.

        None if one of the releases is not known to be a sum of bounded terms.
        """
        if any(release.record_norm is None for release in self.releases):
            return None
        if any(release.noise_multiplier == 0.0 for release in self.releases):
            return 0.0
        norms = [(release.record_norm or 0.0) / release.noise_std for release in self.releases]
        return 1.0 / math.hypot(*norms)


@dataclass(frozen=True, slots=True)
class LabelRelease:
    """Labels that are randomised once, each on its own: randomised response.

    `epsilon` is of one label, with δ = 0; `released` says in words what it is.
    """

    released: str
    party: str
    epsilon: float

    unit: ClassVar[str] = ONE_LABEL
    relation: ClassVar[NeighbouringRelation] = NeighbouringRelation.REPLACE_ONE

    def __post_init__(self) -> None:
        without_numpy(self)
        if not 0.0 < self.epsilon < math.inf:
            raise PrivacyParameterError("epsilon", self.epsilon, "a number above 0")


@dataclass(frozen=True, slots=True)
class Composition:
    """Several events on the same records, each with randomness of its own; possibly none.

    Raises
    ------
    PrivacyParameterError
        If the events disagree on relation or unit: their budgets cannot be added.
    """

    events: tuple[GaussianRelease | SampledRelease | LabelRelease | Composition, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        _require_agreement(tuple(releases_in(self)))


PrivacyEvent: TypeAlias = GaussianRelease | SampledRelease | LabelRelease | Composition


def sampled_releases(event: PrivacyEvent) -> Iterator[SampledRelease]:
    """Flatten an event into sampled releases; a plain Gaussian is one unsampled step."""
    if isinstance(event, Composition):
        for part in event.events:
            yield from sampled_releases(part)
    elif isinstance(event, SampledRelease):
        yield event
    elif isinstance(event, GaussianRelease):
        yield SampledRelease((event,), Sampler.NONE, 1.0, 1)


def releases_in(event: PrivacyEvent) -> Iterator[GaussianRelease | LabelRelease]:
    """Every release inside an event, in order."""
    if isinstance(event, GaussianRelease | LabelRelease):
        yield event
    else:
        for part in event.releases if isinstance(event, SampledRelease) else event.events:
            yield from releases_in(part)


def label_releases(event: PrivacyEvent) -> tuple[LabelRelease, ...]:
    """Return the releases of labels inside an event; if there are any, there are no others."""
    return tuple(part for part in releases_in(event) if isinstance(part, LabelRelease))


def released_by(event: PrivacyEvent, party: str) -> Composition:
    """Return the part of an event that one party releases."""
    parts: list[SampledRelease | LabelRelease] = []
    parts += [release for release in label_releases(event) if release.party == party]
    for sampled in sampled_releases(event):
        kept = tuple(release for release in sampled.releases if release.party == party)
        if kept:
            parts.append(replace(sampled, releases=kept))
    return Composition(tuple(parts))


def without_amplification(event: PrivacyEvent) -> Composition:
    """Return the same releases as seen by somebody who knows the batches.

    VFLGAN's parties all know them (§3.5), so sampling protects nobody from another party.
    """
    return Composition(
        tuple(
            replace(part, sampler=Sampler.NONE, sample_rate=1.0) for part in sampled_releases(event)
        )
    )


_KINDS: Mapping[str, type[Any]] = {
    "gaussian_release": GaussianRelease,
    "sampled_release": SampledRelease,
    "label_release": LabelRelease,
    "composition": Composition,
}


def event_to_dict(event: PrivacyEvent) -> dict[str, Any]:
    """Turn an event into a dictionary of JSON values; `event_from_dict` is its inverse."""
    kind = next(kind for kind, cls in _KINDS.items() if isinstance(event, cls))
    told: dict[str, Any] = {"kind": kind}
    for own in fields(event):
        value = getattr(event, own.name)
        if isinstance(value, tuple):
            value = [event_to_dict(part) for part in value]
        told[own.name] = str(value) if isinstance(value, StrEnum) else value
    return told


def event_from_dict(data: Mapping[str, Any]) -> PrivacyEvent:
    """Read an event written by `event_to_dict`.

    Raises
    ------
    ArtefactError
        If the dictionary is not an event: foreign, truncated or with a value out of range.
    """
    with refusing("Not a privacy event"):
        told = dict(data)
        kind = _KINDS[told.pop("kind")]
        if {*told} != {own.name for own in fields(kind)}:
            raise ValueError(f"it has {sorted(map(str, told))}")
        parts = {name: told[name] for name in ("releases", "events") if name in told}
        made: PrivacyEvent = kind(
            **told | {name: tuple(map(event_from_dict, own)) for name, own in parts.items()}
        )
        return made


def without_numpy(frozen: Any) -> None:
    """Turn NumPy's numbers in fields into Python's: files and accountants take no others."""
    for own in fields(frozen):
        value = getattr(frozen, own.name)
        if isinstance(value, np.generic):
            object.__setattr__(frozen, own.name, value.item())


def _require_agreement(releases: tuple[GaussianRelease | LabelRelease, ...]) -> None:
    for name in ("relation", "unit"):
        values = {str(getattr(release, name)) for release in releases}
        if len(values) > 1:
            raise PrivacyParameterError(
                name, sorted(values), "the same for all events that are composed"
            )
