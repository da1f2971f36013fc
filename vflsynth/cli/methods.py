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
can have, and whether they run with every party in a process of its own ('vflsynth parties'). Then
the mechanisms, which --privacy names, with their parameters and defaults.

Synthesizers are for 'vflsynth fit --method'; classifiers, which learn between parties, for
jobs of 'vflsynth parties'. What is public about columns is said with --bounds and --categories.
"""
EPILOG = """\
examples:
  vflsynth methods
  vflsynth fit lab.parquet clinic.parquet --on id -o model \\
      --privacy 'dpsgd, epsilon=3, delta=1e-6, n_records=1000'
"""

_GROUPS = {"synthesizers": "synthesizer", "classifiers": "classifier"}


def run(options: argparse.Namespace) -> int:
    """List."""
    members = ((noun, Members(group)) for group, noun in _GROUPS.items())
    texts = [_of_method(name, noun, kind) for noun, own in members for name, kind in own.items()]
    texts += [_of_mechanism(name, kind) for name, kind in Members("mechanisms").items()]
    say("\n\n".join(texts))
    return 0


def _block(title: str, kind: type[Any], *lines: str) -> str:
    """Lay out a title, the first paragraph of a class's documentation, and lines below it."""
    paragraph = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("**", "")
    fill = textwrap.TextWrapper(100, initial_indent="    ", subsequent_indent="      ").fill
    return "\n".join([title, *map(fill, [" ".join(paragraph.split()), *lines])])


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


def _of_method(name: str, noun: str, kind: type[Any]) -> str:
    found = modes(kind)
    names = [mode["privacy"] or "none" for mode in found]
    reasons = dict.fromkeys(mode["reason"] for mode in found if mode["reason"])
    apart = [mode["privacy"] or "none" for mode in found if mode["across_processes"]]
    across = "yes" if len(apart) == len(names) else f"privacy {', '.join(apart)}" if apart else "no"
    for needed, value in found[0]["with"].items():
        across += f", with {needed}={json.dumps(value)}"
    lines = [f"privacy: {', '.join(names)}", f"across processes: {across}", *reasons]
    return _block(f"{name} ({noun})", kind, *lines)


def _of_mechanism(name: str, kind: type[Any]) -> str:
    having = [
        method
        for group in _GROUPS
        for method, other in Members(group).items()
        if kind in getattr(other, "methods", ())
    ]
    parameters = [
        own.name if own.default is None else f"{own.name}={json.dumps(own.default, default=str)}"
        for own in inspect.signature(kind).parameters.values()
        if own.name != "public_schema"  # has options of its own
    ]
    lines = f"methods: {', '.join(having) or 'none'}", f"parameters: {', '.join(parameters)}"
    return _block(f"{name} (mechanism)", kind, *lines)
