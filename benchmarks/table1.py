"""The upper half of Table 1 of the VFLGAN paper: five tables, four methods, several seeds.

    VFLSYNTH_DATA=... python -m benchmarks.table1 run                  # everything missing
    VFLSYNTH_DATA=... python -m benchmarks.table1 run --data red-wine --method vflgan
    python -m benchmarks.table1 show                                   # ours next to the paper's
    VFLSYNTH_DATA=... python -m benchmarks.table1 check --data red-wine  # again: within the bands?

The two yardsticks, independent columns and a Gaussian copula, are not in the paper.

What to know when reading it:

- VertiGAN's distance cannot fall far below that of independent columns, because nothing relates its
  parties. On red wine it stops at 2.7, with the paper's sizes at 3.8; independent columns have 2.2.
- Its association error across parties is 7.7 times that within parties there. With the paper's
  sizes and schedule it is only 1.8 times, because relations within a party are not learned then
  either.
- WGAN-GP is the centralised reference rather than a bound: VFLGAN's distance can be lower.
- A Gaussian copula has a low distance by construction, because the distance is one of first and
  second moments; the total difference shows what it lacks.
- On Adult, utility is computed from 10,000 random rows of each table.

Seeds that are in the table of results are not run again, so an interrupted run is continued by
repeating the command. ``--settings paper`` are the reference code's, ``ours`` differ in two numbers
(see ``benchmarks/_runs.py``), ``default`` are those of every class when it is given nothing.
"""

from __future__ import annotations

from benchmarks import _comparison, _runs

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
    _comparison.main(__doc__, "table1", PAPER, yardsticks=list(_runs.YARDSTICKS))


if __name__ == "__main__":
    main()
