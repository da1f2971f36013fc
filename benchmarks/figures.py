"""Figures in the documentation's prose, filled in from the results.

    python -m benchmarks.figures            # rewrites them where the results have changed
    python -m benchmarks.figures --check    # fails, and names the pages, if one would change

A figure stands between two comments, of which the first says where it comes from:
``<!--= defaults adult vflgan frechet_distance .2f -->0.08<!--/-->``. That is a table of
``benchmarks/results``, the values of its key without the seed, a field, and a format; the mean over
all seeds is shown. Texts with blanks are quoted, a field of a field is written ``outer/inner``, a
place in a list by its number. ``~2`` as a format means two significant digits, and ``/60`` or
``*100`` before it a change of unit. ``<!--= made NAME -->`` is what a function below makes.
"""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks._commands import parser
from benchmarks._results import KEYS, Row, cells, rows
from benchmarks.all_results import by_default

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"<!--= (.+?) -->(.*?)<!--/-->", re.DOTALL)


def main() -> None:
    """Write or check the figures of all pages."""
    made = parser(__doc__)
    made.add_argument("--check", action="store_true", help="fail if a figure would change")
    check, stale = made.parse_args().check, []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (filled := with_figures(text)) != text:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(filled, encoding="utf-8")
    if check and stale:
        sys.exit(f"not those of the results: {', '.join(stale)}. Run: python -m benchmarks.figures")


def pages() -> list[Path]:
    """Return the pages that people write."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def with_figures(text: str) -> str:
    """Return a page with its figures as the results have them."""
    return MARKED.sub(lambda found: f"<!--= {found[1]} -->{figure(found[1])}<!--/-->", text)


def figure(source: str) -> str:
    """Return one figure, or a table between blank lines; ValueError if there is no such cell."""
    table, *words = shlex.split(source)
    if table == "made":
        text = MADE[words[0]]()
        return f"\n\n{text}\n\n" if "\n" in text else text
    spec, factor = words.pop(), 1.0
    if re.fullmatch(r"[*/]\d+", words[-1]):
        operation = words.pop()
        factor = float(operation[1:]) if operation[0] == "*" else 1 / float(operation[1:])
    *cell, field = words
    names = [name for name in KEYS[table] if name != "seed"]
    found = [row for row in rows(table) if all(map(_is, (row[name] for name in names), cell))]
    if len(cell) != len(names) or not found:
        raise ValueError(f"no results for {source!r}: give {names}, a field and a format")
    return _shown(factor * fmean(float(_field(row, field)) for row in found), spec)


def _is(value: object, asked: str) -> bool:
    return asked in (str(value), f"{value:g}" if isinstance(value, float) else "")


def _field(row: Any, path: str) -> Any:
    for name in path.split("/"):
        row = row[int(name) if isinstance(row, list) else name]
    return row


def _shown(value: float, spec: str) -> str:
    if spec.startswith("~"):
        value = float(f"{value:.{spec[1:]}g}")
        return f"{value:,.0f}" if value >= 10 else f"{value:g}"
    return format(value, spec)


def _table(heads: str, lines: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown, of heads between bars and of cells."""
    dashes = "|---" * (heads.count("|") - 1) + "|"
    return "\n".join([heads, dashes, *(f"| {' | '.join(cells)} |" for cells in lines)])


def split() -> str:
    """Return the AUC of split classifiers on records that repeat no training record."""
    found = cells("split_defaults")
    columns = {
        "label holder": "label holder alone, boosted trees",
        "joined": "joined table",
        "default": "`SplitNNClassifier()`",
        "label privacy": "the same with ε = 1",
    }
    names = ["adult", "credit-default", "imdb", "spambase", "south-german-credit", "white-wine"]
    return _table(
        f"| table | {' | '.join(columns.values())} |",
        [
            [name, *(f"{found[name, method]['new_auc'].mean():.3f}" for method in columns)]
            for name in (*names, "red-wine")
        ],
    )


def bits() -> str:
    """Return the detection score by the bound on contexts, of two parties."""
    bounds = (4.0, 8.0, 16.0, 32.0)
    lines = []
    for name in ("adult", "california-housing", "credit-default"):
        scores = _by_bits(name)
        lines.append([name, *(f"{scores[bound]:.2f}" for bound in (*bounds, None))])
    return _table(f"| table | {' | '.join(f'{b:g} bits' for b in bounds)} | no bound |", lines)


def _by_bits(data: str) -> dict[float | None, float]:
    found: dict[float | None, float] = {
        bits: cell["detection"].mean()
        for (name, parties, bits), cell in cells("context_bits").items()
        if (name, parties) == (data, 2)
    }
    ladder = cells("ladder")
    return found | {
        8.0: ladder[data, "bounded"]["detection"].mean(),
        None: ladder[data, "trained"]["detection"].mean(),
    }


def exceptions() -> str:
    """Say which rows lack the commit, or were made with changes that were not committed."""
    found = {
        "No commit": _cells_with(lambda row: not {"commit", "source"} & set(row)),
        "Made while the package had changes that were not committed": _cells_with(
            lambda row: bool(row.get("uncommitted_changes"))
        ),
    }
    lines = [f"{what}: {', '.join(names)}." for what, names in found.items() if names]
    return textwrap.fill(" ".join(lines) or "None.", 100, break_on_hyphens=False)


def _cells_with(found: Callable[[Row], bool]) -> list[str]:
    """Return the names of the cells some of whose rows are found."""
    names = [
        " ".join([f"`{table}`", *(str(row[name]) for name in key if name != "seed" and row[name])])
        for table, key in KEYS.items()
        for row in rows(table)
        if found(row)
    ]
    return list(dict.fromkeys(names))


def assd() -> str:
    """Return how often the most outlying red wine is recognised."""
    (row,) = rows("audit_assd", scheme="ASSD", data="red-wine")
    found = [attack for target in row["targets"] for attack in target["attacks"]]
    return f"{max(attack['accuracy']['value'] for attack in found if attack['strongest']):.0%}"


def labels() -> str:
    """Return what the best attacks in both directions read through each protection."""
    found = {row["defence"]: row for row in rows("split_both")}
    shown = ("none", "Marvell 4", "GAFM", "MID .1", "cut lower by 2", "responses, ε 1")
    lines = []
    for name in shown:
        row = found[name]
        of_labels = max(row["attacks"]["labels from gradients"].values())
        of_columns = max(row["attacks"]["columns"].values())
        values = (row["accuracy"], of_labels, row["outputs"], of_columns)
        lines.append([name, *(f"{value:.2f}" for value in values)])
    return _table("| protection | accuracy | labels | outputs | column |", lines)


def far_apart() -> str:
    """Return what fits take between parties that are far apart."""
    shown = {
        ("VFLGANSynthesizer", "default"): "`VFLGANSynthesizer`, defaults",
        ("VFLGANSynthesizer", "windows"): (
            '`VFLGANSynthesizer`, `steps_per_exchange=5`, `wire_precision="int8"`'
        ),
        ("AutoregressiveSynthesizer", "default"): "`AutoregressiveSynthesizer`",
        ("GaussianCopulaSynthesizer", "default"): "`GaussianCopulaSynthesizer`",
    }
    lines = []
    for (method, mode), name in shown.items():
        (row,) = rows("wan", method=method, mode=mode)
        lines.append([name, *(_shown(value, "~2") for value in by_default(row))])
    return _table("| synthesizer | minutes | MB of the busiest party | messages |", lines)


def choices() -> str:
    """Return the Fréchet distances by which one chooses a synthesizer."""
    table1, private, ours = cells("table1"), cells("dp"), cells("defaults")
    lines = []
    for name, found, cell, field in (
        ("`IndependentSynthesizer`", table1, ("independent", None), "frechet_distance_best"),
        ("`GaussianCopulaSynthesizer`", table1, ("gaussian-copula", None), "frechet_distance_best"),
        ("`VFLGANSynthesizer`", ours, ("vflgan",), "frechet_distance"),
        ("`PairwiseTables`, ε 10", private, ("pairwise_tables", 10.0), "frechet_distance"),
        ("`PairwiseTables`, ε 1", private, ("pairwise_tables", 1.0), "frechet_distance"),
    ):
        means = [found[data, *cell][field].mean() for data in ("red-wine", "adult")]
        lines.append([name, *(f"{mean:.2f}" for mean in means)])
    return _table("| Fréchet distance, lower is better | red wine | Adult |", lines)


def readings() -> str:
    """Return of how many records each role reads the education."""
    shown = (
        ("a receiver", "its own columns alone", "B: own columns alone", 400),
        ("", "4 bits of context", "B: bounded, 4 bits", 400),
        ("", "8 bits (default)", "B: bounded, 8 bits", 400),
        ("", "16 bits", "B: bounded, 16 bits", 400),
        ("", "32 bits", "B: bounded, 32 bits", 400),
        ("", '`"trained"`, all steps', "B: trained", 400),
        ("", '`"one_message"`', "B: one message", 400),
        ("the server, knowing 40", "features", "server: features of A", 40),
        ("VFLGAN's server, knowing 40", "intermediate features", "server: VFLGAN's, of A", 40),
    )
    lines = []
    for who, sees, view, known in shown:
        (row,) = rows("reconstruction", view=view)
        lines.append([who, sees, f"{row['read'][str(known)]['education']:.2f}"])
    return _table("| who | sees | education |", lines)


def chosen() -> str:
    """Return of how many records a receiver reads a column by features that it chose."""
    columns, contexts = ("education", "occupation"), ("1 context", "3 contexts")
    heads = [f"{column}, {n}" for column in columns for n in contexts]
    lines = []
    for bound in (4, 8, 16, 32):
        reads = [
            rows("reconstruction", view=f"B: {bound} bits, chosen features, {n}")[0]["read"]["400"]
            for n in contexts
        ]
        lines.append([str(bound), *(f"{read[c]:.2f}" for c in columns for read in reads)])
    return _table(f"| bits of a context | {' | '.join(heads)} |", lines)


def matching() -> str:
    """Return how many seconds of a core it takes each of two parties to blind 100,000 keys."""
    (row,) = rows("matching", keys=100_000, parties=2)
    own, others, _ = row["cpu_seconds"].values()
    return f"{own + others:.0f}"


def resources() -> str:
    """Return what tables of some sizes take."""
    columns = {"mixed": 20, "wide-100": 100, "wide-400": 400}
    lines = []
    for row in sorted(rows("scale"), key=lambda r: (columns.get(r["data"], 0), r["rows"])):
        if row["data"] not in columns or row["method"] != "autoregressive":
            continue
        ended = "" if row["epochs_asked"] is None else " (cut off)"
        cells = (f"{row['rows']:,}", f"{columns[row['data']]}", f"{row['epochs']}{ended}")
        minutes, memory = row["fit_cpu_seconds"] / 60, row["peak_rss_mb"] / 1000
        lines.append([*cells, f"{minutes:.1f}", f"{memory:.1f} GB"])
    return _table("| rows | columns | epochs | minutes | memory |", lines)


def installed() -> str:
    """Return what an installation loads and takes."""
    lines = []
    for row in reversed(rows("installed")):
        torch, cuda = (row["parts"].get(name) for name in ("torch", "cuda"))
        sizes = [row["download_mb"], row["installed_mb"], torch["installed_mb"]]
        sizes.append(cuda["installed_mb"] if cuda else 0.0)
        lines.append([row["way"], *(f"{mb / 1000:.1f} GB" for mb in sizes)])
    return _table("| | to load | on disk | torch alone | CUDA |", lines)


_ALL = (assd, bits, choices, chosen, exceptions, far_apart, installed, labels, matching, readings)
MADE = {made.__name__.replace("_", "-"): made for made in (*_ALL, resources, split)}
"""What functions make of several rows: tables, and numbers that no single cell has."""


if __name__ == "__main__":
    main()
