"""The report's pictures: tables and numbers in, self-contained images out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from vflsynth.evaluation.association import Associations
from vflsynth.evaluation.columns import CategoricalColumn, NumericColumn, TableEncoder
from vflsynth.evaluation.drawing import draw_column, draw_relation, label, span
from vflsynth.evaluation.intervals import sample_rows
from vflsynth.reporting import INK, REAL, SYNTHETIC, Picture, encode_svg, new_figure, number_text

MOST_COLUMNS = 24
"""Columns whose distributions are drawn, the worst ones first; the target always is."""

MOST_PAIRS = 6
"""Pairs of columns that are drawn; the target's strongest always is."""

MOST_IN_MAP = 40
"""Columns of a heat map, those that are furthest off: more could not be read."""

MOST_POINTS = 800
"""Rows drawn per table in a scatter plot."""


def marginals(
    encoder: TableEncoder,
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    parts: pd.DataFrame,
    target: Hashable = None,
) -> list[Picture]:
    """Draw the distribution of each column in both tables, the worst ones first."""
    worst = parts.sort_values("value", ascending=False, kind="stable")
    is_target = worst["column"].map(lambda name: name == target).to_numpy(dtype=bool)
    if is_target[MOST_COLUMNS:].any():
        worst = pd.concat([worst.head(MOST_COLUMNS - 1), worst[is_target]])
    worst = worst.head(MOST_COLUMNS)
    columns = {column.name: column for column in encoder.columns}
    pictures = []
    for name, measure, value in zip(worst["column"], worst["measure"], worst["value"]):
        column = columns[name]
        figure, axes = new_figure(2.9, 1.75)
        draw_column(axes, column, real, synthetic)
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


def association_maps(found: Associations, target: Hashable = None) -> list[Picture]:
    """Draw the association matrices of both tables and their difference, ordered by party.

    Of many columns those that are furthest off are shown, and the target.
    """
    off = np.nan_to_num(np.abs(found.real - found.synthetic))
    np.fill_diagonal(off, 0.0)
    worst = np.argsort(-off.max(axis=1, initial=0.0), kind="stable").tolist()
    worst.sort(key=lambda i: found.names[i] != target)
    shown, owners = sorted(worst[:MOST_IN_MAP]), list[str]()
    if found.owner is not None:
        parties, of_column = list(dict.fromkeys(found.owner.values())), found.owner
        shown.sort(key=lambda i: parties.index(of_column[found.names[i]]))
        owners = [of_column[found.names[i]] for i in shown]
    labels = [label(found.names[i], 14) for i in shown]
    grid = np.ix_(shown, shown)
    real, synthetic = found.real[grid], found.synthetic[grid]
    side = max(4.3, 0.17 * len(shown) + 1.3)  # inches: each label has a line of its own
    alt = "Associations between all pairs of columns in the {} table."
    pictures = []
    for title, words, matrix, colours, low in (
        ("Real", alt.format("real"), real, "RdBu_r", -1.0),
        ("Synthetic", alt.format("synthetic"), synthetic, "RdBu_r", -1.0),
        (
            "Difference (absolute)",
            "Absolute differences between the two maps; pale is good.",
            *(np.abs(real - synthetic), "OrRd", 0.0),
        ),
    ):
        figure, axes = new_figure(side, side + 0.3)
        image = axes.imshow(matrix, cmap=colours, vmin=low, vmax=1.0, interpolation="nearest")
        name_map(axes, labels, owners)
        bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.45, aspect=26, pad=0.02)
        bar.ax.tick_params(labelsize=6.5, length=0)
        bar.outline.set_visible(False)
        pictures.append(Picture(title, words, encode_svg(figure)))
    return pictures


def name_map(axes: Any, labels: Sequence[str], owners: Sequence[str]) -> None:
    """Name a map's columns, and their parties, in groups, which lines part."""
    axes.set_facecolor("#f2f4f6")
    each = 36 * axes.figure.bbox.height / axes.figure.dpi / len(labels)  # a line of its own
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=min(7.5, each))
    axes.set_yticks(range(len(labels)), labels, fontsize=min(7.5, each))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for i in range(1, len(owners)):
        if owners[i] != owners[i - 1]:
            axes.axhline(i - 0.5, color=INK, lw=1.2)
            axes.axvline(i - 0.5, color=INK, lw=1.2)
    for party in dict.fromkeys(owners):
        middle = float(np.mean([i for i, owner in enumerate(owners) if owner == party]))
        where = (middle, -0.8, label(party))
        axes.text(*where, fontsize=8, ha="center", va="bottom", color=INK, weight="bold")


def pairs(
    encoder: TableEncoder,
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    found: Associations,
    rng: np.random.Generator,
    target: Hashable = None,
) -> list[Picture]:
    """Draw the strongest real relations, those across parties first; one is the target's."""
    table = found.pairs.dropna(subset=["error"]) if len(found.names) > 1 else pd.DataFrame()
    if table.empty:
        return []
    table = table.assign(strength=table["real"].abs()).sort_values(
        "strength", ascending=False, kind="stable"
    )
    if found.owner is None:
        chosen = table.head(MOST_PAIRS)
    else:
        across = table[table["scope"] == "across"].head(min(4, MOST_PAIRS))
        within = table[table["scope"] == "within"].head(MOST_PAIRS - len(across))
        chosen = pd.concat([across, within])
    of_target = table[[target in pair for pair in zip(table["column_a"], table["column_b"])]]
    if len(of_target) and not of_target.index.intersection(chosen.index).size:
        chosen = pd.concat([chosen.head(MOST_PAIRS - 1), of_target.head(1)])
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
            draw_relation(axes, a, b, frame, colour, rng, limits)
            strength = row[word]
            axes.set_title(f"{word} {strength:.2f}", fontsize=8, color=colour, loc="left")
            axes.set_xlabel(label(a.name, 22), fontsize=7.5)
        left.set_ylabel(label(b.name, 20), fontsize=7.5)
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
    encoder: TableEncoder, real: pd.DataFrame, synthetic: pd.DataFrame, rng: np.random.Generator
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
    low, high = span(np.vstack(planes))
    for axes, drawn, word in zip(
        panels,
        ([(planes[0], REAL)], [(planes[1], SYNTHETIC)], list(zip(planes, (REAL, SYNTHETIC)))),
        ("real", "synthetic", "both"),
    ):
        for points, colour in drawn:
            axes.scatter(*points.T, s=5, c=colour, alpha=0.4, lw=0, rasterized=True)
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
    """Draw the Fréchet distance and the losses over the epochs, where they are finite numbers."""
    epochs = history["epoch"] if "epoch" in history.columns else history.index.to_series()
    numbers = history.apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan)
    numbers = numbers.dropna(axis="columns", how="all")
    pictures = []
    if "frechet_distance" in numbers:
        distance = numbers["frechet_distance"].to_numpy(dtype=np.float64)
        best = int(np.nanargmin(distance))
        lowest = float(distance[best])
        figure, axes = new_figure(4.4, 2.4)
        axes.plot(epochs, distance, color=SYNTHETIC, lw=1.2)
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
        pictures.append(
            Picture(
                "Fréchet distance during training (lower is better)",
                f"Fréchet distance over epochs; the lowest is {number_text(lowest)}.",
                encode_svg(figure),
            )
        )
    losses = [str(name) for name in numbers if "loss" in str(name) or "wasserstein" in str(name)]
    if losses:
        figure, axes = new_figure(4.4, 2.4)
        for name in losses[:8]:
            axes.plot(epochs, numbers[name].to_numpy(dtype=np.float64), lw=1.0, label=name)
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
