"""What a node is doing now, in a file beside its reports."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsynth import _artefacts as artefacts
from vflsynth._locks import is_locked
from vflsynth.exceptions import ArtefactError
from vflsynth.federation.trail import REPORTS
from vflsynth.reporting import duration_text

if TYPE_CHECKING:
    from vflsynth.learning.base import Duration
    from vflsynth.protocol.channel import Message, Transcript

logger = logging.getLogger("vflsynth")

FILE = "progress.json"
LOCK = ".lock"
RUNS_ALREADY = "this job is running in this folder already. Wait for it, or stop it"
_PHASES = {
    "Hello": "joining",
    "BlindedKeys": "matching",
    "ReblindedKeys": "matching",
    "MatchProof": "matching",
    "EncodedSize": "encoding",
}
_EVERY, _SPOKEN_EVERY = 1.0, 30.0
"""Seconds between writings, and between lines in the log."""
_MEASURED, _LONG = 30.0, 3600.0
"""Seconds of training after which its end is known well enough, and after which it is late."""
FEWER_EXCHANGES = (
    "If parties are far apart, write steps_per_exchange = 5 and wire_precision = 'int8' into the "
    "job's [parameters]: a fifth of the exchanges. It is another model: every party approves the "
    "job anew"
)


class Progress:
    """Writes down what a node is asked for, or asks for; at most once a second.

    The folder is the node's for the job; `duration` returns how long training is, once that is
    known. Advice is said once, where training is going to take hours.
    """

    def __init__(
        self,
        folder: Path,
        node: str,
        duration: Callable[[], Duration],
        transcript: Transcript,
        advice: str | None = None,
    ) -> None:
        self._folder, self._node, self._duration = folder, node, duration
        self._transcript, self.advice = transcript, advice
        self._began: tuple[float, int] | None = None  # training: when, and at which step
        self._phase, self._written, self._spoken = "", -_EVERY, 0.0

    def note(self, kind: type[Message], step: int) -> None:
        """Take note of a message that is due."""
        now, phase = time.monotonic(), _PHASES.get(kind.__name__, "training")
        if phase == self._phase and now - self._written < _EVERY:
            return
        sent, received = self._transcript.bytes_of(self._node)
        found: dict[str, Any] = {"node": self._node, "pid": os.getpid(), "phase": phase}
        found |= {"updated": time.time(), "sent_bytes": sent, "received_bytes": received}
        found |= self._of_training(kind, step, now)
        self._folder.mkdir(parents=True, exist_ok=True)
        with artefacts.aside(self._folder / FILE) as side:  # of no use after a power failure
            side.write_text(json.dumps(found), encoding="utf-8")
        if phase != self._phase or now - self._spoken > _SPOKEN_EVERY:
            logger.info("%s: %s", self._node, sentence(found))
            self._spoken = now
        self._phase, self._written = phase, now

    def _of_training(self, kind: type[Message], step: int, now: float) -> dict[str, Any]:
        from vflsynth.protocol.channel import When

        duration = self._duration()
        trains = kind.declared.when is When.STEP and kind.__name__ not in _PHASES
        if not trains or not duration.n_steps:
            return {}
        if self._began is None:
            self._began = now, step
        since, first = self._began
        left = None
        if step > first:
            each = (now - since) / (step - first)
            left = each * (duration.n_steps - step)
            if self.advice and now - since > _MEASURED and left > _LONG:
                logger.warning(
                    "%s: a step takes %.0f ms, and training about %s more. %s",
                    self._node,
                    1000 * each,
                    duration_text(left),
                    self.advice,
                )
                self.advice = None
        return {
            "epoch": min(step // max(1, duration.steps_per_epoch) + 1, duration.n_epochs),
            "n_epochs": duration.n_epochs,
            "seconds_left": left,
        }


def sentence(found: dict[str, Any]) -> str:
    """Say in words what `Progress` wrote."""
    text = str(found["phase"])
    if "epoch" in found:
        text += f", epoch {found['epoch']} of {found['n_epochs']}"
    if found.get("seconds_left") is not None:
        text += f", about {duration_text(found['seconds_left'])} left"
    megabytes = [found[name] / 1e6 for name in ("sent_bytes", "received_bytes")]
    return f"{text}; {megabytes[0]:.1f} MB sent, {megabytes[1]:.1f} MB received"


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job stands at a node.

    `started` is the time of the last attempt, as its report says it; `outcome` None while it is
    running; `found` what `Progress` wrote last, empty if nothing can be read.
    """

    job: str
    attempts: int
    started: str
    outcome: str | None
    found: dict[str, Any]

    @property
    def running(self) -> bool:
        """Whether a process works on it at this moment."""
        return self.outcome is None

    def __str__(self) -> str:
        if not self.attempts:
            return "no attempt yet"
        if not self.running:
            return f"not running; attempt {self.attempts} of {self.started}: {self.outcome}"
        if not self.found:
            return "running"
        ago = duration_text(max(0.0, time.time() - self.found["updated"]))
        return f"running: {sentence(self.found)} ({ago} ago)"


def job_state(folder: Path, job: str) -> JobState:
    """Say by a site's folder how a job is going at a node, or how its last attempt ended."""
    own = folder / job
    reports = [*artefacts.numbered(own, REPORTS).values()]
    if not reports:
        return JobState(job, 0, "", "no attempt yet", {})
    last = report_of(reports[-1])
    outcome = last.get("outcome") or "did not end: its process was killed"
    running = is_locked(own / LOCK)
    return JobState(
        job,
        len(reports),
        last.get("started", ""),
        None if running else outcome,
        _entries(own / FILE) or {},
    )


def report_of(path: Path) -> dict[str, Any]:
    """Read a report; one that is damaged has that as its outcome."""
    found = _entries(path)
    return {"outcome": f"{path} cannot be read"} if found is None else found


def _entries(path: Path) -> dict[str, Any] | None:
    try:
        found = artefacts.read_json(path)
    except ArtefactError:
        return None
    return found if isinstance(found, dict) else None
