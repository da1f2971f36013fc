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

import warnings
from dataclasses import replace

import numpy as np
import torch

from benchmarks import _commands, _results
from benchmarks._data import BenchmarkTable
from benchmarks.ladder import STUDIED, TABLES, fit_and_score, split
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
    last = None
    for (data, n_parties, bits), frame in sorted(found.items()):
        if (data, n_parties) != last:
            title = f"{data}, {n_parties} parties"
            print(f"{title:<32}" + "".join(f"{head:>8}" for head in _HEADS) + "  seeds")
            last = data, n_parties
        means = "".join(f"{frame[name].mean():>8.3f}" for name in _HEADS.values())
        print(f"  {f'{bits:g} bits':<30}{means}{len(frame):>7}")


def main() -> None:
    """Measure what is missing, and print the curves."""
    parser = _commands.parser(__doc__, data=TABLES)
    parser.add_argument("--bits", type=float, nargs="+", default=BITS)
    parser.add_argument("--parties", type=int, nargs="+", default=[2])
    _commands.add_seeds(parser, [0])
    parser.add_argument("--show", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in arguments.data if not arguments.show else ():
        for n_parties in arguments.parties:
            for bits in arguments.bits:
                key = {"data": name, "parties": n_parties, "bits": bits}
                for seed in _results.missing("context_bits", arguments.seeds, **key):
                    _results.put("context_bits", measure(name, n_parties, bits, seed))
    show()


if __name__ == "__main__":
    main()
