"""Tables 1 and 5 of the VFLGAN paper: run them, and print ours next to the paper's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from benchmarks import _commands, _results, _runs
from benchmarks._data import load_table

Paper = Mapping[str, Mapping[str, float]]

MEASURES = (
    "frechet_distance_best",
    "frechet_distance_last",
    "total_difference",
    "association_error_within",
    "association_error_across",
)


def main(
    doc: str | None,
    results: str,
    paper: Paper,
    kinds: Mapping[str, str] | None = None,
    yardsticks: Sequence[str] = (),
) -> None:
    """Run what is missing, show it, or run it again and check that it is as recorded.

    `paper` has the paper's total difference by table and method; `kinds` say how columns are
    encoded, see `_runs.run`; `yardsticks` are methods without training, run on every table, too.
    """
    parser = _commands.parser(
        doc, "run", "show", "check", data=paper, method=_runs.SYNTHESIZERS, settings=_runs.SETTINGS
    )
    parser.set_defaults(settings=["default"])
    _commands.add_seeds(parser)
    arguments = parser.parse_args()
    wanted = list(product(arguments.data, arguments.settings, arguments.method))
    if arguments.action == "run":
        for data, settings, method in [*wanted, *product(arguments.data, [None], yardsticks)]:
            _runs.make(results, load_table(data), method, settings, arguments.seeds, kinds)
    if arguments.action == "check":
        inside = [
            check(results, _runs.run(load_table(data), method, settings, arguments.seeds, kinds))
            for data, settings, method in wanted
        ]
        sys.exit(not all(inside))
    show(results, paper, arguments.data, arguments.settings)


def show(results: str, paper: Paper, data: Sequence[str], settings: Sequence[str]) -> None:
    """Print ours next to the paper's, and how the methods compare."""
    found = _results.cells(results)
    for name, choice in product(data, settings):
        rows = {
            method: found[name, method, choice]
            for method in paper[name]
            if (name, method, choice) in found
        }
        if rows:
            for method in _runs.YARDSTICKS:
                if (name, method, None) in found:
                    rows[method] = found[name, method, None]
            print(f"\n{name}, settings {choice}")
            _print_rows(rows, paper[name])
            _print_verdicts(rows)


def check(results: str, rows: list[_results.Row]) -> bool:
    """Compare fresh rows with the recorded ones; too good is as suspicious as too bad.

    The band of a mean over seeds is the recorded mean plus or minus three standard errors of the
    difference between two such means.
    """
    cell = {name: rows[0][name] for name in ("data", "method", "settings")}
    recorded = _results.rows(results, **cell)
    inside = True
    for measure in ("frechet_distance_best", "total_difference", "association_error_across"):
        old, new = ([row[measure] for row in of_seeds] for of_seeds in (recorded, rows))
        half = 3 * np.std(old, ddof=1) * np.sqrt(1 / len(old) + 1 / len(new))
        low, high = np.mean(old) - half, np.mean(old) + half
        within = bool(low <= np.mean(new) <= high)
        print(f"{measure}: {np.mean(new):.4f}, expected {low:.4f} to {high:.4f}: {within}")
        inside = inside and within
    return inside


def _print_rows(rows: Mapping[str, pd.DataFrame], paper: Mapping[str, float]) -> None:
    print(
        f"{'method':<16}{'FD best':>15}{'FD last':>15}{'total difference':>18}{'paper':>7}"
        f"{'within':>14}{'across':>14}{'seeds':>7}{'s':>7}"
    )
    for method, row in rows.items():
        cells = [_mean_and_deviation(row[measure]) for measure in MEASURES]
        print(
            f"{method:<16}{cells[0]:>15}{cells[1]:>15}{cells[2]:>18}{paper.get(method, ''):>7}"
            f"{cells[3]:>14}{cells[4]:>14}{len(row):>7}{row['training_seconds'].iloc[0]:>7.0f}"
        )


def _print_verdicts(rows: Mapping[str, pd.DataFrame]) -> None:
    """Compare with the bounds that we set ourselves; a miss is printed as a miss."""
    if "vflgan" not in rows:
        return
    distance = {method: row["frechet_distance_best"].mean() for method, row in rows.items()}
    for other, most in (("wgan-gp", 1.5), ("vertigan", 1 / 3)):
        if other in distance:
            ratio = distance["vflgan"] / distance[other]
            _verdict(f"FD of VFLGAN / FD of {other}", ratio, most)
    for method, bound in (("vflgan", 1.25), ("vertigan", None)):
        if method in rows:
            across, within = (
                rows[method][f"association_error_{scope}"].mean() for scope in ("across", "within")
            )
            _verdict(f"across / within of {method}", across / within, bound)


def _verdict(what: str, value: float, most: float | None) -> None:
    bound = "" if most is None else f" (at most {most:.2f}: {_results.verdict(value <= most)})"
    print(f"  {what}: {value:.2f}{bound}")


def _mean_and_deviation(values: pd.Series) -> str:
    spread = values.std() if len(values) > 1 else 0.0
    return f"{values.mean():.3f} ±{spread:.3f}"
