"""Pages, pictures and words: one HTML file that needs no network, and images inside it.

Evaluation, audits and leakage reports fill them; nothing in here knows what they show, and there is
no global plotting state.
"""

from __future__ import annotations

import base64
import html
import io
import logging
import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import MissingExtraError

if TYPE_CHECKING:
    from markupsafe import Markup
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


class Page:
    """One HTML file that needs no other: no network, no script.

    A subclass may make the `html` when it is first asked for.
    """

    def __init__(self, html: str) -> None:
        self._html = str(html)  # not Markup, which would pass through html.escape() as it is

    @property
    def html(self) -> str:
        """The page as text."""
        return self._html

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, whole or not at all; an existing file is replaced.

        Raises ArtefactError if it cannot be written.
        """
        path = Path(path)
        artefacts.replace_text(path, self.html)
        return path

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's styles away from the notebook's.
        return (
            f'<iframe title="Report" srcdoc="{html.escape(self.html)}" '
            'style="width:100%;height:48rem;border:1px solid #d5dbe1"></iframe>'
        )


def require_packages(feature: str) -> None:
    """Raise MissingExtraError unless everything that pages need is installed."""
    for package in ("matplotlib", "jinja2"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError(feature, package, "report") from error


def render(package: str, template: str, **values: Any) -> Markup:
    """Fill a template of a package; every text is escaped, but what a template made already.

    It may extend ``base.html``, the frame of all pages, and use ``css``, their style; all else that
    it uses must be given. Raises MissingExtraError without jinja2.
    """
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError as error:
        raise MissingExtraError("a page", "jinja2", "report") from error
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=DictLoader({"base.html": _read("vflsynth.reporting", "base.html")}),
    )
    # A long name may break after underscores, and not inside words.
    environment.filters["name"] = lambda name: Markup(str(escape(name)).replace("_", "_<wbr>"))
    css = Markup(_read("vflsynth.reporting", "page.css"))
    return Markup(environment.from_string(_read(package, template)).render(css=css, **values))


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def progress_bar(**options: Any) -> Any:
    """Return a bar of tqdm: a notebook's own kind in notebooks that have ipywidgets."""
    with warnings.catch_warnings(action="ignore"):  # there may be no ipywidgets
        from tqdm.auto import tqdm
    options.setdefault("mininterval", 0.1 if somebody_is_watching() else 10.0)
    return tqdm(**options)


def somebody_is_watching() -> bool:
    """Whether standard error is a terminal, or a notebook shows it."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def quiet(level: int = logging.WARNING, name: str = "vflsynth") -> Iterator[None]:
    """Log nothing below a level: what trainings nobody asked for say is of no interest."""
    logger = logging.getLogger(name)
    usual = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(usual)


def number_text(value: float | None, digits: int = 3) -> str:
    """Write a number for people: no exponent, thousands apart, a true minus, a dash for none.

    Examples
    --------
    >>> number_text(0.12345), number_text(46512.3), number_text(-6e-5), number_text(None)
    ('0.123', '46,512', '−0.00006', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(size))) if size >= 1e-6 else 0
    text = f"{value:,.{decimals}f}".replace("-", "−")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "−0" else text


def duration_text(seconds: float) -> str:
    """Write seconds for people.

    Examples
    --------
    >>> duration_text(42), duration_text(600), duration_text(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size_text(n_bytes: int) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> size_text(900), size_text(12_345), size_text(3_000_000)
    ('900 B', '12.3 kB', '3 MB')
    """
    value, units = float(n_bytes), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"
