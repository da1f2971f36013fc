"""Pages and pictures: one HTML file that needs no network, and images inside it.

Evaluation, audits and leakage reports fill them; nothing in here knows what they show.
"""

from vflsynth.reporting.page import Page, render, require_packages
from vflsynth.reporting.pictures import (
    GRID,
    INK,
    REAL,
    SYNTHETIC,
    Picture,
    encode_svg,
    new_figure,
    style_axes,
)
from vflsynth.reporting.words import (
    duration_text,
    number_text,
    progress_bar,
    size_text,
    somebody_is_watching,
)

__all__ = [
    "GRID",
    "INK",
    "REAL",
    "SYNTHETIC",
    "Page",
    "Picture",
    "duration_text",
    "encode_svg",
    "new_figure",
    "number_text",
    "progress_bar",
    "render",
    "require_packages",
    "size_text",
    "somebody_is_watching",
    "style_axes",
]
