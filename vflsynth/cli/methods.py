"""``vflsynth methods``: what there is to fit, of this package and of those beside it."""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
from typing import Any

from vflsynth.cli.console import say
from vflsynth.cli.options import flag
from vflsynth.methods.parameters import reason_against
from vflsynth.registry import Members, full_name

DESCRIPTION = """\
List the methods that can be fitted: what they are, which mechanisms of differential privacy they
can have, and whether they run with every party in a process of its own ('vflsynth parties').

Synthesizers are for 'vflsynth fit --method'; classifiers and regressors, which learn between
parties, for jobs of 'vflsynth parties'.
"""
EPILOG = """\
examples:
  vflsynth methods
  vflsynth methods --json
"""

GROUPS = {"synthesizers": "synthesizer", "classifiers": "classifier", "regressors": "regressor"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flag(parser, "--json", "the same as JSON")


def run(options: argparse.Namespace) -> int:
    """List."""
    found = [
        {
            "name": name,
            "class": full_name(kind),
            "kind": noun,
            "summary": summary(kind),
            "modes": modes(kind),
        }
        for group, noun in GROUPS.items()
        for name, kind in Members(group).items()
    ]
    say(json.dumps(found, indent=1) if options.json else "\n\n".join(map(_text, found)))
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


def _text(method: dict[str, Any]) -> str:
    names = [mode["privacy"] or "none" for mode in method["modes"]]
    reasons = dict.fromkeys(mode["reason"] for mode in method["modes"] if mode["reason"])
    apart = [mode["privacy"] or "none" for mode in method["modes"] if mode["across_processes"]]
    across = "yes" if len(apart) == len(names) else f"privacy {', '.join(apart)}" if apart else "no"
    for name, value in method["modes"][0]["with"].items():
        across += f", with {name}={json.dumps(value)}"
    lines = [method["summary"], f"privacy: {', '.join(names)}", f"across processes: {across}"]
    return block(f"{method['name']} ({method['kind']})", *lines, *reasons)
