"""Table 5 of the VFLGAN paper: the wines' quality as a standardised integer instead of one-hot.

    VFLSYNTH_DATA=... python -m benchmarks.table5 run
    python -m benchmarks.table5 show

Everything else is as in ``benchmarks/table1.py``; results go to ``benchmarks/results/table5``.
"""

from __future__ import annotations

import argparse

from benchmarks import _comparison, _runs
from benchmarks._data import load_table

DATA = ("red-wine", "white-wine")
FOLDER = _runs.RESULTS / "table5"

# Total difference, from the paper's Table 5 (one run each).
PAPER = {
    "red-wine": {"wgan-gp": 0.42, "vertigan": 1.14, "vflgan-base": 0.28, "vflgan": 0.44},
    "white-wine": {"wgan-gp": 0.22, "vertigan": 0.86, "vflgan-base": 0.24, "vflgan": 0.18},
}


def main() -> None:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "show"))
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
                    table, kinds = load_table(data), {"quality": "integer"}
                    _runs.make(FOLDER, table, method, settings, arguments.seeds, kinds)
    _comparison.show(FOLDER, PAPER, arguments.data, arguments.settings)


if __name__ == "__main__":
    main()
