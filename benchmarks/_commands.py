"""The commands that make recorded results anew, read off the results themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


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
