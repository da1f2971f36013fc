"""Large tables: seconds, peak memory, and what becomes of columns of many levels.

    python -m benchmarks.scale --data mixed --rows 50000 200000 1000000
    python -m benchmarks.scale --data stored stored-csv --rows 1000000 10000000
    python -m benchmarks.scale --data judged --methods disk memory --rows 200000 1000000
    python -m benchmarks.scale --data wide-100 wide-500 wide-2000 --rows 5000 --epochs 2
    python -m benchmarks.scale --data zips-12000 --rows 200000 --methods autoregressive vflgan

"mixed" is the table of 20 columns of `benchmarks.transformers`, at two parties. "stored" is the
same in folders of parquet files, "stored-csv" in csv files, of which `read_records` draws a million
records to fit on, and as many are sampled. "judged" evaluates the whole of it, on disk or in
memory, beside as many other rows. "zips-V" has V zip
codes at one party and an income at the other, whose logarithm is the effect of the code, half of it
shared by a hundred neighbouring codes, and as much noise; "zips-V-listed" is the same with all
codes declared public in a contract. "wide-C" has C columns at two parties, numbers, labels and
counts, every ten in a row related. Every measurement is a process of its own, whose largest
resident set is the peak; the table itself is in it.

Where three numbers of rows were measured, one of them to the end of training, seconds of one core
and memory are fitted by lines, and so is planned what 10,000,000 rows would take. Epochs that are
cut off at a number of steps take as long whatever the rows are: as many are planned for as training
to the end had.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import _commands, _results
from benchmarks._runs import EpochClock
from benchmarks.transformers import mixed_table, peak_megabytes
from vflsynth import AutoregressiveSynthesizer, VFLGANSynthesizer, read_records
from vflsynth.contract import ColumnContract, Contract, PartyContract
from vflsynth.evaluation import evaluate
from vflsynth.frames import align_party_frames, read_table, stored_table

METHODS: dict[str, Callable[..., Any]] = {
    "autoregressive": AutoregressiveSynthesizer,
    "vflgan": VFLGANSynthesizer,
}
_NEIGHBOURS, _PLANNED = 100, 10_000_000
_AT_ONCE, _DRAWN = 500_000, 1_000_000
"""Rows that are made and written at a time, and records that are drawn of what was written."""
_SCORES = {
    "total_variation": "total variation of codes",
    "total_variation_of_neighbours": "of hundreds of neighbours",
    "correlation_with_effect": "correlation of effect and income",
}


class Zips:
    """Tables with many zip codes, all with the same shares and effects."""

    def __init__(self, n_levels: int) -> None:
        rng = np.random.default_rng(20261)
        self.labels = np.array([f"{i:06d}" for i in range(n_levels)], dtype=object)
        weights = rng.lognormal(0.0, 1.0, n_levels)
        self.shares = weights / weights.sum()
        near = rng.normal(size=-(-n_levels // _NEIGHBOURS)).repeat(_NEIGHBOURS)[:n_levels]
        effects = near + rng.normal(size=n_levels)
        self.effects = (effects - self.shares @ effects) / effects.std()

    def frames(self, n_rows: int, seed: int) -> dict[str, pd.DataFrame]:
        """Draw both parties' tables."""
        rng = np.random.default_rng([seed, n_rows])
        codes = rng.choice(len(self.labels), n_rows, p=self.shares)
        age = rng.integers(18, 90, n_rows)
        logs = 10.0 + self.effects[codes] + rng.normal(size=n_rows)
        agency = {"id": np.arange(n_rows), "zip": pd.Series(self.labels[codes], dtype="str")}
        bank = {"id": np.arange(n_rows), "income": np.exp(logs).round(2)}
        return {
            "agency": pd.DataFrame(agency | {"age": age, "sex": rng.choice(["f", "m"], n_rows)}),
            "bank": pd.DataFrame(bank | {"loans": rng.poisson(np.exp(0.2 * (logs - 10.0)))}),
        }

    def scores(self, real: pd.DataFrame, table: pd.DataFrame) -> dict[str, float]:
        """Compare codes of a table with those of another one."""
        known = table[table["zip"].isin(self.labels)]
        counts = [self._counts(own["zip"]) for own in (real, known)]
        of_neighbours = [np.add.reduceat(c, np.arange(0, len(c), _NEIGHBOURS)) for c in counts]
        effects = self.effects[known["zip"].astype(np.int64)]
        return {
            "codes": int((counts[1] > 0).sum()),
            "merged_share": 1.0 - len(known) / len(table),
            "total_variation": _total_variation(*counts),
            "total_variation_of_neighbours": _total_variation(*of_neighbours),
            "correlation_with_effect": float(np.corrcoef(effects, np.log(known["income"]))[0, 1]),
        }

    def _counts(self, codes: pd.Series[Any]) -> Any:
        return np.bincount(codes.astype(np.int64), minlength=len(self.labels))


def wide_frames(n_rows: int, n_columns: int, seed: int) -> dict[str, pd.DataFrame]:
    """Draw two parties' tables of many columns, every ten in a row of one factor."""
    rng = np.random.default_rng([seed, n_rows, n_columns])
    factors, columns = rng.normal(size=(n_rows, n_columns // 10 + 1)), {}
    for i in range(n_columns):
        x = factors[:, i // 10] + rng.normal(size=n_rows)
        labels, counts = np.digitize(x, [-1.0, 0.0, 1.0]).astype(str), np.round(5.0 * x)
        columns[f"c{i}"] = (x, labels, np.clip(counts, -20, 20).astype(int))[i % 3]
    table, half = pd.DataFrame(columns), n_columns // 2
    halves = {"agency": table.iloc[:, :half], "bank": table.iloc[:, half:]}
    return {name: own.assign(id=np.arange(n_rows)) for name, own in halves.items()}


def mixed_frames(n_rows: int, seed: int, first: int) -> dict[str, pd.DataFrame]:
    """Draw two parties' tables of ten columns each, with numbers of records from `first` on."""
    table = mixed_table(n_rows, seed)
    table["quality"] = table["quality"].astype(np.int8)
    halves = {"agency": table.iloc[:, :10], "bank": table.iloc[:, 10:]}
    return {name: own.assign(id=np.arange(first, first + n_rows)) for name, own in halves.items()}


def _total_variation(a: Any, b: Any) -> float:
    return float(np.abs(a / a.sum() - b / b.sum()).sum() / 2.0)


def measure(name: str, method: str, n_rows: int, seed: int, epochs: int | None) -> _results.Row:
    """Fit and sample, in this process."""
    row: _results.Row = {"data": name, "method": method, "rows": n_rows, "seed": seed}
    kind, _, rest = name.partition("-")
    levels, _, listed = (rest if kind == "zips" else "").partition("-")
    options: dict[str, Any] = {"epochs": epochs}
    if kind == "wide":
        frames = wide_frames(n_rows, int(rest), seed)
    elif levels:
        zips = Zips(int(levels))
        frames = zips.frames(n_rows, seed)
        column = ColumnContract(
            kind="categorical", categories=tuple(zips.labels) if listed else None
        )
        options["contract"] = Contract({"agency": PartyContract({"zip": column})})
    elif kind == "stored":
        return measure_stored(row, rest, epochs)
    elif kind == "judged":
        return measure_judged(row)
    else:
        frames = mixed_frames(n_rows, seed, 0)
    row["tables_peak_rss_mb"] = peak_megabytes()
    row, synthetic = _fitted(row, frames, options, n_rows)
    if levels:
        real = frames["agency"].merge(frames["bank"], on="id")
        other = zips.frames(n_rows, seed + 1)
        row |= zips.scores(real, synthetic)
        fresh = zips.scores(real, other["agency"].merge(other["bank"], on="id"))
        row |= {f"{k}_of_fresh_rows": v for k, v in fresh.items() if k != "merged_share"}
    return row


def _fitted(
    row: _results.Row, frames: Any, options: dict[str, Any], n_sampled: int
) -> tuple[_results.Row, pd.DataFrame]:
    """Fit and sample, and write down what it took."""
    synth = METHODS[row["method"]](random_state=row["seed"], verbose=0, **options)
    clock = EpochClock()
    started, cpu = time.perf_counter(), time.process_time()
    synth.fit(frames, on="id", callbacks=[clock])
    row["fit_seconds"] = time.perf_counter() - started
    row["fit_cpu_seconds"] = time.process_time() - cpu
    after_first = len(clock.ends) - 1
    per_epoch = (clock.ends[-1] - clock.ends[0]) / after_first if after_first > 0 else None
    row["epoch_cpu_seconds"] = per_epoch
    row["epochs_asked"], row["epochs"] = options["epochs"], len(synth.history_)
    row["fit_peak_rss_mb"] = peak_megabytes()
    started, cpu = time.perf_counter(), time.process_time()
    synthetic = synth.sample(n_sampled)
    row["sample_seconds"] = time.perf_counter() - started
    row["sample_cpu_seconds"] = time.process_time() - cpu
    row["peak_rss_mb"] = peak_megabytes()
    return row, synthetic


def measure_stored(row: _results.Row, suffix: str, epochs: int | None) -> _results.Row:
    """Write both tables as folders of files; draw, fit and sample a million records of them."""
    seed = row["seed"]
    with TemporaryDirectory() as folder:
        files = _written(Path(folder), row["rows"], seed, suffix)
        row["tables_peak_rss_mb"] = peak_megabytes()
        started, cpu = time.perf_counter(), time.process_time()
        drawn = read_records(files, "id", max_records=_DRAWN, random_state=seed)
        row["read_seconds"] = time.perf_counter() - started
        row["read_cpu_seconds"] = time.process_time() - cpu
        row["read_peak_rss_mb"] = peak_megabytes()
    return _fitted(row, drawn, {"epochs": epochs}, len(drawn["bank"]))[0]


def measure_judged(row: _results.Row) -> _results.Row:
    """Write both tables, and as many rows of the same distribution; judge these."""
    with TemporaryDirectory() as folder:
        files = _written(Path(folder) / "real", row["rows"], row["seed"], "")
        others = _written(Path(folder) / "other", row["rows"], row["seed"] + 1000, "")
        row["tables_peak_rss_mb"] = peak_megabytes()
        started, cpu = time.perf_counter(), time.process_time()
        tables: list[Any] = []
        for own in (files, others):
            if row["method"] == "disk":
                tables.append(stored_table(own, "id")[0])
            else:
                frames = {party: read_table(path) for party, path in own.items()}
                tables.append(
                    pd.concat(align_party_frames(frames, "id")[0], axis=1).droplevel(0, 1)
                )
        results = evaluate(*tables)
        row["judge_seconds"] = time.perf_counter() - started
        row["judge_cpu_seconds"] = time.process_time() - cpu
        row["peak_rss_mb"] = peak_megabytes()
        row["values"] = {name: result.value for name, result in results.items()}
    return row


def _written(folder: Path, n_rows: int, seed: int, suffix: str) -> dict[str, Path]:
    """Write both parties' tables, some rows at a time, those of a time in any order."""
    folder.mkdir(exist_ok=True)
    files, rng = {}, np.random.default_rng([seed, n_rows])
    for first in range(0, n_rows, _AT_ONCE):
        frames = mixed_frames(min(_AT_ONCE, n_rows - first), seed + first // _AT_ONCE, first)
        for party, frame in frames.items():
            own = frame.iloc[rng.permutation(len(frame))]
            files[party] = _append(own, folder / party, first, suffix)
    return files


def _append(frame: pd.DataFrame, path: Path, first: int, suffix: str) -> Path:
    """Write some more rows: lines of one csv file, or another parquet file of a folder."""
    if suffix == "csv":
        path = path.with_suffix(".csv")
        codes = [name for name in frame if name == "account"]
        frame = frame.assign(**{name: frame[name] >> 8 for name in codes})  # 19 digits: no number
        frame.to_csv(path, mode="a", header=not first, index=False)
        return path
    path.mkdir(exist_ok=True)
    frame.to_parquet(path / f"part-{first:09d}.parquet", index=False)
    return path


def plan() -> list[str]:
    """Plan a larger run from slopes, for what was measured with three numbers of rows."""
    found: dict[tuple[str, str], list[_results.Row]] = {}
    for row in _results.rows("scale"):
        if row.get("epoch_cpu_seconds") is not None:
            found.setdefault((row["data"], row["method"]), []).append(row)
    lines = []
    for (data, method), rows in found.items():
        to_the_end = [row["epochs"] for row in rows if row["epochs_asked"] is None]
        if len({row["rows"] for row in rows}) < 3 or not to_the_end:
            continue
        n_epochs = max(to_the_end)
        training = n_epochs * max(row["epoch_cpu_seconds"] for row in rows)
        rest = [r["fit_cpu_seconds"] - r["epochs"] * r["epoch_cpu_seconds"] for r in rows]
        per_row = {
            "fit but for epochs": _line(rows, rest),
            "sample": _line(rows, [row["sample_cpu_seconds"] for row in rows]),
        }
        memory = _line(rows, [row["peak_rss_mb"] for row in rows])
        slopes = [f"{name} {line[0] * 1e6:.0f} s" for name, line in per_row.items()]
        of_epochs = [f"{row['epoch_cpu_seconds']:.1f}" for row in rows]
        seconds = [training, *(line[0] * _PLANNED + line[1] for line in per_row.values())]
        lines += [
            f"{data}, {method}, per million rows: {', '.join(slopes)}, "
            f"memory {memory[0] * 1e3:.2f} GB; epochs of {', '.join(of_epochs)} s",
            f"    {_PLANNED:,} rows planned: {n_epochs} epochs {seconds[0]:.0f} s of one core, the "
            f"rest of the fit {seconds[1]:.0f} s, sample {seconds[2]:.0f} s, peak "
            f"{(memory[0] * _PLANNED + memory[1]) / 1e3:.1f} GB",
        ]
    return lines


def _line(rows: list[_results.Row], values: list[float]) -> tuple[float, float]:
    """Fit slope per row and offset."""
    slope, offset = np.polyfit([row["rows"] for row in rows], values, 1)
    return float(slope), float(offset)


def show() -> None:
    """Print what was measured, of zip codes what became of them beside fresh rows, and plans."""
    for row in _results.rows("scale"):
        if "judge_cpu_seconds" in row:
            print(
                f"{row['data']:<20}{row['method']:<15}{row['rows']:>9,} rows: evaluate "
                f"{row['judge_seconds']:.0f} s ({row['judge_cpu_seconds']:.0f} of one core), peak "
                f"{row['peak_rss_mb'] / 1000:.2f} GB"
            )
            continue
        print(
            f"{row['data']:<20}{row['method']:<15}{row['rows']:>9,} rows: fit "
            f"{row['fit_seconds']:>5.0f} s ({row['fit_cpu_seconds']:.0f} of one core, "
            f"{row['epochs']} epochs), sample {row['sample_seconds']:.0f} s, peak "
            f"{row['peak_rss_mb'] / 1000:.2f} GB (tables {row['tables_peak_rss_mb'] / 1000:.2f})"
        )
        if "read_cpu_seconds" in row:
            print(
                f"    a million records drawn in {row['read_cpu_seconds']:.0f} s of one core, peak "
                f"{row['read_peak_rss_mb'] / 1000:.2f} GB"
            )
        if "codes" in row:
            fresh = (row[f"{name}_of_fresh_rows"] for name in _SCORES)
            compared = zip(_SCORES.values(), (row[name] for name in _SCORES), fresh, strict=True)
            texts = [f"{text} {own:.3f} ({other:.3f})" for text, own, other in compared]
            print(f"    {row['merged_share']:.1%} merged; {', '.join(texts)}")
    for line in plan():
        print(line)


def main() -> None:
    """Measure what is missing, each cell in a process of its own, and print the table."""
    parser = _commands.parser(__doc__)
    parser.add_argument("--data", nargs="+", default=["mixed", "zips-12000"])
    parser.add_argument(
        "--methods", nargs="+", choices=[*METHODS, "disk", "memory"], default=["autoregressive"]
    )
    parser.add_argument("--rows", nargs="+", type=int, default=[50_000, 200_000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="default: what the method takes")
    parser.add_argument("--here", action="store_true", help="measure one cell in this process")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    if arguments.show:
        show()
        return
    for table in arguments.data:
        for method in arguments.methods:
            for n_rows in arguments.rows:
                key = {"data": table, "method": method, "rows": n_rows, "seed": arguments.seed}
                if arguments.here:
                    warnings.simplefilter("ignore")
                    _results.put("scale", measure(*key.values(), arguments.epochs))
                elif not _results.rows("scale", **key):
                    cell = ["--data", table, "--methods", method, "--rows", str(n_rows)]
                    cell += ["--seed", str(arguments.seed), "--here"]
                    if arguments.epochs is not None:
                        cell += ["--epochs", str(arguments.epochs)]
                    subprocess.run([sys.executable, "-m", "benchmarks.scale", *cell], check=True)
    show()


if __name__ == "__main__":
    main()
