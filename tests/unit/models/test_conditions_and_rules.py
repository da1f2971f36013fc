"""Conditions and completion under a contract: both hold in every record, and rules cost little."""

import numpy as np
import pandas as pd
import pytest

from tests.distances import total_variation
from tests.later import later
from tests.unit.models.test_conditions import weigh_whatever_is_asked
from vflsynth import (
    AutoregressiveSynthesizer,
    ColumnContract,
    Contract,
    IndependentSynthesizer,
    MixtureSynthesizer,
    PairwiseTables,
    PartyContract,
    Range,
)
from vflsynth.cli.main import main
from vflsynth.contract import FixedCombinations
from vflsynth.exceptions import ColumnKindError, ConditionError, ParameterError, RuleError
from vflsynth.privacy import PublicSchema

GRADES = (("mild", 1), ("fair", 2), ("bad", 3))
PUBLIC = {
    "lab": {
        "came": ColumnContract(bounds=("2024-01-01", "2024-12-31")),
        "left": ColumnContract(bounds=("2024-01-01", "2025-01-31")),
        "dose": ColumnContract(decimals=1, bounds=(0, 40)),
    },
    "clinic": {
        "net": ColumnContract(bounds=(0, 100)),
        "tax": ColumnContract(bounds=(0, 10)),
        "total": ColumnContract(bounds=(0, 110)),
    },
}


def contract(public=None):
    """Under privacy with what is public, and with rules against noise that looks like missing."""
    given = public or {"lab": {"dose": ColumnContract(decimals=1)}, "clinic": {}}
    replacement = "pseudonym" if public else "surrogate"
    identifiers = {
        "mail": ColumnContract(role="identifier", replacement=replacement),
        "case": ColumnContract(role="identifier", replacement="pseudonym"),
    }
    lab = ["came <= left", FixedCombinations(("grade", "score"), GRADES if public else None)]
    clinic = ["total == net + tax"]
    if public:
        lab, clinic = [*lab, "not missing(came)"], [*clinic, "not missing(net)", "not missing(tax)"]
    return Contract(
        {
            "lab": PartyContract(given["lab"] | identifiers, lab),
            "clinic": PartyContract(given["clinic"], clinic),
        },
        rules=['grade == "mild" => net >= 20', "tax <= score * 9"],
    )


CONTRACT = contract()


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    n = 400
    level = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    came = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    lab = pd.DataFrame(
        {
            "mail": [f"person{i}@mail.com" for i in range(n)],
            "case": [f"C-{i}" for i in range(n)],
            "came": came,
            "left": came + pd.to_timedelta(rng.integers(0, 20, n), "D"),
            "grade": np.array(["mild", "fair", "bad"])[level],
            "score": level + 1,
            "dose": rng.gamma(2.0, 3.0, n),
        }
    )
    net = rng.integers(20, 90, n) - 15 * (level > 1)
    clinic = pd.DataFrame({"net": net, "tax": rng.integers(0, 9, n)})
    return {"lab": lab, "clinic": clinic.assign(total=clinic["net"] + clinic["tax"])}


@pytest.fixture(scope="module")
def synth(frames, quick_contexts):
    return AutoregressiveSynthesizer(
        contract=CONTRACT, hidden=16, n_features=32, epochs=3, random_state=0, device="cpu",
        verbose=0,
    ).fit(frames)  # fmt: skip


@pytest.fixture(scope="module")
def mixture(frames, short_searches):
    public = PublicSchema(dtypes="given")
    privacy = PairwiseTables(epsilon=1e4, delta=1e-4, public_schema=public)
    return MixtureSynthesizer(
        privacy=privacy, contract=contract(PUBLIC), n_components=8, random_state=0
    ).fit(frames)


@pytest.fixture(scope="module")
def independent(frames):
    return IndependentSynthesizer(contract=CONTRACT, random_state=0).fit(frames)


def assert_rules(table, frames):
    assert (table["came"] <= table["left"]).all()
    assert (table["total"] == table["net"] + table["tax"]).all()
    assert (table["score"] == table["grade"].map({"mild": 1, "fair": 2, "bad": 3})).all()
    assert (table.loc[table["grade"] == "mild", "net"] >= 20).all()
    assert (table["tax"] <= table["score"] * 9).all()
    assert (table["dose"].round(1) == table["dose"]).all()
    assert not set(table["mail"]) & set(frames["lab"]["mail"])


CONDITIONS = [
    ({"grade": "bad"}, lambda t: t["grade"] == "bad"),
    ({"score": Range(2, 3), "net": Range(high=60)}, lambda t: (t["score"] > 1) & (t["net"] <= 60)),
    ({"left": Range("2024-06-01")}, lambda t: t["left"] >= "2024-06-01"),
    ({"total": Range(40, 60)}, lambda t: t["total"].between(40, 60)),
    ({"dose": Range(2.0, 3.5)}, lambda t: t["dose"].between(2.0, 3.5)),
]


@pytest.mark.parametrize(("conditions", "holds"), CONDITIONS)
@pytest.mark.parametrize("kind", ["synth", "independent", "mixture"])
def test_rules_and_conditions_hold_in_all_records(kind, conditions, holds, request, frames):
    model = request.getfixturevalue(kind)
    table = model.sample(100, conditions=conditions, random_state=1)
    assert len(table) == 100
    assert holds(table).all()
    assert_rules(table, frames)
    pd.testing.assert_series_equal(table.dtypes, model.sample(5, random_state=1).dtypes)
    assert 0 < table.attrs["acceptance_rate"] <= model.rule_cost().acceptance <= 1


@pytest.mark.parametrize(("conditions", "holds"), [CONDITIONS[1], *later(*CONDITIONS[2:4])])
def test_weighing_keeps_rules_and_agrees_with_throwing_away(
    synth, monkeypatch, conditions, holds, frames
):
    exact = synth.sample(1000, conditions=conditions, random_state=1)
    weigh_whatever_is_asked(monkeypatch)
    weighed = synth.sample(300, conditions=conditions, random_state=2)
    assert "effective_sample_size" in weighed.attrs
    assert holds(weighed).all()
    assert_rules(weighed, frames)
    assert total_variation(exact["grade"], weighed["grade"]) < 0.1
    for column in ("net", "dose", "total"):
        assert abs(exact[column].mean() - weighed[column].mean()) < 0.25 * exact[column].std()


def test_parties_get_the_same_pseudonyms_and_rows_their_own(synth):
    table = synth.sample(300, conditions={"grade": "bad"}, random_state=1)
    assert table["case"].is_unique
    assert table["mail"].is_unique


PARTLY = pd.DataFrame(
    {
        "came": pd.to_datetime(["2024-02-01", "2024-03-01", None, None]),
        "left": pd.to_datetime(["2024-02-09", None, "2024-05-05", None]),
        "score": [3.0, np.nan, 1.0, 2.0],
        "net": [30, 40, 45, 88],
    },
    index=[5, 6, 6, 8],
)


@pytest.mark.parametrize("kind", ["synth", "independent", "mixture"])
@pytest.mark.parametrize("rows", [PARTLY, *later(PARTLY.iloc[[0, 1, 3]], PARTLY[["net"]])])
def test_completed_records_keep_what_is_given_and_the_rules(kind, rows, request, frames):
    model = request.getfixturevalue(kind)
    table = model.complete(rows, random_state=0)
    assert table.index.tolist() == rows.index.tolist()
    assert table.notna().all(axis=None)
    given = table[rows.columns]
    assert ((given == rows) | rows.isna()).all(axis=None)
    assert_rules(table, frames)
    assert model.rule_cost().n_drawn > len(rows)
    again = model.sample(len(rows), conditions=rows, random_state=3)
    assert_rules(again, frames)


def test_completed_records_have_a_pseudonym_each(independent):
    given = independent.sample(1, random_state=0)[["grade"]]
    completed = independent.complete(given.iloc[[0] * 500])  # of some 16,000 draws, some twice
    assert completed["case"].is_unique


def test_rules_hold_of_what_follows_from_what_is_given(frames):
    clinic = frames["clinic"][frames["clinic"]["total"] <= 80]  # total is found to be a sum
    limited = Contract({"clinic": PartyContract(rules=["total <= 80"])})
    frames = {"clinic": clinic, "lab": frames["lab"][["grade"]].loc[clinic.index]}
    model = IndependentSynthesizer(contract=limited, random_state=0).fit(frames)
    completed = model.complete(clinic[["net"]])
    assert (completed["net"] == clinic["net"]).all()
    assert (completed["total"] == completed["net"] + completed["tax"]).all()
    assert (completed["total"] <= 80).all()


def test_what_others_tell_to_be_missing_stays_so():
    rng = np.random.default_rng(0)
    state = rng.choice(["open", "done"], 300)
    closed = np.where(state == "open", np.nan, rng.normal(size=300))
    cause = pd.Series(rng.choice(["a", "b"], 300)).where(state != "open")
    known = pd.DataFrame({"state": state, "closed": closed, "cause": cause})
    frames = {"one": known, "other": pd.DataFrame({"y": rng.normal(size=300)})}
    completed = IndependentSynthesizer(random_state=0).fit(frames).complete(known)
    pd.testing.assert_frame_equal(completed[[*known]], known, check_dtype=False)


def test_a_known_part_of_a_combination_decides_the_rest(synth):
    rows = pd.DataFrame({"grade": ["bad", "mild", None], "score": [np.nan, np.nan, 2.0]})
    table = synth.complete(rows, random_state=0)
    assert table["score"].tolist() == [3, 1, 2]
    assert table["grade"].tolist() == ["bad", "mild", "fair"]
    assert min(table.attrs["effective_sample_size"]) > 10  # hardly any draw was wasted


@pytest.mark.parametrize("kind", ["synth", "independent", "mixture"])
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"net": [3], "tax": [4], "total": [9]}, RuleError, "breaks the rule 'total == net"),
        ({"grade": ["bad"], "score": [1]}, RuleError, r"1 records breaks .*in rows \[0\]"),
        ({"mail": ["a@b.com"]}, ConditionError, "column 'mail': it comes out as fresh values"),
        ({"nobody": [1]}, ConditionError, "no party has columns"),
        ({"came": ["2024-02-01"], "left": ["soon"]}, ColumnKindError, "column 'left'|'came'"),
        ({"grade": ["mild"], "net": [5]}, RuleError, "breaks the rule 'grade == "),
    ],
)
def test_what_cannot_be_is_refused_by_name(kind, given, error, message, request):
    with pytest.raises(error, match=message):
        request.getfixturevalue(kind).complete(pd.DataFrame(given), random_state=0)


def test_conditions_that_rules_forbid_say_so(synth, independent, monkeypatch):
    monkeypatch.setattr("vflsynth.models.conditions._MOST_DRAWS", 3000)
    monkeypatch.setattr("vflsynth.models.conditions._MOST_PER_RECORD", 1)
    for model in (synth, independent):
        with pytest.raises(ConditionError, match=r"0 of .*keep all rules"):
            model.sample(5, conditions={"grade": "mild", "net": Range(high=19)}, random_state=0)
        with pytest.raises(ConditionError, match="column 'mail': it comes out as fresh values"):
            model.sample(5, conditions={"mail": "a@b.com"})
    with pytest.raises(ParameterError, match="no probability that could be computed"):
        synth.log_prob(PARTLY[["net"]])


def test_the_command_line_takes_conditions_on_recoded_columns(independent, tmp_path):
    independent.save(tmp_path / "model")
    out = tmp_path / "s.parquet"
    command = ["sample", str(tmp_path / "model"), "-n", "20", "-o", str(out)]
    asked = ["--where", "grade=bad", "--where", "score=3", "--where"]
    assert main([*command, *asked, "left=2024-03-01..2024-09-01"]) == 0
    table = pd.read_parquet(out)
    assert (table["grade"] == "bad").all()
    assert table["left"].between("2024-03-01", "2024-09-01").all()
    assert main([*command, *asked, "left=2024-03-01.."]) == 0
    assert (found := pd.read_parquet(out)["left"]).min() >= pd.Timestamp("2024-03-01")
    assert found.nunique() > 5  # an open range is no single day
