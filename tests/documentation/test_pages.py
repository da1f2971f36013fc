"""Every Python block of the README and of the documentation runs, as a reader would run it.

Blocks of a page share their names. A block with ``>>>`` must print what it shows, as a doctest; one
without must run. A block that needs what CI lacks says so in a comment before it,
``<!-- not run: why -->``.
"""

import doctest
import re
import sys
import types
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n+)?^```python[^\n]*\n(.*?)^```", re.M | re.S)
PAGES = sorted(
    path
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if BLOCK.search(path.read_text(encoding="utf-8"))
)


def name(path):
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch, quick_examples, short_searches):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "a_page", None)
    with mpl.rc_context({"backend": "agg"}):
        yield


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_blocks_of_a_page_run(path):
    run_blocks(path.read_text(encoding="utf-8"), name(path))


def run_blocks(text, page):
    # A module of its own, so that classes of a page are found by name, as those of a script are.
    module = sys.modules["a_page"] = types.ModuleType("a_page")
    names = vars(module)
    runner = doctest.DocTestRunner(verbose=False)
    for found in BLOCK.finditer(text):
        if found[1]:
            continue
        line = text.count("\n", 0, found.start(2))
        if ">>> " in found[2]:
            block = doctest.DocTestParser().get_doctest(found[2], names, page, page, line)
            printed = []
            block.globs = names
            runner.run(block, out=printed.append, clear_globs=False)
            assert not runner.summarize(verbose=False).failed, "".join(printed)
        else:
            code = compile("\n" * line + found[2], page, "exec")
            exec(code, names)


@pytest.mark.parametrize(
    "block",
    [">>> 1 + 1\n3\n", ">>> unknown\n", "assert False\n"],
    ids=["prints", "raises", "plain"],
)
def test_a_block_that_is_wrong_is_found(block):
    with pytest.raises(AssertionError):
        run_blocks(f"# A page\n\n```python\n{block}```\n", "page")


def test_blocks_share_names_unless_they_are_not_run():
    page = "```python\n>>> x = 1\n```\n\n```python\nassert x == 1\n```\n"
    run_blocks(page + "\n<!-- not run: needs a GPU -->\n```python\nassert False\n```\n", "page")
