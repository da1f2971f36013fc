"""A privacy account: a file of all that was released about some records, by whichever process."""

from __future__ import annotations

import math
import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self, TextIO

from vflsynth.exceptions import ParameterError, PrivacyBudgetError
from vflsynth.privacy.account_file import (
    BUDGET,
    OPENED,
    RUN,
    SHOWN,
    SPENT,
    AccountFile,
    Record,
    next_record,
    unreadable,
)
from vflsynth.privacy.accountants import valid_accountants
from vflsynth.privacy.calibration import calibrate_noise_multiplier
from vflsynth.privacy.events import (
    Composition,
    GaussianRelease,
    NeighbouringRelation,
    PrivacyEvent,
    SampledRelease,
    event_from_dict,
    event_to_dict,
    label_releases,
    releases_in,
    without_numpy,
)
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger, conditional, epsilon_of
from vflsynth.registry import Number, check_parameters, rules_of

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that may be spent on some records, all runs together."""

    epsilon: Annotated[float, Number(0, closed=(False, True))]
    delta: Annotated[float, Number(0, 1, closed=(False, False))]

    def __post_init__(self) -> None:
        check_parameters("privacy", asdict(self), rules_of(type(self)))
        without_numpy(self)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt of a run released.

    `covers_synthetic_data` says whether the ε of its releases bounds what its synthetic data
    reveal, `condition` what that ε depends on beyond theorems (empty for most). The digest is that
    of the record with which the attempt begins; no other has it.
    """

    run: str
    started: str
    covers_synthetic_data: bool = True
    condition: str = ""
    entries: tuple[LedgerEntry, ...] = ()
    digest: str = ""


class PrivacyAccount:
    """A file in which everything is booked that is released about some records, before it is.

    Every record of the file holds the digest of the one before it. A missing file is never taken
    for an empty account: `create` makes one.

    Parameters
    ----------
    path : path-like
        Symbolic links are followed. A file that has several names (hard links) is refused.
    patience : float, default=3600
        Seconds that a run waits for another run that has the account open.

    Notes
    -----
    One run at a time has an account open, from before its first release to its end; what it is
    going to release in all is held against the budget first. A process that dies leaves the account
    unlocked, with what it had booked.

    The number of records and the last one's digest are in a second file beside it,
    ``.NAME.head``, so that an older copy that is put back is refused. Who puts back or deletes both
    is not noticed, but by whoever else kept a later digest: across processes, the other sites
    (`vflsynth.federation.account`).

    Everything that was booked is composed by the accountants that are valid for all of it. A budget
    that was fixed beforehand holds if later releases are chosen by what earlier ones showed, where
    all are Gaussian without sampling (Smith and Thakurta 2022); with sampled releases it holds for
    runs whose parameters were not chosen so.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> account = PrivacyAccount.create(f"{folder.name}/account.json", Budget(3.0, 1e-5))
    >>> account.epsilon(), round(account.left(), 3)
    (0.0, 3.0)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], patience: float = 3600.0) -> None:
        self.path, self.patience = Path(path), patience
        self._file = AccountFile(path)

    @classmethod
    def create(cls, path: str | os.PathLike[str], budget: Budget | None = None) -> Self:
        """Open an account on which nothing was spent.

        Parameters
        ----------
        path : path-like
        budget : Budget, optional
            The limit. Default: none; releases are booked and none is refused.

        Raises
        ------
        ParameterError
            If there is such a file. Of several processes one makes it.
        ArtefactError
            If there was one.
        """
        account = cls(path)
        opened = {"account": secrets.token_hex(16), "budget": budget and asdict(budget)}
        account._file.create(opened, account.patience)
        return account

    # -- what is in it ---------------------------------------------------------------------------

    @property
    def budget(self) -> Budget | None:
        """The limit that is in the file."""
        return _budget(self.records())

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts of runs, in order, those that released nothing included."""
        return _attempts(self.records())

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Everything that was booked, in order."""
        return tuple(entry for attempt in self.attempts for entry in attempt.entries)

    @property
    def conditions(self) -> tuple[str, ...]:
        """What `epsilon` depends on beyond theorems, of all attempts; see `PrivacyLedger`."""
        return _conditions(self.attempts)

    def epsilon(self, delta: float | None = None) -> float:
        """ε of everything that was booked, together; by default at the budget's δ.

        ParameterError if there is neither.
        """
        if delta is None:
            if (budget := self.budget) is None:
                raise ParameterError(f"{self.path} has no budget, so ε needs a delta")
            delta = budget.delta
        return _epsilon(self.entries, delta)

    def left(self) -> float:
        """ε, at the budget's δ, of the largest Gaussian release that the budget has room for.

        Infinite without a budget. It is more than the difference of budget and `epsilon`, for
        releases compose better than by adding ε up.
        """
        records = self.records()
        entries = tuple(e for attempt in _attempts(records) for e in attempt.entries)
        return _left(entries, _budget(records))

    def records(self) -> list[Record]:
        """Read the file; ArtefactError if it is missing, or not what was written, all of it."""
        found = self._file.read()
        try:
            _attempts(found), _budget(found)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise unreadable(self._file.path, error) from error
        return found

    def show(self) -> dict[str, Any]:
        """Return what others remember of this account, and write down that it was shown.

        That is ``account``, its name, and ``heads``, the digests of all records at which it was
        ever shown, the newest last. They are random to whoever has not got the file.
        """
        with self._file.lock(self.patience):
            return self._show(self.records())

    def set_budget(self, budget: Budget | None) -> None:
        """Change the limit; the file says when."""
        with self._file.lock(self.patience):
            records = self.records()
            records.append(next_record(records, BUDGET, {"budget": budget and asdict(budget)}))
            self._file.write(records)

    # -- booking ---------------------------------------------------------------------------------

    def open(
        self,
        run: str,
        planned: PrivacyLedger,
        agreed: Budget | None = None,
        earlier: Sequence[str] | None = None,
    ) -> OpenAccount:
        """Let a run book; all others wait until it closes the account.

        `run` is what the run is called, `planned` what it is going to release in all, `agreed` a
        second limit, that of a site file, and `earlier` are digests of the run's attempts before,
        in this account or another; if None, all that are called so. ParameterError if another run
        has the account open for too long, or earlier runs were under another neighbouring relation
        or sampled so that no accountant adds the two up; ArtefactError if the account cannot be
        read.
        """
        lock = self._file.lock(self.patience)
        try:
            return OpenAccount(self, lock, run, planned, agreed, earlier)
        except BaseException:
            lock.close()
            raise

    def _show(self, records: list[Record]) -> dict[str, Any]:
        # Without a nonce, what is shown again in the same second after a cut would be the same.
        records.append(next_record(records, SHOWN, {"nonce": secrets.token_hex(16)}))
        self._file.write(records)
        heads = [record["digest"] for record in records if record["event"] == SHOWN]
        return {"account": records[0]["details"]["account"], "heads": heads}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


class OpenAccount:
    """An account that one run has open; see `PrivacyAccount.open`.

    `spend` writes to the disk before it returns, and is called before anything leaves: a crash can
    make the account too large, not too small.
    """

    def __init__(
        self,
        account: PrivacyAccount,
        lock: TextIO,
        run: str,
        planned: PrivacyLedger,
        agreed: Budget | None,
        earlier: Sequence[str] | None,
    ) -> None:
        self._account, self._lock, self._planned = account, lock, planned
        self._earlier = earlier
        self._records = account.records()
        self._before = tuple(e for a in _attempts(self._records) for e in a.entries)
        self._entries: tuple[LedgerEntry, ...] = ()
        limits = {str(account.path): _budget(self._records), "its site file": agreed}
        self._limits = {where: budget for where, budget in limits.items() if budget is not None}
        self.run = run
        self._check_sum()

    def begin(self, releases: Callable[..., Sequence[LedgerEntry]], done: int) -> int:
        """Check what a run will release, and return up to which epoch it is paid for.

        `releases` is as `Plan.releases`. The epoch is `done`, after which the run goes on; 0 where
        the account does not have what came before.
        """
        paid = done if self.has(releases(1, done)) else 0
        self.check(releases(paid + 1))
        return paid

    def has(self, entries: Sequence[LedgerEntry]) -> bool:
        """Whether the run's earlier attempts booked such releases, and as many.

        What another run booked does not pay for one that goes on from a checkpoint.
        """
        known = self._earlier
        own = [
            entry
            for attempt in _attempts(self._records)
            if (attempt.run == self.run if known is None else attempt.digest in known)
            for entry in attempt.entries
        ]
        return _times(entries) <= _times(own)

    def check(self, entries: Sequence[LedgerEntry]) -> None:
        """Refuse, with PrivacyBudgetError, a run that would overshoot, before any release."""
        for where, budget in self._limits.items() if entries else ():
            total = _epsilon((*self.entries, *entries), budget.delta)
            if total > budget.epsilon * (1.0 + _ROUNDING):
                spent = _epsilon(self.entries, budget.delta)
                would = conditional(
                    "this run would bring what was spent on these records from epsilon "
                    f"{spent:.4g} to {total:.4g} at delta {budget.delta:g}",
                    *self.conditions,
                    self._planned.condition,
                )
                raise PrivacyBudgetError(
                    f"{would}; {where} agrees to {budget.epsilon:g}. Left: one more Gaussian "
                    f"release of epsilon {_left(self.entries, budget):.4g}. Nothing was released. "
                    "Fix: more noise, or a larger budget"
                )

    def spend(self, entries: Sequence[LedgerEntry]) -> None:
        """Write down what is about to be released."""
        if not entries:
            return
        if not self._entries:
            details = {
                "run": self.run,
                "covers": self._planned.covers_synthetic_data,
                "condition": self._planned.condition,
            }
            self._records.append(next_record(self._records, RUN, details))
        for entry in entries:
            self._entries = merged(self._entries, entry)
            details = {"purpose": entry.purpose, "event": event_to_dict(entry.event)}
            self._records.append(next_record(self._records, SPENT, details))
        self._account._file.write(self._records)

    def show(self) -> dict[str, Any]:
        """Return what others remember, what this run booked included; see `PrivacyAccount.show`."""
        return self._account._show(self._records)

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Everything that was booked so far, by all runs."""
        return (*self._before, *self._entries)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts that booked something."""
        return _attempts(self._records)

    @property
    def conditions(self) -> tuple[str, ...]:
        """What ε of `entries` depends on beyond theorems."""
        return _conditions(self.attempts)

    def close(self) -> None:
        """Let another run have it."""
        self._lock.close()

    def _check_sum(self) -> None:
        def relations(entries: Sequence[LedgerEntry]) -> set[str]:
            found = {r for e in entries for r in releases_in(e.event)}
            return {f"{r.relation.value!r} of {r.unit}" for r in found}

        before, planned = relations(self._before), relations(self._planned.entries)
        if before and planned - before:
            raise ParameterError(
                f"{self._account.path}: what was released is accounted for under the neighbouring "
                f"relation {' and '.join(sorted(before))}, run {self.run!r} under "
                f"{' and '.join(planned)}, and the two cannot be added up. Nothing was released. "
                "Fix: the same neighbouring_relation in the mechanism, and for labels an account "
                "of their own"
            )
        event = _together((*self._before, *self._planned.entries))
        if not label_releases(event) and not valid_accountants(event):
            raise ParameterError(
                f"{self._account.path}: batches of what was released and of run {self.run!r} are "
                "drawn in different ways, which no accountant covers together under "
                "'replace_one'. Nothing was released. Fix: a mechanism that draws them alike, or "
                "one without batches"
            )


def merged(entries: tuple[LedgerEntry, ...], new: LedgerEntry) -> tuple[LedgerEntry, ...]:
    """Add an entry, as more steps of the last one if it is the same mechanism."""
    if entries and isinstance(new.event, SampledRelease):
        last = entries[-1]
        if isinstance(last.event, SampledRelease) and last.purpose == new.purpose:
            one_step = replace(new.event, steps=last.event.steps)
            if one_step == last.event:
                steps = last.event.steps + new.event.steps
                together = LedgerEntry(new.purpose, replace(new.event, steps=steps))
                return (*entries[:-1], together)
    return (*entries, new)


def _times(entries: Sequence[LedgerEntry]) -> Counter[LedgerEntry]:
    """Count how often each was released."""
    found: Counter[LedgerEntry] = Counter()
    for entry in entries:
        event, times = entry.event, 1
        if isinstance(event, SampledRelease):
            event, times = replace(event, steps=1), event.steps
        found[replace(entry, event=event)] += times
    return found


def _attempts(records: Sequence[Mapping[str, Any]]) -> tuple[Attempt, ...]:
    found: list[Attempt] = []
    for record in records:
        details = record["details"]
        if record["event"] == RUN:
            known = details["run"], record["time"], details["covers"], details["condition"]
            found.append(Attempt(*known, digest=record["digest"]))
        elif record["event"] == SPENT:
            entry = LedgerEntry(details["purpose"], event_from_dict(details["event"]))
            found[-1] = replace(found[-1], entries=merged(found[-1].entries, entry))
    return tuple(found)


def _conditions(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    found = (attempt.condition for attempt in attempts if attempt.entries)
    return tuple(dict.fromkeys(filter(None, found)))


def _budget(records: Sequence[Mapping[str, Any]]) -> Budget | None:
    (*_, last) = [r["details"]["budget"] for r in records if r["event"] in (OPENED, BUDGET)]
    return None if last is None else Budget(**last)


def _epsilon(entries: Sequence[LedgerEntry], delta: float) -> float:
    return epsilon_of(_together(entries), delta) if entries else 0.0


def _together(entries: Sequence[LedgerEntry]) -> Composition:
    return Composition(tuple(entry.event for entry in entries))


def _left(entries: Sequence[LedgerEntry], budget: Budget | None) -> float:
    if budget is None:
        return math.inf
    if not entries:
        return budget.epsilon
    event = _together(entries)
    if label_releases(event):
        return max(0.0, budget.epsilon - epsilon_of(event, budget.delta))
    first = next(releases_in(event))

    def with_one_more(noise_multiplier: float) -> PrivacyEvent:
        one = GaussianRelease("", "", noise_multiplier, 1.0, first.relation, unit=first.unit)
        return Composition((event, one))

    try:
        noise = calibrate_noise_multiplier(
            with_one_more,
            epsilon=budget.epsilon,
            delta=budget.delta,
            accountant=valid_accountants(with_one_more(1.0))[0],
        )
    except PrivacyBudgetError:
        return 0.0
    alone = GaussianRelease("", "", noise, 1.0, NeighbouringRelation.ADD_OR_REMOVE_ONE)
    return epsilon_of(alone, budget.delta)
