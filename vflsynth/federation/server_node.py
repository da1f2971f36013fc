"""The server as a process of its own: the same algorithm and loop, over a remote channel."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from vflsynth._device import few_threads, resolve_device
from vflsynth._random import RandomStreams
from vflsynth._version import __version__
from vflsynth.exceptions import NoCommonCheckpointError
from vflsynth.federation.account import Account
from vflsynth.federation.checkpoints import NodeCheckpoints
from vflsynth.federation.exchange import RemoteChannel
from vflsynth.federation.gan_program import SynthesizerProgram
from vflsynth.federation.job import Job
from vflsynth.federation.matching import agree, check_facts, fact, match_blinded
from vflsynth.federation.program import Program
from vflsynth.federation.programs import program_of
from vflsynth.federation.reports import write_report
from vflsynth.federation.site import Site, kept_secret
from vflsynth.protocol import Channel, CheckpointNotice, EncodedSize, Hello, Terms, Transcript
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.training import Algorithm, EpochState, History, Plan, run

logger = logging.getLogger("vflsynth")


class ServerNode(ABC):
    """Runs one job with parties that are elsewhere.

    Parameters
    ----------
    job : Job
    site : Site
        The server's own: a folder, and at an active party table and secret.
    """

    def __init__(self, job: Job, site: Site) -> None:
        self.job, self.site = job, site
        self.program: Program = program_of(job)
        self.folder = site.folder / job.name
        self.checkpoints = NodeCheckpoints(self.folder / "checkpoints")
        self.transcript = Transcript()
        self.remote = RemoteChannel(
            job.parties, job.name, job.limits, self.transcript, self.own_tag()
        )
        self.history = History(1)
        self._found: dict[str, Any] = {}
        self.account: Account | None = None

    def own_tag(self) -> Callable[[Verb, int], str] | None:
        """Return what makes the server's own tags, if it shares the parties' secret."""
        return None

    @property
    def channel(self) -> Channel:
        """Reaches everybody who matches records."""
        return self.remote

    @abstractmethod
    def algorithm(self, settings: Any, plan: Plan, streams: RandomStreams) -> Algorithm:
        """Make the algorithm and the server's network."""

    def save(self, algorithm: Algorithm) -> None:  # noqa: B027 (VFLGAN's server keeps nothing)
        """Write the server's part of the model, if it has one."""

    def run(self) -> None:
        """Run the job; whatever goes wrong, every party gets the reason."""
        started, outcome = time.strftime("%Y-%m-%dT%H:%M:%S"), "finished"
        try:
            self._run()
        except BaseException as error:
            self.remote.abort(error)
            outcome = f"{type(error).__name__}: {error}"
            raise
        finally:
            more = {"history": self.history.records, **self._found}
            if self.account is not None:
                more["privacy"] = self.account.close()
            write_report(
                self.folder,
                SERVER,
                self.job,
                self.transcript,
                started,
                outcome,
                self.program.noised,
                more,
            )

    def _run(self) -> None:
        hellos = self.channel.gather(Verb.HELLO, 0, Hello)
        check_facts(hellos, self.job.digest)
        program, done = self.program, self._newest_common(hellos)
        agreed = agree(hellos, done, program.key_offset)
        self._tell(Verb.TERMS, agreed.to_dict())
        matched_by = "index" if self.job.on is None else f"key column {self.job.on!r}"
        alignment = match_blinded(self.channel, hellos, matched_by)
        logger.info("%s", alignment)
        program.matched(agreed, alignment.n_matched)
        self._open_account(done)
        sizes = self.remote.gather(Verb.ENCODED_SIZE, 0, EncodedSize)
        widths = {name: size.encoded_dim for name, size in sizes.items()}
        settings = program.settings(alignment.n_matched, widths)
        plan = program.plan(alignment.n_matched, settings)
        self._found = {"alignment": asdict(alignment), "settings": asdict(settings)}
        self._tell(Verb.BUILD, {"widths": widths})
        device = resolve_device(self.site.device)
        own = self.site.own or kept_secret(self.folder / "own-secret")
        with few_threads(program.multiply_adds(settings, widths), device):
            algorithm = self.algorithm(settings, plan, RandomStreams([own], device))
            fingerprint = {
                "version of vflsynth": __version__,
                "job": self.job.digest,
                "settings": asdict(settings),
                "widths": widths,
                **algorithm.fingerprint(),
            }
            self.checkpoints.forget_after(done)
            if done:
                state, records = self.checkpoints.load(done, fingerprint, device)
                algorithm.load_state(state)
                self.history.records[:] = records
            saver = _Checkpointing(self, algorithm, fingerprint)
            run(algorithm, plan, self.history, [saver], done)
            algorithm.end(len(self.history.records))
        self.save(algorithm)
        self.remote.finish()

    def _tell(self, verb: Verb, terms: dict[str, Any]) -> None:
        """Tell every party the same."""
        names = self.remote.names
        self.remote.scatter(verb, {name: Terms(SERVER, name, 0, terms) for name in names})

    def _open_account(self, done: int) -> None:
        """Write down what the next epoch releases, and what comes before it."""
        ledger = self.program.ledger()
        if ledger is None:
            return
        account = self.account = Account(self.site.folder, self.job.name, ledger, self.site.budget)
        account.check(self.program.releases(done + 1))
        account.spend(self.program.releases(done + 1, done + 1))

    def _newest_common(self, hellos: Mapping[str, Hello]) -> int:
        """Choose the epoch to go on from, 0 to start."""
        available = {name: set(fact(h, "checkpoints", list)) for name, h in hellos.items()}
        available[SERVER] = set(self.checkpoints.epochs())
        common = set.intersection(*available.values())
        if common:
            return int(max(common))
        latest = max((epoch for epochs in available.values() for epoch in epochs), default=0)
        if latest > self.job.checkpoint_every:
            having = {name: sorted(epochs) for name, epochs in available.items()}
            raise NoCommonCheckpointError(
                f"run {self.job.name!r} was at epoch {latest}, but no checkpoint is at all nodes: "
                f"{having}",
                fix="bring back the lost checkpoints, or give the job another name to start anew",
            )
        return 0


class _Checkpointing:
    """Has all nodes write a checkpoint after the same epoch, and pays for the next one."""

    def __init__(
        self, node: ServerNode, algorithm: Algorithm, fingerprint: Mapping[str, Any]
    ) -> None:
        self._node, self._algorithm, self._fingerprint = node, algorithm, fingerprint

    def on_epoch_end(self, state: EpochState) -> None:
        """Write, and tell the parties to, if it is time."""
        node = self._node
        if node.account is not None and state.epoch < state.n_epochs:
            node.account.spend(node.program.releases(state.epoch + 1, state.epoch + 1))
        if state.epoch % node.job.checkpoint_every and state.epoch != state.n_epochs:
            return
        remote = node.remote
        remote.scatter(
            Verb.CHECKPOINT,
            {name: CheckpointNotice(SERVER, name, state.epoch) for name in remote.names},
        )
        node.checkpoints.write(
            state.epoch, self._algorithm.state(), self._fingerprint, node.history.records
        )


class SynthesizerNode(ServerNode):
    """The server of a synthesizer.

    Parameters
    ----------
    job, site
        See `ServerNode`.
    """

    def algorithm(self, settings: Any, plan: Plan, streams: RandomStreams) -> Algorithm:
        """Make the algorithm and what the server computes."""
        assert isinstance(self.program, SynthesizerProgram)
        return self.program.algorithm(self.remote, settings, streams)
