"""Pairs of columns and AIM on other splits of the two small tables.

A third of a thousand rows is too few to compare two AUCs by. Here every seed splits a table anew,
and makes one release of its training rows, by whose rows trained models predict what was left out,
and 10,000 rows that the tables' source makes anew. Other scores are those of `benchmarks.ladder`.

    python -m benchmarks.splits --methods 'pairwise tables, ε 3' 'AIM, joined table, ε 3'

What is there is not measured again.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd

from benchmarks import _commands, _results
from benchmarks._data import load_small_mixed
from benchmarks.ladder import PRIVATE, beside_rival, drawn, predictive, split, study, trends
from vflsynth.evaluation import detection_score

TABLES = ("small-mixed", "small-tight")
SPLITS = (1, 2, 3, 4, 5, 6, 7, 8)
_HEADS = {
    "across": "trend_across",
    "trees": "detection",
    "TSTR": "tstr",
    "TRTR": "trtr",
    "TSTR fresh": "tstr_of_fresh",
    "TRTR fresh": "trtr_of_fresh",
}


def measure(data: str, method: str, seed: int) -> _results.Row:
    """Make a release of the training rows of one split, and score it."""
    table, train, test = split(data, seed)
    rows, taken = drawn(table, train, method, seed)
    fresh = load_small_mixed(10_000, seed=8).joined()[list(train.columns)]
    options: dict[str, Any] = {"categorical": table.categorical, "random_state": seed}
    return {
        "data": data,
        "method": method,
        "seed": seed,
        "trend_across": trends(table, train, rows)["trend_across"],
        "detection": float(detection_score(train, rows, **options)),
        "tstr": predictive(rows, test, table),
        "trtr": predictive(train, test, table),
        "tstr_of_fresh": predictive(rows, fresh, table),
        "trtr_of_fresh": predictive(train, fresh, table),
        "fit_seconds": taken["fit_seconds"],
    }


def show() -> None:
    """Print means over splits, and what pairs of columns have beside AIM."""
    tables: dict[str, dict[str, pd.DataFrame]] = {}
    for (data, method), frame in _results.cells("splits").items():
        tables.setdefault(data, {})[method] = frame
    for data, own in tables.items():
        print("\n".join(_results.means(data, own, _HEADS, wide=34, each=12) + beside_rival(own)))


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = _commands.parser(__doc__, data=TABLES, methods=PRIVATE)
    study(
        parser,
        "splits",
        lambda arguments: product(arguments.data, arguments.methods),
        measure,
        show,
        SPLITS,
    )


if __name__ == "__main__":
    main()
