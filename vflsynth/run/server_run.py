"""The server's side of a run: match, encode, agree, build, train, keep. The only lifecycle."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from vflsynth import _artefacts as artefacts
from vflsynth._device import few_threads
from vflsynth._random import KeySchedule, RandomStreams
from vflsynth._version import __version__
from vflsynth.frames import AlignmentReport
from vflsynth.learning.base import Algorithm, Duration, Method, Sent
from vflsynth.privacy import LedgerEntry, OpenAccount, SampledRelease
from vflsynth.privacy.padding import Padding
from vflsynth.protocol import SERVER, Channel
from vflsynth.protocol.messages import CheckpointNotice, EncodedSize, EncodedSizes, Hello, Terms
from vflsynth.run.loop import Callback, EpochState, History, run
from vflsynth.run.seat import Agreed, Checkpoints, Saved

logger = logging.getLogger("vflsynth")


class ServerRun(ABC):
    """One run of one method, with parties that may be anywhere.

    `own` are the server's secrets, one per replica, never the parties' shared one, and `keys` make
    the noise that it adds. A checkpoint is written every `checkpoint_every` epochs and after the
    last one, never if None; to continue it, `identity`, JSON-safe, must be equal. `interrupted`
    says whether Ctrl-C ended training early.
    """

    channel: Channel
    """Reaches the parties that train."""
    everybody: Channel
    """Reaches everybody who matches records."""
    most_hours: float | None = None
    """How long training may take."""

    keys: Sequence[KeySchedule]
    agreed: Agreed
    alignment: AlignmentReport
    settings: Any
    algorithm: Algorithm

    def __init__(
        self,
        method: Method,
        *,
        own: Sequence[bytes],
        device: torch.device,
        checkpoints: Checkpoints,
        checkpoint_every: int | None = None,
        identity: Mapping[str, Any],
    ) -> None:
        self.method, self.own, self.device = method, own, device
        self.checkpoints, self.checkpoint_every = checkpoints, checkpoint_every
        self.identity = identity
        self.duration = Duration(0, 0)
        self.history = History()
        self.account: OpenAccount | None = None
        self.interrupted = False

    # -- who is there, and how they are matched --------------------------------------------------

    @abstractmethod
    def match(self, hellos: Mapping[str, Hello]) -> AlignmentReport:
        """Let every party know which of its records all others have, and in which order."""

    def check(self, hellos: Mapping[str, Hello]) -> None:  # noqa: B027 (few have something to do)
        """Check that the parties can work together."""

    def first_epoch(self, hellos: Mapping[str, Hello]) -> int:
        """Return the epoch to go on from, 0 to start: the newest that all nodes have."""
        available = [set(hello.facts["checkpoints"]) for hello in hellos.values()]
        common = set(self.checkpoints.epochs()).intersection(*available)
        return max(common, default=0)

    @property
    def n_training(self) -> int:
        """Training records per replica, once records are matched; dummies included."""
        return self.alignment.n_used

    def open_account(self, done: int) -> None:  # noqa: B027
        """Write down what is released before the first step after epoch `done`."""

    def pay_first(self, account: OpenAccount, done: int) -> None:
        """Refuse a run that would overshoot; pay for the next epoch, and what comes before it."""
        account.check(self.releases(done + 1))
        account.spend(self.releases(done + 1, done + 1))

    def releases(self, first_epoch: int, last_epoch: int | None = None) -> list[LedgerEntry]:
        """Return what all replicas release; see `Plan.releases`."""
        plan = self.method.plan
        assert plan is not None, "only private runs release"
        return [of_replicas(e, len(self.own)) for e in plan.releases(first_epoch, last_epoch)]

    def watchers(self, done: int) -> Sequence[Callback]:
        """Return what watches the training loop."""
        return ()

    def make_algorithm(self, streams: RandomStreams) -> Algorithm:
        """Make the algorithm and what the server computes."""
        return self.method.algorithm(self.channel, self.settings, streams)

    # -- the lifecycle ---------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end, or until Ctrl-C."""
        done, widths = self.join()
        self.train(done, widths)

    def join(self) -> tuple[int, dict[str, int]]:
        """Match and encode the records, and agree on noise and settings.

        Returns the epoch to go on from, and numbers of encoded columns by party.
        """
        method = self.method
        hellos = self.everybody.gather(Hello, 0)
        self.check(hellos)
        done = self.first_epoch(hellos)
        agreed = self.agreed = Agreed.of_hellos(hellos, done, method.key_offset)
        self._tell(Terms, agreed.to_dict())
        self.alignment = self.match(hellos)
        logger.info("%s", self.alignment)
        self.plan(self.n_training)
        self.open_account(done)
        sizes = self.channel.gather(EncodedSize, 0)
        widths = {name: size.encoded_dim for name, size in sizes.items()}
        self.settings = method.settings(self.n_training, widths)
        self.duration = method.duration(self.n_training, self.settings)
        return done, widths

    @property
    def sent(self) -> Sent | None:
        """Where snapshots are kept that are sent once per run, however often it begins again."""
        return None

    @property
    def padding(self) -> Padding | None:
        """How many dummies there may be among the matched records."""
        return self.method.padding(len(self.agreed.rows))

    def plan(self, n_training: int) -> None:
        """Have the method plan its noise, by public numbers alone."""
        trainees = {name: self.agreed.counts[name] for name in self.channel.names}
        self.method.agree(trainees, n_training)

    def train(self, done: int, widths: dict[str, int]) -> None:
        """Build the networks and train them, from epoch `done` on."""
        method = self.method
        self._tell(EncodedSizes, widths)
        size = len(self.own) * method.multiply_adds(self.settings, widths)
        with few_threads(size, self.device):
            self.algorithm = self.make_algorithm(RandomStreams(self.own, self.device))
            self.algorithm.keys, self.algorithm.sent = self.keys, self.sent
            fingerprint = self.fingerprint(widths)
            self.checkpoints.forget_after(done)
            if done:
                state, records = self.checkpoints.load(done, fingerprint, self.device)
                with artefacts.reading("the checkpoint of the server", "a run"):
                    self.algorithm.load_state(state)
                self.history.records[:] = records
            saver = _Checkpointing(self, fingerprint)
            watchers = [*self.watchers(done), saver]
            self.interrupted = run(
                self.algorithm, self.duration, self.history, watchers, done, self.most_hours
            )
            self.algorithm.end(len(self.history.records))

    def fingerprint(self, widths: Mapping[str, int]) -> dict[str, Any]:
        """Return what must be equal for a checkpoint to be continued, JSON-safe."""
        return {
            "version of vflsynth": __version__,
            "algorithm": type(self.algorithm).__name__,
            **self.identity,
            # With dummies, of which there is another number in every attempt, parties check it.
            "n_records": None if self.padding is not None else self.n_training,
            "encoded widths": dict(widths),
            **asdict(self.settings),
            **self.algorithm.fingerprint(),
            "epochs": self.duration.n_epochs,
            "evaluate_every": self.duration.evaluate_every,
        }

    def _tell(self, kind: type[Terms | EncodedSizes], values: dict[str, Any]) -> None:
        """Tell every party the same."""
        names = self.everybody.names
        self.everybody.scatter({name: kind(SERVER, name, 0, values) for name in names})


def of_replicas(entry: LedgerEntry, n_replicas: int) -> LedgerEntry:
    """Return what replicas together release: steps of each, and once what they share."""
    event = entry.event
    if not isinstance(event, SampledRelease):
        return entry
    return replace(entry, event=replace(event, steps=n_replicas * event.steps))


class _Checkpointing:
    """Has all nodes write a checkpoint after the same epoch, and pays for the next one."""

    def __init__(self, node: ServerRun, fingerprint: Mapping[str, Any]) -> None:
        self._node, self._fingerprint = node, fingerprint

    def on_epoch_end(self, state: EpochState) -> None:
        """Write, and tell the parties to, if it is time."""
        node = self._node
        plan = node.method.plan
        if node.account is not None and plan is not None and state.epoch < state.n_epochs:
            node.account.spend(node.releases(state.epoch + 1, state.epoch + 1))
        every = node.checkpoint_every
        last = state.epoch == state.n_epochs or node.algorithm.finished
        if every is None or (state.epoch % every and not last):
            return
        names = node.everybody.names
        node.everybody.scatter(
            {name: CheckpointNotice(SERVER, name, state.epoch) for name in names}
        )
        node.checkpoints.write(
            Saved(state.epoch, node.algorithm.state(), self._fingerprint, node.history.records)
        )
