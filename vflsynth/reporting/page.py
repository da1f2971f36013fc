"""Self-contained HTML pages: how they are filled, kept, and shown in a notebook."""

from __future__ import annotations

import html
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsynth.exceptions import MissingExtraError

if TYPE_CHECKING:
    from markupsafe import Markup


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
        """Write the page to a file, whole or not at all; an existing file is replaced."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            partial.write_text(self.html, encoding="utf-8")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
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
    it uses must be given.
    """
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=DictLoader({"base.html": _read("vflsynth.reporting", "base.html")}),
    )
    environment.filters["name"] = _with_breaks
    css = Markup(_read("vflsynth.reporting", "page.css"))
    return Markup(environment.from_string(_read(package, template)).render(css=css, **values))


def _with_breaks(name: object) -> Markup:
    """Let a long name break after underscores, and not inside words."""
    from markupsafe import Markup, escape

    return Markup(str(escape(name)).replace("_", "_<wbr>"))


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
