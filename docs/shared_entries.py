"""Docstrings as they are when a class was made, with the entries that several classes share.

mkdocstrings reads source code, in which those entries are only named
(`vflsynth.methods.parameters`).
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

_NAMED = re.compile(r"^ *\{[a-z_, ]+\}$", re.M)


class SharedEntries(griffe.Extension):
    """Takes the docstrings of classes that name entries from the classes themselves."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Replace a docstring that names entries."""
        if cls.docstring is not None and _NAMED.search(cls.docstring.value):
            cls.docstring.value = inspect.getdoc(griffe.dynamic_import(cls.path)) or ""
