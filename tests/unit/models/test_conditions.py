"""Records under conditions: by throwing draws away, by weighing them, and of any sampler."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.distances import total_variation
from tests.later import later
from vflsynth import (
    AutoregressiveSynthesizer,
    DPLTSynthesizer,
    IndependentSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    Range,
)
from vflsynth.cli.main import main
from vflsynth.columns.evidence import _scores_of as scores_of
from vflsynth.columns.evidence import evidence_of_wanted
from vflsynth.columns.wanted import Domain, value_from_text, wanted_of
from vflsynth.exceptions import ColumnKindError, ConditionError, ParameterError, PartyDataError
from vflsynth.models.satisfying import draw_until
from vflsynth.privacy import PublicSchema


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    n = 900
    a, b = rng.choice(list("wxyz"), n, p=[0.55, 0.3, 0.145, 0.005]), rng.integers(0, 30, n)
    c = np.where(rng.random(n) < 0.7, a, rng.choice(list("wxyz"), n))
    d = 5.0 * (b + rng.integers(0, 3, n))
    d[rng.random(n) < 0.1] = np.nan
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(b, "D")
    return {
        "one": pd.DataFrame({"a": a, "b": b}),
        "two": pd.DataFrame({"c": c, "d": d, "when": when, "free": rng.normal(size=n)}),
    }


@pytest.fixture(scope="module")
def synth(frames, quick_contexts):
    return AutoregressiveSynthesizer(
        hidden=16, n_features=32, epochs=6, random_state=0, device="cpu", verbose=0
    ).fit(frames)


@pytest.fixture(scope="module")
def independent(frames):
    return IndependentSynthesizer(random_state=0).fit(frames)


SCHEMA = PublicSchema(
    bounds={
        "b": (0, 29),
        "d": (0, 160),
        "when": ("2024-01-01", "2024-02-29"),
        "free": (-4.0, 4.0),
        "gain": (0.0, 1e4),
    },
    categories={"a": list("wxyz"), "c": list("wxyz")},
    dtypes="given",
)


@pytest.fixture(scope="module")
def private_frames(frames):
    return {**frames, "two": frames["two"].astype({"d": "Int64"}).assign(gain=gains(900))}


@pytest.fixture(scope="module")
def mixture(private_frames, short_searches):
    privacy = PairwiseTables(epsilon=1e4, delta=1e-4, public_schema=SCHEMA)
    return MixtureSynthesizer(privacy=privacy, n_components=8, random_state=0).fit(private_frames)


@pytest.fixture(scope="module")
def tree(private_frames):
    privacy = LatentTree(epsilon=1e4, delta=1e-4, public_schema=SCHEMA)
    return DPLTSynthesizer(privacy=privacy, random_state=0).fit(private_frames)


def gains(n):
    rng = np.random.default_rng(1)
    return np.where(rng.random(n) < 0.7, 0.0, np.exp(rng.normal(5, 1, n)))


CONDITIONS = [
    ({"a": "x"}, lambda t: t["a"] == "x"),
    ({"c": ["y", "z"], "b": Range(5, 9)}, lambda t: t["c"].isin(["y", "z"]) & t["b"].between(5, 9)),
    ({"d": None}, lambda t: t["d"].isna()),
    ({"d": Range(high=40)}, lambda t: t["d"] <= 40),
    ({"d": [10.0, 75.0]}, lambda t: t["d"].isin([10.0, 75.0])),
    ({"when": Range("2024-01-20")}, lambda t: t["when"] >= "2024-01-20"),
    ({"free": Range(-0.5, 0)}, lambda t: t["free"].between(-0.5, 0)),
]


@pytest.mark.parametrize(
    ("kind", "conditions", "holds"),
    [(kind, *one) for kind in ("synth", "independent", "mixture", "tree") for one in CONDITIONS],
)
def test_all_records_satisfy_the_conditions(kind, conditions, holds, request):
    model = request.getfixturevalue(kind)
    table = model.sample(40, conditions=conditions, random_state=1)
    assert len(table) == 40
    assert holds(table).all()
    plain = model.sample(5, random_state=1)
    pd.testing.assert_series_equal(table.dtypes, plain.dtypes)
    assert 0 < table.attrs["acceptance_rate"] <= 1


SOON = [
    one if i in (0, 2) else pytest.param(*one, marks=pytest.mark.slow)
    for i, one in enumerate(CONDITIONS)
]
"""Labels and missing values; other sorts of conditions wait for `make slow`."""


def weigh_whatever_is_asked(monkeypatch):
    """Have even conditions that many rows satisfy be met by weighing."""
    monkeypatch.setattr("vflsynth.models.conditions._WORTH_REJECTING", 0)
    monkeypatch.setattr("vflsynth.models.satisfying._SMALLEST_BLOCK", 1)
    monkeypatch.setattr("vflsynth.models.satisfying._LARGEST_BLOCK", 1)
    monkeypatch.setattr("vflsynth.models.conditions._MOST_BEFORE", 1)


@pytest.mark.parametrize(("conditions", "holds"), SOON)
def test_weighing_agrees_with_throwing_away(synth, monkeypatch, conditions, holds):
    exact = synth.sample(3000, conditions=conditions, random_state=1)
    weigh_whatever_is_asked(monkeypatch)
    weighed = synth.sample(1500, conditions=conditions, random_state=2)
    assert holds(weighed).all()
    sizes = weighed.attrs["effective_sample_size"]
    assert len(sizes) == 1500
    assert 2 < np.mean(sizes) <= 64
    for column in "ac":
        assert total_variation(exact[column], weighed[column]) < 0.06, column
    assert abs(exact["b"].mean() - weighed["b"].mean()) < 1.0


@pytest.mark.parametrize("kind", ["mixture", *later("tree")])
@pytest.mark.parametrize(("conditions", "holds"), SOON)
def test_trees_draw_as_throwing_away_does(kind, conditions, holds, request, monkeypatch):
    model = request.getfixturevalue(kind)
    exact = model.sample(3000, conditions=conditions, random_state=1)
    assert len(exact) == 3000
    monkeypatch.setattr("vflsynth.models.conditions.are_exact", lambda halves: False)
    monkeypatch.setattr("vflsynth.models.conditions.has_likelihood", lambda halves: False)
    thrown = model.sample(3000, conditions=conditions, random_state=2)
    for column in "ac":
        assert total_variation(exact[column], thrown[column]) < 0.06, column
    for column in ("b", "d", "free"):
        one, other = (t[column].astype(float).dropna() for t in (exact, thrown))
        assert len(one) == len(other) == 0 or abs(one.mean() - other.mean()) < 0.1 * other.std()
    rates = [t.attrs["acceptance_rate"] for t in (exact, thrown)]
    assert rates[0] == pytest.approx(rates[1], rel=0.2)  # of 3000 draws or more


@pytest.mark.parametrize("kind", ["mixture", *later("tree")])
def test_whole_records_of_one_party_are_completed_by_trees(kind, request, private_frames):
    """All of them, those of records, too, with numbers where the model has none."""
    model = request.getfixturevalue(kind)
    drawn = model.sample(4000, random_state=1).dropna()
    lacking = drawn[private_frames["two"].columns]
    table = model.complete(lacking, random_state=0)
    pd.testing.assert_frame_equal(table[lacking.columns.tolist()], lacking)
    assert set(table.attrs["effective_sample_size"]) == {64.0}
    found, expected = (t["b"].corr(t["d"].astype(float)) for t in (table, drawn))
    assert found == pytest.approx(expected, abs=0.05)
    found, expected = ((t["a"] == t["c"]).mean() for t in (table, drawn))
    assert found == pytest.approx(expected, abs=0.05)
    records = private_frames["two"].dropna()
    table = model.complete(records, random_state=0)
    pd.testing.assert_frame_equal(table[records.columns.tolist()], records)
    beyond = pd.DataFrame({"d": [-1e6, 1e6], "gain": [-1.0, 9_999.0]})
    table = model.complete(beyond, random_state=0)
    pd.testing.assert_frame_equal(table[["d", "gain"]], beyond.astype({"d": "Int64"}))


def test_what_is_rare_is_weighed_and_comes_out(synth):
    table = synth.sample(20, conditions={"a": "z", "b": 3}, random_state=1)
    assert (table["a"] == "z").all()
    assert (table["b"] == 3).all()
    sizes = np.array(table.attrs["effective_sample_size"])
    assert (sizes >= 60.0).all()  # first in the order: equal weights, but for rounded ends


@pytest.mark.parametrize("kind", ["synth", "mixture"])
def test_evidence_contains_all_encoded_values_that_are_wanted(kind, request):
    for half in request.getfixturevalue(kind).parties_.values():
        table = half.transformer
        for conditions, _ in CONDITIONS:
            wanted = {
                label: wanted_of(half.domains[label], asked, column=label, party=half.name)
                for label, asked in conditions.items()
                if label in table.transformers_
            }
            if not wanted:
                continue
            found = evidence_of_wanted(table, wanted)
            rows = np.random.default_rng(0).normal(size=(4000, table.width_))
            decoded = table.inverse_transform(rows, generated=True)
            place = number = 0
            for i, (label, column) in enumerate(table.transformers_.items()):
                numeric = any(span.role == "value" for span in column.spans_)
                own = rows[:, place : place + column.width_]
                place += column.width_
                codes = own[:, int(numeric) :].argmax(1) if column.width_ > numeric else None
                inside = np.ones(len(rows), bool)
                if found.allowed[i] is not None:
                    inside &= found.allowed[i][0][codes]
                if numeric:
                    ordinary = np.ones(len(rows), bool) if codes is None else codes == 0
                    between = (own[:, 0] >= found.lower[number][0]) & (
                        own[:, 0] <= found.upper[number][0]
                    )
                    inside &= between | ~ordinary
                    number += 1
                if label in wanted:
                    satisfied = wanted[label].satisfied(decoded[label])
                    assert inside[satisfied].all(), label
                    assert not inside.all()


@pytest.mark.parametrize(
    ("conditions", "error", "message"),
    [
        ({"e": 1}, ConditionError, r"column 'e': no party has columns \['e'\]"),
        ({"wen": 1}, ConditionError, r"did you mean 'when'.* a key is the index, or"),
        ({"a": "unheard"}, ColumnKindError, "party 'one', column 'a': 1 of the categories"),
        ({"a": Range("w", "x")}, ColumnKindError, "list the values"),
        ({"b": "many"}, ColumnKindError, "column 'b': .*Fix: give a number"),
        ({"b": Range(9, 5)}, ColumnKindError, "swap its ends"),
        ({"b": Range()}, ColumnKindError, "open at both ends"),
        ({"b": []}, ColumnKindError, "no value was asked for"),
        ({"when": "some day"}, ColumnKindError, "give a time"),
        ({"when": Range(low=2020)}, ColumnKindError, "give a time"),
        ({"when": Range(low="01.02.2024")}, ColumnKindError, "such as '2020-01-31'"),
        ({"b": 1000}, ConditionError, "column 'b': 0 of .*0.00% of the model's records"),
        ({"a": None}, ConditionError, "column 'a': 0 of"),
        ("a = 1", ParameterError, "must map columns"),
        (pd.DataFrame({"a": ["w"]}), ParameterError, "has 1 rows"),
        (pd.DataFrame({"b": ["many"] * 3}), ColumnKindError, "'b': .*Fix: give values as sampled"),
    ],
)
def test_bad_conditions_name_the_column_and_the_fix(synth, conditions, error, message, monkeypatch):
    monkeypatch.setattr("vflsynth.models.conditions._MOST_DRAWS", 5000)
    with pytest.raises(error, match=message) as raised:
        synth.sample(3, conditions=conditions)
    assert "unheard" not in str(raised.value)


def test_a_sampler_without_likelihood_says_that_it_cannot(independent, monkeypatch):
    monkeypatch.setattr("vflsynth.models.conditions._MOST_DRAWS", 5000)
    with pytest.raises(ConditionError, match=r"column 'free': 0 of .*wider range"):
        independent.sample(3, conditions={"a": "w", "free": 0.123})


@pytest.mark.parametrize("kind", ["synth", "independent", "mixture", "tree"])
def test_partly_filled_rows_are_completed(kind, request):
    model = request.getfixturevalue(kind)
    rows = pd.DataFrame(
        {"a": ["w", None, "y"], "b": [3, 20, np.nan], "d": [np.nan, 100.0, 35.0]}, index=[7, 8, 9]
    )
    table = model.complete(rows, random_state=0)
    assert table.index.tolist() == [7, 8, 9]
    assert table.columns.tolist() == model.sample(1).columns.tolist()
    assert table[["a", "b", "d"]].notna().all(axis=None)
    assert table.loc[7, ["a", "b"]].tolist() == ["w", 3]
    assert table.loc[8, ["b", "d"]].tolist() == [20, 100.0]
    pd.testing.assert_series_equal(table.dtypes, model.sample(3).dtypes)
    again = model.sample(3, conditions=rows, by_party=True, random_state=1)
    assert again["one"]["a"].iloc[2] == "y"
    assert len(again["two"].attrs["effective_sample_size"]) == 3


@pytest.mark.parametrize("kind", ["synth", "mixture", "tree"])
def test_numbers_that_may_lie_anywhere_are_kept(kind, frames, request):
    rows = frames["two"][["free"]].head(200)
    table = request.getfixturevalue(kind).complete(rows, random_state=0)
    pd.testing.assert_frame_equal(table[["free"]], rows)
    assert min(table.attrs["effective_sample_size"]) > 1


def test_scores_of_own_kinds_and_of_others_agree(mixture, frames):
    """Kinds that users write say nothing about scores: these are found by decoding."""
    for half, values in zip(mixture.parties_.values(), ("b", "free")):
        column = half.transformer.transformers_[values]
        held = next(frame[values] for frame in frames.values() if values in frame).head(100)
        lower, upper, _ = column.score_cells(held)
        by_decoding = scores_of(column, held)
        np.testing.assert_allclose(by_decoding[0], lower, atol=2e-4)
        np.testing.assert_allclose(by_decoding[1], upper, atol=2e-4)


def test_hardly_any_choice_warns(synth):
    with pytest.warns(RuntimeWarning, match="2 of 2 records had fewer than 2 effective draws"):
        synth.complete(pd.DataFrame({"c": ["w", "x"]}), n_draws=1)


def test_records_that_one_party_lacks_follow_the_relations(synth, frames):
    lacking = frames["two"].head(400).dropna()
    table = synth.complete(lacking, random_state=0)
    pd.testing.assert_frame_equal(table[["c", "d", "when", "free"]], lacking)
    assert table["b"].corr(frames["one"]["b"].loc[lacking.index]) > 0.5


def test_a_number_beyond_all_draws_is_nearest_to_the_outermost(independent, frames):
    """The ends of a column never come out, and are in the table that somebody completes."""
    given = pd.concat(frames.values(), axis=1)[["a", "b"]].head(100)
    given.loc[1, "b"] = 4000
    found = independent.complete(given, random_state=0)
    assert found["b"].tolist() == given["b"].tolist()
    assert found[["a", "c"]].notna().all(axis=None)


def test_what_is_no_table_is_refused_to_complete(independent):
    with pytest.raises(PartyDataError, match="expected a pandas DataFrame, got"):
        independent.complete({"a": ["w"]})
    with pytest.raises(PartyDataError, match="column 'a': several columns have the same name"):
        independent.complete(pd.DataFrame([["w", "w"]], columns=["a", "a"]))


def test_what_is_given_has_probabilities_however_it_is_held(synth, frames):
    """Text, objects and sparse columns were refused, and what is no table ended in an attribute."""
    given = pd.concat(frames.values(), axis=1)[["b", "when", "a"]].head(4)
    expected = synth.log_prob(given)
    written = given.assign(b=given["b"].astype("str"), when=given["when"].dt.strftime("%Y-%m-%d"))
    sparse = given["b"].astype(pd.SparseDtype("int64", 0))
    for held in (written, given.astype(object), given.assign(b=sparse), pa.table(given)):
        pd.testing.assert_series_equal(synth.log_prob(held), expected)
    with pytest.raises(PartyDataError, match="expected a pandas DataFrame, got a dict"):
        synth.log_prob({"a": ["w"]})
    with pytest.raises(PartyDataError, match="column 'a': several columns have the same name"):
        synth.log_prob(pd.DataFrame([["w", "w"]], columns=["a", "a"]))


def test_a_range_of_whole_numbers_is_several(independent):
    assert set(independent.sample(20, conditions={"b": range(3, 6)})["b"]) <= {3, 4, 5}


@pytest.mark.parametrize("kind", ["synth", "independent", "mixture"])
@pytest.mark.parametrize(
    "given", [{"b": [2.5]}, {"b": ["two"]}, {"when": ["some day"]}, {"free": [np.inf]}]
)
def test_what_a_column_cannot_hold_is_refused(kind, given, request):
    with pytest.raises(PartyDataError, match=f"column '{next(iter(given))}'"):
        request.getfixturevalue(kind).complete(pd.DataFrame(given), random_state=0)


@pytest.mark.parametrize("kind", ["synth", "independent", "mixture", "tree"])
def test_a_label_that_no_record_has_is_named(kind, request):
    given = pd.DataFrame({"b": [3, 4, 5], "c": ["w", "q", None]})
    with pytest.raises(PartyDataError, match=r"party 'two', column 'c'.* 1 rows .*in rows 1"):
        request.getfixturevalue(kind).complete(given, random_state=0)


@pytest.mark.parametrize("model", [IndependentSynthesizer, AutoregressiveSynthesizer])
def test_a_category_that_the_model_lacks_is_not_taken_for_missing(model, frames):
    """pandas converts it to a missing one, and completing made another of it."""
    one = frames["one"].astype({"a": "category"})
    options = {"epochs": 1, "hidden": 8, "verbose": 0} if model is AutoregressiveSynthesizer else {}
    fitted = model(random_state=0, **options).fit({**frames, "one": one})
    given = pd.DataFrame({"a": pd.Categorical(["w", "q", None])})
    with pytest.raises(PartyDataError, match="party 'one', column 'a': its values are not all of"):
        fitted.complete(given)
    known = given.drop(index=1)
    assert fitted.complete(known)["a"].notna().all()


def test_completing_twice_continues_the_sequence_of_fit(frames):
    model = IndependentSynthesizer(random_state=0).fit(frames)
    again = IndependentSynthesizer(random_state=0).fit(frames)
    given = pd.DataFrame({"a": ["w"] * 20})
    first, second = model.complete(given), model.complete(given)
    pd.testing.assert_frame_equal(first, again.complete(given))
    assert not first.equals(second)


def test_draws_stop_when_there_are_enough_or_too_many():
    calls = []

    def draw(size, secret):
        calls.append((size, secret))
        return {"p": pd.DataFrame({"x": np.arange(size) % 10})}

    tables, n, n_drawn = draw_until(
        draw, lambda t: (t, t["p"]["x"].to_numpy() == 0), 300, b"s", most=100_000
    )
    assert len(tables["p"]) == 300
    assert n / n_drawn == pytest.approx(0.1, abs=0.01)
    assert len({secret for _, secret in calls}) == len(calls)
    found = draw_until(draw, lambda t: (t, t["p"]["x"].to_numpy() > 9), 3, b"s", most=5000)
    assert found[1:] == (0, 5000)
    found = draw_until(draw, lambda t: (t, t["p"]["x"].to_numpy() > 9), 99, b"s", most=10_000_000)
    assert 200_000 <= found[2] < 300_000
    assert len(draw_until(draw, lambda t: (t, t["p"]["x"] == 0), 0, b"s", most=10)[0]["p"]) == 0


@pytest.mark.parametrize("model", [IndependentSynthesizer, AutoregressiveSynthesizer])
@pytest.mark.parametrize(("held", "given"), [("bool", "int64"), ("int64", "bool")])
def test_zero_and_one_may_be_given_for_truth_values(model, frames, quick_contexts, held, given):
    flags = pd.DataFrame({"flag": [True, False, False] * 300})
    options = {}
    if model is AutoregressiveSynthesizer:
        options = {"epochs": 1, "hidden": 8, "n_features": 32, "verbose": 0}
    fitted = model(random_state=0, **options).fit(
        {"one": frames["one"][["a"]], "own": flags.astype(held)}
    )
    completed = fitted.complete(flags.astype(given).head(4))["flag"]
    assert completed.dtype == held
    assert completed.tolist() == [True, False, False, True]
    asked = {"bool": True, "int64": 1}[given]
    assert fitted.sample(5, conditions={"flag": asked})["flag"].all()


def test_other_numbers_are_no_truth_values(frames):
    flags = pd.DataFrame({"flag": [True, False, False] * 300})
    fitted = IndependentSynthesizer(random_state=0).fit({**frames, "own": flags})
    with pytest.raises(ColumnKindError, match="party 'own', column 'flag': its values are not all"):
        fitted.complete(pd.DataFrame({"flag": [1, 2]}))


@pytest.mark.parametrize("dtype", ["bool", "boolean"])
def test_truth_values_are_asked_for_as_csv_files_have_them(dtype):
    domain = Domain(dtype, (np.False_, np.True_))
    for text in ("true", "True"):
        assert value_from_text(domain, text) == np.True_
    with pytest.raises(ValueError, match="yes"):
        value_from_text(domain, "yes")


def test_the_command_line_has_conditions(synth, tmp_path, cli):
    synth.save(tmp_path / "model")
    asked = [
        "--where",
        "b=5..9",
        "--where",
        "c=x,w",
        "--where",
        "d=",
        "--where",
        "when=2024-01-06..",
    ]
    command = ["sample", str(tmp_path / "model"), "-n", "8", "-o", str(tmp_path / "s.parquet")]
    assert main([*command, *asked]) == 0
    table = pd.read_parquet(tmp_path / "s.parquet")
    assert len(table) == 8
    assert table["b"].between(5, 9).all()
    assert table["c"].isin(["x", "w"]).all()
    assert table["d"].isna().all()
    for wrong in ("nothing", "e=3", "b=many", "when=1.2.2024.."):
        assert "--where" in cli([*command, "--where", wrong], 2).err
    synth.parties_["one"].save(tmp_path / "half")
    said = cli(["sample", str(tmp_path / "half"), "-n", "8", "--where", "b=5"], 2).err
    assert "one party's half" in said
