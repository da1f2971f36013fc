"""A party as a process of its own: the same run, with blinded keys, rules, tags and a report."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Hashable, Mapping
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth import _artefacts as artefacts
from vflsynth._device import few_threads, resolve_device
from vflsynth._locks import lock
from vflsynth._random import KeySchedule, Purpose, RandomStreams, derive, repeatable
from vflsynth.columns import TableTransformer
from vflsynth.columns.kinds import check_kinds
from vflsynth.columns.public import with_public_types
from vflsynth.configuration import make_transformer, schema_of_files
from vflsynth.contract import Contract, Preparation, with_public
from vflsynth.exceptions import ArtefactError, ContractError, ParameterError, ProtocolError
from vflsynth.federation import account, contracts, trail
from vflsynth.federation.checkpoints import NodeCheckpoints
from vflsynth.federation.job import Job
from vflsynth.federation.matching import Matching
from vflsynth.federation.participant import Link, Rules, take_part
from vflsynth.federation.progress import LOCK, RUNS_ALREADY, Progress
from vflsynth.federation.psi import key_text
from vflsynth.federation.sampling import note_attempt
from vflsynth.federation.site import Site, kept_secret
from vflsynth.federation.wire import Tags
from vflsynth.frames import MatchOn, read_table
from vflsynth.frames.batches import read_lowest
from vflsynth.frames.keys import Difference, warn_of_keys
from vflsynth.frames.party_frames import check_party_frames, is_matched, lost_of, party_keys
from vflsynth.learning.base import Method, SharedDraws, Size
from vflsynth.protocol.channel import (
    MESSAGES,
    SERVER,
    MadeOf,
    Message,
    Transcript,
    When,
    answers,
    takes,
)
from vflsynth.protocol.messages import (
    AccountHeads,
    AlignmentNotice,
    AllAccountHeads,
    BlindedKeys,
    CheckpointNotice,
    CommonPositions,
    EncodedSize,
    EncodedSizes,
    Hello,
    KeysToReblind,
    MatchProof,
    MatchProofs,
    ReblindedKeys,
    ReturnedKeys,
    Terms,
    TrainingReport,
)
from vflsynth.protocol.schedule import Schedule
from vflsynth.run.local import check_memory
from vflsynth.run.party_run import PartyRun, Seat
from vflsynth.run.server_run import Agreed, shown_accounts

logger = logging.getLogger("vflsynth")

ENCODING = "encoding.json"
COUNTED = "counted"
"""In the audit trail: keys and dummies are shown, which the server can count from then on."""

HOLDER = "active"
"""What the active party is called while records are matched."""


class BlindedRun(PartyRun):
    """A run whose records are matched by blinded keys, with a tag in every answer.

    The site has the parties' shared secret. `labels` are those of columns that no other party may
    have; by default of the seat's table.
    """

    def __init__(
        self,
        seat: Seat,
        method: Method,
        job: Job,
        site: Site,
        labels: tuple[Hashable, ...] | None = None,
    ) -> None:
        self.job, self.site = job, site
        if labels is None:
            labels = tuple(label for label in seat.frame.columns if label != seat.on)
        self.matching = Matching(
            seat.name, party_keys(seat.frame, seat.on), labels, site.the_shared, site.bounds
        )
        self.tags = Tags(site.the_shared, job.name)
        super().__init__(seat, method)

    def facts(self) -> dict[str, Any]:
        """Return what the hello says."""
        return super().facts() | self.matching.facts(self.job.digest)

    @takes(Terms)
    def take_terms(self, message: Terms) -> None:
        """Learn of the others, and have every list of keys sealed for these terms."""
        super().take_terms(message)
        job, padding = self.job, self.method.padding(len(self.job.parties))
        names = [*job.parties, HOLDER] if job.has_labels else job.parties
        self.matching.begin(self.agreed, names, job.digest, padding, job.max_frame_bytes)
        keys = KeySchedule(self.site.the_shared, job.name, self.agreed.nonce)
        self.tags.secret = keys.key(Purpose.TAGS)

    def answer(self, kind: type[Message], step: int) -> Message:
        """Compute a message; those about keys are the matching's."""
        if kind in (BlindedKeys, ReblindedKeys, MatchProof):
            return self.matching.answer(kind, step)
        return super().answer(kind, step)

    def take(self, message: Message) -> None:
        """Act on a message; those about keys, all but the last, are the matching's."""
        if isinstance(message, KeysToReblind | ReturnedKeys | CommonPositions):
            self.matching.take(message)
        else:
            super().take(message)

    @takes(MatchProofs)
    def compare(self, message: MatchProofs) -> None:
        """Go on if all parties were told the same."""
        self.matching.take(message)
        self.align(self.matching.notice())

    def align(self, message: AlignmentNotice) -> None:
        """Learn the common records; agree on noise, encode, and pay for the first releases."""
        self.tags.records = self.matching.digest(message.common_keys)
        logger.info("%s: %d records matched", self.name, len(message.common_keys))
        super().align(message)

    def draw_dummies(self) -> int:
        """Return how many dummies all parties' lists of keys had."""
        return self.matching.dummies.n_common

    def check_memory(self) -> None:
        """Refuse a fit that this process has no memory for, before it takes any."""
        size = Size(self.n_records)
        check_memory(self.method, [self.party], self.settings, size, None, self.seat.device)

    def make_schedule(
        self, method: Method, n_records: int, settings: Any, agreed: Agreed
    ) -> Schedule:
        """Make what the parties draw alike, and tags prove, with samples new in every attempt."""
        site, name = self.site, self.job.name
        keys = KeySchedule(site.the_shared, name, agreed.nonce)
        # Batches and latents hide nothing: their secret is the same in every attempt.
        secret = site.schedule or derive(site.the_shared, f"schedule|{name}")
        streams = RandomStreams([secret], self.seat.device)
        made = method.schedule(
            SharedDraws(streams, [keys.key(Purpose.SAMPLES)]), n_records, settings
        )
        rotating = keys if site.schedule is None else repeatable(site.schedule)
        made.keys, made.rotating = keys, rotating.key(Purpose.ROTATIONS)
        self.tags.schedule = made
        return made


class PartyNode(BlindedRun):
    """Answers everything that a server may ask of one party in one run, and refuses the rest.

    The site has a table; under privacy a budget. Raises ParameterError if site and job do not go
    together, or the table cannot be used.
    """

    def __init__(self, job: Job, site: Site) -> None:
        method = job.method_for_node()
        self.table = check_table(job, site, method)
        self._told = contracts.facts(job, site, self.table)
        self.folder = site.folder / job.name
        check_half(self.folder / "half")
        self.transcript = Transcript()
        self.progress = Progress(self.folder, site.party, lambda: self.duration, self.transcript)
        self.rules = Rules({Hello: 1, MatchProof: 1})
        device = resolve_device(site.device)
        self.checkpoints = NodeCheckpoints(self.folder / "checkpoints")
        super().__init__(
            Seat(
                site.party,
                self.table.frame,
                job.key_of(site),
                own=[site.own or kept_secret(self.folder / "own-secret")],
                make_schedule=self.make_schedule,
                fingerprint=derive(site.the_shared, "fingerprint"),
                device=device,
                template=self.table.template,
                schema=self.table.schema,
                checkpoints=self.checkpoints,
                identity={"job": job.digest, "contract": self._told["own"]},
                least_records=1 if job.has_labels else job.shared_contract.fewest_records,
            ),
            method,
            job,
            site,
            self.table.labels,
        )
        if self.table.keys is not None:
            self.minter = method.minter(site.party, self.table.keys)
        self.lost: tuple[Difference, ...] = ()
        self._shown: dict[str, Any] | None = None
        self._selects = self._told_already = self.greeted = False

    def facts(self) -> dict[str, Any]:
        """Return what the hello says."""
        facts = super().facts()
        facts["contract"] = self._told
        if self.method.privacy is not None:
            self._shown = facts["account"] = account.shown_account(self.site)
        return facts

    @takes(Terms)
    def take_terms(self, message: Terms) -> None:
        """Learn of the others, contracts and privacy accounts included, and where to go on.

        Raises ProtocolError if more than the last checkpoint would be lost: an honest server stops
        then; ContractError if the parties' contracts disagree; AccountRewoundError if another
        party's account lacks what this one remembers of it.
        """
        self.greeted = True
        if self.method.padding(len(self.job.parties)) is not None:
            folder = self.site.folder
            with lock(folder / f".{COUNTED}.lock", "its counts are looked at", 60.0):
                before = [r for r in trail.lines(folder) if r["event"] == COUNTED]
                self.site.bounds.check_counts(self.name, len(before))
                trail.append(folder, COUNTED, {"job": self.job.name})
        super().take_terms(message)
        self.rules.allow(self.matching.steps)
        if self.agreed.contracts.get(self.name) != self._told:
            raise ProtocolError(f"the server's terms misstate the contract of party {self.name!r}")
        told = {name: self.agreed.contracts.get(name) for name in self.job.parties}
        self._selects = contracts.check_agreement(told, self.job.shared_contract)
        self._remember(self.agreed.accounts)
        latest = max(self.checkpoints.epochs(), default=0)
        if latest - self.agreed.epoch > self.job.checkpoint_every:
            raise ProtocolError(
                f"party {self.name!r} has a checkpoint of epoch {latest}, and the server would go "
                f"on from epoch {self.agreed.epoch}. Nothing was deleted. To start anew, give the "
                "job another name"
            )

    def answer(self, kind: type[Message], step: int) -> Message:
        """Compute the message of this kind for `step`, and say so in the site's folder."""
        self.progress.note(kind, step)
        if kind in self.method.telling and self.settings is not None:
            bits = self.method.told(self.settings, self.name)
            if bits and not self._told_already:
                account.book(self.site, self.job.digest, self.party.snapshot(), bits)
                self._told_already = True
        return super().answer(kind, step)

    def run(self, link: Link) -> None:
        """Take part to the end; save this party's half, and in any case a report."""
        with lock(self.folder / LOCK, RUNS_ALREADY):
            self._run(link)

    def _run(self, link: Link) -> None:
        report, failure = trail.Report(self.folder, self.name, self.job), None
        try:
            # The server and as many other parties may share this machine: one thread is fastest.
            with few_threads(0, self.seat.device):
                take_part(
                    self,
                    link,
                    self.rules,
                    run=self.job.name,
                    tag=self.tags,
                    limits=self.job.limits,
                    transcript=self.transcript,
                )
            (half,) = self.halves()
            own = self.table.preparation
            if own is None and self._selects:
                own = Preparation(self.table.labels)
            half.preparation = None if own is None else replace(own, selects=self._selects)
            half.save(self.folder / "half")
            note_attempt(self.folder, self.agreed.nonce)
        except BaseException as error:
            failure = error
            raise
        finally:
            more: dict[str, Any] = {"damaged_checkpoints": self.checkpoints.damaged}
            more["unmatched_differ"] = [asdict(found) for found in self.lost]
            if self.table.keys is not None:
                more["kept"] = {"records": len(self.table.frame), "of": len(self.table.keys)}
            if self.method.telling:
                more["told"] = account.told_report(self.site)
            plan = self.method.plan
            if self.account is not None and plan is not None:
                self.account.close()
                more["privacy"] = account.report_of(self.account, plan.ledger, self.site)
            report.end(failure, self.transcript, noised(self.method), more)

    def align(self, message: AlignmentNotice) -> None:
        """Learn the common records, and allow the server to ask what comes of them."""
        n_matched, rows = len(message.common_keys), self.agreed.rows
        said = {"job": self.job.name, "records": n_matched, "rows": rows}
        trail.append(self.site.folder, "matched", said)
        if not self.method.is_private:
            self.lost = lost_of(self.seat.frame, self.seat.on, message.common_keys)
            for found in self.lost:
                logger.warning("%s: records that are not matched differ in %s", self.name, found)
            self._prepare_matched(is_matched(self.seat.frame, self.seat.on, message.common_keys))
        super().align(message)
        self.rules.allow({EncodedSize: 1, AccountHeads: 0 if self.account is None else 2})

    def _prepare_matched(self, matched: npt.NDArray[np.bool_]) -> None:
        """Prepare the table once more if some records are not matched, without a look at those."""
        if matched.all() or self.table.of_matched is None:
            return
        made = self.table.of_matched(matched)
        if made.preparation is not None and made.preparation.selects and not self._selects:
            raise ContractError(
                f"party {self.name!r}: rows have to be left out for a rule, by the records that "
                "are matched, and by all of its table they had not. Fix: a table of matched "
                'records, or structure = "ignore" in the job'
            )
        self.table = replace(made, keys=self.table.keys)
        self.seat = replace(self.seat, frame=made.frame, template=made.template, schema=made.schema)
        self._party = self.method.party(self.name, self.seat.frame, self.seat.on)

    def open_account(self) -> None:
        """Refuse what the site did not agree to, before anything is computed."""
        plan = self.method.plan
        if plan is not None and self.site.budget is not None:
            self.account = account.open_account(self.site, self.job.name, plan.ledger)
            self._paid = self.account.begin(plan.releases, self._paid)

    @answers(AccountHeads)
    def account_heads(self, step: int) -> AccountHeads:
        """Show the account once more, for what this run booked to be missed if it is cut off."""
        assert self.account is not None, "it is not allowed before"
        self._shown = self.account.show()
        account.remember(self.site.folder, {self.name: self._shown})
        return AccountHeads(self.name, SERVER, step, self._shown)

    @takes(AllAccountHeads)
    def take_heads(self, message: AllAccountHeads) -> None:
        """Remember all parties' accounts.

        Raises AccountRewoundError if another party's account lacks what this one remembers of it.
        """
        self._remember(shown_accounts(message.shown))

    def _remember(self, shown: Mapping[str, Mapping[str, Any]]) -> None:
        if shown.get(self.name) != self._shown:
            raise ProtocolError(f"the server misstates the account of party {self.name!r}")
        if self._shown is not None and set(shown) != set(self.job.parties):
            raise ProtocolError("the server keeps the account of a party back")
        account.remember(self.site.folder, shown)

    def encode(self) -> None:
        """Make the encoding; a private one is released once per run, however often it resumes.

        Raises ArtefactError if the encoding that the networks know is lost.
        """
        path = self.folder / ENCODING
        if self.method.is_private and self.agreed.epoch:
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ArtefactError(
                    f"{path} cannot be read: {error}. The run goes on only with the encoding that "
                    "its networks know; give the job another name to start anew"
                ) from error
            with artefacts.reading(path, "an encoding"):
                self.party.transformer = TableTransformer.from_dict(content)
            return
        super().encode()
        if self.method.is_private:  # before anything computed from it leaves
            artefacts.replace_json(path, self.party.transformer.to_dict(), mode=0o600)

    # -- training --------------------------------------------------------------------------------

    @takes(EncodedSizes)
    def build(self, message: EncodedSizes) -> None:
        """Make the networks, and allow the server to ask what training needs.

        Raises ProtocolError if it was not verified which records are common.
        """
        if not self.matching.verified:
            raise ProtocolError(f"the server skipped the matching of party {self.name!r}")
        super().build(message)
        asked = {kind: self._times(kind) for kind in self.method.asks if self._times(kind)}
        self.rules.allow(asked, {kind: self._done(kind) for kind in asked})

    @takes(CheckpointNotice)
    def write_checkpoint(self, message: CheckpointNotice) -> None:
        """Write the party's state, of a private run at the end of the epoch that was reported last.

        Whoever goes on from it has paid up to that epoch, and takes the steps that it lacks.
        """
        reports = self.method.is_private and TrainingReport in self.method.asks
        if reports and message.step != self.rules.last(TrainingReport):
            raise ProtocolError(
                f"the server ordered a checkpoint of epoch {message.step} from party "
                f"{self.name!r}, which did not report that epoch last"
            )
        super().write_checkpoint(message)

    def _times(self, kind: type[Message]) -> int:
        """Say below which step the server may ask for a kind of message."""
        declared, again = kind.declared, self.agreed.epoch > 0 and self.method.is_private
        if declared.when is When.STEP:
            return self.duration.n_steps
        if declared.when is When.EPOCH:
            return self.duration.n_epochs + 1
        # The server has what was released: asking again would cost again.
        if again and declared.made_of in (MadeOf.RECORDS, MadeOf.NETWORKS):
            return 0
        return self.method.n_blocks(self.settings) if declared.when is When.BLOCK else 1

    def _done(self, kind: type[Message]) -> int:
        """Say from which step on: what was answered before the checkpoint was paid for then."""
        steps = {When.STEP: self.duration.steps_per_epoch, When.EPOCH: 1}
        return self.agreed.epoch * steps.get(kind.declared.when, 0)


def check_half(path: Path) -> None:
    """Refuse a half that could not be replaced, before long work (ArtefactError)."""
    if path.exists():
        artefacts.check_target(path, artefacts.kind_of(path))


def template_of(job: Job, site: Site, columns: Collection[Hashable]) -> TableTransformer:
    """Return the transformer that a job asks for, of a site's columns, with the kinds it declares.

    A job may have encoders and overrides for columns of any site.
    """
    asked = job.parameters.get("transformer") or {}
    template = make_transformer(asked, f"job {job.name!r}: transformer")
    for name in ("encoders", "overrides"):
        said = getattr(template, name) or {}
        own = {label: given for label, given in said.items() if label in columns}
        template.set_params(**{name: own or None})
    made: TableTransformer = template.set_params(kinds=dict(site.column_kinds))
    return made


def check_table(job: Job, site: Site, method: Method) -> contracts.SiteTable:
    """Read a site's table, and prepare it, if job and site go together and it can be used.

    Under privacy it has the types that are public. Raises ParameterError, TableFileError and
    PartyDataError.
    """
    if site.party not in job.parties:
        raise ParameterError(
            f"site {site.party!r} is not a party of job {job.name!r}: {', '.join(job.parties)}"
        )
    if site.table is None:
        raise ParameterError(f"site {site.party!r}: the site file names no table")
    job.check_site(site)
    check_site(job, site, method)
    own = Contract({site.party: contracts.site_contract(job, site).of(site.party)})
    schema = with_public(site.schema, own) or site.schema
    if method.is_private:  # before the records are read
        schema = schema_of_files(schema, {f"site {site.party!r}: job {job.name!r}": site.table})
    stated = schema.stated_dtypes if method.is_private and schema else {}
    frame, keys = records_of(job, site, dtypes=stated, unreadable="missing")
    key = job.key_of(site)
    frame = check_party_frames(
        {site.party: frame},
        MatchOn(key, job.key_form),
        allow_empty_columns=True,
        private=method.is_private,
    )[site.party]
    if len(job.parties) > 1 and not method.is_private:
        warn_of_keys(party_keys(frame, key), site.party)
    if method.is_private:
        frame = with_public_types(frame, schema, key, party=site.party)
    columns = tuple(label for label in frame.columns if label != key)
    check_kinds(dict(site.column_kinds), columns, party=site.party)
    prepare = partial(
        contracts.prepared,
        job,
        site,
        frame,
        contracts.site_contract(job, site, columns),
        schema,
        template_of(job, site, columns),
        private=method.is_private,
    )
    return replace(prepare(), keys=keys, of_matched=prepare)


def records_of(job: Job, site: Site, **stated: Any) -> tuple[pd.DataFrame, pd.Index | None]:
    """Read a site's table; or the records that the job lets it keep, and all keys.

    Which are kept is decided by a digest of their keys under the parties' secret: the same records
    at every party, and no other node knows which.
    """
    assert site.table is not None, "whoever calls this has seen to it"
    if job.max_records is None:
        return read_table(site.table, site.party, **stated), None
    secret = derive(site.the_shared, f"kept records|{job.name}")

    def rank(key: Any) -> int:
        return int.from_bytes(blake2b(key_text(key).encode(), key=secret, digest_size=8).digest())

    on = MatchOn(job.key_of(site), job.key_form)
    frame, keys = read_lowest(site.table, site.party, on, max_records=job.max_records, rank=rank)
    logger.info("%s: %s of %s records are kept", site.party, f"{len(frame):,}", f"{len(keys):,}")
    return frame, keys


def check_site(job: Job, site: Site, method: Method) -> None:
    """Refuse to take part if that is not what the site file agrees to.

    Raises ParameterError if site and job disagree on privacy.
    """
    if method.privacy is None and site.budget is not None:
        raise ParameterError(
            f"site {site.party!r} takes part in private runs only, as its site file has a "
            f"privacy budget; job {job.name!r} has no privacy among its parameters"
        )
    if method.privacy is not None and site.budget is None:
        raise ParameterError(
            f"site {site.party!r}: job {job.name!r} is private, and the site file does not say "
            "how much the site agrees to: [privacy] epsilon = ..., delta = ..."
        )


def noised(method: Method) -> frozenset[str]:
    """Return the kinds of messages that are noisy themselves, or masked."""
    covers = {} if method.plan is None else method.plan.covers
    return frozenset(
        name for name, cover in covers.items() if cover.noised or MESSAGES[name].declared.masked
    )
