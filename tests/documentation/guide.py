"""The pages of the user guide, and what of them is prose."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "research"

COMMENT = re.compile(r"<!--.*?-->", re.S)
CODE = re.compile(r"^( *)```.*?^\1```", re.S | re.M)


def guide():
    """Return name and text of every page: what people write in Markdown, and in notebooks."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    pages = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(paths)
        if RECORD not in path.parents and path.name != "CHANGELOG.md"
    }
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        pages[path.relative_to(ROOT).as_posix()] = "\n\n".join(texts)
    return pages


def prose(text):
    """Return a page without its blocks of code and its comments."""
    return COMMENT.sub("", CODE.sub("", text))
