"""Encode and decode a large mixed table: seconds and peak memory.

    python -m benchmarks.transformers

The table has 20 columns: 6 floats (skewed, rounded, zero-inflated, with missing values, float32), 5
integers, 3 datetimes, 5 categories (text, objects, pandas categories) and a nullable boolean. Peak
memory is the largest resident set of the process so far (Linux: exact; macOS: same unit after
conversion), so each phase's figure includes the phases before it.
"""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import _commands, _results
from vflsynth.columns import TableTransformer


def mixed_table(n_rows: int, seed: int) -> pd.DataFrame:
    """Make the table described above."""
    rng = np.random.default_rng(seed)

    def with_missing(column: pd.Series[Any], rate: float) -> pd.Series[Any]:
        return column.mask(rng.random(n_rows) < rate)

    def drawn(values: list[Any], dtype: Any = "str") -> pd.Series[Any]:
        shares = 1.0 / np.arange(1, len(values) + 1)
        codes = rng.choice(len(values), n_rows, p=shares / shares.sum())
        return pd.Series(np.array(values, dtype=object)[codes], dtype=dtype)

    since_1970 = rng.integers(0, 20_000, n_rows)
    days = pd.Series(since_1970.astype("M8[D]").astype("M8[s]"))
    moments = pd.Series(rng.integers(0, 1_700_000_000_000, n_rows).astype("M8[ms]"))
    grades = pd.CategoricalDtype(["low", "middle", "high", "unused"], ordered=True)
    return pd.DataFrame(
        {
            "normal": rng.normal(size=n_rows),
            "skewed": rng.lognormal(size=n_rows),
            "price": rng.gamma(2.0, 20.0, n_rows).round(2),
            "gain": np.where(rng.random(n_rows) < 0.9, 0.0, rng.lognormal(8, 1, n_rows).round(2)),
            "pressure": with_missing(pd.Series(rng.normal(80, 12, n_rows)), 0.1),
            "float32": rng.normal(size=n_rows).astype(np.float32),
            "age": rng.integers(18, 95, n_rows).astype(np.int8),
            "visits": rng.poisson(3, n_rows),
            "weight": rng.integers(10_000, 1_000_000, n_rows),
            "account": rng.integers(0, 2**62, n_rows),
            "score": with_missing(pd.Series(rng.integers(300, 850, n_rows), dtype="Int64"), 0.05),
            "birthday": days,
            "admitted": with_missing(moments, 0.02),
            "discharged": moments.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin"),
            "sex": drawn(["f", "m"]),
            "country": drawn([f"country {i}" for i in range(60)]),
            "occupation": with_missing(drawn([f"job {i}" for i in range(15)], object), 0.05),
            "grade": drawn(["low", "middle", "high"], grades),
            "quality": rng.integers(3, 9, n_rows),
            "smoker": with_missing(pd.Series(rng.random(n_rows) < 0.3, dtype="boolean"), 0.1),
        }
    )


def peak_megabytes() -> float:
    """Return the largest resident set of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    """Measure and write."""
    parser = _commands.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--continuous", choices=["standard", "quantile"], default="standard")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    phases: dict[str, dict[str, float]] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        phases[name] = {"seconds": round(seconds, 3), "peak_rss_mb": round(peak_megabytes(), 1)}

    with phase("make table"):
        table = mixed_table(arguments.rows, arguments.seed)
    with phase("fit"):
        transformer = TableTransformer(continuous=arguments.continuous).fit(table)
    with phase("encode"):
        matrix = transformer.transform(table)
    with phase("decode"):
        decoded = transformer.inverse_transform(matrix)

    if not decoded.dtypes.equals(table.dtypes):
        raise SystemExit("decoded dtypes differ")
    result = {
        **vars(arguments),
        "columns": table.shape[1],
        "matrix_width": transformer.width_,
        "table_mb": round(float(table.memory_usage(deep=True).sum()) / 1e6, 1),
        "matrix_mb": round(matrix.nbytes / 1e6, 1),
        "phases": phases,
        "encode_and_decode_seconds": round(
            phases["encode"]["seconds"] + phases["decode"]["seconds"], 3
        ),
        "machine": platform.machine(),
    }
    print(result)
    _results.put("transformers", result)


if __name__ == "__main__":
    main()
