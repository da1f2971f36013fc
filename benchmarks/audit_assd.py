"""The paper's privacy audits (Tables 2 and 4) in one command, beside a plain loop's time.

    VFLSYNTH_DATA=... python -m benchmarks.audit_assd [--data red-wine] [--scheme ASSD]
    VFLSYNTH_DATA=... python -m benchmarks.audit_assd --epsilon 10 --models 10 --epochs 5

Shadow models go on where an interrupted run stopped (``benchmarks/cache``). Times are those of the
models trained in this run, sampling and statistics included, and stay as they are when a later run
finds all models in the cache. One epoch of the plain loop is timed before and after them in the
same process, on the same cores; processor time tells more than wall time where others use the
machine too. The plain loop knows wines only. Adult's models at the paper's length take days of one
core for 100 a world; ``--models 20 --epochs 3`` is what we ran, and the result says so. With
``--epsilon`` models have the paper's mechanism, `FirstLayer` with its δ, and are trained alone.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import _commands, _results
from benchmarks._audit_paper import ACCURACIES, EPSILONS, accuracies, add_options
from benchmarks._data import BenchmarkTable, load_table
from benchmarks._schemas import DELTAS
from benchmarks.plain_vflgan import PlainVFLGAN
from vflsynth import FirstLayer, VFLGANSynthesizer, preset
from vflsynth.audit import AuditReport, audit_intermediate_features, audit_synthetic_data
from vflsynth.exceptions import NoPrivacyWarning

PLAIN = ("red-wine", "white-wine")
"""Tables that the plain loop is written for."""


def main() -> None:
    """Run the audit, write what it found, and save its page beside the shadow models."""
    parser = _commands.parser(__doc__)
    parser.add_argument("--data", choices=tuple(ACCURACIES["ASSD"]), default="red-wine")
    parser.add_argument("--scheme", choices=tuple(ACCURACIES), default="ASSD")
    parser.add_argument("--epsilon", type=float, choices=EPSILONS)
    add_options(parser)
    arguments = parser.parse_args()

    table = load_table(arguments.data)
    chosen = preset(arguments.data)
    if arguments.epochs is not None:
        chosen["epochs"] = arguments.epochs
    if arguments.epsilon is not None:
        delta = DELTAS[arguments.data]
        chosen["privacy"] = FirstLayer(epsilon=arguments.epsilon, delta=delta, calibration="paper")
        warnings.simplefilter("ignore", NoPrivacyWarning)
    synthesizer = VFLGANSynthesizer(
        **chosen, column_kinds=dict.fromkeys(table.categorical, "categorical"), device="cpu"
    )
    audit_scheme = {"ASSD": audit_synthetic_data, "ASIF": audit_intermediate_features}
    load_before = os.getloadavg()[0]
    timed = table.name in PLAIN and arguments.epsilon is None
    plain = [plain_epoch(table)] if timed else []
    started = time.perf_counter()
    audit = audit_scheme[arguments.scheme](
        synthesizer,
        table.party_frames,
        categorical=table.categorical,
        n_models=arguments.models,
        protocol="paper",
        n_jobs=arguments.jobs,
        cache=arguments.cache,
    )
    seconds_all = round(time.perf_counter() - started, 1)
    plain += [plain_epoch(table)] if plain else []
    cost = {
        "seconds_all": seconds_all,
        "speed": speed(audit, plain, chosen["epochs"]) if plain else None,
        "jobs": arguments.jobs,
        "peak_memory_gib": round(peak_memory() / 2**30, 2),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "commit": _results.environment()["commit"],
    }
    if not audit.n_trained:  # judged anew: what training took is known already
        for row in _results.rows("audit_assd", scheme=arguments.scheme, data=arguments.data):
            cost = row["cost"]
    result = {
        "data": arguments.data,
        "epochs": chosen["epochs"],
        **json.loads(audit.to_json()),
        "cost": cost,
        "paper": accuracies(arguments.scheme, arguments.data, arguments.epsilon),
    }
    if arguments.epsilon is None:
        _results.put("audit_assd", result)
    else:
        _results.put("audit_private", result | {"epsilon": arguments.epsilon})
    page = arguments.cache / f"{arguments.scheme.lower()}-{arguments.data}.html"
    audit.page(f"{arguments.scheme} of VFLGAN on {arguments.data}").save(page)
    print(audit)
    print(beside_the_paper(audit, result["paper"]))
    print(
        f"{audit.n_trained} models trained in {audit.seconds:.0f} s, {audit.cpu_seconds:.0f} s of "
        "processor time"
    )
    print(json.dumps(cost))


def plain_epoch(table: BenchmarkTable) -> tuple[float, float]:
    """Return wall and processor seconds of one epoch of the plain loop, with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    n, n_categories = len(table.joined()), table.joined()["quality"].nunique()
    # What the numbers are does not matter to the time.
    first = torch.from_numpy(rng.standard_normal((n, 6), dtype=np.float32))
    second = torch.from_numpy(rng.standard_normal((n, 5 + n_categories), dtype=np.float32))
    loop = PlainVFLGAN(first, second, n_categories, preset(table.name)["batch_size"])
    started, cpu = time.perf_counter(), time.process_time()
    loop.epoch()
    seconds = time.perf_counter() - started, time.process_time() - cpu
    torch.set_num_threads(threads)
    return seconds


def speed(
    audit: AuditReport, plain: list[tuple[float, float]], epochs: int
) -> dict[str, float] | None:
    """Return times per model, and how many times faster than the plain loop; None if all cached."""
    if not audit.n_trained:
        return None
    wall, cpu = (epochs * float(np.mean(times)) for times in zip(*plain))
    ours_wall, ours_cpu = audit.seconds / audit.n_trained, audit.cpu_seconds / audit.n_trained
    return {
        "models": audit.n_trained,
        "wall_seconds_per_model": round(ours_wall, 3),
        "plain_wall_seconds_per_model": round(wall, 3),
        "times_faster_by_wall": round(wall / ours_wall, 1),
        "processor_seconds_per_model": round(ours_cpu, 3),
        "plain_processor_seconds_per_model": round(cpu, 3),
        "times_faster_per_core": round(cpu / ours_cpu, 1),
    }


def beside_the_paper(audit: AuditReport, paper: dict[str, Any] | None) -> str:
    """Return the paper's protocol, our interval and the paper's figure, one line per statistic."""
    lines = [
        "random forest: the paper's protocol (mean, 2 sd); holdout accuracy and AUC with 95 % "
        "intervals; the paper's figure"
    ]
    for target in audit.targets:
        attacks = {
            attack.statistic: attack
            for attack in target.attacks
            if attack.adversary == "random forest"
        }
        for cell in target.paper_protocol:
            if cell.adversary != "random forest":
                continue
            attack = attacks[cell.statistic]
            figures = (paper or {}).get(target.chosen_by[0], {}).get(cell.statistic)
            lines.append(
                f"{target.target!s:>6} {target.source}, {cell.statistic}: "
                f"{cell.mean:.2f} ({cell.two_deviations:.2f}); accuracy {attack.accuracy}; "
                f"AUC {attack.auc}; paper {'–' if figures is None else figures}"
            )
    return "\n".join(lines)


def peak_memory() -> int:
    """Return the sum of the peaks of this process and its living children, in bytes."""
    peaks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if os.getpid() in (int(fields["Pid"]), int(fields["PPid"])) and "VmHWM" in fields:
            peaks += int(fields["VmHWM"].split()[0]) * 1024
    return peaks


if __name__ == "__main__":
    main()
