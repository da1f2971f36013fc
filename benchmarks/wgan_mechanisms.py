"""Mechanisms for a table that may be joined, compared on WGAN-GP (VFLGAN §5.2.1, on tables).

    python -m benchmarks.wgan_mechanisms run --data red-wine --epsilon 10 --seeds 0 1 2
    python -m benchmarks.wgan_mechanisms show

Four mechanisms, one architecture, public schemas of ``benchmarks/_schemas.py``, nothing tuned per
table or mechanism but for what ``benchmarks/dp.py`` sets for DP-SGD. Every seed is a release of its
own. ``first_layer`` is the VFLGAN paper's: its epsilon is not one of the synthetic table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from benchmarks import _private, _results
from benchmarks._data import BenchmarkTable
from vflsynth import WGANGPSynthesizer

MECHANISMS = ("dpsgd", "dpsgd_gan", "gs_wgan", "first_layer")


def synthesise(
    table: BenchmarkTable, mechanism: str, epsilon: float, seeds: list[int]
) -> Iterator[_private.Release]:
    """Yield one release per seed."""
    return _private.gan_releases(table, WGANGPSynthesizer, mechanism, epsilon, seeds)


def show() -> None:
    """Print all results: by table, by falling epsilon, then the best mechanism first."""

    def order(item: tuple[tuple[str, str, float], pd.DataFrame]) -> tuple[str, float, float]:
        (data, _, epsilon), cell = item
        return data, -epsilon, cell["frechet_distance"].mean()

    for (data, mechanism, epsilon), cell in sorted(
        _results.cells("wgan_mechanisms").items(), key=order
    ):
        distance, difference = (_text(cell[m]) for m in ("frechet_distance", "total_difference"))
        print(
            f"{data:20}{mechanism:24}{epsilon:6g}{'FD ' + distance:>22}{'TD ' + difference:>18}"
            f"{len(cell):4} seeds{_spent(cell, epsilon)}"
        )


def _spent(cell: pd.DataFrame, epsilon: float) -> str:
    """Say what was spent where that is far below what was asked for, as with the paper's bound."""
    spent = cell["epsilon_spent"].iloc[-1]
    return f"   epsilon spent {spent:.3g}" if spent < 0.95 * epsilon else ""


def _text(values: pd.Series) -> str:
    spread = f" ± {values.std():.2g}" if len(values) > 1 else ""
    return f"{values.mean():.2g}{spread}"


def main() -> None:
    """Run the cells that were asked for, or show all."""
    _private.main(
        __doc__,
        "wgan_mechanisms",
        {"mechanism": MECHANISMS},
        synthesise,
        show,
        data=["red-wine"],
        epsilon=[10.0],
        seeds=[0, 1, 2],
    )


if __name__ == "__main__":
    main()
