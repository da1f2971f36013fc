"""The upper half of Table 1 of the VFLGAN paper: five tables, four methods, several seeds.

    VFLSYNTH_DATA=... python -m benchmarks.table1 run                  # everything missing
    VFLSYNTH_DATA=... python -m benchmarks.table1 run --data red-wine --method vflgan
    python -m benchmarks.table1 show                                   # ours next to the paper's
    VFLSYNTH_DATA=... python -m benchmarks.table1 check --data red-wine  # again: within the bands?

The two yardsticks, independent columns and a Gaussian copula, are not in the paper.

What to know when reading it:

- VertiGAN's distance cannot fall below that of independent columns by much: nothing relates its
  parties. On red wine it stops at 2.7, with the paper's sizes at 3.8; independent columns have 2.2.
- Its across-party association error is 7.7 times its within-party one there. With the paper's sizes
  and schedule it is only 1.8 times, because relations within a party are not learned then either.
- WGAN-GP is the centralised reference rather than a bound: VFLGAN's distance can be lower.
- A Gaussian copula has a low distance by construction, which is one of first and second moments;
  the total difference shows what it lacks.
- On Adult, utility is computed from 10,000 random rows of each table.

A result is one JSON file in ``benchmarks/results/table1``; what is there is not made again, so an
interrupted run is continued by repeating the command. ``--settings paper`` are the reference
code's, ``ours`` differ in two numbers (see ``benchmarks/_runs.py``), ``default`` are those of every
class when it is given nothing.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import _comparison, _runs
from benchmarks._data import load_table

DATA = ("red-wine", "white-wine", "adult", "south-german-credit", "hcv")
FOLDER = _runs.RESULTS / "table1"

# Total difference, from the paper's Table 1 (one run each).
PAPER = {
    "red-wine": {"wgan-gp": 0.09, "vertigan": 0.58, "vflgan-base": 0.23, "vflgan": 0.11},
    "white-wine": {"wgan-gp": 0.04, "vertigan": 0.28, "vflgan-base": 0.04, "vflgan": 0.12},
    "adult": {"wgan-gp": 0.17, "vertigan": 1.47, "vflgan-base": 0.19, "vflgan": 0.38},
    "south-german-credit": {"wgan-gp": 0.60, "vertigan": 0.92, "vflgan-base": 0.51, "vflgan": 0.79},
    "hcv": {"wgan-gp": 0.15, "vertigan": 0.19, "vflgan-base": 0.22, "vflgan": 0.22},
}


def main() -> None:
    """Run, show or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "show", "check"))
    parser.add_argument("--data", choices=DATA, nargs="+", default=list(DATA))
    parser.add_argument(
        "--method", choices=_runs.SYNTHESIZERS, nargs="+", default=list(_runs.SYNTHESIZERS)
    )
    parser.add_argument("--settings", choices=_runs.SETTINGS, nargs="+", default=["default"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    if arguments.action == "run":
        for data in arguments.data:
            for settings in arguments.settings:
                for method in arguments.method:
                    _runs.make(FOLDER, load_table(data), method, settings, arguments.seeds)
            for method in _runs.YARDSTICKS:
                _runs.make_yardstick(FOLDER, load_table(data), method, arguments.seeds)
    if arguments.action == "check":
        results = [
            _runs.run(load_table(data), method, settings, arguments.seeds)
            for data in arguments.data
            for settings in arguments.settings
            for method in arguments.method
        ]
        inside = [_comparison.check(FOLDER, result) for result in results]
        sys.exit(not all(inside))
    _comparison.show(FOLDER, PAPER, arguments.data, arguments.settings)


if __name__ == "__main__":
    main()
