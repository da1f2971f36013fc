"""What is written down about shadow models: statistics of what they would publish or send."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from vflsynth.adversary.encoding import Floats
from vflsynth.adversary.statistics import Statistic
from vflsynth.audit.findings import Claim
from vflsynth.audit.kept import Observation, describe_frames
from vflsynth.audit.shadow import Observer
from vflsynth.exceptions import ParameterError, PartyDataError, UnseenValueError
from vflsynth.privacy import NeighbouringRelation

_POPULATION, _RELEASED = 100, 2000
IMPOSSIBLE = -1e4
"""Logarithm of the probability of what a model cannot make."""
_CLAIM, _RELATIONS = "claimed privacy", tuple(NeighbouringRelation)


def log_prob_of(model: Any, records: pd.DataFrame) -> Floats:
    """Return how probable a model calls records, those that it cannot make too; shape (record,)."""
    try:
        found = model.log_prob(records).to_numpy(np.float64)
    except PartyDataError:  # a label that this model does not know
        if len(records) == 1:
            return np.array([IMPOSSIBLE])
        middle = len(records) // 2
        halves = records.iloc[:middle], records.iloc[middle:]
        return np.concatenate([log_prob_of(model, half) for half in halves])
    return np.asarray(np.nan_to_num(found, nan=IMPOSSIBLE, neginf=IMPOSSIBLE, posinf=-IMPOSSIBLE))


class DensityObserver(Observer):
    """What each model itself says of how probable the targets are, for attackers who hold it.

    Two numbers per target: the logarithm of its probability (or density), and the share of other
    records, evenly taken from the matched ones, that are less probable. Then the same two of each
    party's columns, if there are several parties. What a model cannot make has logarithm -10,000.

    Likelihood-ratio attacks (LiRA, Carlini et al. 2022; RMIA, Zarifzadeh et al. 2024) on the
    likelihood that the model was trained by. The parties' halves are ours.
    """

    label = "own density"

    def __init__(
        self,
        table: pd.DataFrame,
        targets: Mapping[Hashable, pd.DataFrame],
        parties: Sequence[Sequence[Hashable]] = (),
    ) -> None:
        halves = [list(columns) for columns in parties] if len(parties) > 1 else []
        self._parts: list[list[Hashable]] = [list(table.columns), *halves]
        places = np.linspace(0, len(table) - 1, min(_POPULATION, len(table))).astype(np.int64)
        self._targets = list(targets)
        self._asked = pd.concat([*targets.values(), table.iloc[np.unique(places)]])
        self._known = self._asked.index[len(targets) :]

    def describe(self) -> str:
        """Say what is observed."""
        return f"{self.label} of {describe_frames({'asked': self._asked})} in {self._parts}"

    def observe(self, model: Any, targets: Sequence[Hashable]) -> Observation:
        """Return log probabilities and ranks."""
        found = [log_prob_of(model, self._asked[columns]) for columns in self._parts]
        return {
            label_of(self.label, target): np.concatenate(
                [self._own_and_rank(of_part, target) for of_part in found]
            )
            for target in targets
        }

    def _own_and_rank(self, found: Floats, target: Hashable) -> Floats:
        own, others = found[self._targets.index(target)], found[len(self._targets) :]
        lower = (others < own)[self._known != target]
        return np.array([own, float(lower.mean()) if len(lower) else 0.5])


class Observers(Observer):
    """Several observers of the same models as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def describe(self) -> str:
        """Say what is observed."""
        return "; ".join(observer.describe() for observer in self._observers)

    def observe(self, model: Any, targets: Sequence[Hashable]) -> Observation:
        """Return what all of them observe."""
        found = [observer.observe(model, targets) for observer in self._observers]
        return {name: vector for part in found for name, vector in part.items()}


@dataclass(frozen=True)
class TableObserver(Observer):
    """Fitted statistics of one synthetic table per model, of `n_synthetic` records."""

    statistics: Sequence[Statistic]
    targets: Mapping[Hashable, pd.DataFrame]
    n_synthetic: int
    categorical: Sequence[Hashable] = ()

    def labels(self) -> dict[str, str]:
        """Name of each statistic, by the label that goes before the target's in observations."""
        return {repr(statistic): statistic.name for statistic in self.statistics}

    def describe(self) -> str:
        """Say what is observed."""
        records = describe_frames({repr(key): row for key, row in self.targets.items()})
        read = f" with labels {sorted(map(repr, self.categorical))}" if self.categorical else ""
        return f"{self.n_synthetic} records: {list(map(repr, self.statistics))} of {records}{read}"

    def observe(self, model: Any, targets: Sequence[Hashable]) -> Observation:
        """Return statistics of a table, and what the model claims."""
        table = model.sample(self.n_synthetic)
        found = {
            label_of(repr(statistic), target): statistic.measure(table, self.targets[target])
            for statistic in self.statistics
            for target in targets
        }
        return found | _as_numbers(Claim.of_model(model))


@dataclass(frozen=True)
class FeatureObserver(Observer):
    """Statistics of each party's intermediate features of all matched records."""

    keep_discriminators = True

    statistics: Sequence[Statistic]
    frames: Mapping[str, pd.DataFrame]
    targets: Sequence[Hashable]

    def labels(self, party: str) -> dict[str, str]:
        """Name of each statistic, by the label that goes before the target's in observations."""
        return {f"{party}: {statistic!r}": statistic.name for statistic in self.statistics}

    def describe(self) -> str:
        """Say what is observed."""
        return f"features of {describe_frames(self.frames)}: {list(map(repr, self.statistics))}"

    def observe(self, model: Any, targets: Sequence[Hashable]) -> Observation:
        """Return statistics of the features that the model's parties would send."""
        found: Observation = {}
        for party, frame in self.frames.items():
            half = model.parties_[party]
            own = frame if half.preparation is None else half.preparation.apply(frame)
            encoded = _encode(half.transformer, own)
            # As the discriminator is shown them.
            residuals = getattr(model, "local_residuals_", {}).get(party)
            if residuals is not None:
                encoded = residuals.take_out(encoded[0]).unsqueeze(0)
            features = _features(model, party, encoded).set_axis(frame.index, axis=0)
            for statistic in self.statistics:
                fitted = statistic.fit(features)
                for target in targets:
                    label = label_of(f"{party}: {statistic!r}", target)
                    found[label] = fitted.measure(features, features.loc[[target]])
        return found


class ReleaseObserver(Observer):
    """What a private run published, with its noise: the first 2,000 numbers; zeros if fewer."""

    watch_releases = True
    label = "releases"

    def describe(self) -> str:
        """Say what is observed."""
        return self.label

    def observe(self, model: Any, targets: Sequence[Hashable]) -> Observation:
        """Return the published numbers, the same for every target."""
        parts = [release.values.ravel() for release in model.releases_]
        if not parts:
            raise ParameterError(
                f"{type(model).__name__} published nothing; there is nothing to audit"
            )
        found = np.concatenate([*parts, np.zeros(_RELEASED)])[:_RELEASED]
        seen = {label_of(self.label, target): found for target in targets}
        return seen | _as_numbers(Claim.of_model(model))


def _encode(transformer: Any, frame: pd.DataFrame) -> torch.Tensor:
    try:
        return torch.tensor(transformer.spread(transformer.transform(frame))).unsqueeze(0)
    except UnseenValueError as error:
        raise UnseenValueError(
            f"{error.problem}; it occurs in the target only, so that the world without the target "
            "has no code for it",
            fix="audit another record here: this value alone in the synthetic data tells that this "
            "one was used, see audit_synthetic_data",
            party=error.party,
            column=error.column,
        ) from error


def _features(model: Any, party: str, encoded: torch.Tensor) -> pd.DataFrame:
    """Intermediate features of all records, shape (record, feature)."""
    discriminator = model.local_discriminators_.get(party)
    if not hasattr(discriminator, "first_part"):
        raise ParameterError(
            f"{type(model).__name__} sends no intermediate features; there is nothing to audit"
        )
    with torch.no_grad():
        features = discriminator.first_part.trace(encoded.to(model.device_))[-1][0]
    columns = [f"feature {i}" for i in range(features.shape[1])]
    return pd.DataFrame(features.cpu().numpy().astype(np.float64), columns=columns)


def label_of(statistic: str, target: Hashable) -> str:
    """Name the observation of a statistic that looks for a target."""
    return f"{statistic} | {target!r}"


def _as_numbers(claim: Claim | None) -> Observation:
    if claim is None:
        return {}
    relation, conditional = _RELATIONS.index(claim.relation), bool(claim.condition)
    return {_CLAIM: np.array([claim.epsilon, claim.delta, relation, conditional])}


def weakest_claim(worlds: Iterable[Mapping[str, Floats]]) -> Claim | None:
    """Return what all models of the observed worlds claim; None if they claim nothing."""
    claims = [world[_CLAIM] for world in worlds if _CLAIM in world]
    if not claims:
        return None
    epsilon, delta, relation, conditional = np.concatenate(claims).max(axis=0).tolist()
    condition = "conditional, as the models' ledgers say" if conditional else ""
    return Claim(epsilon, delta, _RELATIONS[int(relation)], condition)
