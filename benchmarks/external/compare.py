"""AIM's package and ``inference.py`` on the same noisy tables: seconds, and how much they differ.

Started by ``benchmarks/rival_inference.py``, in the environment of ``marginals.py``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from dpmm.models.base.matrix import Identity
from dpmm.models.base.mbi import Dataset, Domain, FactoredInference
from inference import TreeInference


def main() -> None:
    """Measure more and more pairs of columns; print a JSON object after each number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("real", type=Path, help="npz: codes (record, column), sizes (column,)")
    parser.add_argument("--pairs", type=int, nargs="+", required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--noise-std", type=float, required=True)
    args = parser.parse_args()

    content = np.load(args.real)
    columns = [f"c{position}" for position in range(content["codes"].shape[1])]
    domain = Domain(columns, [int(size) for size in content["sizes"]])
    data = Dataset(pd.DataFrame(content["codes"], columns=columns), domain)
    rng = np.random.default_rng(0)

    def measured(names: tuple[str, ...]) -> tuple:
        counts = data.project(names).datavector()
        noise = rng.normal(0.0, args.noise_std, counts.size)
        return Identity(counts.size), counts + noise, args.noise_std, names

    every = list(itertools.combinations(columns, 2))
    chosen = [measured((name,)) for name in columns]
    engines = [
        kind(domain, iters=args.iterations, warm_start=True)
        for kind in (FactoredInference, TreeInference)
    ]
    for n_pairs in range(1, max(args.pairs) + 1):
        chosen.append(measured(every[rng.integers(len(every))]))
        if n_pairs not in args.pairs:
            continue
        models, seconds = [], []
        for engine in engines:
            started = time.perf_counter()
            models.append(engine.estimate(list(chosen)))
            seconds.append(time.perf_counter() - started)
        theirs, ours = models
        found = {
            "pairs": n_pairs,
            "iterations": args.iterations,
            "mebibytes": theirs.size * 8 / 2**20,
            "seconds, theirs": seconds[0],
            "seconds, ours": seconds[1],
            "records of the worst cell": max(
                float(np.abs(theirs.project(pair).values - ours.project(pair).values).max())
                for pair in every
            ),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
