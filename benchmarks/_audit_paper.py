"""What the VFLGAN paper's Tables 2, 3 and 4 print.

Also the options of the scripts that make ours.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks._results import CACHE

Cell = tuple[float, float]
"""Mean accuracy over five overlapping splits of 100 + 100 models, and two standard deviations."""

ACCURACIES: dict[str, dict[str, dict[float | None, tuple[Cell, ...]]]] = {
    "ASSD": {  # Table 2: scheme, table, ε of DP-VFLGAN
        "red-wine": {
            None: ((0.59, 0.11), (0.48, 0.07), (0.51, 0.05), (0.51, 0.11)),
            10.0: ((0.53, 0.12), (0.47, 0.13), (0.52, 0.18), (0.48, 0.12)),
            5.0: ((0.48, 0.11), (0.50, 0.07), (0.43, 0.09), (0.51, 0.12)),
        },
        "white-wine": {
            None: ((0.55, 0.12), (0.57, 0.12), (0.60, 0.06), (0.50, 0.09)),
            10.0: ((0.54, 0.11), (0.39, 0.15), (0.52, 0.05), (0.51, 0.06)),
            5.0: ((0.44, 0.03), (0.51, 0.14), (0.53, 0.09), (0.51, 0.13)),
        },
        "adult": {
            None: ((0.65, 0.09), (0.59, 0.05), (0.58, 0.10), (0.55, 0.11)),
            10.0: ((0.46, 0.06), (0.47, 0.13), (0.51, 0.12), (0.44, 0.10)),
            5.0: ((0.50, 0.09), (0.49, 0.10), (0.50, 0.08), (0.48, 0.11)),
        },
    },
    "ASIF": {  # Table 4, which does not say which party's features
        "red-wine": {
            None: ((0.54, 0.09), (0.55, 0.14), (0.52, 0.17), (0.54, 0.12)),
            10.0: ((0.53, 0.04), (0.50, 0.07), (0.54, 0.09), (0.50, 0.09)),
            5.0: ((0.51, 0.09), (0.45, 0.03), (0.54, 0.02), (0.53, 0.07)),
        },
        "white-wine": {
            None: ((0.52, 0.10), (0.50, 0.08), (0.51, 0.09), (0.49, 0.13)),
            10.0: ((0.52, 0.10), (0.52, 0.12), (0.48, 0.10), (0.51, 0.12)),
            5.0: ((0.49, 0.14), (0.56, 0.07), (0.52, 0.07), (0.53, 0.08)),
        },
        "adult": {
            None: ((0.49, 0.12), (0.58, 0.09), (0.53, 0.09), (0.55, 0.12)),
            10.0: ((0.49, 0.14), (0.50, 0.08), (0.54, 0.11), (0.48, 0.12)),
            5.0: ((0.49, 0.03), (0.50, 0.12), (0.54, 0.09), (0.51, 0.10)),
        },
    },
}
"""Naive and correlation of Record 1, then of Record 2."""

EPSILONS = (10.0, 5.0)


def accuracies(scheme: str, data: str, epsilon: float | None) -> dict[str, dict[str, Cell]]:
    """Return a row of Table 2 or 4: how the record was chosen, statistic, cell."""
    first, second, third, fourth = ACCURACIES[scheme][data][epsilon]
    return {
        "farthest": {"naive": first, "correlation": second},
        "most_outlying": {"naive": third, "correlation": fourth},
    }


PUBLISHED_ATTACKS = ("LOGAN 0", "LOGAN D1", "MC", "GAN-leaks 0", "GAN-leaks CAL", "DOMIAS")

# Table 3: AUC by table and number of training records; the attacks in the order above, then ASSD.
_AREAS: dict[str, dict[int, tuple[float, ...]]] = {
    "red-wine": {
        100: (0.47, 0.48, 0.60, 0.61, 0.58, 0.63, 0.98),
        200: (0.52, 0.50, 0.52, 0.55, 0.55, 0.54, 0.95),
    },
    "white-wine": {
        100: (0.48, 0.46, 0.53, 0.54, 0.57, 0.60, 0.87),
        200: (0.50, 0.50, 0.55, 0.56, 0.59, 0.58, 0.92),
    },
    "california-housing": {
        100: (0.51, 0.52, 0.54, 0.57, 0.55, 0.60, 0.81),
        200: (0.54, 0.54, 0.50, 0.51, 0.50, 0.50, 0.89),
    },
}
AREAS: dict[str, dict[int, dict[str, float]]] = {
    table: {
        n: dict(zip((*PUBLISHED_ATTACKS, "ASSD"), values, strict=True))
        for n, values in sizes.items()
    }
    for table, sizes in _AREAS.items()
}
REFERENCE_ROWS = {"red-wine": 1000, "white-wine": 2000, "california-housing": 10_000}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what audits have in common."""
    parser.add_argument("--models", type=int, default=100, help="shadow models per world")
    parser.add_argument("--epochs", type=int, help="default: those of the table's preset")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cache", type=Path, default=CACHE / "audit")
