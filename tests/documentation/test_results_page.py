"""The tables of results are sorted and lose nothing; the pages are those of the tables."""

import importlib
import json
import pkgutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import benchmarks
from benchmarks import _results, all_results
from benchmarks._commands import commands
from benchmarks.all_results import pages

ROOT = Path(__file__).parents[2]
RECORDED = _results.RESULTS
SCRIPTS = [
    module.name
    for module in pkgutil.iter_modules(benchmarks.__path__)
    if not module.name.startswith("_") and module.name != "plain_vflgan"
]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Tables of results in an empty folder."""
    monkeypatch.setattr(_results, "RESULTS", tmp_path)
    return tmp_path


def cell(seed, **more):
    return {"data": "red-wine", "method": "vflgan", "settings": "default", "seed": seed, **more}


def test_the_pages_of_results_are_up_to_date():
    stale = [
        path.name for path, text in pages().items() if path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run: python -m benchmarks.all_results"


def test_what_is_shipped_is_what_is_made():
    """In a process of its own: tests register classes, which schemas then name."""
    script = "import runpy; made = runpy.run_path('docs/make_tables.py')['shipped_files']()"
    script += "; print(*(path for path, text in made.items() if path.read_text() != text))"
    differ = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, text=True, stdout=-1
    )
    assert not differ.stdout.split(), "run python docs/make_tables.py"


@pytest.mark.slow
def test_a_page_tells_what_the_tables_have(monkeypatch):
    recorded = all_results.rows
    changed = [{**row, "rows_per_cpu_second": 7} for row in recorded("sampling")]
    monkeypatch.setattr(
        all_results, "rows", lambda table: changed if table == "sampling" else recorded(table)
    )
    (made,) = [text for path, text in pages().items() if path.name == "cost.md"]
    assert "columns: 7 rows per second" in made


@pytest.mark.parametrize("table", _results.KEYS)
def test_tables_are_sorted_by_key_without_doubles(table, results):
    recorded = (RECORDED / f"{table}.jsonl").read_bytes()
    (results / f"{table}.jsonl").write_bytes(recorded)
    _results.put(table)
    assert (results / f"{table}.jsonl").read_bytes() == recorded


def test_every_file_of_results_is_a_table_or_a_picture():
    files = [path for path in RECORDED.rglob("*") if path.is_file()]
    assert {path.stem for path in files if path.suffix == ".jsonl"} == set(_results.KEYS)
    assert {path.suffix for path in files} == {".jsonl", ".png", ".svg"}


def test_a_row_replaces_the_one_with_its_key_and_numbers_stay_exact(results):
    _results.put("table1", cell(1, distance=0.1), cell(0, distance=1 / 3))
    _results.put("table1", cell(1, distance=1e-17), {**cell(0), "settings": None})
    found = _results.rows("table1")
    assert [(row["settings"], row["seed"]) for row in found] == [
        (None, 0), ("default", 0), ("default", 1),
    ]  # fmt: skip
    assert [row["distance"] for row in found[1:]] == [1 / 3, 1e-17]
    assert all("commit" in row and "versions" in row for row in found)
    assert not list(results.glob("*.tmp"))


def test_cells_have_the_seeds_and_missing_ones_are_told(results):
    assert _results.missing("table1", [0, 1], data="red-wine") == [0, 1]
    _results.put("table1", cell(1, distance=0.5), cell(3, distance=1.5))
    ((key, frame),) = _results.cells("table1").items()
    assert key == ("red-wine", "vflgan", "default")
    assert frame["distance"].mean() == 1.0
    assert [row["seed"] for row in _results.rows("table1")] == [1, 3]
    assert _results.missing("table1", [0, 1, 2, 3], data="red-wine") == [0, 2]
    assert _results.missing("table1", [1], data="white-wine") == [1]


def test_writers_at_once_lose_no_rows(results, monkeypatch):
    monkeypatch.setattr(_results, "environment", dict)  # asks git, which takes most of the time
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda seed: _results.put("table1", cell(seed)), range(100)))
    assert [row["seed"] for row in _results.rows("table1")] == list(range(100))


def test_a_row_without_its_key_or_with_a_number_that_is_not_finite_is_refused(results):
    _results.put("table1", cell(0))
    before = (results / "table1.jsonl").read_bytes()
    with pytest.raises(KeyError, match="seed"):
        _results.put("table1", {"data": "red-wine", "method": "vflgan", "settings": "default"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        _results.put("table1", cell(1, distance=float("nan")))
    assert (results / "table1.jsonl").read_bytes() == before
    assert json.loads(before)["seed"] == 0


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_explains_itself(script, monkeypatch, capsys):
    module = importlib.import_module(f"benchmarks.{script}")
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert module.__doc__.splitlines()[0] in capsys.readouterr().out


def test_commands_that_differ_in_one_list_become_one():
    runs = [{"data": data, "epsilon": 10.0, "seeds": [0, 1]} for data in ("a", "b")]
    assert commands("dp run", runs, ["data"]) == ["dp run --data a b --epsilon 10 --seeds 0 1"]
