"""What the bound on contexts costs: bits per record against fidelity, for two and more parties.

`AutoregressiveSynthesizer` with `bits_per_record` from 4 to 32 and otherwise default settings, on
the rows and by the scores of `benchmarks.ladder`. Two parties have the columns that they have
there; more have about as many each, in the table's order. Two parties at the default of 8 bits are
measured by `benchmarks.ladder`.

    python -m benchmarks.context_bits --data red-wine --bits 4 32
    python -m benchmarks.context_bits --data red-wine adult --bits 8 --parties 3 5

What is there is not measured again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from benchmarks import _commands, _results
from benchmarks._data import BenchmarkTable
from benchmarks.ladder import STUDIED, TABLES, fit_and_score, split, study
from vflsynth import AutoregressiveSynthesizer

BITS = (4.0, 16.0, 32.0)
DEFAULT = AutoregressiveSynthesizer().bits_per_record
_HEADS = {**STUDIED, "nearer": "closer_to_training_share"}


def measure(name: str, n_parties: int, bits: float, seed: int) -> _results.Row:
    """Fit to a table of so many parties, and score what is drawn."""
    table, train, test = split(name)
    synth = AutoregressiveSynthesizer(bits_per_record=bits, random_state=seed, verbose=0)
    found, _ = fit_and_score(parted(table, n_parties), train, test, synth, seed)
    return {"data": name, "parties": n_parties, "bits": bits, "seed": seed, **found}


def parted(table: BenchmarkTable, n_parties: int) -> BenchmarkTable:
    """Give a table's columns to so many parties."""
    if n_parties == len(table.party_frames):
        return table
    columns = np.array_split(np.arange(table.joined().shape[1]), n_parties)
    frames = {chr(ord("A") + k): table.joined().iloc[:, own] for k, own in enumerate(columns)}
    return replace(table, party_frames=frames)


def show() -> None:
    """Print means over seeds, one line per bound."""
    found = _results.cells("context_bits")
    for (data, method), frame in _results.cells("ladder").items():
        if method == "bounded" and (data, 2, BITS[1]) in found:
            found[data, 2, DEFAULT] = frame
    tables: dict[str, dict[str, pd.DataFrame]] = {}
    for (data, n_parties, bits), frame in sorted(found.items()):
        tables.setdefault(f"{data}, {n_parties} parties", {})[f"{bits:g} bits"] = frame
    for title, own in tables.items():
        print("\n".join(_results.means(title, own, _HEADS, wide=32, each=8)))


def main() -> None:
    """Measure what is missing, and print the curves."""
    parser = _commands.parser(__doc__, data=TABLES)
    parser.add_argument("--bits", type=float, nargs="+", default=BITS)
    parser.add_argument("--parties", type=int, nargs="+", default=[2])
    study(
        parser,
        "context_bits",
        lambda arguments: product(arguments.data, arguments.parties, arguments.bits),
        measure,
        show,
    )


if __name__ == "__main__":
    main()
