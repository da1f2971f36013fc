"""What left a node and what arrived, attempt by attempt."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth._version import __version__
from vflsynth.federation.job import Job
from vflsynth.protocol import Transcript


def write_report(
    folder: Path,
    node: str,
    job: Job,
    transcript: Transcript,
    started: str,
    outcome: str,
    noised: Collection[str],
    more: dict[str, Any] | None = None,
) -> None:
    """Write the report of one attempt beside those of earlier ones.

    Parameters
    ----------
    folder : Path
        Gets ``report-001.json`` and so on: what left in an attempt that failed has left.
    node : str
        Party name, or ``"server"``.
    job : Job
    transcript : Transcript
    started : str
        When the attempt began.
    outcome : str
        ``"finished"``, or the error.
    noised : collection of str
        Kinds of messages in which nothing depends on records but by way of noise, or of a mask that
        the receiver does not know.
    more : dict, optional
        Further entries, JSON-safe.
    """
    rows = transcript.to_frame().to_dict("records")
    for row in rows:
        row["noised"] = row["message"] in noised
    content = {
        "node": node,
        "job": job.to_dict(),
        "version": __version__,
        "started": started,
        "outcome": outcome,
        "left": [row for row in rows if row["sender"] == node],
        "arrived": [row for row in rows if row["receiver"] == node],
        **(more or {}),
    }
    number = 1 + len(list(folder.glob("report-*.json")))
    artefacts.replace_json(folder / f"report-{number:03d}.json", content)
