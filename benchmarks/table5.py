"""Table 5 of the VFLGAN paper: the wines' quality as a standardised integer instead of one-hot.

    VFLSYNTH_DATA=... python -m benchmarks.table5 run
    python -m benchmarks.table5 show

Everything else is as in ``benchmarks/table1.py``.
"""

from __future__ import annotations

from benchmarks import _comparison

# Total difference, from the paper's Table 5 (one run each).
PAPER = {
    "red-wine": {"wgan-gp": 0.42, "vertigan": 1.14, "vflgan-base": 0.28, "vflgan": 0.44},
    "white-wine": {"wgan-gp": 0.22, "vertigan": 0.86, "vflgan-base": 0.24, "vflgan": 0.18},
}


def main() -> None:
    """Run, show or check."""
    _comparison.main(__doc__, "table5", PAPER, kinds={"quality": "integer"})


if __name__ == "__main__":
    main()
