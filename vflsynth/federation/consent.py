"""Consent: a site takes part in jobs that somebody there approved, or that a known person signed.

Who proposes a job signs its digest with a key of their own (`vflsynth parties key` makes one,
`submit --key` uses it); a site file lists the public keys of those whose proposals it looks at.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth._signatures import is_signed, sign
from vflsynth.exceptions import ArtefactError, ConsentError
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site

FILE = "approved-jobs.json"
"""In a site's folder: the jobs that it takes part in, by digest."""


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

    Raises
    ------
    ArtefactError
        If earlier approvals cannot be read, or this one cannot be written.
    """
    found = _read(site)
    found[job.digest] = {"job": job.to_dict(), "approved": time.strftime("%Y-%m-%dT%H:%M:%S")}
    artefacts.replace_json(site.folder / FILE, found, mode=0o600)
    trail.append(site.folder, "approved", {"job": job.name, "digest": job.digest})


def withdraw(job: Job, site: Site) -> bool:
    """Take an approval back, for attempts that are still to come; return whether there was one."""
    found = _read(site)
    there = found.pop(job.digest, None) is not None
    artefacts.replace_json(site.folder / FILE, found, mode=0o600)
    trail.append(site.folder, "withdrawn", {"job": job.name, "digest": job.digest})
    return there


def propose(job: Job, key: Path) -> str:
    """Sign a job; return the signature, which travels with the job.

    Raises
    ------
    ParameterError
        If the file is not a private key.
    """
    return sign(key, _signed(job))


def check_consent(job: Job, site: Site, signature: str | None = None) -> None:
    """Refuse a job that the site did not agree to take part in.

    A site that lists proposers refuses what none of them signed; who did is a line of its audit
    trail. A site with records moreover asks for an approval, unless its site file says otherwise.

    Parameters
    ----------
    job : Job
    site : Site
    signature : str, optional
        As `propose` made it.

    Raises
    ------
    ConsentError
    """
    if site.proposers:
        name = _proposer(job, site, signature or "")
        trail.append(
            site.folder, "proposed", {"job": job.name, "digest": job.digest, "proposer": name}
        )
    if site.jobs in ("any", "signed") or site.table is None or is_approved(job, site):
        return
    raise ConsentError(
        f"job {job.name!r} with digest {job.digest} is not approved at this site",
        fix="at the site: vflsynth parties approve JOB SITE, with this very job file",
        party=site.party,
    )


def is_approved(job: Job, site: Site) -> bool:
    """Whether somebody at the site approved this very job."""
    return job.digest in _read(site)


def _proposer(job: Job, site: Site, signature: str) -> str:
    for name, public in site.proposers.items():
        if is_signed(public, _signed(job), signature):
            return name
    raise ConsentError(
        f"job {job.name!r} with digest {job.digest} bears "
        f"{'another signature' if signature else 'no signature'} than those of "
        f"{', '.join(site.proposers)}, whose proposals this site looks at",
        fix="vflsynth parties submit --key KEY, with the private key of one of them; or list "
        "the proposer's public key in [proposers] of the site file, and prepare the kit again",
        party=site.party,
    )


def _signed(job: Job) -> bytes:
    return f"vflsynth job\n{job.digest}".encode()


def _read(site: Site) -> dict[str, Any]:
    path: Path = site.folder / FILE
    if not path.exists():
        return {}
    content = artefacts.read_json(path)
    if not isinstance(content, dict):
        raise ArtefactError(f"{path} is not a list of approved jobs")
    return content
