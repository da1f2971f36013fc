"""Consent: a site takes part in jobs that somebody there approved, or that a known person signed.

Who proposes a job signs it with a key of their own (`vflsynth parties key` makes one, `submit
--key` uses it); a site file lists the public keys of those whose proposals it looks at. A proposal
is for the sites that it names, until a day that it names, and for so many runs. An approval is of a
job at a site as it was: with another table, contract or limits it is none.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from vflsynth import _artefacts as artefacts
from vflsynth._locks import lock
from vflsynth._signatures import is_signed, sign
from vflsynth.exceptions import ArtefactError, ConsentError, PublishingWarning
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site
from vflsynth.frames import read_table
from vflsynth.protocol.channel import SERVER

FILE = "approved-jobs.json"
"""In a site's folder: the jobs that it takes part in, by digest."""

PROPOSED = "proposed"
"""In the audit trail: an attempt of a job that somebody signed."""


def describe(job: Job) -> str:
    """Write what a site agrees to: the job, and what leaves a party for it."""
    method = job.method_for_node()
    said = {name: value for name, value in job.to_dict().items() if name != "contract"}
    lines = [json.dumps(said, indent=1)]
    lines += ["contract that all parties share:", job.contract] if job.contract else []
    lines += [f"digest: {job.digest}", "leaves every party:"]
    for kind in sorted(method.asks, key=lambda kind: kind.__name__):
        declared = kind.declared
        lines.append(
            f"  {kind.__name__}, {declared.when.value}, made of {declared.made_of.value}. Tells: "
            f"{declared.tells}"
        )
    if method.is_private:
        lines.append(
            "private: of what is made of records or networks only what the privacy ledger counts "
            "leaves, within the site's budget"
        )
    return "\n".join(lines)


def approve(job: Job, site: Site) -> None:
    """Write down that a site takes part in a job, as it is; a change of it needs another approval.

    Raises ArtefactError if earlier approvals cannot be read, or this one cannot be written.
    """
    approved = {
        "job": job.to_dict(),
        "approved": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "bound to": bound_to(site),
    }
    with _changing(site):
        found = _read(site) | {job.digest: approved}
        trail.append(site.folder, "approved", {"job": job.name, "digest": job.digest})
        artefacts.replace_json(site.folder / FILE, found, mode=0o600)


def withdraw(job: Job, site: Site) -> bool:
    """Take an approval back, for attempts that are still to come; return whether there was one."""
    with _changing(site):
        found = _read(site)
        there = found.pop(job.digest, None) is not None
        artefacts.replace_json(site.folder / FILE, found, mode=0o600)
    trail.append(site.folder, "withdrawn", {"job": job.name, "digest": job.digest})
    return there


def propose(job: Job, key: Path, *, days: float = 7.0, runs: int = 1) -> str:
    """Sign a job for its parties and server; return the proposal, which travels with the job.

    `key` is the file of the proposer's private key; ParameterError if it is none. The job can be
    begun for so many days, and submitted in so many runs; in each, it begins again as often as it
    says.
    """
    until = datetime.now(UTC) + timedelta(days=days)
    content = {
        "job": job.digest,
        "to": sorted({*job.parties, SERVER}),
        "until": until.isoformat(timespec="seconds"),
        "attempts": runs * (1 + job.most_restarts),
        "id": secrets.token_hex(16),
    }
    return json.dumps(content | {"signature": sign(key, _signed(content))})


def check_consent(job: Job, site: Site, proposal: str | None = None) -> None:
    """Refuse a job that the site did not agree to take part in.

    A site that lists proposers refuses what none of them signed for it, what is too old, and what
    has had its runs; who did, and what was refused, is a line of its audit trail. A site with
    records moreover asks for an approval, unless its site file says otherwise. The proposal is as
    `propose` made it. Raises ConsentError.
    """
    try:
        if site.proposers:
            content = _content(proposal)
            name = _proposer(job, site, content)
            with lock(site.folder / ".proposals.lock", "its proposals are looked at"):
                _check_use(site, content)
                said = {"job": job.name, "digest": job.digest, "proposer": name}
                trail.append(site.folder, PROPOSED, said | {"proposal": content["id"]})
        if site.jobs not in ("any", "signed") and site.table is not None:
            check_approved(job, site)
    except ConsentError as error:
        refused = {"job": job.name, "digest": job.digest, "reason": error.problem}
        trail.append(site.folder, "refused", refused)
        raise


def check_approved(job: Job, site: Site) -> None:
    """Refuse a job that nobody at the site approved, or that was approved when it was otherwise.

    Raises ConsentError, naming what changed.
    """
    found = _read(site).get(job.digest)
    if found is None:
        raise ConsentError(
            f"job {job.name!r} with digest {job.digest} is not approved at this site",
            fix="at the site: vflsynth parties approve JOB SITE, with this very job file",
            party=site.party,
        )
    before, now = found.get("bound to", {}), bound_to(site)
    changed = [name for name, digest in now.items() if before.get(name) != digest]
    if changed:
        raise ConsentError(
            f"job {job.name!r} was approved when this site had another {' and '.join(changed)}",
            fix="look at the change, and at the site: vflsynth parties approve JOB SITE",
            party=site.party,
        )


def bound_to(site: Site) -> dict[str, str]:
    """Return digests of what an approval is about at a site, beside the job."""
    read = (site.party, site.table, site.key, site.labels, site.sample_weight)
    own = (*read, site.column_kinds, site.schema)
    limits = (site.budget, site.bounds, site.telling, site.max_frame_bytes)
    contract = "none" if site.contract is None else site.contract.read_text(encoding="utf-8")
    columns: list[tuple[str, str]] = []
    if site.table is not None and site.table.exists():
        with warnings.catch_warnings():  # a run says them
            warnings.simplefilter("ignore", PublishingWarning)
            frame = read_table(site.table, site.party)
        columns = [(repr(label), str(frame[label].dtype)) for label in frame.columns]
    of = {"site file": own, "table's columns": columns, "contract": contract, "limits": limits}
    return {name: hashlib.sha256(repr(said).encode()).hexdigest() for name, said in of.items()}


def _content(proposal: str | None) -> dict[str, Any]:
    """Read a proposal; of another form, it is signed by nobody."""
    try:
        content = json.loads(proposal or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _proposer(job: Job, site: Site, content: dict[str, Any]) -> str:
    signed = {name: value for name, value in content.items() if name != "signature"}
    signature = content.get("signature")
    for name, public in site.proposers.items():
        own = signed.get("job") == job.digest
        if own and is_signed(public, _signed(signed), str(signature)):
            return name
    raise ConsentError(
        f"job {job.name!r} with digest {job.digest} bears "
        f"{'another signature' if signature else 'no signature'} than those of "
        f"{', '.join(site.proposers)}, whose proposals this site looks at",
        fix="vflsynth parties submit --key KEY, with the private key of one of them; or list "
        "the proposer's public key in [proposers] of the site file, and prepare the kit again",
        party=site.party,
    )


def _check_use(site: Site, content: Mapping[str, Any]) -> None:
    """Refuse a signed proposal that is for others, too old, or has had its runs."""
    problem = None
    lines = trail.lines(site.folder)
    used = sum(
        line["event"] == PROPOSED and line["details"].get("proposal") == content["id"]
        for line in lines
    )
    if site.party not in content["to"]:
        problem = f"is for {', '.join(content['to'])}, and not for this site"
    elif datetime.now(UTC) > datetime.fromisoformat(content["until"]):
        problem = f"could be begun until {content['until']}"
    elif used >= content["attempts"]:
        problem = f"was for {content['attempts']} attempts, and had them"
    if problem is not None:
        raise ConsentError(
            f"a proposal that was signed {problem}",
            fix="have its proposer submit the job again: vflsynth parties submit --key KEY",
            party=site.party,
        )


def _signed(content: Mapping[str, Any]) -> bytes:
    return f"vflsynth job\n{json.dumps(content, sort_keys=True)}".encode()


def _changing(site: Site) -> TextIO:
    """Let nobody else change the list of approvals, who would write an older one."""
    return lock(site.folder / f".{FILE}.lock", "its approvals are being changed", 60.0)


def _read(site: Site) -> dict[str, Any]:
    path: Path = site.folder / FILE
    if not path.exists():
        return {}
    content = artefacts.read_json(path)
    if not isinstance(content, dict):
        raise ArtefactError(f"{path} is not a list of approved jobs")
    return content
