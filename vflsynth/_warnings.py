"""Warnings that point at the line of the user's that caused them."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent) + os.sep


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn from the first caller outside this package, however deep inside we are."""
    frame, stacklevel = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(message, category, stacklevel=stacklevel)
