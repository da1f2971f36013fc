"""The active party of a split classifier, whose process is the server of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch

from vflsynth import _artefacts as artefacts
from vflsynth._device import resolve_device
from vflsynth._random import RandomStreams
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError
from vflsynth.federation.job import Job
from vflsynth.federation.matching import Matching
from vflsynth.federation.server_node import ServerNode
from vflsynth.federation.site import Site
from vflsynth.federation.split_program import SplitProgram
from vflsynth.federation.tags import Tags
from vflsynth.frames import read_table
from vflsynth.parties import Party
from vflsynth.protocol import Channel, CommonPositions, Hello, Message, Schedule
from vflsynth.protocol.channel import Verb
from vflsynth.protocol.messages import SERVER
from vflsynth.splitdefense.algorithm import SplitLearning
from vflsynth.splitdefense.fitted import classes_to_json
from vflsynth.splitdefense.fitting import check_classes, make_active_party
from vflsynth.splitdefense.inputs import check_labels
from vflsynth.splitdefense.model import TopModel
from vflsynth.splitdefense.settings import SplitSettings
from vflsynth.training import Algorithm, Plan

M = TypeVar("M", bound=Message)

HOLDER = "active"
"""What the active party is called while records are matched."""


class ActiveNode(ServerNode):
    """Owns labels and top model; has a key column and labels, and no other column, in its table.

    Parameters
    ----------
    job : Job
    site : Site
        With a table, the name of the column of labels, and the parties' shared secret: whoever
        has the labels must know which record is in which batch.

    Raises
    ------
    ParameterError
        If the site file lacks something, or the job gives the active party columns of its own.
    """

    KIND = "vflsynth active party's half of a split classifier"

    program: SplitProgram

    def __init__(self, job: Job, site: Site) -> None:
        if site.table is None or site.labels is None:
            raise ParameterError(
                f"site {site.party!r}: the active party's site file must name table and labels"
            )
        self._tags = Tags(site.the_shared, job.name)
        super().__init__(job, site)
        if self.program.classifier.active is not None or job.on is None:
            raise ParameterError(
                "job: across processes records are matched by a key column, `on`, and the active "
                "party has labels only: leave `active` out"
            )
        table = read_table(site.table)
        labels = table.set_index(job.on)[site.labels]
        values, label_table = check_labels(labels, {}, None, job.on)
        self.classes, self._codes = np.unique(values, return_inverse=True)
        check_classes([self.program.classifier.method()], self.classes)
        self._holder = Party(HOLDER, label_table, job.on, TableTransformer())
        self._matching = Matching(HOLDER, label_table, job.on, site.the_shared, self.program.minter)

    def own_tag(self) -> Callable[[Verb, int], str]:
        """Return what makes the active party's own tags."""
        return self._tags

    @property
    def channel(self) -> Channel:
        """Reaches the passive parties and, while records are matched, the active one itself."""
        return _WithHolder(self)

    def algorithm(
        self, settings: SplitSettings, plan: Plan, streams: RandomStreams
    ) -> SplitLearning:
        """Make the algorithm and the top model."""
        device = resolve_device(self.site.device)
        matched = self._holder.matched_rows
        schedule = self._tags.schedule = Schedule(
            RandomStreams([self.site.schedule_secret(self.job.name)], device),
            n_records=len(matched),
            batch_size=settings.batch_size,
        )
        active = make_active_party(
            [self.program.classifier.method()],
            settings,
            schedule,
            streams,
            parties=self.job.parties,
            own=None,
            truth=torch.from_numpy(self._codes[matched].astype(np.int64)).to(device),
            n_classes=len(self.classes),
            steps_per_epoch=plan.steps_per_epoch,
            monitor=None,
        )
        return SplitLearning(self.remote, active)

    def save(self, algorithm: Algorithm) -> None:
        """Write the top model and the classes."""
        assert isinstance(algorithm, SplitLearning)
        with artefacts.new_directory(self.folder / "half", self.KIND) as root:
            artefacts.write_json(root / "classes.json", classes_to_json(self.classes))
            TopModel.of(algorithm, 0, slice(None)).write(root)

    def facts(self) -> dict[str, Any]:
        """Return the active party's hello to itself."""
        return self._matching.facts(self.job.digest, self.checkpoints.epochs())

    def answer(self, verb: Verb, step: int) -> Message:
        """Answer itself while records are matched."""
        if verb is Verb.HELLO:
            return Hello(HOLDER, SERVER, step, self.facts())
        return self._matching.answer(verb, step)

    def take(self, verb: Verb, message: Message) -> None:
        """Take a message to itself while records are matched."""
        if isinstance(message, CommonPositions):
            notice = self._matching.common(message)
            self._tags.records = self._matching.digest(notice.common_keys)
            self._holder.take(verb, notice)
        else:
            self._matching.take(verb, message)


class _WithHolder:
    """The passive parties and the active one, as one channel."""

    def __init__(self, node: ActiveNode) -> None:
        self._node = node

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted([*self._node.remote.names, HOLDER]))

    def gather(self, verb: Verb, step: int, kind: type[M]) -> dict[str, M]:
        own = self._node.answer(verb, step)
        assert isinstance(own, kind)
        answers = self._node.remote.gather(verb, step, kind) | {HOLDER: own}
        return {name: answers[name] for name in self.names}

    def scatter(self, verb: Verb, messages: Mapping[str, Message]) -> None:
        self._node.take(verb, messages[HOLDER])
        self._node.remote.scatter(verb, messages)
