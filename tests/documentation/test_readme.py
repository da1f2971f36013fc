"""The README is short, its table is measured, and its links lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_is_short():
    assert len(re.sub(r"<!--.*?-->", "", README).split()) < 900


def test_its_table_of_five_is_filled_in_from_the_results():
    table = re.search(r"\| what \| measured \|.*?\n\n", README, re.S)[0]
    assert len(table.strip().splitlines()) == 2 + 5
    assert len(re.findall(r"<!--= .+? -->[\d.]+<!--/-->", table)) >= 9


def test_its_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link.partition("#")[0]).exists()]
