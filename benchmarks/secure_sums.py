"""Secure sums beside the same sums in the clear: processor seconds and bytes.

    python -m benchmarks.secure_sums run
    python -m benchmarks.secure_sums show

All two-way tables of 13 columns of each party with ten states, with proofs that records are of
them. Secure sums have every party's noise. Seconds are those of a party and of the server apart,
the slowest party's; a clear sum is what one node would compute of all parties' tables, in turn with
the secure one. Bytes are exact, without those of frames.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _commands, _results
from vflsynth.learning.products import ProductTerms, unit_grid
from vflsynth.secure.membership import Codebook
from vflsynth.secure.products import ProductParty, ProductServer

N_COLUMNS, N_STATES, TURNS = 13, 10, 3
NOISE = 4.0  # multiplier


class Clock:
    """Processor seconds of each node."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, node: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do a node's work."""
        started = time.process_time()
        result = work(*arguments)
        self.seconds[node] = self.seconds.get(node, 0.0) + time.process_time() - started
        return result


def tables(n_records: int, names: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """Count all pairs both ways."""
    one_hot, grid = np.eye(N_STATES, dtype=np.int64), unit_grid(NOISE)
    states = {name: rng.integers(0, N_STATES, (n_records, N_COLUMNS)) for name in names}
    clock, up = Clock(), dict.fromkeys(names, 0)
    secret, book = os.urandom(32), Codebook({name: [one_hot] * N_COLUMNS for name in names})
    terms = ProductTerms.of(n_records, dict.fromkeys(names, N_COLUMNS), N_STATES, grid, 1)
    arithmetic, blocks = terms.arithmetic, terms.blocks
    parties = {n: ProductParty(n, s, book, secret, arithmetic, blocks) for n, s in states.items()}
    server = ProductServer(book, arithmetic, blocks)

    def clear() -> list[Any]:
        floats = {name: book.encode(name, own).astype(np.float64) for name, own in states.items()}
        return [floats[first].T @ floats[second] for first, second in book.pairs]

    exact = clock("clear", clear)
    for block in range(len(blocks)):
        sent = {name: clock(name, parties[name].mask, block) for name in names}
        clock("server", server.add, block, sent)
        for name, masked in sent.items():
            proof = masked.proof
            up[name] += masked.numbers.nbytes + sum(
                part.nbytes
                for part in (proof.places, proof.openings, proof.tags, proof.seed, proof.seal)
            )
    for name, challenge in clock("server", server.challenges).items():
        clock(name, parties[name].check, challenge)
    shares = {
        name: clock(name, lambda p=p: p.shares(grid.noise((p.n_shares,))))
        for name, p in parties.items()
    }
    found = clock("server", server.totals, shares)
    for counts, steps in zip(exact, found.values(), strict=True):
        assert np.abs(steps * grid.step - counts).max() < 8 * 2**0.5 * NOISE
    return {
        "party_seconds": max(clock.seconds[name] for name in names),
        "server_seconds": clock.seconds["server"],
        "clear_seconds": clock.seconds["clear"],
        "party_bytes_up": max(up[name] + shares[name].nbytes for name in names),
    }


def run() -> None:
    """Measure and write; each number of seconds is the median of some turns."""
    for n_records in (5_000, 50_000):
        for n_parties in (2, 3, 5):
            names = [f"party {number}" for number in range(n_parties)]
            rng = np.random.default_rng(0)
            turns = [tables(n_records, names, rng) for _ in range(TURNS)]
            row = {name: float(np.median([t[name] for t in turns])) for name in turns[0]}
            key = {"sum": "tables", "records": n_records, "parties": n_parties}
            _results.put("secure_sums", key | row)
            print(key | row, flush=True)


def show() -> None:
    """Print what was measured."""
    print(f"{'':24}{'processor seconds':^30}{'MB, party':>10}")
    print(f"{'sum':<10}{'records':>8}{'parties':>8}{'party':>8}{'server':>8}{'clear':>8}", end="")
    print(f"{'of all':>8}{'sent':>8}")
    for row in _results.rows("secure_sums"):
        n, party, server = row["parties"], row["party_seconds"], row["server_seconds"]
        ratio = (n * party + server) / row["clear_seconds"]
        print(f"{row['sum']:<10}{row['records']:>8}{n:>8}{party:>8.2f}{server:>8.2f}", end="")
        print(f"{row['clear_seconds']:>8.2f}{ratio:>7.0f}x{row['party_bytes_up'] / 1e6:>8.1f}")


def main() -> None:
    """Do what the command line says."""
    arguments = _commands.parser(__doc__, "run", "show").parse_args()
    run() if arguments.action == "run" else show()


if __name__ == "__main__":
    main()
