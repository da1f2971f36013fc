"""Table 3: published attacks beside ASSD, on generators trained with few records.

    VFLSYNTH_DATA=... python -m benchmarks.audit_table3 [--data red-wine] [--records 100]

The first rows of the shuffled table are members, the next as many are not, the last are the
reference table. Several generators are trained on the members, at once, and every attack is judged
on each: the spread over generators is what a single run, such as the paper's, does not show. ASSD
sees tables of the same size, 10,000 rows. Where as many models are recorded it is not measured
again; ``assd_commit`` is the commit that did. The paper does not say how long it trained on so few
records. By default it is as many epochs as on the whole table, which with 100 red wines are 1,050
steps instead of 15,000; see ``--epochs``.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import _commands, _results
from benchmarks._attacks import ATTACKS, attack_auc
from benchmarks._audit_paper import AREAS, REFERENCE_ROWS, add_options
from benchmarks._data import BenchmarkTable, load_table
from vflsynth import VFLGANSynthesizer, preset
from vflsynth.audit import audit_synthetic_data

SYNTHETIC_ROWS = 10_000
LOGAN_0_EPOCHS = 50  # of the attacker's own GAN: 2,000 steps


def main() -> None:
    """Measure every table with every number of records."""
    parser = _commands.parser(__doc__, data=AREAS)
    parser.add_argument("--records", nargs="+", type=int, default=[100, 200])
    parser.add_argument("--generators", type=int, default=8)
    add_options(parser)
    arguments = parser.parse_args()
    for data in arguments.data:
        for n in arguments.records:
            started = time.perf_counter()
            result = run(load_table(data), n, arguments)
            result["seconds"] = round(time.perf_counter() - started, 1)
            _results.put("audit_table3", result)
            print(as_text(result), flush=True)


def run(table: BenchmarkTable, n: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Attack generators trained on `n` records of a table."""
    rng = np.random.default_rng([0, n])
    order = rng.permutation(len(table.joined()))
    chosen = preset("red-wine" if table.name == "california-housing" else table.name)
    chosen["model_selection"] = "last"
    if arguments.epochs is not None:
        chosen["epochs"] = arguments.epochs
    synthesizer = VFLGANSynthesizer(
        **chosen,
        column_kinds=dict.fromkeys(table.categorical, "categorical"),
        device="cpu",
        verbose=0,
    )
    frames = {name: _rows(frame, order[:n]) for name, frame in table.party_frames.items()}
    joined = table.joined()
    members, non_members = _rows(joined, order[:n]), _rows(joined, order[n : 2 * n])
    reference = _rows(joined, order[-REFERENCE_ROWS[table.name] :])

    models = synthesizer.fit_replicas(frames, random_states=list(range(arguments.generators)))
    attacks: dict[str, Any] = {name: [] for name in ATTACKS}
    for seed, model in enumerate(models):
        synthetic = model.sample(SYNTHETIC_ROWS)
        for name, attack in ATTACKS.items():
            options = {"random_state": seed} if name.startswith("LOGAN") else {}
            if name == "LOGAN 0":
                options["epochs"] = LOGAN_0_EPOCHS
            found = attack_auc(
                attack,
                synthetic,
                members,
                non_members,
                reference,
                categorical=table.categorical,
                **options,
            )
            attacks[name].append([round(x, 4) for x in (found.value, found.low, found.high)])
    size = {"data": table.name, "records": n, "epochs": chosen["epochs"]}
    recorded = _results.rows("audit_table3", **size)
    if recorded and recorded[0]["assd"]["n_models"] >= arguments.models:
        there = recorded[0]
        assd = {
            "assd": there["assd"],
            "assd_commit": there.get("assd_commit", there["commit"]),
        }
    else:
        audit = audit_synthetic_data(
            synthesizer,
            frames,
            targets=["most_outlying"],
            categorical=table.categorical,
            n_models=arguments.models,
            n_synthetic=SYNTHETIC_ROWS,
            n_jobs=arguments.jobs,
            cache=arguments.cache,
        )
        assd = {"assd": json.loads(audit.to_json())}
    return {
        **size,
        "batch_size": chosen["batch_size"],
        "generators": arguments.generators,
        "attacks": attacks,
        "paper": AREAS[table.name].get(n),
        **assd,
    }


def _rows(frame: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    return frame.iloc[rows].reset_index(drop=True)


def as_text(result: dict[str, Any]) -> str:
    """Return the result as lines: mean over generators, the widest interval of one, the paper's."""
    lines = [f"{result['data']}, {result['records']} records, {result['epochs']} epochs (AUC)"]
    paper = result["paper"] or {}
    for name, found in result["attacks"].items():
        values = np.array(found)
        lines.append(
            f"  {name:14s} mean of {len(found)} generators {values[:, 0].mean():.2f}, from "
            f"{values[:, 0].min():.2f} to {values[:, 0].max():.2f}; one generator's interval about "
            f"±{(values[:, 2] - values[:, 1]).mean() / 2:.2f}; paper {paper.get(name, '–')}"
        )
    for attack in result["assd"]["targets"][0]["attacks"]:
        area = attack["auc"]
        lines.append(
            f"  ASSD, {attack['statistic']}, {attack['adversary']}: {area['value']:.2f} "
            f"({area['low']:.2f} to {area['high']:.2f})"
            + (" strongest" if attack["strongest"] else "")
            + f"; paper {paper.get('ASSD', '–')}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
