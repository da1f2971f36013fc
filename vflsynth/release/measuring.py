"""Traces of single records: what a release is judged by beside the metrics of evaluation.

Where real rows coincide by chance, too, the same is measured on real rows that were not used, or on
one half of the real table against the other, and taken off.

An audit, whose clauses are membership and the three questions of WP216, is read in the form that it
has as JSON, so that one made elsewhere, at another time, counts like one that was just made. Its
targets' keys stay unread.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vflsynth.contract import ColumnContract, Contract, Rule
from vflsynth.evaluation.columns import Floats, NumericColumn, present
from vflsynth.evaluation.neighbours import row_hashes, written
from vflsynth.evaluation.tables import Tables
from vflsynth.exceptions import ParameterError
from vflsynth.release.clauses import Measured, NotMeasured

if TYPE_CHECKING:
    from vflsynth.audit import AuditReport, Criteria


_STANDARD_ERRORS, OF_MANY = 2.0, 3.0
"""Of a difference, what chance may do; more where the worst of many columns is looked for."""


def columns_of(contract: Contract) -> defaultdict[Hashable, ColumnContract]:
    """Return what a contract says of all parties' columns, of others that it says nothing."""
    said = {label: c for part in contract.parties.values() for label, c in part.columns.items()}
    return defaultdict(ColumnContract, said)


def beyond_chance(
    share: float, usual: float, n: int, n_usual: float, errors: float = _STANDARD_ERRORS
) -> float:
    """Return by how much a share is above that of other rows, less standard errors; at least 0.

    The standard error is that of a difference of two shares that are one, the pooled share.
    """
    pooled = (share * n + usual * n_usual) / (n + n_usual)
    error = np.sqrt(pooled * (1.0 - pooled) * (1 / n + 1 / n_usual))
    return max(0.0, share - usual - errors * float(error))


def mass_at_extremes(tables: Tables) -> Measured | NotMeasured:
    """Measure how many rows pile up at either end of a numeric column where real ones do not.

    The share of synthetic values that are exactly the synthetic or the real minimum, less that of
    real ones and three standard errors of the difference; likewise at the maxima. The one value
    that is at its own table's end in any case does not count. What clipping leaves is such a point;
    a distribution that is merely off shows in its distance.
    """
    worst = Measured(0.0, "No column's rows pile up at its ends more than the real ones do.")
    for column in tables.encoder.numeric:
        ours, theirs = _present(column, tables.real), _present(column, tables.synthetic)
        if not len(ours) or not len(theirs):
            continue
        for where, end_of in (("lower", np.min), ("upper", np.max)):
            ends = [float(end_of(values)) for values in (theirs, ours)]
            for end in set(ends):
                shown, usual = (
                    float((values == end).sum() - (own == end)) / len(values)
                    for values, own in zip((theirs, ours), ends)
                )
                excess = beyond_chance(shown, usual, len(theirs), len(ours), errors=OF_MANY)
                if excess > worst.value:
                    says = (
                        f"{shown:.1%} of the synthetic and {usual:.1%} of the real rows "
                        f"are at the {where} end of column {str(column.name)!r}."
                    )
                    worst = Measured(excess, says, column=column.name)
    if not tables.encoder.numeric:
        return NotMeasured("there is no numeric column", applies=False)
    return worst


def real_extremes(
    tables: Tables, contract: Contract, rules: Sequence[Rule] = ()
) -> Measured | NotMeasured:
    """Count cells that are a column's smallest or largest real value, where few records hold it.

    Columns that rules compute of others are left out: what they have is no copy.
    """
    computed = {rule.repaired_column for rule in rules}
    found: dict[Hashable, int] = {}
    said = columns_of(contract)
    looked_at = 0
    for column in tables.encoder.numeric:
        own = said[column.name]
        ours, theirs = _present(column, tables.real), _present(column, tables.synthetic)
        if own.extremes or own.bounds is not None or not len(ours) or column.name in computed:
            continue
        looked_at += 1
        least = contract.least(own)
        for end in (ours.min(), ours.max()):
            if (ours == end).sum() < least:
                found[column.name] = found.get(column.name, 0) + int((theirs == end).sum())
    if not looked_at:
        return NotMeasured(
            "the contract allows or computes the extremes of every numeric column", applies=False
        )
    return _counted(found, "cells with the smallest or largest value of a few real records")


def copied_values(tables: Tables, contract: Contract) -> Measured | NotMeasured:
    """Measure how many of one numeric column's cells equal a rare real value, beyond chance.

    Values are equal if they are to a millionth of a standard deviation, as float32 has them. Cells
    whose value enough real records hold are left out: such a value may come out. Without a
    holdout, each real record is held against all others. That share is Good's estimate of what
    fresh records would have, with the variance of Esty (1983): more than if records were asked
    independently, as two that have a value together count together. Three standard errors are taken
    off.
    """
    worst: Measured | None = None
    said, others = columns_of(contract), tables.holdout
    for column in tables.encoder.numeric:
        known, drawn = _stored(column, tables.real), _stored(column, tables.synthetic)
        least = contract.least(said[column.name])
        unused, itself = (known, 1) if others is None else (_stored(column, others), 0)
        ours, theirs = _times(drawn, known), _times(unused, known) - itself
        ours, theirs = ours[ours < least], theirs[theirs < least]
        if not len(ours) or not len(theirs):
            continue
        shares = float((ours > 0).mean()), float((theirs > 0).mean())
        alone, twice = shares[1] * (1.0 - shares[1]), itself * float((theirs == 1).mean())
        as_good_as = max(1.0, len(theirs) * alone / (alone + twice)) if twice else len(theirs)
        beyond = beyond_chance(*shares, len(ours), as_good_as, errors=OF_MANY)
        excess = len(ours) / len(drawn) * beyond
        if worst is None or excess > worst.value:
            worst = Measured(
                excess,
                f"In column {str(column.name)!r}, of the synthetic values that fewer than {least} "
                f"real records hold, {shares[0]:.1%} are some record's; of real values, "
                f"{shares[1]:.1%} are another record's.",
                column=column.name,
            )
    return worst or NotMeasured("no numeric column has rare values", applies=False)


def _times(cells: Floats, known: Floats) -> NDArray[np.int64]:
    """Return how often each cell's value is among the known ones."""
    ordered = np.sort(known)
    return np.searchsorted(ordered, cells, "right") - np.searchsorted(ordered, cells, "left")


def rare_categories(tables: Tables, contract: Contract) -> Measured | NotMeasured:
    """Count synthetic rows with a category of few real records; public lists are no secret.

    A category that the column's type lists and no row has counts as a row: files hold it.
    """
    found: dict[Hashable, int] = {}
    said = columns_of(contract)
    looked_at = [c.name for c in tables.encoder.discrete if said[c.name].categories is None]
    for name in looked_at:
        counts = tables.real[name].astype(object).value_counts()
        rare = counts.index[counts < contract.least(said[name])]
        shown = tables.synthetic[name].astype(object)
        if isinstance(dtype := tables.synthetic[name].dtype, pd.CategoricalDtype):
            listed = dtype.categories.difference(shown.dropna().unique().tolist(), sort=False)
            shown = pd.concat([shown, pd.Series(listed, dtype=object)])
        found[name] = int(shown.isin(set(rare)).sum())
    if not looked_at:
        return NotMeasured("no column has categories that are not public", applies=False)
    return _counted(found, "rows, or lists of categories, with one of a few real records")


def unique_combinations(tables: Tables, contract: Contract) -> Measured | NotMeasured:
    """Measure how many rows have the quasi-identifiers of one real record only, beyond chance."""
    real, synthetic = tables.real, tables.synthetic
    said = columns_of(contract)
    columns = [c for c in tables.encoder.columns if said[c.name].role == "quasi-identifier"]
    if not columns:
        return NotMeasured("the contract gives no column the role 'quasi-identifier'")
    known, unused = real, tables.holdout
    if unused is None:  # one half of the real rows is held against the other
        rng = np.random.default_rng([tables.random_state, 27559])
        order, half = rng.permutation(len(real)), len(real) // 2
        known, unused = real.iloc[order[:half]], real.iloc[order[half:]]
    combinations, counts = np.unique(row_hashes(columns, known), return_counts=True)
    single = combinations[counts == 1]
    shares = [float(np.isin(row_hashes(columns, t), single).mean()) for t in (synthetic, unused)]
    return Measured(
        beyond_chance(shares[0], shares[1], len(synthetic), len(unused)),
        f"{shares[0]:.1%} of the synthetic rows have the quasi-identifiers "
        f"({', '.join(str(c.name) for c in columns)}) of exactly one real record; of real rows not "
        f"used, {shares[1]:.1%} do.",
    )


def identifiers(
    real: pd.DataFrame, synthetic: pd.DataFrame, contract: Contract
) -> Measured | NotMeasured:
    """Measure how many values of a replaced column are real ones."""
    published = [label for label in contract.left_out if label in synthetic.columns]
    if not published:
        return NotMeasured("no identifier or free text is published", applies=False)
    missing = [label for label in published if label not in real.columns]
    if missing:
        return NotMeasured(f"the real table has no column {str(missing[0])!r}")
    worst = Measured(-1.0, "")
    for label in published:
        ours, theirs = (t[label].dropna().astype(object).map(written) for t in (real, synthetic))
        share = float(theirs.isin(set(ours)).mean())
        share = 0.0 if np.isnan(share) else share
        if share > worst.value:
            says = f"{share:.1%} of the values in column {str(label)!r} are real ones."
            worst = Measured(share, says, column=label)
    return worst


def rule_violations(synthetic: pd.DataFrame, rules: Sequence[Rule]) -> Measured | NotMeasured:
    """Measure how many rows break a rule. Real records have no part in it."""
    if not rules:
        return NotMeasured("the contract has no rules", applies=False)
    broken = np.zeros((len(rules), len(synthetic)), dtype=np.bool_)
    for number, rule in enumerate(rules):
        absent = [label for label in rule.columns if label not in synthetic.columns]
        if absent:
            return NotMeasured(f"the synthetic table has no column {str(absent[0])!r}")
        broken[number] = ~np.asarray(rule.keeps(synthetic), dtype=np.bool_)
    worst = int(broken.sum(axis=1).argmax())
    share = float(broken.any(axis=0).mean()) if len(synthetic) else 0.0
    says = f"All rows keep all {len(rules)} rules." if len(rules) > 1 else "All rows keep the rule."
    if share:
        says = f"{broken[worst].mean():.2%} of the rows break {rules[worst].title!r}."
    return Measured(share, says)


def _counted(found: Mapping[Hashable, int], what: str) -> Measured:
    total = sum(found.values())
    if not total:
        return Measured(0.0, f"There are no {what}.")
    worst = max(found, key=lambda name: found[name])
    return Measured(
        float(total), f"There are {total:,} {what}, most in column {str(worst)!r}.", column=worst
    )


def _present(column: NumericColumn, frame: pd.DataFrame) -> Floats:
    return present(column.values(frame))


def _stored(column: NumericColumn, frame: pd.DataFrame) -> Floats:
    """Return numbers to a millionth of a standard deviation, whatever floats held them."""
    return np.round(present(column.standardised(frame)), 6)


QUESTIONS = {
    "singling_out": "singling out",
    "linkability": "linkability",
    "inference": "attribute inference",
}
"""Clauses about the questions of WP216, and what `vflsynth.audit` calls these."""


def limit_shown_by(n_records: int) -> float:
    """Return the limit of the three questions that an audit of so many records can show.

    Half of the records is in the model and half is not, and at most 1,000 of each are attacked. If
    half of the attacks on each succeed, which is the widest, 19 of 20 audits of a model that tells
    nothing have an interval of 95 % whose upper end is below the limit.

    Examples
    --------
    >>> limit_shown_by(400), limit_shown_by(1_300)
    (0.19, 0.1)
    """
    attacked = min(1_000, max(1, n_records // 2))
    upper = (NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.95)) * math.sqrt(0.5 / attacked)
    return math.ceil(100 * upper) / 100


def from_audit(
    audit: AuditReport | Criteria | Mapping[str, Any] | None,
) -> dict[str, Measured | NotMeasured]:
    """Return what an audit found about membership and each of the three questions.

    `audit` may be the content of its JSON (ParameterError if it is not). One that trained for fewer
    epochs than usual, to keep to its time, is of other models than the one that is to be published,
    and counts for nothing.
    """
    content: Mapping[str, Any] = {}
    unattacked, unasked = "no audit was given", "no answer to this question was given"
    try:
        if audit is not None:
            content = audit if isinstance(audit, Mapping) else json.loads(audit.to_json())
        if "shortened" in content:
            epochs, usual = content["shortened"]["epochs"], content["shortened"]["usual"]
            unattacked = unasked = (
                f"the audit was of models of at most {epochs} epochs in place of {usual}; give one "
                "that had the time for all of them"
            )
            content = {}
        elif content and "targets" not in content:
            unattacked = "only the three questions were asked"
        membership = _membership(content) if "targets" in content else NotMeasured(unattacked)
        answers = content.get("criteria", ())
        found = {clause: _question(name, answers, unasked) for clause, name in QUESTIONS.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParameterError(
            f"this is not the JSON of an audit: {error!r}. Fix: that of 'vflsynth audit --json'"
        ) from error
    return {"membership": membership, **found}


def _membership(content: Mapping[str, Any]) -> Measured:
    """Return the target and source that the strongest attack does best on, by its upper end."""
    strongest = [
        (target["source"], attack["auc"])
        for target in content["targets"]
        for attack in target["attacks"]
        if attack["strongest"]
    ]
    source, auc = max(strongest, key=lambda found: float(found[1]["high"]))
    low, high = float(auc["low"]), float(auc["high"])
    lows = [float(other["low"]) for _, other in strongest]
    return Measured(
        high,
        f"On the worst of {len(strongest)} audited targets the strongest attack on the {source} "
        f"has an AUC of {auc['value']:.2f}; what counts is the upper end of its interval, "
        f"{low:.2f} to {high:.2f}. It attacked with {content['n_models']} models with and without "
        "each target.",
        (max(lows), high),
    )


def _question(
    name: str, answers: Iterable[Mapping[str, Any]], missing: str
) -> Measured | NotMeasured:
    own = [answer for answer in answers if answer["question"] == name]
    if not own:
        return NotMeasured(missing)
    worst = max(own, key=lambda answer: float(answer["excess_high"]))
    column, low, high = worst["column"], worst["excess_low"], worst["excess_high"]
    about = "" if column is None else f" of column {str(column)!r}"
    return Measured(
        high,
        f"The attack{about} succeeds {100 * worst['excess']:.1f} points more often for records "
        f"that were used than for others; what counts is the upper end of the interval, "
        f"{100 * low:.1f} to {100 * high:.1f}.",
        (max(answer["excess_low"] for answer in own), high),
        column,
    )
