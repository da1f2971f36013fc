"""Split learning as a method: one classifier, or several that are trained at once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor

from vflsynth._random import RandomStreams
from vflsynth.codec import to_json
from vflsynth.exceptions import ParameterError, PartyNameError
from vflsynth.frames.keys import KeyMinter
from vflsynth.learning.base import Duration, Known, Method, SharedDraws, TrainedLearning
from vflsynth.mechanisms import DPSGD, Asked, Discriminators, DPSGDPlan, Mechanism
from vflsynth.mechanisms.base import in_full_precision
from vflsynth.models import RowSampler
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.channel import Channel, Message
from vflsynth.protocol.schedule import Length, Schedule
from vflsynth.registry import Number, check_parameters
from vflsynth.run.party_run import PartyRun
from vflsynth.splitdefense.active import SplitLearning
from vflsynth.splitdefense.inputs import Labels
from vflsynth.splitdefense.label_privacy import LabelChannel
from vflsynth.splitdefense.leakage.monitor import LeakageRecord
from vflsynth.splitdefense.messages import AllBottomOutputs, BottomOutputs, HeldOutOutputs
from vflsynth.splitdefense.model import BottomModel, one_replica
from vflsynth.splitdefense.objectives.base import CrossEntropy, Objective, Surroundings, Task
from vflsynth.splitdefense.passive import MaliciousSGD, SplitParty
from vflsynth.splitdefense.protections.gradients import Protection
from vflsynth.splitdefense.settings import HoldingOut, SplitSettings
from vflsynth.splitdefense.targets import (
    Classes,
    check_sample_weight,
    check_together,
    record_weights,
)

_MOST_PARTIES_FOR_HEADS = 4
_FEWEST_TO_HOLD_OUT = 100
"""Records without which none are held out: a tenth of fewer says nothing."""


class BottomLearning(TrainedLearning):
    """A party of a private split estimator without its records.

    Weights must fit the settings, which are public numbers.
    """

    def __init__(self, known: Known) -> None:
        super().__init__(known)
        self._settings = known.settings

    def samplers(self) -> list[RowSampler]:
        """Return nothing: no column is drawn."""
        return []

    def halves(self, on: Hashable, minter: KeyMinter) -> list[Any]:
        """Return the party's bottom model, which is trained alone."""
        weights = one_replica(self.trained, 0)
        return [BottomModel(self.name, self.transformer, self._settings, weights)]


class SplitMethod(Method):
    """Bottom models at the parties; labels and top model at the active party, which is the server.

    `classifiers`, of checked parameters, are one per replica: they differ in seeds and in what
    protects labels. `target` is there after `take_labels`. Raises ParameterError if the classifiers
    cannot be trained at once.
    """

    party = SplitParty
    learner = BottomLearning
    owners = Discriminators.SPLIT
    asks: ClassVar[frozenset[type[Message]]] = frozenset(
        {BottomOutputs, HeldOutOutputs, AllBottomOutputs}
    )

    target: Classes

    def __init__(self, classifiers: Sequence[Any]) -> None:
        asked = in_full_precision(classifiers[0])
        super().__init__(asked, getattr(asked, "privacy", None))
        self.classifiers = classifiers
        self._descent: Any = None
        if self.is_private:
            from vflsynth.splitdefense.private import PrivateDescent  # needs an extra

            self._descent = PrivateDescent
            if len(classifiers) > 1:
                raise ParameterError(
                    f"{type(classifiers[0]).__name__} with privacy is trained alone, as its "
                    "gradients are clipped record by record. Fix: call fit once per classifier"
                )
        self.objectives: list[Objective] = [c.make_objective() for c in classifiers]
        self.protections: list[Protection | None] = [c.make_protection() for c in classifiers]
        _same([getattr(c, "privacy", None) for c in classifiers], "privacy")
        _same([asdict(c.settings()) for c in classifiers], "networks")
        _same([o.structure() for o in self.objectives], "structure of the objective")
        for name in ("absent", "epochs", "patience", "validation_fraction", "classes"):
            _same([getattr(c, name) for c in classifiers], name)
        self.malicious: Mapping[str, MaliciousSGD] = _same(
            [c.malicious or {} for c in classifiers], "malicious"
        )
        self.monitor = _same([c.leakage_monitor() for c in classifiers], "monitor")
        self._holder: PartyRun | None = None
        self._check_stopping()
        check_together(classifiers, None)

    def _check_stopping(self) -> None:
        """Refuse to stop, or to weight records, by a loss that does not exist."""
        if self.is_private:  # no record is held out
            return
        for classifier, objective in zip(self.classifiers, self.objectives):
            for name in ("patience", "class_weight"):
                if getattr(classifier, name) and not objective.has_held_out_loss:
                    raise ParameterError(
                        f"{name} cannot be had with {type(objective).__name__}, which has no loss "
                        f"per record. Fix: {name}=None"
                    )

    # -- the active party ------------------------------------------------------------------------

    def take_labels(
        self, labels: Labels, holder: PartyRun, parties: Sequence[str], sample_weight: Any = None
    ) -> None:
        """Learn, as the active party, what only it knows, before the run.

        Labels and weights are in the order of the rows of the holder's table. The `holder` is the
        active party's own seat: it is matched like everybody, and its columns, if it has any, have
        a bottom model beside the top model. `parties` are all that contribute features, in the
        order in which they are fused. Raises ParameterError, PartyNameError if a classifier is not
        defined for these labels, weights or parties.
        """
        check_together(self.classifiers, sample_weight)
        protects = [c.label_privacy for c in self.classifiers]
        self.target = Classes.of(
            labels,
            (*self.objectives, *self.protections),
            self.parameters.classes,
            private=self.is_private or all(protects),
        )
        self._sample_weight = check_sample_weight(sample_weight, len(labels))
        if self._sample_weight is not None and not self.objectives[0].has_held_out_loss:
            raise ParameterError(
                f"sample_weight cannot be had with {type(self.objectives[0]).__name__}, which has "
                "no loss per record"
            )
        if self._sample_weight is not None and self.is_private:
            raise ParameterError(
                f"sample_weight cannot be had with {type(self.privacy).__name__}: weights are "
                "scaled by their mean over all records, which no ε counts. Fix: leave it out"
            )
        self._holder = holder
        self._parties = tuple(parties)
        self._passive = tuple(name for name in parties if name != holder.name)
        for name, rule in self.malicious.items():
            self._check_passive(name, "malicious")
            if not isinstance(rule, MaliciousSGD):
                raise ParameterError(f"malicious: {name!r} has {rule!r}; give it a MaliciousSGD()")
            rule.check()
        self._heads, self._dropout = self._find_heads(), self._find_dropout()

    def _check_passive(self, name: str, parameter: str) -> None:
        if name not in self._passive:
            raise PartyNameError(
                f"{parameter} names a party that is not passive",
                fix=f"the passive parties are {', '.join(map(repr, self._passive))}",
                party=name,
            )

    def _find_heads(self) -> tuple[tuple[str, ...], ...]:
        """Return the groups of parties that are left when some passive parties quit."""
        if self.parameters.absent == "zero":
            return ()
        if not isinstance(self.objectives[0], CrossEntropy):
            raise ParameterError("absent='multihead' is for plain cross-entropy only")
        if len(self._parties) > _MOST_PARTIES_FOR_HEADS:
            raise ParameterError(
                "absent='multihead' trains a top model for every subset of parties and is limited "
                f"to {_MOST_PARTIES_FOR_HEADS} parties; there are {len(self._parties)}. Try "
                "party_dropout"
            )
        return tuple(
            group
            for gone in range(1, len(self._passive) + 1)
            for quitters in combinations(self._passive, gone)
            if (group := tuple(name for name in self._parties if name not in quitters))
        )

    def _find_dropout(self) -> dict[str, list[float]]:
        """Return probabilities, one per replica, of parties that are ever dropped out."""
        given = [
            dict(c.party_dropout)
            if isinstance(c.party_dropout, Mapping)
            else dict.fromkeys(self._passive, c.party_dropout)
            for c in self.classifiers
        ]
        for probabilities in given:
            for name, value in probabilities.items():
                self._check_passive(name, "party_dropout")
                rule = Number(0, 1, closed=(True, False))
                check_parameters("party_dropout", {name: value}, {name: rule})
        return {
            name: [float(p.get(name, 0.0)) for p in given]
            for name in self._passive
            if any(p.get(name, 0.0) for p in given)
        }

    def algorithm(
        self, channel: Channel, settings: SplitSettings, streams: RandomStreams
    ) -> SplitLearning:
        """Make the active party, once records are matched and its own seat has been built."""
        assert self._holder is not None
        holder, device, n_classes = self._holder, streams.device, self.target.n_classes
        own: Any = holder.party if holder.seat.has_columns else None
        matched = holder.party.matched_rows
        truth = torch.tensor(self.target.codes[matched]).to(device)
        privacies = [c.label_privacy for c in self.classifiers]
        labels = torch.stack(
            [truth if p is None else p.transform(truth, n_classes) for p in privacies]
        )
        schedule = holder.schedule
        rows = schedule.order if isinstance(schedule, HoldingOut) else schedule.replica_rows
        trained = labels if rows is None else labels.gather(1, rows)
        shares = self.target.shares(trained)
        per_class = per_record = None
        asked = [c.class_weight for c in self.classifiers]
        if any(asked):
            each = zip(asked, torch.split(shares, 1))
            per_class = torch.cat([self.target.weights(*one) for one in each])
        if self._sample_weight is not None:
            per_record = torch.tensor(self._sample_weight[matched]).to(device)
        weights = record_weights(labels, rows, per_class, per_record)
        around = Surroundings(
            settings,
            self._parties,
            self._passive,
            n_classes,
            shares,
            self._heads,
            streams,
            LabelChannel.of(privacies, n_classes, device) if any(privacies) else None,
        )
        records = {
            name: LeakageRecord(
                self.monitor,
                labels=truth,
                dim=settings.intermediate_dim,
                n_replicas=len(labels),
                n_classes=n_classes,
                scalar_probability=settings.scalar_probability,
                steps_per_epoch=holder.duration.steps_per_epoch,
            )
            for name in self._passive
            if self.monitor is not None
        }
        return SplitLearning(
            channel,
            schedule,
            self._task(around),
            own=own,
            labels=labels,
            truth=truth,
            target=self.target,
            weights=weights,
            patience=self.parameters.patience if settings.n_held_out else None,
            protections=_groups(self.protections, device),
            party_dropout={
                name: torch.tensor(values, device=device) for name, values in self._dropout.items()
            },
            records=records,
        )

    def _task(self, around: Surroundings) -> Task:
        """Make what trains the active party's networks."""
        if not self.is_private:
            return self.objectives[0].task(self.objectives, around)
        from vflsynth.splitdefense.private import PrivateCrossEntropy  # needs an extra

        return PrivateCrossEntropy(self.objectives, around, self.dpsgd_plan, self.noise)

    # -- privacy ---------------------------------------------------------------------------------

    @property
    def dpsgd_plan(self) -> DPSGDPlan:
        """The plan of a private run."""
        plan = self.private_plan
        assert isinstance(plan, DPSGDPlan)
        return plan

    @property
    def _private_length(self) -> Length:
        """How long a private run is: sizes follow from public numbers alone."""
        length = self.dpsgd_plan.length
        assert length is not None
        return length

    def agree(self, columns: Mapping[str, ColumnCounts], n_records: int) -> None:
        """Have the mechanism plan its noise; who has labels alone has no bottom model."""
        super().agree({name: c for name, c in columns.items() if c.total}, n_records)

    def _asked(self, columns: Mapping[str, ColumnCounts], n_records: int) -> Asked:
        assert isinstance(self.privacy, DPSGD)
        public = self.privacy.public_number(n_records)
        batch_size = min(self.parameters.batch_size, public)
        asked = super()._asked(columns, n_records)
        return replace(asked, batch_size=batch_size, epochs=self.parameters.epochs)

    @classmethod
    def without_effect(cls, mechanism: type[Mechanism] | None) -> frozenset[str]:
        """Return what is not looked at under privacy: no record is held out."""
        held_out = frozenset({"patience", "validation_fraction"})
        return frozenset() if mechanism is None else held_out

    @classmethod
    def reason_against(cls, parameters: Any, mechanism: Mechanism) -> str | None:
        """Say what parameters privacy cannot go with; None if it can.

        Refused is what would make a record's gradient depend on other records, or learn something
        else of them than the ledger counts.
        """
        if not isinstance(parameters.make_objective(), CrossEntropy):
            return "objective=CrossEntropy(): others have no loss per record, or several networks"
        if parameters.classes is None:
            return "classes=[...]: one label would add a class, if they were learned from labels"
        for name, (allowed, why) in _ONLY_WITH_PRIVACY.items():
            value = getattr(parameters, name)
            if not any(value is one or value == one for one in allowed):
                return f"{name}={allowed[0]!r}: {why}"
        return None

    # -- every node ------------------------------------------------------------------------------

    def minter(self, name: str, keys: pd.Index) -> KeyMinter:
        """Return what mints no keys, so that nothing has to be told about the party's own."""
        return KeyMinter(str(keys.dtype), "unsupported")

    def settings(self, n_records: int, widths: Mapping[str, int]) -> SplitSettings:
        """Fill in the batch size, and check that the objectives suit the networks.

        Raises ParameterError.
        """
        settings: SplitSettings = self.parameters.settings()
        if self.is_private:
            settings = replace(settings, batch_size=self._private_length.batch_size)
        else:
            held_out = 0
            if self.parameters.patience is not None and n_records >= _FEWEST_TO_HOLD_OUT:
                share = self.parameters.validation_fraction
                held_out = min(round(share * n_records), n_records - 1)
            batch_size = min(settings.batch_size, n_records - held_out)
            settings = replace(settings, batch_size=batch_size, n_held_out=held_out)
        for objective in self.objectives:
            objective.check_architecture(settings)
        return settings

    def duration(self, n_records: int, settings: SplitSettings) -> Duration:
        """Epochs and steps."""
        if self.is_private:
            return Duration(self._private_length.epochs, self._private_length.steps_per_epoch)
        n_trained = n_records - settings.n_held_out
        return Duration(self.parameters.epochs, -(-n_trained // settings.batch_size))

    def schedule(self, shared: SharedDraws, n_records: int, settings: SplitSettings) -> Schedule:
        """Make what the parties draw alike: batches, and which records are in none."""
        if not settings.n_held_out:
            return super().schedule(shared, n_records, settings)
        return HoldingOut(
            shared.streams,
            n_records=n_records,
            n_held_out=settings.n_held_out,
            batch_size=settings.batch_size,
            replica_rows=shared.replica_rows,
        )

    def build(
        self, party: SplitParty, settings: SplitSettings, schedule: Schedule, streams: RandomStreams
    ) -> None:
        """Make a party's bottom model."""
        descent = None
        if self._descent is not None:
            descent = partial(self._descent, plan=self.dpsgd_plan, noise=self.noise)
        party.build(settings, schedule, streams, self.malicious.get(party.name), descent)

    def multiply_adds(self, settings: SplitSettings, widths: Mapping[str, int]) -> float:
        """Multiply-adds of the largest layer of a bottom model on a batch."""
        found = list(widths.values())
        if self._holder is not None and self._holder.seat.has_columns:
            found.append(self._holder.party.transformer.width_)
        dims = [max(found), *settings.bottom_hidden, settings.intermediate_dim]
        return settings.batch_size * max(a * b for a, b in pairwise(dims))

    def halves(
        self, party: SplitParty, settings: SplitSettings, on: Hashable, minter: KeyMinter
    ) -> list[Any]:
        """Return a party's bottom model, one per replica."""
        return [BottomModel.of(party, i, settings) for i in range(len(self.classifiers))]

    def reported(self, settings: SplitSettings, duration: Duration) -> dict[str, Any]:
        """Return what becomes ``settings_``."""
        return {**asdict(settings), "epochs": duration.n_epochs}

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a checkpoint to be continued, JSON-safe."""
        defenses = [
            [objective, protection, c.label_privacy, c.party_dropout, c.absent]
            for objective, protection, c in zip(self.objectives, self.protections, self.classifiers)
        ]
        return {
            "defenses": to_json(defenses),
            "malicious": to_json(self.malicious),
            "class_weight": to_json([c.class_weight for c in self.classifiers]),
            "patience": self.parameters.patience,
        }


_ONLY_WITH_PRIVACY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "protection": ((None,), "it would mix the gradients of a batch's records"),
    "label_privacy": ((None,), "labels are part of a record, which ε is about"),
    "class_weight": ((None,), "weights are scaled by the labels of all records"),
    "malicious": ((None, {}), "whoever amplifies gradients does not keep them below the bound"),
    "monitor": ((True, False), "what is measured of leakage is no release that ε counts"),
    "absent": (("zero",), "every further head would need noise of its own"),
    "numeric_bins": ((None, 0), "quantiles are learned from the records"),
}
"""Parameters of which privacy allows few values, and why."""


def _same(values: Sequence[Any], what: str) -> Any:
    """Return what is the same for all classifiers.

    Raises ParameterError if it is not.
    """
    if any(to_json(value) != to_json(values[0]) for value in values[1:]):
        raise ParameterError(
            f"classifiers that are trained at once must have the same {what}; train those that "
            "differ with calls of their own"
        )
    return values[0]


def _groups(
    protections: Sequence[Protection | None], device: torch.device
) -> list[tuple[Protection, Tensor]]:
    """Replicas that have the same protection, together."""
    groups: dict[str, tuple[Protection, list[int]]] = {}
    for replica, own in enumerate(protections):
        if own is not None:
            groups.setdefault(str(to_json(own)), (own, []))[1].append(replica)
    return [(own, torch.tensor(members, device=device)) for own, members in groups.values()]
