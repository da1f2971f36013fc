"""Mechanisms for a table that may be joined, compared on WGAN-GP (VFLGAN §5.2.1, on tables).

    python -m benchmarks.wgan_mechanisms run --data red-wine --epsilon 10 --seeds 0 1 2
    python -m benchmarks.wgan_mechanisms show

Five mechanisms, one architecture, public schemas of ``benchmarks/_schemas.py``, nothing tuned per
table or mechanism but for what ``benchmarks/dp.py`` sets for DP-SGD. Every seed is a release of its
own. ``first_layer`` is the VFLGAN paper's: its epsilon is not one of the synthetic table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks import _runs
from benchmarks._data import BenchmarkTable
from benchmarks._private import Release, gan_releases, run_cell
from benchmarks._schemas import SCHEMAS
from vflsynth import WGANGPSynthesizer

FOLDER = _runs.RESULTS / "wgan_mechanisms"

MECHANISMS = ("kernel_mean_embedding", "dpsgd", "dpsgd_gan", "gs_wgan", "first_layer")


def synthesise(
    table: BenchmarkTable, mechanism: str, epsilon: float, seeds: list[int]
) -> Iterator[Release]:
    """Yield one release per seed."""
    return gan_releases(table, WGANGPSynthesizer, mechanism, epsilon, seeds)


def show() -> None:
    """Print all results."""

    def order(result: dict[str, Any]) -> tuple[str, float, float]:
        return result["data"], -result["epsilon"], float(np.mean(result["frechet_distance"]))

    for result in sorted(_runs.read_all(FOLDER), key=order):
        cells = [_cell(result[name]) for name in ("frechet_distance", "total_difference")]
        print(
            f"{result['data']:20}{result['mechanism']:24}{result['epsilon']:6g}"
            f"{'FD ' + cells[0]:>22}{'TD ' + cells[1]:>18}{len(result['seeds']):4} seeds"
            + _spent(result)
        )


def _spent(result: dict[str, Any]) -> str:
    """Say what was spent where that is far below what was asked for, as with the paper's bound."""
    spent = float(result["epsilon_spent"])
    return f"   epsilon spent {spent:.3g}" if spent < 0.95 * result["epsilon"] else ""


def _cell(values: list[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.2g}{spread}"


def main() -> None:
    """Run the cells that were asked for, or show all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("--data", nargs="+", choices=SCHEMAS, default=["red-wine"])
    parser.add_argument("--mechanism", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    if arguments.action == "show":
        show()
        return
    torch.set_num_threads(1)
    for mechanism in arguments.mechanism:
        for epsilon in arguments.epsilon:
            for data in arguments.data:
                run_cell(
                    FOLDER,
                    "mechanism",
                    synthesise,
                    data=data,
                    name=mechanism,
                    epsilon=epsilon,
                    seeds=arguments.seeds,
                )


if __name__ == "__main__":
    main()
