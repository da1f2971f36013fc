"""Doctests, of README.md above all, may write files: they run in a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def _doctests_write_elsewhere(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
