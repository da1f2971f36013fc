"""Draw the picture of the README: python docs/make_pictures.py."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

INK, PALE = "#22303c", "#f4f6f8"
LAB, CLINIC, SERVER = "#2a6fbb", "#c8641b", "#5b6570"


def main() -> None:
    """Write docs/data-flow.svg, the same bytes each time."""
    figure = Figure(figsize=(10.4, 4.7), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 104), ylim=(0, 47))
    axes.axis("off")
    training(axes)
    axes.plot([63.5, 63.5], [2, 45], color="#d5dbe1", lw=1)
    sampling(axes)
    mpl.rcParams["svg.hashsalt"] = "vflsynth"
    target = Path(__file__).with_name("data-flow.svg")
    FigureCanvasSVG(figure).print_svg(target, metadata={"Date": None})


def training(axes: Axes) -> None:
    """Parties with their tables, the server, and the two messages of every step."""
    text(axes, 2, 44.3, "Training: rows stay where they are", size=12, weight="bold", ha="left")
    for y, name, color, discriminator, generator in (
        (25, "Laboratory", LAB, 27.2, 33.4),
        (3, "Clinic", CLINIC, 13.4, 7.2),  # mirrored, so that both discriminators face the server
    ):
        box(axes, 2, y, 32, 17, color)
        text(axes, 3.5, y + 14.8, name, color=color, weight="bold", ha="left")
        grid(axes, 4, y + 3, [color] * 3, rows=6)
        text(axes, 7.6, y + 1.5, "real rows", size=8)
        module(axes, 16.5, generator, "generator", color)
        module(axes, 16.5, discriminator, "discriminator", color)
        upper, lower = max(generator, discriminator), min(generator, discriminator) + 4.4
        fakes = ((21, upper), (21, lower))
        arrow(axes, *(fakes if generator > discriminator else fakes[::-1]), color)
        middle = discriminator + 2.2
        arrow(axes, (11.4, min(middle, y + 10.2)), (16.3, min(middle, y + 10.2)), color)
    box(axes, 50, 14, 12, 17, SERVER)
    text(axes, 56, 28.8, "Server", color=SERVER, weight="bold")
    text(axes, 56, 21.8, "shared\ndiscriminator", size=9)
    for start, end in ((30.4, 27), (16.6, 20)):
        arrow(axes, (28.2, start), (49.8, end), INK)
        arrow(axes, (49.8, end - 2), (28.2, start - 2), INK, dashed=True)
    text(axes, 42.5, 31.2, "intermediate\nfeatures", size=8)
    text(axes, 42.5, 13.9, "their\ngradients", size=8)
    arrow(axes, (28.5, 24.7), (28.5, 20.3), INK, both=True)
    text(axes, 27.6, 22.5, "shared secret: same batches, same latents", size=8, ha="right")


def sampling(axes: Axes) -> None:
    """One latent, two generators, one table."""
    text(axes, 66, 44.3, "Sampling: one table", size=12, weight="bold", ha="left")
    text(axes, 67.5, 22.6, "latent z", size=9, ha="left")
    for y, name, color in ((31, "Laboratory", LAB), (11, "Clinic", CLINIC)):
        module(axes, 75, y, "generator", color)
        text(axes, 79.5, y + 6, name, size=8, color=color)
        arrow(axes, (70.5, 24 if y > 20 else 21.2), (74.8, y + 2.2), INK)
        arrow(axes, (84.3, y + 2.2), (88.6, 25 if y > 20 else 20.5), color)
    grid(axes, 89, 15.6, [LAB] * 3 + [CLINIC] * 3, rows=7, fill="66")
    text(axes, 96.2, 13.3, "synthetic rows,\nall columns", size=8.5, va="top")


def box(axes: Axes, x: float, y: float, width: float, height: float, color: str) -> None:
    """Draw what one organisation owns."""
    shape = "round,pad=0,rounding_size=1.2"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, fc=PALE, ec=color, lw=1.6))


def module(axes: Axes, x: float, y: float, name: str, color: str) -> None:
    """Draw a network."""
    width = 9 if name == "generator" else 11.5
    shape = "round,pad=0,rounding_size=2"
    axes.add_patch(FancyBboxPatch((x, y), width, 4.4, boxstyle=shape, fc="white", ec=color, lw=1.2))
    text(axes, x + width / 2, y + 2.1, name, size=9)


def grid(axes: Axes, x: float, y: float, colors: list[str], *, rows: int, fill: str = "cc") -> None:
    """Draw a table, one colour per column, with a darker header."""
    for column, color in enumerate(colors):
        for row in range(rows):
            alpha = "" if row == rows - 1 else fill if (row + column) % 2 else "44"
            corner = (x + 2.4 * column, y + 1.6 * row)
            axes.add_patch(Rectangle(corner, 2.4, 1.6, fc=f"{color}{alpha}", ec="white", lw=0.8))


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    color: str,
    *,
    dashed: bool = False,
    both: bool = False,
) -> None:
    """Draw what flows."""
    style = "<|-|>" if both else "-|>"
    line = (0, (3, 2)) if dashed else "-"
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle=style, mutation_scale=9, color=color, lw=1.2, ls=line
        )
    )


def text(
    axes: Axes,
    x: float,
    y: float,
    words: str,
    *,
    size: float = 10,
    color: str = INK,
    weight: str = "normal",
    ha: str = "center",
    va: str = "center",
) -> None:
    """Write."""
    axes.text(x, y, words, fontsize=size, color=color, weight=weight, ha=ha, va=va)


if __name__ == "__main__":
    main()
