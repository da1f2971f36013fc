"""What the order of parties and of columns does to the split autoregressive model.

Columns are drawn in the tables' order, parties in that of their names. Here either is turned round:
B's columns are drawn before A's, or everybody's last column first. On the rows and by the scores of
`benchmarks.ladder`, two parties, default settings but for the protocol.

    python -m benchmarks.orders --data red-wine --protocols bounded --seeds 0

What is there is not measured again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pandas as pd

from benchmarks import _commands, _results
from benchmarks._data import BenchmarkTable
from benchmarks.ladder import STUDIED, TABLES, fit_and_score, split, study
from vflsynth import AutoregressiveSynthesizer

PROTOCOLS = ("bounded", "one_message")
TURNED = {"parties": (False, True), "columns": (False, True)}
_HEADS = {**STUDIED, "held out": "held_out"}


def measure(data: str, protocol: str, parties: bool, columns: bool, seed: int) -> _results.Row:
    """Fit with parties and columns in order or turned round, and score what is drawn."""
    table, train, test = split(data)
    synth = AutoregressiveSynthesizer(protocol=protocol, random_state=seed, verbose=0)  # type: ignore[arg-type]
    table = turned(table, parties=parties, columns=columns)
    found, _ = fit_and_score(table, train, test, synth, seed)
    key = {"data": data, "protocol": protocol, "parties": parties, "columns": columns}
    return {**key, "seed": seed, "held_out": float(synth.history_["held_out"].max()), **found}


def turned(table: BenchmarkTable, *, parties: bool, columns: bool) -> BenchmarkTable:
    """Swap the names of the parties, and turn their columns round."""
    names = sorted(table.party_frames, reverse=parties)
    frames = dict(zip(names, table.party_frames.values(), strict=True))
    step = -1 if columns else 1
    return replace(table, party_frames={n: f.iloc[:, ::step] for n, f in sorted(frames.items())})


def show() -> None:
    """Print means over seeds, one line per order."""
    tables: dict[str, dict[str, pd.DataFrame]] = {}
    for (data, protocol, *order), frame in _results.cells("orders").items():
        label = ", ".join(
            f"{name} {'turned round' if is_turned else 'in order'}"
            for name, is_turned in zip(TURNED, order, strict=True)
        )
        tables.setdefault(f"{data}, {protocol}", {})[label] = frame
    for title, own in tables.items():
        print("\n".join(_results.means(title, own, _HEADS, wide=40, each=9)))


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = _commands.parser(__doc__, data=TABLES, protocols=PROTOCOLS)
    study(
        parser,
        "orders",
        lambda arguments: product(arguments.data, arguments.protocols, *TURNED.values()),
        measure,
        show,
    )


if __name__ == "__main__":
    main()
