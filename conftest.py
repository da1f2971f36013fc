"""For tests and doctests alike."""

import pytest
from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("vflsynth", deadline=None)
settings.load_profile("vflsynth")


@pytest.fixture(autouse=True)
def _doctests_write_elsewhere(request: pytest.FixtureRequest) -> None:
    """Doctests, of README.md above all, may write files: they run in a folder of their own."""
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
