"""The report's pictures: tables and numbers in, self-contained images out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

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
from vflsynth.evaluation.intervals import sample_rows
from vflsynth.reporting import INK, REAL, SYNTHETIC, Picture, encode_svg, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COLUMNS = 24
"""Columns whose distributions are drawn, the worst ones first."""

MOST_LABELS = 8
"""Labels drawn per categorical column."""

MOST_POINTS = 800
"""Rows drawn per table in a scatter plot."""


def marginals(
    encoder: TableEncoder, real: pd.DataFrame, synthetic: pd.DataFrame, parts: pd.DataFrame
) -> list[Picture]:
    """Draw the distribution of each column in both tables, the worst ones first."""
    worst = parts.sort_values("value", ascending=False, kind="stable").head(MOST_COLUMNS)
    columns = {column.name: column for column in encoder.columns}
    pictures = []
    for name, measure, value in zip(worst["column"], worst["measure"], worst["value"]):
        column = columns[name]
        figure, axes = new_figure(2.9, 1.75)
        if isinstance(column, NumericColumn):
            _histograms(axes, column, real, synthetic)
        else:
            _bars(axes, column, real, synthetic)
        axes.set_title(f"{_label(name)}", loc="left", fontsize=8.5, fontweight="bold", color=INK)
        figure.text(
            0.985, 0.985, f"{measure.upper()} {value:.2f}", ha="right", va="top", fontsize=7.5
        )
        pictures.append(
            Picture(
                title=str(name),
                alt=f"Distribution of {name} in real and synthetic rows; distance {value:.2f}.",
                source=encode_svg(figure),
            )
        )
    return pictures


def association_maps(found: Associations) -> list[Picture]:
    """Draw the association matrices of both tables and their difference, ordered by party."""
    order = list(range(len(found.names)))
    owners: list[str] = []
    if found.owner is not None:
        ranks = {party: i for i, party in enumerate(dict.fromkeys(found.owner.values()))}
        order.sort(key=lambda i: ranks[found.owner[found.names[i]]])  # type: ignore[index]
        owners = [found.owner[found.names[i]] for i in order]
    labels = [_label(found.names[i], 14) for i in order]
    grid = np.ix_(order, order)
    maps = {
        "Real": ("Associations between all pairs of columns in the real table.", found.real),
        "Synthetic": (
            "Associations between all pairs of columns in the synthetic table.",
            found.synthetic,
        ),
    }
    drawn = [
        Picture(title, alt, _heat_map(matrix[grid], labels, owners, "RdBu_r", -1.0, 1.0))
        for title, (alt, matrix) in maps.items()
    ]
    error = np.abs(found.real - found.synthetic)[grid]
    return [
        *drawn,
        Picture(
            "Difference (absolute)",
            "Absolute differences between the two maps; pale is good.",
            _heat_map(error, labels, owners, "OrRd", 0.0, 1.0),
        ),
    ]


def pairs(
    encoder: TableEncoder,
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    found: Associations,
    rng: np.random.Generator,
) -> list[Picture]:
    """Draw the strongest real relations, those across parties first."""
    table = found.pairs.dropna(subset=["error"]) if len(found.names) > 1 else pd.DataFrame()
    if table.empty:
        return []
    table = table.assign(strength=table["real"].abs()).sort_values(
        "strength", ascending=False, kind="stable"
    )
    if found.owner is None:
        chosen = table.head(6)
    else:
        across = table[table["scope"] == "across"].head(4)
        chosen = pd.concat([across, table[table["scope"] == "within"].head(6 - len(across))])
    columns = {column.name: column for column in encoder.columns}
    some = [sample_rows(frame, MOST_POINTS, rng) for frame in (real, synthetic)]
    pictures = []
    for row in chosen.to_dict("records"):
        a, b = columns[row["column_a"]], columns[row["column_b"]]
        # The numeric column of a mixed pair goes on the vertical axis.
        if isinstance(a, NumericColumn) and isinstance(b, CategoricalColumn):
            a, b = b, a
        figure, (left, right) = new_figure(4.4, 2.1, panels=2)
        limits: dict[str, tuple[float, float]] = {}
        for axes, frame, colour, word in (
            (left, some[0], REAL, "real"),
            (right, some[1], SYNTHETIC, "synthetic"),
        ):
            _relation(axes, a, b, frame, colour, rng, limits)
            strength = row[word]
            axes.set_title(f"{word} {strength:.2f}", fontsize=8, color=colour, loc="left")
            axes.set_xlabel(_label(a.name, 22), fontsize=7.5)
        left.set_ylabel(_label(b.name, 20), fontsize=7.5)
        right.set_yticklabels([])
        where = "" if found.owner is None else f" ({row['scope']} parties)"
        pictures.append(
            Picture(
                title=f"{row['column_a']} and {row['column_b']}{where}",
                alt=f"{row['column_a']} against {row['column_b']}: association "
                f"{row['real']:.2f} in real rows, {row['synthetic']:.2f} in synthetic rows.",
                source=encode_svg(figure),
            )
        )
    return pictures


def projection(
    encoder: TableEncoder,
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    rng: np.random.Generator,
) -> Picture | None:
    """Draw both tables in the plane of the real table's first two principal components."""
    ours, theirs = (
        encoder.encode(sample_rows(frame, MOST_POINTS, rng)) for frame in (real, synthetic)
    )
    centre = ours.mean(axis=0)
    _, lengths, axes_of_data = np.linalg.svd(ours - centre, full_matrices=False)
    if len(lengths) < 2 or lengths[1] <= 1e-9:
        return None
    shown = lengths[:2] ** 2 / (lengths**2).sum()
    planes = [(rows - centre) @ axes_of_data[:2].T for rows in (ours, theirs)]
    figure, panels = new_figure(7.2, 2.7, panels=3)
    low, high = _span(np.vstack(planes))
    for axes, drawn, word in zip(
        panels,
        ([(planes[0], REAL)], [(planes[1], SYNTHETIC)], list(zip(planes, (REAL, SYNTHETIC)))),
        ("real", "synthetic", "both"),
    ):
        for points, colour in drawn:
            axes.scatter(
                points[:, 0], points[:, 1], s=5, c=colour, alpha=0.4, lw=0, rasterized=True
            )
        axes.set_xlim(low[0], high[0])
        axes.set_ylim(low[1], high[1])
        axes.set_title(word, fontsize=8.5, loc="left", color=INK)
        axes.set_xlabel(f"component 1 ({shown[0]:.0%})", fontsize=7.5)
    panels[0].set_ylabel(f"component 2 ({shown[1]:.0%})", fontsize=7.5)
    return Picture(
        title="All columns at once, seen from the side where real rows differ most",
        alt="Real and synthetic rows in the plane of the first two principal components of the "
        "real table. Clouds of the same shape are good.",
        source=encode_svg(figure),
    )


def training(history: pd.DataFrame) -> list[Picture]:
    """Draw the Fréchet distance and the losses over the epochs."""
    epochs = history["epoch"] if "epoch" in history.columns else history.index.to_series()
    curves = {
        str(name): pd.to_numeric(history[name], errors="coerce").to_numpy(dtype=np.float64)
        for name in history.columns
    }
    curves = {name: np.where(np.isfinite(curve), curve, np.nan) for name, curve in curves.items()}
    curves = {name: curve for name, curve in curves.items() if not np.isnan(curve).all()}
    pictures = []
    if "frechet_distance" in curves:
        distance = curves["frechet_distance"]
        figure, axes = new_figure(4.4, 2.4)
        axes.plot(epochs, distance, color=SYNTHETIC, lw=1.2)
        best = int(np.nanargmin(distance))
        axes.plot(epochs.iloc[best], distance[best], "o", color=REAL, ms=5)
        axes.annotate(
            f"best {distance[best]:.3g}",
            (epochs.iloc[best], distance[best]),
            xytext=(0, -11),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color=REAL,
        )
        if np.nanmin(distance) > 0:
            axes.set_yscale("log")
        axes.margins(y=0.18)
        axes.set_xlabel("epoch", fontsize=8)
        pictures.append(
            Picture(
                "Fréchet distance during training (lower is better)",
                f"Fréchet distance over epochs; the lowest is {distance[best]:.3g}.",
                encode_svg(figure),
            )
        )
    losses = {n: curve for n, curve in curves.items() if "loss" in n or "wasserstein" in n}
    if losses:
        figure, axes = new_figure(4.4, 2.4)
        for name, curve in list(losses.items())[:8]:
            axes.plot(epochs, curve, lw=1.0, label=name)
        axes.legend(fontsize=6.5, frameon=False)
        axes.set_xlabel("epoch", fontsize=8)
        pictures.append(
            Picture(
                "Losses during training (they need not fall; they should settle)",
                f"Losses over epochs: {', '.join(losses)}.",
                encode_svg(figure),
            )
        )
    return pictures


def utility(parts: pd.DataFrame) -> Picture:
    """Draw the scores of the four train/test settings with their intervals."""
    scores = list(dict.fromkeys(parts["score"]))
    figure, panels = new_figure(7.2, 1.9, panels=len(scores))
    for axes, score in zip(panels, scores):
        rows = parts[parts["score"] == score]
        colours = [INK if setting == "TRTR" else SYNTHETIC for setting in rows["setting"]]
        at = np.arange(len(rows))[::-1]
        axes.axvline(rows["baseline"].iloc[0], color=INK, lw=0.8, ls=":")
        for y, value, low, high, colour in zip(
            at, rows["value"], rows["lower"], rows["upper"], colours
        ):
            axes.plot([low, high], [y, y], color=colour, lw=1.6, solid_capstyle="round")
            axes.plot(value, y, "o", color=colour, ms=5)
        axes.set_yticks(at, rows["setting"], fontsize=7.5)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_title(score.replace("_", " "), fontsize=8.5, loc="left", color=INK)
        axes.margins(x=0.12)
    return Picture(
        title="A model trained and tested on real (R) and synthetic (S) rows",
        alt="Scores of train-real-test-real, TSTS, TRTS and TSTR with 95 % intervals.",
        source=encode_svg(figure),
    )


def _histograms(
    axes: Axes, column: NumericColumn, real: pd.DataFrame, synthetic: pd.DataFrame
) -> None:
    values = [column.values(frame) for frame in (real, synthetic)]
    present = [v[~np.isnan(v)] for v in values]
    if len(present[0]) or len(present[1]):
        # A few wild values must not flatten everything else into one bin.
        low, high = _span(np.concatenate([p for p in present if len(p)])[:, None])
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
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)


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
    axes.set_yticks(at, [_label(column.labels[i], 14) for i in shown], fontsize=6.5)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.grid(visible=False, axis="y")


def _relation(
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
            ticks = [_label(label, 9) for label in column.labels[:n]]
            if which == "x":
                axes.set_xticks(range(n), ticks, fontsize=6, rotation=30 if n > 3 else 0)
            else:
                axes.set_yticks(range(n), ticks, fontsize=6)
        else:
            if which not in limits:  # the real table's, drawn first, then the same for both
                values = column.values(frame)
                values = values[~np.isnan(values)]
                low, high = _span(values[:, None]) if len(values) else (np.zeros(1), np.ones(1))
                limits[which] = (float(low[0]), float(high[0]))
            set_limits(*limits[which])
    x, y = (
        column.codes(frame) + rng.uniform(-0.3, 0.3, len(frame))
        if isinstance(column, CategoricalColumn)
        else column.values(frame)
        for column in (a, b)
    )
    axes.scatter(x, y, s=5, c=colour, alpha=0.4, lw=0, rasterized=True)


def _heat_map(
    matrix: Floats, labels: list[str], owners: list[str], colours: str, low: float, high: float
) -> str:
    n = len(labels)
    figure, axes = new_figure(4.3, 4.6)
    image = axes.imshow(matrix, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.set_facecolor("#f2f4f6")
    size = min(7.5, 165 / n)
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
        words = {"ha": "center", "va": "bottom", "color": INK, "weight": "bold"}
        axes.text(middle, -0.8, _label(party), fontsize=8, **words)
    bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.45, aspect=26, pad=0.02)
    bar.ax.tick_params(labelsize=6.5, length=0)
    bar.outline.set_visible(False)
    return encode_svg(figure)


def _label(name: Hashable, most: int = 24) -> str:
    """Return a name that fits and that is not read as a formula."""
    text = " ".join(str(name).split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")


def _span(points: Floats) -> tuple[Floats, Floats]:
    """Return limits that hold nearly all points, with a margin; never empty."""
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    margin = np.where(high > low, 0.06 * (high - low), np.maximum(0.5, 0.01 * np.abs(high)))
    return low - margin, high + margin
