"""Print the results of the table scripts next to the paper's, with verdicts on our own bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _runs

Paper = Mapping[str, Mapping[str, float]]


def show(folder: Path, paper: Paper, data: Sequence[str], settings: Sequence[str]) -> None:
    """Print ours next to the paper's, and how the methods compare.

    Parameters
    ----------
    folder : Path
        Of the results.
    paper : mapping
        The paper's total difference by table and method.
    data, settings : sequence of str
        What to show, as far as it is there.
    """
    found = {(r["data"], r["settings"], r["method"]): r for r in _runs.read_all(folder)}
    for name in data:
        for choice in settings:
            keys = [(name, choice, method) for method in paper[name]]
            rows = {key[2]: found[key] for key in keys if key in found}
            if rows:
                for method in _runs.YARDSTICKS:
                    if (name, None, method) in found:
                        rows[method] = found[name, None, method]
                print(f"\n{name}, settings {choice}")
                _print_rows(rows, paper[name])
                _print_verdicts(rows)


def check(folder: Path, result: Mapping[str, Any]) -> bool:
    """Compare a fresh result with the recorded one; too good is as suspicious as too bad.

    The band of a mean over seeds is the recorded mean plus or minus three standard errors of the
    difference between two such means.
    """
    name = f"{result['data']}.{result['method']}.{result['settings']}.json"
    recorded = json.loads((folder / name).read_text(encoding="utf-8"))
    inside = True
    for measure, old, new in (
        ("FD", recorded["frechet_distance"]["best"], result["frechet_distance"]["best"]),
        *((m, recorded[m], result[m]) for m in ("total_difference", "association_error_across")),
    ):
        half = 3 * np.std(old, ddof=1) * np.sqrt(1 / len(old) + 1 / len(new))
        low, high = np.mean(old) - half, np.mean(old) + half
        within = bool(low <= np.mean(new) <= high)
        print(f"{measure}: {np.mean(new):.4f}, expected {low:.4f} to {high:.4f}: {within}")
        inside = inside and within
    return inside


def _print_rows(rows: dict[str, dict[str, Any]], paper: Mapping[str, float]) -> None:
    print(
        f"{'method':<16}{'FD best':>15}{'FD last':>15}{'total difference':>18}{'paper':>7}"
        f"{'within':>14}{'across':>14}{'seeds':>7}{'s':>7}"
    )
    for method, row in rows.items():
        cells = [
            _mean_and_deviation(values)
            for values in (
                row["frechet_distance"]["best"],
                row["frechet_distance"]["last"],
                row["total_difference"],
                row["association_error_within"],
                row["association_error_across"],
            )
        ]
        print(
            f"{method:<16}{cells[0]:>15}{cells[1]:>15}{cells[2]:>18}{paper.get(method, ''):>7}"
            f"{cells[3]:>14}{cells[4]:>14}{len(row['seeds']):>7}{row['seconds']['training']:>7.0f}"
        )


def _print_verdicts(rows: dict[str, dict[str, Any]]) -> None:
    """Compare with the bounds that we set ourselves; a miss is printed as a miss."""
    if "vflgan" not in rows:
        return
    distance = {m: float(np.mean(row["frechet_distance"]["best"])) for m, row in rows.items()}
    for other, most in (("wgan-gp", 1.5), ("vertigan", 1 / 3)):
        if other in distance:
            ratio = distance["vflgan"] / distance[other]
            _verdict(f"FD of VFLGAN / FD of {other}", ratio, most)
    for method in ("vflgan", "vertigan"):
        if method in rows:
            row = rows[method]
            across, within = (
                np.mean(row[f"association_error_{scope}"]) for scope in ("across", "within")
            )
            _verdict(
                f"across / within of {method}",
                float(across / within),
                1.25 if method == "vflgan" else None,
            )


def _verdict(what: str, value: float, most: float | None) -> None:
    if most is None:
        print(f"  {what}: {value:.2f}")
    else:
        print(f"  {what}: {value:.2f} (at most {most:.2f}: {_runs.verdict(value <= most)})")


def _mean_and_deviation(values: list[float]) -> str:
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.3f} ±{spread:.3f}"
