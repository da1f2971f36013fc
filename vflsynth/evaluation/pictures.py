"""The report's pictures: tables and numbers in, self-contained images out."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd

from vflsynth.evaluation.association import Associations
from vflsynth.evaluation.columns import CategoricalColumn, NumericColumn, TableEncoder
from vflsynth.evaluation.drawing import (
    curves_of,
    draw_column,
    draw_curves,
    draw_distance,
    draw_map,
    draw_relation,
    label,
    maps_of,
    span,
)
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
    """Draw the association matrices of both tables and their difference, ordered by party."""
    alts = {
        "Real": "Associations between all pairs of columns in the real table.",
        "Synthetic": "Associations between all pairs of columns in the synthetic table.",
        "Difference (absolute)": "Absolute differences between the two maps; pale is good.",
    }
    drawn = []
    shown = _in_map(found, target)
    side = max(4.3, 0.17 * len(shown) + 1.3)  # inches: each label has a line of its own
    for title, map_ in maps_of(found, shown).items():
        figure, axes = new_figure(side, side + 0.3)
        draw_map(axes, map_)
        drawn.append(Picture(title, alts[title], encode_svg(figure)))
    return drawn


def _in_map(found: Associations, target: Hashable) -> list[int]:
    """Return positions of the columns to show: all, or the target and those furthest off."""
    off = np.nan_to_num(np.abs(found.real - found.synthetic))
    np.fill_diagonal(off, 0.0)
    worst = np.argsort(-off.max(axis=1, initial=0.0), kind="stable").tolist()
    worst.sort(key=lambda i: found.names[i] != target)
    return sorted(worst[:MOST_IN_MAP])


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
        across = table[table["scope"] == "across"].head(4)
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
    low, high = span(np.vstack(planes))
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
    epochs, curves = curves_of(history)
    pictures = []
    if "frechet_distance" in curves:
        figure, axes = new_figure(4.4, 2.4)
        lowest = draw_distance(axes, epochs, curves["frechet_distance"])
        pictures.append(
            Picture(
                "Fréchet distance during training (lower is better)",
                f"Fréchet distance over epochs; the lowest is {number_text(lowest)}.",
                encode_svg(figure),
            )
        )
    losses = {n: curve for n, curve in curves.items() if "loss" in n or "wasserstein" in n}
    if losses:
        figure, axes = new_figure(4.4, 2.4)
        draw_curves(axes, epochs, losses)
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
