"""A node's privacy account: what was released about its records, by any run, crashed or not."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError, ParameterError, PrivacyBudgetError
from vflsynth.federation.locks import lock
from vflsynth.federation.site import Budget
from vflsynth.privacy import LedgerEntry, PrivacyLedger, SampledRelease
from vflsynth.privacy.events import event_from_dict, event_to_dict, gaussian_releases

FILE = "privacy-account.json"
_FORMAT, _VERSION = "vflsynth privacy account", 1
_ROUNDING = 1e-9


@dataclass(slots=True)
class _Attempt:
    """What one attempt of a run released."""

    run: str
    started: str
    entries: tuple[LedgerEntry, ...] = ()


class Account:
    """The account of a site's folder; one private run at a time has it open.

    Parameters
    ----------
    folder : Path
        Of the site, not of the run: all its runs are about the same records.
    run : str
        The run that is going to release something.
    ledger : PrivacyLedger
        What the whole run is planned to release.
    budget : Budget, optional
        What the site agrees to.

    Raises
    ------
    ParameterError
        If another run has it open, or earlier runs were under another neighbouring relation.
    ArtefactError
        If the account cannot be read: it is never taken for an empty one.

    Notes
    -----
    `spend` writes to the disk before it returns, and is called before anything leaves: a crash can
    make the account too large, not too small. What an attempt releases that an earlier one had
    released too, after a crash or a lost party, has fresh noise and is written down again.
    """

    def __init__(
        self, folder: Path, run: str, ledger: PrivacyLedger, budget: Budget | None
    ) -> None:
        self._path, self._planned, self._budget = folder / FILE, ledger, budget
        self._lock = lock(
            folder / f".{FILE}.lock",
            "another private run of this site is going on, or hangs. Stop it first",
        )
        try:
            self._attempts = self._read()
            self._check_relation(run)
        except BaseException:
            self._lock.close()
            raise
        self._own = _Attempt(run, time.strftime("%Y-%m-%dT%H:%M:%S"))
        self._attempts.append(self._own)

    def check(self, entries: Sequence[LedgerEntry]) -> None:
        """Refuse a run that would overshoot the site's budget, before anything leaves.

        Raises
        ------
        PrivacyBudgetError
        """
        budget = self._budget
        if budget is None or not entries:
            return
        total = self._epsilon([*self._all(), *entries], budget.delta)
        if total > budget.epsilon * (1.0 + _ROUNDING):
            spent = self._epsilon(self._all(), budget.delta)
            raise PrivacyBudgetError(
                f"this run would bring what was spent on the records of this site from epsilon "
                f"{spent:.4g} to {total:.4g} at delta {budget.delta:g}; its site file agrees to "
                f"{budget.epsilon:g}. Nothing was released. Fix: more noise, or a larger budget"
            )

    def spend(self, entries: Sequence[LedgerEntry]) -> None:
        """Write down what is about to be released."""
        for entry in entries:
            self._own.entries = merged(self._own.entries, entry)
        if entries:
            self._write()

    def close(self) -> dict[str, Any]:
        """Let another run have it; return what this run and all have released, JSON-safe."""
        self._lock.close()
        run = [a for a in self._attempts if a.run == self._own.run and a.entries]
        ledger = replace(self._planned, entries=tuple(e for a in run for e in a.entries))
        delta = self._planned.delta if self._budget is None else self._budget.delta
        return {
            "attempts that released something": len(run),
            "ledger": ledger.to_dict(),
            "all runs of this folder": {
                "epsilon": _json_number(self._epsilon(self._all(), delta)),
                "delta": delta,
            },
        }

    def _check_relation(self, run: str) -> None:
        """Refuse a run whose releases cannot be added up with those of earlier ones."""
        before = {r.relation.value for e in self._all() for r in gaussian_releases(e.event)}
        planned = self._planned.relation
        if planned is not None and before - {planned.value}:
            raise ParameterError(
                f"{self._path.parent}: what runs of this folder released is accounted for under "
                f"the neighbouring relation {' and '.join(map(repr, sorted(before)))}, run {run!r} "
                f"under {planned.value!r}, and the two cannot be added up. Nothing was released. "
                "Fix: the same neighbouring_relation in the job's privacy, or another folder in "
                "the site file, whose account starts anew"
            )

    def _all(self) -> list[LedgerEntry]:
        return [entry for attempt in self._attempts for entry in attempt.entries]

    def _epsilon(self, entries: Sequence[LedgerEntry], delta: float) -> float:
        if not entries:
            return 0.0
        return replace(self._planned, entries=tuple(entries)).epsilon(delta)

    def _read(self) -> list[_Attempt]:
        if not self._path.exists():
            return []
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if (content["format"], content["version"]) != (_FORMAT, _VERSION):
                raise ValueError("another format or version")
            return [
                _Attempt(
                    attempt["run"],
                    attempt["started"],
                    tuple(
                        LedgerEntry(e["purpose"], event_from_dict(e["event"]))
                        for e in attempt["entries"]
                    ),
                )
                for attempt in content["attempts"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArtefactError(
                f"{self._path} is not a privacy account: {error}. What was spent on these records "
                "is in the reports of their runs; without the account nothing more is released"
            ) from error

    def _write(self) -> None:
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "attempts": [
                {
                    "run": a.run,
                    "started": a.started,
                    "entries": [
                        {"purpose": e.purpose, "event": event_to_dict(e.event)} for e in a.entries
                    ],
                }
                for a in self._attempts
                if a.entries
            ],
        }
        artefacts.replace_json(self._path, content, mode=0o600)


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


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "infinite"
