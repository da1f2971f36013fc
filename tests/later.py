"""Cases that wait for `make slow`."""

import pytest


def later(*cases):
    """Mark cases of a parameter, or tuples of several, as slow: others show the same sooner."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
