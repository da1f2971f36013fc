"""Numbers of a private fit are whole ones with noise: each has a source, no digit tells a record.

For every mechanism that protects the synthetic data two neighbouring tables are fitted. The second
fit is handed what the first one released; `test_noninterference` holds what both show together.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri

from benchmarks import _results, distinguishing
from tests.contract.test_combinations import KEY, MECHANISMS, RUNS, frames, make
from vflsynth.exceptions import ArtefactError, PartyDataError
from vflsynth.models import Source, number_sources
from vflsynth.privacy import NeighbouringRelation, PublicSchema
from vflsynth.testing.noninterference import Tape, difference, observe

pytestmark = pytest.mark.usefixtures("short_searches")

PROTECTING = [
    (synthesizer, mechanism)
    for synthesizer, mechanisms in RUNS.items()
    for mechanism in sorted(mechanisms - {None})
    if MECHANISMS[mechanism].protects_synthetic_data
]


def test_of_all_of_these_what_saved_models_tell_is_measured():
    measured = {
        (kind.__name__, getattr(mechanism, "func", mechanism).name)
        for kind, _, mechanism in distinguishing.MECHANISMS.values()
        if kind.registry_group == "synthesizers"
    }
    assert measured == set(PROTECTING)
    rows = {row["mechanism"]: row for row in _results.rows("distinguishing")}
    assert rows.keys() == distinguishing.MECHANISMS.keys()
    assert all(row["bound"] <= row["epsilon"] for row in rows.values())


def fitted(synthesizer, mechanism, tables, relation, tape, folder, **parameters):
    """Fit with given releases and given batches; return the model, which is saved."""
    synth = make(synthesizer, mechanism).set_params(**parameters)
    synth.privacy.set_params(neighbouring_relation=str(relation))
    with tape.running():
        synth.fit(tables, KEY)
    synth.save(folder)
    return synth


def replaced(tables):
    """One person is another one: all that is known of the last record changes."""
    changed = {}
    for name, table in tables.items():
        other = table.copy()
        for column in other.columns.drop(KEY):
            old = other[column].iloc[-1]
            other.loc[other.index[-1], column] = (not old) if other[column].dtype == bool else 4.75
        changed[name] = other
    return changed


def removed(tables):
    return {name: table.iloc[:-1] for name, table in tables.items()}


def tables():
    """In an order that does not depend on one record."""
    return {name: table.sort_values(KEY) for name, table in frames().items()}


REPLACE, ADD = NeighbouringRelation.REPLACE_ONE, NeighbouringRelation.ADD_OR_REMOVE_ONE
CHANGES = {REPLACE: replaced, ADD: removed}
CASES = [
    pytest.param(
        (synthesizer, mechanism, relation),
        id=f"{synthesizer}-{mechanism}-{relation}",
        marks=() if relation is MECHANISMS[mechanism].default_relation else pytest.mark.slow,
    )
    for synthesizer, mechanism in PROTECTING
    for relation in CHANGES
    if relation is REPLACE or MECHANISMS[mechanism].default_relation is ADD
]


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """Fit two neighbouring tables with the same releases; return tapes, a model and its files."""
    (*case, relation), folder = request.param, tmp_path_factory.mktemp("models")
    model = fitted(*case, tables(), relation, tape := Tape(), folder / "one")
    neighbour = CHANGES[relation](tables())
    fitted(*case, neighbour, relation, again := Tape(tape), folder / "two")
    return tape, again, model, folder / "one"


def in_whole_numbers(tables):
    """The measures of the first party rounded: what a csv file of grades is read as."""
    name = min(tables)
    whole = tables[name].assign(measure_1=tables[name]["measure_1"].round().astype("int64"))
    return tables | {name: whole}


def test_one_blank_changes_no_type_that_is_published():
    """It turns integers to floats where types are inferred; here types are those of the schema."""
    tables_ = in_whole_numbers(tables())
    blank = {name: table.copy() for name, table in tables_.items()}
    column = blank["party_1"]["measure_1"].astype(float)
    blank["party_1"]["measure_1"] = column.where(np.arange(len(column)) != 3)
    assert str(blank["party_1"]["measure_1"].dtype) == "float64"
    dtypes = {KEY: "int64", "measure_1": "Int64", "measure_2": "float64"}
    dtypes |= {"flag_1": "boolean", "flag_2": "boolean"}
    synth = make("DPLTSynthesizer", "latent_tree")
    schema = replace(synth.privacy.public_schema, dtypes=dtypes)
    synth.privacy.set_params(public_schema=schema)
    one, model = observe(synth, tables_, KEY, tape := Tape())
    assert difference(one, observe(synth, blank, KEY, Tape(tape))[0]) == ""
    assert str(model.sample(3)["measure_1"].dtype) == "Int64"
    synth.privacy.set_params(public_schema=replace(schema, dtypes={}))
    for table in (tables_, blank):
        with pytest.raises(PartyDataError, match=r"PublicSchema\(dtypes="):
            synth.fit(table, KEY)


# -- where the numbers of a saved model come from --------------------------------------------------


def test_every_number_of_a_saved_model_has_a_source(pair):
    """And those that are called released are on the tape of the releases, to the digit."""
    tape, _, model, folder = pair
    found = number_sources(folder)
    assert {"public", "released", "computed from these", "drawn"} <= {n.source for n in found}
    assert Source.RECORDS not in {n.source for n in found}
    on_tape = {int(step) for release in tape.releases for step in release.steps.ravel()}
    counts = {count for count, _, _ in saved_counts(folder, model.parties_)}
    assert sum(n.n for n in found if n.source is Source.RELEASED) >= len(counts) > 0
    assert counts <= on_tape


def of_all_kinds():
    """Two parties with a spike, whole numbers, missing values, dates, text and booleans."""
    rng, n = np.random.default_rng(4), 400
    amount = np.where(np.arange(n) % 10 < 8, 0.0, rng.uniform(0.0, 9.0, n))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    numbers = {"amount": amount, "visits": rng.integers(0, 6, n), "flag": rng.random(n) < 0.4}
    others = {
        "rate": pd.Series(rng.uniform(0.0, 1.0, n)).mask(rng.random(n) < 0.3),
        "day": pd.Series(days).mask(rng.random(n) < 0.2),
        "town": rng.choice(["north", "south", "7th ward"], n),
        "smokes": pd.array(rng.random(n) < 0.5, "boolean"),
    }
    key = pd.Index(np.arange(n), name=KEY)
    tables = {"a": pd.DataFrame(numbers, key), "b": pd.DataFrame(others).set_index(key)}
    return {name: table.reset_index() for name, table in tables.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("synthesizer", "mechanism"), PROTECTING)
def test_of_columns_of_every_kind_no_number_is_without_a_source(synthesizer, mechanism, tmp_path):
    schema = PublicSchema(
        {"amount": (0, 10), "rate": (0, 1), "day": ("2020-01-01", "2020-12-31")},
        dict.fromkeys(("flag", "smokes"), (False, True)),
        dtypes="given",
    )  # the others are published with noise
    synth = make(synthesizer, mechanism)
    synth.privacy.set_params(public_schema=schema, noise_multiplier=0.1)
    if mechanism == "dpsgd":
        synth.privacy.set_params(n_records=400)
    synth.fit(of_all_kinds(), KEY).save(tmp_path / "model")
    found = number_sources(tmp_path / "model")
    assert {"public", "released", "computed from these"} <= {n.source for n in found}
    for name, half in synth.parties_.items():
        half.save(tmp_path / name)
        found += number_sources(tmp_path / name)
    assert Source.RECORDS not in {n.source for n in found}


def test_numbers_that_nobody_accounted_for_are_noticed(tmp_path):
    synth = make("DPLTSynthesizer", "latent_tree").fit(tables(), KEY)
    _, half = next(iter(synth.parties_.items()))
    half.save(tmp_path)
    assert number_sources(tmp_path)
    saved = json.loads((tmp_path / "party.json").read_text())
    for hide in (lambda: saved.update(mean=2.5), lambda: saved["transformer"].update(n=["40"])):
        hide()
        (tmp_path / "party.json").write_text(json.dumps(saved))
        with pytest.raises(ArtefactError, match="nothing is known about where they come from"):
            number_sources(tmp_path)


def test_a_model_without_a_guarantee_says_so(tmp_path):
    make("IndependentSynthesizer", None).fit(tables(), KEY).save(tmp_path / "model")
    found = number_sources(tmp_path / "model")
    assert Source.RECORDS in {n.source for n in found}
    assert not {"released", "computed from these"} & {n.source for n in found}


# -- the attack ------------------------------------------------------------------------------------


def noise_of_floats(shape, std):
    """The noise of earlier versions: 52 bits of the operating system, through a quantile."""
    bits = np.random.default_rng().integers(0, 2**52, shape)
    return ndtri((bits + 0.5) * 2.0**-52) * std


def possible(published, exact, std, step):
    """Whether a sum can have been published as this number, judged by its last digits.

    By whoever knows the sum: on the grid that the model declares every whole number is possible.
    Off it, the number is one with 52 random bits and a quantile, of which few can be right.
    """
    if step and (published / step) % 1.0 == 0.0 and (exact / step) % 1.0 == 0.0:
        return True
    near = np.floor(ndtr((published - exact) / std) * 2.0**52)
    bits = near + np.arange(-64.0, 65.0)
    return bool(np.any(exact + ndtri((bits + 0.5) * 2.0**-52) * std == published))


def decisions(numbers):
    """Attack numbers (published, with the record, without, std, step): how many give it away."""
    decided = wrong = 0
    for published, inside, outside, std, step in numbers:
        can_be, can_not_be = (possible(published, q, std, step) for q in (inside, outside))
        decided += can_be != can_not_be
        wrong += not can_be
    return decided, wrong


def attacked(tape, again):
    """Up to 500 released numbers, for an attacker who knows both candidates for the sum."""
    found = 0
    for release, one, other in zip(tape.releases, tape.totals, again.totals):
        grid = release.grid
        for y, a, b in zip(release.values.ravel(), one.ravel(), other.ravel()):
            if a != b and (found := found + 1) <= 500:
                yield y, a * grid.step, b * grid.step, grid.noise_std, grid.step


def test_last_digits_tell_nothing_of_a_record(pair):
    tape, again, _, _ = pair
    numbers = list(attacked(tape, again))
    assert len(numbers) >= 8
    assert decisions(numbers) == (0, 0)


def test_last_digits_of_floating_point_noise_give_the_record_away(pair):
    """The attack itself is sound: on the noise of earlier versions it succeeds, and never errs."""
    tape, again, _, _ = pair
    floats = [
        (inside + float(noise_of_floats((), std)), inside, outside, std, 0.0)
        for _, inside, outside, std, _ in attacked(tape, again)
    ]
    decided, wrong = decisions(floats)
    assert wrong == 0
    assert decided > 0


def saved_counts(folder, parties):
    """Noisy counts of a saved model, as they are written, with exponent and noise."""
    for party in parties:
        saved = json.loads((folder / "parties" / party / "party.json").read_text())
        for column in saved["transformer"]["transformers"]:
            for count in column["state"]["counts"]:
                yield count, column["state"]["exponent"], column["state"]["noise_std"]


def test_every_true_count_is_possible_for_a_saved_number(tmp_path):
    """On the files themselves, where doubles once told 35 exact counts of red wine."""
    synth = make("MixtureSynthesizer", "pairwise_tables").fit(tables(), KEY)
    synth.save(tmp_path / "model")
    numbers = list(saved_counts(tmp_path / "model", synth.parties_))
    columns = [h for p in synth.parties_.values() for h in p.transformer.histograms_.values()]
    assert len(numbers) == sum(len(histogram.counts) for histogram in columns) > 8
    for count, exponent, std in numbers:
        assert isinstance(count, int)
        assert all(possible(count * 2.0**exponent, n, std, 2.0**exponent) for n in range(41))
    floats = 7.0 + noise_of_floats((100,), std)
    left = [sum(possible(float(y), n, std, 0.0) for n in range(41)) for y in floats]
    assert min(left) == 1  # the attack would find true counts without knowing anything else
