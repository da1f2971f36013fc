"""Singling out, linkability, inference: copies are exposed, the population's statistics are not."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator

from tests.later import later
from vflsynth import GaussianCopulaSynthesizer
from vflsynth.audit import (
    Criteria,
    Disclosure,
    attribute_inference,
    audit_disclosure,
    audit_synthetic_data,
    linkability,
    singling_out,
)
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import (
    ColumnKindError,
    ColumnMismatchError,
    MissingExtraError,
    ParameterError,
    PartyDataError,
)

ANY = GaussianCopulaSynthesizer()
PARTIES = {"left": ["a", "b", "c"], "right": ["d", "label"]}


def population(n: int, seed: int) -> pd.DataFrame:
    """Correlated numbers with gaps, and a label that depends on them."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    table = pd.DataFrame(common + rng.normal(size=(n, 4)), columns=list("abcd"))
    table["label"] = np.where(common[:, 0] + 0.5 * rng.normal(size=n) > 0, "yes", "no")
    table.loc[rng.random(n) < 0.05, "b"] = np.nan
    return table


REAL, CONTROL, FRESH = (population(300, seed) for seed in (1, 2, 3))
TABLES = REAL, FRESH, CONTROL


def ask(question: str, synthetic: pd.DataFrame, **options) -> Disclosure:
    tables = REAL, synthetic, CONTROL
    if question == "singling out":
        return singling_out(*tables, **options)
    if question == "linkability":
        return linkability(*tables, PARTIES, **options)
    return attribute_inference(*tables, "label" if question == "label" else "a", **options)


@pytest.mark.parametrize("question", ["singling out", "linkability", "label", "number"])
def test_copies_are_exposed_and_fresh_records_are_not(question):
    """Fresh records predict the label well, for everybody alike: no leak of any record."""
    copied, fresh = ask(question, REAL), ask(question, FRESH)
    assert copied.excess.low > 0.05
    assert copied.p_value < 1e-3
    assert fresh.excess.low < 0.0 < fresh.excess.high
    assert fresh.p_value > 0.01


def test_truth_values_that_come_back_as_numbers_are_inferred():
    real, control = (t.assign(label=t["label"] == "yes") for t in (REAL, CONTROL))
    synthetic = real.assign(label=real["label"].astype(int))
    assert attribute_inference(real, synthetic, control, "label").attack.value == 1.0


@pytest.mark.parametrize("question", [singling_out, attribute_inference])
def test_whole_numbers_beyond_the_floats_are_no_easier_to_tell(question):
    sensitive = () if question is singling_out else ("id",)
    rng = np.random.default_rng(0)
    tables = [pd.DataFrame(rng.integers(0, 200, (300, 3)), columns=["id", *"ab"]) for _ in range(3)]
    large = [table.assign(id=table["id"] + 2**60) for table in tables]
    assert question(*large, *sensitive) == question(*tables, *sensitive)


def test_what_the_population_tells_is_in_the_baseline():
    found = ask("label", FRESH)
    assert found.attack.value > 0.65
    assert found.baseline >= found.attack.value - 0.1


def test_a_copier_of_one_party_s_columns_links_nothing():
    """The left halves are verbatim, the right ones are of other records."""
    right = FRESH[PARTIES["right"]]
    halves = pd.concat([REAL[PARTIES["left"]], right], axis=1)
    assert ask("linkability", halves).p_value > 0.01
    assert ask("linkability", REAL).attack.value == 1.0


def test_links_are_counted_as_by_hand():
    rng = np.random.default_rng(0)
    people, made, others = (
        pd.DataFrame(rng.normal(size=(25, 2)), columns=["x", "y"]) for _ in range(3)
    )
    linked = 0
    for x, y in people.to_numpy():
        near = [set(np.argsort(abs(made[c].to_numpy() - v))[:5]) for c, v in (("x", x), ("y", y))]
        linked += bool(near[0] & near[1])
    found = linkability(people, made, others, {"p": ["x"], "q": ["y"]})
    assert found.attack.value == pytest.approx(linked / 25)


@pytest.mark.slow
def test_blind_generators_are_silent_at_the_nominal_rate():
    alarms = 0
    for seed in range(60):
        tables = [population(60, 1000 + 3 * seed + i) for i in range(3)]
        answers = (
            singling_out(*tables, n_attacks=60, random_state=seed),
            linkability(*tables, PARTIES),
        )
        alarms += any(Criteria(answers, 60, 60, 0.95).shown)
    assert alarms <= 7  # 95 % of the time, if the rate is the nominal 5 %


def test_an_estimator_is_asked_on_a_half_that_it_did_not_see():
    table = population(120, 5).rename_axis("key")
    frames = {name: table[columns] for name, columns in PARTIES.items()}
    seen = []

    def leak(party_frames, random_state):
        seen.append(party_frames["left"].index)
        return pd.concat(list(party_frames.values()), axis=1)

    found = audit_disclosure(leak, frames, sensitive=["label", "a"], quasi_identifiers=["c", "d"])
    assert (found.n_training, found.n_control, len(seen[0])) == (60, 60, 60)
    assert [a.question for a in found.answers[:2]] == ["singling out", "linkability"]
    assert [a.column for a in found.answers[2:]] == ["label", "a"]
    assert found.shown == [True] * 4
    assert "used exposes a record" in str(found)
    assert found.to_frame()["p_value"].max() < 0.05


class Remembers(BaseEstimator):
    """Publishes fresh records, and knows those that it was fitted to by heart."""

    def fit(self, party_frames, on=None):
        self.table = pd.concat(list(party_frames.values()), axis=1)
        return self

    def sample(self, n):
        return FRESH.head(n)

    def log_prob(self, frame):
        if unknown := set(frame["label"]) - set(self.table["label"]):
            raise PartyDataError(f"no such label: {unknown}", fix="none")
        columns = list(frame.columns)
        mine = set(self.table[columns].fillna(-99.0).itertuples(index=False, name=None))
        rows = frame.fillna(-99.0).itertuples(index=False, name=None)
        return pd.Series([0.0 if row in mine else -50.0 for row in rows], frame.index)


@pytest.mark.parametrize("column", ["label", *later("a")])
def test_who_holds_a_model_that_remembers_infers_what_its_table_does_not_tell(column):
    model = Remembers().fit({"all": REAL})
    tables = REAL, FRESH, CONTROL
    by_table = attribute_inference(*tables, column, n_attacks=80)
    by_model = attribute_inference(*tables, column, n_attacks=80, model=model)
    assert by_table.excess.low < 0.05
    assert by_model.attack.value == 1.0
    assert by_model.excess.low > 0.1
    assert (by_table.attacker, by_model.attacker) == ("table", "model")
    assert "who holds the model" in by_model.sentence(shown=True)
    assert "what the model calls most probable" in by_model.sentence(shown=True)


@pytest.mark.slow
def test_what_a_model_cannot_make_is_guessed_from_the_table():
    strange = CONTROL.assign(label="maybe")
    model = Remembers().fit({"all": REAL})
    tables = REAL, FRESH, strange
    found = attribute_inference(*tables, "a", n_attacks=20, model=model)
    assert found.control == attribute_inference(*tables, "a", n_attacks=20).control
    assert found.attack.value == 1.0


def test_both_attackers_answer_where_the_model_is_held():
    table = population(120, 5).rename_axis("key")
    frames = {name: table[columns] for name, columns in PARTIES.items()}
    found = audit_disclosure(Remembers(), frames, sensitive=["label"], attacker="model")
    assert found.to_frame()["attacker"].tolist() == ["table"] * 3 + ["model"]
    with pytest.raises(ParameterError, match="log_prob"):
        audit_disclosure(lambda frames, state: table, frames, attacker="model")


@pytest.mark.parametrize("role", ["sensitive", "quasi_identifiers"])
def test_columns_that_no_table_has_are_named_before_any_training(role):
    table = population(120, 5).rename_axis("key")
    frames = {name: table[columns] for name, columns in PARTIES.items()}
    named = {role: pd.Index(["label", "labels"])}  # of no truth value
    with pytest.raises(ColumnMismatchError, match="did you mean 'label'"):
        audit_disclosure(ANY, frames, **named)
    with pytest.raises(ColumnMismatchError, match="did you mean 'label'"):
        audit_synthetic_data(ANY, frames, disclosure=named)


def test_questions_that_cannot_be_asked_are_refused_before_any_training():
    table = population(120, 5).rename_axis("key")
    frames = {name: table[columns] for name, columns in PARTIES.items()}
    for value in ({"confidence": 95}, {"random_state": None}, {"attacker": "me"}):
        with pytest.raises(ParameterError, match=f"audit_disclosure: {next(iter(value))} must be"):
            audit_disclosure(ANY, frames, **value)
    for known in (["label"], []):
        named = {"sensitive": ["label", "a"], "quasi_identifiers": known}
        with pytest.raises(ParameterError, match="beside the column 'label'"):
            audit_disclosure(ANY, frames, **named)
        with pytest.raises(ParameterError, match="beside the column 'label'"):
            audit_synthetic_data(ANY, frames, disclosure=named)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_nasty_columns_give_an_answer(seed):
    rng = np.random.default_rng(seed)
    columns = {
        "x": [np.nan, 0.0, 1e30, -1.0],
        "y": [None, "a", "b"],
        "z": [pd.Timestamp("2020-01-01")],
        "w": [True, False],
    }
    tables = [
        pd.DataFrame({c: [v[i] for i in rng.integers(len(v), size=20)] for c, v in columns.items()})
        for _ in range(3)
    ]
    tables[1].loc[0, "y"] = "unheard of"
    assert 0.0 <= singling_out(*tables).attack.value <= 1.0
    assert 0.0 <= linkability(*tables, {"p": ["x"], "q": ["y", "z", "w"]}).baseline <= 1.0
    for column in columns:
        assert 0.0 <= attribute_inference(*tables, column).baseline <= 1.0


def test_descriptions_need_a_record_that_stands_alone():
    same = pd.DataFrame({"x": [1.0] * 30})
    with pytest.raises(PartyDataError, match="fits it alone"):
        singling_out(same, same, same)


@pytest.mark.parametrize("synthesizer", [GaussianCopulaSynthesizer, 3, None])
@pytest.mark.parametrize("audit", [audit_disclosure, audit_synthetic_data])
def test_what_is_no_synthesizer_is_refused_before_any_training(audit, synthesizer):
    """A class that nobody made an estimator of ended in an error about `self`."""
    with pytest.raises(ParameterError, match="must be an estimator, such as Gaussian"):
        audit(synthesizer, make_party_frames(60, 2, random_state=0), "record_id")


def test_bad_input_is_refused_by_name():
    with pytest.raises(ColumnMismatchError, match="'b'"):
        singling_out(REAL.drop(columns="b"), FRESH, CONTROL)
    with pytest.raises(PartyDataError, match="control table has 9 records"):
        singling_out(REAL, FRESH, CONTROL.head(9))
    with pytest.raises(ParameterError, match="two parties"):
        linkability(REAL, FRESH, CONTROL, {"left": ["a"]})
    with pytest.raises(ColumnMismatchError, match="'age'"):
        attribute_inference(REAL, FRESH, CONTROL, "age")
    with pytest.raises(ColumnMismatchError, match="party 'right', column 'e'"):
        linkability(REAL, FRESH, CONTROL, {"left": ["a"], "right": ["d", "e"]})
    with pytest.raises(ParameterError, match="needs a quasi-identifier, got none"):
        attribute_inference(REAL, FRESH, CONTROL, "a", quasi_identifiers=[])
    with pytest.raises(ParameterError, match="n_attacks"):
        singling_out(REAL, FRESH, CONTROL, n_attacks=0)
    with pytest.raises(ParameterError, match="one party each"):
        linkability(REAL, FRESH, CONTROL, {"left": ["a"], "right": ["a"]})
    with pytest.raises(PartyDataError, match="column 'zz': named in categorical="):
        linkability(REAL, FRESH, CONTROL, PARTIES, categorical=["zz"])
    with pytest.raises(ColumnKindError, match=r"'label': text .* real table, but numbers"):
        singling_out(REAL, FRESH.assign(label=1), CONTROL)
    with pytest.raises(PartyDataError, match="the synthetic table must be a DataFrame, not list"):
        singling_out(REAL, [1], CONTROL)
    with pytest.raises(ParameterError, match="categorical must be a list of columns"):
        singling_out(REAL, FRESH, CONTROL, categorical="a")
    with pytest.raises(ParameterError, match="quasi_identifiers must be a list of columns"):
        attribute_inference(REAL, FRESH, CONTROL, "a", quasi_identifiers="b")
    with pytest.raises(ColumnMismatchError, match="is not in the table"):
        attribute_inference(REAL, FRESH, CONTROL, ["a"])
    with pytest.raises(ParameterError, match="two parties or more, got None"):
        linkability(REAL, FRESH, CONTROL, None)
    with pytest.raises(ParameterError, match=r"parties\['left'\] must be a list of columns"):
        linkability(REAL, FRESH, CONTROL, {"left": "a", "right": ["d"]})


def test_unknown_keywords_are_refused_in_the_words_of_who_was_called():
    """An error spoke of `Compared.__init__`, or of `AuditSettings.__init__`."""
    with pytest.raises(ParameterError, match=r"^singling_out has no .* 'n_attack' \(did you"):
        singling_out(REAL, FRESH, CONTROL, n_attack=20)
    with pytest.raises(ParameterError, match=r"linkability has no parameter 'seed'.*random_state"):
        linkability(REAL, FRESH, CONTROL, PARTIES, seed=0)
    with pytest.raises(ParameterError, match="attribute_inference has no parameter 'known'"):
        attribute_inference(REAL, FRESH, CONTROL, "a", known=["b"])
    with pytest.raises(ParameterError, match="audit_synthetic_data has no parameter 'models'"):
        audit_synthetic_data(ANY, {}, models=10)


def test_tables_of_other_libraries_are_read_and_a_column_named_twice_counts_once():
    tables = [table.drop(columns="b") for table in TABLES]
    twice, once = (
        attribute_inference(*given, "label", quasi_identifiers=known)
        for given, known in ((map(pa.table, tables), ["a", "a"]), (tables, ["a"]))
    )
    assert twice == once


def test_a_page_without_its_packages_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"'jinja2'.*pip install 'vflsynth\[report\]'"):
        Criteria((), 20, 20, 0.95).page()


def test_control_records_of_other_types_are_refused():
    """A csv round trip makes numbers of codes: no control record would be found again."""
    codes = [table.assign(label=table["label"].map({"yes": "01", "no": "02"})) for table in TABLES]
    real, fresh, control = codes
    with pytest.raises(ColumnKindError, match="'label'"):
        attribute_inference(
            real, fresh, control.assign(label=control["label"].astype(int)), "label"
        )
