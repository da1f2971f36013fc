"""Commands that only look something up start without torch, scikit-learn and SciPy."""

import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from vflsynth import _artefacts as artefacts
from vflsynth._signatures import new_key
from vflsynth.cli.main import command_parser, exit_code, next_command
from vflsynth.exceptions import (
    ArtefactError,
    ContractError,
    ExchangeError,
    ParameterError,
    PartyDataError,
    PrivacyBudgetError,
    ProtocolError,
    TrainingDivergedError,
    UnusableFileError,
)
from vflsynth.frames import write_table
from vflsynth.release import publishing

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "sklearn", "scipy")
SCRIPT = """
import sys
from vflsynth.cli import main
for line in sys.argv[1:]:
    try:
        code = main(line.split(" "))
    except SystemExit as end:
        code = end.code
    assert code == 0, line
    loaded = {"torch", "sklearn", "scipy"} & set(sys.modules)
    assert not loaded, f"{line}: {loaded}"
"""
SITE = 'party = "lab"\nfolder = "folder"\n'


@pytest.fixture
def folder(tmp_path):
    """Lay a signed release, parts of a sample and a site's file out."""
    key = tmp_path / "key.pem"
    (tmp_path / "public.key").write_text(public := new_key(key))
    (tmp_path / "out").mkdir()
    content = {
        "table": publishing._written(pd.DataFrame({"age": [1, 2]}), tmp_path / "out", "a.parquet"),
        "contract": {"changes_since_fit": [], "not_measured": []},
        "date": "2026-01-01",
        "headline": "passes",
    }
    artefacts.write_json(tmp_path / "out" / "release.json", content)
    publishing._write_digests(tmp_path / "out", (key, public))
    for name in ("lab", "clinic"):
        part = pd.DataFrame({name: [1, 2]})
        part.attrs["vflsynth sample"] = "mark"
        write_table(part, tmp_path / f"{name}.parquet")
    (tmp_path / "lab.toml").write_text(SITE)
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_commands_that_look_things_up_are_light(folder):
    lines = [
        "--version",
        "--help",
        "verify --help",
        f"verify {folder}/out --public {folder}/public.key",
        f"account {folder}/account.json --create --epsilon 1 --delta 1e-6",
        f"account {folder}/account.json",
        f"parties join {folder}/lab.parquet {folder}/clinic.parquet -o {folder}/all.parquet",
        f"parties key {folder}/another.pem",
        f"parties trail {folder}/lab.toml",
        "parties console --help",
        "completion bash",
        "schema study",
    ]
    subprocess.run([sys.executable, "-c", SCRIPT, *lines], check=True, stdout=subprocess.DEVNULL)
    assert pd.read_parquet(folder / "all.parquet").shape == (2, 2)


@pytest.mark.parametrize(
    "modules", ["vflsynth", "vflsynth.federation.console, vflsynth.federation.site"]
)
def test_modules_that_start_light(modules):
    check = f"import sys, {modules}; assert not {set(HEAVY)} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_a_parser_for_one_command_names_all_others():
    assert list(command_parser("verify")._subparsers._group_actions[0].choices) == list(
        command_parser()._subparsers._group_actions[0].choices
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ParameterError("x"), 2),
        (PrivacyBudgetError("x"), 2),
        (PartyDataError("x", fix="y"), 3),
        (ContractError("x"), 3),
        (ArtefactError("x"), 3),
        (UnusableFileError("x"), 3),
        (ProtocolError("x"), 4),
        (ExchangeError("x", fix="y"), 4),
        (TrainingDivergedError("x"), 5),
        (ZeroDivisionError(), 5),
    ],
)
def test_exit_codes_tell_kinds_of_errors_apart(error, code):
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fit lab.csv --output model", "sample model -n 1000 -o synthetic.parquet"),
        (
            "sample model -n 5 -o s.csv",
            "evaluate --real PARTY=FILE ... --on KEY --synthetic s.csv -o report.html",
        ),
        (
            "audit model --real lab=lab.csv --on id --json",
            "release model --real lab=lab.csv --on id --synthetic FILE --audit audit.json "
            "-o release",
        ),
        (
            "audit model --real lab=lab.csv -o audit.html",
            "release model --real lab=lab.csv --synthetic FILE --audit JSON_OF_AUDIT -o release",
        ),
        (
            "release model --real a=a.csv --synthetic s.csv -o rel",
            "verify rel/public --public KEY",
        ),
        (
            "audit model --real 'lab=my lab.csv' --on 'lab=the id' --json",
            "release model --real 'lab=my lab.csv' --on 'lab=the id' --synthetic FILE "
            "--audit audit.json -o release",
        ),
        ("doctor", None),
    ],
)
def test_a_command_names_the_next(line, said):
    words = shlex.split(line)
    found = next_command(command_parser(words[0]).parse_args(words))
    assert found == (said and f"vflsynth {said}")
