"""Default settings on five public tables, beside TVAE and CTGAN from PyPI.

Nothing is tuned per table: ``VFLGANSynthesizer(column_kinds=...)`` only says which integer codes
are categories, which TVAE and CTGAN are told too. TVAE and CTGAN see the joined table; VFLGAN does
not.

    python -m benchmarks.external.run          # TVAE and CTGAN, in an environment of their own
    python -m benchmarks.defaults              # ours, and scores of what TVAE and CTGAN left

What is there is not measured again. Rows of ours also have the mean error of a column's
distribution ("shape_error": one minus Shape) and the AUC of boosted trees with 8,000 rows of each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pandas as pd

from benchmarks import _commands, _results
from benchmarks._data import BenchmarkTable, load_table
from benchmarks._runs import scores
from benchmarks.external.run import CACHE
from vflsynth import VFLGANSynthesizer
from vflsynth.evaluation import detection_auc, shape

TABLES = ("red-wine", "california-housing", "spambase", "credit-default", "adult")
PEERS = ("tvae", "ctgan")
SEEDS = {"red-wine": [0, 1, 2]}
"""Of ours, as of the others; the other tables take one."""


def ours(table: BenchmarkTable, seeds: list[int]) -> Iterator[_results.Row]:
    """Fit with default settings, once per seed that is missing."""
    for seed in _results.missing("defaults", seeds, data=table.name, method="vflgan"):
        synth = VFLGANSynthesizer(
            column_kinds=dict.fromkeys(table.categorical, "categorical"),
            random_state=seed,
            verbose=0,
        )
        started = time.perf_counter()
        synth.fit(table.party_frames)
        seconds = time.perf_counter() - started
        synthetic = synth.sample(len(next(iter(table.party_frames.values()))))
        compared = (table.joined(), synthetic[table.joined().columns])
        told = {"categorical": table.categorical, "random_state": seed}
        yield {
            "data": table.name,
            "method": "vflgan",
            "seed": seed,
            **scores(table, synthetic),
            "shape_error": 1.0 - float(shape(*compared, **told)),
            "detection_auc": float(detection_auc(*compared, max_rows=8000, **told)),
            "fit_seconds": round(seconds, 1),
        }


def peers(table: BenchmarkTable) -> Iterator[_results.Row]:
    """Score the tables that `benchmarks.external` has left and that have no scores yet."""
    for method in PEERS:
        for file in sorted(CACHE.glob(f"{table.name}-{method}-*.parquet")):
            seed = int(file.stem.rpartition("-seed")[2])
            key = {"data": table.name, "method": method, "seed": seed}
            if not _results.rows("defaults", **key):
                record = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
                yield {
                    **key,
                    **scores(table, pd.read_parquet(file)),
                    "fit_seconds": round(record["fit_seconds"], 1),
                    "epochs": record["epochs"],
                }


def main() -> None:
    """Measure what is missing, and print the comparison."""
    parser = _commands.parser(__doc__, data=TABLES)
    parser.add_argument(
        "--seeds", nargs="+", type=int, help="default: three for red wine, one for the others"
    )
    parser.add_argument("--peers-only", action="store_true", help="fit nothing, score theirs")
    arguments = parser.parse_args()
    for name in arguments.data:
        table = load_table(name)
        if not arguments.peers_only:
            for row in ours(table, arguments.seeds or SEEDS.get(name, [0])):
                _results.put("defaults", row)
        for row in peers(table):
            _results.put("defaults", row)
    measures = ["frechet_distance", "total_difference", "fit_seconds"]
    found = pd.DataFrame(_results.rows("defaults"))
    print(found.groupby(["data", "method"])[measures].mean().round(3))


if __name__ == "__main__":
    main()
