"""Train and judge one method on one table with several seeds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from sklearn.ensemble import RandomForestClassifier

from benchmarks import _results
from benchmarks._data import BenchmarkTable
from vflsynth import (
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    TableTransformer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
    preset,
)
from vflsynth.evaluation import association_errors, frechet_distance, utility
from vflsynth.methods.gan.estimator import GANSynthesizer
from vflsynth.run.loop import EpochState

SYNTHESIZERS: dict[str, type[GANSynthesizer]] = {
    "wgan-gp": WGANGPSynthesizer,
    "vertigan": VertiGANSynthesizer,
    "vflgan-base": VFLGANSynthesizer,
    "vflgan": VFLGANSynthesizer,
}

COLORS = {"wgan-gp": "0.3", "vertigan": "tab:red", "vflgan-base": "tab:cyan", "vflgan": "tab:blue"}

YARDSTICKS: dict[str, type[IndependentSynthesizer]] = {
    "independent": IndependentSynthesizer,
    "gaussian-copula": GaussianCopulaSynthesizer,
}
"""Methods without training, hence without settings."""

# The paper has no code for these two tables and its text gives no sizes: these are ours.
OWN_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "south-german-credit": (
        "adult",
        {
            "gumbel_temperature": 0.2,
            "gradient_penalty_weight": 10.0,
            "batch_size": 16,
            "epochs": 250,
        },
    ),
    "hcv": ("red-wine", {"bias": True, "epochs": 175}),
}

SETTINGS = ("paper", "ours", "end_to_end", "default")
"""The reference code's; the same with `OURS`; and with `END_TO_END`; what each class does alone."""

OURS = {"batch_norm_eps": 1e-5, "generator_average": 0.999}
"""What we change of the paper's settings, keeping sizes and schedule."""

END_TO_END = {**OURS, "gradient_penalty_weight": 10.0}
"""With one weight for all methods, and for VFLGAN the penalty that bounds the shared critic."""


class RememberingForest(RandomForestClassifier):
    """The paper's forest, which in one process fits the same rows only once.

    Three quarters of the forests of a utility score are of real rows, the same for every seed and
    method.
    """

    _fitted: ClassVar[dict[bytes, RandomForestClassifier]] = {}

    def fit(self, features: npt.NDArray[Any], targets: npt.NDArray[Any]) -> RandomForestClassifier:
        """Fit, or return what was fitted to equal arrays before."""
        rows = np.ascontiguousarray(features).tobytes() + np.ascontiguousarray(targets).tobytes()
        key = hashlib.sha256(repr(self.get_params()).encode() + rows).digest()
        if key not in self._fitted:
            self._fitted[key] = super().fit(features, targets)
        return self._fitted[key]


PAPER_FOREST = RememberingForest(n_estimators=100, max_depth=3, max_features=1.0, random_state=0)

# A forest on all of Adult takes minutes, a hundred times; these rows suffice for two digits.
MOST_UTILITY_ROWS = 10_000


def plain_transformer() -> TableTransformer:
    """Make a transformer that encodes as the presets do, so that distances compare."""
    return TableTransformer(
        continuous="standard",
        rare_threshold=0.0,
        spike_share=None,
        rare_records=0,
        extreme_records=0,
    )


def parameters(data: str, method: str, settings: str) -> dict[str, Any]:
    """Return a method's parameters for a table; `settings` is one of `SETTINGS`."""
    if settings == "default":
        plain: dict[str, Any] = {
            "transformer": plain_transformer(),
            "calibrate_marginals": False,
            "model_selection": "best",  # for the distances of training
        }
        return plain | ({"private_heads": False} if method == "vflgan-base" else {})
    base, changes = OWN_SIZES.get(data, (data, {}))
    chosen = preset(base, method) | {"evaluate_every": 1} | changes
    if settings == "end_to_end":
        own = {"gradient_penalty": "end_to_end"} if method.startswith("vflgan") else {}
        return chosen | END_TO_END | own
    return chosen | (OURS if settings == "ours" else {})


def make(
    results: str,
    table: BenchmarkTable,
    method: str,
    settings: str | None,
    seeds: list[int],
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Measure the seeds that a table of results lacks."""
    wanted = _results.missing(results, seeds, data=table.name, method=method, settings=settings)
    if not wanted:
        return
    rows = run(table, method, settings, wanted, kinds)
    _results.put(results, *rows)
    distance = np.mean([row["frechet_distance_best"] for row in rows])
    seconds = rows[0]["training_seconds"]
    print(f"{table.name} {method} {settings}: FD {distance:.3f}, {seconds} s", flush=True)


def run(
    table: BenchmarkTable,
    method: str,
    settings: str | None,
    seeds: list[int],
    kinds: Mapping[str, str] | None = None,
) -> list[_results.Row]:
    """Train all seeds at once, sample a table of the real size from each, and judge it.

    One of `YARDSTICKS` has no settings; it is fitted once, and its Fréchet distance is that of the
    sampled table, once decoded and encoded again. `kinds` say how columns are encoded, by default
    categorical ones one-hot. ``training_seconds`` are those of all seeds together.
    """
    kinds = dict.fromkeys(table.categorical, "categorical") if kinds is None else dict(kinds)
    started = time.perf_counter()
    if settings is None:
        yardstick = YARDSTICKS[method](column_kinds=kinds, transformer=plain_transformer())
        models: list[Any] = [yardstick.fit(table.party_frames)] * len(seeds)
    else:
        synthesizer = SYNTHESIZERS[method](
            **parameters(table.name, method, settings),
            column_kinds=kinds,
            device="cpu",
            verbose=0,
        )
        models = list(synthesizer.fit_replicas(table.party_frames, random_states=seeds))
    seconds = round(time.perf_counter() - started, 1)
    real = table.joined()
    rows = []
    for seed, model in zip(seeds, models, strict=True):
        sample = model.sample(len(real), random_state=seed)
        row: _results.Row = {"data": table.name, "method": method, "settings": settings}
        row["seed"] = seed
        if settings is None:
            curve = [distance(table, real, sample)]
        else:
            curve = model.history_["frechet_distance"].dropna().round(4).tolist()
            row |= {"parameters": known(model), "frechet_distance_curve": curve}
        row |= {
            "column_kinds": kinds,
            "training_seconds": seconds,
            "frechet_distance_best": min(curve),
            "frechet_distance_last": curve[-1],
        }
        rows.append(row | judge(table, real, sample))
    return rows


class EpochClock:
    """A callback that takes the processor time at the end of every epoch."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_epoch_end(self, state: EpochState) -> None:
        """Look at the clock."""
        self.ends.append(time.process_time())


def draw_curves(
    panel: Axes, curves: npt.NDArray[Any], color: str, label: str, *, every: int = 1
) -> None:
    """Draw the mean over seeds, and the range, of what was measured every few epochs."""
    at = np.arange(1, curves.shape[1] + 1) * every
    panel.fill_between(at, curves.min(0), curves.max(0), color=color, alpha=0.2, linewidth=0)
    panel.plot(at, curves.mean(0), color=color, linewidth=1, label=label)


def known(model: GANSynthesizer) -> dict[str, Any]:
    """Return the settings that a fitted model had, those that it did not need left out."""
    return {name: value for name, value in model.settings_.items() if value is not None}


def distance(table: BenchmarkTable, real: pd.DataFrame, synthetic: pd.DataFrame) -> float:
    """Return the Fréchet distance between two tables, with categories one-hot."""
    return round(float(frechet_distance(real, synthetic, categorical=table.categorical)), 4)


def scores(table: BenchmarkTable, synthetic: pd.DataFrame) -> dict[str, Any]:
    """Return the Fréchet distance to the real table, and what `judge` says."""
    real = table.joined()
    own = synthetic[real.columns]
    return {"frechet_distance": distance(table, real, own), **judge(table, real, own)}


def judge(table: BenchmarkTable, real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, Any]:
    """Judge by utility under the paper's protocol and by association within and across parties."""
    scores = utility(
        real,
        synthetic,
        table.target,
        protocol="paper",
        model=PAPER_FOREST if table.task == "classification" else None,
        task=table.task,
        categorical=table.categorical,
        max_rows=MOST_UTILITY_ROWS,
    )
    errors = association_errors(
        real, synthetic, parties=table.party_columns, categorical=table.categorical
    )
    return {
        "total_difference": round(float(scores["total_difference"]), 4),
        "association_error_within": round(float(errors["association_error_within"]), 4),
        "association_error_across": round(float(errors["association_error_across"]), 4),
        "utility": {
            f"{row.setting} {row.score}": round(float(row.value), 4)
            for row in scores["total_difference"].parts.itertuples()
        },
    }
