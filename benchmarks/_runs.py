"""Train and judge one method on one table with several seeds; what the table scripts share."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import sklearn
import torch
from sklearn.ensemble import RandomForestClassifier

import vflsynth
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
from vflsynth.synthesizers import GANSynthesizer

RESULTS = Path(__file__).parent / "results"

SYNTHESIZERS: dict[str, type[GANSynthesizer]] = {
    "wgan-gp": WGANGPSynthesizer,
    "vertigan": VertiGANSynthesizer,
    "vflgan-base": VFLGANSynthesizer,
    "vflgan": VFLGANSynthesizer,
}

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

SETTINGS = ("paper", "ours", "default")
"""The reference code's; the same with `OURS`; what each class does when it is given nothing."""

OURS = {"batch_norm_eps": 1e-5, "generator_average": 0.999}
"""What we change of the paper's settings, keeping sizes and schedule."""


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


def parameters(data: str, method: str, settings: str) -> dict[str, Any]:
    """Return a method's parameters for a table; `settings` is "paper", "ours" or "default"."""
    if settings == "default":  # encoded as in the presets, so that distances compare
        plain = {"transformer": TableTransformer(rare_threshold=0.0, spike_share=None)}
        return plain | ({"private_heads": False} if method == "vflgan-base" else {})
    base, changes = OWN_SIZES.get(data, (data, {}))
    return preset(base, method) | changes | (OURS if settings == "ours" else {})


def make(
    folder: Path,
    table: BenchmarkTable,
    method: str,
    settings: str,
    seeds: list[int],
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Make one result unless it is there."""
    path = folder / f"{table.name}.{method}.{settings}.json"
    if path.exists():
        return
    result = run(table, method, settings, seeds, kinds)
    write(path, result)
    distance = np.mean(result["frechet_distance"]["best"])
    print(f"{path.stem}: FD {distance:.3f}, {result['seconds']['training']} s", flush=True)


def run(
    table: BenchmarkTable,
    method: str,
    settings: str,
    seeds: list[int],
    kinds: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Train all seeds at once, sample a table of the real size from each, and judge it.

    Parameters
    ----------
    table : BenchmarkTable
    method, settings : str
        See `parameters`.
    seeds : list of int
    kinds : mapping of str to str, optional
        How columns are encoded. Default: the table's categorical columns one-hot.

    Returns
    -------
    dict
        JSON-safe.
    """
    chosen = parameters(table.name, method, settings)
    kinds = dict.fromkeys(table.categorical, "categorical") if kinds is None else kinds
    synthesizer = SYNTHESIZERS[method](**chosen, column_kinds=kinds, device="cpu", verbose=0)
    started = time.perf_counter()
    models = synthesizer.fit_replicas(table.party_frames, random_states=seeds)
    seconds = time.perf_counter() - started
    curves = np.array([model.history_["frechet_distance"].tolist() for model in models])
    real = table.joined()
    judged = [
        judge(table, real, model.sample(len(real), random_state=seed))
        for seed, model in zip(seeds, models, strict=True)
    ]
    return {
        "data": table.name,
        "method": method,
        "settings": settings,
        "seeds": seeds,
        "parameters": {
            name: value for name, value in models[0].settings_.items() if value is not None
        },
        "column_kinds": dict(kinds),
        "seconds": {"training": round(seconds, 1)},
        "frechet_distance": {
            "best": curves.min(1).round(4).tolist(),
            "last": curves[:, -1].round(4).tolist(),
            "curves": curves.round(4).tolist(),
        },
        **{name: [entry[name] for entry in judged] for name in judged[0]},
        **environment(),
    }


def make_yardstick(folder: Path, table: BenchmarkTable, method: str, seeds: list[int]) -> None:
    """Make the result of a method that is not trained, unless it is there.

    Its Fréchet distance is that of the sampled table, once decoded and encoded again.
    """
    path = folder / f"{table.name}.{method}.json"
    if path.exists():
        return
    kinds = dict.fromkeys(table.categorical, "categorical")
    transformer = TableTransformer(rare_threshold=0.0, spike_share=None)  # as in the presets
    started = time.perf_counter()
    model = YARDSTICKS[method](column_kinds=kinds, transformer=transformer).fit(table.party_frames)
    seconds = time.perf_counter() - started
    real = table.joined()
    samples = [model.sample(len(real), random_state=seed) for seed in seeds]
    distances = [
        round(float(frechet_distance(real, sample, categorical=table.categorical)), 4)
        for sample in samples
    ]
    judged = [judge(table, real, sample) for sample in samples]
    result = {
        "data": table.name,
        "method": method,
        "settings": None,
        "seeds": seeds,
        "column_kinds": kinds,
        "seconds": {"training": round(seconds, 1)},
        "frechet_distance": {"best": distances, "last": distances},
        **{name: [entry[name] for entry in judged] for name in judged[0]},
        **environment(),
    }
    write(path, result)
    print(f"{path.stem}: FD {np.mean(distances):.3f}", flush=True)


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


def environment() -> dict[str, Any]:
    """Versions and commit, for the record."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    return {
        "commit": git("rev-parse", "--short", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain", "../vflsynth")),
        "versions": {
            "vflsynth": vflsynth.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "pandas": pd.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "threads": torch.get_num_threads(),
    }


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result, complete or not at all; long lists stay on one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()]
    side = path.with_suffix(".tmp")
    side.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(side, path)


def verdict(met: bool) -> str:
    """Say whether an aim that was set before measuring holds; a miss is printed as a miss."""
    return "met" if met else "MISSED"


def read_all(folder: Path) -> list[dict[str, Any]]:
    """Read all results of a folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
