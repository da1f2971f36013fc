"""A site's privacy account, and what a site remembers of those of the others."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth._locks import locked
from vflsynth.exceptions import AccountRewoundError, ArtefactError
from vflsynth.federation.site import Site
from vflsynth.privacy import OpenAccount, PrivacyAccount, PrivacyLedger
from vflsynth.privacy.events import Composition
from vflsynth.privacy.ledger import epsilon_of

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
    with locked(folder / f".{KNOWN}.lock", f"its {KNOWN} is in use for too long"):
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
