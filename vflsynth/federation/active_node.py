"""The active party of a split classifier, whose process is the server of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from vflsynth._device import resolve_device
from vflsynth.exceptions import ColumnMismatchError, ParameterError
from vflsynth.federation import account
from vflsynth.federation.checkpoints import NodeCheckpoints
from vflsynth.federation.job import Job
from vflsynth.federation.party_node import HOLDER, BlindedRun, check_half, records_of
from vflsynth.federation.server_node import ServerNode
from vflsynth.federation.site import Site
from vflsynth.frames import MatchOn
from vflsynth.frames.party_frames import with_keys_in_form
from vflsynth.privacy import PrivacyLedger
from vflsynth.protocol.channel import Message
from vflsynth.run.party_run import Seat
from vflsynth.splitdefense.active import SplitLearning
from vflsynth.splitdefense.inputs import check_labels
from vflsynth.splitdefense.method import SplitMethod
from vflsynth.splitdefense.model import TopModel

M = TypeVar("M", bound=Message)


class ActiveNode(ServerNode):
    """Owns labels and top model; of its table it reads keys, labels and what each record counts.

    The site has a table, the names of the column of labels and, if there are any, of the column of
    weights, and the parties' shared secret: whoever has the labels must know which record is in
    which batch. Raises ParameterError if the site file lacks something, or the job gives the active
    party columns of its own.
    """

    method: SplitMethod
    algorithm: SplitLearning

    def __init__(self, job: Job, site: Site) -> None:
        if site.table is None or site.labels is None:
            raise ParameterError(
                f"site {site.party!r}: the active party's site file must name table and labels"
            )
        check_half(site.folder / job.name / "half")
        key = job.key_of(site)
        if key is None or job.parameters.get("active") is not None:
            raise ParameterError(
                "job: across processes records are matched by a key column, `on`, and the active "
                "party has labels only: leave `active` out"
            )
        table, _ = records_of(job, site)
        for column in (key, site.labels, site.sample_weight):
            if column is not None and column not in table.columns:
                raise ColumnMismatchError(
                    f"the table of site {site.party!r} has no such column",
                    fix="correct the site file, or the job's `on`",
                    party=site.party,
                    column=column,
                )
        table = with_keys_in_form(table, MatchOn(key, job.key_form), site.party)
        labels = table.set_index(key)[site.labels]
        weights = None if site.sample_weight is None else table[site.sample_weight]
        method = job.method_for_node()
        assert isinstance(method, SplitMethod)
        if site.budget is not None and method.parameters.label_privacy is None:
            raise ParameterError(
                f"site {site.party!r} has a privacy budget, which is for randomised labels; job "
                f"{job.name!r} has no label_privacy among its parameters"
            )
        if job.max_records is not None and method.parameters.label_privacy is not None:
            raise ParameterError("job: label_privacy does not go with max_records: leave one out")
        stated = method.parameters.classes is not None
        values, label_table = check_labels(labels, {}, None, key, stated=stated)
        seat = Seat(
            HOLDER,
            label_table,
            key,
            own=[b""],
            make_schedule=lambda *agreed: self.holder_run.make_schedule(*agreed),
            fingerprint=b"",
            device=resolve_device(site.device),
            checkpoints=NodeCheckpoints(site.folder / job.name / "checkpoints"),
            has_columns=False,
        )
        self.holder_run = BlindedRun(seat, method, job, site)
        super().__init__(job, site, method)
        self.remote.own_tag = self.holder_run.tags
        self.everybody = _WithHolder(self)
        method.take_labels(values, self.holder_run, job.parties, weights)

    @property
    def ledger(self) -> PrivacyLedger | None:
        """What the run releases of the labels."""
        privacy = self.method.parameters.label_privacy
        return None if privacy is None else privacy.ledger()

    def open_account(self, done: int) -> None:
        """Book the labels that are going to be randomised, before anything is made of them.

        A run that goes on from a checkpoint has the responses that it had. One that begins anew is
        booked anew: it has others if other records are in common.
        """
        if self.ledger is None:
            return
        account.shown_account(self.site)
        opened = self.opened = account.open_account(self.site, self.job.name, self.ledger)
        if not done or not opened.has(self.ledger.entries):
            opened.check(self.ledger.entries)
            opened.spend(self.ledger.entries)
            account.remember(self.site.folder, {self.site.party: opened.show()})

    def save(self) -> None:
        """Write the top model and the classes."""
        TopModel.of(self.algorithm, 0, slice(None)).save(self.folder / "half")


class _WithHolder:
    """The passive parties and the active one, as one channel."""

    def __init__(self, node: ActiveNode) -> None:
        self._remote, self._own = node.remote, node.holder_run

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted([*self._remote.names, HOLDER]))

    def gather(self, kind: type[M], step: int) -> dict[str, M]:
        own: Any = self._own.answer(kind, step)
        answers = self._remote.gather(kind, step) | {HOLDER: own}
        return {name: answers[name] for name in self.names}

    def scatter(self, messages: Mapping[str, Message]) -> None:
        self._own.take(messages[HOLDER])
        self._remote.scatter(messages)
