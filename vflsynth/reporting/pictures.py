"""What all pictures share: colours, axes, and images inside the page. No global plotting state."""

from __future__ import annotations

import base64
import io
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REAL, SYNTHETIC, INK, GRID = "#2b5c8a", "#d9741a", "#33404d", "#e3e7eb"

_IN_THE_DARK = {
    REAL: "#7fb2e5",
    SYNTHETIC: "#f0964a",
    INK: "#e6eaee",
    GRID: "#36404a",
    "#aab4be": "#77838f",
    "#f2f4f6": "#252d36",
    "#ffffff": "#1d232a",
    "#000000": "#e6eaee",
}
"""Colours of pictures on a dark page; others stay as they are."""


class Picture(NamedTuple):
    """An image with its words: a title, what a reader who cannot see it needs, a ``data:`` URI."""

    title: str
    alt: str
    source: str


def new_figure(width: float, height: float, panels: int | None = None) -> tuple[Figure, Any]:
    """Return a figure and its axes: one, or an array of `panels` side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels or 1, squeeze=False)[0]
    for each in axes:
        style_axes(each)
    return figure, axes if panels else axes[0]


def style_axes(axes: Axes) -> None:
    """Give axes the look of all our pictures."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#aab4be")
    axes.tick_params(labelsize=6.5, colors=INK, length=2, color="#aab4be")
    axes.grid(visible=True, color=GRID, lw=0.6)
    axes.set_axisbelow(True)


def encode_svg(figure: Figure) -> str:
    """Return a figure as a ``data:`` URI, equal for equal figures; in the dark it is dark."""
    import matplotlib

    out = io.BytesIO()
    # Text as text: half the bytes, and sharp in print. Fonts other than the one measured with are
    # mostly narrower.
    with (
        matplotlib.rc_context({"svg.hashsalt": "vflsynth", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        # Names in scripts that the font lacks are drawn as boxes; that is no reason to fail.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(out, format="svg", dpi=144, metadata={"Date": None, "Creator": None})
    text = _following_the_page(out.getvalue().decode("utf-8"))
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode("ascii")


def _following_the_page(svg: str) -> str:
    """Make colours variables, whose values depend on whether the page around is dark."""
    light = dark = ""
    for number, (colour, other) in enumerate(_IN_THE_DARK.items()):
        svg = svg.replace(colour, f"var(--c{number})")
        light, dark = f"{light}--c{number}:{colour};", f"{dark}--c{number}:{other};"
    ink = [*_IN_THE_DARK].index("#000000")  # matplotlib leaves black out
    style = (
        f"svg{{{light}}}text{{fill:var(--c{ink})}}"
        f"@media screen and (prefers-color-scheme:dark){{svg{{{dark}}}}}"
    )
    return svg.replace('<style type="text/css">', f'<style type="text/css">{style}', 1)
