"""Every notebook runs from top to bottom, and gives what its committed outputs show."""

import re
import runpy
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXECUTED = runpy.run_path(str(ROOT / "docs" / "execute_notebooks.py"))["executed"]
QUICK = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import conftest, pytest
patch = pytest.MonkeyPatch()
conftest.quicken(patch)
patch.setattr("vflsynth.evaluation.pictures.encode_svg", lambda figure: "data:,")
patch.setattr("vflsynth.methods.pairwise.column_codes.Detail.n_steps", 30)
"""
"""Run before each: few steps where only digits show how many, and reports without pictures."""
NOISY = "fresh noise"
"""Tag of cells whose words depend on noise that no seed gives: which attack was best."""


def shape(outputs):
    """Return what a reader sees, without digits: machines differ in the last ones."""
    found = []
    for output in outputs:
        if output["output_type"] == "stream":
            found.append((output["name"], words(output["text"])))
        elif "image/png" in output["data"]:
            found.append("a picture")
        else:
            found.append(("text", words(output["data"]["text/plain"])))
    return found


def words(text):
    return re.findall(r"[^\W\d_]+", re.sub(r"\b\d[\d.]*e[+-]?\d+\b", "", text))


@pytest.mark.parametrize("first", [QUICK, pytest.param("", marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_gives_what_it_shows(path, first):
    kept, now = nbformat.read(path, as_version=4), EXECUTED(path, first)
    for before, after in zip(kept.cells, now.cells, strict=True):
        if before.cell_type == "code":
            if NOISY not in before.metadata.get("tags", ()):
                assert shape(before.outputs) == shape(after.outputs), before.source
            assert [o.output_type for o in before.outputs] == [o.output_type for o in after.outputs]
            assert "stderr" not in [output.get("name") for output in after.outputs]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_with_outputs_and_small(path):
    cells = nbformat.read(path, as_version=4).cells
    assert any(
        "image/png" in output.get("data", ()) for c in cells for output in c.get("outputs", ())
    )
    assert path.stat().st_size < 500_000


def test_a_changed_output_is_seen():
    told = [{"output_type": "stream", "name": "stdout", "text": "1 of 2 records"}]
    assert shape(told) == shape([told[0] | {"text": "3 of 4 records"}])
    assert shape(told) != shape([told[0] | {"text": "3 of 4 rows"}])
    assert shape(told) != shape([])


def test_there_are_notebooks():
    assert NOTEBOOKS
