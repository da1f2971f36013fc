"""What the tutorial on audits quotes is on the page that it reads."""

import html
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_quotes_are_on_the_page():
    page = re.sub(r"<[^>]+>", "", (DOCS / "gallery" / "audit.html").read_text(encoding="utf-8"))
    page = " ".join(html.unescape(page).split())
    text = (DOCS / "tutorials" / "audit.md").read_text(encoding="utf-8")
    quotes = re.findall(r"^> (.+)$", text, re.M)
    assert len(quotes) >= 7
    assert not [quote for quote in quotes if quote not in page]
