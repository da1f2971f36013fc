"""Rules are held against tables before anything is learned: units, and rows that keep them."""

import numpy as np
import pandas as pd
import pytest

from vflsynth import Contract, IndependentSynthesizer, PartyContract
from vflsynth.cli import main
from vflsynth.contract import propose
from vflsynth.contract.checking import check_units, hold
from vflsynth.contract.proposing import proposal_text
from vflsynth.contract.rules import Check, FixedCombinations
from vflsynth.exceptions import ContractError


@pytest.fixture
def stays():
    """Hospital stays, of which the last has no discharge yet."""
    rng = np.random.default_rng(0)
    length = rng.integers(1, 30, 200)
    admission = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 200), "D")
    discharge = pd.Series(admission + pd.to_timedelta(length, "D"))
    discharge.iloc[-1] = pd.NaT
    return pd.DataFrame(
        {
            "age": rng.integers(0, 100, 200),
            "admission": admission,
            "discharge": discharge,
            "length": length,
            "ward": np.where(length > 10, "long", "short"),
            "open": length > 20,
        }
    )


def fitted(frame, *rules):
    other = pd.DataFrame({"cost": np.arange(len(frame), dtype=float)})
    contract = Contract({"hospital": PartyContract(rules=list(rules))})
    synth = IndependentSynthesizer(contract=contract, random_state=0)
    return synth.fit({"hospital": frame, "insurer": other})


def test_days_of_a_column_are_computed(stays):
    """What a newcomer writes first holds, and holds in what is drawn."""
    rule = "discharge == admission + days(length)"
    drawn = fitted(stays.iloc[:-1], rule).sample(100)
    gone = drawn["discharge"] - drawn["admission"]
    assert (gone == pd.to_timedelta(drawn["length"], "D")).all()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("age < 'x'", "age is a number, and 'x' is text"),
        ("length > discharge - admission", "length is a number, and discharge - admission is a du"),
        ("discharge == admission + length", "admission is a point in time, and length is a number"),
        ("age > 200", "none of 200 rows keeps the rule 'age > 200'"),
    ],
)
def test_what_can_never_hold_is_refused_before_training(stays, monkeypatch, rule, said):
    monkeypatch.setattr("vflsynth.methods.marginals.method.MarginalParty.build", None)
    with pytest.raises(ContractError) as error:
        fitted(stays, rule)
    assert said in str(error.value)
    assert "Fix: " in str(error.value)


def test_what_some_rows_break_says_how_many(stays, caplog):
    n = int((stays["age"] >= 90).sum())
    fitted(stays, "age < 90")
    assert f"party 'hospital': age < 90: {n} of 200 rows break it" in caplog.text


def test_rows_without_a_value_do_not_count(stays):
    """A rule that rows keep by having no value is kept by none where all others break it."""
    (held,) = hold([Check("discharge >= admission")], stays, "party")
    assert (held.n_rows, held.n_broken) == (199, 0)
    with pytest.raises(ContractError, match="none of 199 rows"):
        hold([Check("discharge < admission")], stays, "party")
    (held,) = hold([Check("ward == 'long' => missing(discharge)")], stays, "party")
    assert held.n_broken == (stays["ward"] == "long").sum() - stays["discharge"].isna().sum() * (
        stays["ward"].iloc[-1] == "long"
    )
    (held,) = hold([FixedCombinations(("ward", "open"), [("long", True)])], stays, "party")
    assert (held.n_rows, held.n_broken) == (200, (~stays["open"]).sum())


def test_rules_of_several_parties_have_units_too(stays):
    contract = Contract(rules=["cost < discharge"])
    other = pd.DataFrame({"cost": np.arange(200.0)})
    with pytest.raises(ContractError, match="cost is a number, and discharge is a point in time"):
        IndependentSynthesizer(contract=contract).fit({"hospital": stays, "insurer": other})


@pytest.mark.parametrize(
    "rule",
    [
        "admission >= '2023-01-01' and admission <= date('2025-01-01')",
        "year(admission) == 2024",
        "discharge - admission <= days(40)",
        "(discharge - admission) / days(1) == length",
        "max(length, 2 * age) >= round(length)",
        "open => ward == 'long'",
        "not open or ward in ['long', 'short']",
        "open == 1",
        "abs(discharge - admission) * 2 > days(1)",
        "missing(discharge) => age >= 0",
        "1 < length <= 40 / 1 => age >= 0",
        "length <= case(ward, 'long', length, 'none', 2 * age, 10)",
    ],
)
def test_what_means_something_passes(stays, rule):
    check_units([Check(rule)], dict(stays.dtypes))
    hold([Check(rule)], stays, "party")


@pytest.mark.parametrize(
    "rule",
    [
        "admission + discharge > admission",
        "ward > 3",
        "days(ward) > discharge - admission",
        "year(length) == 2024",
        "ward and open",
        "ward == admission",
        "min(length, ward) > 0",
        "age in [1, 'x']",
        "length <= case(ward, 'long', 'x', 10)",
        "length <= case(ward, 3, 30, 10)",
        "length <= case(ward, 'long', 30)",
        "(discharge - admission) * (discharge - admission) > days(1)",
    ],
)
def test_what_means_nothing_is_refused(stays, rule):
    with pytest.raises(ContractError, match="cannot be computed"):
        check_units([Check(rule)], dict(stays.dtypes))


def test_texts_with_an_order_of_their_own_are_not_compared_by_letters():
    grades = pd.CategoricalDtype(["low", "medium", "high"], ordered=True)
    check_units([Check("grade == 'low' or size < 3")], {"grade": grades, "size": np.dtype("int64")})
    check_units([Check("word < 'm'")], {"word": pd.StringDtype()})
    with pytest.raises(ContractError, match="order a rule does not know"):
        check_units([Check("'medium' <= grade")], {"grade": grades})


def test_what_others_know_of_a_person_is_proposed_as_quasi_identifier(stays):
    contract, reasons = propose({"hospital": stays.assign(postal_code="A1", language="de")})
    roles = {label: c.role for label, c in contract.of("hospital").columns.items()}
    assert roles["age"] == roles["postal_code"] == "quasi-identifier"
    assert roles["length"] is roles["language"] is None  # 'language' only ends like 'age'
    assert "column 'age': others may know it of a person" in reasons["hospital"]


def test_inspect_counts_the_rows_that_keep_a_contract(stays, tmp_path, capsys):
    stays.to_parquet(tmp_path / "hospital.parquet")
    (tmp_path / "good.toml").write_text('[parties.hospital]\nrules = ["age < 50"]\n')
    (tmp_path / "bad.toml").write_text("[parties.hospital]\nrules = [\"age < 'x'\"]\n")
    command = ["inspect", str(tmp_path / "hospital.parquet"), "--contract"]
    assert main([*command, str(tmp_path / "good.toml")]) == 0
    n = (stays["age"] >= 50).sum()
    assert f"hospital: age < 50: {n} of 200 rows break it" in capsys.readouterr().out
    assert main([*command, str(tmp_path / "bad.toml")]) == 3


def test_a_party_of_which_nothing_is_to_be_said_has_no_heading():
    text = proposal_text({"lab": ["column 'age': others may know it of a person"], "clinic": []})
    assert text.endswith("\nparty 'lab'\n  column 'age': others may know it of a person")
