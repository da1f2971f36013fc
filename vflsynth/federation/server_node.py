"""The server as a process of its own: the same run, over a remote channel."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vflsynth._device import resolve_device
from vflsynth._locks import lock
from vflsynth._random import KeySchedule, derive, repeatable
from vflsynth.exceptions import NoCommonCheckpointError, ParameterError, TimeLimitError
from vflsynth.federation import account
from vflsynth.federation.checkpoints import NodeCheckpoints
from vflsynth.federation.contracts import check_agreement
from vflsynth.federation.exchange import RemoteChannel
from vflsynth.federation.job import Job
from vflsynth.federation.matching import check_facts, match_blinded
from vflsynth.federation.party_node import noised
from vflsynth.federation.progress import FEWER_EXCHANGES, LOCK, RUNS_ALREADY, Progress
from vflsynth.federation.site import Site, kept_secret
from vflsynth.federation.trail import Report
from vflsynth.frames import AlignmentReport
from vflsynth.learning.base import Method
from vflsynth.privacy import PrivacyLedger
from vflsynth.privacy.account import OpenAccount
from vflsynth.protocol.channel import SERVER, Transcript, tell
from vflsynth.protocol.messages import AccountHeads, AllAccountHeads, Hello
from vflsynth.reporting import duration_text
from vflsynth.run.server_run import ServerRun, accounts_of, epochs_of, shown_accounts

logger = logging.getLogger("vflsynth")

_OWN = "own-secret"


class ServerNode(ServerRun):
    """Runs one job with parties that are elsewhere.

    The server's site has a folder and a device; no table and no shared secret, unless it has
    labels. The method is by default the job's.
    """

    checkpoints: NodeCheckpoints

    def __init__(self, job: Job, site: Site, method: Method | None = None) -> None:
        job.check_site(site)
        self.job, self.site = job, site
        self.most_hours = job.most_hours
        self.folder = site.folder / job.name
        method = method or job.method_for_node()
        each_step = getattr(method.parameters, "steps_per_exchange", None) == 1
        advice = FEWER_EXCHANGES if each_step and method.privacy is None else None
        transcript = self.transcript = Transcript()
        progress = Progress(self.folder, SERVER, lambda: self.duration, transcript, advice)
        self.progress = progress
        self.remote = RemoteChannel(job.parties, job.name, job.limits, transcript, progress.note)
        self.remote.measures = True
        self.channel = self.everybody = self.remote
        super().__init__(
            method,
            own=[self._own_secret()],
            device=resolve_device(site.device),
            checkpoints=NodeCheckpoints(self.folder / "checkpoints"),
            checkpoint_every=job.checkpoint_every,
            identity={"job": job.digest},
        )
        fresh = KeySchedule(os.urandom(32), job.name, self.remote.attempt)
        self.keys = [fresh if site.schedule is None else repeatable(site.schedule)]
        self.sent = account.KeptSnapshot(self.folder / "contexts", job.digest)
        self.opened: OpenAccount | None = None

    def save(self) -> None:
        """Write the server's part of the model, if it has one."""

    def run(self) -> None:
        """Run the job; whatever goes wrong, every party gets the reason."""
        try:
            own = lock(self.folder / LOCK, RUNS_ALREADY)
        except ParameterError as error:
            self.remote.abort(error)
            raise
        with own:
            self._run()

    def _run(self) -> None:
        report, failure = Report(self.folder, SERVER, self.job), None
        try:
            super().run()
            self.save()
            self.remote.finish()
        except BaseException as error:
            self.remote.abort(error)
            # What was told to the parties names a cause; an interrupt that followed does not.
            failure = self.remote.failure or error
            raise
        finally:
            more: dict[str, Any] = {
                "history": self.history,
                "damaged_checkpoints": self.checkpoints.damaged,
            }
            if hasattr(self, "settings"):
                more |= {"alignment": self.alignment.to_dict(), "settings": asdict(self.settings)}
            if self.opened is not None and self.ledger is not None:
                self.opened.close()
                more["privacy"] = account.report_of(self.opened, self.ledger, self.site)
            report.end(failure, self.transcript, noised(self.method), more)

    # -- joining and matching --------------------------------------------------------------------

    def check(self, hellos: Mapping[str, Hello]) -> None:
        """Check that the parties can work together."""
        check_facts(hellos, self.job.digest)
        told = {name: hellos[name].facts.get("contract") for name in self.job.parties}
        check_agreement(told, self.job.shared_contract)
        account.remember(self.site.folder, accounts_of(hellos))

    def match(self, hellos: Mapping[str, Hello]) -> AlignmentReport:
        """Match by blinded keys; the server sees none."""
        by, most = str(self.job.match_on), self.job.max_frame_bytes
        return match_blinded(self.everybody, hellos, by, self.padding, most)

    def first_epoch(self, hellos: Mapping[str, Hello]) -> int:
        """Return the epoch to go on from, 0 to start: the newest that all nodes have.

        Raises NoCommonCheckpointError if the run was further than one checkpoint, and none is
        common.
        """
        if done := super().first_epoch(hellos):
            return done
        available = epochs_of(hellos) | {SERVER: {*self.checkpoints.epochs()}}
        latest = max((epoch for epochs in available.values() for epoch in epochs), default=0)
        if latest > self.job.checkpoint_every:  # the first may have been interrupted half-way
            having = {name: sorted(epochs) for name, epochs in available.items()}
            raise NoCommonCheckpointError(
                f"run {self.job.name!r} was at epoch {latest}, but no checkpoint is at all nodes: "
                f"{having}",
                fix="bring back the lost checkpoints, or give the job another name to start anew",
            )
        self.own = [self._own_secret(anew=True)]
        return 0

    def _own_secret(self, *, anew: bool = False) -> bytes:
        """Return what the server draws of in this run; other runs, and those begun anew, do not.

        Also what protects gradients is drawn of it, and it decides under which name parties book
        contexts. So a secret in the site file does not stand alone, but to reproduce a run.
        """
        if self.site.own is not None and self.site.schedule is not None:
            return self.site.own
        kept = kept_secret(self.folder / _OWN, anew=anew)
        return kept if self.site.own is None else derive(self.site.own, kept.hex())

    @property
    def ledger(self) -> PrivacyLedger | None:
        """What the run is going to release in all, once that is planned; None of other runs."""
        return None if self.method.plan is None else self.method.plan.ledger

    def open_account(self, done: int) -> None:
        """Write down what the next epoch releases, and what comes before it."""
        if self.ledger is None:
            return
        account.shown_account(self.site)
        self.account = self.opened = account.open_account(self.site, self.job.name, self.ledger)
        self.pay_first(self.opened, done)
        self._show_accounts(0)

    def train(self, done: int, widths: dict[str, int]) -> None:
        """Train, and let all nodes remember what was booked."""
        self.check_distance(done)
        try:
            super().train(done, widths)
        except TimeLimitError as error:  # by its first steps, in which messages travelled
            if advice := self.progress.advice:
                raise TimeLimitError(f"{error}. {advice}") from None
            raise
        if self.account is not None:
            self._show_accounts(1)

    def check_distance(self, done: int) -> None:
        """Say what messages will take in training, and refuse what nobody agreed to wait for.

        Raises ParameterError.
        """
        left = self.duration.n_steps - done * self.duration.steps_per_epoch
        n, trip = self.method.exchanges(self.settings, left), self.remote.round_trip
        if not n or trip is None:
            return
        text = f"{n:,} exchanges, each of which takes {1000 * trip:.0f} ms on the way at least"
        logger.info("server: training takes %s: %s", text, duration_text(n * trip))
        if n * trip > 3600 * self.job.most_hours:
            raise ParameterError(
                f"training takes {text}: {duration_text(n * trip)}, and the job agrees to "
                f"{self.job.most_hours:g} hours. {self.progress.advice or 'Take fewer steps'}. Or "
                "agree to wait: most_hours"
            )

    def _show_accounts(self, turn: int) -> None:
        """Have all accounts shown: once before anything is released, and when all is booked."""
        heads = self.remote.gather(AccountHeads, turn)
        shown = shown_accounts({name: message.shown for name, message in heads.items()})
        account.remember(self.site.folder, shown)
        tell(self.remote, AllAccountHeads, turn, shown)
