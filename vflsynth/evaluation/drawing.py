"""Columns drawn on axes, alone or in pairs, for the report's pictures and for notebooks."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vflsynth.evaluation.columns import (
    CategoricalColumn,
    Column,
    Floats,
    NumericColumn,
    TableEncoder,
    present,
)
from vflsynth.evaluation.tables import typed_table
from vflsynth.exceptions import MissingExtraError
from vflsynth.reporting import INK, REAL, SYNTHETIC, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_MOST_DRAWN = 1e306

MOST_LABELS = 8
"""Labels drawn per categorical column."""


def draw_column(axes: Axes, column: Column, real: pd.DataFrame, synthetic: pd.DataFrame) -> None:
    """Draw a column's distribution in both tables: filled is real, outlined or orange synthetic."""
    if isinstance(column, NumericColumn):
        _histograms(axes, column, real, synthetic)
    else:
        _bars(axes, column, real, synthetic)
    name = label(column.name)
    axes.set_title(name, loc="left", fontsize=8.5, fontweight="bold", color=INK)


def draw_relation(
    axes: Axes,
    a: Column,
    b: Column,
    frame: pd.DataFrame,
    colour: str,
    rng: np.random.Generator,
    limits: dict[str, tuple[float, float]],
) -> None:
    """Scatter one column against another; labels are positions with some jitter."""
    for which, axis, column in (("x", axes.xaxis, a), ("y", axes.yaxis, b)):
        if isinstance(column, CategoricalColumn):
            n = min(column.width, MOST_LABELS)
            axes.set(**{f"{which}lim": (-0.6, n - 0.4)})
            ticks = [label(name, 9) for name in column.labels[:n]]
            axis.set_ticks(
                range(n), ticks, fontsize=6, rotation=30 if which == "x" and n > 3 else 0
            )
        else:
            if which not in limits:  # the real table's, drawn first, then the same for both
                values = present(_drawn(column, frame))
                low, high = span(values[:, None]) if len(values) else (np.zeros(1), np.ones(1))
                limits[which] = (float(low[0]), float(high[0]))
            axes.set(**{f"{which}lim": limits[which]})
            if column.is_instant:
                _write_dates(axis)
    x, y = (
        column.codes(frame) + rng.uniform(-0.3, 0.3, len(frame))
        if isinstance(column, CategoricalColumn)
        else _drawn(column, frame)
        for column in (a, b)
    )
    axes.scatter(x, y, s=5, c=colour, alpha=0.4, lw=0, rasterized=True)


def _drawn(column: NumericColumn, frame: pd.DataFrame) -> Floats:
    """Return plain numbers, cut off where differences that axes need would overflow."""
    return np.clip(column.values(frame) + column.origin, -_MOST_DRAWN, _MOST_DRAWN)


def label(name: Hashable, most: int = 24) -> str:
    """Return a name that fits and that is not read as a formula."""
    text = " ".join(str(name).split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


def span(points: Floats) -> tuple[Floats, Floats]:
    """Return limits that hold nearly all points, with a margin; never empty."""
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    margin = np.where(high > low, 0.06 * (high - low), np.maximum(0.5, 0.01 * np.abs(high)))
    return low - margin, high + margin


def _histograms(
    axes: Axes, column: NumericColumn, real: pd.DataFrame, synthetic: pd.DataFrame
) -> None:
    values = [present(_drawn(column, frame)) for frame in (real, synthetic)]
    if len(values[0]) or len(values[1]):
        # A few wild values must not flatten everything else into one bin.
        low, high = span(np.concatenate(values)[:, None])
        whole = all(len(np.unique(v)) <= 30 and (v == np.round(v)).all() for v in values)
        if whole and high[0] - low[0] <= 60:
            edges = np.arange(np.floor(low[0]), np.ceil(high[0]) + 2) - 0.5
        else:
            edges = np.linspace(low[0], high[0], 31)
        filled: dict[str, Any] = {"fill": True, "color": REAL, "alpha": 0.35, "lw": 0}
        for v, style in zip(values, (filled, {"color": SYNTHETIC, "lw": 1.3})):
            axes.stairs(np.histogram(v, edges)[0] / max(len(v), 1), edges, **style)
    if column.is_instant:
        _write_dates(axes.xaxis)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


def _write_dates(axis: Axis) -> None:
    """Write seconds since 1970 as what they stand for: a day, or a time if all are of few days."""
    from matplotlib.ticker import MaxNLocator

    low, high = sorted(axis.get_view_interval())
    pattern = "%Y-%m-%d" if high - low > 3 * 86_400 else "%m-%d %H:%M"

    def written(seconds: float, _: object) -> str:
        instant = pd.Timestamp(0, tz="UTC") + pd.to_timedelta(round(seconds), unit="s")
        return str(instant.strftime(pattern))

    axis.set_major_locator(MaxNLocator(3))
    axis.set_major_formatter(written)


def _bars(
    axes: Axes, column: CategoricalColumn, real: pd.DataFrame, synthetic: pd.DataFrame
) -> None:
    shares = [
        np.bincount(column.codes(frame), minlength=column.width) / len(frame)
        for frame in (real, synthetic)
    ]
    shown = np.argsort(-(shares[0] + shares[1]), kind="stable")[:MOST_LABELS]
    at = np.arange(len(shown))[::-1]
    axes.barh(at + 0.19, shares[0][shown], 0.38, color=REAL, alpha=0.55)
    axes.barh(at - 0.19, shares[1][shown], 0.38, color=SYNTHETIC, alpha=0.9)
    axes.set_yticks(at, [label(column.labels[i], 14) for i in shown], fontsize=6.5)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.grid(visible=False, axis="y")


_PER_ROW = 4


def plot_marginals(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    columns: Sequence[Hashable] | None = None,
    categorical: Collection[Hashable] = (),
) -> np.ndarray[Any, Any]:
    """Draw the distribution of each column in both tables, in a new figure of pyplot's.

    Parameters
    ----------
    real, synthetic : DataFrame, shape (record, column)
    columns : sequence of hashable, optional
        Which, and in which order. Default: all that both tables have.
    categorical : collection of hashable, default ()
        Numeric columns to read as labels.

    Returns
    -------
    ndarray of Axes, shape (column,)

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    real, synthetic = typed_table(real), typed_table(synthetic)
    encoder = TableEncoder(real, synthetic, columns=columns, categorical=categorical)
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("a plot", "matplotlib", "report") from error
    n = len(encoder.columns)
    width = min(n, _PER_ROW)
    height = math.ceil(n / width)
    size = (2.4 * width, 1.8 * height)
    figure, grid = pyplot.subplots(height, width, figsize=size, layout="constrained", squeeze=False)
    for spare in grid.ravel()[n:]:
        figure.delaxes(spare)
    drawn = grid.ravel()[:n]
    for axes, column in zip(drawn, encoder.columns):
        style_axes(axes)
        draw_column(axes, column, real, synthetic)
    return drawn
