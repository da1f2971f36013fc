"""Consent: a site takes part in a job when somebody at the site has read and approved it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError, ConsentError
from vflsynth.federation import trail
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site

FILE = "approved-jobs.json"
"""In a site's folder: the jobs that it takes part in, by digest."""


def describe(job: Job) -> str:
    """Write what a site agrees to: the job, and what leaves a party for it."""
    method = job.method_for_node()
    lines = [json.dumps(job.to_dict(), indent=1), f"digest: {job.digest}", "leaves every party:"]
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


def check_consent(job: Job, site: Site) -> None:
    """Refuse a job that nobody at the site approved, if the site has records and asks for that.

    Raises
    ------
    ConsentError
    """
    if site.jobs == "any" or site.table is None or job.digest in _read(site):
        return
    raise ConsentError(
        f"job {job.name!r} with digest {job.digest} is not approved at this site",
        fix="at the site: vflsynth parties approve JOB SITE, with this very job file",
        party=site.party,
    )


def _read(site: Site) -> dict[str, Any]:
    path: Path = site.folder / FILE
    if not path.exists():
        return {}
    content = artefacts.read_json(path)
    if not isinstance(content, dict):
        raise ArtefactError(f"{path} is not a list of approved jobs")
    return content
