"""A party's side of a run: what it alone brings, and what it does as the server asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from sklearn.base import clone

from vflsynth import _artefacts as artefacts
from vflsynth._random import RandomStreams
from vflsynth._version import __version__
from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.columns.kinds import check_kinds
from vflsynth.columns.table import check_encoders, check_overrides
from vflsynth.exceptions import (
    ColumnKindError,
    ParameterError,
    PrivacyBudgetError,
    ProtocolError,
    TooFewRecordsError,
    did_you_mean,
)
from vflsynth.frames import key_of
from vflsynth.frames.party_frames import party_keys
from vflsynth.learning.base import (
    Duration,
    EncodingSource,
    Known,
    Learning,
    Method,
    Party,
    Releasing,
)
from vflsynth.privacy.account import OpenAccount
from vflsynth.privacy.discovery import count_columns
from vflsynth.protocol.channel import SERVER, MadeOf, Message, Participant, When, answers, takes
from vflsynth.protocol.messages import (
    AlignmentNotice,
    CheckpointNotice,
    EncodedSize,
    EncodedSizes,
    Hello,
    Terms,
)
from vflsynth.protocol.schedule import Schedule
from vflsynth.run.server_run import Agreed, Checkpoints, Saved

_ROTATING = "key of rotations"
_MOST_WIDE = 1 << 31


@dataclass(frozen=True)
class Seat:
    """What one party alone brings into a run; nothing of it is sent anywhere.

    Its `own` secrets, one per replica, make its weights and noise; `make_schedule`, of method,
    number of records, settings and `Agreed`, makes what the parties draw alike, and
    `padding_secret`, of `Agreed`, what they draw the number of dummies of. `fingerprint` keys the
    digest by which a checkpoint knows the records, and `identity`, JSON-safe, must be equal, too.
    The `template` has the declared kinds of the party's columns, `schema` what is public about
    them; `encoder` takes the place of the method's. `n_training` records per replica are by default
    all matched ones; with fewer than `least_records` no model without a guarantee is fitted. An
    active party that has labels only has no columns.
    """

    name: str
    frame: pd.DataFrame
    on: Hashable
    own: Sequence[bytes]
    make_schedule: Callable[[Any, int, Any, Agreed], Schedule]
    fingerprint: bytes
    device: torch.device
    checkpoints: Checkpoints
    template: TableTransformer = field(default_factory=TableTransformer)
    schema: PublicSchema | None = None
    encoder: EncodingSource | None = None
    n_training: int | None = None
    has_columns: bool = True
    identity: Mapping[str, Any] = field(default_factory=dict)
    least_records: int = 1
    padding_secret: Callable[[Agreed], bytes] | None = None


def party_templates(
    transformer: Any,
    column_kinds: Mapping[Any, str] | None,
    frames: Mapping[str, pd.DataFrame],
    on: Any,
    schema: PublicSchema | None = None,
) -> dict[str, TableTransformer]:
    """Clone a transformer for every party, with the kinds that concern its columns.

    `column_kinds` come before the transformer's own. Raises ColumnKindError if there is no such
    column or kind, or the `schema` speaks of a column that nobody has, and not of all that are
    there.
    """
    template = TableTransformer() if transformer is None else transformer
    if not isinstance(template, TableTransformer):
        raise ParameterError(f"transformer must be None or a TableTransformer, got {template!r}")
    template.check_parameters()
    owned = {
        name: [c for c in frame.columns if c != key_of(on, name)] for name, frame in frames.items()
    }
    everything = [label for labels in owned.values() for label in labels]
    encoders = check_encoders(template.encoders, everything)
    overrides = check_overrides(template.overrides, everything)
    kinds = dict(template.kinds or {}) | dict(column_kinds or {})
    made = {}
    for name, labels in owned.items():
        own: dict[Hashable, str] = {c: kinds.pop(c) for c in labels if c in kinds}
        known = check_kinds(own, labels, party=name)
        coded = {c: encoders[c] for c in labels if c in encoders}
        other = {c: overrides[c] for c in labels if c in overrides}
        plain: TableTransformer = clone(template).set_output(transform="default")
        made[name] = plain.set_params(kinds=known, encoders=coded or None, overrides=other or None)
    check_kinds(kinds, everything)  # of nobody
    if schema is None or all(label in schema for label in everything):
        return made
    for label in (*schema.bounds, *schema.categories):
        if label not in everything:
            hint = did_you_mean(label, everything)
            raise ColumnKindError(
                f"something public is said of this column, and no party has it{hint}",
                fix="correct the name in public_schema, or in --bounds and --categories",
                column=label,
            )
    return made


class PartyRun(Participant):
    """Joins, matches, encodes, builds and trains, as the server asks; keeps the party's half.

    Whatever is about the method is asked of the method's party. Under privacy that party has the
    records, and nothing but them: what it releases goes to `Learning`, which makes the half. No
    message that is made of records, or of networks that learned from them, is computed before an
    entry of the ledger that covers it is paid for; what no entry covers is refused, whatever its
    name.

    `n_dummies` of the records that the server counts are nobody's. `discriminator` and
    `residuals` are the party's, as training left them, once halves are made; for audits.
    """

    schedule: Schedule

    def __init__(self, seat: Seat, method: Method) -> None:
        self.name, self.seat, self.method = seat.name, seat, method
        self._party: Party | None = method.party(seat.name, seat.frame, seat.on)
        self.discriminator: Any = None
        self.residuals: Any = None
        self.minter = method.minter(seat.name, party_keys(seat.frame, seat.on))
        self.nonce = _nonce()
        self.n_columns, self.n_unlisted = sum(c != seat.on for c in seat.frame.columns), 0
        if method.is_private:
            counts = count_columns(
                {seat.name: seat.frame}, seat.on, seat.schema, seat.template.kinds
            )
            self.n_unlisted = counts[seat.name].unlisted
        self.n_dummies = 0
        self.account: OpenAccount | None = None
        self.learning: Learning | None = None
        self.settings: Any = None
        self.duration = Duration(0, 0)
        self._agreed: Agreed | None = None
        self._widths: dict[str, int] = {}
        self._paid = 0
        self._asked: dict[str, int] = {}  # the last step of each message

    @property
    def party(self) -> Any:
        """What has the records; nothing has, once the half of a private run is made of releases."""
        if self._party is None:
            raise ProtocolError(f"party {self.name!r} has given its releases: no record is left")
        return self._party

    @property
    def agreed(self) -> Agreed:
        """What the server told of the other parties."""
        if self._agreed is None:
            raise ProtocolError(f"party {self.name!r} was asked before it was told the terms")
        return self._agreed

    @property
    def n_records(self) -> int:
        """Training records per replica, dummies included."""
        return self.seat.n_training or len(self.party.matched_rows) + self.n_dummies

    # -- joining and matching --------------------------------------------------------------------

    @answers(Hello)
    def hello(self, step: int) -> Hello:
        """Say what the server needs to know, and no more."""
        return Hello(self.name, SERVER, step, self.facts())

    def facts(self) -> dict[str, Any]:
        """Return what the hello says."""
        return {
            "rows": len(self.seat.frame),
            "n_columns": self.n_columns,
            "unlisted": self.n_unlisted,
            "key_offset": str(self.minter.offset),
            "checkpoints": self.seat.checkpoints.epochs(),
            "nonce": self.nonce,
        }

    @takes(Terms)
    def take_terms(self, message: Terms) -> None:
        """Learn of the others; refuse terms that misstate this party."""
        agreed = self._agreed = Agreed.of(message.terms)
        stated = (agreed.rows, agreed.columns, agreed.unlisted, agreed.nonces)
        own = (len(self.seat.frame), self.n_columns, self.n_unlisted, self.nonce)
        if tuple(of.get(self.name) for of in stated) != own:
            raise ProtocolError(
                f"the server's terms misstate the table of party {self.name!r}, or are of "
                "another attempt"
            )

    @takes(AlignmentNotice)
    def align(self, message: AlignmentNotice) -> None:
        """Learn the common records; agree on noise, encode, and pay for the first releases.

        Raises TooFewRecordsError below the fewest that a model without a guarantee is fitted on.
        """
        self.party.align(message)
        self.n_dummies = self.draw_dummies()
        if not self.method.is_private and self.n_records < self.seat.least_records:
            raise TooFewRecordsError(
                f"{self.n_records:,} records are common to all parties; a model without a "
                f"guarantee is not fitted on fewer than {self.seat.least_records:,}, as it would "
                "hand out what single records hold",
                fix="see how keys are written; fit with privacy= (--privacy); or lower "
                "least_records in the contract",
                party=self.name,
            )
        self.seat.checkpoints.forget_after(self.agreed.epoch)
        if not self.seat.has_columns:
            return
        self.method.agree(self.agreed.counts, self.n_records)
        self._paid = self.agreed.epoch
        self.open_account()
        self.encode()
        self._pay(self.agreed.epoch + 1)  # before anything leaves, its size included

    def draw_dummies(self) -> int:
        """Return how many dummies hide what is common; the same at all parties, anew each time."""
        padding = self.method.padding(len(self.agreed.rows))
        if padding is None or self.seat.padding_secret is None:
            return 0
        return padding.draw(self.seat.padding_secret(self.agreed))

    def open_account(self) -> None:
        """Refuse what the party did not agree to, before anything is computed."""

    def encode(self) -> None:
        """Make the encoding."""
        seat = self.seat
        encoder = seat.encoder or self.method.encoder(
            seat.template, seat.schema, self.agreed.counts
        )
        self.party.prepare(encoder)

    # -- building and training -------------------------------------------------------------------

    @answers(EncodedSize)
    def encoded_size(self, step: int) -> EncodedSize:
        """Tell the number of encoded columns."""
        return EncodedSize(self.name, SERVER, step, self.party.transformer.width_)

    @takes(EncodedSizes)
    def build(self, message: EncodedSizes) -> None:
        """Make the networks, at the start or as a checkpoint has them; refuse a misstated width."""
        method, n_records, has_columns = self.method, self.n_records, self.seat.has_columns
        if not all(isinstance(n, int) and 0 <= n <= _MOST_WIDE for n in message.widths.values()):
            raise ProtocolError(
                f"the server says that parties have {message.widths!r:.200} columns"
            )
        self._widths = dict(message.widths)
        own = self.party.transformer.width_ if has_columns else None
        if self._widths.get(self.name, own) != own:
            raise ProtocolError(f"the server's terms misstate the width of party {self.name!r}")
        self.settings = method.settings(n_records, self._widths)
        self.duration = method.duration(n_records, self.settings)
        self.schedule = self.seat.make_schedule(method, n_records, self.settings, self.agreed)
        if not has_columns:
            return
        self.check_memory()
        streams = RandomStreams(self.seat.own, self.seat.device)
        if method.is_private:
            published = deepcopy(self.party.transformer)  # what encodes records may keep of them
            known = self.name, published, self.settings
            self.learning = method.learning(Known(*known, streams, self.schedule.streams))
        method.build(self.party, self.settings, self.schedule, streams)
        if self.learning is not None:
            records = Releasing(self.party)
            self.learning.learn(records)
            records.end()
        if self.agreed.epoch:
            state, _ = self.seat.checkpoints.load(
                self.name, self.agreed.epoch, self.fingerprint, self.seat.device
            )
            with artefacts.reading(f"the checkpoint of party {self.name!r}", "a run"):
                self.schedule.rotating = bytes(state.pop(_ROTATING).tolist())
                self.party.load_state(state)

    def check_memory(self) -> None:
        """Refuse networks that do not fit; in one process, the run adds up all parties'."""

    @takes(CheckpointNotice)
    def write_checkpoint(self, message: CheckpointNotice) -> None:
        """Write the party's state."""
        if self.seat.has_columns:
            # The same records rotated otherwise would round otherwise, and tell a difference.
            rotating = torch.tensor(list(self.schedule.rotating), dtype=torch.uint8)
            state = self.party.state() | {_ROTATING: rotating}
            saved = Saved(message.step, state, self.fingerprint)
            self.seat.checkpoints.write(self.name, saved)

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What must be equal for this party to go on; no record shows in it."""
        return {
            "version of vflsynth": __version__,
            "method": type(self.method).__name__,
            **self.seat.identity,
            "n_records": self.n_records - self.n_dummies,
            "encoded widths": self._widths,
            "records": self.party.digest(self.seat.fingerprint)[:16],
            **asdict(self.settings),
        }

    def halves(self) -> list[Any]:
        """Return the party's half of the model, one per replica, once training is over."""
        minter = self.minter.starting_at(self.agreed.key_offset)
        self.discriminator = getattr(self.party, "discriminator", None)
        self.residuals = getattr(self.party, "residuals", None)
        if self.learning is None:
            return self.method.halves(self.party, self.settings, self.seat.on, minter)
        records = Releasing(self.party)
        self.learning.conclude(records)
        records.end()
        self._party = None
        self.seat = replace(self.seat, frame=self.seat.frame.iloc[:0].copy())
        return self.learning.halves(self.seat.on, minter)

    # -- every message ---------------------------------------------------------------------------

    def answer(self, kind: type[Message], step: int) -> Message:
        """Compute the message of this kind for `step`, paying first.

        Raises ProtocolError if nothing answers, or no entry of the privacy ledger covers it.
        """
        self._pay_for(kind, step)
        if kind in self._by_question:
            return super().answer(kind, step)
        return self._learner_or_party("_by_question", kind).answer(kind, step)

    def take(self, message: Message) -> None:
        """Act on a message from the server; refuse what nothing takes, or not yet."""
        is_own = type(message) in self._by_message
        if self.settings is None and (not is_own or isinstance(message, CheckpointNotice)):
            raise ProtocolError(
                f"the server sent {type(message).__name__} before party {self.name!r} was told to "
                "build its networks"
            )
        if is_own:
            super().take(message)
        else:
            self._learner_or_party("_by_message", type(message)).take(message)

    def _learner_or_party(self, handlers: str, kind: type[Message]) -> Participant:
        """Return what a message is for: records are asked only for what needs them."""
        if self.learning is not None and kind in getattr(self.learning, handlers):
            return self.learning
        party: Participant = self.party
        return party

    def _pay_for(self, kind: type[Message], step: int) -> None:
        declared, plan = kind.declared, self.method.plan
        matching = self.settings is None and declared.made_of is MadeOf.KEYS
        if plan is None or matching or declared.made_of in (MadeOf.PLANS, MadeOf.COLUMNS):
            return
        name, length = kind.__name__, plan.length
        if name not in plan.paid:
            if self.method.is_private:
                raise self._refusal(kind, "has no entry for it")
            return
        if step <= self._asked.get(name, -1):
            raise self._refusal(kind, f"pays for steps once and in order, and step {step} is past")
        epoch = self.agreed.epoch + 1
        if declared.when in (When.STEP, When.EPOCH):
            each, last = (1, 1) if length is None else (length.steps_per_epoch, length.epochs)
            epoch = step // each + 1 if declared.when is When.STEP else step
            if epoch > last:
                raise PrivacyBudgetError(
                    f"party {self.name!r} refuses {name}: all {last} epochs that the privacy "
                    "ledger pays for are spent"
                )
        self._pay(epoch)
        self._asked[name] = step

    def _refusal(self, kind: type[Message], why: str) -> ProtocolError:
        return ProtocolError(
            f"party {self.name!r} refuses {kind.__name__}: the privacy ledger {why}"
        )

    def _pay(self, epoch: int) -> None:
        """Pay once for what is released up to the end of an epoch, also if some were passed over.

        A party catches up with the steps that it was not asked about.
        """
        if self.account is not None and self.method.plan is not None and epoch > self._paid:
            self.account.spend(self.method.plan.releases(self._paid + 1, epoch))
            self._paid = epoch


def _nonce() -> str:
    """Sixteen bytes that no other attempt has."""
    return os.urandom(16).hex()
