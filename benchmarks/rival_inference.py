"""AIM's own inference and the one that the study of privacy runs it with, side by side.

    python -m benchmarks.rival_inference

Both fit the same noisy tables of one column and of some pairs of columns, for as many iterations,
and go on from there with more pairs, as AIM does.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from benchmarks import _commands, _results
from benchmarks._data import load_table
from benchmarks._private import MARGINALS, marginals_environment, release_cells, save_codes

PAIRS = {"south-german-credit": (12, 38, 50), "hcv": (5, 24, 34), "small-mixed": (3, 8, 16)}
ITERATIONS, NOISE_STD = 100, 10.0


def main() -> None:
    """Measure and write."""
    args = _commands.parser(__doc__, data=PAIRS).parse_args()
    python, environment = marginals_environment()
    for data in args.data:
        table = load_table(data)
        with tempfile.TemporaryDirectory() as folder:
            real = Path(folder) / "real.npz"
            save_codes(real, table.joined(), release_cells(table, 10.0))
            command = [python, MARGINALS.with_name("compare.py"), real]
            command += ["--pairs", *PAIRS[data], "--iterations", ITERATIONS]
            command += ["--noise-std", NOISE_STD]
            told = subprocess.run(
                list(map(str, command)), check=True, env=environment, capture_output=True, text=True
            )
        for line in told.stdout.splitlines():
            row = {"data": data, **json.loads(line)}
            print(row)
            _results.put("rival_inference", row)


if __name__ == "__main__":
    main()
