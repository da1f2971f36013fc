"""Drawings on axes, which the report's pictures are made of, and a plot of them in a notebook."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from vflsynth.evaluation.association import Associations
from vflsynth.evaluation.columns import (
    CategoricalColumn,
    Column,
    Floats,
    NumericColumn,
    TableEncoder,
)
from vflsynth.exceptions import MissingExtraError, ParameterError
from vflsynth.reporting import INK, REAL, SYNTHETIC, number_text, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

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


def curves_of(history: pd.DataFrame) -> tuple[pd.Series, dict[str, Floats]]:
    """Return the epochs of a history, and its columns that hold a finite number."""
    epochs = history["epoch"] if "epoch" in history.columns else history.index.to_series()
    curves = {
        str(name): pd.to_numeric(history[name], errors="coerce").to_numpy(dtype=np.float64)
        for name in history.columns
    }
    curves = {name: np.where(np.isfinite(curve), curve, np.nan) for name, curve in curves.items()}
    return epochs, {name: curve for name, curve in curves.items() if not np.isnan(curve).all()}


def draw_distance(axes: Axes, epochs: pd.Series, distance: Floats) -> float:
    """Draw the Fréchet distance over the epochs; return the lowest."""
    axes.plot(epochs, distance, color=SYNTHETIC, lw=1.2)
    best = int(np.nanargmin(distance))
    lowest = float(distance[best])
    axes.plot(epochs.iloc[best], lowest, "o", color=REAL, ms=5)
    axes.annotate(
        f"best {number_text(lowest)}",
        (epochs.iloc[best], lowest),
        xytext=(0, -11),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color=REAL,
    )
    if lowest > 0:
        axes.set_yscale("log")
        axes.tick_params(axis="y", which="minor", labelsize=6.5)
    axes.margins(y=0.18)
    axes.set_xlabel("epoch", fontsize=8)
    return lowest


def draw_curves(axes: Axes, epochs: pd.Series, curves: dict[str, Floats]) -> None:
    """Draw at most eight curves over the epochs."""
    for name, curve in list(curves.items())[:8]:
        axes.plot(epochs, curve, lw=1.0, label=name)
    axes.legend(fontsize=6.5, frameon=False)
    axes.set_xlabel("epoch", fontsize=8)


class Map(NamedTuple):
    """A matrix over pairs of columns, and the name and ends of the colours that it is drawn in.

    `owners` are the parties of the columns, in groups; empty if parties are unknown.
    """

    matrix: Floats
    labels: list[str]
    owners: list[str]
    colours: str
    low: float
    high: float


def maps_of(found: Associations, shown: Sequence[int] | None = None) -> dict[str, Map]:
    """Return maps of both tables and their difference, columns (by default all) by party."""
    order = list(range(len(found.names)) if shown is None else shown)
    owners: list[str] = []
    if found.owner is not None:
        ranks = {party: i for i, party in enumerate(dict.fromkeys(found.owner.values()))}
        order.sort(key=lambda i: ranks[found.owner[found.names[i]]])  # type: ignore[index]
        owners = [found.owner[found.names[i]] for i in order]
    labels = [label(found.names[i], 14) for i in order]
    grid = np.ix_(order, order)
    real, synthetic = found.real[grid], found.synthetic[grid]
    return {
        "Real": Map(real, labels, owners, "RdBu_r", -1.0, 1.0),
        "Synthetic": Map(synthetic, labels, owners, "RdBu_r", -1.0, 1.0),
        "Difference (absolute)": Map(np.abs(real - synthetic), labels, owners, "OrRd", 0.0, 1.0),
    }


def draw_map(axes: Axes, map_: Map) -> None:
    """Draw a map; lines part the columns of different parties."""
    matrix, labels, owners, colours, low, high = map_
    n = len(labels)
    image = axes.imshow(matrix, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.set_facecolor("#f2f4f6")
    size = min(
        7.5, 36 * axes.figure.bbox.height / axes.figure.dpi / n
    )  # so that each has a line of its own
    if n <= 60:
        axes.set_xticks(range(n), labels, rotation=90, fontsize=size)
        axes.set_yticks(range(n), labels, fontsize=size)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    for i in range(1, len(owners)):
        if owners[i] != owners[i - 1]:
            axes.axhline(i - 0.5, color=INK, lw=1.2)
            axes.axvline(i - 0.5, color=INK, lw=1.2)
    for party in dict.fromkeys(owners):
        middle = float(np.mean([i for i, owner in enumerate(owners) if owner == party]))
        where = (middle, -0.8, label(party))
        axes.text(*where, fontsize=8, ha="center", va="bottom", color=INK, weight="bold")
    bar = axes.figure.colorbar(image, ax=axes, location="bottom", shrink=0.45, aspect=26, pad=0.02)
    bar.ax.tick_params(labelsize=6.5, length=0)
    bar.outline.set_visible(False)


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
    for which, column in (("x", a), ("y", b)):
        set_limits = axes.set_xlim if which == "x" else axes.set_ylim
        if isinstance(column, CategoricalColumn):
            n = min(column.width, MOST_LABELS)
            set_limits(-0.6, n - 0.4)
            ticks = [label(name, 9) for name in column.labels[:n]]
            if which == "x":
                axes.set_xticks(range(n), ticks, fontsize=6, rotation=30 if n > 3 else 0)
            else:
                axes.set_yticks(range(n), ticks, fontsize=6)
        else:
            if which not in limits:  # the real table's, drawn first, then the same for both
                values = column.values(frame)
                values = values[~np.isnan(values)]
                low, high = span(values[:, None]) if len(values) else (np.zeros(1), np.ones(1))
                limits[which] = (float(low[0]), float(high[0]))
            set_limits(*limits[which])
            if column.is_instant:
                _write_dates(axes.xaxis if which == "x" else axes.yaxis)
    x, y = (
        column.codes(frame) + rng.uniform(-0.3, 0.3, len(frame))
        if isinstance(column, CategoricalColumn)
        else column.values(frame)
        for column in (a, b)
    )
    axes.scatter(x, y, s=5, c=colour, alpha=0.4, lw=0, rasterized=True)


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
    values = [column.values(frame) for frame in (real, synthetic)]
    present = [v[~np.isnan(v)] for v in values]
    if len(present[0]) or len(present[1]):
        # A few wild values must not flatten everything else into one bin.
        low, high = span(np.concatenate([p for p in present if len(p)])[:, None])
        whole = all(len(np.unique(p)) <= 30 and (p == np.round(p)).all() for p in present)
        if whole and high[0] - low[0] <= 60:
            edges = np.arange(np.floor(low[0]), np.ceil(high[0]) + 2) - 0.5
        else:
            edges = np.linspace(low[0], high[0], 31)
        for p, colour, filled in zip(present, (REAL, SYNTHETIC), (True, False)):
            counts = np.histogram(p, edges)[0] / max(len(p), 1)
            if filled:
                axes.stairs(counts, edges, fill=True, color=colour, alpha=0.35, lw=0)
            else:
                axes.stairs(counts, edges, color=colour, lw=1.3)
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
    axes: Sequence[Axes] | None = None,
) -> np.ndarray[Any, Any]:
    """Draw the distribution of each column in both tables.

    Parameters
    ----------
    real, synthetic : DataFrame, shape (record, column)
    columns : sequence of hashable, optional
        Which, and in which order. Default: all that both tables have.
    categorical : collection of hashable, default ()
        Numeric columns to read as labels.
    axes : sequence of matplotlib Axes, optional
        One per column. Default: a new figure of pyplot's.

    Returns
    -------
    ndarray of Axes, shape (column,)

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ParameterError
        If there are not as many axes as columns.
    """
    encoder = TableEncoder(real, synthetic, columns=columns, categorical=categorical)
    drawn = _axes(axes, len(encoder.columns), (2.4, 1.8))
    for each, column in zip(drawn, encoder.columns):
        draw_column(each, column, real, synthetic)
    return drawn


def _axes(
    given: Sequence[Axes] | None, wanted: int, size: tuple[float, float]
) -> np.ndarray[Any, Any]:
    """Return the axes that were given, or those of a new figure."""
    if given is not None:
        found = np.ravel(np.asarray(given, dtype=object))
        if len(found) != wanted:
            raise ParameterError(f"axes must be {wanted} Axes, got {len(found)}")
        return found
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("a plot", "matplotlib", "report") from error
    width = min(wanted, _PER_ROW)
    height = math.ceil(wanted / width)
    figure, grid = pyplot.subplots(
        height,
        width,
        figsize=(size[0] * width, size[1] * height),
        layout="constrained",
        squeeze=False,
    )
    for spare in grid.ravel()[wanted:]:
        figure.delaxes(spare)
    drawn = grid.ravel()[:wanted]
    for each in drawn:
        style_axes(each)
    return drawn
