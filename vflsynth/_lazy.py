"""Packages whose names are imported when first used: a command loads what it needs.

Such a package imports its names under ``if TYPE_CHECKING:``, where type checkers and people read
them, and takes `lazily` for the rest.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazily(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: it looks names up where the file says they are."""
    file = str(sys.modules[package].__file__)
    homes: dict[str, str] = {}

    def find(name: str) -> Any:
        if not homes and not name.startswith("__"):
            tree = ast.parse(Path(file).read_text(encoding="utf-8"))
            blocks = [node for node in tree.body if isinstance(node, ast.If)]
            found = [line for block in blocks for line in block.body]
            for line in found:
                assert isinstance(line, ast.ImportFrom), f"{file}: only imports are put off"
                homes.update({alias.name: str(line.module) for alias in line.names})
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
