"""What a saved model tells of one record: a measured lower bound beside the printed epsilon.

    python -m benchmarks.distinguishing run --mechanisms "VFLGAN, DPSGD" "DPLT, LatentTree"
    python -m benchmarks.distinguishing show

Two parties of one column of three categories each have 24 records of two of them, and one more of
the third at both, or in its place one that is as others are. As many models of either table are
fitted, with noise of their own, and saved. The attacker has both tables and all numbers of a saved
model, and knows where the record moves them: by the difference of two models without noise (the
known direction), and by the means of models that the attacker fits. Either is divided by the
variances among those. Half of the models teach direction and threshold, the others are counted. The
bound is that of Clopper and Pearson, with 95 % confidence, of the direction that was better in
teaching; "most" is the bound if that were always right. It can show that an epsilon is too small,
never that it is right, and is weak on weights that were trained: of VertiGAN's, 60 models of either
table do not show that nine tenths of the noise are missing.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self
from unittest import mock

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from safetensors.numpy import load_file
from sklearn.base import clone

from benchmarks import _commands, _results
from vflsynth import (
    DPSGD,
    DPSGDGAN,
    GSWGAN,
    DPLTSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.adversary import Adversary
from vflsynth.audit import AuditReport, Claim, audit_mechanism
from vflsynth.columns import PublicSchema
from vflsynth.privacy import NeighbouringRelation, PrivacyLedger, releases
from vflsynth.splitdefense import RandomizedResponse, SplitNNClassifier

EPSILON, DELTA, N_RECORDS, N_MODELS = 4.0, 1e-3, 24, 120
LEVELS = ("a", "b", "c")

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Tables = dict[str, pd.DataFrame]

_BUDGET: dict[str, Any] = {
    "delta": DELTA,
    "public_schema": PublicSchema(categories=dict.fromkeys("xy", LEVELS), dtypes="given"),
}
_SMALL: dict[str, Any] = {"epochs": 3, "batch_size": 8, "device": "cpu", "verbose": 0}
_GAN = _SMALL | {"latent_dim": 2, "generator_hidden": (4,)}
_SPLIT = _SMALL | {
    "classes": (False, True),
    "bottom_hidden": (),
    "intermediate_dim": 2,
    "top_hidden": (),
}
_DPSGD = partial(DPSGD, n_records=N_RECORDS)

MECHANISMS: dict[str, tuple[type[Any], dict[str, Any], Callable[..., Any]]] = {
    "VFLGAN, DPSGD": (VFLGANSynthesizer, _GAN, _DPSGD),
    "VertiGAN, DPSGD": (VertiGANSynthesizer, _GAN, _DPSGD),
    "DPLT, LatentTree": (DPLTSynthesizer, {}, LatentTree),
    "mixture, PairwiseTables": (MixtureSynthesizer, {"n_components": 4}, PairwiseTables),
    "WGAN-GP, DPSGD": (WGANGPSynthesizer, _GAN, _DPSGD),
    "WGAN-GP, DPSGDGAN": (WGANGPSynthesizer, _GAN, DPSGDGAN),
    "WGAN-GP, GSWGAN": (WGANGPSynthesizer, _GAN, partial(GSWGAN, n_shards=2)),
    "classifier, DPSGD": (SplitNNClassifier, _SPLIT, _DPSGD),
    "classifier, responses": (SplitNNClassifier, _SPLIT, RandomizedResponse),
}
"""Every mechanism that protects what is saved, with every synthesizer that can have it, and both
guarantees of classifiers; `FirstLayer` says that it has none."""


def tables(relation: NeighbouringRelation, inside: bool) -> Tables:
    """Return both parties' columns, with the record that nobody resembles or without it."""
    rng = np.random.default_rng(0)
    values = rng.choice(LEVELS[:2], (N_RECORDS, 2))
    if inside or relation is NeighbouringRelation.REPLACE_ONE:
        values = np.vstack([values, [LEVELS[2] if inside else LEVELS[0]] * 2])
    table = pd.DataFrame(values, columns=["x", "y"], dtype=object)
    return {"a": table[["x"]], "b": table[["y"]]}


def made(name: str, epsilon: float) -> Any:
    """Return an estimator with a budget."""
    kind, parameters, mechanism = MECHANISMS[name]
    if mechanism is RandomizedResponse:
        return kind(label_privacy=mechanism(epsilon), **parameters)
    return kind(privacy=mechanism(epsilon=epsilon, **_BUDGET), **parameters)


def fitted(estimator: Any, inside: bool) -> Any:
    """Fit with the record or without it; whether a record is like the first ones is its label.

    Where labels alone are private, the record is there in any case and its label is another one.
    """
    privacy = getattr(estimator, "privacy", None)
    relation = NeighbouringRelation.REPLACE_ONE if privacy is None else privacy.relation
    own = tables(relation, inside or privacy is None)
    if not hasattr(estimator, "classes"):
        return estimator.fit(own)
    labels = np.array(own["a"]["x"] == LEVELS[0])
    if privacy is None:
        labels[-1] = inside
    return estimator.fit(own, labels)


def numbers_of(synth: Any) -> dict[str, float]:
    """Save a model, and read all numbers of its files, by where they are."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        synth.save(Path(folder) / "model")
        for file in Path(folder).rglob("*"):
            content: Any = {}
            if file.suffix == ".json":
                content = json.loads(file.read_text(encoding="utf-8"))
            elif file.suffix == ".safetensors":
                content = {name: own.ravel().tolist() for name, own in load_file(file).items()}
            found |= _numbers(str(file.relative_to(folder)), content)
    return found


def _numbers(place: str, content: Any) -> dict[str, float]:
    if isinstance(content, dict | list):
        inner = content.items() if isinstance(content, dict) else enumerate(content)
        found = (_numbers(f"{place}/{key}", value) for key, value in inner)
        return {name: value for own in found for name, value in own.items()}
    finite = isinstance(content, int | float) and math.isfinite(content)
    return {place: float(content)} if finite else {}


_NO_VARIANCE, _BY_ITSELF = 1e-12, 1e9


class Direction(Adversary):
    """Scores by a weighted sum of all numbers.

    Parameters
    ----------
    change : float array, shape (number,), optional
        By which the record moves them. Default: learned.
    """

    boundary = 0.0

    def __init__(self, change: Floats | None = None) -> None:
        self.change = change
        self.name = "learned direction" if change is None else "known direction"

    def fit(self, features: Floats, is_member: Booleans) -> Self:
        """Learn variances, and the direction if it is not known; score by halves."""
        self.training_scores = np.empty(len(features))
        half = np.arange(len(features)) % 2 == 0
        for own, other in ((half, ~half), (~half, half)):
            self._learn(features[other], is_member[other])
            self.training_scores[own] = self.score(features[own])
        self._learn(features, is_member)
        return self

    def _learn(self, features: Floats, is_member: Booleans) -> None:
        inside, outside = features[is_member], features[~is_member]
        variance = (inside.var(0) + outside.var(0)) / 2.0
        differ = inside.mean(0) - outside.mean(0)
        moved = differ if self.change is None else self.change
        varies = variance > _NO_VARIANCE
        # A number that is always one with the record, and another without, says it by itself.
        alone = np.where(np.abs(differ) > 1e-9, _BY_ITSELF * np.sign(differ), 0.0)
        weights = self._weights = np.where(varies, moved / np.where(varies, variance, 1.0), alone)
        middle = (inside.mean(0) + outside.mean(0)) / 2.0
        self._shift = float(middle @ weights)
        self._scale = float(np.std(features @ weights)) or 1.0

    def score(self, features: Floats) -> Floats:
        """Return the sum, 0 half way between the two tables."""
        found: Floats = (features @ self._weights - self._shift) / self._scale
        return found


def distinguish(
    name: str, n_models: int = N_MODELS, epsilon: float = EPSILON
) -> tuple[AuditReport, PrivacyLedger]:
    """Fit so many models of either table, and tell them apart."""
    synth = made(name, epsilon)
    with (
        mock.patch.object(
            releases, "discrete_gaussian", lambda shape, *_, **__: np.zeros(shape, np.int64)
        ),
        mock.patch.object(RandomizedResponse, "transform", lambda _, labels, *rest: labels),
    ):
        seeded = clone(synth).set_params(random_state=0)
        with_it, without = (numbers_of(fitted(seeded, inside)) for inside in (True, False))
    places = sorted(with_it.keys() & without.keys())
    change = np.array([with_it[place] - without[place] for place in places])

    def release(inside: bool) -> Floats:
        found = numbers_of(fitted(synth, inside))
        return np.array([found.get(place, 0.0) for place in places])

    ledger = fitted(synth, True).privacy_ledger_
    assert ledger is not None
    report = audit_mechanism(
        release,
        n_runs=n_models,
        adversaries=[Direction(change), Direction()],
        claim=Claim(ledger.epsilon(), ledger.delta, ledger.relation),
    )
    return report, ledger


def measure(name: str, n_models: int) -> _results.Row:
    """Return what is printed and what was measured."""
    report, ledger = distinguish(name, n_models)
    attack = report.targets[0].strongest
    return {
        "mechanism": name,
        "relation": str(ledger.relation),
        "epsilon": ledger.epsilon(),
        "delta": ledger.delta,
        "bound": attack.epsilon,
        "most": report.epsilon_ceiling,
        "auc": [attack.auc.value, attack.auc.low, attack.auc.high],
        "attack": attack.adversary,
        "models": n_models,
        "seconds": report.seconds,
    }


def show() -> None:
    """Print one line per mechanism."""
    print(f"{'':<26}{'epsilon':>9}{'bound':>8}{'most':>7}{'models':>8}  AUC                  by")
    for row in _results.rows("distinguishing"):
        value, low, high = row["auc"]
        auc = f"{value:.2f} ({low:.2f} to {high:.2f})"
        print(
            f"{row['mechanism']:<26}{row['epsilon']:>9.2f}{row['bound']:>8.2f}{row['most']:>7.2f}"
            f"{row['models']:>8}  {auc:<20} {row['attack']}"
        )


def main() -> None:
    """Measure or show."""
    parser = _commands.parser(__doc__, "run", "show", mechanisms=MECHANISMS)
    parser.add_argument("--models", type=int, default=N_MODELS, help="of either table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in arguments.mechanisms if arguments.action == "run" else ():
        if not _results.rows("distinguishing", mechanism=name):
            _results.put("distinguishing", measure(name, arguments.models))
    show()


if __name__ == "__main__":
    main()
