"""The privacy ledger: what was released, what it cost, and what no number here covers."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self

from vflsynth._artefacts import refusing
from vflsynth.exceptions import (
    ArtefactVersionError,
    MissingExtraError,
    PrivacyParameterError,
    UnsupportedEventError,
)
from vflsynth.privacy.accountants import GaussianDPAccountant, valid_accountants
from vflsynth.privacy.events import (
    ONE_LABEL,
    Composition,
    NeighbouringRelation,
    PrivacyEvent,
    Sampler,
    event_from_dict,
    event_to_dict,
    label_releases,
    released_by,
    releases_in,
    sampled_releases,
    without_amplification,
    without_numpy,
)
from vflsynth.privacy.gaussian_dp import mu_of_gaussian

_FORMAT, _VERSION = "vflsynth.privacy_ledger", 1
_WIDTH, _LABEL = 96, 26


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One item of expenditure: what was released, and what the budget was spent on.

    The purpose is "preprocessing", "training", …
    """

    purpose: str
    event: PrivacyEvent


@dataclass(frozen=True)
class PrivacyLedger:
    """Everything a run released about the records, and everything its ε does not cover.

    Parameters
    ----------
    mechanism : str
        The field's name of the mechanism.
    claim : str
        One sentence: what ε is a statement about.
    covers_synthetic_data : bool
        Whether ε bounds what the synthetic data reveal. False for the paper's mechanism.
    delta : float
    entries : tuple of LedgerEntry
        In order of release.
    target_epsilon : float, optional
        The ε that was asked for, if noise was calibrated to it.
    protected_against, not_protected_against : tuple of str
        Who the guarantee is against, and who it is not against, each with the reason.
    not_covered : tuple of str
        What else read the records and has no share in ε.
    public : tuple of str
        What was taken as public knowledge.
    noise : str, optional
        How the noise is drawn, and what that adds to ε.
    condition : str, optional
        What ε depends on beyond theorems; said wherever it is printed, see `conditional`.

    Examples
    --------
    >>> from vflsynth.privacy import GaussianRelease, NeighbouringRelation
    >>> release = GaussianRelease(
    ...     released="histograms of 9 columns",
    ...     party="bank",
    ...     noise_multiplier=2.0,
    ...     sensitivity=3.0,
    ...     relation=NeighbouringRelation.ADD_OR_REMOVE_ONE,
    ... )
    >>> ledger = PrivacyLedger(
    ...     mechanism="noisy histograms",
    ...     claim="ε bounds what the published histograms reveal.",
    ...     covers_synthetic_data=True,
    ...     delta=1e-5,
    ...     entries=(LedgerEntry("histograms", release),),
    ... )
    >>> round(ledger.epsilon(), 3)
    1.993
    """

    mechanism: str
    claim: str
    covers_synthetic_data: bool
    delta: float
    entries: tuple[LedgerEntry, ...] = ()
    target_epsilon: float | None = None
    protected_against: tuple[str, ...] = ()
    not_protected_against: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    noise: str = ""
    condition: str = ""

    def __post_init__(self) -> None:
        without_numpy(self)
        if not 0.0 < self.delta < 1.0:
            raise PrivacyParameterError("delta", self.delta, "a number strictly between 0 and 1")
        for name in (own.name for own in fields(self) if own.default == ()):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        Composition(tuple(entry.event for entry in self.entries))  # one relation and one unit

    @property
    def event(self) -> Composition:
        """All releases together."""
        return Composition(tuple(entry.event for entry in self.entries))

    @property
    def relation(self) -> NeighbouringRelation | None:
        """The neighbouring relation of all releases; None while there are none."""
        return next((release.relation for release in releases_in(self.event)), None)

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody who released something, in order of appearance."""
        return tuple(dict.fromkeys(release.party for release in releases_in(self.event)))

    def of_one_of(self, n_models: int) -> Self:
        """Return the ledger of one of some models that were fitted at once: it says so."""
        if n_models == 1:
            return self
        others = f"the other models of {n_models} that were fitted at once: ε is of one alone"
        return replace(self, not_covered=(*self.not_covered, others))

    def epsilons(self, delta: float | None = None) -> dict[str, float]:
        """ε of all releases together by every accountant that is valid for them.

        Without sampling Gaussian DP is exact, so it alone is asked.

        Parameters
        ----------
        delta : float, optional
            Default: the ledger's own.

        Returns
        -------
        dict of str to float
            Name of the accountant to its upper bound.

        Raises
        ------
        UnsupportedEventError
            If no accountant covers the combination of samplers and relation.
        MissingExtraError
            If only accountants of the extra ``privacy`` do, and it is not installed.
        """
        return _epsilons(self.event, self.delta if delta is None else delta)

    def epsilon(self, delta: float | None = None) -> float:
        """Smallest of `epsilons`: all are upper bounds, so the smallest holds."""
        return min(self.epsilons(delta).values())

    def epsilon_of_party(self, party: str) -> float:
        """ε of what one party released, as if nothing else had been."""
        return epsilon_of(released_by(self.event, party), self.delta)

    def epsilon_with_known_batches(self) -> float:
        """ε of the same releases for somebody who knows which records were in which batch."""
        return GaussianDPAccountant().epsilon(without_amplification(self.event), self.delta)

    def shares(self) -> dict[str, float]:
        """Return how the budget divides over the entries, by purpose; the shares add up to 1.

        An entry weighs ``mu²``, where mu is that of the plain Gaussian mechanism with the same ε at
        δ. That is exact for unsampled releases, whose mu² add up, and a convention for sampled
        ones.
        """
        weights: dict[str, float] = {}
        for entry in self.entries:
            epsilon = epsilon_of(entry.event, self.delta)
            weight = mu_of_gaussian(epsilon, self.delta) ** 2 if epsilon > 0.0 else 0.0
            weights[entry.purpose] = weights.get(entry.purpose, 0.0) + weight
        total = sum(weights.values())
        if math.isinf(total):
            unbounded = sum(math.isinf(weight) for weight in weights.values())
            return {p: math.isinf(weight) / unbounded for p, weight in weights.items()}
        return {p: weight / total if total > 0.0 else 0.0 for p, weight in weights.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values from which an auditor can recompute every ε."""
        told = {own.name: getattr(self, own.name) for own in fields(self)}
        lists = {name: list(value) for name, value in told.items() if isinstance(value, tuple)}
        # JSON has no infinity.
        epsilons = {
            name: epsilon if math.isfinite(epsilon) else "infinite"
            for name, epsilon in self.epsilons().items()
        }
        return {
            "format": _FORMAT,
            "version": _VERSION,
            **(told | lists),
            "entries": [
                {"purpose": entry.purpose, "event": event_to_dict(entry.event)}
                for entry in self.entries
            ],
            "reported": {"epsilon": epsilons, "dp_accounting_version": _dp_accounting_version()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrivacyLedger:
        """Read a ledger written by `to_dict`; ε is computed again, not copied.

        Raises
        ------
        ArtefactError
            If the dictionary is not a ledger or has a value out of range.
        ArtefactVersionError
            If a later version wrote it.
        """
        with refusing("Not a privacy ledger"):
            if data["format"] != _FORMAT:
                raise ValueError(f"format {data['format']!r}")
            if data["version"] > _VERSION:
                raise ArtefactVersionError(
                    f"This privacy ledger has version {data['version']}, this program reads up to "
                    f"{_VERSION}. Fix: install the version of vflsynth that wrote it."
                )
            entries = tuple(
                LedgerEntry(entry["purpose"], event_from_dict(entry["event"]))
                for entry in data["entries"]
            )
            told = {own.name: data[own.name] for own in fields(cls)}
            if not isinstance(told["covers_synthetic_data"], bool):
                raise ValueError("covers_synthetic_data is neither true nor false")
            return cls(**told | {"entries": entries})

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        lines = [f"Privacy ledger: {self.mechanism}", "=" * _WIDTH]
        lines += _row("What ε is about", self.claim)
        if not self.covers_synthetic_data:
            lines += _row("", "THIS IS NOT A GUARANTEE FOR THE SYNTHETIC DATA.")
        if not self.entries:
            return "\n".join([*lines, *_row("Spent", "nothing: ε = 0")])
        first = next(releases_in(self.event))
        unit = first.unit
        words = _LABEL_WORDS if unit == ONE_LABEL else _RELATION_WORDS[first.relation]
        lines += _row("Unit of protection", f"{unit}; {words}")
        epsilons = self.epsilons()
        best = min(epsilons, key=lambda name: epsilons[name])
        delta = "any δ" if unit == ONE_LABEL else f"δ = {self.delta:g}"
        target = "" if self.target_epsilon is None else f"; asked for: {self.target_epsilon:g}"
        spent = f"ε = {_number(epsilons[best])} at {delta}{target}"
        lines += _row("Spent, all parties", conditional(spent, self.condition))
        lines += _row(
            "By every valid accountant",
            "; ".join(f"{_number(epsilon)} ({name})" for name, epsilon in epsilons.items()),
        )
        lines += _row("Protected against", *self.protected_against)
        lines += _row("NOT protected against", *self.not_protected_against)
        if any(part.sampler is not Sampler.NONE for part in sampled_releases(self.event)):
            lines += _row(
                "If batches are known",
                f"ε = {_number(self.epsilon_with_known_batches())} for these releases",
            )
        lines += ["-" * _WIDTH]
        shares = self.shares()
        for purpose, share in shares.items():
            event = Composition(tuple(e.event for e in self.entries if e.purpose == purpose))
            alone = epsilon_of(event, self.delta)
            lines += _row(
                purpose.capitalize(), f"{share:.0%} of the budget; ε = {_number(alone)} alone"
            )
            lines += _row("", *_describe(event, self.parties))
        by_party = {party: _number(self.epsilon_of_party(party)) for party in self.parties}
        lines += _row(
            "By who released it", "; ".join(f"{p}: ε = {e} alone" for p, e in by_party.items())
        )
        lines += ["-" * _WIDTH]
        lines += _row("Noise", *([self.noise] if self.noise else []))
        lines += _row("Taken as public", *self.public)
        lines += _row("NOT covered", *(self.not_covered or ("nothing that read the records",)))
        return "\n".join(lines)


_RELATION_WORDS = {
    NeighbouringRelation.ADD_OR_REMOVE_ONE: (
        "tables that differ by one added or removed record look alike"
    ),
    NeighbouringRelation.REPLACE_ONE: ("tables of equal size that differ in one record look alike"),
}

_LABEL_WORDS = "tables that differ in one label look alike"


def epsilon_of(event: PrivacyEvent, delta: float) -> float:
    """Smallest ε of an event by all accountants that are valid for it; see `PrivacyLedger`."""
    return min(_epsilons(event, delta).values())


def conditional(said: str, *conditions: str) -> str:
    """Add to a text that prints an ε what that depends on; every such text goes through here.

    The text has no full stop; most conditions, of all ledgers that the ε is made of, are empty.

    Examples
    --------
    >>> conditional("ε = 2"), conditional("ε = 2", "if a gap is closed", "")
    ('ε = 2', 'ε = 2; IF A GAP IS CLOSED')
    """
    found = "; ".join(dict.fromkeys(filter(None, conditions)))
    return f"{said}; {found.upper()}" if found else said


def _epsilons(event: PrivacyEvent, delta: float) -> dict[str, float]:
    if labels := label_releases(event):  # the unit is theirs, so there is no noise besides
        return {"epsilons added up": sum(release.epsilon for release in labels)}
    exact = GaussianDPAccountant()
    if exact.supports(event):  # no other bound can be below it
        return {exact.name: exact.epsilon(event, delta)}
    result: dict[str, float] = {}
    missing: MissingExtraError | None = None
    for accountant in valid_accountants(event):
        try:
            result[accountant.name] = accountant.epsilon(event, delta)
        except MissingExtraError as error:  # the others still give valid bounds
            missing = error
    if result:
        return result
    if missing is not None:
        raise missing
    pairs = sorted({f"{part.sampler}, {part.relation}" for part in sampled_releases(event)})
    raise UnsupportedEventError(
        f"No accountant covers this combination of sampler and neighbouring relation: {pairs}. "
        "Fix: use Poisson sampling, or sampling without replacement under replace_one, throughout."
    )


def _describe(event: PrivacyEvent, everybody: Sequence[str]) -> list[str]:
    """One line per kind of release, with all who make it."""
    parties: dict[tuple[str, str], list[str]] = {}
    for label in label_releases(event):
        parties.setdefault((label.released, f"once: ε = {label.epsilon:g}"), []).append(label.party)
    for part in sampled_releases(event):
        if part.sampler is Sampler.NONE:
            steps = "once" if part.steps == 1 else f"{part.steps} times"
        else:
            steps = (
                f"in {part.steps} steps, batches {part.sampler.replace('_', ' ')} at rate "
                f"{part.sample_rate:.4g}"
            )
        for release in part.releases:
            noise = (
                f"{steps}: noise std {release.noise_std:.4g} = {release.noise_multiplier:.4g} x "
                f"sensitivity {release.sensitivity:.4g}"
            )
            if release.failure_probability:
                noise += f", and {release.failure_probability:.2g} of δ"
            parties.setdefault((release.released, noise), []).append(release.party)
    own = [name for name in everybody if name != "server"]
    return [
        f"- {released} [{'every party' if names == own and len(own) > 2 else ', '.join(names)}], "
        f"{noise}"
        for (released, noise), names in parties.items()
    ]


def _row(label: str, *texts: str) -> list[str]:
    """One labelled paragraph per text; the label stands beside the first."""
    lines: list[str] = []
    for text in texts:
        head = "" if lines else label
        lines += textwrap.wrap(
            text,
            _WIDTH,
            initial_indent=f"{head:<{_LABEL}}",
            subsequent_indent=" " * (_LABEL + 2 * text.startswith("- ")),
        )
    return lines


def _number(epsilon: float) -> str:
    """Two decimals, rounded up: a reported ε must not be below the one computed."""
    if math.isinf(epsilon):
        return "infinite"
    return f"{math.ceil(epsilon * 100.0) / 100.0:.2f}"


def _dp_accounting_version() -> str | None:
    try:
        return version("dp-accounting")
    except PackageNotFoundError:
        return None
