"""The tables of results: ``results/<benchmark>.jsonl``, one measured row per line.

A line is a JSON object that has the columns of its table's key (`KEYS`), what was measured, and the
versions and the commit that measured it. Lines are sorted by key, so that a table's differences can
be read. Numbers are written as they are, never rounded here. Pictures are files of their own in the
same folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch

import vflsynth

RESULTS = Path(__file__).parent / "results"
CACHE = Path(__file__).parent / "cache"
"""What interrupted runs go on from. Not part of the project."""

KEYS: dict[str, tuple[str, ...]] = {
    "accountants": ("setting", "accountant"),
    "adversaries": ("part", "data", "victim"),
    "audit_assd": ("scheme", "data"),
    "audit_cost": ("curve", "models", "records"),
    "audit_power": ("leak", "models"),
    "audit_private": ("scheme", "data", "epsilon"),
    "audit_table3": ("data", "records", "epochs"),
    "context_bits": ("data", "parties", "bits", "seed"),
    "defaults": ("data", "method", "seed"),
    "distinguishing": ("mechanism",),
    "dp": ("data", "method", "epsilon", "seed"),
    "engine": (),
    "field": ("data", "method", "seed"),
    "installed": ("way",),
    "ladder": ("data", "method", "seed"),
    "matching": ("keys", "parties"),
    "mnist": ("settings", "epochs", "method", "seed"),
    "mnist_mechanisms": ("row",),
    "orders": ("data", "protocol", "parties", "columns", "seed"),
    "outside": ("data", "method", "seed"),
    "penalties": ("settings", "gradient_penalty", "seed"),
    "published": ("data", "method"),
    "reconstruction": ("view",),
    "resampling": ("data", "method", "seed"),
    "rival_inference": ("data", "pairs"),
    "sampling": ("method",),
    "scale": ("data", "method", "rows", "seed"),
    "secure_sums": ("sum", "records", "parties"),
    "split_both": ("defence",),
    "split_defaults": ("data", "method", "seed"),
    "split_defences": ("data", "parties", "method"),
    "split_dimip": ("data", "family", "row"),
    "split_marvell": ("data", "width", "point"),
    "split_marvell_speed": (),
    "splits": ("data", "method", "seed"),
    "step_time": ("gradient_penalty", "replicas"),
    "table1": ("data", "method", "settings", "seed"),
    "table5": ("data", "method", "settings", "seed"),
    "transformers": (),
    "unmatched": ("data", "others", "seed"),
    "wan": ("data", "method", "mode", "epochs"),
    "wan_quality": ("data", "method", "mode", "seed"),
    "wgan_mechanisms": ("data", "mechanism", "epsilon", "seed"),
}
"""The columns that name a row of each table. A table without any has one row."""

Row = dict[str, Any]


def rows(table: str, **where: object) -> list[Row]:
    """Read the rows of a table that have the given values, sorted by key."""
    path = RESULTS / f"{table}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found: list[Row] = [json.loads(line) for line in lines]
    return [row for row in found if all(row.get(name) == value for name, value in where.items())]


def cells(table: str) -> dict[tuple[Any, ...], pd.DataFrame]:
    """Read a table as its cells: the key without the seed, and the rows of all seeds."""
    names = [name for name in KEYS[table] if name != "seed"]
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows(table):
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return {cell: pd.DataFrame(of_seeds) for cell, of_seeds in found.items()}


def missing(table: str, seeds: Iterable[int], **where: object) -> list[int]:
    """Return the seeds of a cell that have not been measured."""
    there = {row["seed"] for row in rows(table, **where)}
    return [seed for seed in seeds if seed not in there]


def put(table: str, *measured: Row) -> None:
    """Add rows to a table, in place of those with the same keys, with the versions and the commit.

    The table is written aside and renamed. Processes that measure different rows at once lose none.
    KeyError if a row lacks a column of the table's key, ValueError if a number is not finite.
    """
    made = environment()
    RESULTS.mkdir(exist_ok=True)
    with _alone():
        kept = {_key(table, row): row for row in rows(table)}
        kept |= {_key(table, row): {**row, **made} for row in measured}
        lines = [_line(kept[key]) for key in sorted(kept)]
        side = RESULTS / f"{table}.tmp"
        side.write_text("".join(lines), encoding="utf-8")
        os.replace(side, RESULTS / f"{table}.jsonl")


def environment() -> Row:
    """Return the versions, the commit, and whether the package had other changes."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        here = Path(__file__).parent
        return subprocess.run(
            command, cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()

    return {
        "commit": git("rev-parse", "--short", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain", "../vflsynth")),
        "versions": {
            "vflsynth": vflsynth.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "pandas": pd.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "threads": torch.get_num_threads(),
    }


def means(
    title: str, found: Mapping[str, pd.DataFrame], heads: Mapping[str, str], *, wide: int, each: int
) -> list[str]:
    """Return lines of means over seeds, one for each name; `heads` have columns by what is above.

    The name takes `wide` characters, a mean `each`; what nobody has is a dash.
    """
    lines = [f"{title:<{wide}}" + "".join(f"{head:>{each}}" for head in heads) + "  seeds"]
    for name, frame in found.items():
        own = [frame[key].mean() if key in frame else np.nan for key in heads.values()]
        cells = "".join(f"{'-' if np.isnan(mean) else f'{mean:.3f}':>{each}}" for mean in own)
        lines.append(f"  {name:<{wide - 2}}{cells}{len(frame):>7}")
    return lines


def verdict(met: bool) -> str:
    """Say whether a bound that was set before measuring is met."""
    return "met" if met else "MISSED"


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes from writing results; the lock ends with the process."""
    folder = os.open(RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _key(table: str, row: Row) -> tuple[tuple[bool, Any], ...]:
    """Return the key of a row so that keys compare: what has no settings comes first."""
    return tuple((row[name] is not None, row[name]) for name in KEYS[table])


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
