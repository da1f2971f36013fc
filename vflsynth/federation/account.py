"""What a site has told of its records: its privacy account, and its account of bits.

A context says at most so many bits of a record to its receiver. Bits of snapshots with other noise
add up, over attempts, jobs and audits, and so do those of receivers who pool them. So the server
keeps what it sent, and every site books what is told of its own records, in its audit trail, before
it is; a site file says how much that may be, see `Telling`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsynth import _artefacts as artefacts
from vflsynth._locks import lock
from vflsynth.exceptions import AccountRewoundError, ArtefactError, ToldTooMuchError
from vflsynth.federation import trail
from vflsynth.federation.site import Site
from vflsynth.privacy import PrivacyAccount, PrivacyLedger
from vflsynth.privacy.account import OpenAccount
from vflsynth.privacy.events import Composition
from vflsynth.privacy.ledger import epsilon_of

if TYPE_CHECKING:
    from torch import Tensor


FILE = "privacy-account.json"
KNOWN = "known-accounts.json"
"""In a site's folder: what it remembers of the accounts of all sites, its own included."""

_PATIENCE = 0.5
"""Seconds: a job that waits for another one of the same site lets all other sites wait."""


def account_of(site: Site) -> PrivacyAccount:
    """Return a site's account, which is made when it is needed for the first time.

    All runs of a site are about the same records, so it is in the site's folder, not the run's.
    Raises AccountRewoundError if there was one and it is gone.
    """
    path = site.folder / FILE
    if not path.exists():
        if site.party in _known(site.folder):
            raise _rewound(site.folder, site.party, "is gone")
        return PrivacyAccount.create(path)
    return PrivacyAccount(path, _PATIENCE)


def shown_account(site: Site) -> dict[str, Any]:
    """Show a site's own account, and have the site remember it; see `PrivacyAccount.show`."""
    shown = account_of(site).show()
    remember(site.folder, {site.party: shown})
    return shown


def open_account(site: Site, run: str, planned: PrivacyLedger) -> OpenAccount:
    """Let a run book; see `PrivacyAccount.open`."""
    return account_of(site).open(run, planned, site.budget)


def remember(folder: Path, shown: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse accounts that lack what was in them when they were last shown; remember the others.

    `shown` has, by party, what `PrivacyAccount.show` returned there; `folder` is of the site that
    remembers. Raises AccountRewoundError if an account is another one, or was cut off.
    """
    if not shown:
        return
    with lock(folder / f".{KNOWN}.lock", f"its {KNOWN} is in use for too long"):
        known = _known(folder)
        for party, account in shown.items():
            before = known.get(party)
            if before is not None and account["account"] != before["account"]:
                raise _rewound(folder, party, "is another one than it was")
            if before is not None and before["head"] not in account["heads"]:
                raise _rewound(folder, party, "lacks what was in it before")
            known[party] = {"account": account["account"], "head": account["heads"][-1]}
        artefacts.replace_json(folder / KNOWN, known, mode=0o600)


def report_of(account: OpenAccount, planned: PrivacyLedger, site: Site) -> dict[str, Any]:
    """Return what a run and all of its site have released, JSON-safe."""
    run = [a for a in account.attempts if a.run == account.run and a.entries]
    ledger = replace(planned, entries=tuple(e for a in run for e in a.entries))
    delta = planned.delta if site.budget is None else site.budget.delta
    events = tuple(e.event for e in account.entries)
    epsilon = epsilon_of(Composition(events), delta) if events else 0.0
    return {
        "attempts that released something": len(run),
        "ledger": ledger.to_dict(),
        "all runs of this folder": {
            "epsilon": epsilon if math.isfinite(epsilon) else "infinite",
            "delta": delta,
            "conditions": list(account.conditions),
        },
    }


def _known(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / KNOWN
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(p): {k: str(a[k]) for k in ("account", "head")} for p, a in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(
            f"{path} cannot be read: {error}. It is what this site remembers of all privacy "
            "accounts; bring it back"
        ) from error


def _rewound(folder: Path, party: str, what: str) -> AccountRewoundError:
    return AccountRewoundError(
        f"its privacy account, {FILE} in its folder, {what}: what was spent on its records is not "
        "in it",
        fix=f"bring the file back. If it is lost, and all agree that counting starts anew, take "
        f"{party!r} out of {folder / KNOWN}, at every site",
        party=party,
    )


KIND = "vflsynth contexts that were sent"
TOLD = "told"
"""In the audit trail: so many bits of every record leave, by receiver."""

_DAY = 86_400


class KeptSnapshot:
    """What the server sent in a job, by its digest, to send the same again or nothing."""

    def __init__(self, folder: Path, job: str) -> None:
        self._folder, self._job = folder, job

    def read(self) -> dict[str, Tensor] | None:
        """Return what was sent; None if nothing was.

        Raises ArtefactError if it is damaged, or of another job.
        """
        if not self._folder.exists():
            return None
        root = artefacts.open_directory(self._folder, KIND)
        if artefacts.read_json(root / "job.json") != self._job:
            raise ArtefactError(
                f"{root} was sent in another job of this name. Fix: give the job another name"
            )
        return artefacts.read_tensors(root / "sent.safetensors")

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep what is about to be sent."""
        with artefacts.new_directory(self._folder, KIND, private=True) as root:
            artefacts.write_json(root / "job.json", self._job)
            artefacts.write_tensors(root / "sent.safetensors", tensors)


def book(site: Site, job: str, snapshot: str, bits: Mapping[str, float]) -> None:
    """Write down what is about to be told of a site's records, if the site file allows it.

    `bits`, by receiver, are of every record. `snapshot` names what is sent; the same of the same
    job, by name, is sent again, and tells nothing new. Raises ToldTooMuchError if it would be more
    than the site file says; nothing was told.
    """
    with lock(site.folder / f".{TOLD}.lock", "its account of bits is in use", 60.0):
        for line in trail.lines(site.folder):
            said = line["details"]
            if line["event"] == TOLD and (said["job"], said["snapshot"]) == (job, snapshot):
                return
        most, days = site.telling.bits, site.telling.days
        total = sum(told_bits(site).values()) + sum(bits.values())
        if total > most:
            raise ToldTooMuchError(
                f"this job would tell {sum(bits.values()):g} bits of every record to "
                f"{', '.join(sorted(bits))}; together with what was told in {days} days that is "
                f"{total:g}, and the site file allows {most:g}",
                fix="wait, ask for fewer bits_per_record, or raise bits in [telling]",
                party=site.party,
            )
        written = {name: _written(n) for name, n in bits.items()}
        details = {"job": job, "snapshot": snapshot, "bits": written}
        trail.append(site.folder, TOLD, details)


def told_bits(site: Site) -> dict[str, float]:
    """Return how many bits each receiver was told of every record, in the site file's period."""
    now, latest = datetime.now(UTC), datetime.min.replace(tzinfo=UTC)
    found: dict[str, float] = defaultdict(float)
    for line in trail.lines(site.folder):
        said = datetime.fromisoformat(line["time"])
        if said <= now:
            latest = max(latest, said)
        # A clock that was set back must not have it forgiven: lines are in order.
        age = now - max(said, latest)
        if line["event"] == TOLD and age.total_seconds() <= _DAY * site.telling.days:
            for name, bits in line["details"]["bits"].items():
                found[name] += float(bits)
    return dict(found)


def told_report(site: Site) -> dict[str, Any]:
    """Return what a report says of it: by receiver, and of all receivers if they pool it."""
    told = told_bits(site)
    return {
        "days": site.telling.days,
        "bits of every record, by receiver": {name: _written(n) for name, n in told.items()},
        "bits of every record, if receivers pool them": _written(sum(told.values())),
    }


def _written(bits: float) -> float | str:
    """JSON has no infinity, which is what contexts without noise may tell."""
    return bits if math.isfinite(bits) else "inf"
