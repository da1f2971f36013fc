"""Shared by the tests of this folder."""

from collections.abc import Iterator

import pytest

from vflsynth.models import party_model


@pytest.fixture(scope="module")
def wide_blocks() -> Iterator[None]:
    """Draw by more rows than other tests: whoever asks for thousands pays for every block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(party_model, "SAMPLE_BLOCK", 2048)
        yield
