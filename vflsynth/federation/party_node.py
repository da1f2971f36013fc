"""A party as a process of its own: matching, training, checkpoints, its half, its report."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from typing import Any

from vflsynth._device import few_threads, resolve_device
from vflsynth._random import RandomStreams, derive
from vflsynth._version import __version__
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.federation.account import Account
from vflsynth.federation.checkpoints import NodeCheckpoints
from vflsynth.federation.job import Job
from vflsynth.federation.matching import Matching
from vflsynth.federation.participant import Link, Rules, take_part
from vflsynth.federation.program import Agreed, Program
from vflsynth.federation.programs import program_of
from vflsynth.federation.reports import write_report
from vflsynth.federation.site import Site, kept_secret
from vflsynth.federation.tags import Tags
from vflsynth.frames import check_party_frames, read_table
from vflsynth.parties import TrainableParty
from vflsynth.privacy.discovery import count_columns
from vflsynth.protocol import (
    CheckpointNotice,
    CommonPositions,
    EncodedSize,
    Hello,
    Message,
    Terms,
    Transcript,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER

logger = logging.getLogger("vflsynth")


class PartyNode:
    """Answers everything that a server may ask of one party in one run.

    Parameters
    ----------
    job : Job
    site : Site
        With a table and the shared secret.

    Raises
    ------
    PartyDataError
        If the table cannot be used.
    ParameterError
        If the site file lacks something.
    """

    def __init__(self, job: Job, site: Site) -> None:
        if site.party not in job.parties:
            raise ParameterError(
                f"site {site.party!r} is not a party of job {job.name!r}: {', '.join(job.parties)}"
            )
        if site.table is None:
            raise ParameterError(f"site {site.party!r}: the site file names no table")
        self.job, self.site, self.name = job, site, site.party
        self.folder = site.folder / job.name
        self.checkpoints = NodeCheckpoints(self.folder / "checkpoints")
        self.program: Program = program_of(job)
        self.program.check_site(site)
        frame = read_table(site.table)
        check_party_frames({self.name: frame}, job.on, allow_empty_columns=self.program.private)
        self.frame, shared = frame, site.the_shared
        counts = count_columns({self.name: frame}, job.on, site.schema)[self.name]
        n_unlisted = counts.unlisted if self.program.private else 0
        self.matching = Matching(self.name, frame, job.on, shared, self.program.minter, n_unlisted)
        self.rules = Rules({Verb.HELLO, Verb.BLIND_KEYS, Verb.ENCODED_SIZE})
        self.rules.allow({Verb.REBLIND_KEYS: len(job.parties) + 1})
        self.transcript = Transcript()
        self.tags = Tags(site.the_shared, job.name)
        self._agreed: Agreed | None = None
        self._party: TrainableParty | None = None
        self._account: Account | None = None
        self._paid = 0  # the last epoch that is in the account
        self._steps_per_epoch = 1
        self._widths: dict[str, int] = {}
        self._settings: Any = None

    # -- a run -----------------------------------------------------------------------------------

    def run(self, link: Link) -> None:
        """Take part to the end; save this party's half, and in any case a report."""
        started = time.strftime("%Y-%m-%dT%H:%M:%S")
        outcome = "failed"
        try:
            # The number of threads that the estimator would use for a step of this size is known
            # only after matching; until then nothing is computed that depends on it.
            with few_threads(0, resolve_device(self.site.device)):
                take_part(
                    self,
                    link,
                    self.rules,
                    run=self.job.name,
                    tag=self.tags,
                    limits=self.job.limits,
                    transcript=self.transcript,
                )
            minter = replace(self.matching.minter, offset=self.agreed.key_offset)
            self.program.save_half(self.party, self._settings, minter, self.folder / "half")
            outcome = "finished"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
            raise
        finally:
            more = {} if self._account is None else {"privacy": self._account.close()}
            write_report(
                self.folder,
                self.name,
                self.job,
                self.transcript,
                started,
                outcome,
                self.program.noised,
                more,
            )

    @property
    def agreed(self) -> Agreed:
        """What the server told of the other parties."""
        if self._agreed is None:
            raise ProtocolError(f"party {self.name!r} was asked before it was told the terms")
        return self._agreed

    @property
    def party(self) -> TrainableParty:
        """The object that owns the table."""
        if self._party is None:
            raise ProtocolError(f"party {self.name!r} was asked before it was told the terms")
        return self._party

    # -- messages --------------------------------------------------------------------------------

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        match verb:
            case Verb.HELLO:
                facts = self.matching.facts(self.job.digest, self.checkpoints.epochs())
                return Hello(self.name, SERVER, step, facts)
            case Verb.BLIND_KEYS | Verb.REBLIND_KEYS:
                return self.matching.answer(verb, step)
            case Verb.ENCODED_SIZE:
                return EncodedSize(self.name, SERVER, step, self.party.transformer.width_)
            case _:
                if verb is Verb.DISCRIMINATOR_FEATURES:
                    self._pay(step // self._steps_per_epoch + 1)
                return self.party.answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        match verb, message:
            case Verb.REBLIND_KEYS, _:
                self.matching.take(verb, message)
            case Verb.TERMS, Terms():
                agreed = self._agreed = Agreed.of(message.terms)
                self.matching.check_terms(agreed)
                self.checkpoints.forget_after(agreed.epoch)
                self._party = self.program.make_party(self.name, self.frame, self.site, agreed)
            case Verb.ALIGN, CommonPositions():
                notice = self.matching.common(message)
                self.tags.records = self.matching.digest(notice.common_keys)
                self.party.take(verb, notice)
                logger.info("%s: %d records matched", self.name, len(notice.common_keys))
                self.program.matched(self.agreed, len(notice.common_keys))
                self._open_account()
                self.program.prepare(self.party)
                self._pay(self.agreed.epoch + 1)  # before anything leaves, its size included
            case Verb.BUILD, Terms():
                self._build(message.terms)
            case Verb.CHECKPOINT, CheckpointNotice():
                self.checkpoints.write(message.step, self.party.state(), self._fingerprint(), [])
            case _:
                self.party.take(verb, message)

    def _open_account(self) -> None:
        """Refuse what the site did not agree to, before anything is computed."""
        ledger = self.program.ledger()
        if ledger is not None:
            site = self.site
            self._account = Account(site.folder, self.job.name, ledger, site.budget)
            self._account.check(self.program.releases(self.agreed.epoch + 1))

    def _pay(self, epoch: int) -> None:
        """Pay once for what an epoch releases."""
        if self._account is not None and epoch > self._paid:
            self._account.spend(self.program.releases(epoch, epoch))
            self._paid = epoch

    def _build(self, terms: dict[str, Any]) -> None:
        """Make the networks, at the start or as a checkpoint has them."""
        n_records = len(self.party.matched_rows)
        self._widths = {name: int(width) for name, width in terms["widths"].items()}
        if self._widths.get(self.name) != self.party.transformer.width_:
            raise ProtocolError(f"the server's terms misstate the width of party {self.name!r}")
        settings = self._settings = self.program.settings(n_records, self._widths)
        device, epoch = resolve_device(self.site.device), self.agreed.epoch
        schedule = self.tags.schedule = self.program.schedule(
            self.site, self.agreed, n_records, settings, device
        )
        own = self.site.own or kept_secret(self.folder / "own-secret")
        self.program.build(self.party, settings, schedule, RandomStreams([own], device))
        plan = self.program.plan(n_records, settings)
        self._steps_per_epoch = plan.steps_per_epoch
        self.rules.allow(self.program.steps(plan, epoch))
        if epoch:
            state, _ = self.checkpoints.load(epoch, self._fingerprint(), device)
            self.party.load_state(state)

    def _fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for this party to go on; no record shows in it."""
        return {
            "version of vflsynth": __version__,
            "job": self.job.digest,
            "settings": asdict(self._settings),
            "widths": self._widths,
            "records": self.party.digest(derive(self.site.the_shared, "fingerprint"))[:16],
        }
