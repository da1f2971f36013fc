"""The pages that describe messages and mechanisms have the tables that the declarations make."""

import importlib
import runpy
from pathlib import Path

import pytest

from vflsynth.protocol.channel import MESSAGES

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made():
    """What `docs/make_tables.py` has; not at import, as every process imports every test."""
    return runpy.run_path(str(ROOT / "docs" / "make_tables.py"))


def test_pages_have_the_tables_that_are_made(made):
    for page, table in made["made_tables"]().items():
        assert f"<!-- made table -->\n\n{table}\n\n<!-- end of made table -->" in (
            ROOT / page
        ).read_text(encoding="utf-8"), f"{page}: run python docs/make_tables.py"


def test_an_old_table_is_replaced(made):
    page = "before\n<!-- made table -->\n\n| old |\n\n<!-- end of made table -->\nafter\n"
    assert made["with_table"](page, "| new |") == page.replace("old", "new")


def test_the_page_of_messages_has_them_all_and_what_pays(monkeypatch):
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    page = runpy.run_path(str(ROOT / "docs" / "made_pages.py"))["messages_page"]()
    leaving, _, every = page.partition("## Every message")
    own = [kind for kind in MESSAGES.values() if kind.__module__.startswith("vflsynth.")]
    assert own
    assert not [kind.__name__ for kind in own if f"\n| {kind.__name__} |" not in every]
    assert "PairwiseTables: masked, “pairs” pays" in leaving


def test_a_page_shows_what_its_module_has():
    shown = runpy.run_path(str(ROOT / "docs" / "made_pages.py"))["SHOWN"]
    for page, names in shown.items():
        module = importlib.import_module(f"vflsynth.{page}")
        assert [name for name in names if not hasattr(module, name)] == []
