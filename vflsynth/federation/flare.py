"""The driver on NVIDIA FLARE: a controller at the server, an executor at every party.

Frames travel as FLARE's *aux messages*, one request and one reply per exchange, as bytes: arrays as
arguments would be pickled or fetched apart. FLARE authenticates both ends by certificate, and the
sender's name is the one in the certificate. Importing this module needs the extra ``flare``.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from vflsynth.exceptions import (
    ExchangeError,
    ParameterError,
    PartyLostError,
    PartyStoppedError,
    RunAbortedError,
)
from vflsynth.federation.administrator import FINISHED, OUTCOME
from vflsynth.federation.attempts import ServerAttempts, attend, reported
from vflsynth.federation.consent import check_consent
from vflsynth.federation.job import Job
from vflsynth.federation.kit import unpacked
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.site import SITE_FILE, Site

logger = logging.getLogger("vflsynth")

TOPIC = "vflsynth.exchange"
ALIVE = "vflsynth.alive"
TASK = "take_part"
_FRAME = "frame"
_LAST_WORDS = 3.0
"""Seconds for which a party still asks the server why, after FLARE has aborted the job and the
attempt that was under way has ended; FLARE ends its process after ten."""
_TELLING = 8.0
"""Seconds for which a server that stops waits for parties that do not know why."""
_KNOCK = 2.0
"""Seconds in which a process that lives answers."""
_LINGER, _LOOK = 60.0, 5.0
"""Seconds without a word from the server after which a party's process ends once its report is
written, and between looks: FLARE's own would try for ever to hand its result in."""
_GONE = {ReturnCode.TIMEOUT, ReturnCode.COMMUNICATION_ERROR, ReturnCode.ERROR}


def forget_imports() -> None:
    """Have garbage collection look at what comes from now on only: there will be much of it.

    FLARE's transfers end as cycles that hold buffers, and `NodeCheckpoints` has them collected.
    """
    gc.collect()
    gc.freeze()


def beyond_abort(fl_ctx: FLContext) -> FLContext:
    """Return a context whose requests FLARE does not cut when it aborts the job."""
    kept = copy.copy(fl_ctx)
    kept.get_run_abort_signal = lambda: None
    return kept


class FlareLink:
    """A party's way to the server.

    FLARE aborts the job of everybody when one process dies. The server knows whose; so the party
    goes on asking for a moment.
    """

    def __init__(self, fl_ctx: FLContext, abort_signal: Signal) -> None:
        self._fl_ctx, self._engine = beyond_abort(fl_ctx), fl_ctx.get_engine()
        self._abort_signal, self._aborted = abort_signal, math.inf

    def exchange(self, frame: bytes, timeout: float) -> bytes:
        """Send a frame to the server and return its reply."""
        if self._abort_signal.triggered:
            timeout = min(timeout, _LAST_WORDS)
        request = Shareable()
        request[_FRAME] = frame
        replies = self._engine.send_aux_request(
            targets=["server"],
            topic=TOPIC,
            request=request,
            timeout=timeout,
            fl_ctx=self._fl_ctx,
            optional=True,  # it is sent again
        )
        reply = next(iter(replies.values()), None) if isinstance(replies, dict) else None
        data = None if reply is None else reply.get(_FRAME)
        if isinstance(data, bytes):
            return data
        if self._abort_signal.triggered:
            self._aborted = min(self._aborted, time.monotonic())
            if time.monotonic() - self._aborted > _LAST_WORDS / 2:
                raise RunAbortedError(
                    "FLARE stopped this run, and the server did not say why",
                    fix="look at the server's log and report",
                )
        code = "no reply" if reply is None else reply.get_return_code()
        raise TimeoutError(f"FLARE returned {code}")


class PartyExecutor(Executor):  # type: ignore[misc]
    """Takes part in a job at one party, as its site file says.

    Job and proposal are as `vflsynth.federation.kit.write_job` packs them: FLARE would take a
    mapping for something to build. The proposal is signed by whoever proposes the job, see
    `vflsynth.federation.consent`.
    """

    def __init__(self, job: str, proposal: str | None = None) -> None:
        super().__init__()
        self._job, self._proposal = job, proposal and unpacked(proposal)

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Run the party's side; the site's log and report say what went wrong."""
        forget_imports()
        try:
            site = _site(fl_ctx)
            if site.party != fl_ctx.get_identity_name():
                raise ParameterError(
                    f"the site file is of party {site.party!r}; the certificate is of "
                    f"{fl_ctx.get_identity_name()!r}"
                )
            answer_knocks(fl_ctx)
            attend(_job(self._job), site, FlareLink(fl_ctx, abort_signal), self._node)
        except Exception as error:
            # Its text may show values of the table, so it stays here.
            logger.error("%s: %s", type(error).__name__, error)
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        finally:
            threading.Thread(target=_leave, args=(beyond_abort(fl_ctx),), daemon=True).start()
        return make_reply(ReturnCode.OK)

    def _node(self, job: Job, site: Site) -> PartyNode:
        check_consent(job, site, self._proposal)
        return PartyNode(job, site)


class ServerController(Controller):  # type: ignore[misc]
    """Runs a job at the server; job and proposal are those of `PartyExecutor`."""

    def __init__(self, job: str, proposal: str | None = None) -> None:
        super().__init__(task_check_period=0.1)
        self._proposal = proposal and unpacked(proposal)
        self._job = _job(job)
        self._started: ServerAttempts | None = None
        self._ended = threading.Event()
        self._handed_in: set[str] = set()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Read the site file and listen for frames."""
        forget_imports()
        site = _site(fl_ctx)
        try:
            with reported(site, self._job):
                check_consent(self._job, site, self._proposal)
                self._started = ServerAttempts(self._job, site)
        except Exception as error:
            logger.error("%s%s: %s", OUTCOME, type(error).__name__, _line(error))
            raise
        answer_knocks(fl_ctx)
        fl_ctx.get_engine().register_aux_message_handler(
            topic=TOPIC, message_handle_func=self._on_frame
        )

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Start the parties and run the algorithm; an error ends the job as failed."""
        parties = list(self._job.parties)
        task = Task(name=TASK, data=Shareable(), result_received_cb=self._on_result)
        self.broadcast(task, fl_ctx, targets=parties, min_responses=len(parties))
        watch = threading.Thread(
            target=self._watch, args=(abort_signal, beyond_abort(fl_ctx)), daemon=True
        )
        watch.start()
        try:
            self._attempts.run()
        except Exception as error:
            logger.error("%s%s: %s", OUTCOME, type(error).__name__, _line(error))
            # Parties that are slow to join, or compute, still get the reason itself.
            self._wait_until_told(abort_signal)
            self.system_panic(f"{type(error).__name__}: {error}", fl_ctx)
            return
        finally:
            self._ended.set()
        late = self._late(task, abort_signal, beyond_abort(fl_ctx))
        said = (
            f"the server finished, and {' and '.join(late)} did not say so. Start the same job "
            "again if 'vflsynth parties status' there does not say it either"
        )
        logger.info("%s%s", OUTCOME, said if late else FINISHED)

    def _late(self, task: Task, abort_signal: Signal, fl_ctx: FLContext) -> list[str]:
        """Wait while parties that live save their halves; return who did not say that it has."""
        late, pause, look = list(self._job.parties), threading.Event(), 0.0
        heard = start = time.monotonic()
        while task.completion_status is None and not abort_signal.triggered:
            late = [name for name in late if name not in self._handed_in]
            if time.monotonic() >= look:
                heard = heard if _gone(fl_ctx, late) else time.monotonic()
                look = time.monotonic() + _LOOK
            now = time.monotonic()
            if now > heard + self._job.exchange_timeout or now > start + self._job.setup_timeout:
                break
            pause.wait(0.1)
        return [name for name in late if name not in self._handed_in]

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Let nobody wait."""
        if self._started is not None:
            self._started.stop(
                RunAbortedError("the server stopped the job", fix="look at the server's log")
            )

    @property
    def _attempts(self) -> ServerAttempts:
        assert self._started is not None, "FLARE runs no controller that did not start"
        return self._started

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: Any
    ) -> None:
        """Ignore results of tasks that this controller did not give."""

    def _on_frame(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        peer = fl_ctx.get_peer_context()
        sender = peer.get_identity_name() if peer is not None else ""
        frame = request.get(_FRAME)
        reply = make_reply(ReturnCode.OK)
        data = frame if isinstance(frame, bytes) else b""
        reply[_FRAME] = self._attempts.exchange(sender, data)
        return reply

    def _on_result(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Stop at once when a party ends early: it cannot say why if it never got that far."""
        result = client_task.result
        code = result.get_return_code() if result is not None else ReturnCode.EXECUTION_EXCEPTION
        name = client_task.client.name
        if code == ReturnCode.OK:
            self._handed_in.add(name)
        else:
            self._attempts.stop(
                PartyStoppedError(
                    f"stopped ({code})",
                    fix=f"look at the log and the report of site {name!r}",
                    party=name,
                )
            )

    def _wait_until_told(self, abort_signal: Signal) -> None:
        """Wait for parties that have not asked yet, but not once the job is being aborted."""
        pause, deadline = threading.Event(), time.monotonic() + _TELLING
        while time.monotonic() < deadline and not abort_signal.triggered:
            if self._attempts.node.remote.all_told:
                return
            pause.wait(0.1)

    def _watch(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Say why FLARE aborts the job, which it does not: most likely a process has died."""
        while not self._ended.wait(0.2):
            if abort_signal.triggered:
                self._attempts.stop(self._cause(fl_ctx))
                return

    def _cause(self, fl_ctx: FLContext) -> ExchangeError:
        gone = _gone(fl_ctx, list(self._job.parties))
        if not gone:
            return RunAbortedError("FLARE aborted the job", fix="look at the server's log")
        several = " and ".join(gone)
        return PartyLostError(
            f"the process of {several} is gone: it was killed, ran out of memory, or cannot be "
            "reached",
            fix=f"look at the log and the system's messages of {several}, then start the same job "
            "again: it resumes from the last checkpoint that all nodes have",
            party=gone[0],
            step=self._attempts.node.remote.step,
        )


def _leave(fl_ctx: FLContext) -> None:
    """End this process when nobody is there to hand its result to."""
    heard = time.monotonic()
    while time.monotonic() < heard + _LINGER:
        if not _gone(fl_ctx, ["server"]):
            heard = time.monotonic()
        time.sleep(_LOOK)
    logger.warning("the server is gone, and this process, whose report is written, ends")
    os._exit(1)


def _gone(fl_ctx: FLContext, names: list[str]) -> list[str]:
    """Knock at nodes' processes of this job, and return who does not answer."""
    replies = fl_ctx.get_engine().send_aux_request(
        targets=names,
        topic=ALIVE,
        request=Shareable(),
        timeout=_KNOCK,
        fl_ctx=fl_ctx,
        optional=True,
    )
    codes = {name: reply.get_return_code() for name, reply in (replies or {}).items()}
    return [name for name in names if codes.get(name, ReturnCode.TIMEOUT) in _GONE]


def answer_knocks(fl_ctx: FLContext) -> None:
    """Let others see that this process lives."""
    fl_ctx.get_engine().register_aux_message_handler(
        topic=ALIVE, message_handle_func=lambda **_: make_reply(ReturnCode.OK)
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _job(said: str) -> Job:
    return Job.from_dict(json.loads(unpacked(said)))


def _site(fl_ctx: FLContext) -> Site:
    workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
    if workspace is None:
        workspace = fl_ctx.get_engine().get_workspace()
    return Site.read(Path(workspace.get_site_config_dir()) / SITE_FILE)
