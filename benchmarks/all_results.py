"""All recorded results as one page: ours beside the papers' figures.

    python -m benchmarks.all_results            # writes docs/results.md
    python -m benchmarks.all_results --check    # is the page that of the recorded results?

Runs nothing: it prints what ``benchmarks/results`` holds, each table with the commands that make it
anew. Scripts that have a ``show`` of their own are shown by it.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import accountants
from benchmarks._commands import commands
from benchmarks._runs import RESULTS, read_all, verdict
from vflsynth import preset

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
OPENING = """\
# Measured

Written by `python -m benchmarks.all_results` from `benchmarks/results/`, where every file has the
versions and the commit, with these exceptions.
{exceptions}

Commands are read off the results where these tell them. Most scripts leave alone what is there:
move a file away to make it anew. `VFLSYNTH_DATA` names a folder with the public tables. All of it
ran on two cores without a GPU, which other programs used too where times are not ratios.

FD is the Fréchet distance (VFLGAN Eq. 23) on standardised and one-hot columns, lower is better;
total difference is that of TSTS, TRTS and TSTR from TRTR, lower is better. A bound that we set
ourselves is printed with "met" or "MISSED".
"""


def show(module: str, *arguments: str) -> str:
    """Return what a script prints about recorded results."""
    printed = io.StringIO()
    main = importlib.import_module(f"benchmarks.{module}").main
    with redirect_stdout(printed), mock.patch.object(sys, "argv", [module, *arguments]):
        main()
    return printed.getvalue()


def defaults() -> str:
    """Print the default settings beside TVAE and CTGAN."""
    lines = [f"{'table':<20}{'method':<9}{'FD':>8}{'TD':>8}{'within':>8}{'across':>8}{'seeds':>7}"]
    for path in sorted((RESULTS / "defaults").glob("*.json")):
        result = _read(path)
        for method in ("vflgan", "tvae", "ctgan"):
            rows = result.get(method, [])
            if rows:
                cells = [_mean(rows, key) for key in MEASURES]
                lines.append(
                    f"{result['table']:<20}{method:<9}"
                    + "".join(f"{cell:>8.3f}" for cell in cells)
                    + f"{len(rows):>7}"
                )
    return "\n".join(lines)


MEASURES = (
    "frechet_distance",
    "total_difference",
    "association_error_within",
    "association_error_across",
)


def penalties() -> str:
    """Print both gradient penalties with both sizes."""
    lines = [f"{'':<28}{'penalty':<11}{'FD best':>9}{'FD last':>9}{'TD':>9}"]
    for row in _read(RESULTS / "penalties.json")["rows"]:
        keys = ("frechet_distance_best", "frechet_distance_last", "total_difference")
        cells = "".join(f"{np.mean(row[key]):>9.3f}" for key in keys)
        lines.append(f"{row['settings']:<28}{row['gradient_penalty']:<11}{cells}")
    return "\n".join(lines)


def step_time() -> str:
    """Print a training step's time against that of the plain loop."""
    lines = []
    for row in _read(RESULTS / "step_time.json")["rows"]:
        ours, plain, ratio = row["ms_per_model_step"], row["plain_ms_per_step"], row["times_faster"]
        lines.append(
            f"{row['replicas']:>4} models at once: {ours:.3f} ms per step and model, plain loop "
            f"{plain:.2f} ms: {ratio['median']:g} times faster "
            f"(quartiles {ratio['q25']:g} to {ratio['q75']:g})"
        )
    return "\n".join(lines)


def transformers() -> str:
    """Print encoding and decoding."""
    result = _read(RESULTS / "transformers.json")
    rows, columns = result["arguments"]["rows"], result["columns"]
    phases = [
        f"  {name}: {phase['seconds']:.1f} s, peak {phase['peak_rss_mb'] / 1000:.2f} GB so far"
        for name, phase in result["phases"].items()
    ]
    return "\n".join([f"{rows:,} rows of {columns} columns", *phases])


def accounting() -> str:
    """Print what ε costs."""
    return accountants.show(_read(RESULTS / "accountants.json"))


def sampling() -> str:
    """Print rows per second."""
    result = _read(RESULTS / "sampling.json")
    return (
        f"{result['rows']:,} rows of {result['columns']} columns: "
        f"{result['rows_per_cpu_second']:,} rows per second of one core"
    )


def engine() -> str:
    """Print what processes of their own cost."""
    result = _read(RESULTS / "engine.json")
    loopback, delayed = result["loopback"], result["round trip of 20 ms"]
    lines = [f"{'':<21}{'networks':<23}{'exchanges/s':>11}{'ms each':>9}{'ms/step':>9}{'alone':>7}"]
    for name, rows in (("loopback", loopback), ("round trip of 20 ms", delayed)):
        for row in rows:
            ms = row["ms_per_step"]
            lines.append(
                f"{name:<21}{row['networks']:<23}"
                f"{row['exchanges_per_second']['median of epochs']:>11g}"
                f"{row['ms_per_exchange']:>9.1f}{ms['across processes']:>9.1f}"
                f"{ms['in one process']:>7.1f}"
            )
    same = all(
        row["models equal those of one process byte for byte"] for row in [*loopback, *delayed]
    )
    rate, late = (
        loopback[0]["exchanges_per_second"]["median of epochs"],
        delayed[0]["ms_per_exchange"] - 20,
    )
    local, step = result["local driver"]["ms_per_step"], result["a step with hardly any networks"]
    sizes, psi = loopback[0]["bytes_per_step"], result["private set intersection"]
    death, load = result["death of a party"], result["load average before and after"]
    lines += [
        "'alone' is ms per step of the same fit in one process; its models are the same bytes: "
        + ("yes" if same else "NO"),
        f"80 exchanges per second over loopback: {verdict(rate >= 80)}",
        f"beyond a round trip of 20 ms: {late:.1f} ms per exchange; at most 20: "
        + verdict(late <= 20),
        f"added by the driver within one process: {1e3 * local:.2f} us per step; at most 100: "
        + verdict(local <= 0.1),
        f"bytes per step: {sizes['least: float32 numbers of features and gradients']:,} of numbers,"
        f" {sizes['in frames']:,} in frames, {step['wire bytes, TLS and FLARE included']:,} sent",
        f"processor time of all processes: {step['CPU ms of all processes']:g} ms per step",
        f"matching {psi['keys']:,} keys, seconds of one core: "
        + ", ".join(f"{what} {seconds:g}" for what, seconds in psi["cpu_seconds"].items()),
        f"a party dies with an exchange timeout of {death['exchange_timeout']:g} s: the last node "
        f"knows after {max(death['seconds'].values()):g} s",
        f"on {result['cores']} cores with load averages of {load[0]:.1f} before and {load[1]:.1f} "
        + ("after, put before other programs" if result["before other programs"] else "after"),
    ]
    return "\n".join(lines)


def audit_speed() -> str:
    """Print how long the audits took."""
    lines = []
    for path in sorted((RESULTS / "audit").glob("as*.json")):
        result = _read(path)
        cost, speed = result["cost"], result["cost"].get("speed")
        if speed:
            lines.append(
                f"{path.stem}: {speed['models']} models of {result['epochs']} epochs in "
                f"{cost['seconds_all']:.0f} s with {cost['jobs']} processes; by wall time "
                f"{speed['times_faster_by_wall']:g} times faster than the plain loop run one by "
                f"one, {speed['times_faster_per_core']:g} times by processor time; peak "
                f"{cost['peak_memory_gib']:g} GiB"
            )
    return "\n".join(lines)


def mnist() -> str:
    """Print all settings and lengths that there are."""
    results = [_read(path) for path in sorted((RESULTS / "mnist").glob("*.json"))]
    runs = sorted({(result["settings"], result["parameters"]["epochs"]) for result in results})
    return "\n".join(
        show("mnist", "show", "--settings", settings, "--epochs", str(epochs))
        for settings, epochs in runs
    )


def _with_method(folder: str) -> list[dict[str, Any]]:
    """Return the results of a folder that were trained."""
    return [r for r in read_all(RESULTS / folder) if r.get("settings")]


def _of_table1() -> list[str]:
    keys = ("data", "method", "settings")
    runs = [{key: r[key] for key in keys} for r in _with_method("table1")]
    return commands("table1 run", runs, keys)


def _of_mnist() -> list[str]:
    runs = [
        {
            "method": r["method"],
            "settings": r["settings"],
            "epochs": r["parameters"]["epochs"],
            "device": r["device"],
        }
        for r in _with_method("mnist")
    ]
    return commands("mnist run", runs, ["method"])


def _of_private(folder: str, method: str) -> list[str]:
    """Return those of cells of a table, a method and an ε, each with its seeds."""
    keys = ("data", method, "epsilon", "seeds")
    found = sorted(read_all(RESULTS / folder), key=lambda r: -r["epsilon"])
    runs = [{key: r[key] for key in keys} for r in found]
    return commands(f"{folder} run", runs, ["epsilon", method, "data"])


def _of_audits(jobs: bool = False) -> list[str]:
    runs = []
    for path in sorted((RESULTS / "audit").glob("as*.json")):
        result = _read(path)
        run = {"data": result["data"], "scheme": result["scheme"], "models": result["n_models"]}
        own = {"jobs": result["cost"]["jobs"]} if jobs else {}
        if not jobs or result["cost"].get("speed"):
            runs.append(run | _epochs(result, result["data"]) | own)
    return commands("audit_assd", runs)


def _of_table3() -> list[str]:
    runs = []
    for path in sorted((RESULTS / "audit").glob("table3-*.json")):
        result = _read(path)
        data = result["data"]
        run = {
            "data": data,
            "records": result["records"],
            "generators": result["generators"],
            "models": result["assd"]["n_models"],
        }
        runs.append(run | _epochs(result, "red-wine" if data == "california-housing" else data))
    return commands("audit_table3", runs, ["records", "data"])


def _epochs(result: dict[str, Any], name: str) -> dict[str, int]:
    """Return the option, where the epochs are not those of the preset."""
    same = result["epochs"] == preset(name)["epochs"]
    return {} if same else {"epochs": result["epochs"]}


def _of_split_defences() -> list[str]:
    runs = [
        {
            "data": r["data"],
            "method": r["method"],
            "parties": r["parties"],
            "seeds": len(r["seeds"]),
        }
        for r in read_all(RESULTS / "split")
        if "parties" in r
    ]
    return commands("split_defences run", runs, ["method", "parties", "data"])


def _of_marvell() -> list[str]:
    runs = [
        {"data": r["data"], "width": r["width"], "seeds": len(r["seeds"])}
        for r in read_all(RESULTS / "split")
        if "width" in r
    ]
    return ["split_marvell speed", *commands("split_marvell curves", runs)]


Commands = Callable[[], Sequence[str]]


def only(*fixed: str) -> Commands:
    """Return commands that no result has to tell."""
    return lambda: fixed


Section = tuple[str, Commands, Callable[[], str]]
SECTIONS: tuple[Section, ...] = (
    (
        "VFLGAN Table 1, upper half: synthesizers without differential privacy",
        _of_table1,
        lambda: show("table1", "show", "--settings", "default", "ours", "paper"),
    ),
    (
        "VFLGAN Table 5: quality as an integer",
        only("table5 run"),
        lambda: show("table5", "show"),
    ),
    (
        "Default settings, nothing tuned per table",
        only("external.run", "defaults"),
        defaults,
    ),
    ("The two gradient penalties, red wine", only("penalties"), penalties),
    ("VFLGAN §5.2.1: halves of MNIST", _of_mnist, mnist),
    (
        "VFLGAN Table 1, lower half: with differential privacy",
        lambda: _of_private("dp", "method"),
        lambda: show("dp", "show"),
    ),
    (
        "Mechanisms for a joined table",
        lambda: _of_private("wgan_mechanisms", "mechanism"),
        lambda: show("wgan_mechanisms", "show"),
    ),
    (
        "The same on MNIST (VFLGAN §5.2.1)",
        only("mnist_mechanisms run"),
        lambda: show("mnist_mechanisms", "show"),
    ),
    (
        "VFLGAN Tables 2 to 4: audits",
        lambda: [*_of_audits(), *_of_table3(), "audit_tables"],
        lambda: show("audit_tables"),
    ),
    ("What audits cost", lambda: _of_audits(jobs=True), audit_speed),
    (
        "GAFM Table 1, and all defences against all attacks",
        _of_split_defences,
        lambda: show("split_defences", "show"),
    ),
    ("Marvell", _of_marvell, lambda: show("split_marvell", "show")),
    (
        "DIMIP and Party-wise Dropout",
        only("split_dimip run"),
        lambda: show("split_dimip", "show"),
    ),
    ("Accounting", only("accountants"), accounting),
    ("A training step", only("step_time"), step_time),
    (
        "Encoding and decoding",
        only("transformers --output benchmarks/results/transformers.json"),
        transformers,
    ),
    ("Sampling", only("sampling --rows 200000"), sampling),
    ("Parties in processes of their own", only("engine --epochs 40"), engine),
)


def exceptions() -> str:
    """Say which files lack the commit, or were made with changes that were not committed."""
    found = {
        str(path.relative_to(RESULTS)): _read(path) for path in sorted(RESULTS.rglob("*.json"))
    }
    lacking = [name for name, result in found.items() if "commit" not in result]
    changed = [name for name, result in found.items() if result.get("uncommitted_changes")]
    lines = [
        f"{what}: {', '.join(f'`{name}`' for name in names)}."
        for what, names in (
            ("No commit", lacking),
            ("Made while the package had changes that were not committed", changed),
        )
        if names
    ]
    return textwrap.fill(" ".join(lines) or "None.", 100, break_on_hyphens=False)


def page() -> str:
    """Return the page."""
    parts = [OPENING.replace("{exceptions}", exceptions())]
    for title, make, text in SECTIONS:
        shown = "\n".join(line.rstrip() for line in text().strip("\n").splitlines())
        shown = shown or "not measured yet"
        lines = "\n".join(f"python -m benchmarks.{command}" for command in make())
        parts.append(f"## {title}\n\n```sh\n{lines}\n```\n\n```text\n{shown}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([row[key] for row in rows]))


if __name__ == "__main__":
    main()
