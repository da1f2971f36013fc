"""The administrator's side: submit a job, ask how it goes, stop it; mutual TLS as for everybody."""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vflsynth.exceptions import (
    MissingExtraError,
    ParameterError,
    ProtocolError,
    UnusableFileError,
    VFLSynthError,
)
from vflsynth.federation.certificates import check_certificate
from vflsynth.federation.consent import propose
from vflsynth.federation.job import Job
from vflsynth.federation.kit import ADMIN, write_job
from vflsynth.registry import Number, check_parameters

logger = logging.getLogger("vflsynth")

DONE = "COMPLETED"
"""What FLARE's status of a job that was finished ends with."""
OUTCOME = "the job ended: "
"""With this, in its log of the job, the server says how it ended."""
FINISHED = "finished"
LOST = "LOST: the server was started again"
_ENDED, _STARTED = ("FINISHED", "FAILED"), ("DISPATCHED", "RUNNING")
_LOOK, _ANSWER_SECONDS = 5.0, 30.0
_START_SECONDS = 120.0
_LOGINS = 12
_NOBODY = logging.NullHandler()
"""Of the root logger: else a terminal gets lines of FLARE's for each attempt to connect."""
_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
"""Seconds between attempts: more each time."""


class Ended(NamedTuple):
    """How a job ended: FLARE's status, and what the server said, empty if it said nothing."""

    status: str
    said: str = ""

    @property
    def finished(self) -> bool:
        """Whether all nodes finished; FLARE also counts what its processes did afterwards."""
        return self.said == FINISHED or (not self.said and self.status.endswith(DONE))

    def __str__(self) -> str:
        return f"{self.said or 'the server does not say how'}; FLARE says {self.status}"


def _logged_in(kit: Path) -> Any:
    """Open a session; a busy server is asked again, as FLARE waits five seconds for its answer."""
    from nvflare.apis.fl_exception import FLCommunicationError
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    left = _LOGINS
    while True:
        left -= 1
        try:
            with redirect_stdout(None):  # where results go
                return new_secure_session(ADMIN, str(kit), timeout=_START_SECONDS)
        except Exception as error:
            if not (left and isinstance(error, FLCommunicationError)):
                raise ProtocolError(
                    f"the server cannot be reached with {kit}: {str(error) or repr(error)}. Fix: "
                    "start the server's kit, and see what 'vflsynth parties logs' says there"
                ) from error
        time.sleep(1.0)


class Administrator:
    """Submits a job and asks how it goes, over mutual TLS as everybody else.

    `kit` is the administrator's start-up kit; the parties are waited for before anything is
    submitted. Raises ProtocolError if server or parties are not there.
    """

    def __init__(self, kit: Path, parties: Sequence[str]) -> None:
        check_installed()
        if not (kit / "startup" / "fed_admin.json").is_file():
            raise UnusableFileError(f"{kit} is not the start-up kit of an administrator")
        check_certificate(kit, ADMIN)
        logging.getLogger().addHandler(_NOBODY)
        self._session = _logged_in(kit)
        try:
            self._session.set_timeout(_ANSWER_SECONDS)  # not five: a busy server is not a lost one
            self._wait_for(parties)
        except BaseException:
            self.close()  # else FLARE's threads would keep this process
            raise

    def _wait_for(self, parties: Sequence[str]) -> None:
        deadline, told = time.monotonic() + _START_SECONDS, False
        while missing := sorted(set(parties) - set(self.clients())):
            names = " and ".join(missing)
            if not told:
                logger.info("waiting for the nodes of %s", names)
                told = True
            if time.monotonic() > deadline:
                raise ProtocolError(
                    f"{names} did not join within {_START_SECONDS:g} s. Fix: have them start their "
                    "kits, and see what 'vflsynth parties check --kit' and 'parties logs' say there"
                )
            time.sleep(0.2)

    def clients(self) -> list[str]:
        """Return the parties that are there."""
        return [client.name for client in self._session.get_system_info().client_info]

    def submit(self, folder: Path) -> str:
        """Submit a job's folder; return FLARE's name for it."""
        return str(self._session.submit_job(str(folder)))

    def abort(self, job_id: str) -> None:
        """Stop a job."""
        self._session.abort_job(job_id)

    def of_name(self, name: str) -> list[str]:
        """Return what FLARE calls the jobs of this name that have not ended."""
        return [
            str(found["job_id"])
            for found in self._session.list_jobs(name_prefix=name)
            if found["job_name"] == name and not str(found["status"]).startswith(_ENDED)
        ]

    def details(self, job_id: str) -> dict[str, Any]:
        """Return what FLARE says of a job."""
        return dict(self._session.get_job_meta(job_id))

    def status(self, job_id: str) -> str:
        """Return FLARE's status of a job."""
        return str(self.details(job_id).get("status"))

    def is_lost(self, job_id: str) -> bool:
        """Whether a job ran on a server that ended: FLARE says for ever that it is running."""
        details, info = self.details(job_id), self._session.get_system_info()
        return (
            str(details.get("status")) in _STARTED
            and float(details.get("last_schedule_time") or math.inf) < info.server_info.start_time
            and job_id not in {running.job_id for running in info.job_info}
        )

    def wait(self, job_id: str, seconds: float, watch: Callable[[], None] = lambda: None) -> str:
        """Wait for the end of a job, calling `watch` all the while; return its status, or `LOST`.

        Raises TimeoutError if it takes longer.
        """
        deadline, look = time.monotonic() + seconds, time.monotonic() + _LOOK
        over, ask = False, time.monotonic() + _ANSWER_SECONDS
        while not (status := self.status(job_id)).startswith(_ENDED):
            if time.monotonic() > look:
                if self.is_lost(job_id):
                    return LOST
                look = time.monotonic() + _LOOK
            if time.monotonic() > ask:
                if over:  # FLARE waits ten minutes for a node that is gone
                    _stop(self, job_id)
                over, ask = bool(self._outcomes(job_id)), time.monotonic() + _ANSWER_SECONDS
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} is still {status} after {seconds:g} s")
            watch()
            time.sleep(0.5)
        return status

    def said(self, job_id: str) -> str:
        """Return what the server says of how a job ended, or why it could not be deployed."""
        with suppress(Exception):  # a server that is gone says nothing
            if lines := self._outcomes(job_id):
                return lines[-1].strip()
            deployed = self.details(job_id).get("job_deploy_detail") or []
            return "; ".join(str(at) for at in deployed if not str(at).endswith(": OK"))
        return ""

    def _outcomes(self, job_id: str) -> list[str]:
        with suppress(Exception):
            log = str(self._session.get_job_logs(job_id)["logs"].get("server", ""))
            return [line.partition(OUTCOME)[2] for line in log.splitlines() if OUTCOME in line]
        return []

    def close(self) -> None:
        """End the session."""
        with suppress(Exception):  # nothing is lost where the server is
            self._session.close()


def submit(
    job: Job,
    admin: Path,
    seconds: float,
    watch: Callable[[], None] = lambda: None,
    attempts: int = 1,
    key: Path | None = None,
) -> Ended:
    """Submit a job, wait for its end and return how it ended.

    FLARE ends a job when one of its processes dies. Submitted again, it goes on from the last
    checkpoint that all nodes have; so it does when the server itself was started again meanwhile.
    The job takes at most `seconds` for each of some `attempts`, is signed with the proposer's
    private `key`, and calls `watch` all the while. `admin` is the
    administrator's start-up kit. Raises TimeoutError if an attempt takes longer; it is stopped;
    ProtocolError if the server or a party is not there, in the last attempt; ParameterError if a
    job of this name is running already.
    """
    check_parameters("submit", {"attempts": attempts}, {"attempts": Number(1, whole=True)})
    proposal = None if key is None else propose(job, key, runs=attempts)
    for attempt in range(1, attempts + 1):
        try:
            with _losing():
                ended = _submit_once(job, admin, seconds, watch, proposal, again=attempt > 1)
        except ProtocolError as error:
            if attempt == attempts:
                raise
            ended = Ended(LOST, str(error))
        if ended.finished:
            break
        if attempt < attempts:
            pause = min(_LONGEST_PAUSE, _PAUSE * attempt)
            logger.warning(
                "attempt %d of %d ended: %s. In %g s the job is submitted again, and goes on from "
                "the last checkpoint that all nodes have",
                *(attempt, attempts, ended, pause),
            )
            time.sleep(pause)
    return ended


@contextmanager
def _losing() -> Iterator[None]:
    """Say that the server was lost, whatever FLARE says: its errors have no common class."""
    try:
        yield
    except (VFLSynthError, TimeoutError):
        raise
    except Exception as error:
        raise ProtocolError(f"the server was lost: {error!r}") from error


def _submit_once(
    job: Job,
    admin: Path,
    seconds: float,
    watch: Callable[[], None],
    proposal: str | None,
    *,
    again: bool,
) -> Ended:
    with closing(Administrator(admin, job.parties)) as administrator:
        found = administrator.of_name(job.name)
        running = [job_id for job_id in found if not administrator.is_lost(job_id)]
        if running and not again:
            raise ParameterError(
                f"job {job.name!r} is running already, as {running[0]}. Fix: wait for its end, "
                "stop it with 'vflsynth parties abort', or give this one another name"
            )
        if running:  # it was perhaps this side alone that was cut off
            job_id = running[0]
        else:
            with tempfile.TemporaryDirectory() as folder:
                job_id = administrator.submit(write_job(job, Path(folder), proposal))
        try:
            status = administrator.wait(job_id, seconds, watch)
            return Ended(status, administrator.said(job_id))
        except TimeoutError:
            administrator.abort(job_id)  # else all would train on, and nobody would wait
            raise


def abort(job: Job, admin: Path) -> int:
    """Stop a job by the administrator's start-up kit; return how many runs were stopped.

    What it has reached stays in the checkpoints. Its end is waited for, as the job cannot be
    submitted again before. Raises TimeoutError if it does not end.
    """
    with closing(Administrator(admin, ())) as administrator:
        found = administrator.of_name(job.name)
        running = [job_id for job_id in found if not administrator.is_lost(job_id)]
        for job_id in running:
            administrator.wait(job_id, _START_SECONDS, partial(_stop, administrator, job_id))
        return len(running)


def _stop(administrator: Administrator, job_id: str) -> None:
    with suppress(Exception):  # FLARE refuses while a job begins or ends
        administrator.abort(job_id)


def check_installed() -> None:
    """Raise MissingExtraError unless FLARE is installed."""
    try:
        import nvflare  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("running parties as processes", "nvflare", "flare") from error
