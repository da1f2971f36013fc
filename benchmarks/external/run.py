"""Make the synthetic tables of CTGAN and TVAE that the benchmarks compare with.

    VFLSYNTH_DATA=... python -m benchmarks.external.run                       # everything
    VFLSYNTH_DATA=... python -m benchmarks.external.run --table red-wine --method tvae --seeds 0 1

Both come from PyPI and are trained with their default settings on the *joined* real table, which
the parties of vflsynth never have. They run in an environment of their own,
``benchmarks/.envs/external``, created on first use. Tables go to ``benchmarks/cache/external``;
what is there is not made again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks import _commands, _results
from benchmarks._data import LOADERS, load_table

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".envs"
CACHE = _results.CACHE / "external"

# Quick ones first; the large tables take one seed because a fit takes up to 40 minutes.
PLAN = [
    ("red-wine", "tvae", (0, 1, 2)),
    ("red-wine", "ctgan", (0, 1, 2)),
    ("california-housing", "tvae", (0,)),
    ("california-housing", "ctgan", (0,)),
    ("spambase", "tvae", (0,)),
    ("spambase", "ctgan", (0,)),
    ("credit-default", "tvae", (0,)),
    ("credit-default", "ctgan", (0,)),
    ("adult", "tvae", (0,)),
    ("adult", "ctgan", (0,)),
]


def main() -> None:
    """Run the plan, or the one combination that was asked for."""
    parser = _commands.parser(__doc__)
    parser.add_argument("--table", choices=LOADERS)
    parser.add_argument("--method", choices=("tvae", "ctgan"))
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--max-minutes", type=float, default=40, help="above: fewer epochs")
    args = parser.parse_args()

    plan = [
        (table, method, args.seeds or seeds)
        for table, method, seeds in PLAN
        if args.table in (None, table) and args.method in (None, method)
    ]
    python = prepare_environment("external", HERE / "requirements.txt")
    for table, method, seeds in plan:
        for seed in seeds:
            train(python, table, method, seed, args.max_minutes)


def train(python: Path, name: str, method: str, seed: int, max_minutes: float) -> None:
    """Write one synthetic table, in the other environment, unless it exists."""
    output = CACHE / f"{name}-{method}-seed{seed}.parquet"
    if output.exists():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    table = load_table(name)
    real = CACHE / f"{name}-real.parquet"
    table.joined().to_parquet(real, index=False)
    print(f"{output.name}", flush=True)
    subprocess.run(
        [
            *(python, HERE / "train.py", method, real, output),
            *("--categorical", json.dumps(table.categorical)),
            *("--seed", str(seed), "--max-minutes", str(max_minutes)),
        ],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )


def prepare_environment(name: str, requirements: Path, *, complete: bool = False) -> Path:
    """Return the Python of the environment that has the pinned packages, made if necessary.

    `complete` requirements name all that is needed, and what packages ask for beyond is left out.
    """
    environment = ENVIRONMENTS / name
    python = environment / "bin" / "python"
    installed = environment / "requirements.txt"
    if not installed.exists() or installed.read_text() != requirements.read_text():
        venv.create(environment, clear=True, symlinks=True, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "-r", requirements]
        command += ["--no-deps"] if complete else []
        subprocess.run(command, check=True, stdout=sys.stderr)
        installed.write_text(requirements.read_text())
    return python


if __name__ == "__main__":
    main()
