"""What a saved model tells of one record: a measured lower bound beside the printed epsilon.

    python -m benchmarks.distinguishing run --mechanisms "VFLGAN, DPSGD" "DPLT, LatentTree"
    python -m benchmarks.distinguishing show

Two parties of one column of three categories each have 24 records of two of them, and one more of
the third at both, or in its place one that is as others are. 400 models of either table (of GS-
WGAN 80) are fitted, with noise of their own, and saved. The attacker has both tables and all
numbers of a saved model, and knows where the record moves them: by the difference of two models
without noise (the known direction), and by the means of models that the attacker fits. Either is
divided by the variances among those. Half of the models teach direction and threshold, the others
are counted. The bound is that of Clopper and Pearson, with 95 % confidence, of the direction that
was better in teaching; "most" is the bound if that were always right. It can show that an epsilon
is too small, never that it is right.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from unittest import mock

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from safetensors.numpy import load_file

from benchmarks import _commands, _results
from vflsynth import (
    DPSGD,
    DPSGDGAN,
    GSWGAN,
    AutoregressiveSynthesizer,
    DPLTSynthesizer,
    LatentTree,
    MeanEmbedding,
    MixtureSynthesizer,
    PairwiseTables,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.adversary import Adversary
from vflsynth.audit import AuditReport, Claim, audit_mechanism
from vflsynth.columns import PublicSchema
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.privacy import NeighbouringRelation, releases

EPSILON, DELTA, N_RECORDS, N_MODELS = 4.0, 1e-3, 24, 400
FEWER = {"WGAN-GP, GSWGAN": 80}
LEVELS = ("a", "b", "c")

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Tables = dict[str, pd.DataFrame]

_BUDGET: dict[str, Any] = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "public_schema": PublicSchema(categories=dict.fromkeys("xy", LEVELS), dtypes="given"),
}
_SMALL: dict[str, Any] = {"epochs": 3, "batch_size": 8, "device": "cpu", "verbose": 0}
_GAN = _SMALL | {"latent_dim": 2, "generator_hidden": (4,)}
_STEPS = DPSGD(**_BUDGET, n_records=N_RECORDS)

MECHANISMS: dict[str, Callable[[], BaseSynthesizer]] = {
    "VFLGAN, MeanEmbedding": lambda: VFLGANSynthesizer(
        privacy=MeanEmbedding(**_BUDGET, n_features=50), **_GAN
    ),
    "VFLGAN, DPSGD": lambda: VFLGANSynthesizer(privacy=_STEPS, **_GAN),
    "VertiGAN, DPSGD": lambda: VertiGANSynthesizer(privacy=_STEPS, **_GAN),
    "autoregressive, DPSGD": lambda: AutoregressiveSynthesizer(
        protocol="one_message", privacy=_STEPS, hidden=4, n_features=8, **_SMALL
    ),
    "DPLT, LatentTree": lambda: DPLTSynthesizer(privacy=LatentTree(**_BUDGET)),
    "mixture, PairwiseTables": lambda: MixtureSynthesizer(
        n_components=4, privacy=PairwiseTables(**_BUDGET)
    ),
    "WGAN-GP, DPSGDGAN": lambda: WGANGPSynthesizer(privacy=DPSGDGAN(**_BUDGET), **_GAN),
    "WGAN-GP, GSWGAN": lambda: WGANGPSynthesizer(privacy=GSWGAN(**_BUDGET, n_shards=2), **_GAN),
}
"""Every mechanism that protects what is saved; `FirstLayer` says that it does not."""


def tables(relation: NeighbouringRelation, inside: bool) -> Tables:
    """Return both parties' columns, with the record that nobody resembles or without it."""
    rng = np.random.default_rng(0)
    values = rng.choice(LEVELS[:2], (N_RECORDS, 2))
    if inside or relation is NeighbouringRelation.REPLACE_ONE:
        values = np.vstack([values, [LEVELS[2] if inside else LEVELS[0]] * 2])
    table = pd.DataFrame(values, columns=["x", "y"], dtype=object)
    return {"a": table[["x"]], "b": table[["y"]]}


def numbers_of(synth: BaseSynthesizer) -> dict[str, float]:
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
        moved = inside.mean(0) - outside.mean(0) if self.change is None else self.change
        varies = variance > 1e-12
        weights = np.where(varies, moved / np.where(varies, variance, 1.0), 0.0)
        self._weights = weights
        middle = (inside.mean(0) + outside.mean(0)) / 2.0
        self._shift = float(middle @ weights)
        self._scale = float(np.std(features @ weights)) or 1.0

    def score(self, features: Floats) -> Floats:
        """Return the sum, 0 half way between the two tables."""
        found: Floats = (features @ self._weights - self._shift) / self._scale
        return found


def distinguish(name: str, n_models: int = N_MODELS) -> tuple[AuditReport, BaseSynthesizer]:
    """Fit so many models of either table, and tell them apart."""
    relation = MECHANISMS[name]().privacy.relation
    both = {inside: tables(relation, inside) for inside in (True, False)}
    fitted: list[BaseSynthesizer] = []

    def release(inside: bool) -> Floats:
        fitted[:] = [MECHANISMS[name]().fit(both[inside])]
        found = numbers_of(fitted[0])
        return np.array([found.get(place, 0.0) for place in places])

    with mock.patch.object(releases, "discrete_gaussian", _no_noise):
        synth = {inside: MECHANISMS[name]().set_params(random_state=0) for inside in both}
        with_it, without = (numbers_of(synth[inside].fit(both[inside])) for inside in both)
    places = sorted(with_it.keys() & without.keys())
    change = np.array([with_it[place] - without[place] for place in places])
    release(True)
    ledger = fitted[0].privacy_ledger_
    assert ledger is not None
    report = audit_mechanism(
        release,
        n_runs=n_models,
        adversaries=[Direction(change), Direction()],
        claim=Claim(ledger.epsilon(), ledger.delta, ledger.relation),
    )
    return report, fitted[0]


def _no_noise(shape: Any, sigma: int, **_: Any) -> npt.NDArray[np.int64]:
    return np.zeros(shape, np.int64)


def measure(name: str) -> _results.Row:
    """Return what is printed and what was measured."""
    report, synth = distinguish(name, FEWER.get(name, N_MODELS))
    attack = report.targets[0].strongest
    assert synth.privacy_ledger_ is not None
    return {
        "mechanism": name,
        "relation": str(synth.privacy_ledger_.relation),
        "epsilon": synth.privacy_ledger_.epsilon(),
        "delta": DELTA,
        "bound": attack.epsilon,
        "most": report.epsilon_ceiling,
        "auc": [attack.auc.value, attack.auc.low, attack.auc.high],
        "attack": attack.adversary,
        "models": report.n_models,
        "seconds": report.seconds,
    }


def show() -> None:
    """Print one line per mechanism."""
    print(f"{'':<26}{'epsilon':>9}{'bound':>8}{'most':>7}  AUC                  by")
    for row in _results.rows("distinguishing"):
        value, low, high = row["auc"]
        auc = f"{value:.2f} ({low:.2f} to {high:.2f})"
        print(
            f"{row['mechanism']:<26}{row['epsilon']:>9.2f}{row['bound']:>8.2f}{row['most']:>7.2f}"
            f"  {auc:<20} {row['attack']}"
        )


def main() -> None:
    """Measure or show."""
    arguments = _commands.parser(__doc__, "run", "show", mechanisms=MECHANISMS).parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in arguments.mechanisms if arguments.action == "run" else ():
        if not _results.rows("distinguishing", mechanism=name):
            _results.put("distinguishing", measure(name))
    show()


if __name__ == "__main__":
    main()
