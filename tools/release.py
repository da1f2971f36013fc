"""Build a release, check it, and try it out in clean environments. It publishes nothing.

    python tools/release.py [--pythons python3.11 python3.14 ...] [--only newest|lowest]

1. A wheel and a source distribution, from a copy of what is committed.
2. `twine check --strict` and `check-wheel-contents`.
3. The wheel in a new environment of each Python that is there, with the newest dependencies that
   `constraints.txt` has, and in one of the oldest Python with the lowest that `pyproject.toml`
   allows; there the demo, the commands' smoke tests and `vflsynth doctor`, and with the lowest the
   tests of tables.
4. A software bill of materials (CycloneDX) and a report of licences, of the newest environment.
5. The documentation of this version beside that of earlier ones, as a commit on the local branch
   `gh-pages`; `mike serve` shows it.

Pythons that are not on the machine are named at the end. Everything else is in `dist/` afterwards.
Publishing stays with people: `twine upload dist/vflsynth-*` and `git push origin gh-pages`.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")

TESTS = [f"tests/unit/{name}" for name in ("frames", "columns", "contract", "models")]
"""Those that ask most of pandas, NumPy and Arrow; with the lowest versions, whose warnings are no
errors."""
TESTING = ("pytest", "pytest-timeout", "hypothesis", "polars", "openpyxl", "dp-accounting<0.7")

SMOKE = """\
from vflsynth import GaussianCopulaSynthesizer, __version__, load
from vflsynth.datasets import make_party_frames
frames = make_party_frames(200, 2, random_state=0)
synth = GaussianCopulaSynthesizer(random_state=0).fit(frames, on="record_id")
synth.save("model")
assert load("model").sample(50, random_state=0).equals(synth.sample(50, random_state=0))
print("vflsynth", __version__, "fits, saves, loads and samples")
"""


def main() -> None:
    """Do all of it; the first failure ends it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, help="make the environments")
    parser.add_argument("--only", choices=("newest", "lowest"), help="try one of the two alone")
    options = parser.parse_args()
    found = {name: path for name in options.pythons if (path := shutil.which(name)) is not None}
    if not found:
        sys.exit(f"none of {', '.join(options.pythons)} is on this machine")
    wheel = build()
    oldest = next(iter(found))
    tried = [(name, "newest") for name in found] + [(oldest, "lowest")]
    for name, which in tried:
        if options.only in (None, which):
            with tempfile.TemporaryDirectory() as folder:
                environment = install(wheel, which, found[name], Path(folder))
                try_out(environment, Path(folder))
                if which == "lowest":
                    try_tests(environment, Path(folder))
                if (name, which) == (oldest, "newest"):
                    describe(environment)
    if options.only is None:
        document()
    print(f"release in {DIST}: {', '.join(sorted(path.name for path in DIST.iterdir()))}")
    print(f"tried with {', '.join(found)}")
    if absent := [name for name in options.pythons if name not in found]:
        print(f"NOT TRIED, not on this machine: {', '.join(absent)}")


def build() -> Path:
    """Build from what is committed, check, and return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "source.tar")
        run("git", "archive", "--output", archive, "HEAD", where=ROOT)
        source = Path(folder, "source")
        shutil.unpack_archive(archive, source)
        run(sys.executable, "-m", "build", "--outdir", DIST, source)
    files = sorted(DIST.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    (wheel,) = DIST.glob("*.whl")
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel)
    return wheel


def install(wheel: Path, which: str, python: str, folder: Path) -> Path:
    """Return the interpreter of a new environment that has the wheel and its extra `report`."""
    run(python, "-m", "venv", folder / "venv")
    interpreter = folder / "venv" / "bin" / "python"
    limits = ROOT / "constraints.txt"
    if which == "lowest":
        limits = folder / "lowest.txt"
        limits.write_text("\n".join(lowest()) + "\n", encoding="utf-8")
    run(interpreter, "-m", "pip", "install", "-q", "-c", limits, f"{wheel}[report]")
    run(interpreter, "-m", "pip", "check")
    return interpreter


def lowest() -> list[str]:
    """Return the smallest versions that the package with `report` allows, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["report"]]
    found = (re.match(r"([\w.-]+)>=([\w.]+)", requirement) for requirement in asked)
    return [f"{match[1]}=={match[2]}.*" for match in found if match]


def try_out(interpreter: Path, folder: Path) -> None:
    """Run what a newcomer runs, in a folder that has nothing of the sources."""
    command = interpreter.with_name("vflsynth")
    run(command, "--version", where=folder)
    run(command, "doctor", where=folder)
    run(command, "methods", where=folder)
    run(interpreter, "-c", SMOKE, where=folder)
    run(command, "demo", "--output", folder / "demo-output", where=folder)


def try_tests(interpreter: Path, folder: Path) -> None:
    """Run the tests of tables, of a copy of what is committed."""
    limits = folder / "lowest.txt"
    run(interpreter, "-m", "pip", "install", "-q", "-c", limits, *TESTING)
    run("git", "worktree", "add", "--detach", folder / "tested", "HEAD")
    try:
        command = ("-m", "pytest", "-q", "-W", "default", "-m", "not slow and not browser")
        run(interpreter, *command, *TESTS, where=folder / "tested")
    finally:
        run("git", "worktree", "remove", "--force", folder / "tested")


def describe(interpreter: Path) -> None:
    """Write the bill of materials and the licences of an environment."""
    materials = DIST / "vflsynth.cdx.json"
    tool = Path(sys.executable).with_name("cyclonedx-py")
    run(tool, "environment", "--output-file", materials, interpreter)
    licences = DIST / "licences.md"
    tool = Path(sys.executable).with_name("pip-licenses")
    options = ["--format=markdown", "--with-urls", f"--output-file={licences}"]
    run(tool, f"--python={interpreter}", *options)


def document() -> None:
    """Add this version to the site, and let readers without a version come to it."""
    mike = Path(sys.executable).with_name("mike")
    version = runpy.run_path(str(ROOT / "vflsynth" / "_version.py"))["__version__"]
    run(mike, "-q", "deploy", "--update-aliases", version, "latest")
    run(mike, "set-default", "latest")


def run(*command: object, where: Path = ROOT) -> None:
    """Run a command, and fail if it does."""
    words = [str(word) for word in command]
    print("$", *words, flush=True)
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(words, cwd=where, check=True, env={**os.environ, "PATH": tools})


if __name__ == "__main__":
    main()
