"""The gate: model, contract, evaluation and audit in, one verdict per clause out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date as Date
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd

from vflsynth._version import __version__
from vflsynth.contract import CLAUSES, Check, Contract, Rule
from vflsynth.evaluation.metric import MetricResult, MetricResults, by_part
from vflsynth.evaluation.neighbours import TOLERANCE
from vflsynth.evaluation.rules import NOTHING_EXACT
from vflsynth.evaluation.suite import all_metrics, results_of
from vflsynth.evaluation.tables import Known, TableMetric, Tables
from vflsynth.exceptions import ContractError, ParameterError
from vflsynth.privacy import PrivacyAccount, PrivacyLedger
from vflsynth.privacy.ledger import conditional
from vflsynth.release import measuring
from vflsynth.release.clauses import Clause, Measured, NotMeasured, changes_since_fit
from vflsynth.release.dossier import Dossier

if TYPE_CHECKING:
    from vflsynth.audit import AuditReport, Criteria
    from vflsynth.methods.synthesizer import BaseSynthesizer


def release_gate(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    *,
    model: BaseSynthesizer | None = None,
    contract: Contract | None = None,
    evaluation: MetricResults | None = None,
    audit: AuditReport | Criteria | Mapping[str, Any] | None = None,
    account: PrivacyAccount | None = None,
    metrics: Sequence[TableMetric] = (),
    date: Date | None = None,
    **known: Unpack[Known],
) -> Dossier:
    """Hold a synthetic table against every clause of a contract.

    A verdict is that of the worst column, pair, rule or target; nothing is averaged away. What
    nobody measured decides nothing: the table passes once it is measured, or the contract waives it
    by name. To look at real records for this spends no privacy budget only as long as the numbers
    stay inside: the edition to hand out of a private release has none of them.

    Parameters
    ----------
    real : DataFrame
        The records that the model was fitted on.
    synthetic : DataFrame
        The very table that is to be published.
    model : BaseSynthesizer, optional
        Says which contract it was fitted with, which rules hold, and what its ledger promises.
    contract : Contract, optional
        Default: the model's; without one, a contract that says nothing, with default limits.
    evaluation : MetricResults, optional
        Of the same tables and columns, if it is there already. Columns that the contract does not
        model are not among them.
    audit : AuditReport or mapping, optional
        Of the same synthesizer, or the content of its JSON.
    account : PrivacyAccount, optional
        Of the records: then the clause on ε is about everything that was booked there, this release
        included. Without it, it is about this release alone, and says so.
    metrics : sequence of TableMetric, default ()
        For the internal edition, beside those that decide.
    date : date, optional
        Of the release. Default: today, which is the only thing here that is not repeatable.
    **known
        `parties`, `target`, `holdout`, `categorical` and `random_state`, as of
        `vflsynth.evaluation.evaluate`. Without a target, utility is not measured.

    Raises
    ------
    ParameterError
        If the model is not fitted, its ledger or the audit cannot be read as such, `account` does
        not have this release, or there is no model with privacy for it, or the evaluation is of
        other tables.
    ArtefactError
        If there is no such account, or it is damaged.
    ContractError
        If the ledger's promise is about the table, and a rule would be learned from records.
    PartyDataError
        If the tables cannot be compared.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300)})
    >>> dossier = release_gate(real, real)
    >>> dossier.passed, dossier["copied_rows"].verdict
    (False, 'failed')
    """
    for name, given, kind in (
        ("contract", contract, Contract),
        ("evaluation", evaluation, MetricResults),
        ("account", account, PrivacyAccount),
        ("date", date, Date),
    ):
        if given is not None and not isinstance(given, kind):
            raise ParameterError(f"release_gate: {name} must be a {kind.__name__}, got {given!r}")
    if model is None and account is not None:
        raise ParameterError("release_gate: account says what a model's ε adds to; give model, too")
    if model is not None and not hasattr(model, "settings_"):
        raise ParameterError(f"release_gate: model must be fitted, got {model!r}; call its fit")
    if contract is None:
        contract = Contract() if model is None or model.contract is None else model.contract
    ledger = None if model is None else model.privacy_ledger_
    settings: Mapping[str, Any] = {} if model is None else model.settings_
    if ledger is not None and not isinstance(ledger, PrivacyLedger):
        raise ParameterError(f"a model's ledger must be a PrivacyLedger, got {ledger!r}")
    if ledger is None and account is not None:
        raise ParameterError(
            "release_gate: account says what a model's ε adds to, and this model has no privacy; "
            "leave account out"
        )
    if ledger is not None and ledger.covers_synthetic_data:
        contract.check_private()  # the edition to hand out says how many rows break its rules
    gone = [c for c in contract.left_out if c in real.columns and c not in synthetic.columns]
    tables = _published(
        Tables(real.drop(columns=gone) if gone else real, synthetic, **known), contract
    )
    if evaluation is None:
        evaluation = results_of(tables, all_metrics(metrics))
    for column, digest in evaluation.digests.items():
        if tables.digests.get(column, digest) != digest:
            raise ParameterError(
                f"the evaluation is of other tables: column {column!r} differs. Fix: evaluate the "
                "tables that are to be judged, or leave evaluation= out"
            )
    rules = promised_rules(model, contract, real)
    found: dict[str, Measured | NotMeasured] = {
        "mass_at_extremes": measuring.mass_at_extremes(tables),
        "real_extremes": measuring.real_extremes(tables, contract, rules),
        "copied_values": measuring.copied_values(tables, contract),
        "rare_categories": measuring.rare_categories(tables, contract),
        "unique_combinations": measuring.unique_combinations(tables, contract),
        "identifiers": measuring.identifiers(tables.real, tables.synthetic, contract),
        "rule_violations": measuring.rule_violations(tables.synthetic, rules),
        "worst_column": _worst(evaluation["marginal_distance"], "column"),
        "worst_pair": _worst(evaluation["association_error"], "columns"),
        "copied_rows": _copied_rows(evaluation, tables),
        "incoherent_rows": _incoherent_rows(evaluation["incoherent_rows"]),
        "exact_structure": _exact_structure(evaluation["exact_structure"]),
        "detection": _detection(evaluation["detection_auc"]),
        "utility": _utility(evaluation["train_synthetic_test_real"]),
        **measuring.from_audit(audit),
        "epsilon": _epsilon(ledger, account, settings.get("account")),
    }
    return Dossier(
        clauses=tuple(Clause.of(name, found[name], contract.release) for name in CLAUSES),
        contract=contract,
        evaluation=evaluation,
        tables=tables,
        ledger=ledger,
        version=__version__,
        date=f"{date or Date.today():%Y-%m-%d}",
        random_state=tables.random_state,
        changes=changes_since_fit(contract, model),
        contract_digests={"judged by": contract.digest, "fitted with": settings.get("contract")},
    )


def _published(tables: Tables, contract: Contract) -> Tables:
    """Return the tables with the columns that are published and modelled."""
    said = measuring.columns_of(contract)
    compared = [name for name in tables.synthetic if said[name].is_modelled]
    parties = tables.parties
    if parties is not None:
        parties = {name: [c for c in own if c in compared] for name, own in parties.items()}
    return replace(tables, parties=parties, columns=compared)


def promised_rules(
    model: BaseSynthesizer | None, contract: Contract, real: pd.DataFrame
) -> list[Rule]:
    """Return the model's rules, and the contract's others as the real table completes them."""
    own = [] if model is None or model.contract is None else list(model.rules())
    known, least = {rule.title for rule in own}, contract.rare_records
    others = [rule for rule in contract.all_rules if rule.title not in known]
    return own + [r.learned(real, least) if r.reads_records else r for r in others]


def _worst(result: MetricResult, noun: str) -> Measured | NotMeasured:
    parts = by_part(result)
    if not parts:
        return NotMeasured(result.not_applicable or "no two columns can be compared")
    worst = parts[0]
    usual = "halves of the real table are" if noun == "column" else "thrice what halves are"
    plural = "columns" if noun == "column" else "pairs"
    return Measured(
        max(0.0, worst.beyond),
        f"{noun.capitalize()} {worst.words} {'is' if noun == 'column' else 'are'} off by "
        f"{worst.value:.3f}, of {len(parts)} {plural} the most beyond {usual} "
        f"({worst.value - worst.beyond:.3f}).",
        column=worst.words,
    )


def _copied_rows(evaluation: MetricResults, tables: Tables) -> Measured | NotMeasured:
    """Take the worse of exact copies and of those that noise, or another float type, hides."""
    exact, new = evaluation["exact_copies"], evaluation["new_row_share"]
    if exact.value is None or new.value is None:
        return NotMeasured(str(exact.not_applicable or new.not_applicable))
    others = "real rows among themselves" if tables.holdout is None else "real rows not used"
    n_usual = len(tables.real if tables.holdout is None else tables.holdout)
    n, usual = int(new.parts["rows"].iloc[0]), exact.baseline or 0.0
    near = 1.0 - new.value, 0.0 if new.baseline is None else 1.0 - new.baseline
    hidden = measuring.beyond_chance(*near, n, min(n, n_usual), errors=measuring.OF_MANY)
    found = measuring.beyond_chance(exact.value, usual, len(tables.synthetic), n_usual)
    if hidden <= found:
        return Measured(
            found,
            f"{exact.value:.2%} of the synthetic rows are copies of a real one; of {others}, "
            f"{usual:.2%} are.",
        )
    return Measured(
        hidden,
        f"{near[0]:.2%} of the synthetic rows are copies of a real one, numbers to "
        f"{TOLERANCE:.0%} of a standard deviation; of {others}, {near[1]:.2%} are.",
    )


def _incoherent_rows(result: MetricResult) -> Measured | NotMeasured:
    if result.value is None:
        return NotMeasured(str(result.not_applicable))
    usual, worst = result.baseline or 0.0, result.parts.iloc[:2]
    where = " and ".join(repr(str(name)) for name in worst["column"])
    return Measured(
        max(0.0, result.value - usual),
        f"{result.value:.1%} of the synthetic rows have two common values that real rows hardly "
        f"have together; of real rows, {usual:.1%} do."
        + (f" Columns {where} are in most of them." if worst["value"].all() else ""),
    )


def _exact_structure(result: MetricResult) -> Measured | NotMeasured:
    if result.value is None:
        return NotMeasured(str(result.not_applicable))
    worst, usual = result.parts.iloc[0], 1.0 if result.baseline is None else result.baseline
    if worst["rule"] == NOTHING_EXACT:
        return NotMeasured("no relation of up to three columns is exact in the real table", False)
    says = f"Relations that all real rows keep: {len(result.parts)}; synthetic rows keep all."
    if result.value < 1.0:
        said = _without_values(worst["rule"])
        says = f"{1.0 - result.value:.2%} of the rows break {said}, as no real row does."
    return Measured(max(0.0, usual - result.value), says)


def _without_values(title: str) -> str:
    """Name a relation that was found, by its columns where it tells what values go together."""
    try:
        rule = Check(title)
    except ContractError:
        return repr(title)
    if rule.repaired_column is not None or rule.ordered is not None:
        return repr(title)
    return f"what values of {' and '.join(repr(str(c)) for c in rule.columns)} say of each other"


def _detection(result: MetricResult) -> Measured | NotMeasured:
    if result.value is None:
        return NotMeasured(str(result.not_applicable))
    says = (
        "Shown one real and one synthetic row that it never saw, gradient boosting says which is "
        f"which {result.value:.0%} of the time; guessing is right half of the time."
    )
    return Measured(result.value, says, result.interval)


def _utility(result: MetricResult) -> Measured | NotMeasured:
    if result.value is None or result.baseline is None:
        return NotMeasured(str(result.not_applicable))
    score = {"accuracy": "accuracy", "r2": "R²"}[str(result.parts["score"].iloc[0])]
    if score == "R²" and result.naive is not None and result.baseline <= result.naive:
        # Below the mean's R² there is no floor, and fresh rows may be far below real ones.
        because = "real rows themselves make no better model than the mean of the target"
        return NotMeasured(because, applies=False)
    says = (
        f"On real rows, a model trained on synthetic ones (TSTR) reaches {score} "
        f"{result.value:.3f}, one trained on real ones (TRTR) {result.baseline:.3f}."
    )
    return Measured(max(0.0, result.baseline - result.value), says)


def _epsilon(
    ledger: PrivacyLedger | None, account: PrivacyAccount | None, mark: str | None
) -> Measured | NotMeasured:
    """Return what is promised; the mark is the fit's in the account, None if across processes."""
    if ledger is None:
        return NotMeasured("the model makes no promise of differential privacy", applies=False)
    if not ledger.covers_synthetic_data:
        return NotMeasured("the ledger's ε does not bound what the synthetic table reveals")
    epsilon, delta = ledger.epsilon(), ledger.delta
    own = conditional(
        f"ε = {epsilon:.4g} at δ = {delta:g}, of this release alone", ledger.condition
    )
    if account is None:
        return Measured(
            epsilon,
            f"{own}: others about the same records add to it, and no account of them was given. "
            f"{ledger.claim}",
        )
    booked = account.attempts
    if not any(  # a fit that stopped early booked less than it had planned
        attempt.digest == mark if mark is not None else {*ledger.entries} <= {*attempt.entries}
        for attempt in booked
    ):
        raise ParameterError(
            f"the privacy account {account.path} does not have the releases of this model. Fix: "
            "give the account that the fit was booked in"
        )
    total, n_others = max(epsilon, account.epsilon(delta)), sum(bool(a.entries) for a in booked) - 1
    said = conditional(
        f"ε = {total:.4g} at δ = {delta:g} for all that was booked about these records: this "
        f"release, ε = {epsilon:.4g}, and {n_others} other runs",
        ledger.condition,
        *account.conditions,
    )
    return Measured(total, f"{said}. {ledger.claim}")
