"""A party as a process of its own: matching, training, checkpoints, its half, its report."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from vflsynth import _artefacts as artefacts
from vflsynth._device import few_threads, resolve_device
from vflsynth._random import RandomStreams, derive
from vflsynth._version import __version__
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.federation.checkpoints import NodeCheckpoints
from vflsynth.federation.job import Job, Site
from vflsynth.federation.matching import Matching
from vflsynth.federation.participant import Link, Rules, take_part
from vflsynth.federation.programs import Program, program_of
from vflsynth.frames import check_party_frames, read_table
from vflsynth.protocol import (
    AlignmentNotice,
    BlindedKeys,
    CheckpointNotice,
    CommonPositions,
    EncodedSize,
    Hello,
    Message,
    Schedule,
    Terms,
    Transcript,
)
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER

logger = logging.getLogger("vflsynth")

_BATCHES = {Verb.DISCRIMINATOR_FEATURES, Verb.GENERATOR_FEATURES, Verb.BOTTOM_OUTPUT}
_NOISED: frozenset[str] = frozenset()
"""Kinds of messages that carry noise; in this version nothing across processes does."""


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
        frame = check_party_frames({self.name: read_table(site.table)}, job.on)[self.name]
        self.matching = Matching(self.name, frame, job.on, site.the_shared)
        self.party = self.program.make_party(self.name, frame, site.column_kinds)
        self.rules = Rules({Verb.HELLO, Verb.BLIND_KEYS, Verb.ENCODED_SIZE})
        self.rules.allow({Verb.REBLIND_KEYS: len(job.parties) + 1})
        self.transcript = Transcript()
        self._schedule: Schedule | None = None
        self._tag_secret = derive(site.the_shared, f"tags|{job.name}")
        self._widths: dict[str, int] = {}
        self._settings: Any = None
        self._minter = self.matching.minter

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
                    tag=self.tag,
                    limits=self.job.limits,
                    transcript=self.transcript,
                )
            self.program.save_half(self.party, self._settings, self._minter, self.folder / "half")
            outcome = "finished"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._report(started, outcome)

    def _report(self, started: str, outcome: str) -> None:
        """Write what left and what arrived in this attempt, beside those of earlier ones."""
        rows = self.transcript.to_frame().to_dict("records")
        for row in rows:
            row["noised"] = row["message"] in _NOISED
        content = {
            "party": self.name,
            "job": self.job.to_dict(),
            "version": __version__,
            "started": started,
            "outcome": outcome,
            "left": [row for row in rows if row["sender"] == self.name],
            "arrived": [row for row in rows if row["receiver"] == self.name],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        number = 1 + len(list(self.folder.glob("report-*.json")))
        side = self.folder / f".report-{number:03d}"
        artefacts.write_json(side, content)
        side.rename(self.folder / f"report-{number:03d}.json")

    def tag(self, verb: Verb, step: int) -> str:
        """Digest, under the shared secret, of records, batch and latents: equal at all parties."""
        mac = hmac.new(self._tag_secret, f"{verb.value}|{step}|".encode(), hashlib.sha256)
        mac.update(self.matching.digest)
        if verb in _BATCHES and self._schedule is not None:
            mac.update(self._schedule.rows(step).cpu().numpy().tobytes())
            if self._schedule.latent_dim:
                mac.update(self._schedule.latent(step).cpu().numpy().tobytes())
        return mac.hexdigest()[:16]

    # -- messages --------------------------------------------------------------------------------

    def answer(self, verb: Verb, step: int) -> Message:
        """Compute the message that `verb` asks for at `step`."""
        match verb:
            case Verb.HELLO:
                facts = self.matching.facts(self.job.digest, self.checkpoints.epochs())
                return Hello(self.name, SERVER, step, facts)
            case Verb.BLIND_KEYS:
                return self.matching.blind(step)
            case Verb.REBLIND_KEYS:
                return self._reblinded
            case Verb.ENCODED_SIZE:
                return EncodedSize(self.name, SERVER, step, self.party.transformer.width_)
            case _:
                return self.party.answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Act on a message from the server."""
        match verb, message:
            case Verb.REBLIND_KEYS, BlindedKeys():
                self._reblinded = self.matching.reblind(message)
            case Verb.ALIGN, CommonPositions():
                common = self.matching.common(message)
                self.party.take(verb, AlignmentNotice(SERVER, self.name, 0, common))
                logger.info("%s: %d records matched", self.name, len(common))
                self.party.prepare()
            case Verb.TERMS, Terms():
                self._build(message.terms)
            case Verb.CHECKPOINT, CheckpointNotice():
                self.checkpoints.write(message.step, self._state(), self._fingerprint(), [])
            case _:
                self.party.take(verb, message)

    def _build(self, terms: dict[str, Any]) -> None:
        """Make the networks, at the start or as a checkpoint has them."""
        n_records = len(self.party.matched_rows)
        self._widths = {name: int(width) for name, width in terms["widths"].items()}
        if self._widths.get(self.name) != self.party.transformer.width_:
            raise ProtocolError(f"the server's terms misstate the width of party {self.name!r}")
        settings = self._settings = self.program.settings(n_records, self._widths)
        self._minter = self.matching.minter_of_all(terms["key_offset"])
        device = resolve_device(self.site.device)
        self._schedule = Schedule(
            RandomStreams([self.site.schedule_secret(self.job.name)], device),
            n_records=n_records,
            batch_size=settings.batch_size,
            latent_dim=getattr(settings, "latent_dim", 0),
        )
        own = self.site.own or kept_secret(self.folder / "own-secret")
        self.party.build(settings, self._schedule, RandomStreams([own], device))
        plan = self.program.plan(n_records, settings)
        self.rules.allow(self.program.steps(plan))
        epoch = int(terms["epoch"])
        self.checkpoints.forget_after(epoch)
        if epoch:
            state, _ = self.checkpoints.load(epoch, self._fingerprint(), device)
            self.party.load_state(state)

    def _state(self) -> dict[str, Tensor]:
        return self.party.state()

    def _fingerprint(self) -> dict[str, Any]:
        """Return what must be equal for this party to go on; no record shows in it."""
        return {
            "version of vflsynth": __version__,
            "job": self.job.digest,
            "settings": asdict(self._settings),
            "widths": self._widths,
            "records": self.party.digest(derive(self.site.the_shared, "fingerprint"))[:16],
        }


def kept_secret(path: Path) -> bytes:
    """Return this run's own secret, made from the operating system's entropy on the first start."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        side = path.with_name(f".{path.name}")
        side.touch(mode=0o600)
        side.write_text(os.urandom(32).hex())
        side.rename(path)
    return bytes.fromhex(path.read_text())
