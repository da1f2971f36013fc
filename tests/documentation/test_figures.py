"""Every figure on a page of the guide is that of the results, and says where it comes from."""

import re
from pathlib import Path

import pytest

from benchmarks import figures
from tests.documentation.guide import ROOT, guide, prose

PAGES = guide()
WRITTEN = {path.relative_to(ROOT).as_posix(): path for path in figures.pages()}
MARKED = {page for page, path in WRITTEN.items() if figures.MARKED.search(path.read_text("utf-8"))}

MEASURED = re.compile(
    r"(?<![\w.,/-])(?:\d*\.\d+|\d[\d,]*)\s?"
    r"(?:%|times\b|ms\b|milliseconds?\b|seconds?\b|minutes?\b|hours?\b|[kMG]i?B\b|rows per\b)"
    r"|(?<![\w.,/-])\d*\.\d+(?!\w|\.\d)",
    re.A,
)
"""Decimals, percentages, and numbers with a unit of time or size."""

NO_MEASUREMENT = {
    "README.md": {"3.11", "2404.09722", "10.24432"},
    "docs/explanation/data-protection.md": {"2.7"},
    "docs/explanation/privacy.md": {".01"},
    "docs/how-to/far-apart.md": {"50 ms", "80 MB"},
    "docs/how-to/many-records.md": {"90 %"},
    "docs/how-to/operate.md": {"8 GiB"},
    "docs/organisations.md": {"16 MiB", "256 MiB", "60 seconds"},
    "notebooks/03_privacy.ipynb": {"2.7"},
}
"""Numbers that nobody measured: defaults, versions, definitions, what the reader does."""


def unmarked(text):
    """Return what looks measured and is not marked, in the prose of a page."""
    text = figures.MARKED.sub("", text)
    text = re.sub(r"`[^`]*`|^> .*$|\]\([^)]*\)|\$[^$]*\$", "", prose(text), flags=re.M)
    return {" ".join(found.split()) for found in MEASURED.findall(text)}


@pytest.mark.parametrize("page", sorted(MARKED))
def test_the_figures_of_a_page_are_those_of_the_results(page):
    text = WRITTEN[page].read_text(encoding="utf-8")
    assert figures.with_figures(text) == text, "run: python -m benchmarks.figures"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_no_figure_of_a_page_stands_unmarked(page):
    assert unmarked(PAGES[page]) <= NO_MEASUREMENT.get(page, set())


def test_numbers_that_are_excused_are_there():
    assert not [
        (page, number)
        for page, numbers in NO_MEASUREMENT.items()
        for number in numbers - unmarked(PAGES[page])
    ]


@pytest.mark.parametrize(
    "text",
    [
        "It scores .97.",
        "it scores 0.97 there",
        "5 % of rows",
        "It takes 3.5 MB",
        "12 seconds",
        "9,000 rows per second",
    ],
)
def test_a_figure_without_a_mark_is_seen(text):
    assert unmarked(text)


def test_marked_ones_code_and_links_are_not():
    text = (
        "<!--= sampling vflgan columns .1f -->20.0<!--/--> `x=0.5` [a](b-0.3.md)\n\n```\n0.7\n```\n"
    )
    assert not unmarked(text)


def test_a_changed_result_is_filled_in(monkeypatch):
    text = "<!--= sampling vflgan rows_per_cpu_second ~2 -->1<!--/--> rows"
    monkeypatch.setattr(
        figures, "rows", lambda table: [{"method": "vflgan", "rows_per_cpu_second": 123456}]
    )
    assert figures.with_figures(text).endswith("-->120,000<!--/--> rows")


def test_a_cell_that_nobody_measured_is_an_error():
    with pytest.raises(ValueError, match="no results for"):
        figures.figure("sampling nobody rows ~2")


@pytest.mark.parametrize("name", figures.MADE)
def test_what_is_made_is_shown_somewhere(name):
    texts = (Path(path).read_text(encoding="utf-8") for path in WRITTEN.values())
    assert any(f"<!--= made {name} -->" in text for text in texts)
