"""All recorded results as pages of the research record: ours beside the papers' figures.

    python -m benchmarks.all_results            # writes them into docs/research
    python -m benchmarks.all_results --check    # are the pages those of the recorded results?

Trains nothing: it prints what the tables of results hold, each with the commands that measured it.
Scripts that have a ``show`` of their own are shown by it.
"""

from __future__ import annotations

import importlib
import io
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import accountants, penalties
from benchmarks._commands import commands, parser
from benchmarks._results import KEYS, Row, cells, rows, verdict
from benchmarks.defaults import PEERS
from vflsynth import preset

FOLDER = Path(__file__).parents[1] / "docs" / "research"
OPENING = """\
Written by `python -m benchmarks.all_results` from `benchmarks/results/`. The commands above a table
measure it anew; [the record's first page](index.md) says how to read it.
"""


def show(words: str) -> str:
    """Return what a script prints about recorded results, by its name and options."""
    printed, arguments = io.StringIO(), words.split()
    main = importlib.import_module(f"benchmarks.{arguments[0]}").main
    with redirect_stdout(printed), mock.patch.object(sys, "argv", arguments):
        main()
    return printed.getvalue()


def defaults() -> str:
    """Print the default settings beside TVAE and CTGAN."""
    lines = [f"{'table':<20}{'method':<9}{'FD':>8}{'TD':>8}{'within':>8}{'across':>8}{'seeds':>7}"]
    found = cells("defaults")
    for data in dict.fromkeys(data for data, _ in found):
        for method in ("vflgan", *PEERS):
            if (cell := found.get((data, method))) is not None:
                means = "".join(f"{mean:>8.3f}" for mean in cell[MEASURES].mean())
                lines.append(f"{data:<20}{method:<9}{means}{len(cell):>7}")
    return "\n".join(lines)


MEASURES = [
    "frechet_distance",
    "total_difference",
    "association_error_within",
    "association_error_across",
]


def both_penalties() -> str:
    """Print both gradient penalties with both sizes."""
    measures = ["frechet_distance_best", "frechet_distance_last", "total_difference"]
    lines = [f"{'':<28}{'penalty':<11}{'FD best':>9}{'FD last':>9}{'TD':>9}"]
    found = cells("penalties")
    for settings, penalty in product(penalties.SETTINGS, penalties.PENALTIES):
        means = found[settings, penalty][measures].mean()
        lines.append(f"{settings:<28}{penalty:<11}" + "".join(f"{mean:>9.3f}" for mean in means))
    return "\n".join(lines)


def step_time() -> str:
    """Print a training step's time against that of the plain loop."""
    lines = []
    for row in rows("step_time"):
        ours, plain, ratio = row["ms_per_model_step"], row["plain_ms_per_step"], row["times_faster"]
        lines.append(
            f"{row['gradient_penalty']:<11}{row['replicas']:>4} models at once: {ours:.3f} ms per "
            f"step and model, plain loop {plain:.2f} ms: {ratio['median']:g} times faster "
            f"(quartiles {ratio['q25']:g} to {ratio['q75']:g})"
        )
    return "\n".join(lines)


def transformers() -> str:
    """Print encoding and decoding."""
    (result,) = rows("transformers")
    phases = [
        f"  {name}: {phase['seconds']:.1f} s, peak {phase['peak_rss_mb'] / 1000:.2f} GB so far"
        for name, phase in result["phases"].items()
    ]
    return "\n".join([f"{result['rows']:,} rows of {result['columns']} columns", *phases])


def sampling() -> str:
    """Print rows per second."""
    return "\n".join(
        f"{result['method']}, {result['rows']:,} rows of {result['columns']} columns: "
        f"{result['rows_per_cpu_second']:,} rows per second of one core"
        for result in rows("sampling")
    )


def installed() -> str:
    """Print what an installation loads and takes."""
    return "\n".join(
        f"{row['way']}, torch {row['torch']}: {row['wheels']} wheels, "
        f"{row['download_mb']:,.0f} MB to load, {row['installed_mb']:,.0f} MB on disk"
        for row in rows("installed")
    )


def engine() -> str:
    """Print what processes of their own cost."""
    (result,) = rows("engine")
    loopback, delayed = result["loopback"], result["round trip of 20 ms"]
    lines = [f"{'':<21}{'networks':<23}{'exchanges/s':>11}{'ms each':>9}{'ms/step':>9}{'alone':>7}"]
    for name, fits in (("loopback", loopback), ("round trip of 20 ms", delayed)):
        for row in fits:
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
    rate = loopback[0]["exchanges_per_second"]["median of epochs"]
    late = delayed[0]["ms_per_exchange"] - 20
    local, step = result["local driver"]["ms_per_step"], result["a step with hardly any networks"]
    sizes = loopback[0]["bytes_per_step"]
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
        f"a party dies with an exchange timeout of {death['exchange_timeout']:g} s: the last node "
        f"knows after {max(death['seconds'].values()):g} s",
        f"on {result['cores']} cores with load averages of {load[0]:.1f} before and {load[1]:.1f} "
        + ("after, put before other programs" if result["before other programs"] else "after"),
    ]
    return "\n".join(lines)


def rival_inference() -> str:
    """Print what AIM's inference costs, theirs and ours."""
    lines = [
        f"{'':<22}{'pairs':>6}{'MiB':>8}{'s, theirs':>11}{'s, ours':>9}{'ratio':>7}"
        f"{'most that a cell differs':>26}"
    ]
    for row in rows("rival_inference"):
        theirs, ours = row["seconds, theirs"], row["seconds, ours"]
        lines.append(
            f"{row['data']:<22}{row['pairs']:>6}{row['mebibytes']:>8.3f}{theirs:>11.2f}{ours:>9.2f}"
            f"{theirs / ours:>7.1f}{row['records of the worst cell']:>18.0e} records"
        )
    return "\n".join(lines)


def matching() -> str:
    """Print what it costs to match records."""
    lines = [
        f"{'':<20}{'blinds own':>11}{'others':>8}{'together':>10}{'on two cores':>14}"
        f"{'server':>8}{'MB of a party':>15}"
    ]
    for row in rows("matching"):
        own, others, server = row["cpu_seconds"].values()
        name = f"{row['keys']:,}, {row['parties']} parties"
        lines.append(
            f"{name:<20}{own:>11.1f}{others:>8.1f}{own + others:>10.1f}{(own + others) / 2:>14.1f}"
            f"{server:>8.1f}{row['megabytes of a party']:>15.1f}"
        )
    lines.append(
        "seconds of one core, of a party and of the server; 'on two cores' is half of what a party "
        "computes, which threads share. With more than two parties every key is two points."
    )
    return "\n".join(lines)


def wan() -> str:
    """Print fits between organisations that are far apart."""
    lines = [
        f"{'':<44}{'records':>8}{'minutes':>9}{'MB, busiest party':>19}{'messages':>11}{'load':>6}"
    ]
    for row in rows("wan"):
        minutes, megabytes, exchanges = by_default(row)
        name = row["method"]
        if row["mode"] != "default":
            name += f", {row['mode']}"
        if row["epochs"] is not None:
            name += f" ({row['epochs']} epochs)"
        lines.append(
            f"{name:<44}{row['records']:>8,}{minutes:>9.1f}{megabytes:>19,.0f}{exchanges:>11,}"
            f"{row['load average']:>6.1f}"
        )
    lines.append(
        "Adult, defaults, two parties, 50 ms, 100 Mbit/s. With a number of epochs: worked out for "
        "the default number, on a machine of two cores with this load average, which the minutes "
        "depend on; messages are those of all parties to the server."
    )
    return "\n".join(lines)


def by_default(row: Row) -> tuple[float, float, int]:
    """Return minutes, megabytes and messages of a fit of the default length.

    What fewer epochs measured is worked out for all of them.
    """
    minutes = row["seconds"] / 60
    megabytes, exchanges = row["megabytes of messages of the busiest party"], row["exchanges"]
    if row["epochs"] is not None:
        times = row["epochs by default"] / row["epochs"]
        minutes += (row["epochs by default"] - row["epochs"]) * row["seconds of an epoch"] / 60
        exchanges = round(times * exchanges)
        megabytes = row.get("megabytes by default", times * megabytes)
    return minutes, megabytes, exchanges


def wan_quality() -> str:
    """Print what fewer exchanges and fewer bits cost."""
    lines = [f"{'':<26}{'seed':>5}{'MB of a party':>15}{'FD':>8}{'across':>9}{'detection AUC':>15}"]
    lines += [
        f"{row['data'] + ', ' + row['mode']:<26}{row['seed']:>5}"
        f"{row['megabytes of a party']:>15,.0f}{row['frechet_distance']:>8.3f}"
        f"{row['association_error_across']:>9.3f}{row['detection_auc']:>15.3f}"
        for row in rows("wan_quality")
    ]
    return "\n".join(lines)


def audit_speed() -> str:
    """Print how long the audits took."""
    lines = []
    for row in rows("audit_assd"):
        cost, speed = row["cost"], row["cost"]["speed"]
        if speed:
            lines.append(
                f"{row['scheme'].lower()}-{row['data']}: {speed['models']} models of "
                f"{row['epochs']} epochs in {cost['seconds_all']:.0f} s with {cost['jobs']} "
                f"processes; by wall time {speed['times_faster_by_wall']:g} times faster than the "
                f"plain loop run one by one, {speed['times_faster_per_core']:g} times by processor "
                f"time; peak {cost['peak_memory_gib']:g} GiB"
            )
    return "\n".join(lines)


Commands = Callable[[], Sequence[str]]


def told(
    command: str,
    options: str,
    lists: str = "",
    *,
    table: str = "",
    among: Callable[[Row], bool] = lambda row: True,
) -> Commands:
    """Return what says by which commands the rows of a table were measured.

    A command is a script, which the table is called after, and its action. Options are called after
    columns, or are written ``option=column``; of a list they tell how many there are, and of what a
    row has not got nothing. For `lists` see `commands`.
    """
    pairs = [
        (name, column or name) for name, _, column in (o.partition("=") for o in options.split())
    ]

    def made() -> list[str]:
        runs = dict.fromkeys(
            tuple((name, _worded(row[own])) for name, own in pairs if row.get(own) is not None)
            for row in rows(table or command.split()[0])
            if among(row)
        )
        return commands(command, map(dict, runs), lists.split())

    return made


def _worded(value: Any) -> Any:
    if isinstance(value, str):
        return shlex.quote(value)
    return len(value) if isinstance(value, list) else value


def _of_ladder(judge: str = "") -> Commands:
    return told(
        f"ladder --judge {judge}" if judge else "ladder",
        "data methods=method seeds=seed",
        "seeds methods data",
        table=judge,
        among=lambda row: "brought" not in row,
    )


def _of_field() -> list[str]:
    brought = [
        f"ladder --judge field --data {row['data']} {row['brought']} "
        f"--name {shlex.quote(row['method'])}"
        for row in rows("field")
        if "brought" in row
    ]
    return [*_of_ladder("field")(), *dict.fromkeys(brought)]


def _of_private(table: str) -> list[str]:
    """Return those of cells of a table, a method and an ε, each with its seeds."""
    data, method, epsilon, _ = KEYS[table]
    found = sorted(cells(table).items(), key=lambda item: -item[0][2])
    options = (data, method, epsilon, "seeds")
    runs = [dict(zip(options, (*cell, seeds["seed"].tolist()))) for cell, seeds in found]
    return commands(f"{table} run", runs, [epsilon, method, data])


def _of_audits(jobs: bool = False) -> list[str]:
    runs = []
    for row in rows("audit_assd"):
        run = {"data": row["data"], "scheme": row["scheme"], "models": row["n_models"]}
        own = {"jobs": row["cost"]["jobs"]} if jobs else {}
        if not jobs or row["cost"]["speed"]:
            runs.append(run | _epochs(row, row["data"]) | own)
    for row in () if jobs else rows("audit_private"):
        run = {"data": row["data"], "scheme": row["scheme"], "models": row["n_models"]}
        runs.append(run | {"epsilon": f"{row['epsilon']:g}"} | _epochs(row, row["data"]))
    return commands("audit_assd", runs)


def _of_table3() -> list[str]:
    runs = []
    for row in rows("audit_table3"):
        data = row["data"]
        run = {
            "data": data,
            "records": row["records"],
            "generators": row["generators"],
            "models": row["assd"]["n_models"],
        }
        runs.append(run | _epochs(row, "red-wine" if data == "california-housing" else data))
    return commands("audit_table3", runs, ["records", "data"])


def _epochs(row: Row, name: str) -> dict[str, int]:
    """Return the option, where the epochs are not those of the preset."""
    same = row["epochs"] == preset(name)["epochs"]
    return {} if same else {"epochs": row["epochs"]}


def _of_attacks(part: str, options: str, lists: str) -> list[str]:
    return [*told(f"adversaries {part}", options, lists, among=lambda r: r["part"] == part)()]


Section = tuple[str, str | Commands, str | Callable[[], str]]
"""A heading; the command that measures it, or what says several; what a script is shown by."""

_CELL = "data method settings"
PAGES: dict[str, tuple[str, tuple[Section, ...]]] = {
    "synthesizers": (
        "Synthesizers without privacy",
        (
            (
                "VFLGAN Table 1, upper half: synthesizers without differential privacy",
                told("table1 run", _CELL, _CELL, among=lambda row: row["settings"] is not None),
                "table1 show --settings default ours paper",
            ),
            ("VFLGAN Table 5: quality as an integer", "table5 run", "table5 show"),
            (
                "Default settings, nothing tuned per table",
                lambda: ["external.run", "defaults"],
                defaults,
            ),
            (
                "All tables by the field's metrics, with a weaker detector",
                _of_ladder(),
                "ladder --show",
            ),
            (
                "Other splits of the small tables",
                told("splits", "data methods=method seeds=seed", "seeds methods data"),
                "splits --show",
            ),
            ("The two gradient penalties, red wine", "penalties", both_penalties),
            (
                "Resampled rows: one of four or of eight stays",
                "resampling",
                "resampling --show",
            ),
            (
                "VFLGAN §5.2.1: halves of MNIST",
                told("mnist run", "settings epochs method seeds=seed", "seeds method"),
                "mnist show",
            ),
            (
                "The bound on contexts of the autoregressive model, in bits per record",
                told("context_bits", "data bits parties seeds=seed", "seeds bits data"),
                "context_bits --show",
            ),
            (
                "Other orders of parties and columns",
                told("orders", "data protocols=protocol seeds=seed", "seeds protocols data"),
                "orders --show",
            ),
            (
                "Records that one party alone has: 1,000 in common, 10,000 others at each party",
                told("unmatched", "data others seeds=seed", "seeds others data"),
                "unmatched --show",
            ),
        ),
    ),
    "ladder": (
        "The published ladder",
        (
            (
                "Published rows and ours, by the published judge",
                _of_field,
                "ladder --judge field --show",
            ),
            (
                "Scores and attacks of SynthEval and synthyverse",
                _of_ladder("outside"),
                "ladder --judge outside --show",
            ),
        ),
    ),
    "privacy": (
        "Differential privacy",
        (
            (
                "VFLGAN Table 1, lower half: with differential privacy (before exact releases)",
                lambda: _of_private("dp"),
                "dp show",
            ),
            (
                "Mechanisms for a joined table (ε of gs_wgan is conditional)",
                lambda: _of_private("wgan_mechanisms"),
                "wgan_mechanisms show",
            ),
            (
                "The same on MNIST (VFLGAN §5.2.1; ε of gs_wgan is conditional)",
                "mnist_mechanisms run",
                "mnist_mechanisms show",
            ),
            ("Accounting (ε of GS-WGAN is conditional)", "accountants", accountants.show),
            ("AIM's inference", "rival_inference", rival_inference),
            (
                "What saved models tell of one record (ε of GSWGAN is conditional)",
                told("distinguishing run", "mechanisms=mechanism models", "mechanisms"),
                "distinguishing show",
            ),
        ),
    ),
    "attacks": (
        "Audits and attacks",
        (
            (
                "VFLGAN Tables 2 to 4: audits",
                lambda: [*_of_audits(), *_of_table3(), "audit_tables"],
                "audit_tables",
            ),
            (
                "How often audits find planted leaks, and one where there is none",
                lambda: ["audit_power leaks", "audit_power nothing"],
                "audit_power show",
            ),
            ("What audits cost", lambda: _of_audits(jobs=True), audit_speed),
            (
                "Attacks against synthesizers and against protections of labels",
                lambda: [
                    *_of_attacks("synthetic", "synthesizers=victim", "synthesizers"),
                    *_of_attacks("attributes", "synthesizers=victim", "synthesizers"),
                    *_of_attacks("labels", "protections=victim data", "protections data"),
                ],
                "adversaries show",
            ),
            (
                "What each role reads of real records of Adult",
                "reconstruction run",
                "reconstruction show",
            ),
        ),
    ),
    "split-learning": (
        "Split learning",
        (
            (
                "Split learning by default settings, beside one member and beside a joined table",
                "split_defaults run",
                "split_defaults show",
            ),
            (
                "GAFM Table 1, and all defences against all attacks",
                lambda: [
                    "split_defences both",
                    *told(
                        "split_defences run", "data method parties seeds", "method parties data"
                    )(),
                ],
                "split_defences show",
            ),
            (
                "Marvell",
                lambda: [
                    "split_marvell speed",
                    *told("split_marvell curves", "data width seeds")(),
                ],
                "split_marvell show",
            ),
            ("DIMIP and Party-wise Dropout", "split_dimip run", "split_dimip show"),
        ),
    ),
    "cost": (
        "Time, memory and traffic",
        (
            ("Installing", told("installed", "way torch"), installed),
            ("A training step", "step_time", step_time),
            ("Encoding and decoding", "transformers", transformers),
            ("Sampling", "sampling --rows 200000", sampling),
            (
                "Large tables, and columns of many levels (in brackets: fresh real rows)",
                told("scale", "data methods=method rows epochs=epochs_asked", "rows"),
                "scale --show",
            ),
            ("Sums over records that nobody sees", "secure_sums run", "secure_sums show"),
            ("Parties in processes of their own", "engine --epochs 40", engine),
            ("Matching records", told("engine", "keys parties", table="matching"), matching),
            ("Parties far apart", told("wan", "methods=method mode epochs"), wan),
            (
                "Few exchanges",
                lambda: [
                    f"wan --methods {row['method']} --quality --mode {row['mode']} "
                    f"--data {row['data']} --seeds {row['seed']}"
                    for row in rows("wan_quality")
                ],
                wan_quality,
            ),
        ),
    ),
}
"""The pages: a title, and sections with the commands that measure them."""


WORDS = {
    "ladder": """\
Papers on generators of tables compare them by one set of scores. This is that set, computed as they
do it (`benchmarks/external/field.py` says how), for this package and for whoever adds a row. Real
and synthetic rows are as many as there are training rows. 1 is best, but for "nearer", the share of
synthetic rows with a training row closer than any test row: there .5 says that nothing is copied.
Ours were learned by two parties who do not join their tables, with default settings but for what a
name says; "16 bits" and "trained" tell the other party more (`AutoregressiveSynthesizer`). The
published ones saw the joined table. "Real rows, by halves" are half of the training rows judged
beside the other half: what rows as good as real ones have, of half as many, which costs Shape and
Trend something. A recall above theirs is that of rows that lie nearer to training rows.

Trend cuts each table's numbers into bins between its own extremes, so that on credit-default it
hangs on single values, which no synthetic table here may have: with one row at each end of every
real column put in, "bounded" (seed 0) has .989 and "trained" (seed 1) .990.

## Add a row

The first command writes what to train on; the second judges a file, the third a class:

```sh
python -m benchmarks.ladder --judge field --data adult --write-rows real
python -m benchmarks.ladder --judge field --data adult --rows theirs.csv --name theirs
python -m benchmarks.ladder --judge field --data adult --synthesizer my_package:Mine --name mine
```

- The file wants the columns of `real/train.csv`, and as many rows.
- The class wants `Mine(random_state=0)`, `fit(frames)`, of a mapping of party to DataFrame, and
  `sample(n)`.
- With `--name` the row is recorded in `benchmarks/results/field.jsonl`, and
  `python -m benchmarks.all_results` puts it on this page. Without, it is printed.
- `--seen`, with a file, says by which columns and rules the detector tells the rows.
- `--table mine.csv --target income` judges rows of a table of your own.

A judge makes its environment on first use, from `benchmarks/external/field-requirements.txt`, and
takes about two minutes of one core on Adult. `VFLSYNTH_DATA` names the folder with the tables.

`--judge outside` takes the same rows to two other packages, SynthEval and synthyverse, with at most
5,000 rows of each table (`benchmarks/external/outside.py` says how). Of its columns 0 is best in
`Helling` (mean Hellinger distance of columns), `pMSE` (propensities of a logistic regression) and
what looks for training rows: `loss` and `ε-loss` (how much more often training rows than test rows
have a synthetic neighbour, by nearest-neighbour accuracy and by identification risk) and `AIA`
(what inference of each column from all others gains on training rows). .5 is best in `NNAA`
(accuracy of nearest neighbours), `MIA` (precision of SynthEval's membership attack) and the AUCs of
membership attacks: `DOMIAS`, `DPI`, `classif` and `all`, their ensemble. `ε-risk` is the share of
training rows with a synthetic row nearer than any other training row, and does not see exact
copies: of a table that is the training rows it is 0. What is usual says the line of real test rows,
half of them judged beside the other half.
""",
}
"""What a page says before its tables."""


def pages() -> dict[Path, str]:
    """Return all pages."""
    return {
        FOLDER / f"{name}.md": page(title, made, WORDS.get(name, ""))
        for name, (title, made) in PAGES.items()
    }


def page(title: str, sections: Sequence[Section], words: str = "") -> str:
    """Return a page."""
    parts = [f"# {title}\n\n{OPENING}", *([words] if words else [])]
    for heading, make, text in sections:
        printed = show(text) if isinstance(text, str) else text()
        shown = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
        shown = shown or "not measured yet"
        made = [make] if isinstance(make, str) else make()
        lines = "\n".join(f"python -m benchmarks.{command}" for command in made)
        parts.append(f"## {heading}\n\n```sh\n{lines}\n```\n\n```text\n{shown}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Write or check the pages."""
    made = parser(__doc__)
    made.add_argument("--check", action="store_true", help="fail if a page would change")
    check = made.parse_args().check
    for path, text in pages().items():
        if check and path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not of the results. Run: python -m benchmarks.all_results")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
