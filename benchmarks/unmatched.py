"""What records that one party alone has are worth to the split autoregressive synthesizer.

1,000 records are common to A and B, and each has 10,000 others, of different people. These are of
the same population ("same"), of another one ("shifted": weighted nine to one in favour of those
above the median of the party's first numeric column), or nothing relates their columns, each of
which is shuffled by itself ("scrambled": the worst that may lie there). With "none" there are no
others. Scores are of synthetic rows beside 8,000 more rows of the common population, which nobody
learned from; "nearer" is the share of synthetic rows nearer to the common rows than to those.

    python -m benchmarks.unmatched --data adult --others none same --seeds 0 1
    python -m benchmarks.unmatched --show
"""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pandas as pd

from benchmarks import _commands, _results
from benchmarks._data import BenchmarkTable
from benchmarks.ladder import predictive, split, study, trends
from vflsynth import AutoregressiveSynthesizer
from vflsynth.evaluation import detection_score, proximity, shape

N_COMMON, N_OTHERS, N_TESTED = 1_000, 10_000, 8_000
DATA = ("adult", "credit-default")
OTHERS = ("none", "same", "shifted", "scrambled")
COLUMNS = {
    "Shape": "shape",
    "Trend": "trend",
    "within": "trend_within",
    "across": "trend_across",
    "trees": "detection",
    "TSTR": "tstr",
    "nearer": "closer_to_training_share",
    "epochs": "epochs",
    "cpu s": "fit_cpu_seconds",
}
_IN_FAVOUR = 9.0


def parties(
    joined: pd.DataFrame, table: BenchmarkTable, others: str, seed: int
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame, pd.DataFrame]:
    """Return both parties' tables, the common rows, and rows to compare with."""
    rng = np.random.default_rng([20_262, seed])
    common, tested, rest = np.split(rng.permutation(len(joined)), [N_COMMON, N_COMMON + N_TESTED])
    keys = [f"common {i:04}" for i in range(N_COMMON)]
    frames = {}
    for party, columns in table.party_columns.items():
        own = joined[list(columns)]
        frames[party] = own.iloc[common].assign(key=keys)
        if others == "none":
            continue
        weights = np.ones(len(rest))
        if others == "shifted":
            numbers = own.select_dtypes("number").iloc[:, 0].to_numpy()
            weights[numbers[rest] > np.median(numbers)] = _IN_FAVOUR
        chosen = rng.choice(rest, N_OTHERS, replace=False, p=weights / weights.sum())
        alone = own.iloc[chosen]
        if others == "scrambled":
            alone = alone.assign(
                **{c: alone[c].to_numpy()[rng.permutation(N_OTHERS)] for c in columns}
            )
        alone = alone.assign(key=[f"{party} {i:05}" for i in range(N_OTHERS)])
        frames[party] = pd.concat([frames[party], alone], ignore_index=True)
    return frames, joined.iloc[common], joined.iloc[tested]


def measure(data: str, others: str, seed: int) -> _results.Row:
    """Fit and score."""
    table, train, test = split(data)
    joined = pd.concat([train, test], ignore_index=True)
    frames, common, tested = parties(joined, table, others, seed)
    synth = AutoregressiveSynthesizer(unmatched="train", random_state=seed, verbose=0)
    started = time.process_time()
    synth.fit(frames, on="key")
    seconds = time.process_time() - started
    synthetic = synth.sample(N_TESTED)[list(joined.columns)]
    kinds = table.categorical
    near = proximity(common, synthetic, holdout=tested, max_rows=2000, categorical=kinds)
    trees = detection_score(
        tested, synthetic, max_rows=N_TESTED, random_state=seed, categorical=kinds
    )
    return {
        "data": data,
        "others": others,
        "seed": seed,
        "shape": float(shape(tested, synthetic, categorical=kinds)),
        **trends(table, tested, synthetic),
        "detection": float(trees),
        "tstr": predictive(synthetic, tested, table),
        "closer_to_training_share": near["closer_to_training_share"].value,
        "epochs": len(synth.history_),
        "fit_cpu_seconds": round(seconds, 1),
    }


def show() -> None:
    """Print means over seeds."""
    found = _results.cells("unmatched")
    for data in dict.fromkeys(data for data, _ in found):
        own = {
            f"no others than {N_COMMON:,}" if others == "none" else others: found[data, others]
            for others in OTHERS
            if (data, others) in found
        }
        print("\n".join(_results.means(data, own, COLUMNS, wide=26, each=8)))


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = _commands.parser(__doc__, data=DATA, others=OTHERS)
    study(
        parser,
        "unmatched",
        lambda arguments: product(arguments.data, arguments.others),
        measure,
        show,
        seeds=(0, 1, 2),
    )


if __name__ == "__main__":
    main()
