"""What ``make release`` tries, and what it says it could not try."""

import sys

import pytest

from tools import release


@pytest.fixture
def tried(monkeypatch):
    """Note environments in place of making them."""
    made = []
    monkeypatch.setattr(release, "build", lambda: "wheel")
    monkeypatch.setattr(release, "install", lambda _, which, python, folder: (python, which))
    monkeypatch.setattr(release, "try_out", lambda environment, folder: made.append(environment))
    monkeypatch.setattr(release, "try_tests", lambda environment, _: made.append("tests"))
    for step in ("describe", "document"):
        monkeypatch.setattr(release, step, lambda *_: None)
    return made


def test_every_python_is_tried_and_those_that_are_absent_are_named(
    tried, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(release, "DIST", tmp_path)
    monkeypatch.setattr(sys, "argv", ["release", "--pythons", sys.executable, "python2.6"])
    release.main()
    assert tried == [(sys.executable, "newest"), (sys.executable, "lowest"), "tests"]
    assert "NOT TRIED, not on this machine: python2.6" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["release", "--pythons", "python2.6"])
    with pytest.raises(SystemExit, match="none of"):
        release.main()
