"""Secure sums beside the same sums in the clear: processor seconds and bytes.

    python -m benchmarks.secure_sums run [--sums features tables]
    python -m benchmarks.secure_sums show

"features" is the sum of 2,000 random features of joint records, "tables" all two-way tables of 13
columns of each party with ten states, with proofs that records are of them. Secure sums have every
party's noise. Seconds are those of a party and of the server apart, the slowest party's; a clear
sum is what one node would compute of all parties' tables, in turn with the secure one. Bytes are
exact, without those of frames.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks import _commands, _results
from vflsynth.methods.mean_embedding.embedding import random_features
from vflsynth.privacy.secure_sums import FeatureSum, unit_arithmetic, unit_grid
from vflsynth.secure import (
    Codebook,
    ProductParty,
    ProductServer,
    RotationParty,
    RotationServer,
    angles_of,
    product_blocks,
)

N_FEATURES, N_COLUMNS, N_STATES, TURNS = 2_000, 130, 10, 3
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


def features(n_records: int, names: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """Sum random features both ways."""
    size = n_records, N_FEATURES // 2
    projections = {n: torch.from_numpy(rng.standard_normal(size, np.float32)) for n in names}
    clock, up = Clock(), dict.fromkeys(names, 0)

    def clear() -> torch.Tensor:
        total = torch.zeros(N_FEATURES, dtype=torch.float64)
        for rows in torch.arange(n_records).split(4096):
            joint = torch.stack([own[rows] for own in projections.values()]).sum(0)
            total += random_features(joint).double().sum(0)
        return total

    exact = clock("clear", clear)
    made = FeatureSum(NOISE, N_FEATURES, len(names), n_records)
    secret, arithmetic = os.urandom(32), made.arithmetic
    parties = {
        name: clock(
            name,
            lambda name=name, own=own: RotationParty(
                name, angles_of(own), names, secret, arithmetic
            ),
        )
        for name, own in projections.items()
    }
    server = clock("server", RotationServer, names, n_records, N_FEATURES // 2, arithmetic)
    for block in range(len(server.blocks)):
        sent = {name: clock(name, parties[name].mask, block) for name in names}
        clock("server", server.add, block, sent)
        for name in names:
            up[name] += sum(getattr(sent[name], f).nbytes for f in ("points", "turns", "windows"))
    shares = {
        name: clock(name, lambda p=p: p.shares(made.grid.noise((N_FEATURES,))))
        for name, p in parties.items()
    }
    found = made.features(clock("server", server.totals, shares))
    assert (found - exact).abs().max() < 8 * made.joint_noise_std
    return _row(clock.seconds, names, {n: up[n] + shares[n].nbytes for n in names})


def tables(n_records: int, names: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """Count all pairs both ways."""
    n_columns, one_hot = N_COLUMNS // N_STATES, np.eye(N_STATES, dtype=np.int64)
    states = {name: rng.integers(0, N_STATES, (n_records, n_columns)) for name in names}
    clock, up = Clock(), dict.fromkeys(names, 0)
    grid = unit_grid(NOISE)
    arithmetic = unit_arithmetic(n_records, grid, 2)
    secret, book = os.urandom(32), Codebook({name: [one_hot] * n_columns for name in names})
    blocks = product_blocks(n_records, dict.fromkeys(names, n_columns), N_STATES)
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
    return _row(clock.seconds, names, {n: up[n] + shares[n].nbytes for n in names})


def _row(seconds: Mapping[str, float], names: list[str], up: Mapping[str, int]) -> dict[str, Any]:
    return {
        "party_seconds": max(seconds[name] for name in names),
        "server_seconds": seconds["server"],
        "clear_seconds": seconds["clear"],
        "party_bytes_up": max(up.values()),
    }


SUMS = {"features": features, "tables": tables}


def run(sums: list[str]) -> None:
    """Measure and write; each number of seconds is the median of some turns."""
    for n_records in (5_000, 50_000):
        for n_parties in (2, 3, 5):
            names = [f"party {number}" for number in range(n_parties)]
            for kind in (SUMS[name] for name in sums):
                rng = np.random.default_rng(0)
                turns = [kind(n_records, names, rng) for _ in range(TURNS)]
                row = {name: float(np.median([t[name] for t in turns])) for name in turns[0]}
                key = {"sum": kind.__name__, "records": n_records, "parties": n_parties}
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
    arguments = _commands.parser(__doc__, "run", "show", sums=SUMS).parse_args()
    run(arguments.sums) if arguments.action == "run" else show()


if __name__ == "__main__":
    main()
