"""``vflsynth mechanisms``: what ``--privacy`` may say."""

from __future__ import annotations

import argparse
import inspect
import json
from typing import Any

from vflsynth.cli.console import say
from vflsynth.cli.methods import GROUPS, add_arguments, block, summary
from vflsynth.registry import Members, full_name

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "run"]

DESCRIPTION = """\
List the mechanisms of differential privacy: what they are, the methods that can have them, and
their parameters with defaults. What is public about columns is said with --bounds and --categories.
"""
EPILOG = """\
examples:
  vflsynth mechanisms
  vflsynth mechanisms --json
  vflsynth fit lab.parquet clinic.parquet --on id -o model \\
      --privacy 'dpsgd, epsilon=3, delta=1e-6, n_records=1000'
"""


def run(options: argparse.Namespace) -> int:
    """List."""
    found = [
        {
            "name": name,
            "class": full_name(kind),
            "summary": summary(kind),
            "methods": [
                method
                for group in GROUPS
                for method, other in Members(group).items()
                if kind in getattr(other, "methods", ())
            ],
            "parameters": {
                parameter.name: parameter.default
                for parameter in inspect.signature(kind).parameters.values()
                if parameter.name != "public_schema"  # has options of its own
            },
        }
        for name, kind in Members("mechanisms").items()
    ]
    text = "\n\n".join(map(_text, found))
    say(json.dumps(found, indent=1, default=str) if options.json else text)
    return 0


def _text(mechanism: dict[str, Any]) -> str:
    parameters = [
        name if value is None else f"{name}={json.dumps(value, default=str)}"
        for name, value in mechanism["parameters"].items()
    ]
    return block(
        mechanism["name"],
        mechanism["summary"],
        f"methods: {', '.join(mechanism['methods']) or 'none'}",
        f"parameters: {', '.join(parameters)}",
    )
