"""Contracts: agreement, TOML, rules, what is proposed, and what comes out."""

import html
import re
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from vflsynth import ColumnContract, Contract, IndependentSynthesizer, PartyContract
from vflsynth.cli import main
from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.contract import (
    Check,
    Determines,
    FixedCombinations,
    Rule,
    contract_from,
    contract_to_toml,
    discover,
    propose,
    write_contract,
)
from vflsynth.contract.preparing import Preparation
from vflsynth.contract.recoding import Surrogate
from vflsynth.evaluation import rule_cost, rule_violations
from vflsynth.exceptions import (
    ContractError,
    IdentifierError,
    ParameterError,
    PublishingWarning,
    RuleError,
)
from vflsynth.models.satisfying import enforce

N = 300


def family(seed: int = 0) -> dict[str, pd.DataFrame]:
    """Two parties with everything that rules are about; the second one knows who is married."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 4, N)
    low, start = rng.integers(0, 50, N), rng.integers(0, 400, N)
    husband = rng.random(N) < 0.4
    net, tax = rng.normal(size=N).round(2), rng.exponential(size=N).round(2)
    one = pd.DataFrame(
        {
            "id": np.arange(N),
            "education": np.array(["none", "school", "college", "master"])[level],
            "number": level * 2 + 1,
            "low": low,
            "middle": low + rng.integers(0, 9, N),
            "start": pd.Timestamp("2020-01-01") + pd.to_timedelta(start, "D"),
            "sex": np.where(husband, "Male", rng.choice(["Male", "Female"], N)),
            "mail": [f"user{i}@mail{i % 7}.com" for i in range(N)],
        }
    )
    one["high"] = one["middle"] + rng.integers(0, 20, N)
    one["end"] = one["start"] + pd.to_timedelta(rng.integers(0, 90, N), "D")
    for k in range(3):
        one[f"is_{k}"] = (level.clip(max=2) == k).astype(int)
    other = pd.DataFrame(
        {
            "id": np.arange(N),
            "relationship": np.where(husband, "Husband", "other"),
            "net": net,
            "tax": tax,
            "total": (net + tax).round(2),
            "zip": rng.integers(0, 12, N) + 10115,
        }
    )
    other["town"] = np.array(["Mitte", "Wedding", "Pankow"])[other["zip"] % 3]
    return {"one": one, "other": other}


FLAGS = ("is_0", "is_1", "is_2")
CONTRACT = Contract(
    {
        "one": PartyContract(
            {
                "mail": ColumnContract(role="identifier", replacement="surrogate"),
                "number": ColumnContract(kind="categorical"),
            },
            [
                "low <= middle",
                "middle <= high",
                "start <= end",
                FixedCombinations(("education", "number")),
                FixedCombinations(FLAGS),
            ],
        ),
        "other": PartyContract(
            {"zip": ColumnContract(kind="categorical")},
            ["total == net + tax", Determines(("zip",), "town")],
        ),
    },
    ['relationship == "Husband" => sex == "Male"', "net <= high + 5"],
)


@pytest.fixture(scope="module")
def fitted() -> IndependentSynthesizer:
    return IndependentSynthesizer(contract=CONTRACT, random_state=0).fit(family(), on="id")


def slow_violations(table: pd.DataFrame, frames: dict[str, pd.DataFrame]) -> int:
    """The rules of `CONTRACT` as somebody else would write them."""
    one, other = frames["one"], frames["other"]
    numbers = set(zip(one["education"], one["number"]))
    towns = dict(zip(other["zip"], other["town"]))
    broken = 0
    for row in table.to_dict("records"):
        kept = (
            row["low"] <= row["middle"] <= row["high"],
            row["start"] <= row["end"],
            (row["education"], row["number"]) in numbers,
            sum(row[flag] for flag in FLAGS) == 1,
            abs(row["total"] - row["net"] - row["tax"]) < 1e-9,
            towns[row["zip"]] == row["town"],
            row["relationship"] != "Husband" or row["sex"] == "Male",
            row["net"] <= row["high"] + 5,
        )
        broken += not all(kept)
    return broken


def test_no_sampled_row_breaks_a_rule(fitted):
    table = fitted.sample(500)
    assert len(table) == 500
    assert slow_violations(table, family()) == 0
    without = IndependentSynthesizer(
        random_state=0,
        structure="ignore",
        contract=Contract({"one": PartyContract({"mail": ColumnContract(role="identifier")})}),
    ).fit(family(), on="id")
    assert slow_violations(without.sample(500), family()) > 450  # the check can fail
    cost = fitted.rule_cost()
    assert cost.n_drawn > cost.n_accepted >= 500
    assert 0.5 < cost.acceptance < 0.95
    kept = cost.kept
    assert kept['relationship == "Husband" => sex == "Male"'] < 1
    for rule in ("start <= end", "total == net + tax", "zip determines town"):
        assert kept[rule] == 1
    assert (
        float(rule_violations(family()["one"].merge(family()["other"]), table, fitted.rules())) == 0
    )


@pytest.mark.slow
def test_the_report_shows_rules_their_cost_and_roles(fitted, tmp_path, cli):
    files = []
    for name, frame in family().items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
        files.append(f"{name}={tmp_path / name}.parquet")
    fitted.save(tmp_path / "model")
    fitted.sample(N, random_state=0).to_parquet(tmp_path / "synthetic.parquet")
    strict = replace(CONTRACT, rules=[*CONTRACT.rules, "high < 20"])
    write_contract(strict, tmp_path / "contract.toml")
    command = ["evaluate", "--real", *files, "--on", "id", "--synthetic"]
    command += [str(tmp_path / "synthetic.parquet"), "--model", str(tmp_path / "model")]
    page = tmp_path / "report.html"
    said = cli([*command, "--contract", str(tmp_path / "contract.toml"), "-o", str(page)]).out
    assert "of the rows break 'high < 20'" in said
    assert "What rules cost" in said
    text = html.unescape(page.read_text(encoding="utf-8")).replace("<wbr>", "")
    assert "What the contract says of columns" in text
    cells = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr>.*?</tr>", text, re.S)]
    assert any(row.startswith("||mail||one||identifier||") for row in cells)
    for rule in fitted.rules():
        assert rule.title in text
    parts = rule_cost(
        pd.concat([t.drop(columns="id") for t in family().values()], axis=1),
        fitted.sample_before_rules(500),
        fitted.rules(),
    ).parts.set_index("rule")
    assert parts.loc["total == net + tax", "changed"] == 0  # computed from the others
    assert parts.loc["low <= middle", "broken"] == 0  # a difference is modelled
    assert 0 < parts.loc['relationship == "Husband" => sex == "Male"', "left_out"] < 0.5


def test_sampled_tables_have_the_columns_and_types_of_the_frames(fitted):
    frames, parts = family(), fitted.sample(20, by_party=True, keys=True)
    for name, part in parts.items():
        assert part.columns.tolist() == frames[name].columns.tolist()
        assert (part.dtypes == frames[name].dtypes).all()
    assert parts["one"]["id"].tolist() == parts["other"]["id"].tolist()


def test_samples_repeat_and_survive_saving(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = IndependentSynthesizer.load(tmp_path / "model")
    pd.testing.assert_frame_equal(
        again.sample(40, random_state=3), fitted.sample(40, random_state=3)
    )
    assert again.contract == CONTRACT
    assert again.rules() == fitted.rules()


def test_halves_refuse_rules_that_they_cannot_keep_alone(fitted):
    with pytest.raises(RuleError, match=r"cannot draw its rows alone.*Husband"):
        fitted.parties_["one"].sample(3)
    certain = Contract(
        {
            "one": PartyContract(
                {"mail": ColumnContract(role="identifier", replacement="pseudonym")},
                ["low <= middle", FixedCombinations(("education", "number"))],
            ),
            "other": PartyContract({}, ["total == net + tax", Determines(("zip",), "town")]),
        }
    )
    synth = IndependentSynthesizer(contract=certain, random_state=0).fit(family(), on="id")
    apart = synth.parties_["one"].sample(50, 4)
    pd.testing.assert_frame_equal(apart, synth.sample(50, by_party=True, random_state=4)["one"])
    assert (apart["low"] <= apart["middle"]).all()


@pytest.mark.parametrize(("rule", "kind"), [("y == x * 1.5", "int64"), ("y == x + x", "float64")])
def test_whole_numbers_that_are_computed_by_halves_are_not_certain(rule, kind):
    frame = pd.DataFrame({"x": [2, 4] * 50, "y": [3, 6] * 50}).astype({"x": kind})
    made = Preparation.of(frame, PartyContract(), [Check(rule)], 5)
    assert made.open_rules == (rule,)
    assert made.selects


# -- what comes out --------------------------------------------------------------------------------


def test_surrogates_have_the_shape_of_values_and_are_none_of_them(fitted):
    mails = fitted.sample(200)["mail"]
    assert mails.is_unique
    assert mails.str.fullmatch(r"[a-z]+\d*@example\.org").all()
    assert not set(mails) & set(family()["one"]["mail"])


def test_surrogates_of_whole_numbers_have_all_their_digits():
    numbers = pd.Series([123, 45678] * 30, name="number")
    drawn = Surrogate.fit(numbers, 5).draw(400, np.random.default_rng(0), b"")
    digits = drawn.astype(str)
    assert drawn.is_unique
    assert drawn.dtype == numbers.dtype
    assert digits.str.len().value_counts(normalize=True).sub(0.5).abs().max() < 0.1
    for place in range(3):
        found = digits.str[place].value_counts(normalize=True)
        assert "".join(sorted(found.index)) == "0123456789"[place == 0 :]
        assert abs(found - 1.0 / len(found)).max() < 0.08


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "UInt64"])
def test_surrogates_of_whole_numbers_are_of_their_type(dtype):
    largest = np.iinfo(dtype.lower()).max
    numbers = pd.Series([largest, largest - 1], dtype=dtype)
    for least in (1, 5):
        drawn = Surrogate.fit(numbers, least).draw(300, np.random.default_rng(0), b"")
        assert drawn.dtype == numbers.dtype
        assert (drawn >= 0).all()
        assert (drawn.astype(str).str.len() == len(str(largest))).all() or least == 5


def test_pseudonyms_are_the_same_at_all_parties():
    said = {"key": ColumnContract(role="identifier", replacement="pseudonym")}
    frames = family()
    frames["one"]["key"] = frames["one"].pop("mail")
    frames["other"]["twin"] = frames["one"]["key"]
    contract = Contract({"one": PartyContract(said), "other": PartyContract({"twin": said["key"]})})
    table = IndependentSynthesizer(contract=contract).fit(frames, on="id").sample(30)
    assert (table["key"] == table["twin"]).all()
    assert table["key"].is_unique


def test_rare_categories_never_come_out_by_themselves():
    frames = family()
    frames["other"].loc[:2, "relationship"] = ["king", "queen", "king"]
    frames["other"].loc[3:4, "zip"] = 99999
    contract = Contract(
        {
            "one": PartyContract({"mail": ColumnContract(role="identifier")}),
            "other": PartyContract({"zip": ColumnContract(kind="categorical")}),
        }
    )
    synth = IndependentSynthesizer(contract=contract, random_state=0).fit(frames, on="id")
    table = synth.sample(3000)
    assert set(table["relationship"]) == {"Husband", "other"}
    assert 99999 not in set(table["zip"])
    half = str(synth.parties_["other"].transformer.to_dict())
    assert "king" not in half
    assert "99999" not in half


@pytest.mark.parametrize("dtype", ["object", "category", "ordered", "Int64", "bool"])
def test_forgotten_values_are_encoded_like_others(dtype):
    values: list[object] = ["a"] * 9 + ["b"] * 9 + ["c"]
    if dtype in ("Int64", "bool"):
        values = [1] * 9 + [0] * (9 if dtype == "Int64" else 1) + [3 if dtype == "Int64" else 1]
    column = pd.Series(values, name="x")
    ordered = pd.CategoricalDtype(["c", "b", "a", "d"], ordered=True)
    column = column.astype(ordered if dtype == "ordered" else dtype)
    table = TableTransformer({"x": "categorical"}, rare_records=2).fit(column.to_frame())
    decoded = table.inverse_transform(table.transform(column.to_frame()))["x"]
    assert values[-1] not in decoded.tolist() or dtype == "bool"
    if dtype == "ordered":
        assert decoded.dtype.categories.tolist() == ["b", "a"]
        assert decoded.tolist()[-1] == "b"  # the nearest


def test_extremes_are_means_unless_allowed():
    frames = family()
    frames["other"].loc[0, "net"] = 1234.5
    said = {"mail": ColumnContract(role="identifier")}
    for allowed in (False, True):
        columns = {"net": ColumnContract(extremes=allowed)}
        contract = Contract({"one": PartyContract(said), "other": PartyContract(columns)})
        synth = IndependentSynthesizer(contract=contract, random_state=0).fit(frames, on="id")
        assert (synth.sample(3000)["net"].max() > 1000) == allowed


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/Lima"])
def test_bounds_of_times_are_in_the_column_s_zone(zone):
    hours = pd.date_range("2020-01-01", periods=24, freq="h", tz="Europe/Berlin")
    first, last = (end.tz_localize(None) if zone is None else end for end in hours[[0, -1]])
    ends = [end if zone is None else end.tz_convert(zone) for end in (first, last)]
    frame = pd.DataFrame({"when": hours})
    Preparation.of(frame, PartyContract({"when": ColumnContract(bounds=ends)}), [], 5)
    later = [ends[0] + pd.Timedelta(hours=1), ends[1]]
    with pytest.raises(ContractError, match="'when': 1 records are beyond"):
        Preparation.of(frame, PartyContract({"when": ColumnContract(bounds=later)}), [], 5)


def test_decimals_round_what_comes_out(fitted):
    contract = Contract(
        {
            "one": PartyContract({"mail": ColumnContract(role="free text")}),
            "other": PartyContract({"net": ColumnContract(decimals=0)}),
        }
    )
    table = IndependentSynthesizer(contract=contract, random_state=0).fit(family(), "id").sample(50)
    assert (table["net"] % 1 == 0).all()
    assert "mail" not in table


@pytest.mark.parametrize("dtype", ["uint8", "int8", "UInt8", "Int64"])
def test_tens_stay_within_the_type_of_whole_numbers(dtype):
    numbers = pd.Series([127, 3, 116] * 30, dtype=dtype)
    numbers = numbers + 128 * (dtype.lower() == "uint8")
    frames = {"one": pd.DataFrame({"x": numbers}), "other": pd.DataFrame({"y": range(90)})}
    contract = Contract({"one": PartyContract({"x": ColumnContract(decimals=-1)})})
    drawn = IndependentSynthesizer(contract=contract, random_state=0).fit(frames).sample(200)["x"]
    assert drawn.dtype == numbers.dtype
    assert set(drawn) <= {0, 120, 130, 240, 250}


# -- agreement -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("contract", "message"),
    [
        (Contract({"lab": PartyContract()}), "party 'lab'"),
        (Contract({"one": PartyContract({"zip": ColumnContract()})}), "party 'other' has one"),
        (Contract({"one": PartyContract({}, ["low <= net"])}), "'net', which is not there"),
        (Contract({}, [FixedCombinations(("sex", "relationship"))]), "no party can see"),
        (Contract({}, ["low == net", "low == tax"]), "both compute column 'low'"),
        (Contract({}, ["low == net + 1", "net == low - 1"]), "from each other"),
        (
            Contract({"one": PartyContract({"low": ColumnContract(bounds=(0, 3))})}),
            "beyond its bounds",
        ),
        (
            Contract(
                {"one": PartyContract({"mail": ColumnContract(role="identifier")}, ['mail != "x"'])}
            ),
            "'mail', which is not modelled",
        ),
    ],
)
def test_what_does_not_fit_is_named(contract, message):
    with pytest.raises(ContractError, match=message):
        IndependentSynthesizer(contract=contract).fit(family(), on="id")


def test_parties_that_disagree_are_named():
    one = Contract({"one": PartyContract({}, ["low <= high"])}, ["a < b"])
    other = Contract({"other": PartyContract({"zip": ColumnContract(kind="integer")})}, ["a < b"])
    agreed = Contract.agreed({"one": one, "other": other})
    assert list(agreed.parties) == ["one", "other"]
    with pytest.raises(ContractError, match="'one' and 'other' disagree on rules"):
        Contract.agreed({"one": one, "other": Contract(rules=["a <= b"])})
    says = Contract({"other": PartyContract({"zip": ColumnContract(kind="ordered")})}, ["a < b"])
    with pytest.raises(ContractError, match="disagree on party 'other': its column 'zip'"):
        Contract.agreed({"one": says, "other": other})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Contract("contract.toml"), "read_contract reads a file"),
        (lambda: PartyContract(pd.DataFrame({"age": [41]})), "^got a DataFrame for a"),  # no cells
        (lambda: Contract({"lab": "x"}), "got a str for 'lab'. Fix: give a PartyContract"),
        (lambda: PartyContract({"age": {}}), "got a dict for 'age'. Fix: give a ColumnContract"),
        (lambda: ColumnContract(categories="uv"), "must be a list of values"),
    ],
)
def test_what_is_said_in_another_type_is_refused(make, said):
    with pytest.raises(ContractError, match=said):
        make()


def test_two_kinds_of_one_column_are_refused():
    contract = Contract({"other": PartyContract({"zip": ColumnContract(kind="categorical")})})
    synth = IndependentSynthesizer(contract=contract, column_kinds={"zip": "integer"})
    with pytest.raises(ContractError, match="say it once"):
        synth.fit(family(), on="id")
    with pytest.raises(ParameterError, match="None or a Contract"):
        IndependentSynthesizer(contract={"zip": 1}).fit(family(), on="id")


def test_toml_says_the_same():
    given = Contract(
        {
            "a b": PartyContract(
                {
                    "x": ColumnContract(
                        "integer", "sensitive", None, (0, 120), None, "Int64", 0, True, 7
                    ),
                    "odd 'label'": ColumnContract(categories=("no", 'a "quoted" one', "ä")),
                    "day": ColumnContract(bounds=("2020-01-01", "2021-01-01")),
                },
                ["x <= 5", FixedCombinations(("x", "y"), ((1, None), (2, "b")))],
            ),
            "c": PartyContract({}, [Determines(("z",), "t", ((("1",), "m"),))]),
        },
        ['x == 3 => t == "m"'],
        rare_records=3,
        readers={"evaluation": ("a b", 'the "press"'), "public": ()},
    )
    assert contract_from(contract_to_toml(given)) == given
    assert contract_from(contract_to_toml(CONTRACT)) == CONTRACT
    with pytest.raises(ContractError, match="has no form in TOML"):
        contract_to_toml(Contract(rules=[Even()]))


def test_days_and_blanks_of_toml_are_those_of_tables():
    text = """
        [[parties.one.combinations]]
        among = ["day", "size"]
        allowed = [[2020-01-01, 1.5], [2020-01-02, nan], [{}, 2.5]]
        [[parties.one.determines]]
        by = ["day"]
        column = "size"
        values = [[[2020-01-01], 1.5]]
    """
    days = pd.to_datetime(["2020-01-01", "2020-01-02", None, "2020-01-01"])
    table = pd.DataFrame({"day": days, "size": [1.5, np.nan, 2.5, 2.5]})
    for rule in contract_from(text).of("one").rules:
        assert rule.keeps(table).tolist() == [True, True, True, False]
    bounds = ColumnContract(bounds=(timedelta(1), timedelta(3)))
    said = contract_to_toml(Contract({"one": PartyContract({"stay": bounds})}))
    assert contract_from(said).public_schema().bounds == {
        "stay": ("1 days 00:00:00", "3 days 00:00:00")
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rare = 3", "unknown 'rare'"),
        (
            "[parties.a.columns.x]\nrole = 'king'",
            r"c.toml: parties.a.columns.x.role must be 'ordinary' or .*got 'king'",
        ),
        ("[parties.a.columns.x]\nreplacement = 'drop'", "not modelled"),
        ("rules = ['a.b < 3']", "not allowed"),
        ("rules = 'a < 3'", "c.toml: rules must be a list, got 'a < 3'"),
        ("[[combinations]]\namong = ['a', 'b']\nalowed = []", "item 1: .*mean 'allowed'"),
        (
            "rare_records = 1.5\n[release]\nutility = -1\n",
            r"rare_records must(.|\n)*release.utility",
        ),
        ("parties = 3", "must be a table"),
        ("x = ", "no TOML"),
        ("[[combinations]]\namong = ['a']", "two or more"),
        ("[readers]\nweekly = ['a']", "readers of 'weekly', which is no report"),
        ("[readers]\naudit = 'a'", "readers.audit must be a list, got 'a'"),
    ],
)
def test_mistakes_in_toml_are_named(text, message):
    with pytest.raises(ContractError, match=message):
        contract_from(text, "c.toml")


def test_commands_write_reports_for_the_contract_s_readers_only(tmp_path, capsys):
    frames = family()
    contract = Contract(
        {"one": PartyContract({"mail": ColumnContract(role="identifier")})},
        readers={"evaluation": ["one"], "audit": [], "internal": ["one"]},
    )
    synth = IndependentSynthesizer(contract=contract, random_state=0).fit(frames, on="id")
    synth.save(tmp_path / "model")
    synth.sample(50).to_parquet(tmp_path / "s.parquet")
    for name, frame in frames.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    model, table = str(tmp_path / "model"), str(tmp_path / "s.parquet")
    real = ["--real", *(f"{name}={tmp_path / name}.parquet" for name in frames), "--on", "id"]
    judged = [*real, "--synthetic", table, "-o", str(tmp_path / "out.html")]
    for command, report in (
        (["evaluate", "--model", model, *judged], "evaluation"),
        (["release", model, *judged], "internal"),
        (["audit", model, *real], "audit"),
    ):
        for reader in ([], ["--reader", "two"]):
            assert main([*command, *reader]) != 0
            assert f"see the report {report!r}" in capsys.readouterr().err
    plain = ["evaluate", "--real", *real[1:], "--synthetic", table, "--reader", "one"]
    assert main(plain) == 2
    assert "looked up in a contract, and there is none" in capsys.readouterr().err
    assert not (tmp_path / "out.html").exists()


# -- rules -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Even(Rule):
    """A rule that nobody registered."""

    title = "even"
    columns = ("low",)

    def keeps(self, table):
        return (table["low"] % 2 == 0).to_numpy()


def test_rules_of_ones_own_hold_and_are_saved_once_registered(tmp_path):
    said = {"mail": ColumnContract(role="identifier")}
    synth = IndependentSynthesizer(
        contract=Contract({"one": PartyContract(said, [Even()])}), random_state=0
    ).fit(family(), on="id")
    assert (synth.sample(100)["low"] % 2 == 0).all()
    with pytest.raises(ParameterError, match="cannot be saved"):
        synth.save(tmp_path / "model")


def test_a_rule_that_hardly_any_row_keeps_is_named():
    rng = np.random.default_rng(0)

    def draw(n, secret):
        return {"a": pd.DataFrame({"x": rng.random(n), "y": rng.random(n)})}

    with pytest.raises(RuleError, match=r"most break 'x > 0.9999'"):
        enforce(draw, 50, b"", [Check("y > 0.1"), Check("x > 0.9999")])
    tables, cost = enforce(draw, 70, b"", [Check("x > 0.9")])
    assert len(tables["a"]) == 70
    assert (tables["a"]["x"] > 0.9).all()
    assert cost.acceptance == pytest.approx(0.1, abs=0.05)


def test_nothing_is_learned_of_few_records():
    table = pd.DataFrame({"a": [1] * 9 + [2] * 2, "b": ["x"] * 9 + ["y"] * 2})
    assert FixedCombinations(("a", "b")).learned(table, 5).combinations == ((1, "x"),)
    assert Determines(("a",), "b").learned(table, 5).values == (((1,), "x"),)
    with pytest.raises(ContractError, match="held by 50 records"):
        FixedCombinations(("a", "b")).learned(table, 50)


def test_under_privacy_rules_say_their_values():
    with pytest.raises(ContractError, match="state its combinations"):
        CONTRACT.check_private()
    schema = Contract(
        {"one": PartyContract({"low": ColumnContract(bounds=(0, 9), dtype="Int64")})}
    ).public_schema()
    assert schema == PublicSchema({"low": (0, 9)}, {}, {"low": "Int64"})


# -- proposals -------------------------------------------------------------------------------------


def test_rules_of_a_table_are_proposed_and_chance_is_not():
    frames = family()
    titles = {p.rule.title for p in discover(frames["one"].drop(columns=["id", "mail"]))}
    assert titles == {
        "low <= middle",
        "middle <= high",
        "start <= end",
        "fixed combinations of is_0, is_1, is_2",
        "fixed combinations of education, number",
        *(f"{by} determines is_{k}" for by in ("education", "number") for k in range(3)),
    }
    found = {p.rule.title for p in discover(frames["other"].drop(columns="id"))}
    assert {"total == net + tax", "zip determines town"} <= found
    rng = np.random.default_rng(1)
    noise = pd.DataFrame(rng.integers(0, 9, (400, 6)), columns=list("abcdef"))
    assert discover(noise) == []


def test_a_proposal_can_be_fitted_and_holds_no_value():
    frames = family()
    frames["one"]["note"] = [f"the patient number {i} came in again" for i in range(N)]
    frames["one"]["phone"] = [f"+49 30 {i:07d}" for i in range(N)]
    frames["one"]["running"] = np.arange(N)[::-1]
    contract, reasons = propose(frames, "id")
    own = contract.parties["one"].columns
    assert own["mail"].role == own["phone"].role == own["running"].role == "identifier"
    assert own["note"].role == "free text"
    assert contract.parties["other"].columns["zip"].kind == "categorical"
    text = contract_to_toml(contract) + str(reasons)
    assert "user1@" not in text
    assert "Mitte" not in text
    synth = IndependentSynthesizer(contract=contract, random_state=0).fit(frames, on="id")
    assert len(synth.sample(30)) == 30


def test_codes_are_proposed_as_labels_though_a_gap_makes_them_floats():
    """Of numbers, a model would draw postcodes that are nobody's."""
    rng = np.random.default_rng(0)
    some, many = rng.choice(90, 60, replace=False) * 100 + 1000, rng.permutation(9000)[:300]
    frame = pd.DataFrame(
        {
            "postcode": rng.choice(some, 3000),
            "zipcode_home": np.where(rng.random(3000) < 0.1, np.nan, rng.choice(many, 3000)),
            "visits": np.where(rng.random(3000) < 0.1, np.nan, rng.poisson(9, 3000)),
            "id_of_mail": rng.integers(0, 2000, 3000),
        }
    )
    contract, _ = propose({"lab": frame})
    kinds = {name: column.kind for name, column in contract.parties["lab"].columns.items()}
    assert kinds == {
        "postcode": "categorical",
        "zipcode_home": "categorical",
        "visits": "continuous",
        "id_of_mail": "integer",
    }
    table = IndependentSynthesizer(contract=contract, random_state=0).fit({"lab": frame}).sample(99)
    assert set(table["postcode"]) <= set(some)
    assert set(table["zipcode_home"].dropna()) <= set(many)


# -- defaults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([f"user{i}@mail.com" for i in range(N)], "e-mail"),
        ([f"+1 555 010 {i:04d}" for i in range(N)], "telephone"),
        ([f"{i:03d}-22-{i:04d}" for i in range(N)], "social-security"),
        ([f"one of many words is {i} here" for i in range(N)], "free text"),
        ((np.random.default_rng(0).permutation(N) * 299_999 + 12_345_678), "numbers of 8 digits"),
    ],
)
def test_identifiers_are_refused_with_roles_and_without_values(values, what):
    frames = family()
    frames["one"]["mail"] = values
    with pytest.raises(IdentifierError, match=what) as caught:
        IndependentSynthesizer().fit(frames, on="id")
    assert "role 'identifier'" in str(caught.value)
    assert str(values[7]) not in str(caught.value)
    allowed = {"one": PartyContract({"mail": ColumnContract(role="quasi-identifier")})}
    if what == "numbers of 8 digits":
        IndependentSynthesizer(contract=Contract(allowed)).fit(frames, on="id")


def test_ordinary_columns_are_not_mistaken():
    rng = np.random.default_rng(0)
    ordinary = pd.DataFrame(
        {
            "day": [f"2020-01-{i % 28 + 1:02d}" for i in range(N)],
            "amount": (rng.lognormal(12, 2, N)).astype(int),
            "weight": rng.integers(10_000, 1_500_000, N),
            "name": rng.choice(["red", "green"], N),
        }
    )
    IndependentSynthesizer().fit({"a": ordinary.assign(id=range(N))}, on="id")


def test_matching_by_position_few_matches_and_index_columns_warn():
    frames = {n: f.drop(columns=["id", "mail"], errors="ignore") for n, f in family().items()}
    with pytest.warns(PublishingWarning, match="by their position"):
        IndependentSynthesizer().fit(frames)
    frames["one"].insert(0, "Unnamed: 0", range(N))
    frames = {n: f.set_axis([f"k{i}" for i in range(N)]) for n, f in frames.items()}
    with pytest.warns(PublishingWarning, match="'Unnamed: 0' looks like the row number"):
        IndependentSynthesizer().fit(frames)
    frames["one"] = frames["one"].drop(columns="Unnamed: 0").iloc[:150]
    with pytest.warns(PublishingWarning, match=r"two thirds.*'other' 50%"):
        IndependentSynthesizer().fit(frames)


@pytest.mark.parametrize("ordered", [False, True])
def test_no_record_of_a_private_table_says_which_categories_are_published(ordered):
    """Neither one that has a category of no combination, nor one that lacks a stated one."""
    rule = FixedCombinations(("area", "town"), (("x", "p"), ("w", "p"), (None, "q")))

    def made(areas, categories):
        area = pd.Categorical(areas, categories, ordered=ordered)
        frame = pd.DataFrame({"area": area, "town": ["p", "p", "q"]})
        return Preparation.of(frame, PartyContract(), [rule], 5, private=True)

    everything = ["w", "x", "z"]
    ours = [made(areas, everything) for areas in (["x", "x", None], ["x", "z", None])]
    assert ours[0] == ours[1]
    assert list(ours[0].composites[0].dtypes[0].categories) == ["w", "x"]
    if not ordered:  # these may be those that the records have
        assert made(["x", "x", None], ["x"]) == ours[0]
