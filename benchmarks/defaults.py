"""Default settings on five public tables, beside TVAE and CTGAN from PyPI.

Nothing is tuned per table: ``VFLGANSynthesizer(column_kinds=...)`` only says which integer codes
are categories, which TVAE and CTGAN are told too. The peers see the joined table; VFLGAN does not.

    python -m benchmarks.external.run          # TVAE and CTGAN, in an environment of their own
    python -m benchmarks.defaults              # ours, and the comparison

Results go to benchmarks/results/defaults/, one JSON per table.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import _runs
from benchmarks._data import BenchmarkTable, load_table
from vflsynth import VFLGANSynthesizer
from vflsynth.evaluation import frechet_distance

TABLES = ("red-wine", "california-housing", "spambase", "credit-default", "adult")
EXTERNAL = Path(__file__).parent / "cache" / "external"
RESULTS = _runs.RESULTS / "defaults"
SEEDS = {"red-wine": [0, 1, 2]}
"""Of ours, as of the peers; the other tables take one."""


def scores(table: BenchmarkTable, synthetic: pd.DataFrame) -> dict[str, Any]:
    """Fréchet distance, total difference and association errors of one synthetic table."""
    real, synthetic = table.joined(), synthetic[table.joined().columns]
    distance = frechet_distance(real, synthetic, categorical=table.categorical)
    return {"frechet_distance": round(float(distance), 4), **_runs.judge(table, real, synthetic)}


def ours(table: BenchmarkTable, seeds: list[int]) -> list[dict[str, Any]]:
    """Fit with default settings, once per seed."""
    rows = []
    for seed in seeds:
        synth = VFLGANSynthesizer(
            column_kinds=dict.fromkeys(table.categorical, "categorical"),
            random_state=seed,
            verbose=0,
        )
        started = time.perf_counter()
        synth.fit(table.party_frames)
        seconds = time.perf_counter() - started
        synthetic = synth.sample(len(next(iter(table.party_frames.values()))))
        history = synth.history_["frechet_distance"]
        rows.append(
            {
                "seed": seed,
                **scores(table, synthetic),
                "encoded_frechet_distance_best": round(float(history.min()), 4),
                "encoded_frechet_distance_last": round(float(history.iloc[-1]), 4),
                "fit_seconds": round(seconds, 1),
            }
        )
        print(table.name, rows[-1], flush=True)
    return rows


def peers(table: BenchmarkTable) -> dict[str, list[dict[str, Any]]]:
    """Score whatever tables `benchmarks.external` has left."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(EXTERNAL.glob(f"{table.name}-*-seed*.parquet")):
        method, seed = file.stem.removeprefix(f"{table.name}-").rsplit("-seed", 1)
        record = json.loads(file.with_suffix(".json").read_text())
        row = {
            "seed": int(seed),
            **scores(table, pd.read_parquet(file)),
            "fit_seconds": round(record["fit_seconds"], 1),
            "epochs": record["epochs"],
        }
        found.setdefault(method, []).append(row)
        print(table.name, method, row, flush=True)
    return found


def main() -> None:
    """Run and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument(
        "--seeds", nargs="+", type=int, help="default: three for red wine, one for the others"
    )
    parser.add_argument("--peers-only", action="store_true", help="keep our results, add theirs")
    args = parser.parse_args()
    for name in args.tables:
        table = load_table(name)
        file = RESULTS / f"{name}.json"
        before = json.loads(file.read_text()) if file.exists() else {}
        rows = (
            before["vflgan"] if args.peers_only else ours(table, args.seeds or SEEDS.get(name, [0]))
        )
        scored = {method: before[method] for method in ("tvae", "ctgan") if method in before}
        methods = {"vflgan": rows, **scored, **peers(table)}
        made = (
            {key: before[key] for key in _runs.environment()}
            if args.peers_only
            else _runs.environment()
        )
        _runs.write(file, {"table": name, **methods, **made})
        summary = pd.DataFrame(
            {
                method: {
                    key: np.mean([row[key] for row in rows])
                    for key in ("frechet_distance", "total_difference", "fit_seconds")
                }
                for method, rows in methods.items()
            }
        ).T
        print(name, summary.round(3).to_string(), sep="\n", flush=True)


if __name__ == "__main__":
    main()
