"""All nodes of a run in this process, for any number of replicas, and its checkpoint."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth._device import available_memory
from vflsynth._random import KeySchedule, Purpose, RandomStreams, derive, repeatable
from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.contract import Preparation
from vflsynth.exceptions import (
    ArtefactError,
    MemoryLimitError,
    ParameterError,
    PublishingWarning,
    warn_user,
)
from vflsynth.frames import AlignmentReport, DrawnRecords, MatchOn, key_of
from vflsynth.frames.keys import align_keys, how_to_agree
from vflsynth.frames.party_frames import with_lost
from vflsynth.learning import Method, Party
from vflsynth.learning.base import EncodingSource, SharedDraws, Size
from vflsynth.privacy import PrivacyAccount
from vflsynth.privacy.account import OpenAccount
from vflsynth.protocol.channel import SERVER, Channel, LocalChannel, Transcript, tell
from vflsynth.protocol.messages import AlignmentNotice, Hello, KeyList
from vflsynth.protocol.schedule import Schedule
from vflsynth.registry import Number, Optional, check_parameters
from vflsynth.reporting import size_text
from vflsynth.run.loop import Callback, EarlyStopping, Progress
from vflsynth.run.party_run import PartyRun, Seat
from vflsynth.run.server_run import Agreed, Saved, ServerRun

logger = logging.getLogger("vflsynth")

KIND = "vflsynth checkpoint"
_FIX = "Resume with the same tables, parameters, integer random_state (--seed) and version"

PathLike = str | os.PathLike[str]

_USUAL_SHARE = 2 / 3
"""Share of every party's records that is expected to be matched."""


@dataclass(frozen=True)
class Options:
    """What surrounds a training, as the estimators' ``fit`` documents it.

    `replica_rows`, int (replica, record), are positions among the matched records that each replica
    trains on. Private releases are booked in `account` before they are made. The memory limit is in
    bytes; None takes most of what is free. Longer than `most_hours` nobody waits.
    """

    callbacks: Sequence[Callback] = ()
    checkpoint: PathLike | None = None
    checkpoint_every: int = 1
    resume: PathLike | None = None
    transcript: bool = False
    replica_rows: npt.ArrayLike | None = None
    verbose: bool = False
    memory_limit: float | None = None
    most_hours: float | None = None
    account: PrivacyAccount | PathLike | None = None

    def __post_init__(self) -> None:
        if isinstance(self.account, str | os.PathLike):
            object.__setattr__(self, "account", PrivacyAccount(self.account))
        rules: dict[str, Any] = {
            "checkpoint_every": Number(1, whole=True),
            "most_hours": Optional(Number(0, closed=(False, True))),
        }
        check_parameters("fit", {name: getattr(self, name) for name in rules}, rules)
        check_callbacks(self.callbacks)


class LocalRun(ServerRun):
    """One run with all its nodes in this process.

    Every stream of random numbers derives from `secrets`, one per replica, the server's by the name
    `server`. The table of the party `own`, if any, is the server's: it is matched like all others,
    and nothing is asked of it in training; it may have no columns besides the key. Encoders, by
    party, take the place of the method's. See `Seat` for the rest. `preparations` say how every
    party prepared its table, if there is a contract; `in_order`, whether rows are known to
    correspond.
    """

    preparations: Mapping[str, Preparation] = MappingProxyType({})
    in_order = False
    _of_all: AlignmentReport | None = None
    _progress: Progress | None = None

    def __init__(
        self,
        method: Method,
        frames: Mapping[str, pd.DataFrame],
        on: Any,
        *,
        secrets: Sequence[bytes],
        device: torch.device,
        templates: Mapping[str, TableTransformer],
        schema: PublicSchema | None = None,
        options: Options | None = None,
        server: str = SERVER,
        own: str | None = None,
        own_has_columns: bool = True,
        encoders: Mapping[str, EncodingSource] | None = None,
        identity: Mapping[str, Any] | None = None,
        least_records: int = 1,
    ) -> None:
        options = self.options = options or Options()
        if not method.selects and any(isinstance(c, EarlyStopping) for c in options.callbacks):
            raise ParameterError(
                "EarlyStopping (--patience) looks at evaluations, and with these parameters there "
                'are none. Fix: leave it out, or set model_selection="best", which GANs without a '
                "guarantee have"
            )
        self.most_hours = options.most_hours
        path = options.checkpoint if options.checkpoint is not None else options.resume
        directory = self.directory = CheckpointDirectory(path, options.resume, SERVER)
        prints = [derive(secret, "fingerprint") for secret in secrets]
        super().__init__(
            method,
            own=[derive(secret, server) for secret in secrets],
            device=device,
            checkpoints=directory,
            checkpoint_every=None if path is None else options.checkpoint_every,
            identity={"random_state": [p.hex()[:16] for p in prints], **(identity or {})},
        )
        self.secrets, self.frames, self.on = secrets, frames, on
        self.transcript = Transcript() if options.transcript else None
        self._opened: OpenAccount | None = None
        self.rows = _replica_rows(options.replica_rows, len(secrets))
        self.keys = [repeatable(own) for own in self.own]
        shared = self._shared = _Shared(secrets, device, self.rows, method.noise)
        self.parties = {
            name: PartyRun(
                Seat(
                    name,
                    frame,
                    key_of(on, name),
                    own=[derive(secret, f"party {name}") for secret in secrets],
                    make_schedule=shared.schedule,
                    fingerprint=prints[0],
                    device=device,
                    template=templates.get(name, TableTransformer()),
                    schema=schema,
                    checkpoints=directory,
                    encoder=(encoders or {}).get(name),
                    n_training=None if self.rows is None else self.rows.shape[1],
                    has_columns=own_has_columns or name != own,
                    identity=self.identity,
                    least_records=least_records,
                    padding_secret=shared.padding_secret,
                ),
                method,
            )
            for name, frame in frames.items()
        }
        trainees = [party for name, party in self.parties.items() if name != own]
        self.channel = self.everybody = LocalChannel(trainees, self.transcript)
        if own is not None:
            self.everybody = LocalChannel(list(self.parties.values()), self.transcript)

    @property
    def n_training(self) -> int:
        """Training records per replica, once records are matched; dummies included."""
        return self._n_training(self.alignment.n_used)

    def _n_training(self, n_matched: int) -> int:
        if self.rows is not None:
            return self.rows.shape[1]
        secret = self._shared.padding_secret(self.agreed)
        return n_matched + (0 if self.padding is None else self.padding.draw(secret))

    def run(self) -> None:
        """Run to the end, or until Ctrl-C; then others may have the account."""
        try:
            super().run()
        finally:
            if self._opened is not None:
                self._opened.close()

    @property
    def booked(self) -> str:
        """The digest of this run's first record in the account; empty if there is none."""
        found = () if self._opened is None else self._opened.attempts
        return found[-1].digest if found else ""

    def stand_for(self, drawn: DrawnRecords) -> None:
        """Have records that were drawn stand for all: report those, and mint keys above theirs."""
        self._of_all = drawn.alignment
        for name, party in self.parties.items():
            party.minter = drawn.minters[name]

    def match(self, hellos: Mapping[str, Hello]) -> AlignmentReport:
        """Let every party know which of its records all others have, and in which order."""
        private = self.method.is_private
        report = match_records(
            self.everybody, self.frames, self.on, self._check_matched, private=private
        )
        if self.in_order:
            report = replace(report, matched_by="order")
        return self._of_all or report

    def _check_matched(self, n_matched: int) -> None:
        """Check the rows to train on, and book: told what is common, parties draw noise."""
        self._check_rows(n_matched)
        account = self.options.account
        if not isinstance(account, PrivacyAccount):
            return
        self.plan(self._n_training(n_matched))
        plan = self.method.plan
        assert plan is not None, "the combination was checked"
        method = self.method
        run = f"fit of {type(method.parameters).__name__} with {type(method.privacy).__name__}"
        self.account = self._opened = account.open(run, plan.ledger)
        self.pay_first(self._opened, self.agreed.epoch)

    def _check_rows(self, n_matched: int) -> None:
        rows = self.rows
        if rows is None:
            return
        if int(rows.min()) < 0 or int(rows.max()) >= n_matched:
            raise ParameterError(f"replica_rows must lie between 0 and {n_matched - 1}")
        repeated = bool((rows.sort(dim=1).values.diff(dim=1) == 0).any())
        if self.method.privacy is not None and repeated:  # counted as one when clipped
            raise ParameterError(
                "replica_rows must not repeat a record in a replica with privacy set: the ledger "
                "counts what one occurrence of a record reveals"
            )

    def watchers(self, done: int) -> Sequence[Callback]:
        """Return the user's callbacks, and what shows progress, if somebody wants to see it."""
        if not self.options.verbose:
            return self.options.callbacks
        phase = f"training on {self.device}"
        self._progress = Progress(self.duration.n_epochs, done=done, phase=phase)
        return [self._progress, *self.options.callbacks]

    def join(self) -> tuple[int, dict[str, int]]:
        """Match and encode the records; refuse what would not fit into memory."""
        found = super().join()
        warn_of_matching(
            self.alignment,
            private=self.method.is_private,
            trains_unmatched=self.method.trains_unmatched,
        )
        self._memory = check_memory(
            self.method,
            [node.party for node in self.parties.values() if node.seat.has_columns],
            self.settings,
            Size(self.n_training, len(self.secrets), self.rows is not None),
            self.options.memory_limit,
            self.device,
        )
        return found

    def train(self, done: int, widths: dict[str, int]) -> None:
        """Train; warn if Ctrl-C stopped it."""
        n_epochs, steps = self.duration.n_epochs, self.duration.steps_per_epoch
        if n_epochs:
            logger.info(
                "training %s on %s: at most %s epochs%s%s",
                "a model" if len(self.secrets) == 1 else f"{len(self.secrets)} models",
                self.device,
                f"{n_epochs:,}",
                f" of {steps:,} steps" if steps else "",
                f", {size_text(self._memory)} of memory" if self._memory else "",
            )
        try:
            super().train(done, widths)
        finally:
            if self._progress is not None:
                self._progress.close()
        if self.interrupted:
            done = len(self.history)
            kept = "the model so far was kept" if done else "no epoch was finished: nothing to keep"
            warn_user(
                f"training was interrupted in epoch {done + 1} of {n_epochs}; {kept}",
                RuntimeWarning,
            )

    def halves(self) -> dict[str, list[Any]]:
        """Return the half of the model of every party with columns, one per replica."""
        return {
            name: party.halves() for name, party in self.parties.items() if party.seat.has_columns
        }

    def estimate_memory(self) -> int:
        """Return bytes that training would take, after `join`."""
        size = Size(self.n_training, len(self.secrets), len(self.secrets) > 1)
        return sum(
            self.method.memory(party.party, self.settings, size) for party in self.parties.values()
        )


class _Shared:
    """What the parties draw alike: in one process, one object for all of them."""

    def __init__(
        self,
        secrets: Sequence[bytes],
        device: torch.device,
        rows: Tensor | None,
        noise: torch.Generator | None,
    ) -> None:
        # The server never gets this one: it would know which record is in which batch.
        self._streams = RandomStreams(secrets, device).child("shared by the parties")
        self._rows = None if rows is None else rows.to(device)
        self._n_replicas, self._noise = len(secrets), noise
        self._made: Schedule | None = None

    @cached_property
    def _keys(self) -> KeySchedule:
        return KeySchedule(_entropy(self._noise), "", "")  # the secret is of this attempt alone

    def padding_secret(self, agreed: Agreed) -> bytes:
        """Return what dummies are drawn of, new in every run."""
        return self._keys.key(Purpose.DUMMIES)  # how many there are is noise, too

    def schedule(self, method: Method, n_records: int, settings: Any, agreed: Agreed) -> Schedule:
        if self._made is None:
            keys = self._keys
            sampling = [keys.key(Purpose.SAMPLES, k) for k in range(self._n_replicas)]
            shared = SharedDraws(self._streams, sampling, self._rows)
            made = method.schedule(shared, n_records, settings)
            made.keys = keys
            made.rotating = repeatable(self._streams.secrets[0]).key(Purpose.ROTATIONS)
            self._made = made
        return self._made


def _entropy(noise: torch.Generator | None) -> bytes:
    """Thirty-two bytes for the sampling of records."""
    if noise is None:
        return os.urandom(32)
    return bytes(torch.randint(256, (32,), generator=noise).tolist())


def match_records(
    channel: Channel,
    frames: Mapping[str, pd.DataFrame],
    on: Any,
    check: Callable[[int], None] = lambda n_matched: None,
    *,
    private: bool = False,
) -> AlignmentReport:
    """Let every party know which of its records all others have, and in which order to use them.

    Parties are reported in the order of `frames`; the common order does not depend on it. `check`
    gets the number of matched records before the parties are told. If `private`, nothing is said
    about records that are not matched.
    """
    replies = channel.gather(KeyList, 0)
    keys = {name: replies[name].keys for name in frames}
    common, alignment = align_keys(keys, matched_by=str(MatchOn.reading(on)), compare=not private)
    check(alignment.n_matched)
    if not private:
        alignment = with_lost(alignment, frames, on, common)
    tell(channel, AlignmentNotice, 0, common)
    return alignment


def warn_of_matching(
    report: AlignmentReport, *, private: bool, trains_unmatched: bool = False
) -> None:
    """Warn where records may be matched otherwise than their owners mean.

    If private, nothing is said about how many records match, which nobody pays for. Records that
    one party lacks may train the columns of the party that has them.
    """
    if len(report.n_rows) < 2:
        return
    if report.matched_by == "position":
        warn_user(
            "rows are matched by their position, as the tables have no index of their own: row i "
            "of every table is taken for the same record. Fix: name a key column with on=..., or "
            "make it the index",
            PublishingWarning,
        )
    if private:
        return
    if report.differences:
        warn_user(
            f"{'; '.join(report.differences)}: a group may be missing from what is published. Fix: "
            "check how its keys are written, or say in what you publish which records it is about",
            PublishingWarning,
        )
    if report.better is not None:
        form, n_better = report.better
        warn_user(
            f"{report.n_matched:,} records are matched, and {n_better:,} would be if they were "
            f"written alike. Fix: {how_to_agree(form)}",
            PublishingWarning,
        )
    few = [n for n, rows in report.n_rows.items() if report.n_matched < _USUAL_SHARE * rows]
    if few:
        shares = ", ".join(f"{n!r} {report.n_matched / report.n_rows[n]:.0%}" for n in few)
        others = (
            "train the columns of the party that has them and nothing else"
            if trains_unmatched
            else "are left out"
        )
        warn_user(
            f"less than two thirds of a party's records are matched ({shares}); the others "
            f"{others}, and the synthetic records are like those that all parties have. Fix: check "
            "how keys are written, or say in what you publish which records it is about",
            PublishingWarning,
        )


def _replica_rows(replica_rows: npt.ArrayLike | None, replicas: int) -> Tensor | None:
    """Check the shape of the positions that each replica trains on; None is all."""
    if replica_rows is None:
        return None
    rows = np.asarray(replica_rows)
    if rows.ndim != 2 or len(rows) != replicas or not np.issubdtype(rows.dtype, np.integer):
        raise ParameterError(
            f"replica_rows must be whole numbers of shape ({replicas}, record), got "
            f"{rows.dtype} of shape {rows.shape}"
        )
    if rows.size == 0:
        raise ParameterError("replica_rows must name at least one record per replica")
    return torch.tensor(rows.astype(np.int64))


_USABLE_SHARE = 0.9
_LARGEST_SHARE = 0.25
"""Of a party's encoded columns: where one table column takes more, it is what to change."""


def check_memory(
    method: Method,
    parties: Sequence[Party],
    settings: Any,
    size: Size,
    limit: float | None,
    device: torch.device,
) -> int:
    """Estimate the bytes of a fit, and compare them with the limit.

    Raises MemoryLimitError, which names the party that takes most and its widest column.
    """
    estimates = {party: method.memory(party, settings, size) for party in parties}
    total = sum(estimates.values())
    free = available_memory(device)
    allowed = limit if limit is not None else (None if free is None else _USABLE_SHARE * free)
    if allowed is None or total <= allowed:
        return total
    party = max(estimates, key=lambda p: estimates[p])
    width, spans = party.transformer.width_, party.transformer.spans_
    span = max(spans, key=lambda s: s.width)
    wide = span.width > max(16, _LARGEST_SHARE * width)
    raise MemoryLimitError(
        f"the fit needs about {total / 2**30:.2f} GiB for {size.n_records} records and "
        f"{size.n_replicas} model(s), and {allowed / 2**30:.2f} GiB are allowed; this party needs "
        f"{estimates[party] / 2**30:.2f} of them, and this column is {span.width} of its {width} "
        "encoded columns" + (f" because it has {span.width} distinct values" if wide else ""),
        fix=(
            "pool its rare values (TableTransformer(rare_threshold=...)), declare another kind for "
            "it in column_kinds, or drop it"
            if wide
            else method.needs_less_memory
        )
        + ("" if limit is None else "; or raise memory_limit"),
        party=party.name,
        column=span.column,
    )


def check_callbacks(callbacks: Any) -> None:
    """Raise ParameterError unless `callbacks` is a sequence of things with `on_epoch_end`."""
    fix = "Fix: pass a list of objects with a method on_epoch_end(state), such as EarlyStopping(20)"
    if isinstance(callbacks, str | bytes) or not isinstance(callbacks, Sequence):
        raise ParameterError(f"callbacks must be a sequence, got {callbacks!r}. {fix}")
    for position, callback in enumerate(callbacks):
        if isinstance(callback, type) or not callable(getattr(callback, "on_epoch_end", None)):
            raise ParameterError(f"callbacks[{position}] is no callback: {callback!r}. {fix}")


class CheckpointDirectory:
    """Collects the parties' states, and writes all together when the server's comes.

    Without a path nothing is written; `resume` is where to go on from, `server` the name of the
    node whose state comes last, and `fix` what to do about a directory of another run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        resume: str | os.PathLike[str] | None,
        server: str,
        fix: str = _FIX,
    ) -> None:
        self.server, self._path, self._fix = server, path, fix
        self._root = None if resume is None else artefacts.open_directory(resume, KIND)
        if path is not None:
            artefacts.check_target(path, KIND)
        self._pending: dict[str, Saved] = {}

    def epochs(self) -> list[int]:
        """Return the one epoch, if there is something to go on from."""
        return [] if self._root is None else [int(self._progress()["epoch"])]

    @cached_property
    def booked(self) -> list[str]:
        """Digests of the run's attempts in privacy accounts; a new one is added when it books."""
        return [] if self._root is None else list(map(str, self._progress()["booked"]))

    def write(self, node: str, saved: Saved) -> None:
        """Keep a party's state; with the server's, write all, aside and renamed."""
        self._pending[node] = saved
        if node != self.server or self._path is None:
            return
        with artefacts.new_directory(self._path, KIND, private=True) as root:
            runs = {name: dict(own.fingerprint) for name, own in self._pending.items()}
            progress = {"epoch": saved.epoch, "history": saved.history, "runs": runs}
            progress |= {"booked": self.booked}
            artefacts.write_json(root / "progress.json", progress)
            for name, own in self._pending.items():
                artefacts.write_tensors(_file(root, name, self.server), own.tensors)
        self._pending.clear()

    def load(
        self, node: str, epoch: int, fingerprint: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Return a node's state, and the history, of the one epoch that there is.

        Raises ArtefactError if it is of another run.
        """
        assert self._root is not None
        root, progress = self._root, self._progress()
        with artefacts.reading(root, "a run"):
            runs, file = progress["runs"], _file(root, node, self.server)
            if node not in runs:
                raise ArtefactError(
                    f"{root} belongs to another run, of {', '.join(map(repr, sorted(runs)))} and "
                    f"not of {node!r}. {self._fix}"
                )
            check_same_run(file, dict(runs[node]), fingerprint, self._fix)
            return artefacts.read_tensors(file, device), list(progress["history"])

    def forget_after(self, epoch: int) -> None:
        """Do nothing: all nodes' states are of one epoch."""

    def _progress(self) -> dict[str, Any]:
        assert self._root is not None
        content: dict[str, Any] = artefacts.read_json(self._root / "progress.json")
        with artefacts.reading(self._root, "a run"):
            int(content["epoch"]), content["history"], dict(content["runs"])
            list(content["booked"])
        return content


def check_same_run(
    path: Path, saved: Mapping[str, Any], fingerprint: Mapping[str, Any], fix: str
) -> None:
    """Raise ArtefactError, naming the first difference, if a checkpoint is of another run."""
    now = artefacts.json_equal(dict(fingerprint))
    for key in [*now, *saved]:
        if key not in saved or key not in now or saved[key] != now[key]:
            was, is_ = (repr(run[key]) if key in run else "absent" for run in (saved, now))
            raise ArtefactError(
                f"{path} belongs to another run: {key} was {was} and is {is_}. {fix}"
            )


def _file(root: Path, node: str, server: str) -> Path:
    return root / ("" if node == server else "parties") / f"{node}.safetensors"
