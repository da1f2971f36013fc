"""An audit trail per site: what was approved, attempted, matched, sent and paid, line by line.

Every line holds the digest of the line before it, so a line that is changed, taken out or put in
later breaks the chain. Beside it is a head, with the number of lines and the last digest, so that a
trail that was lost is not taken for a new one. Whoever can write both files can still write all of
it anew: keep the last digest, which `verify` returns, somewhere else from time to time. Beside it
lie the reports: what left a node and what arrived, attempt by attempt.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsynth import _artefacts as artefacts
from vflsynth._locks import lock
from vflsynth._version import __version__
from vflsynth.exceptions import ArtefactError
from vflsynth.privacy.account_file import START, Head, contains, first_broken, link

if TYPE_CHECKING:
    from vflsynth.federation.job import Job
    from vflsynth.protocol.channel import Transcript

FILE = "audit-trail.jsonl"
"""In a site's folder."""

_PATIENCE = 30.0


def append(folder: Path, event: str, details: Mapping[str, Any]) -> None:
    """Add a line to a site's trail, an event of one word and JSON details, on the disk on return.

    Raises ArtefactError if the trail is broken, or cannot be written.
    """
    path = folder / FILE
    with lock(folder / f".{FILE}.lock", "its audit trail is in use", _PATIENCE):
        n, last = verify(folder)
        record = link(n + 1, last, event, details)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with open(os.open(path, flags, 0o600), "ab", buffering=0) as file:
                size, left = file.tell(), json.dumps(record).encode() + b"\n"
                try:
                    while left:
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())
                except OSError:  # a full disk: half a line would be taken for a changed one
                    file.truncate(size)
                    raise
        except OSError as error:
            raise ArtefactError(f"{path} cannot be written: {error}") from error
        Head(path).write(record)


def verify(folder: Path) -> tuple[int, str]:
    """Check the chain; return how many lines there are, and the last digest.

    Raises ArtefactError as `lines`.
    """
    records = lines(folder)
    return len(records), records[-1]["digest"] if records else START


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return what a site's trail says.

    Raises ArtefactError if a line was changed, taken out, put in or lost.
    """
    path = folder / FILE
    head = Head(path)
    last = head.last()
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}") from error
    records = [_parsed(line) for line in text.splitlines()]
    n = first_broken(records)
    if n is None and text and not text.endswith("\n"):
        n = len(records)
    if n is not None:
        raise ArtefactError(
            f"{path}, line {n}: is not what was written, or does not follow the line before. Fix: "
            "bring the latest copy of the file back"
        )
    if last is not None and not contains(records, last):
        raise ArtefactError(
            f"{path} lacks what was in it: {head} knows of {last[0]} lines, and the last of "
            "them is not there. What was told, counted and approved since would not be known. "
            f"Fix: bring the latest copy back. If it is lost, counting starts anew once {head} "
            "is deleted"
        )
    return records


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


UNENDED = "did not end: its process was killed, or is still running"
"""What is to be said of a report without an outcome."""
KILLED = "did not end: its process was killed, or its machine stopped"
"""What the next attempt writes into it."""


REPORTS = "report-*.json"


class Report:
    """The report of one attempt, beside those of earlier ones.

    It is there from the beginning, without an outcome, so that a process that is killed leaves one.
    Beginning and end are in the site's audit trail, with the digest of the report.

    The folder gets ``report-001.json`` and so on: what left in an attempt that failed has left.
    `alone` says that no other process can be at work on the job there: an earlier report without an
    outcome is then of one that died.
    """

    def __init__(self, folder: Path, node: str, job: Job, *, alone: bool = True) -> None:
        before = artefacts.numbered(folder, REPORTS)
        number = 1 + max(before, default=0)
        self._path, self._node = folder / f"report-{number:03d}.json", node
        self._content: dict[str, Any] = {
            "node": node,
            "job": job.to_dict(),
            "version": __version__,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S"),
        }
        artefacts.replace_json(self._path, self._content | {"outcome": None, "note": UNENDED})
        if before and alone:
            self._settle(before[number - 1])
        self._trace("began", {"job": job.name, "digest": job.digest})

    def _settle(self, path: Path) -> None:
        """Say in an earlier report that its process died: only then it has no outcome now."""
        try:
            found = artefacts.read_json(path)
        except ArtefactError:  # damaged: it stays as it is
            return
        if isinstance(found, dict) and found.get("outcome") is None:
            artefacts.replace_json(path, found | {"outcome": KILLED})
            self._trace("killed", {"job": found.get("job", {}).get("name"), "found": path.name})

    def end(
        self,
        error: BaseException | None,
        transcript: Transcript | None = None,
        noised: Collection[str] = (),
        more: dict[str, Any] | None = None,
    ) -> None:
        """Write how the attempt ended: by an error, or None if it was finished.

        `noised` are kinds of messages in which nothing depends on records but by way of noise, or
        of a mask that the receiver does not know; `more` are further entries, JSON-safe.
        """
        rows = [] if transcript is None else transcript.to_frame().to_dict("records")
        for row in rows:
            row["noised"] = row["message"] in noised
        outcome = {
            "outcome": "finished" if error is None else f"{type(error).__name__}: {error}",
            "ended": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "left": [row for row in rows if row["sender"] == self._node],
            "arrived": [row for row in rows if row["receiver"] == self._node],
        }
        content = self._content | outcome
        try:
            artefacts.replace_json(self._path, content | (more or {}))
        except ArtefactError:  # on a full disk less may still have room
            artefacts.replace_json(self._path, content | {"left": [], "arrived": []})
        written = artefacts.file_digest(self._path)
        self._trace("ended", {"outcome": outcome["outcome"], "sha256": written})

    def _trace(self, event: str, details: dict[str, Any]) -> None:
        name = f"{self._path.parent.name}/{self._path.name}"
        append(self._path.parent.parent, event, {"report": name, **details})
