"""``vflsynth mechanisms``: what ``--privacy`` may say."""

from __future__ import annotations

import argparse
import inspect
import json
from typing import Any

from vflsynth.cli.console import say
from vflsynth.cli.methods import GROUPS, block, summary
from vflsynth.registry import Members

DESCRIPTION = """\
List the mechanisms of differential privacy: what they are, the methods that can have them, and
their parameters with defaults. What is public about columns is said with --bounds and --categories.
"""
EPILOG = """\
examples:
  vflsynth mechanisms
  vflsynth fit lab.parquet clinic.parquet --on id -o model \\
      --privacy 'dpsgd, epsilon=3, delta=1e-6, n_records=1000'
"""


def run(options: argparse.Namespace) -> int:
    """List."""
    say("\n\n".join(_text(name, kind) for name, kind in Members("mechanisms").items()))
    return 0


def _text(name: str, kind: type[Any]) -> str:
    having = [
        method
        for group in GROUPS
        for method, other in Members(group).items()
        if kind in getattr(other, "methods", ())
    ]
    parameters = [
        own.name if own.default is None else f"{own.name}={json.dumps(own.default, default=str)}"
        for own in inspect.signature(kind).parameters.values()
        if own.name != "public_schema"  # has options of its own
    ]
    return block(
        name,
        summary(kind),
        f"methods: {', '.join(having) or 'none'}",
        f"parameters: {', '.join(parameters)}",
    )
