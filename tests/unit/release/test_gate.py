"""Each clause against a table that breaks just this one, and against slow, obvious counts."""

import html
import json
from dataclasses import replace
from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from tests.unit.audit.test_results import attack
from tests.unit.release.conftest import DATE, WAIVED, make, make_contract
from vflsynth import MixtureSynthesizer
from vflsynth.audit import AuditReport, Criteria, Disclosure, TargetAudit
from vflsynth.codec import from_json, to_json
from vflsynth.contract import (
    CLAUSES,
    ColumnContract,
    Contract,
    Determines,
    PartyContract,
    ReleaseTerms,
    contract_from,
    contract_to_toml,
)
from vflsynth.evaluation import (
    MetricResults,
    association_errors,
    incoherent_rows,
    marginal_distance,
    proximity,
    utility,
)
from vflsynth.evaluation.tables import Tables
from vflsynth.exceptions import ContractError, ParameterError
from vflsynth.privacy import (
    GaussianRelease,
    LedgerEntry,
    NeighbouringRelation,
    PrivacyAccount,
    PrivacyLedger,
)
from vflsynth.release import measuring, release_gate
from vflsynth.release.clauses import Clause, Measured, NotMeasured
from vflsynth.release.measuring import from_audit

CONTRACT = make_contract()


@pytest.fixture(scope="module")
def judged(real, evaluation):
    """Judge another table than the one that was evaluated: all but the metrics is of that table."""
    evaluation = MetricResults(evaluation.values())  # which does not say of which

    def judge(synthetic, contract=CONTRACT, **options):
        return release_gate(
            real, synthetic, contract=contract, evaluation=evaluation, date=DATE, **options
        )

    return judge


@pytest.mark.slow
def test_fresh_rows_of_the_population_pass(judged, synthetic):
    dossier = judged(synthetic)
    assert dossier.passed, str(dossier)
    assert [clause.name for clause in dossier.clauses] == list(CLAUSES)
    assert dossier["membership"].verdict == "waived"
    assert dossier["epsilon"].verdict == "not applicable"
    assert dossier.headline == (
        "Passes with limits that no fit binds and 4 clauses waived without a measurement: 12 "
        "clauses kept."
    )


def piled_up(real, table):
    return table.assign(income=table["income"].clip(lower=table["income"].quantile(0.05)))


def with_an_extreme(real, table):
    return table.assign(income=[real["income"].max(), *table["income"][1:]])


def with_copies(real, table):
    return pd.concat([real[:60], table[60:]], ignore_index=True)


def with_copied_values(real, table):
    return table.assign(income=[*real["income"][:100], *table["income"][100:]])


def with_somebody(real, table):
    """Rows of quasi-identifiers that one real record has."""
    names = ["age", "sex", "town"]
    single = real[~real[names].duplicated(keep=False)]
    assert len(single) > 50
    changed = table.copy()
    changed[names] = single[names].iloc[np.arange(len(table)) % len(single)].to_numpy()
    return changed.astype(table.dtypes)


def with_somebody_in_other_types(real, table):
    return with_somebody(real, table).assign(age=lambda changed: changed["age"].astype("category"))


def with_children(real, table):
    return table.assign(age=[17, *table["age"][1:]])


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (piled_up, "mass_at_extremes"),
        (with_an_extreme, "real_extremes"),
        (with_copied_values, "copied_values"),
        (with_somebody, "unique_combinations"),
        (with_somebody_in_other_types, "unique_combinations"),
        (with_children, "rule_violations"),
    ],
)
def test_a_table_that_breaks_one_clause_fails_it(judged, real, synthetic, change, clause):
    dossier = judged(change(real, synthetic))
    assert clause in {failing.name for failing in dossier.failing}, str(dossier)
    assert dossier[clause].title in dossier.headline
    assert not dossier.passed


def judged_by(real, table, evaluation, *results, contract=CONTRACT):
    """Judge a table by some metrics of its own, and else by those of a good one."""
    found = [r for each in results for r in (each.values() if hasattr(each, "values") else [each])]
    evaluation = MetricResults([*evaluation.values(), *found])  # the last of a name counts
    return release_gate(real, table, contract=contract, evaluation=evaluation, date=DATE)


def test_an_evaluation_of_other_tables_is_refused(real, synthetic, evaluation):
    with pytest.raises(ParameterError, match="evaluation is of other tables: column "):
        release_gate(real, real, contract=CONTRACT, evaluation=evaluation, date=DATE)
    assert release_gate(real, synthetic, contract=CONTRACT, evaluation=evaluation, date=DATE)


@pytest.mark.parametrize(
    ("change", "least"), [(lambda v: v, 0.05), (lambda v: v * (1 + 1e-9), 0.03), (np.float32, 0.03)]
)
def test_copied_rows_fail(real, synthetic, evaluation, change, least):
    """Also those that noise, or another type of floats, hides from the eye."""
    copies = with_copies(real.assign(income=change(real["income"])), synthetic)
    dossier = judged_by(real, copies, evaluation, proximity(real, copies))
    assert dossier["copied_rows"].value > least
    assert dossier["copied_rows"].verdict == "failed"


def test_rows_that_do_not_hold_together_fail(real, synthetic, evaluation):
    ill = real["ill"].iloc[0]
    real = real.assign(pays=np.where(real["ill"] == ill, "yes", "no"))
    table = synthetic.assign(pays=np.where(synthetic["ill"] == ill, "yes", "no"))
    good = judged_by(real, table, evaluation, incoherent_rows(real, table))
    assert good["incoherent_rows"].verdict == "passed"
    table.loc[:59, "pays"] = table.loc[:59, "pays"].map({"yes": "no", "no": "yes"})
    found = incoherent_rows(real, table)
    bad = judged_by(real, table, evaluation, found)["incoherent_rows"]
    assert bad.verdict == "failed"
    assert bad.value == pytest.approx(0.1 - found.baseline)
    assert found.baseline == pytest.approx(2 / len(real)), "two rows of a cell of chance"
    assert "'ill' and 'pays'" in bad.says


def test_lost_relations_fail(real, synthetic, evaluation):
    shuffled = synthetic.assign(ill=np.random.default_rng(0).permutation(synthetic["ill"]))
    relations = association_errors(real, shuffled)
    useful = utility(real, shuffled, "ill", model=LogisticRegression(max_iter=1000))
    dossier = judged_by(real, shuffled, evaluation, relations, useful)
    assert {"worst_pair", "utility"} <= {clause.name for clause in dossier.failing}, str(dossier)
    assert "income" in str(dossier["worst_pair"].column)


@pytest.mark.parametrize(("real_score", "verdict"), [(-0.2, "not applicable"), (0.2, "failed")])
def test_a_target_that_nothing_predicts_cannot_lose(
    real, synthetic, evaluation, real_score, verdict
):
    found, parts = evaluation["train_synthetic_test_real"], pd.DataFrame({"score": ["r2"]})
    numbers = {"value": -0.4, "baseline": real_score, "naive": -0.01}
    of_a_number = replace(found, **numbers, interval=None, parts=parts)
    dossier = judged_by(real, synthetic, evaluation, of_a_number)
    assert dossier["utility"].verdict == verdict


def test_one_failing_column_is_not_averaged_away(real, synthetic, evaluation):
    """A mean over columns would be a fifth of what the worst one is off by."""
    off = synthetic.assign(town="Ulm")
    dossier = judged_by(real, off, evaluation, marginal_distance(real, off))
    assert dossier["worst_column"].column == "town"
    assert dossier["worst_column"].value > 0.35
    assert dossier["worst_column"].title in dossier.headline


def test_rare_categories_are_counted_unless_public(real):
    frame = real.assign(town=["Einöd", *real["town"][1:]])
    table = real.assign(town=["Einöd", "Einöd", *real["town"][2:]])
    tables = Tables(frame, table)
    found = measuring.rare_categories(tables, CONTRACT)
    assert (found.value, found.column) == (2.0, "town")
    assert "Einöd" not in found.says
    listed = real.assign(town=real["town"].astype(pd.CategoricalDtype(frame["town"].unique())))
    assert measuring.rare_categories(Tables(frame, listed), CONTRACT).value == 1.0
    public = Contract(
        {"office": PartyContract({"town": ColumnContract(categories=("Einöd", "Ulm"))})}
    )
    assert measuring.rare_categories(tables, public).value == 0.0


def test_identifiers_that_come_out_are_counted(real):
    frame = real.assign(iban=[f"DE{i:06d}" for i in range(len(real))])
    contract = Contract(
        {"bank": PartyContract({"iban": ColumnContract(role="identifier", replacement="drop")})}
    )
    table = frame.assign(iban=[*frame["iban"][:60], *["XX"] * 540])
    found = measuring.identifiers(frame, table, contract)
    assert found.value == pytest.approx(0.1)
    assert "DE0" not in found.says
    numbers = real.assign(iban=range(len(real)))
    assert measuring.identifiers(numbers, numbers.astype({"iban": float}), contract).value == 1.0
    assert not measuring.identifiers(frame, table.drop(columns="iban"), contract).applies


def test_what_a_contract_leaves_out_is_not_missed(real, synthetic, evaluation):
    """Free text is read with the real tables, and never comes out."""
    note = ColumnContract(role="free text")
    contract = Contract({"office": PartyContract({"note": note})})
    noted = real.assign(note=[f"seen at {i}" for i in range(len(real))])
    dossier = judged_by(noted, synthetic, evaluation, contract=contract)
    assert dossier["identifiers"].verdict == "not applicable"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("held_out", [False, True])
def test_copied_values_count_what_a_loop_counts(seed, held_out):
    rng = np.random.default_rng(seed)
    real, table, others = (
        pd.DataFrame({"x": rng.integers(0, 40, 60).astype(float)}) for _ in range(3)
    )
    unused = others if held_out else None

    def held(values, itself):
        times = [(real["x"] == value).sum() - itself for value in values]
        return [n > 0 for n in times if n < 5]

    slow = [held(table["x"], 0), held(others["x"], 0) if held_out else held(real["x"], 1)]
    shares = [np.mean(found) for found in slow]
    found = measuring.copied_values(Tables(real, table, holdout=unused), Contract())
    assert f"{shares[0]:.1%} are some record's" in found.says
    assert f"{shares[1]:.1%} are another record's" in found.says
    noisy = table.assign(x=table["x"] * (1 + 1e-9))
    assert measuring.copied_values(Tables(real, noisy, holdout=unused), Contract()) == found
    n, n_usual = map(len, slow)
    if not held_out:
        counts = [(real["x"] == value).sum() for value in real["x"]]
        pairs = np.mean([count == 2 for count in counts if count < 6])
        alone = shares[1] * (1 - shares[1])
        n_usual *= alone / (alone + pairs)
    excess = measuring.beyond_chance(*shares, n, n_usual, errors=3.0)
    assert found.value == pytest.approx(len(slow[0]) / 60 * excess)


@pytest.mark.parametrize(("n_days", "copies_show"), [(600, False), (1_500, True), (9_000, True)])
def test_frequent_days_may_come_out_as_often_and_rare_ones_are_no_copies(n_days, copies_show):
    """Fresh days pass, and so do those of five records; where these are nearly all, none shows."""
    rng = np.random.default_rng(0)
    real, fresh = (pd.DataFrame({"day": rng.integers(0, n_days, 2_500)}) for _ in range(2))
    counts = real["day"].value_counts()
    is_known = real["day"].map(counts) >= 5
    kept = real.assign(day=np.where(is_known, real["day"], fresh["day"]))
    copied = real.sample(2_500, replace=True, random_state=0, ignore_index=True)

    def excess(table):
        return measuring.copied_values(Tables(real, table), Contract()).value

    assert max(excess(fresh), excess(kept)) == 0.0
    assert (excess(copied) > 0.05) == copies_show
    lone = real.assign(day=[*real["day"][:-1], 10**6])
    few = fresh.assign(day=fresh["day"].where(fresh.index > 5, 10**6))
    said = measuring.copied_values(Tables(lone, few), Contract())
    assert said.value < 0.01, "a few cells are a small share of the column's"


@pytest.mark.parametrize("cells", [np.arange(1000.0), np.arange(1000) % 5], ids=["all", "few"])
def test_fresh_rows_do_not_pile_up_at_the_ends_of_many_columns(cells):
    """Some value is at each end of a short table, and of many columns one has more by chance."""
    real, fresh = (
        pd.DataFrame({f"{i}": np.random.default_rng([s, i]).choice(cells, n) for i in range(30)})
        for s, n in ((0, 1000), (1, 50 if cells[-1] > 5 else 1000))
    )
    found = measuring.mass_at_extremes(Tables(real, fresh))
    assert found.value <= ReleaseTerms().mass_at_extremes


def test_chance_is_taken_off():
    assert measuring.beyond_chance(0.5, 0.5, 100, 100) == 0.0
    assert measuring.beyond_chance(0.6, 0.4, 100, 100) == pytest.approx(0.2 - 2 * 0.5 * 0.02**0.5)


# what was not measured, and what excuses it


def test_what_nobody_measured_decides_nothing_unless_waived(judged, synthetic):
    dossier = judged(synthetic, make_contract(waived={}))
    assert not dossier.failing
    assert not dossier.passed
    assert {clause.name for clause in dossier.undecided} == set(WAIVED)
    assert dossier.headline.startswith("Undecided: ")
    assert f"{len(WAIVED)} not measured" in dossier.headline
    assert "Not measured" in dossier["membership"].says


def test_a_waiver_excuses_no_measurement():
    terms = ReleaseTerms(waived={"detection": "we know"})
    assert Clause.of("detection", Measured(0.99, "..."), terms).verdict == "failed"
    assert Clause.of("detection", NotMeasured("too few rows"), terms).verdict == "waived"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.05, 0.09, "passed"), (-0.05, 0.12, "not measured"), (0.11, 0.3, "failed")],
)
def test_an_attack_whose_interval_has_the_limit_is_not_measured(low, high, verdict):
    """A safety clause passes once it is shown to hold, and fails once it is shown not to."""
    for waived, said in ((False, verdict), (True, verdict.replace("not measured", "waived"))):
        terms = ReleaseTerms(waived={"singling_out": "seen to"} if waived else {})
        clause = Clause.of("singling_out", Measured(high, "Found.", (low, high)), terms)
        assert clause.verdict == said
        assert ("What helps: " in str(clause)) == (said in ("failed", "not measured"))
    assert Clause.of("detection", Measured(0.7, "...", (0.6, 0.9)), ReleaseTerms()).value == 0.7


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_fails(value):
    assert Clause.of("epsilon", Measured(value, "..."), ReleaseTerms()).verdict == "failed"


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"waived": {"detectoin": "typo"}}, "no clause"),
        ({"waived": {"detection": " "}}, "without a reason"),
        ({"detection": -1}, "detection"),
        ({"epsilon": "small"}, "epsilon"),
    ],
)
def test_terms_are_checked(terms, words):
    with pytest.raises(ContractError, match=words):
        ReleaseTerms(**terms)


def test_terms_are_a_part_of_the_contract():
    contract = make_contract(detection=0.9)
    assert contract_from(contract_to_toml(contract)) == contract
    assert from_json(to_json(contract)) == contract
    with pytest.raises(ContractError, match="release"):
        contract_from("[release]\nspeed = 1\n")
    with pytest.raises(ContractError, match="disagree on release"):
        Contract.agreed({"office": contract, "bank": make_contract()})


# audits


def audit(*separations: float, n: int = 150) -> AuditReport:
    """One target per separation; a stronger attack that training models did not choose."""
    singled_out = Disclosure.of_counts("singling out", (300, 100), (500, 500), 0.2, 0.95)
    guessed = Disclosure.of_counts("attribute inference", (250, 251), (500, 500), 0.5, 0.95, "ill")
    targets = tuple(
        TargetAudit(
            "P-4711", (), "synthetic data", (attack(s, n, training_auc=0.6), attack(9.0, n))
        )
        for s in separations
    )
    criteria = Criteria((singled_out, guessed), 500, 500, 0.95)
    return AuditReport("ASSD", "", targets, 2 * n, 600, 0.95, None, 1.0, 1.0, 4 * n, None, criteria)


def test_audits_decide_by_the_upper_end_of_the_worst_interval(judged, synthetic):
    given = audit(0.0, 0.2)
    dossier = judged(synthetic, audit=given)
    assert dossier["membership"].value == given.targets[1].strongest.auc.high
    assert dossier["membership"].verdict == "passed"
    assert dossier["singling_out"].verdict == "failed"
    assert dossier["singling_out"].value == given.criteria.answers[0].excess.high
    assert dossier["inference"].verdict == "passed"
    assert dossier["inference"].column == "ill"
    assert dossier["linkability"].verdict == "waived"
    assert "4711" not in str(dossier)
    read = judged(synthetic, audit=json.loads(given.to_json()))
    assert str(read) == str(dossier)


def test_audits_that_work_fail_and_those_too_small_measure_nothing(judged, synthetic):
    contract = make_contract(waived={})
    assert judged(synthetic, contract, audit=audit(3.0))["membership"].verdict == "failed"
    assert judged(synthetic, contract, audit=audit(0.0, n=5))["membership"].verdict == (
        "not measured"
    )


def test_answers_count_without_an_audit(judged, synthetic):
    dossier = judged(synthetic, audit=audit(0.0).criteria)
    assert dossier["membership"].verdict == "waived"
    assert dossier["singling_out"].verdict == "failed"


@pytest.mark.parametrize("content", [{"targets": [{}]}, {"targets": [], "n_models": 3}])
def test_what_is_no_audit_is_refused(content):
    with pytest.raises(ParameterError, match="JSON of an audit"):
        from_audit(content)


# differential privacy


def test_a_reason_why_nothing_was_measured_may_be_a_record_too():
    terms = ReleaseTerms(waived={"utility": "none is planned", "membership": "audited before"})
    because = NotMeasured("the target has a single value in the real table")
    assert "single value" not in str(Clause.of("utility", because, terms).withheld)
    given = Clause.of("membership", NotMeasured("no audit was given"), terms)
    assert given.withheld == given
    none = NotMeasured("no relation is exact in the real table", applies=False)
    assert Clause.of("exact_structure", none, terms).withheld.verdict == "withheld"
    few = Measured(0.9, "the attack has an AUC of 0.71", (0.4, 0.9))
    hidden = Clause.of("membership", few, terms).withheld
    assert (hidden.verdict, hidden.interval) == ("withheld", None)
    assert "0.71" not in str(hidden)


def ledger(covers=True) -> PrivacyLedger:
    release = GaussianRelease(
        released="histograms",
        party="office",
        noise_multiplier=2.0,
        sensitivity=3.0,
        relation=NeighbouringRelation.ADD_OR_REMOVE_ONE,
    )
    return PrivacyLedger(
        mechanism="noisy histograms",
        claim="ε bounds what the published table reveals.",
        covers_synthetic_data=covers,
        delta=1e-5,
        entries=(LedgerEntry("histograms", release),),
    )


def book(account, ledger, run="this fit"):
    opened = account.open(run, ledger)
    opened.spend(ledger.entries)
    opened.close()


class Model:
    def __init__(self, covers=True):
        self.contract, self.privacy_ledger_ = CONTRACT, ledger(covers)
        self.settings_ = {"contract": CONTRACT.digest}

    def rules(self):
        return CONTRACT.all_rules


def test_a_private_release_says_nothing_that_records_decide(judged, synthetic):
    """Also not whether it passed: two tables of another fate have the same public content."""
    table, commitments = {"rows": 600}, {}
    contents = [
        judged(table_, None, model=Model()).public_content(table, commitments)
        for table_ in (synthetic, make(600, 9).assign(income=1.0))
    ]
    assert contents[0] == contents[1]
    assert contents[0]["verdict"] == "withheld"
    verdicts = {c["name"]: c["verdict"] for c in contents[0]["clauses"]}
    assert verdicts["worst_column"] == "withheld"
    assert verdicts["rule_violations"] == verdicts["epsilon"] == "passed"
    assert verdicts["membership"] == "waived"
    assert "epsilon" in json.dumps(contents[0]["differential_privacy"])


def test_a_private_release_is_judged_by_no_rule_that_is_learned(judged, synthetic):
    office = replace(CONTRACT.parties["office"], rules=[Determines(("town",), "sex")])
    learned = replace(CONTRACT, parties={"office": office})
    with pytest.raises(ContractError, match="nothing is learned from records"):
        judged(synthetic, learned, model=Model())


def test_epsilon_is_held_against_the_contract(judged, synthetic):
    assert judged(synthetic, None, model=Model())["epsilon"].value == pytest.approx(1.993, abs=1e-3)
    strict = make_contract(epsilon=1.0)
    assert judged(synthetic, strict, model=Model())["epsilon"].verdict == "failed"
    uncovered = judged(synthetic, None, model=Model(covers=False))
    assert uncovered["epsilon"].verdict == "not measured"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": MixtureSynthesizer()}, r"model must be fitted, got MixtureSynthesizer\(\)"),
        ({"contract": "c.toml"}, "contract must be a Contract, got 'c.toml'"),
        ({"evaluation": "e.json"}, "evaluation must be a MetricResults, got 'e.json'"),
        ({"audit": "a.json"}, "not the JSON of an audit"),
        ({"date": "2020-01-01"}, "date must be a date, got '2020-01-01'"),
        ({"account": "a.json"}, "account must be a PrivacyAccount, got 'a.json'"),
        ({"account": PrivacyAccount("a.json")}, "give model, too"),
    ],
)
def test_what_is_no_such_thing_is_refused_by_name(real, synthetic, evaluation, given, words):
    with pytest.raises(ParameterError, match=words):
        release_gate(real, synthetic, **{"contract": CONTRACT, "evaluation": evaluation} | given)


def test_an_account_of_a_model_without_privacy_is_refused(judged, synthetic, tmp_path):
    model = Model()
    model.privacy_ledger_ = None
    account = PrivacyAccount.create(tmp_path / "account.json")
    with pytest.raises(ParameterError, match="this model has no privacy; leave account out"):
        judged(synthetic, None, model=model, account=account)


def test_a_moment_is_of_its_day(real, synthetic, evaluation):
    noon, known = datetime(2026, 3, 1, 12), {"contract": CONTRACT, "evaluation": evaluation}
    assert release_gate(real, synthetic, date=noon, **known).date == "2026-03-01"


def test_epsilon_is_that_of_all_that_an_account_has(judged, synthetic, tmp_path):
    account = PrivacyAccount.create(tmp_path / "account.json")
    with pytest.raises(ParameterError, match="does not have the releases of this model"):
        judged(synthetic, None, model=Model(), account=account)
    for run in ("this fit", "another fit"):
        book(account, ledger(), run)
    clause = judged(synthetic, None, model=Model(), account=account)["epsilon"]
    assert clause.value == pytest.approx(account.epsilon(1e-5))
    assert clause.value > 1.3 * ledger().epsilon()
    assert "and 1 other runs" in clause.says
    strict = make_contract(epsilon=2.0)
    assert judged(synthetic, strict, model=Model())["epsilon"].verdict == "passed"
    assert judged(synthetic, strict, model=Model(), account=account)["epsilon"].verdict == "failed"


def test_an_account_that_has_an_equal_fit_does_not_have_this_one(judged, synthetic, tmp_path):
    account = PrivacyAccount.create(tmp_path / "account.json")
    book(account, ledger())
    booked, forgotten = Model(), Model()
    booked.settings_ = {"account": account.attempts[-1].digest}
    forgotten.settings_ = {"account": ""}
    clause = judged(synthetic, None, model=booked, account=account)["epsilon"]
    assert clause.value == pytest.approx(ledger().epsilon())
    booked.privacy_ledger_ = replace(ledger(), entries=ledger().entries * 2)  # it stopped early
    clause = judged(synthetic, None, model=booked, account=account)["epsilon"]
    assert clause.value == pytest.approx(booked.privacy_ledger_.epsilon())
    with pytest.raises(ParameterError, match="does not have the releases of this model"):
        judged(synthetic, None, model=forgotten, account=account)


def test_what_an_epsilon_depends_on_is_said_with_it(judged, synthetic, tmp_path):
    """In the clause, the headline, the page and the machine-readable twin."""
    condition, shouted = "conditional on a proof with a gap", "; CONDITIONAL ON A PROOF WITH A GAP"
    model = Model()
    assert "CONDITIONAL" not in judged(synthetic, None, model=model).public_headline
    plain = model.privacy_ledger_
    model.privacy_ledger_ = replace(plain, condition=condition)
    dossier = judged(synthetic, None, model=model)
    assert f"of this release alone{shouted}: others" in dossier["epsilon"].says
    assert dossier.public_headline.endswith(f"at δ = 1e-05{shouted}.")
    table = {"file": "synthetic.csv", "sha256": "0", "bytes": 1, "rows": 600, "columns": []}
    content = dossier.public_content(table, {})
    assert content["headline"] == dossier.public_headline
    assert content["differential_privacy"]["condition"] == condition
    page = dossier.public_page(content).html
    assert page.count(shouted) >= 2  # headline and clause
    assert page.count("CONDITIONAL") >= 3
    account = PrivacyAccount.create(tmp_path / "account.json")
    for own in (plain, model.privacy_ledger_):
        book(account, own)
    for own in (model.privacy_ledger_, plain):  # the account's ε has the other's condition, too
        model.privacy_ledger_ = own
        says = judged(synthetic, None, model=model, account=account)["epsilon"].says
        assert f"and 1 other runs{shouted}. ε bounds" in says


def test_uncovered_epsilon_is_no_private_release(judged, synthetic):
    uncovered = judged(synthetic, None, model=Model(covers=False))
    assert not uncovered.is_private


@pytest.mark.parametrize(
    ("looser", "said"),
    [
        (make_contract(detection=1.0), "The limit of detection was 0.8 and is 1."),
        (make_contract(waived=WAIVED | {"utility": "later"}), "utility need not be measured"),
        (make_contract(waived=WAIVED | {"membership": "done"}), "membership is waived for another"),
        (replace(CONTRACT, rules=["age >= 1"]), "says of rules was changed"),
    ],
)
def test_limits_that_were_loosened_after_the_fit_are_said_where_it_passes(
    judged, synthetic, looser, said
):
    """In what is signed, in the headline and on the page; a contract as agreed says nothing."""
    model = Model(covers=False)
    agreed = judged(synthetic, None, model=model)
    changed = judged(synthetic, looser, model=model)
    assert not agreed.changes
    assert "changed limits" not in agreed.headline + agreed.public_headline
    assert [said in words for words in changed.changes] == [True]
    content = changed.public_content({"rows": 600, "columns": [], "file": "", "sha256": ""}, {})
    assert content["contract"]["changes_since_fit"] == list(changed.changes)
    assert content["contract"]["digests"]["judged by"] != CONTRACT.digest
    if changed.passed:
        assert changed.headline.startswith("Passes with changed limits")
    pytest.importorskip("jinja2")
    assert html.escape(said) in changed.public_page(content).html


def test_a_contract_that_was_put_in_after_the_fit_binds_nothing(judged, synthetic):
    """Not the estimator's parameter binds, but what it was when the model was fitted."""
    model = Model(covers=False)
    model.contract = make_contract(detection=1.0)
    (said,) = judged(synthetic, None, model=model).changes
    assert "replaced after the fit" in said


def test_waivers_are_listed_in_what_is_signed(judged, synthetic):
    content = judged(synthetic).public_content({"rows": 600}, {})
    assert len(content["contract"]["not_measured"]) == len(WAIVED)


def test_a_relation_that_few_rows_break_is_named_without_the_values_that_it_ties():
    def people(seed):
        rng = np.random.default_rng(seed)
        ward = rng.choice(["psychiatry", "surgery", "eyes"], 600)
        fee = np.where(ward == "psychiatry", 1234.56, np.round(rng.lognormal(6, 1, 600), 2))
        return pd.DataFrame({"ward": ward, "fee": fee})

    synthetic = people(1)
    synthetic.loc[synthetic.index[synthetic["ward"] == "psychiatry"][:2], "fee"] = 77.77
    says = release_gate(people(0), synthetic)["exact_structure"].says
    assert "0.33% of the rows break what values of 'ward' and 'fee' say of each other" in says
