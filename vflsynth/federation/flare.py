"""The driver on NVIDIA FLARE: a controller at the server, an executor at every party.

Frames travel as FLARE's *aux messages*, one request and one reply per exchange, as bytes: arrays as
arguments would be pickled or fetched apart. FLARE authenticates both ends by certificate, and the
sender's name is the one in the certificate. Importing this module needs the extra ``flare``.
"""

from __future__ import annotations

import gc
import json
import logging
import threading
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

from vflsynth.exceptions import ParameterError, PartyStoppedError, RunAbortedError
from vflsynth.federation.job import Job
from vflsynth.federation.nodes import server_node
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.site import SITE_FILE, Site

logger = logging.getLogger("vflsynth")

TOPIC = "vflsynth.exchange"
TASK = "take_part"
_FRAME = "frame"


def forget_imports() -> None:
    """Have garbage collection look at what comes from now on only: there will be much of it.

    FLARE's transfers end as cycles that hold buffers, and `NodeCheckpoints` has them collected.
    """
    gc.collect()
    gc.freeze()


class FlareLink:
    """A party's way to the server.

    Parameters
    ----------
    fl_ctx : FLContext
    """

    def __init__(self, fl_ctx: FLContext) -> None:
        self._fl_ctx, self._engine = fl_ctx, fl_ctx.get_engine()

    def exchange(self, frame: bytes, timeout: float) -> bytes:
        """Send a frame to the server and return its reply."""
        request = Shareable()
        request[_FRAME] = frame
        replies = self._engine.send_aux_request(
            targets=["server"],
            topic=TOPIC,
            request=request,
            timeout=timeout,
            fl_ctx=self._fl_ctx,
        )
        reply = next(iter(replies.values()), None) if isinstance(replies, dict) else None
        data = None if reply is None else reply.get(_FRAME)
        if not isinstance(data, bytes):
            code = "no reply" if reply is None else reply.get_return_code()
            raise TimeoutError(f"FLARE returned {code}")
        return data


class PartyExecutor(Executor):  # type: ignore[misc]
    """Takes part in a job at one party, as its site file says.

    Parameters
    ----------
    job : str
        A `Job` as JSON. (FLARE would take a nested mapping for something to build.)
    """

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job

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
            PartyNode(Job.from_dict(json.loads(self._job)), site).run(FlareLink(fl_ctx))
        except Exception as error:
            # Its text may show values of the table, so it stays here.
            logger.error("%s: %s", type(error).__name__, error)
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        return make_reply(ReturnCode.OK)


class ServerController(Controller):  # type: ignore[misc]
    """Runs a job at the server.

    Parameters
    ----------
    job : str
        A `Job` as JSON. (FLARE would take a nested mapping for something to build.)
    """

    def __init__(self, job: str) -> None:
        super().__init__(task_check_period=0.1)
        self._job = Job.from_dict(json.loads(job))
        self._ended = threading.Event()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Read the site file and listen for frames."""
        forget_imports()
        self._node = server_node(self._job, _site(fl_ctx))
        fl_ctx.get_engine().register_aux_message_handler(
            topic=TOPIC, message_handle_func=self._on_frame
        )

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Start the parties and run the algorithm; an error ends the job as failed."""
        parties = list(self._job.parties)
        task = Task(name=TASK, data=Shareable(), result_received_cb=self._on_result)
        self.broadcast(task, fl_ctx, targets=parties, min_responses=len(parties))
        watch = threading.Thread(target=self._watch, args=(abort_signal,), daemon=True)
        watch.start()
        try:
            self._node.run()
        except Exception as error:
            logger.error("%s: %s", type(error).__name__, error)
            # Parties that ask within a moment still get the reason itself.
            abort_signal_wait(abort_signal, 1.0)
            self.system_panic(f"{type(error).__name__}: {error}", fl_ctx)
            return
        finally:
            self._ended.set()
        # The parties save their halves; they have nothing more to ask.
        task_done = threading.Event()
        for _ in range(int(self._job.setup_timeout * 10)):
            if task.completion_status is not None or abort_signal.triggered:
                break
            task_done.wait(0.1)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Let nobody wait."""
        self._node.remote.abort(
            RunAbortedError("the server stopped the job", fix="look at the server's log")
        )

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: Any
    ) -> None:
        """Ignore results of tasks that this controller did not give."""

    def _on_frame(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        peer = fl_ctx.get_peer_context()
        sender = peer.get_identity_name() if peer is not None else ""
        frame = request.get(_FRAME)
        reply = make_reply(ReturnCode.OK)
        reply[_FRAME] = self._node.remote.exchange(
            sender, frame if isinstance(frame, bytes) else b""
        )
        return reply

    def _on_result(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Stop at once when a party ends early: it cannot say why if it never got that far."""
        result = client_task.result
        code = result.get_return_code() if result is not None else ReturnCode.EXECUTION_EXCEPTION
        if code != ReturnCode.OK:
            name = client_task.client.name
            self._node.remote.abort(
                PartyStoppedError(
                    f"stopped ({code})",
                    fix=f"look at the log and the report of site {name!r}",
                    party=name,
                )
            )

    def _watch(self, abort_signal: Signal) -> None:
        while not self._ended.wait(0.5):
            if abort_signal.triggered:
                self._node.remote.abort(
                    RunAbortedError("FLARE aborted the job", fix="look at the server's log")
                )
                return


def abort_signal_wait(abort_signal: Signal, seconds: float) -> None:
    """Wait, but not once the job is being aborted."""
    pause = threading.Event()
    for _ in range(int(seconds * 10)):
        if abort_signal.triggered:
            return
        pause.wait(0.1)


def _site(fl_ctx: FLContext) -> Site:
    workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
    if workspace is None:
        workspace = fl_ctx.get_engine().get_workspace()
    return Site.read(Path(workspace.get_site_config_dir()) / SITE_FILE)
