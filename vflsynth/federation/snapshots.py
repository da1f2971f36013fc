"""Snapshots that leave once: what the server sends again, and what a site has told of its records.

A context says at most so many bits of a record to its receiver. Bits of snapshots with other noise
add up, over attempts, jobs and audits, and so do those of receivers who pool them. So the server
keeps what it sent, and every site books what is told of its own records, in its audit trail, before
it is; a site file says how much that may be, see `Telling`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsynth import _artefacts as artefacts
from vflsynth._locks import locked
from vflsynth.exceptions import ArtefactError, ToldTooMuchError
from vflsynth.federation import trail
from vflsynth.federation.site import Site

if TYPE_CHECKING:
    from torch import Tensor

KIND = "vflsynth contexts that were sent"
TOLD = "told"
"""In the audit trail: so many bits of every record leave, by receiver."""

_PATIENCE = 60.0
_TIME = "%Y-%m-%dT%H:%M:%S%z"


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
    with locked(site.folder / f".{TOLD}.lock", "its account of bits is in use", _PATIENCE):
        trail.verify(site.folder)
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
    since = datetime.now(UTC) - timedelta(days=site.telling.days)
    found: dict[str, float] = defaultdict(float)
    for line in trail.lines(site.folder):
        if line["event"] == TOLD and datetime.strptime(line["time"], _TIME) >= since:
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
