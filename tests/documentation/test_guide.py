"""The guide stays short, the record apart from it, and decisions within six lines."""

import re

import pytest

from tests.documentation.guide import RECORD, ROOT, guide, prose
from vflsynth.methods.autoregressive.messages import ContextParts

MOST_WORDS = 20_000
PAGES = guide()
HISTORY = re.compile(
    r"\b(measured again|no longer|used to be|until then|at first|in the past|"
    r"previously|formerly|as before|than before|of before|of now)\b",
    re.I,
)


def test_the_guide_has_at_most_so_many_words():
    words = {name: len(prose(text).split()) for name, text in PAGES.items()}
    longest = sorted(words, key=words.get)[-5:]
    assert sum(words.values()) <= MOST_WORDS, f"longest: {longest}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_tells_no_history(page):
    assert not HISTORY.findall(prose(PAGES[page]))


def test_the_protocol_says_of_how_many_records_the_server_sees_numbers():
    """Parts of contexts are of all records; noise comes from the server."""
    assert "without noise: the server adds" in ContextParts.declared.tells
    page = PAGES["docs/explanation/protocol.md"]
    (row,) = re.findall(r"^\| autoregressive.*$", page, re.M)
    assert row.endswith("numbers of all, **without noise** | once |")
    assert "records and some numbers of all" in PAGES["docs/explanation/threat-model.md"]


def test_every_kind_of_page_is_counted():
    assert {"README.md", "docs/organisations.md", "notebooks/01_quickstart.ipynb"} < set(PAGES)
    assert any(name.startswith("docs/how-to/extend/") for name in PAGES)
    assert not [name for name in PAGES if "research" in name]


def decisions():
    text = (RECORD / "decisions.md").read_text(encoding="utf-8")
    return dict(part.split("\n", 1) for part in re.split(r"^## ", text, flags=re.M)[1:])


@pytest.mark.parametrize("title", decisions())
def test_a_decision_has_at_most_six_lines(title):
    lines = decisions()[title].strip().splitlines()
    assert len(lines) <= 6
    assert max(map(len, lines)) <= 120


def test_what_was_tried_has_a_line_each():
    lines = (RECORD / "tried.md").read_text(encoding="utf-8").splitlines()
    tried = [line for line in lines if line.startswith("- ")]
    assert len(tried) > 40
    assert max(map(len, tried)) <= 160
    assert not [line for line in lines if line.startswith("  ")]


def test_the_changelog_says_what_the_package_does():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (first,) = re.findall(r"^## \[0\.1\.0\].*?(?=^## |\Z)", text, re.S | re.M)
    assert len(first.split()) < 1_000
    assert not HISTORY.findall(first)
