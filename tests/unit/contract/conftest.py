"""Shared by the tests of this folder."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _wide_blocks(wide_blocks):
    """Most tests here draw thousands of rows."""
