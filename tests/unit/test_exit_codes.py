"""Like mistakes end alike, whichever command meets them.

2 is for what is said and cannot be, also where something is to be written; 3 for files that are
read: they are not there, or cannot be used.
"""

import shlex

import numpy as np
import pandas as pd
import pytest

from vflsynth import IndependentSynthesizer
from vflsynth._signatures import new_key
from vflsynth.cli import main

TABLES = "A=a.csv B=b.csv"
REAL = f"--real {TABLES} --on id"
WITHOUT_QUESTIONS = "--epsilon 0 --audit-minutes 0 --target="
MISTAKES = {
    "a key column that is not there": (
        3,
        [
            f"fit {TABLES} --on no -o new",
            f"inspect {TABLES} --on no",
            f"new {TABLES} --on no -o new.toml {WITHOUT_QUESTIONS}",
            f"evaluate --real {TABLES} --on no --synthetic s.csv -o new.html",
            f"audit model --real {TABLES} --on no -o new.html",
            f"release model --real {TABLES} --on no --synthetic s.csv --key key.pem -o new",
        ],
    ),
    "a table that is not there": (
        3,
        [
            "fit A=no.csv B=b.csv --on id -o new",
            "inspect A=no.csv B=b.csv --on id",
            f"new A=no.csv B=b.csv --on id -o new.toml {WITHOUT_QUESTIONS}",
            f"evaluate {REAL} --synthetic no.csv -o new.html",
            "audit model --real A=no.csv B=b.csv --on id -o new.html",
            f"release model {REAL} --synthetic no.csv --key key.pem -o new",
            "parties join no.parquet -o new.parquet",
        ],
    ),
    "a model that is not there": (
        3,
        [
            "sample no -n 3",
            "inspect no",
            f"audit no {REAL} -o new.html",
            f"release no {REAL} --synthetic s.csv --key key.pem -o new",
        ],
    ),
    "another file that is not there": (
        3,
        [
            "publish no.toml",
            "fit --config no.toml -o new",
            f"fit {TABLES} --on id --contract no.toml -o new",
            f"release model {REAL} --synthetic s.csv --key no.pem -o new",
            f"release model {REAL} --synthetic s.csv --key key.pem --audit no.json -o new",
            "account no.json",
            "parties simulate no.toml",
            "parties approve no.toml A.toml",
            "parties approve job.toml no.toml",
            "parties trail no.toml",
            "parties logs no",
            "parties start no",
            "parties prepare no A.toml",
        ],
    ),
    "something where a result is to be written": (
        2,
        [
            f"fit {TABLES} --on id -o taken",
            f"fit {TABLES} --on id -o a.csv",
            "sample model -n 3 -o taken",
            "sample model -n 3 -o a.csv",
            f"evaluate {REAL} --synthetic s.csv -o taken",
            f"audit model {REAL} -o taken",
            f"release model {REAL} --synthetic s.csv --key key.pem -o taken",
            f"inspect {TABLES} --on id --write-contract a.csv",
            f"new {TABLES} --on id -o job.toml {WITHOUT_QUESTIONS}",
            "account account.json --create",
            "demo -o a.csv",
            "parties key key.pem",
            "parties key a.csv/key.pem",
            "parties project job.toml --host h --port 1 -o a.csv",
        ],
    ),
    "a file of another kind": (
        3,
        [
            f"release model {REAL} --synthetic s.csv --key a.csv -o new",
            f"release model {REAL} --synthetic s.csv --key key.pem --audit a.csv -o new",
            "sample taken -n 3",
            "account a.csv",
            "parties start taken",
            "parties prepare taken A.toml",
        ],
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes")
    rng = np.random.default_rng(0)
    frames = {
        party: pd.DataFrame({"id": range(60), column: rng.normal(size=60).round(2)})
        for party, column in {"A": "x", "B": "y"}.items()
    }
    for party, frame in frames.items():
        frame.to_csv(folder / f"{party.lower()}.csv", index=False)
    model = IndependentSynthesizer(random_state=0).fit(frames, on="id")
    model.save(folder / "model")
    model.sample(60).to_csv(folder / "s.csv", index=False)
    (folder / "taken").mkdir()
    (folder / "taken" / "notes.txt").touch()
    (folder / "account.json").touch()
    new_key(folder / "key.pem")
    new_key(folder / "open.pem")
    (folder / "open.pem").chmod(0o644)
    (folder / "job.toml").write_text('name = "j"\nparties = ["A", "B"]\non = "id"\n')
    (folder / "A.toml").write_text('party = "A"\nfolder = "A"\ntable = "a.csv"\n')
    return folder


@pytest.mark.parametrize(
    ("code", "command"),
    [
        pytest.param(code, command, id=f"{mistake}: {command}")
        for mistake, (code, commands) in MISTAKES.items()
        for command in commands
    ],
)
def test_like_mistakes_end_alike(folder, monkeypatch, capsys, code, command):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    assert main(shlex.split(command)) == code, capsys.readouterr().err
    assert "vflsynth: error: " in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_an_open_key_is_named_with_its_mending(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command = f"release model {REAL} --synthetic s.csv --key open.pem -o new"
    assert main(shlex.split(command)) == 3
    assert "open.pem can be read by others" in capsys.readouterr().err


def test_a_fit_says_that_it_replaces_a_model(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    command = f"fit {TABLES} --on id --method IndependentSynthesizer -o twice"
    for words in ("", "twice is replaced once the new model is ready"):
        assert main(shlex.split(command)) == 0
        said = capsys.readouterr().err
        assert words in said
        assert ("is replaced" in said) is bool(words)
