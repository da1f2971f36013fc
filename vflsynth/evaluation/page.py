"""All metrics on one self-contained HTML page that a newcomer can read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Unpack

import pandas as pd

from vflsynth.evaluation import pictures
from vflsynth.evaluation.association import related
from vflsynth.evaluation.coherence import INCOHERENT
from vflsynth.evaluation.metric import FAILING, MetricResult, MetricResults, by_part
from vflsynth.evaluation.suite import all_metrics, results_of
from vflsynth.evaluation.tables import Compared, TableMetric, Tables
from vflsynth.frames import StoredTable
from vflsynth.reporting import Page, Picture, number_text, render, require_packages

if TYPE_CHECKING:
    from markupsafe import Markup

CLOSE, PARTLY = 0.8, 0.5
"""Parts of the way from naive to real data from which a result is called close, or partly there."""

QUESTIONS = {
    "marginal_distance": ("Is each single column right?", "single columns"),
    "association_error": ("Do columns relate as they should?", "relations between columns"),
    "association_error_within": ("Do columns relate within parties?", "relations within parties"),
    "association_error_across": ("Do columns relate across parties?", "relations across parties"),
    "incoherent_rows": ("Does each row hold together?", "rows that hold together"),
    "exact_structure": ("Are exact relations kept?", "exact relations"),
    "frechet_distance": ("Is everything right at once?", "all columns at once"),
    "train_synthetic_test_real": ("Can a model be trained on it?", "training a model"),
    "detection_auc": ("Does it pass for real?", "passing for real rows"),
}
"""The headline metrics in the order of the verdict: as a question, and in two words."""

ANSWERS = {"close": "Close to real data", "partly": "Part of the way", "far": "Far from real data"}

_TABLE_TITLES = {"train_synthetic_test_real": "The four train and test settings"}

_COLUMNS_BESIDE = 18  # of heat maps that stand beside each other; larger ones take the page's width

MOST_INCOHERENT = 0.01
"""Share of rows, beyond that of real ones, whose values do not go together: surely above it is not
"close"."""

TABLE_ROWS = 25
"""Rows of each metric's parts that the page shows."""


class HasSection(Protocol):
    """What fills a section of the page: an audit, which this package knows nothing about."""

    def section(self) -> Markup:
        """Return a piece of HTML."""


class HasVerdict(HasSection, Protocol):
    """What decides about a release: a section, and its verdict in one sentence."""

    @property
    def headline(self) -> str:
        """The verdict."""


class Report(Page):
    """The judgement of a synthetic table.

    Parameters
    ----------
    html : str
        The page: one file, no network.
    results : MetricResults
        Every number of the page, with ``to_frame()`` and ``to_json()``.
    """

    def __init__(self, html: str, results: MetricResults) -> None:
        super().__init__(html)
        self.results = results


def report(
    real: pd.DataFrame | StoredTable,
    synthetic: pd.DataFrame | StoredTable,
    *,
    history: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
    audit: HasSection | None = None,
    title: str = "Synthetic data report",
    metrics: Sequence[TableMetric] = (),
    **known: Unpack[Compared],
) -> Report:
    """Judge a synthetic table and make one self-contained HTML page of it.

    Parameters
    ----------
    real, synthetic, metrics, **known
        As in `evaluate`.
    history : DataFrame, optional
        One row per epoch, for pictures, such as a synthesizer's `history_`: `epoch` (or the
        index), `frechet_distance`, and columns named "...loss..." or "...wasserstein...".
    notes : sequence of str, default ()
        Sentences to print on the page, such as how the table was made.
    audit : AuditReport, optional
        Of the same synthesizer, see `vflsynth.audit`; becomes a section of the page.
    title : str, default "Synthetic data report"

    Returns
    -------
    Report

    Raises
    ------
    MissingExtraError
        If matplotlib or jinja2 is not installed.
    PartyDataError
        If the tables cannot be compared.

    Notes
    -----
    The same arguments give the same page, byte for byte.
    """
    require_packages("report()")
    given: Any = real, synthetic
    tables = Tables(*given, **known)
    results = results_of(tables, all_metrics(metrics))
    return page_of(tables, results, history=history, notes=notes, audit=audit, title=title)


def page_of(
    tables: Tables,
    results: MetricResults,
    *,
    history: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
    audit: HasSection | None = None,
    release: HasVerdict | None = None,
    title: str = "Synthetic data report",
) -> Report:
    """Make the page of results that are there already; the verdict of a `release` heads it.

    `results` has every built-in metric; all else is as in `report`.
    """
    cards = [_card(result) for name in QUESTIONS if (result := _headline(results, name))]
    page = render(
        "vflsynth.evaluation",
        "report.html",
        title=title,
        audit="" if audit is None else audit.section(),
        release="" if release is None else release.section(),
        facts=_facts(tables),
        headline=_verdict(cards) if release is None else release.headline,
        likeness="" if release is None else _verdict(cards),
        cards=cards,
        sentences=_sentences(results, tables.holdout is not None),
        sections=[own for own in _sections(tables, results, history) if own.pictures],
        results=list(results.values()),
        number=number_text,
        interval=_interval,
        tables=[_table(result) for result in _with_own_parts(results)],
        notes=[str(note) for note in notes],
        remarks=results.remarks,
        has_parties=tables.parties is not None,
        close=f"{CLOSE:.0%}",
        partly=f"{PARTLY:.0%}",
    )
    return Report(page, results)


class _Section(NamedTuple):
    """Pictures under one heading."""

    title: str
    text: str
    pictures: list[Picture]
    size: str = "medium"


def _sections(
    tables: Tables, results: MetricResults, history: pd.DataFrame | None
) -> list[_Section]:
    """Draw all pictures."""
    encoder, target, shown = tables.encoder, tables.target, tables.in_memory
    found, rng = tables.once(related), tables.generator("pictures")
    rows = shown.real, shown.synthetic
    projected = pictures.projection(encoder, *rows, rng)
    pairs = pictures.pairs(encoder, *rows, found, rng, target)
    parted = " Lines part the parties: off the diagonal are relations across."
    tstr = results["train_synthetic_test_real"]
    return [
        _Section(
            "Columns one by one",
            "Filled: real rows. Outlined or orange: synthetic rows. The worst columns come first. "
            "KS (Kolmogorov-Smirnov) is the largest gap between the two cumulative distributions, "
            "TV (total variation) the share of rows with another label."
            + _truncated(len(encoder.names), pictures.MOST_COLUMNS, "columns", target),
            pictures.marginals(encoder, *rows, results["marginal_distance"].parts, target),
            "small",
        ),
        _Section(
            "Pairs of columns",
            "The strongest relations of the real table"
            + (", those across parties first." if tables.parties else ".")
            + _truncated(len(found.pairs), pictures.MOST_PAIRS, "pairs", target),
            pairs,
        ),
        _Section(
            "Relations between all columns",
            "How far one column tells about the other. Two numbers: correlation, from −1 (one "
            "falls as the other rises) over 0 (no line) to 1. Two columns of labels: Cramér's V, "
            "from 0 (independent) to 1 (one decides the other). A number and labels: correlation "
            "ratio, from 0 (all groups have the same mean) to 1 (no spread within groups)."
            + (parted if tables.parties else "")
            + _truncated(len(found.names), pictures.MOST_IN_MAP, "columns", target),
            pictures.association_maps(found, target) if len(found.names) > 1 else [],
            "medium" if len(found.names) <= _COLUMNS_BESIDE else "wide",
        ),
        _Section(
            "All columns at once",
            "Each row as a point in the plane of the two directions in which real rows differ most "
            "(principal components); a random sample of both tables.",
            [projected] if projected else [],
            "wide",
        ),
        _Section(
            "Use for a model",
            f"Predicting {target}. TSTR: trained on synthetic, tested on real rows; the others "
            "likewise. The dotted line is TRTR, what real rows give.",
            [pictures.utility(tstr.parts)] if tstr.value is not None else [],
            "wide",
        ),
        _Section(
            "Training",
            "As recorded by the synthesizer while it was fitted.",
            [] if history is None or history.empty else pictures.training(history),
        ),
    ]


def _truncated(n: int, most: int, what: str, target: Hashable | None) -> str:
    """Say that pictures leave something out, if they do."""
    if n <= most:
        return ""
    also = "" if target is None else ", the target among them"
    return f" {most} of {n} {what} are shown{also}; the numbers of all are below or in the JSON."


def _headline(results: MetricResults, name: str) -> MetricResult | None:
    """Return a result for the verdict; all pairs together only where parties are unknown."""
    result = results[name]
    if name == "association_error" and results["association_error_across"].value is not None:
        return None
    if name.startswith("association_error_") and result.not_applicable == "no parties were given":
        return None
    return result


def _failing(result: MetricResult) -> str:
    """Say which columns, pairs or rows are far off, the worst first; nothing if none is."""
    if result.metric is INCOHERENT:
        usual = result.baseline or 0.0
        if result.interval is None or result.interval[0] - usual <= MOST_INCOHERENT:
            return ""
        worst = result.parts.iloc[0]
        return (
            f"{result.value:.1%} of the rows have two values that hardly go together, {usual:.1%} "
            f"of real ones; most often {worst['most_often']}."
        )
    parts = by_part(result)
    failing = [part for part in parts if part.beyond > FAILING]
    if not failing:
        return ""
    kind = "columns" if result.metric.name == "marginal_distance" else "pairs"
    return (
        f"{len(failing)} of {len(parts)} {kind} are off by more than {FAILING}; the worst is "
        f"{failing[0].words}: {number_text(failing[0].value)}."
    )


def _card(result: MetricResult) -> dict[str, Any]:
    """Words and ruler of one headline metric."""
    level, closed, failing = "unknown", result.gap_closed, _failing(result)
    if closed is not None:
        is_close = closed >= CLOSE and not failing
        level = "close" if is_close else "partly" if closed >= PARTLY else "far"
    answer, ruler = ANSWERS.get(level, "No verdict"), None
    if result.value is None:
        answer, text = "Not applicable", f"Not applicable, because {result.not_applicable}."
    elif closed is None:
        text = (
            "Real data themselves do no better than the naive mark here, so that there is no scale "
            "to read the value on."
        )
    else:
        ruler = {
            "at": round(100 * closed, 1),
            "from_to": _ruler_interval(result),
            "naive": number_text(result.naive),
            "baseline": number_text(result.baseline),
        }
        text = f"{closed:.0%} of the way from naive to real data. {failing}".rstrip()
    question, topic = QUESTIONS[result.metric.name]
    return {
        "question": question,
        "topic": topic,
        "metric": result.metric,
        "level": level,
        "answer": answer,
        "value": number_text(result.value),
        "interval": _interval(result),
        "ruler": ruler,
        "text": text,
    }


def _ruler_interval(result: MetricResult) -> tuple[float, float] | None:
    """Left end and width of the interval on the ruler, in percent."""
    if result.interval is None or result.naive is None or result.baseline is None:
        return None
    length = result.baseline - result.naive
    ends = sorted(
        min(1.0, max(0.0, (end - result.naive) / length)) * 100 for end in result.interval
    )
    return round(ends[0], 1), round(ends[1] - ends[0], 1)


def _verdict(cards: list[dict[str, Any]]) -> str:
    """One sentence over all headline metrics."""
    judged = [card for card in cards if card["ruler"]]
    others = ", ".join(card["topic"] for card in cards if not card["ruler"])
    close = [card for card in judged if card["level"] == "close"]
    if not judged:
        return "None of the headline measures applies to these tables."
    rest = f" Not judged: {others}." if others else ""
    if len(close) == len(judged):
        n = f"{len(close)} of {len(cards)}" if others else f"all {len(cards)}"
        return f"Close to the real data in {n} respects.{rest}"
    open_ones = [card for card in judged if card["level"] != "close"]
    topics = ", ".join(
        card["topic"] for card in sorted(open_ones, key=lambda card: float(card["ruler"]["at"]))
    )
    return (
        f"Close to the real data in {len(close)} of {len(cards)} respects. Not close, the weakest "
        f"first: {topics}.{rest}"
    )


def _sentences(results: MetricResults, holdout: bool) -> list[str]:
    """Plain sentences under the verdict: the point of the method, use, copying."""
    sentences = []
    within, across = (results[f"association_error_{scope}"] for scope in ("within", "across"))
    if across.value is not None and within.value is not None:
        sentences.append(
            f"Relations across parties are off by {number_text(across.value)} on average, "
            f"relations within parties by {number_text(within.value)}; two halves of the real "
            "table differ by "
            f"{number_text(across.baseline)} and {number_text(within.baseline)}. Lower is better."
        )
    tstr = results["train_synthetic_test_real"]
    if tstr.value is not None and tstr.baseline is not None:
        score = str(tstr.parts["score"].iloc[0])
        word = {"accuracy": "accuracy", "r2": "R²"}[score]
        sentences.append(
            f"A model trained on synthetic rows reaches {word} {number_text(tstr.value)} on real "
            f"rows; trained on real rows it reaches {number_text(tstr.baseline)}, without learning "
            f"anything {number_text(tstr.naive)}. Higher is better."
            + (
                " More than real rows give is no merit: it happens when synthetic rows repeat the "
                "rows tested on."
                if tstr.interval and tstr.interval[0] > tstr.baseline
                else ""
            )
        )
    copies = results["exact_copies"]
    if copies.value is not None and copies.baseline is not None:
        sentences.append(
            f"{_share(copies.value)} of the synthetic rows are exact copies of a real row; of real "
            f"rows not trained on, {_share(copies.baseline).lower()} are."
            if holdout
            else f"{_share(copies.value)} of the synthetic rows are exact copies of a real row; "
            f"{_share(copies.baseline).lower()} of the real rows have a double among themselves."
        )
    return sentences


def _facts(tables: Tables) -> list[str]:
    facts = [f"{len(tables.synthetic):,} synthetic rows", f"{len(tables.real):,} real rows"]
    facts += [] if tables.holdout is None else [f"{len(tables.holdout):,} held-out rows"]
    facts += [f"{len(tables.encoder.names)} columns"]
    parties = tables.parties
    return facts if parties is None else [*facts, f"parties: {', '.join(map(str, parties))}"]


def _with_own_parts(results: MetricResults) -> list[MetricResult]:
    """Return the results whose parts no other table of the page shows."""
    shown: list[MetricResult] = []
    by_scope = results["association_error_across"].value is not None
    for name, result in results.items():
        twice = any(result.parts is other.parts for other in shown)
        if len(result.parts) and not twice and not (by_scope and name == "association_error"):
            shown.append(result)
    return shown


def _table(result: MetricResult) -> dict[str, Any]:
    shown = result.parts.head(TABLE_ROWS)
    return {
        "title": _TABLE_TITLES.get(result.metric.name, result.metric.title),
        "header": [str(name).replace("_", " ") for name in shown.columns],
        "numeric": [pd.api.types.is_numeric_dtype(shown[name]) for name in shown.columns],
        "rows": [[_cell(value) for value in row] for row in shown.itertuples(index=False)],
        "hidden": len(result.parts) - len(shown),
    }


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number_text(value)
    return "–" if value is None else str(value)


def _interval(result: MetricResult) -> str:
    if result.interval is None:
        return ""
    return f"{number_text(result.interval[0])} to {number_text(result.interval[1])}"


def _share(value: float) -> str:
    return "None" if value == 0 else f"{value:.2%}" if value >= 1e-4 else "Less than 0.01%"
