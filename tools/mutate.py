"""Whether tests notice what must not change: small faults, one at a time, in a copy of the tree.

A mutant is a piece of one function's text and what it becomes; ``mutants.toml`` lists them.
Functions are found by name, wherever they are; a text that is there no more, or twice, ends the run
before it begins. A mutant is killed if the tests of its group fail with it. Results are kept in
``.pytest_cache`` while function and tests stay as they are: an interrupted run goes on.

Exit status: 0; 1 if fewer than 95 % are killed; 2 if a mutant cannot be made, or tests fail
without one.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".pytest_cache" / "mutants.json"
LEAST = 0.95
SAID = "said.txt"
"""What tests print, in the copy."""


@dataclass(frozen=True)
class Mutant:
    """One fault: where, of which text, and which tests are to notice it."""

    where: str
    text: str
    becomes: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: {self.text!r} -> {self.becomes!r}"


def mutants() -> list[Mutant]:
    """All of them."""
    content = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text(encoding="utf-8"))
    return [Mutant(*own, tuple(g["tests"])) for g in content["group"] for own in g["mutants"]]


def functions(root: Path) -> dict[str, list[tuple[Path, int, int]]]:
    """Find all functions of the package: by qualified name, files and offsets of their texts."""
    found: dict[str, list[tuple[Path, int, int]]] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                own = f"{name}{child.name}"
                if isinstance(child, ast.FunctionDef):
                    place = path, starts[child.lineno - 1], starts[child.end_lineno or 0]
                    found.setdefault(own, []).append(place)
                visit(child, f"{own}.")

    for path in sorted((root / "vflsynth").rglob("*.py")):
        text, starts = path.read_text(encoding="utf-8"), [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        visit(ast.parse(text), "")
    return found


def changed(mutant: Mutant, known: dict[str, list[tuple[Path, int, int]]]) -> tuple[Path, str, str]:
    """Return the file, the text of its function, and the whole file's text with the fault.

    Raises
    ------
    LookupError
        If there is not one such function, or its text is not there once.
    """
    stem, _, name = mutant.where.rpartition(":")
    places = [place for place in known.get(name, ()) if stem in ("", place[0].stem)]
    if len(places) != 1:
        raise LookupError(f"{mutant}: {len(places)} functions have that name")
    path, start, end = places[0]
    text = path.read_text(encoding="utf-8")
    if (times := text[start:end].count(mutant.text)) != 1:
        raise LookupError(f"{mutant}: {path.relative_to(path.parents[-2])} has it {times} times")
    at = text.index(mutant.text, start)
    return path, text[start:end], text[:at] + mutant.becomes + text[at + len(mutant.text) :]


def test_files(root: Path, tests: Sequence[str]) -> list[Path]:
    """Return the test files that a group names, without suffix, or the files of a folder."""
    files = []
    for name in tests:
        folder = root / "tests" / name
        is_folder = folder.is_dir()
        files += sorted(folder.glob("test_*.py")) if is_folder else [folder.with_suffix(".py")]
    for file in files:
        if not file.exists():
            raise LookupError(f"there is no {file.relative_to(root)}")
    return files


def check(root: Path, chosen: Sequence[Mutant]) -> None:
    """Raise LookupError unless every mutant can be made, and its tests are there."""
    known = functions(root)
    for mutant in chosen:
        changed(mutant, known)
        test_files(root, mutant.tests)


def _pytest(root: Path, tests: Sequence[str]) -> None:
    """Run tests in a process of their own, of the copy at `root`."""
    import pytest

    os.chdir(root)
    sys.path.insert(0, str(root))
    os.environ["PYTHONPATH"] = str(root)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-o", "timeout=0"]
    with open(root / SAID, "w") as said, redirect_stdout(said), redirect_stderr(said):
        code = pytest.main([*options, *map(str, test_files(root, tests))])
    os._exit(int(code))


def run(root: Path, tests: Sequence[str], limit: float | None) -> tuple[bool, float]:
    """Return whether tests pass, and after how many seconds; not if they take longer than that."""
    began = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=_pytest, args=(root, tests))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode == 0, time.monotonic() - began


def copy_tree(root: Path) -> None:
    """Copy what git knows of, or would."""
    names = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(names, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)


def outcomes(root: Path, chosen: Sequence[Mutant]) -> Iterator[tuple[Mutant, bool]]:
    """Say of each mutant whether it is killed; what is known from an earlier run, at once."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known, limits = functions(root), {}
    for mutant in chosen:
        path, function, faulty = changed(mutant, known)
        parts = [str(mutant), function, *(f.read_text() for f in test_files(root, mutant.tests))]
        key = sha256("\0".join(parts).encode()).hexdigest()
        if key not in results:
            if mutant.tests not in limits:
                passes, seconds = run(root, mutant.tests, None)
                if not passes:
                    said = (root / SAID).read_text()[-3000:]
                    raise LookupError(f"{' '.join(mutant.tests)} fail without a mutant:\n{said}")
                limits[mutant.tests] = 60.0 + 10.0 * seconds
            right = path.read_text(encoding="utf-8")
            path.write_text(faulty, encoding="utf-8")
            results[key] = not run(root, mutant.tests, limits[mutant.tests])[0]
            path.write_text(right, encoding="utf-8")
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results))
        yield mutant, results[key]


def main() -> int:
    """Run the mutants whose names have a word in them, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("word", nargs="?", default="", help="of a mutant's function or tests")
    word = parser.parse_args().word
    chosen = [m for m in mutants() if word in f"{m} {m.tests}"]
    for module in ("pandas", "pytest", "scipy.stats", "sklearn.base", "torch"):
        importlib.import_module(module)  # once: processes of tests are forks of this one
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(root := Path(folder))
        try:
            check(root, chosen)
            found = []
            for mutant, killed in outcomes(root, chosen):
                found.append(killed)
                print(f"{'killed  ' if killed else 'SURVIVED'} {mutant}", flush=True)
        except LookupError as error:
            print(f"cannot go on: {error}")
            return 2
    share = sum(found) / max(1, len(found))
    print(f"{sum(found)} of {len(found)} mutants are killed: {share:.1%}")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())
