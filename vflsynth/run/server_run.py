"""The server's side of a run: match, encode, agree, build, train, keep. The only lifecycle."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import index
from typing import Any, Protocol, Self

import pandas as pd
import torch
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth._device import few_threads
from vflsynth._random import KeySchedule, RandomStreams
from vflsynth._version import __version__
from vflsynth.exceptions import PayloadRejectedError, ProtocolError
from vflsynth.frames import AlignmentReport
from vflsynth.learning.base import Algorithm, Duration, Method, Sent
from vflsynth.privacy import Composition, LedgerEntry, SampledRelease
from vflsynth.privacy.account import OpenAccount
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.padding import Padding
from vflsynth.protocol.channel import SERVER, Channel, tell
from vflsynth.protocol.messages import CheckpointNotice, EncodedSize, EncodedSizes, Hello, Terms
from vflsynth.run.loop import Callback, EpochState, run

logger = logging.getLogger("vflsynth")


@dataclass(frozen=True)
class Saved:
    """A node's state after an epoch, of which run it is, and the history, which the server has."""

    epoch: int
    tensors: Mapping[str, Tensor]
    fingerprint: Mapping[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)


class Checkpoints(Protocol):
    """Where nodes keep their states."""

    def epochs(self) -> list[int]:
        """Return the epochs after which there is a complete checkpoint, in order."""

    def write(self, node: str, saved: Saved) -> None:
        """Write a node's state."""

    def load(
        self, node: str, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return state and history, if they are of the same run."""

    def forget_after(self, epoch: int) -> None:
        """Drop checkpoints that other nodes do not have."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all nodes of an attempt know of the parties.

    Of each party: `rows` before matching, `columns` without the key, `unlisted` ones about which
    nobody stated anything public (0 without privacy), a nonce that is new in every attempt, and
    what its privacy account and its contract showed, if it has one. The run goes on after `epoch`,
    0 to start; minted keys start at `key_offset`.
    """

    rows: dict[str, int]
    columns: dict[str, int]
    unlisted: dict[str, int]
    nonces: dict[str, str]
    epoch: int
    key_offset: int
    accounts: dict[str, dict[str, Any]]
    contracts: dict[str, dict[str, Any]]

    @classmethod
    def of_hellos(
        cls,
        hellos: Mapping[str, Hello],
        epoch: int,
        choose_offset: Callable[[Sequence[int]], int],
    ) -> Self:
        """Put together what the parties said of themselves."""
        agreeing = {name: hello for name, hello in hellos.items() if "contract" in hello.facts}
        return cls(
            rows=facts(hellos, "rows", int),
            columns=facts(hellos, "n_columns", int),
            unlisted=facts(hellos, "unlisted", int),
            nonces=facts(hellos, "nonce", str),
            epoch=epoch,
            key_offset=choose_offset([fact(h, "key_offset", str, int) for h in hellos.values()]),
            accounts=accounts_of(hellos),
            contracts=facts(agreeing, "contract", dict),
        )

    @classmethod
    def of(cls, terms: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote and another node sent; ProtocolError if it cannot be read."""
        try:
            return cls(
                {str(name): int(n) for name, n in terms["rows"].items()},
                {str(name): int(n) for name, n in terms["columns"].items()},
                {str(name): int(n) for name, n in terms["unlisted"].items()},
                {str(name): str(nonce) for name, nonce in terms["nonces"].items()},
                int(terms["epoch"]),
                int(terms["key_offset"]),
                {str(name): _shown(account) for name, account in terms["accounts"].items()},
                {str(name): dict(told) for name, told in terms["contracts"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"the server's terms cannot be read: {error!r}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; the offset as text, for it may have more than 53 bits."""
        return asdict(self) | {"key_offset": str(self.key_offset)}

    @property
    def nonce(self) -> str:
        """All parties' nonces: new in every attempt for each of them."""
        return "|".join(self.nonces[name] for name in sorted(self.nonces))

    @property
    def counts(self) -> dict[str, ColumnCounts]:
        """Numbers of the parties' columns, which are all that the noise depends on."""
        return {
            name: ColumnCounts(n, self.unlisted.get(name, 0)) for name, n in self.columns.items()
        }


def accounts_of(hellos: Mapping[str, Hello]) -> dict[str, dict[str, Any]]:
    """Read what the hellos of parties that have a privacy account show of it."""
    shown = {n: hello.facts["account"] for n, hello in hellos.items() if "account" in hello.facts}
    return shown_accounts(shown)


def shown_accounts(accounts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Read what parties showed of their privacy accounts; PayloadRejectedError if it is no such."""
    found = {}
    for name, account in accounts.items():
        try:
            found[name] = _shown(account)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PayloadRejectedError(
                "shows something else than a privacy account",
                fix="install the same version of vflsynth at every site",
                party=name,
            ) from error
    return found


def _shown(account: Mapping[str, Any]) -> dict[str, Any]:
    """Read what `PrivacyAccount.show` returned elsewhere."""
    heads = [str(head) for head in account["heads"]]
    if not heads:
        raise ValueError("no head")
    return {"account": str(account["account"]), "heads": heads}


def facts(hellos: Mapping[str, Hello], name: str, kind: type) -> dict[str, Any]:
    """Return one fact of all hellos; see `fact`."""
    return {party: fact(hello, name, kind) for party, hello in hellos.items()}


def fact(hello: Hello, name: str, kind: type, read: Callable[[Any], Any] | None = None) -> Any:
    """Return one fact of a hello, as it is or as `read` reads it.

    Raises PayloadRejectedError if it is of another type than this, or cannot be read.
    """
    value = hello.facts.get(name)
    try:
        if type(value) is not kind:
            raise TypeError
        return value if read is None else read(value)
    except (TypeError, ValueError) as error:
        raise PayloadRejectedError(
            f"its hello says {name} = {str(value)[:80]!r}",
            fix="install the same version of vflsynth at every site",
            party=hello.sender,
        ) from error


def epochs_of(hellos: Mapping[str, Hello]) -> dict[str, set[int]]:
    """Return after which epochs each party has a checkpoint."""
    return {
        name: fact(hello, "checkpoints", list, lambda epochs: {*map(index, epochs)})
        for name, hello in hellos.items()
    }


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
    sent: Sent | None = None
    """Where snapshots are kept that are sent once per run, however often it begins again."""

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
        self.history: list[dict[str, Any]] = []
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
        available = epochs_of(hellos).values()
        return max(set(self.checkpoints.epochs()).intersection(*available), default=0)

    @property
    def n_training(self) -> int:
        """Training records per replica, once records are matched; dummies included."""
        return self.alignment.n_used

    def open_account(self, done: int) -> None:  # noqa: B027
        """Write down what is released before the first step after epoch `done`."""

    def pay_first(self, account: OpenAccount, done: int) -> None:
        """Refuse a run that would overshoot; pay for the next epoch, and what comes before it."""
        paid = account.begin(self.releases, done)
        account.spend(self.releases(paid + 1, done + 1))

    def releases(self, first_epoch: int, last_epoch: int | None = None) -> list[LedgerEntry]:
        """Return what all replicas release; see `Plan.releases`."""
        plan = self.method.plan
        assert plan is not None, "only private runs release"
        return [of_replicas(e, len(self.own)) for e in plan.releases(first_epoch, last_epoch)]

    def watchers(self, done: int) -> Sequence[Callback]:
        """Return what watches the training loop."""
        return ()

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
        tell(self.everybody, Terms, 0, agreed.to_dict())
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
    def padding(self) -> Padding | None:
        """How many dummies there may be among the matched records."""
        return self.method.padding(len(self.agreed.rows))

    def plan(self, n_training: int) -> None:
        """Have the method plan its noise, by public numbers alone."""
        trainees = {name: self.agreed.counts[name] for name in self.channel.names}
        self.method.agree(trainees, n_training)

    def train(self, done: int, widths: dict[str, int]) -> None:
        """Build the networks and train them, from epoch `done` on, if there is an epoch."""
        method = self.method
        tell(self.everybody, EncodedSizes, 0, widths)
        size = len(self.own) * method.multiply_adds(self.settings, widths)
        with few_threads(size, self.device):
            streams = RandomStreams(self.own, self.device)
            self.algorithm = method.algorithm(self.channel, self.settings, streams)
            self.algorithm.keys, self.algorithm.sent = self.keys, self.sent
            if self.duration.n_epochs:
                self._train_epochs(done, widths)
            else:
                self.algorithm.begin()
            self.algorithm.end(len(self.history))

    def _train_epochs(self, done: int, widths: dict[str, int]) -> None:
        self._fingerprint = self.fingerprint(widths)
        self.checkpoints.forget_after(done)
        if done:
            state, self.history[:] = self.checkpoints.load(
                SERVER, done, self._fingerprint, self.device
            )
            with artefacts.reading("the checkpoint of the server", "a run"):
                self.algorithm.load_state(state)
        watchers = [*self.watchers(done), self]
        self.interrupted = run(
            self.algorithm, self.duration, self.history, watchers, done, self.most_hours
        )

    def on_epoch_end(self, state: EpochState) -> None:
        """Pay for the next epoch; if it is time, have all nodes write a checkpoint after this one.

        The training loop calls it, last of all watchers.
        """
        plan = self.method.plan
        if self.account is not None and plan is not None and state.epoch < state.n_epochs:
            self.account.spend(self.releases(state.epoch + 1, state.epoch + 1))
        every = self.checkpoint_every
        last = state.epoch == state.n_epochs or self.algorithm.finished
        if every is None or (state.epoch % every and not last):
            return
        tell(self.everybody, CheckpointNotice, state.epoch)
        saved = Saved(state.epoch, self.algorithm.state(), self._fingerprint, self.history)
        self.checkpoints.write(SERVER, saved)

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


def history_frame(records: Sequence[Mapping[str, Any]], replica: int = 0) -> pd.DataFrame:
    """Return a run's history for one replica: a row per epoch, by whose number it is indexed.

    The column ``chosen`` marks the epoch whose generators were kept.
    """
    rows = [
        {k: v[replica] if isinstance(v, list) else v for k, v in record.items()}
        for record in records
    ]
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    frame = frame.set_index("epoch")
    kept = frame.index[frame.pop("kept").astype(bool)]
    frame["chosen"] = frame.index == kept.max()
    return frame


def history_to_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a history frame as JSON-safe records; what is missing becomes None."""
    plain = frame.reset_index().astype(object)
    records: list[dict[str, Any]] = plain.where(plain.notna(), None).to_dict("records")  # type: ignore[assignment]
    return records


def history_from_json(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Undo `history_to_json`."""
    frame = pd.DataFrame(records)
    return frame.set_index("epoch") if len(frame) else frame


def of_replicas(entry: LedgerEntry, n_replicas: int) -> LedgerEntry:
    """Return what replicas together release: steps of each, and once what they share."""

    def repeated(event: Any) -> Any:
        if isinstance(event, Composition):
            return Composition(tuple(map(repeated, event.events)))
        if isinstance(event, SampledRelease):
            return replace(event, steps=n_replicas * event.steps)
        return event

    return replace(entry, event=repeated(entry.event))
