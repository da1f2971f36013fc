"""Tables 2, 3 and 4 of the paper beside ours, and what the intervals allow to be said.

    python -m benchmarks.audit_tables

Reads what ``audit_assd`` and ``audit_table3`` have measured, and trains nothing.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from benchmarks import _commands, _results
from benchmarks._audit_paper import ACCURACIES, AREAS, EPSILONS, PUBLISHED_ATTACKS, accuracies
from vflsynth.adversary.intervals import binomial_interval

PAPER_TEST_MODELS = 60
RECORDS = {"farthest": "Record 1 (farthest)", "most_outlying": "Record 2 (most outlying)"}


def main() -> None:
    """Print the three tables."""
    _commands.parser(__doc__).parse_args()
    print(accuracy_table("ASSD", "Table 2: attacks on the synthetic table, accuracy"))
    print(area_table())
    print(accuracy_table("ASIF", "Table 4: attacks on intermediate features, accuracy"))


def accuracy_table(scheme: str, title: str) -> str:
    """Return Table 2 (ASSD) or 4 (ASIF) as text."""
    lines = [
        title,
        "The paper's random forest. Paper and 'same protocol': mean (2 sd) over five overlapping "
        f"splits; with its {PAPER_TEST_MODELS} test models a split tells accuracies from "
        f"{_smallest_visible(PAPER_TEST_MODELS):.2f} on apart from guessing. Holdout: each test "
        "model used once, 95 % intervals.",
    ]
    for data, epsilon in product(ACCURACIES[scheme], (None, *EPSILONS)):
        of = {} if epsilon is None else {"epsilon": epsilon}
        table = "audit_private" if of else "audit_assd"
        found = _results.rows(table, scheme=scheme, data=data, **of)
        name = f"{data}, ε {epsilon:g}" if of else data
        if not found:
            lines.append(f"  {name}: not run")
        for result in found:
            n_models = result["n_models"]
            lines.append(f"  {name}: {n_models} + {n_models} models, {result['epochs']} epochs")
            for target in result["targets"]:
                lines += _rows(target, accuracies(scheme, data, epsilon))
    return "\n".join([*lines, ""])


def _rows(target: dict[str, Any], paper: dict[str, Any]) -> list[str]:
    """Return one line per statistic of the paper, and one for the strongest attack."""
    chosen = next(name for name in target["chosen_by"] if name in RECORDS)
    heading = f"    {RECORDS[chosen]} = {target['target']}, {target['source']}"
    lines = [heading]
    protocol = {
        cell["statistic"]: cell
        for cell in target["paper_protocol"]
        if cell["adversary"] == "random forest"
    }
    for attack in target["attacks"]:
        name = f"{attack['statistic']}, {attack['adversary']}"
        in_paper = attack["adversary"] == "random forest" and attack["statistic"] in paper[chosen]
        if not in_paper and not attack["strongest"]:
            continue
        figures = ""
        if in_paper:
            mean, deviation = paper[chosen][attack["statistic"]]
            cell = protocol[attack["statistic"]]
            figures = (
                f"paper {mean:.2f} ({deviation:.2f}), same protocol {cell['mean']:.2f} "
                f"({cell['two_deviations']:.2f}); "
            )
        mark = " [strongest in training]" if attack["strongest"] else ""
        lines.append(
            f"      {name}{mark}: {figures}holdout {_text(attack['accuracy'])}, "
            f"AUC {_text(attack['auc'])}: {_verdict(attack)}"
        )
    return lines


def _verdict(attack: dict[str, Any]) -> str:
    """Say what an attack's intervals allow."""
    if attack["auc"]["low"] > 0.5:
        return f"better than guessing; ε is at least {attack['epsilon_at_least']:.2f}"
    return f"not shown to beat guessing; {attack['accuracy']['high']:.0%} right is not ruled out"


def area_table() -> str:
    """Return Table 3 as text."""
    lines = [
        "Table 3: AUC of published attacks, which ask about all records, and of ASSD, which asks "
        "about the most outlying one",
        "Ours: mean over generators trained on the same records, lowest to highest; ± is one "
        "generator's 95 % interval; then how many generators' intervals exclude chance.",
    ]
    for data, sizes in AREAS.items():
        for n, paper in sizes.items():
            found = _results.rows("audit_table3", data=data, records=n)
            if not found:
                lines.append(f"  {data}, {n} records: not run")
            for result in found:
                lines += _area_rows(result, paper)
    return "\n".join([*lines, ""])


def _area_rows(result: dict[str, Any], paper: dict[str, float]) -> list[str]:
    lines = [f"  {result['data']}, {result['records']} records, {result['epochs']} epochs"]
    for name in PUBLISHED_ATTACKS:
        values = np.array(result["attacks"][name])
        area, low, high = values.T
        apart = int(((low > 0.5) | (high < 0.5)).sum())
        lines.append(
            f"    {name:14s} paper {paper[name]:.2f}; ours {area.mean():.2f} ({area.min():.2f} to "
            f"{area.max():.2f}) ±{(high - low).mean() / 2:.2f}; {apart} of {len(values)} apart "
            "from chance"
        )
    (target,) = result["assd"]["targets"]
    for attack in target["attacks"]:
        naive = attack["statistic"] == "naive" and attack["adversary"] == "random forest"
        if naive or attack["strongest"]:
            mark = " [strongest in training]" if attack["strongest"] else ""
            lines.append(
                f"    ASSD, {attack['statistic']}, {attack['adversary']}{mark}: paper "
                f"{paper['ASSD']:.2f}; ours {_text(attack['auc'])}: {_verdict(attack)}"
            )
    return lines


def _smallest_visible(n: int) -> float:
    """Smallest accuracy on n models whose exact 95 % interval excludes one half."""
    return next(k / n for k in range(n + 1) if binomial_interval(k, n).low > 0.5)


def _text(estimate: dict[str, float]) -> str:
    return f"{estimate['value']:.2f} ({estimate['low']:.2f} to {estimate['high']:.2f})"


if __name__ == "__main__":
    main()
