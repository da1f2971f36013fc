"""``vflsynth methods``: what there is to fit, of this package and of those beside it."""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
from typing import Any

from vflsynth.cli.console import say
from vflsynth.methods.parameters import reason_against
from vflsynth.registry import Members

DESCRIPTION = """\
List the methods that can be fitted: what they are, which mechanisms of differential privacy they
can have, and whether they run with every party in a process of its own ('vflsynth parties').

Synthesizers are for 'vflsynth fit --method'; classifiers, which learn between parties, for
jobs of 'vflsynth parties'.
"""
EPILOG = """\
examples:
  vflsynth methods
"""

GROUPS = {"synthesizers": "synthesizer", "classifiers": "classifier"}


def run(options: argparse.Namespace) -> int:
    """List."""
    members = ((noun, Members(group)) for group, noun in GROUPS.items())
    texts = [_text(name, noun, kind) for noun, own in members for name, kind in own.items()]
    say("\n\n".join(texts))
    return 0


def summary(kind: type[Any]) -> str:
    """Return the first paragraph of a class's documentation as one line."""
    paragraph = (inspect.getdoc(kind) or "").partition("\n\n")[0]
    return " ".join(paragraph.replace("**", "").split())


def block(title: str, *lines: str) -> str:
    """Lay out a title, and indented lines below it."""
    fill = textwrap.TextWrapper(100, initial_indent="    ", subsequent_indent="      ").fill
    return "\n".join([title, *map(fill, lines)])


def modes(kind: type[Any]) -> list[dict[str, Any]]:
    """Return a method's mechanisms, None for no privacy, and whether it then runs apart.

    ``with`` has the parameters that runs apart need, ``reason`` why there are none.
    """
    found = []
    for mechanism in getattr(kind, "methods", (None,)):
        estimator = kind()
        if mechanism is not None:
            estimator.set_params(privacy=mechanism(epsilon=1.0, delta=1e-6))
        needed = {"monitor": False} if hasattr(estimator, "monitor") else {}
        reason = reason_against(estimator.set_params(**needed), across_processes=True)
        found.append(
            {
                "privacy": None if mechanism is None else mechanism.name,
                "across_processes": reason is None,
                "with": needed,
                "reason": None if reason is None else str(reason),
            }
        )
    return found


def _text(name: str, noun: str, kind: type[Any]) -> str:
    found = modes(kind)
    names = [mode["privacy"] or "none" for mode in found]
    reasons = dict.fromkeys(mode["reason"] for mode in found if mode["reason"])
    apart = [mode["privacy"] or "none" for mode in found if mode["across_processes"]]
    across = "yes" if len(apart) == len(names) else f"privacy {', '.join(apart)}" if apart else "no"
    for needed, value in found[0]["with"].items():
        across += f", with {needed}={json.dumps(value)}"
    lines = [summary(kind), f"privacy: {', '.join(names)}", f"across processes: {across}"]
    return block(f"{name} ({noun})", *lines, *reasons)
