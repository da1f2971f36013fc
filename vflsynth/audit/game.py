"""The games: who knows what, worlds with and without the target, what is shown to the attacker."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any, Self

import pandas as pd
from sklearn.base import BaseEstimator, clone

from vflsynth.audit.targets import RULES
from vflsynth.evaluation.columns import is_categorical
from vflsynth.exceptions import (
    ColumnMismatchError,
    ParameterError,
    PartyDataError,
    PublishingWarning,
    did_you_mean,
)
from vflsynth.frames import align_party_frames, key_of
from vflsynth.frames.party_frames import check_party_frames, party_keys
from vflsynth.privacy.releases import watched_releases

PartyFrames = Mapping[str, pd.DataFrame]
Publisher = Callable[[PartyFrames, int], pd.DataFrame]
"""A way to publish from outside: ``publish(party_frames, random_state)`` returns a table."""

MODEL = "model itself"
"""What is looked at where the attacker holds the model, too."""

THREAT_MODELS = {
    "ASSD": (
        "The attacker sees one synthetic table. They know every record except whether the target "
        "was among them, know the training algorithm with its parameters, and can train any "
        "number of models like it. They do not know the random seed. This is stronger than a real "
        "outsider and as strong as a colleague who has all other records."
    ),
    "ASIF": (
        "The attacker is whoever receives one party's intermediate features: the server, or an "
        "eavesdropper. They see the features of all records after training, know every record "
        "except whether the target was used in training, and can train any number of models "
        "alike. They do not know the random seed, and do not use the features of earlier training "
        "steps. Where a private run sends no features, they see all its releases, noise included."
    ),
    "mechanism": (
        "The attacker sees one release of the mechanism, knows every record except whether the "
        "target was among them, and knows the mechanism but not its noise."
    ),
    MODEL: (
        "Where the model itself is looked at, they hold it in place of the table, and can ask it "
        "how probable a record is."
    ),
    "canaries": (
        "The attacker sees one synthetic table. They know all records that are always in it and "
        "all candidates for canaries, and guess which of these were put in."
    ),
}


PUBLISHED = "releases"
"""What is looked at of private runs that send no features."""

RELEASES = {
    "ASSD": "one synthetic table",
    "ASIF": "one party's intermediate features of all records, once, after training",
    "mechanism": "one release",
    "canaries": "one synthetic table",
    MODEL: "the fitted model",
    PUBLISHED: "all releases of the run",
}
"""What an attacker is shown once, by scheme, or by source where that says more."""


@dataclass(frozen=True)
class World:
    """Party frames, and which targets are asked about in this world.

    The name decides the seeds of its models.
    """

    name: str
    party_frames: PartyFrames
    targets: tuple[Hashable, ...]


class LeaveOneOutGame:
    """The worlds of Algorithms 2 and 4: all records, and all records but one.

    `party_frames` are as given, with keys in the form in which they are compared. `table` has the
    matched records of all parties side by side, with their keys as the index, without columns that
    do not come out, and `aligned` the same per party. Whoever runs an audit holds all of it.
    """

    def __init__(
        self, party_frames: PartyFrames, on: Any = None, left_out: Collection[Hashable] = ()
    ) -> None:
        self.party_frames, self._on = check_party_frames(party_frames, on), on
        aligned, keys, _ = align_party_frames(self.party_frames, on)
        self.aligned = {
            name: frame.set_axis(keys, axis=0).drop(columns=list(left_out), errors="ignore")
            for name, frame in aligned.items()
        }
        self.table = pd.concat(list(self.aligned.values()), axis=1)

    def check_columns(
        self, sensitive: Iterable[Hashable] | None, known: Iterable[Hashable] | None
    ) -> None:
        """Refuse columns, or quasi-identifiers, that cannot be asked about, before any training."""
        for name in chain.from_iterable(own for own in (sensitive, known) if own is not None):
            if name not in self.table.columns:
                raise ColumnMismatchError(
                    "named as sensitive or quasi-identifier, but no table has such a column that "
                    f"comes out{did_you_mean(name, self.table.columns)}",
                    fix="correct the name",
                    column=name,
                )
        for name in () if sensitive is None else sensitive:
            if known is not None and {name}.issuperset(known):
                raise ParameterError(f"no quasi-identifier is known beside the column {name!r}")

    def choose(
        self,
        targets: Sequence[Any],
        categorical: Sequence[Hashable],
        *,
        encodable_without: bool = False,
    ) -> dict[Hashable, list[str]]:
        """Return the targets' keys, with how each was chosen: by which rules, or named.

        With `encodable_without`, rules pass over records that alone have some label or gap: an
        encoding learned without such a record has no code for it.
        """
        chosen: dict[Hashable, list[str]] = {}
        table = self.table
        if encodable_without:
            table = table[_encodable(table, categorical)]
        for target in targets:
            if isinstance(target, str) and target in RULES:
                key = RULES[target](table, categorical)
                chosen.setdefault(key, []).append(target)
            elif target in self.table.index:
                chosen.setdefault(target, []).append("named")
            else:
                raise PartyDataError(
                    f"target {target!r} is not the key of a record that all parties have",
                    fix=f"give one of the {len(self.table)} matched keys, or one of "
                    + ", ".join(map(repr, RULES)),
                )
        return chosen

    def worlds(self, targets: Sequence[Hashable]) -> list[World]:
        """Return the world with all records, which serves every target, and one without each."""
        return [
            World("with all records", self.party_frames, tuple(targets)),
            *(
                World(f"without {target!r}", self.frames_without([target]), (target,))
                for target in targets
            ),
        ]

    def frames_without(self, keys: Collection[Hashable]) -> dict[str, pd.DataFrame]:
        """Return every party's frame without the records of some keys."""
        return {
            name: frame[~party_keys(frame, key_of(self._on, name)).isin(list(keys))]
            for name, frame in self.party_frames.items()
        }


def _encodable(table: pd.DataFrame, categorical: Sequence[Hashable]) -> pd.Series[bool]:
    """Whether every label of a record, and every gap, occurs in another record too."""
    shared = pd.Series(True, index=table.index)
    for name in table.columns:
        missing = table[name].isna()
        if name in categorical or is_categorical(table[name]):
            shared &= missing | (table.groupby(name, observed=True)[name].transform("size") > 1)
        if missing.sum() == 1:
            shared &= ~missing
    return shared


def train(
    synthesizer: Any,
    party_frames: PartyFrames,
    on: Any,
    random_states: Sequence[int],
    *,
    keep_discriminators: bool = False,
    watch_releases: bool = False,
    callbacks: Sequence[Any] = (),
    verbose: int = 0,
) -> list[Any]:
    """Train one model, with ``sample(n)``, per random state; all at once where that is possible.

    The synthesizer has ``clone``, ``fit(party_frames, on)`` and ``sample(n)``, or is a `Publisher`.
    Those that have callbacks and discriminators to keep are told so. With `watch_releases` private
    models have what they published as ``releases_``. A training that was cut short raises
    KeyboardInterrupt: a half-trained model is no shadow model.
    """
    if not hasattr(synthesizer, "fit"):
        tables = [synthesizer(party_frames, state) for state in random_states]
        return [SimpleNamespace(sample=lambda n, own=own: own) for own in tables]
    parameters = _parameters(synthesizer)
    said = {"verbose": verbose} if "verbose" in parameters else {}
    template = clone(synthesizer).set_params(**said)
    watch = {"callbacks": list(callbacks)} if callbacks else {}
    keep = {"keep_discriminators": True} if keep_discriminators else {}
    with warnings.catch_warnings(
        action="ignore", category=PublishingWarning
    ):  # it is not published
        if trains_many(template):
            models = template.fit_replicas(
                party_frames, on, random_states=list(random_states), **keep, **watch
            )
        else:
            models = []
            for state in random_states:
                with watched_releases() as released:
                    if keep:  # of a private model: it is trained alone, and so releases alone
                        states = {"random_states": [state]}
                        (model,) = template.fit_replicas(
                            party_frames, on, **states, **keep, **watch
                        )
                    else:
                        seeded = {"random_state": state} if "random_state" in parameters else {}
                        model = clone(template).set_params(**seeded).fit(party_frames, on, **watch)
                if watch_releases:
                    model.releases_ = released
                models.append(model)
    if any(getattr(model, "interrupted_", False) for model in models):
        raise KeyboardInterrupt
    return list(models)


def columns_left_out(synthesizer: Any) -> list[Hashable]:
    """Return the columns that do not come out, or come out made up, as a contract says.

    Raises ParameterError if this is no synthesizer, before anything is trained.
    """
    known = hasattr(synthesizer, "fit") or callable(synthesizer)
    if isinstance(synthesizer, type) or not known:
        raise ParameterError(
            "the synthesizer must be an estimator, such as GaussianCopulaSynthesizer(), or a "
            f"function that returns a table; got {synthesizer!r}"
        )
    contract = getattr(synthesizer, "contract", None)
    return [] if contract is None else list(contract.left_out)


def trains_many(synthesizer: Any) -> bool:
    """Whether a synthesizer can train many models at once: not if each must release by itself."""
    private = _parameters(synthesizer).get("privacy") is not None
    return hasattr(synthesizer, "fit_replicas") and not private


def publishes_releases(synthesizer: Any) -> bool:
    """Whether all that leaves the parties of a run are releases with noise, and no features."""
    return bool(getattr(_parameters(synthesizer).get("privacy"), "one_release", False))


def check_model(synthesizer: Any) -> None:
    """Raise ParameterError if a model cannot be asked how probable a record is."""
    if not hasattr(synthesizer, "log_prob"):
        raise ParameterError(
            'attacker="model" needs a synthesizer with log_prob, which says how probable a '
            f"record is; {type(synthesizer).__name__} has none"
        )


def chooses_epochs(synthesizer: Any) -> bool:
    """Whether a synthesizer trains in epochs, and chooses by itself how many."""
    return (
        hasattr(synthesizer, "fit_replicas") and _parameters(synthesizer).get("epochs", 0) is None
    )


def _parameters(synthesizer: Any) -> dict[str, Any]:
    return synthesizer.get_params(deep=False) if hasattr(synthesizer, "get_params") else {}


@dataclass(repr=False, eq=False)
class JoinedTable(BaseEstimator):  # type: ignore[misc]
    """Fits a model of one table to the joined table of all parties.

    Parameters
    ----------
    model : object
        With ``fit(table)`` and ``sample(n)``, such as those of CTGAN and SDV. Copied for each fit.
    fit_options : mapping of str to object, optional
        Passed on to its ``fit``, say CTGAN's ``discrete_columns``.
    random_state : int, optional
        Passed on by the model's ``set_random_state``, or else as its attribute ``random_state``.
        A model that has neither draws from randomness of its own.

    Examples
    --------
    >>> class Mean:
    ...     def fit(self, table):
    ...         self.table = table
    ...     def sample(self, n):
    ...         return self.table.mean().to_frame().T.loc[[0] * n]
    >>> frames = {"a": pd.DataFrame({"x": [1.0, 3.0]}), "b": pd.DataFrame({"y": [5.0, 7.0]})}
    >>> JoinedTable(Mean()).fit(frames).sample(2)["y"].tolist()
    [6.0, 6.0]
    """

    model: Any
    fit_options: Mapping[str, Any] | None = None
    random_state: int | None = None

    def fit(self, party_frames: Mapping[str, pd.DataFrame], on: Any = None) -> Self:
        """Match the parties' records and fit a copy of the model to them, without keys."""
        if not (hasattr(self.model, "fit") and hasattr(self.model, "sample")):
            raise ParameterError(
                f"JoinedTable needs a model with fit(table) and sample(n), got {self.model!r}"
            )
        aligned, _, _ = align_party_frames(party_frames, on)
        table = pd.concat(list(aligned.values()), axis=1)
        self.model_ = deepcopy(self.model)
        if self.random_state is not None:
            if hasattr(self.model_, "set_random_state"):
                self.model_.set_random_state(self.random_state)
            elif hasattr(self.model_, "random_state"):
                self.model_.random_state = self.random_state
        self.model_.fit(table, **(self.fit_options or {}))
        self.columns_ = table.columns
        return self

    def sample(self, n: int) -> pd.DataFrame:
        """Return n synthetic records, columns in the parties' order."""
        return pd.DataFrame(self.model_.sample(n))[self.columns_]
