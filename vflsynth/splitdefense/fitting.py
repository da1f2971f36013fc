"""Putting a training together: parties, active party, session; one classifier or many at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from vflsynth._device import resolve_device
from vflsynth._random import RandomStreams, secret_from
from vflsynth._validation import Number, check_parameters
from vflsynth.exceptions import ParameterError, PartyNameError
from vflsynth.frames import AlignmentReport
from vflsynth.parameters import to_json
from vflsynth.parties import Party
from vflsynth.protocol import LocalChannel, Schedule, Transcript
from vflsynth.splitdefense.active import ActiveParty
from vflsynth.splitdefense.algorithm import Rows, SplitLearning
from vflsynth.splitdefense.inputs import LABEL_HOLDER, check_labels
from vflsynth.splitdefense.leakage.monitor import Evidence, LeakageMonitor, LeakageRecord
from vflsynth.splitdefense.malicious import MaliciousSGD
from vflsynth.splitdefense.method import Method, Recipe
from vflsynth.splitdefense.objectives import CrossEntropy, Surroundings
from vflsynth.splitdefense.passive import SplitParty, outputs_of
from vflsynth.splitdefense.protections import Protection
from vflsynth.splitdefense.settings import SplitSettings
from vflsynth.training import Callback, Plan, Session, check_replica_rows, match_records

_MOST_PARTIES_FOR_HEADS = 4


@dataclass(frozen=True)
class RunOptions:
    """What surrounds a training, as `BaseSplitClassifier.fit` documents it."""

    callbacks: Sequence[Callback] = ()
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 1
    resume: str | os.PathLike[str] | None = None
    transcript: bool = False


@dataclass(frozen=True)
class Trained:
    """What a training leaves, for all classifiers of it."""

    classes: npt.NDArray[Any]
    alignment: AlignmentReport
    settings: SplitSettings
    parties: Sequence[SplitParty]
    session: Session
    rows: Tensor | None
    interrupted: bool
    transcript: pd.DataFrame | None

    @property
    def algorithm(self) -> SplitLearning:
        """The algorithm, with the active party."""
        assert isinstance(self.session.algorithm, SplitLearning)
        return self.session.algorithm

    def used(self, replica: int) -> Rows:
        """Positions of the records that a classifier was trained on."""
        if self.rows is None:
            return slice(None)
        used: npt.NDArray[np.int64] = self.rows[replica].cpu().numpy()
        return used

    def features(self, replica: int) -> dict[str, Tensor]:
        """Every party's outputs for a classifier's training records, (1, record, feature) each."""
        used, outputs = self.used(replica), self.algorithm.outputs
        return {p.name: outputs[p.name][replica : replica + 1, used].cpu() for p in self.parties}

    def evidence(self, replica: int) -> dict[str, Evidence]:
        """Return what each passive party could have kept of the training of one classifier."""
        active, used, features = self.algorithm.active, self.used(replica), self.features(replica)
        evidence = {}
        for party in self.parties:
            record = active.records.get(party.name)
            if record is None:
                continue
            untrained = outputs_of(party.untrained, party.records, len(active.labels))[replica]
            evidence[party.name] = Evidence(
                party=party.name,
                labels=active.truth.cpu().numpy()[used],
                n_classes=active.n_classes,
                encoded=party.records.cpu().numpy()[used],
                features=features[party.name][0].numpy(),
                random_features=untrained.cpu().numpy()[used],
                mean_gradients=record.mean("gradients", replica)[used],
                residuals=record.mean("residuals", replica)[used],
                last_gradients=record.last("gradients", replica)[used],
                last_features=record.last("features", replica)[used],
                batches=record.batches(replica),
            )
        return evidence


def train(
    recipes: Sequence[Recipe],
    frames: Mapping[str, pd.DataFrame],
    y: Any,
    on: Hashable,
    *,
    kinds: Mapping[str, Mapping[Any, str]],
    replica_rows: npt.ArrayLike | None,
    options: RunOptions,
) -> Trained:
    """Train classifiers that differ in seeds and methods only.

    Parameters
    ----------
    recipes : sequence of Recipe
        Of checked parameters, one per classifier.
    frames : mapping of str to DataFrame
        Checked.
    y, on, replica_rows
        See `BaseSplitClassifier.fit_replicas`.
    kinds : mapping
        Column kinds by party that are known beforehand.
    options : RunOptions
    """
    first, methods = recipes[0], [recipe.method for recipe in recipes]
    labels, label_table = check_labels(y, frames, first.active, on)
    classes, codes = np.unique(labels, return_inverse=True)
    check_classes(methods, classes)

    parties = [SplitParty(name, frame, on, first.transformer) for name, frame in frames.items()]
    for party in parties:
        if party.name in kinds:
            party.transformer.set_params(kinds=kinds[party.name])
    passive = [party for party in parties if party.name != first.active]
    own = next((party for party in parties if party.name == first.active), None)
    holder: Party = own or Party(LABEL_HOLDER, label_table, on, first.transformer)

    record = Transcript() if options.transcript else None
    members = [*passive, holder]
    order = {party.name: None for party in members}
    alignment, _ = match_records(LocalChannel(members, record), order, on)
    for party in parties:
        party.prepare()
    truth = torch.from_numpy(codes[holder.matched_rows].astype(np.int64))
    rows = check_replica_rows(replica_rows, len(recipes), alignment.n_matched)
    n_records = alignment.n_matched if rows is None else rows.shape[1]

    device = resolve_device(first.device)
    _same(recipes, lambda r: asdict(r.settings), "networks")
    settings = first.settings.for_records(n_records)
    for method in methods:
        method.objective.check_architecture(settings)
    malicious = _same(recipes, lambda r: r.malicious, "malicious")
    _check_malicious(malicious, [party.name for party in passive])
    plan = Plan(_same(recipes, lambda r: r.epochs, "epochs"), -(-n_records // settings.batch_size))
    channel = LocalChannel(passive, record)

    def build(schedule: Schedule, streams: RandomStreams) -> SplitLearning:
        for party in parties:
            own_streams = streams.child(f"party {party.name}")
            party.build(settings, schedule, own_streams, malicious.get(party.name))
        active = make_active_party(
            methods,
            settings,
            schedule,
            streams.child("active party"),
            parties=tuple(frames),
            own=own,
            truth=truth.to(device),
            n_classes=len(classes),
            steps_per_epoch=plan.steps_per_epoch,
            monitor=_same(recipes, lambda r: r.monitor, "monitor"),
        )
        return SplitLearning(channel, active)

    session = Session(
        parties,
        build,
        plan,
        settings={
            **asdict(settings),
            "methods": to_json(methods),
            "malicious": to_json(malicious),
        },
        secrets=[secret_from(recipe.random_state) for recipe in recipes],
        n_records=n_records,
        replica_rows=rows,
        device=device,
    )
    largest = max(
        inputs * outputs
        for party in parties
        for inputs, outputs in pairwise(party.bottom_model.dims)
    )
    interrupted = session.train(
        len(recipes) * settings.batch_size * largest,
        callbacks=options.callbacks,
        checkpoint=options.checkpoint,
        checkpoint_every=options.checkpoint_every,
        resume=options.resume,
        verbose=first.verbose > 0,
    )
    return Trained(
        classes=classes,
        alignment=alignment,
        settings=settings,
        parties=parties,
        session=session,
        rows=rows,
        interrupted=interrupted,
        transcript=None if record is None else record.to_frame(),
    )


def make_active_party(
    methods: Sequence[Method],
    settings: SplitSettings,
    schedule: Schedule,
    streams: RandomStreams,
    *,
    parties: tuple[str, ...],
    own: SplitParty | None,
    truth: Tensor,
    n_classes: int,
    steps_per_epoch: int,
    monitor: LeakageMonitor | None,
) -> ActiveParty:
    """Build the active party for classifiers trained at once, whose methods may differ.

    Parameters
    ----------
    methods : sequence of Method
        One per replica.
    settings, schedule, streams, own, truth, n_classes, steps_per_epoch
        See `ActiveParty` and `LeakageRecord`; `streams` are the active party's own.
    parties : tuple of str
        All that contribute features, in the order in which they are fused.
    monitor : LeakageMonitor or None
        None where leakage is not watched.

    Raises
    ------
    ParameterError, PartyNameError
        If methods cannot be trained at once, or name parties that there are not.
    """
    passive = tuple(name for name in parties if own is None or name != own.name)
    labels = torch.stack(
        [
            truth
            if method.label_privacy is None
            else method.label_privacy.transform(
                truth, n_classes, RandomStreams([secret], streams.device)
            )[0]
            for method, secret in zip(methods, streams.secrets)
        ]
    )
    trained = labels if schedule.replica_rows is None else labels.gather(1, schedule.replica_rows)
    shares = torch.stack([torch.bincount(row, minlength=n_classes) / len(row) for row in trained])
    objectives = [method.objective for method in methods]
    _same(objectives, lambda objective: objective.structure(), "structure of the objective")
    around = Surroundings(
        settings, parties, passive, n_classes, shares, _heads(methods, parties, passive), streams
    )
    records = {}
    if monitor is not None:
        records = {
            name: LeakageRecord(
                monitor,
                labels=truth,
                dim=settings.intermediate_dim,
                n_replicas=len(methods),
                n_classes=n_classes,
                scalar_probability=settings.intermediate_dim == 1
                and settings.bottom_output == "sigmoid",
                steps_per_epoch=steps_per_epoch,
                device=streams.device,
            )
            for name in passive
        }
    return ActiveParty(
        settings,
        schedule,
        streams,
        objectives[0].make(objectives, around),
        own=own,
        labels=labels,
        truth=truth,
        n_classes=n_classes,
        protections=_groups([method.protection for method in methods], streams.device),
        joint_protection=_same(methods, lambda m: m.joint_protection, "joint_protection"),
        party_dropout=_dropout(methods, passive, streams.device),
        records=records,
    )


def _same(items: Sequence[Any], of: Callable[[Any], Any], what: str) -> Any:
    """Return what is the same for all classifiers.

    Raises
    ------
    ParameterError
        If it is not.
    """
    found = [of(item) for item in items]
    if any(to_json(value) != to_json(found[0]) for value in found[1:]):
        raise ParameterError(
            f"classifiers that are trained at once must have the same {what}; train those that "
            "differ with calls of their own"
        )
    return found[0]


def check_classes(methods: Sequence[Method], classes: npt.NDArray[Any]) -> None:
    """Refuse classes that a classifier's method is not defined for.

    Raises
    ------
    ParameterError
    """
    if len(classes) < 2:
        raise ParameterError(
            f"y has only one class, {classes[0]!r}; a classifier needs at least two"
        )
    if len(classes) == 2:
        return
    for method in methods:
        for part in (method.objective, method.protection):
            if part is not None and part.binary_only:
                raise ParameterError(
                    f"Only binary classification is supported by {type(part).__name__}, and y has "
                    f"{len(classes)} classes. Isotropic, MaxNorm, RandomizedResponse, DIMIP and "
                    "DistanceCorrelation are defined for any number"
                )


def _heads(
    methods: Sequence[Method], parties: tuple[str, ...], passive: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the groups of parties that are left when some passive parties quit."""
    if _same(methods, lambda m: m.absent, "absent") == "zero":
        return ()
    if not isinstance(methods[0].objective, CrossEntropy):
        raise ParameterError("absent='multihead' is for plain cross-entropy only")
    if len(parties) > _MOST_PARTIES_FOR_HEADS:
        raise ParameterError(
            "absent='multihead' trains a top model for every subset of parties and is limited to "
            f"{_MOST_PARTIES_FOR_HEADS} parties; there are {len(parties)}. Try party_dropout"
        )
    return tuple(
        group
        for gone in range(1, len(passive) + 1)
        for quitters in combinations(passive, gone)
        if (group := tuple(name for name in parties if name not in quitters))
    )


def _groups(
    protections: Sequence[Protection | None], device: torch.device
) -> list[tuple[Protection, Tensor]]:
    """Replicas that have the same protection, together."""
    groups: list[tuple[Protection, list[int]]] = []
    for replica, protection in enumerate(protections):
        if protection is None:
            continue
        same = next(
            (members for other, members in groups if to_json(other) == to_json(protection)), None
        )
        if same is None:
            groups.append((protection, [replica]))
        else:
            same.append(replica)
    return [(p, torch.tensor(members, device=device)) for p, members in groups]


def _check_malicious(rules: Mapping[str, MaliciousSGD], passive: Sequence[str]) -> None:
    for name, rule in rules.items():
        _check_passive(name, passive, "malicious")
        if not isinstance(rule, MaliciousSGD):
            raise ParameterError(f"malicious: {name!r} has {rule!r}; give it a MaliciousSGD()")
        rule.check()


def _check_passive(name: str, passive: Sequence[str], parameter: str) -> None:
    if name not in passive:
        raise PartyNameError(
            f"{parameter} names a party that is not passive",
            fix=f"the passive parties are {', '.join(map(repr, passive))}",
            party=name,
        )


def _dropout(
    methods: Sequence[Method], passive: tuple[str, ...], device: torch.device
) -> dict[str, Tensor]:
    """Probabilities by party, (replica,), for parties that are ever dropped out."""
    given = [
        dict(m.party_dropout)
        if isinstance(m.party_dropout, Mapping)
        else dict.fromkeys(passive, m.party_dropout)
        for m in methods
    ]
    for probabilities in given:
        for name, value in probabilities.items():
            _check_passive(name, passive, "party_dropout")
            rule = Number(0, 1, closed=(True, False))
            check_parameters("party_dropout", {name: value}, {name: rule})
    return {
        name: torch.tensor([float(p.get(name, 0.0)) for p in given], device=device)
        for name in passive
        if any(p.get(name, 0.0) for p in given)
    }
