"""What anybody gets of a private fit follows from whole numbers with noise, and from nothing else.

For every mechanism that protects the synthetic data: two neighbouring tables are fitted. The second
fit is handed what the first one released, so that all that follows from releases is the same. What
is not the same was taken from the records by another way.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtr, ndtri

from benchmarks import _results, distinguishing
from tests.contract.test_combinations import KEY, MECHANISMS, RUNS, frames, make
from vflsynth.exceptions import ArtefactError, PartyDataError
from vflsynth.models import Source, number_sources
from vflsynth.privacy import NeighbouringRelation, PublicSchema, histograms
from vflsynth.protocol import Transcript
from vflsynth.run import Options, local
from vflsynth.testing.noninterference import Tape

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


def fitted(synthesizer, mechanism, tables, relation, tape, folder, schema=None, **parameters):
    """Fit with given releases and given batches; return all that anybody sees, by where it is."""
    synth = make(synthesizer, mechanism).set_params(**parameters)
    synth.privacy.set_params(neighbouring_relation=str(relation))
    if schema is not None:
        synth.privacy.set_params(public_schema=schema)
    spoken = Transcript(keep_messages=True)
    with tape.running(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "Transcript", lambda: spoken)
        run = synth._fit_models([synth], tables, KEY, Options(transcript=True))
    synth.save(folder)
    covers = run.method.plan.covers
    return {
        "files": {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        },
        "history": synth.history_.to_json(),
        "ledger": str(synth.privacy_ledger_) + json.dumps(synth.privacy_ledger_.to_dict()),
        "settings": json.dumps(synth.settings_, default=str),
        "sent": [
            (type(m).__name__, m.sender, m.receiver, m.step, contents_of(m))
            for m in spoken.messages
            if (cover := covers.get(type(m).__name__)) is not None and cover.noised
        ],
        "model": synth,
        "folder": folder,
    }


def contents_of(message):
    return [
        (name, value.cpu().numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value))
        for name, value in message.contents()
    ]


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


def assert_same(one, other):
    assert one["files"].keys() == other["files"].keys()
    for name, content in one["files"].items():
        assert content == other["files"][name], name
    for name in ("history", "ledger", "settings", "sent"):
        assert one[name] == other[name], name


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


def fits(synthesizer, mechanism, relation, folder):
    """Fit two neighbouring tables with the same releases; return tapes and what is seen."""
    case = synthesizer, mechanism, tables(), relation
    one = fitted(*case, tape := Tape(), folder / "one")
    neighbour = CHANGES[relation](tables())
    two = fitted(synthesizer, mechanism, neighbour, relation, again := Tape(tape), folder / "two")
    return tape, again, one, two


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    return fits(*request.param, tmp_path_factory.mktemp("models"))


def test_all_that_anybody_sees_follows_from_the_releases(pair):
    tape, again, one, two = pair
    assert_same(one, two)
    # The record is in what is released, and so may be in what is seen.
    assert any(not np.array_equal(a, b) for a, b in zip(tape.totals, again.totals))


def in_whole_numbers(tables):
    """The measures of the first party rounded: what a csv file of grades is read as."""
    name = min(tables)
    whole = tables[name].assign(measure_1=tables[name]["measure_1"].round().astype("int64"))
    return tables | {name: whole}


def test_one_blank_changes_no_type_that_is_published(tmp_path):
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
    case = "DPLTSynthesizer", "latent_tree"
    one = fitted(*case, tables_, REPLACE, tape := Tape(), tmp_path / "one", schema=schema)
    two = fitted(*case, blank, REPLACE, Tape(tape), tmp_path / "two", schema=schema)
    assert_same(one, two)
    assert str(one["model"].sample(3)["measure_1"].dtype) == "Int64"
    for table in (tables_, blank):
        with pytest.raises(PartyDataError, match=r"PublicSchema\(dtypes="):
            fitted(*case, table, REPLACE, Tape(), tmp_path / "3", schema=replace(schema, dtypes={}))


def test_a_leak_beside_the_releases_is_noticed(tmp_path, monkeypatch):
    """Of a column's sum, in the last digits of what a model says about its noise."""
    honest = histograms.release_histograms

    def leak(frame, *args, **rest):
        return {
            name: replace(found, noise_std=found.noise_std + 1e-12 * float(frame[name].sum()))
            for name, found in honest(frame, *args, **rest).items()
        }

    monkeypatch.setattr(histograms, "release_histograms", leak)
    with pytest.raises(AssertionError, match="json"):
        assert_same(*fits("DPLTSynthesizer", "latent_tree", REPLACE, tmp_path)[2:])


# -- where the numbers of a saved model come from --------------------------------------------------


def test_every_number_of_a_saved_model_has_a_source(pair):
    """And those that are called released are on the tape of the releases, to the digit."""
    tape, _, one, _ = pair
    found = number_sources(one["folder"])
    assert {"public", "released", "computed from these", "drawn"} <= {n.source for n in found}
    assert Source.RECORDS not in {n.source for n in found}
    on_tape = {int(step) for release in tape.releases for step in release.steps.ravel()}
    counts = {count for count, _, _ in saved_counts(one["folder"], one["model"].parties_)}
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
