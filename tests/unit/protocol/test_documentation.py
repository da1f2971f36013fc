"""The pages that describe messages have the tables that the declarations make."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MADE = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))
TABLES = MADE["made_tables"]()


@pytest.mark.parametrize("page", TABLES)
def test_a_page_has_the_table_that_is_made(page):
    assert f"<!-- made table -->\n\n{TABLES[page]}\n\n<!-- end of made table -->" in (
        ROOT / page
    ).read_text(encoding="utf-8"), "run python docs/make_tables.py"


def test_an_old_table_is_replaced():
    page = "before\n<!-- made table -->\n\n| old |\n\n<!-- end of made table -->\nafter\n"
    assert MADE["with_table"](page, "| new |") == page.replace("old", "new")
