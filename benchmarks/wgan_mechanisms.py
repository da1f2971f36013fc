"""Mechanisms for a table that may be joined, compared on WGAN-GP (VFLGAN §5.2.1, on tables).

    python -m benchmarks.wgan_mechanisms run --data red-wine --epsilon 10 --seeds 0 1 2
    python -m benchmarks.wgan_mechanisms show

Five mechanisms, one architecture, public schemas of ``benchmarks/_schemas.py``, nothing tuned per
table or mechanism but for what ``benchmarks/dp.py`` sets for DP-SGD. Every seed is a release of its
own. ``first_layer`` is the VFLGAN paper's: its epsilon is not one of the synthetic table.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import torch

from benchmarks import _runs
from benchmarks._data import BenchmarkTable, load_table
from benchmarks._private import DPSGD, DPSGD_MODEL
from benchmarks._schemas import DELTAS, N_RECORDS, SCHEMAS
from vflsynth import WGANGPSynthesizer
from vflsynth.evaluation import frechet_distance
from vflsynth.exceptions import NoPrivacyWarning
from vflsynth.privacy import GaussianPrivacy

FOLDER = _runs.RESULTS / "wgan_mechanisms"

ONE_AT_A_TIME = ("kernel_mean_embedding", "gs_wgan")
MECHANISMS = ("kernel_mean_embedding", "dpsgd", "dpsgd_gan", "gs_wgan", "first_layer")


def make_model(table: BenchmarkTable, mechanism: str, epsilon: float) -> WGANGPSynthesizer:
    """Make the synthesizer of one cell."""
    options: dict[str, Any] = {"mechanism": mechanism, "delta": DELTAS[table.name]}
    model: dict[str, Any] = {}
    if mechanism == "first_layer":
        model["column_kinds"] = dict.fromkeys(table.categorical, "categorical")
    else:
        options["public_schema"] = SCHEMAS[table.name]
    if mechanism == "dpsgd":
        options |= {"n_records": N_RECORDS[table.name]}
    if mechanism in ("dpsgd", "dpsgd_gan"):
        options |= DPSGD
        model |= DPSGD_MODEL
    privacy = GaussianPrivacy(epsilon=epsilon, **options)
    return WGANGPSynthesizer(privacy=privacy, device="cpu", verbose=0, **model)


def run(data: str, mechanism: str, epsilon: float, seeds: list[int]) -> None:
    """Fit and judge the seeds of one cell; those that are there are not run again."""
    path = FOLDER / f"{data}.{mechanism.replace('_', '-')}.epsilon-{epsilon:g}.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"seeds": []}
    missing = [seed for seed in seeds if seed not in result["seeds"]]
    if not missing:
        return
    table = load_table(data)
    real, entries = table.joined(), []
    for some in [[seed] for seed in missing] if mechanism in ONE_AT_A_TIME else [missing]:
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoPrivacyWarning)
            models = make_model(table, mechanism, epsilon).fit_replicas(
                table.party_frames, random_states=some
            )
        seconds = (time.perf_counter() - started) / len(some)
        for seed, model in zip(some, models, strict=True):
            assert model.privacy_ledger_ is not None
            sample = model.sample(len(real), random_state=seed)
            distance = float(frechet_distance(real, sample, categorical=table.categorical))
            judged = _runs.judge(table, real, sample)
            entries.append(
                {"frechet_distance": round(distance, 4), **judged, "fit_seconds": round(seconds, 1)}
            )
            total = judged["total_difference"]
            print(f"{path.stem} seed {seed}: FD {distance:.3f}, TD {total}", flush=True)
    done = {name: [*result.get(name, []), *(e[name] for e in entries)] for name in entries[0]}
    result = {
        "data": data,
        "mechanism": mechanism,
        "epsilon": epsilon,
        "epsilon_spent": round(model.privacy_ledger_.epsilon(), 6),
        "delta": DELTAS[data],
        "seeds": [*result["seeds"], *missing],
        "parameters": model.settings_,
        **done,
        **_runs.environment(),
    }
    _runs.write(path, result)


def show() -> None:
    """Print all results."""

    def order(result: dict[str, Any]) -> tuple[str, float, float]:
        return result["data"], -result["epsilon"], float(np.mean(result["frechet_distance"]))

    for result in sorted(_runs.read_all(FOLDER), key=order):
        cells = [_cell(result[name]) for name in ("frechet_distance", "total_difference")]
        print(
            f"{result['data']:20}{result['mechanism']:24}{result['epsilon']:6g}"
            f"{'FD ' + cells[0]:>22}{'TD ' + cells[1]:>18}{len(result['seeds']):4} seeds"
            + _spent(result)
        )


def _spent(result: dict[str, Any]) -> str:
    """Say what was spent where that is far below what was asked for, as with the paper's bound."""
    spent = float(result["epsilon_spent"])
    return f"   epsilon spent {spent:.3g}" if spent < 0.95 * result["epsilon"] else ""


def _cell(values: list[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.2g}{spread}"


def main() -> None:
    """Run the cells that were asked for, or show all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("--data", nargs="+", choices=SCHEMAS, default=["red-wine"])
    parser.add_argument("--mechanism", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    if arguments.action == "show":
        show()
        return
    torch.set_num_threads(1)
    for mechanism in arguments.mechanism:
        for epsilon in arguments.epsilon:
            for data in arguments.data:
                run(data, mechanism, epsilon, arguments.seeds)


if __name__ == "__main__":
    main()
