"""The command lines of the benchmarks: how scripts read theirs, and which made what is recorded."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence

SEEDS = (0, 1, 2, 3, 4)


def parser(doc: str | None, *actions: str, **several: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser that explains a script with its own description, its ``__doc__``.

    `actions` are what the script can do, if that is more than one thing; `several` are options that
    take any of these values, by default all of them.
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if actions:
        made.add_argument("action", choices=actions)
    for name, values in several.items():
        known = list(values)
        made.add_argument(
            f"--{name}",
            nargs="+",
            choices=known,
            default=known,
            metavar=name.upper(),
            help=f"any of {', '.join(known)}",
        )
    return made


def add_seeds(parser: argparse.ArgumentParser, default: Sequence[int] = SEEDS) -> None:
    """Add the option for the seeds, each of which is measured."""
    parser.add_argument("--seeds", type=int, nargs="+", default=list(default))


def commands(
    script: str, runs: Iterable[Mapping[str, object]], lists: Sequence[str] = ()
) -> list[str]:
    """Return the commands of recorded runs, those that differ in one list of options as one.

    Parameters
    ----------
    script : str
        With its action, such as ``"dp run"``.
    runs : iterable of mapping
        Option to value; a list stands for several values of one run, such as its seeds.
    lists : sequence of str
        Options of which a command takes several values, each a run of its own.

    Returns
    -------
    list of str

    Examples
    --------
    >>> runs = [{"data": data, "epsilon": 10, "seeds": [0, 1]} for data in ("a", "b")]
    >>> commands("dp run", runs, ["data"])
    ['dp run --data a b --epsilon 10 --seeds 0 1']
    """
    found = [
        {option: tuple(v) if isinstance(v, list) else (v,) for option, v in run.items()}
        for run in runs
    ]
    for option in lists:
        merged: dict[frozenset[tuple[str, tuple[object, ...]]], dict[str, tuple[object, ...]]] = {}
        for run in found:
            others = frozenset(item for item in run.items() if item[0] != option)
            if others in merged:
                merged[others][option] += run[option]
            else:
                merged[others] = dict(run)
        found = list(merged.values())
    return [
        " ".join([script, *(f"--{name} {' '.join(map(_text, v))}" for name, v in run.items())])
        for run in found
    ]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
