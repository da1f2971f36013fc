"""Laws of synthesizers: whatever one learns and however, it behaves like this."""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from vflsynth.columns import Range, TableTransformer
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import KeyTypeError, ParameterError
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.models import PartyModel
from vflsynth.protocol.channel import LocalChannel, MadeOf
from vflsynth.testing.kept import find_record, halves_of, numbers_in, without_pickle, words_in
from vflsynth.testing.laws import (
    KEY,
    Case,
    Check,
    checks_of,
    global_random_state_left_alone,
    refused,
    require,
    same,
    same_table,
    small,
    zoo,
)
from vflsynth.testing.noninterference import check_private

Told = dict[Any, Mapping[str, Any]]
"""Messages by party, by kind and step."""


class Fitted(NamedTuple):
    """A fitted synthesizer, and its first sample, of 20 rows."""

    model: Any
    sample: pd.DataFrame


class SynthesizerCase(Case[BaseSynthesizer]):
    """A synthesizer whose laws are checked: never fitted itself, the fastest that can be had."""

    @property
    def is_private(self) -> bool:
        """Whether noise comes from the operating system, so that no fit can be repeated."""
        return self.value.get_params(deep=False).get("privacy") is not None

    def make(self, **parameters: Any) -> Any:
        """Return a clone with other parameters; column kinds only if it has them."""
        known = self.value.get_params(deep=False)
        absent = {"column_kinds", "transformer"} - set(known)
        parameters = {"random_state": 0} | parameters
        return clone(self.value).set_params(
            **{name: value for name, value in parameters.items() if name not in absent}
        )

    @cached_property
    def zoo(self) -> Fitted:
        """The synthesizer, fitted to `zoo`; no law fits it again."""
        model = self.make().fit(zoo())
        return Fitted(model, model.sample(20))

    @cached_property
    def small(self) -> Fitted:
        """The synthesizer, fitted to `small`; no law fits it again."""
        model = self.fit_small()
        return Fitted(model, model.sample(20))

    def fit_small(self, **parameters: Any) -> Any:
        """Return a clone that is fitted to `small`."""
        return self.make(**parameters).fit(small(), on=KEY)

    def fit_told(self, told: Told, own: str) -> Any:
        """Return a clone that is fitted to the table of `own` and to others of other records.

        Of these, it is told what was told before; without `own`, tables are `small`, and that is
        written down.
        """
        gather = LocalChannel.gather

        def replayed(channel: Any, kind: Any, step: int) -> Any:
            found = gather(channel, kind, step)
            if kind.declared.made_of not in (MadeOf.RECORDS, MadeOf.NETWORKS):
                return found
            before = told.setdefault((kind, step), found)
            return {name: (found if name == own else before)[name] for name in found}

        frames = {
            name: frame if own in ("", name) else _other_records(frame)
            for name, frame in small().items()
        }
        with patch.object(LocalChannel, "gather", replayed):
            return self.make().fit(frames, on=KEY)


def _other_records(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of other records, with the same keys and widths of columns."""
    other = frame.take(np.roll(np.arange(len(frame)), 1)).set_axis(frame.index)
    measured = {str(column): -other[column] for column in other.filter(like="measure")}
    return other.assign(**measured, **{KEY: frame[KEY]})


def reloaded(model: Any) -> Any:
    """Save a model, and load it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        return type(model).load(f"{folder}/model", device="cpu")


def sample_apart(
    halves: Mapping[str, PartyModel], n: int, random_state: int
) -> dict[str, pd.DataFrame]:
    """Let halves sample one by one, each given what those before it passed on, and no more."""
    tables: dict[str, pd.DataFrame] = {}
    passed_on: dict[str, dict[str, Any]] = {name: {} for name in halves}
    while left := [name for name in halves if name not in tables]:
        ready = [name for name in left if set(halves[name].after) <= set(tables)]
        require(bool(ready), f"the halves of {left} wait for each other")
        half, received = halves[ready[0]], passed_on[ready[0]]
        tables[half.name] = half.sample(n, random_state, received=received)
        for name, numbers in half.pass_on(n, random_state, received=received).items():
            passed_on[name][half.name] = numbers
    return tables


# -- estimators ------------------------------------------------------------------------------------


def arguments_are_keywords(case: SynthesizerCase) -> None:
    """Their order may change."""
    parameters = list(inspect.signature(type(case.value).__init__).parameters.values())[1:]
    wrong = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    require(not wrong, f"not keyword-only: {wrong}")


def nothing_works_before_fit(case: SynthesizerCase) -> None:
    """Neither sampling nor saving."""
    with refused(NotFittedError, "sample before fit"):
        case.make().sample(3)
    with tempfile.TemporaryDirectory() as path, refused(NotFittedError, "save before fit"):
        case.make().save(f"{path}/model")


def fit_returns_self_and_leaves_its_inputs_alone(case: SynthesizerCase) -> None:
    """Party frames and parameters are what they were."""
    frames, before = zoo(), zoo()
    transformer = TableTransformer()
    synth = case.make(column_kinds={"constant": "categorical"}, transformer=transformer)
    parameters = {name: repr(value) for name, value in synth.get_params(deep=True).items()}
    require(synth.fit(frames) is synth, "fit does not return its object")
    same(list(frames), list(before), "the parties after fit")
    for party, frame in frames.items():
        same_table(frame, before[party], f"the frame of {party!r} after fit")
    after = {name: repr(value) for name, value in synth.get_params(deep=True).items()}
    same(after, parameters, "the parameters after fit")
    require(not hasattr(transformer, "spans_"), "the transformer that was given is fitted")


def learned_attributes_are_the_documented_ones(case: SynthesizerCase) -> None:
    """Under "Attributes" of the class, or of a class that it derives from."""
    documented: set[str] = set()
    for kind in type(case.value).__mro__:
        section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes\n----------\n")[2]
        documented |= set(re.findall(r"^(\w+_) : ", section.partition("\n\n")[0], re.M))
    learned = {name for name in vars(case.zoo.model) if re.fullmatch(r"[a-z].*_", name)}
    same(learned, documented, "what is learned")


def fit_forgets_the_previous_fit(case: SynthesizerCase) -> None:
    """A second fit is what a first one would be."""
    again = case.make().fit(zoo())
    again.sample(3)
    again.fit(small(), on=KEY)
    same(list(again.parties_), ["party_1", "party_2"], "the parties of a second fit")
    columns = list(case.small.model.history_)
    same(list(again.history_), columns, "the columns of a second fit's history")
    if not case.is_private:
        same_table(again.sample(20), case.small.sample, "the sample of a second fit")


def a_failed_fit_keeps_the_model(case: SynthesizerCase) -> None:
    """And says which party it is about."""
    synth = case.small.model
    before = synth.sample(5, random_state=1)
    with refused(Exception, "a column of complex numbers", says="party"):
        synth.fit({"party": pd.DataFrame({"a": np.arange(40) + 1j})})
    same_table(synth.sample(5, random_state=1), before, "the sample after a failed fit")


# -- repeatable fits -------------------------------------------------------------------------------


def same_random_state_same_bytes(case: SynthesizerCase) -> None:
    """And another one, another result."""
    again = case.make().fit(zoo())
    one, other = (
        s.history_.drop(columns="seconds", errors="ignore") for s in (again, case.zoo.model)
    )
    same_table(one, other, "the history of a second fit")
    same_table(again.sample(20), case.zoo.sample, "the sample of a second fit")
    differs = case.fit_small(random_state=1).sample(20)
    require(not differs.equals(case.small.sample), "random states 0 and 1 give the same sample")


def generators_are_random_states(case: SynthesizerCase) -> None:
    """Equal generators give equal results; None never does."""
    for make_state in (np.random.default_rng, np.random.RandomState):
        one, other = (case.fit_small(random_state=make_state(5)).sample(5) for _ in "ab")
        same_table(one, other, f"a sample of an equal {type(make_state(5)).__name__}")
    unseeded = [case.fit_small(random_state=None).sample(20) for _ in "ab"]
    require(not unseeded[0].equals(unseeded[1]), "random_state=None repeats itself")


def global_random_state_is_neither_read_nor_changed(case: SynthesizerCase) -> None:
    """Of Python, NumPy and torch."""
    expected = case.small.sample  # of another state: it was drawn before this one is set
    with global_random_state_left_alone():
        found = case.fit_small().sample(20)
    if not case.is_private:
        same_table(found, expected, "a sample after seeding the global states differently")


def the_order_of_the_parties_changes_no_value(case: SynthesizerCase) -> None:
    """Only that of the columns."""
    frames, table = zoo(), case.zoo.sample
    other = case.make().fit(dict(reversed(frames.items()))).sample(20)
    columns = [label for frame in reversed(frames.values()) for label in frame]
    same(other.columns.tolist(), columns, "the columns of parties in another order")
    same_table(other[table.columns.tolist()], table, "a sample of parties in another order")


def the_order_of_rows_changes_no_value(case: SynthesizerCase) -> None:
    """Records are matched by key."""
    shuffled = {party: f.sample(frac=1, random_state=9) for party, f in small().items()}
    other = case.make().fit(shuffled, on=KEY).sample(20)
    same_table(other, case.small.sample, "a sample of shuffled tables")


def names_of_columns_change_no_value(case: SynthesizerCase) -> None:
    """No draw depends on them."""
    renamed = {
        party: frame.rename(columns={c: f"{c} renamed" for c in frame if c != KEY})
        for party, frame in small().items()
    }
    other = case.make().fit(renamed, on=KEY).sample(20)
    other = other.rename(columns=lambda label: label.removesuffix(" renamed"))
    same_table(other, case.small.sample, "a sample of renamed columns")


def no_two_private_fits_are_alike(case: SynthesizerCase) -> None:
    """Whoever knows the random state does not know the noise."""
    one, other = (s.sample(20, random_state=1) for s in (case.small.model, case.fit_small()))
    require(not one.equals(other), "two private fits of one random state give the same sample")


def nothing_but_releases_shows(case: SynthesizerCase) -> None:
    """What is made of the same releases is the same, whatever the records were."""
    check_private(case.value)


# -- samples ---------------------------------------------------------------------------------------


def _without_categories(case: SynthesizerCase, dtype: Any) -> Any:
    """Take away what a private fit replaces by public or visible categories."""
    if case.is_private and isinstance(dtype, pd.CategoricalDtype):
        return pd.CategoricalDtype(ordered=bool(dtype.ordered))
    return dtype


def samples_look_like_the_party_frames(case: SynthesizerCase) -> None:
    """Columns, dtypes and categories; values that the records could have; no new gaps."""
    expected = pd.concat([frame.reset_index(drop=True) for frame in zoo().values()], axis=1)
    for n in (0, 1, 7):
        table = case.zoo.model.sample(n)
        same(len(table), n, "the number of rows")
        same(table.columns.tolist(), expected.columns.tolist(), "the columns")
        found_types = [_without_categories(case, dtype) for dtype in table.dtypes]
        known_types = [_without_categories(case, dtype) for dtype in expected.dtypes]
        same(found_types, known_types, "the dtypes")
        require(isinstance(table.index, pd.RangeIndex), f"the index is {table.index!r}")
        same(table.index.name, "person", "the index's name")
        for column in table:
            known, found = expected[column].dropna(), table[column].dropna()
            if found.dtype.kind not in "iufM":
                strange = set(found) - set(known)
                require(not strange, f"column {column!r} has values {strange}")
            elif not case.is_private:  # whose ranges are public, or published with noise
                inside = found.between(known.min(), known.max())
                require(inside.all(), f"column {column!r} has values {found[~inside].tolist()}")
        if not case.is_private:
            gaps = table[["int8", "bool", 7, 0, "object"]].isna().sum()
            require(not gaps.any(), f"missing values where there were none: {gaps.to_dict()}")


def decimals_are_kept(case: SynthesizerCase) -> None:
    """Whole numbers that are floats for a missing value among them, and tenths, stay so."""
    rng, index = np.random.default_rng(0), pd.RangeIndex(100, 160)
    visits = pd.DataFrame({"visits": rng.integers(0, 9, 60).astype(np.float64)}, index=index)
    visits.iloc[0] = np.nan
    doses = pd.DataFrame({"dose": rng.integers(5, 200, 60) / 10}, index=index)
    table = case.make().fit({"a": visits, "b": doses}).sample(50)
    for column, decimals in (("visits", 0), ("dose", 1)):
        values = table[column].dropna()
        odd = values[values != values.round(decimals)]
        require(odd.empty, f"column {column!r} has values {odd.tolist()}")


def n_is_a_whole_number(case: SynthesizerCase) -> None:
    """Of Python or NumPy, and at least 0."""
    for n in (-1, 2.0, "3", None, True):
        says = f"n must be a whole number ≥ 0, got {n!r}"
        with refused(ParameterError, f"sample({n!r})", says=says):
            case.zoo.model.sample(n)
    same(len(case.zoo.model.sample(np.int64(3))), 3, "the number of rows")


def two_samples_differ_and_a_seeded_one_repeats(case: SynthesizerCase) -> None:
    """Without a seed every call goes on from the last one."""
    sample = case.zoo.model.sample
    require(not sample(20).equals(sample(20)), "two samples are the same")
    same_table(sample(20, random_state=4), sample(20, random_state=4), "a seeded sample")
    different = not sample(20, random_state=4).equals(sample(20, random_state=5))
    require(different, "two seeds give the same sample")


def a_longer_sample_begins_like_a_shorter_one(case: SynthesizerCase) -> None:
    """Also one of several blocks, none of which is like another."""
    sample = case.zoo.model.sample
    long, short = sample(8_200, random_state=4), sample(5, random_state=4)
    same(len(long), 8_200, "the number of rows")
    same_table(long.head(5), short, "the beginning of a longer sample")
    tail, head = long.tail(8).reset_index(drop=True), long.head(8).reset_index(drop=True)
    require(not tail.equals(head), "the second block is the first one again")


def parts_are_the_table(case: SynthesizerCase) -> None:
    """Parties that sample apart get rows that belong together."""
    parts = case.zoo.model.sample(9, by_party=True, random_state=4)
    same(list(parts), list(zoo()), "the parties")
    table = case.zoo.model.sample(9, random_state=4)
    same_table(pd.concat(parts.values(), axis=1), table, "the parts, joined")
    alone = sample_apart(case.zoo.model.parties_, 9, 4)
    for party, part in parts.items():
        same_table(alone[party], part, f"what party {party!r} samples alone")


def conditions_hold(case: SynthesizerCase) -> None:
    """Whatever the dtype, and types stay."""
    drawn = case.zoo.model.sample(60, random_state=4)
    for column in ("int8", "Float64", "string", 8, 1):
        values = drawn[column].dropna()
        if values.empty:  # noise may have left nothing but missing values
            continue
        numbers = values.dtype.kind in "iufM"
        asked = Range(low=values.median()) if numbers else [values.iloc[0]]
        table = case.zoo.model.sample(3, conditions={column: asked}, random_state=5)
        same(len(table), 3, f"the number of rows with a condition on {column!r}")
        found = table[column]
        holds = found >= asked.low if isinstance(asked, Range) else found.isin(asked)
        require(bool(holds.all()), f"column {column!r} has {found.tolist()}, asked for {asked}")
        same(table.dtypes.tolist(), drawn.dtypes.tolist(), "the dtypes under a condition")
        same(table.index.name, "person", "the index's name under a condition")
    with refused(ParameterError, "a condition on no column", says="nobody's"):
        case.zoo.model.sample(3, conditions={"nobody's": 1})


def records_are_completed(case: SynthesizerCase) -> None:
    """What is given stays, what is missing is filled, and types are the model's."""
    drawn = case.zoo.model.sample(60, random_state=4)
    # What is missing is filled, and a model may hold that nothing goes with the row's other values.
    drawn = drawn[drawn["Int64"].notna()].head(8)
    given = drawn[["int16", "Int64", "bool"]].set_axis(range(10, 18), axis=0)
    given["int16"] = given["int16"].astype("Int16").where(given.index != 12)
    again = case.zoo.model.sample(8, conditions=given, keys=True)
    same(again.index.name, "person", "the index's name of completed records")
    table = case.zoo.model.complete(given, random_state=1)
    same(table.index.tolist(), given.index.tolist(), "the index of completed records")
    same(table.dtypes.tolist(), drawn.dtypes.tolist(), "the dtypes of completed records")
    for column in given:
        known = given[column].dropna()
        same(table.loc[known.index, column].tolist(), known.tolist(), f"what is given of {column}")
    require(bool(table["int16"].notna().all()), "a missing cell is not filled")


def fresh_keys_are_put_into_the_index(case: SynthesizerCase) -> None:
    """Unique, no real one, and the same for all parties."""
    table = case.zoo.model.sample(30, keys=True)
    same(table.index.name, "person", "the index's name")
    real = set(zoo()["numbers"].index)
    require(table.index.is_unique and not set(table.index) & real, f"keys {list(table.index)}")
    for party, part in case.zoo.model.sample(30, keys=True, by_party=True).items():
        require(part.index.equals(table.index), f"party {party!r} has other keys")


def fresh_keys_are_put_into_the_key_column(case: SynthesizerCase) -> None:
    """In front, of the original dtype; there is no such column without keys."""
    synth, frames = case.small.model, small()
    table = synth.sample(30, keys=True, random_state=1)
    same(table.columns[0], KEY, "the first column")
    same(table[KEY].dtype, frames["party_1"][KEY].dtype, "the dtype of keys")
    real = {key for frame in frames.values() for key in frame[KEY]}
    require(table[KEY].is_unique and not set(table[KEY]) & real, f"keys {table[KEY].tolist()}")
    parts = synth.sample(30, keys=True, by_party=True, random_state=1)
    joined = parts["party_1"].merge(parts["party_2"], on=KEY, validate="one_to_one")
    same_table(joined, table, "the parts, joined by key")
    require(KEY not in synth.sample(3).columns, "a sample without keys has a key column")


def keys_can_run_out(case: SynthesizerCase) -> None:
    """There are 256 numbers of eight bits."""
    frame = pd.DataFrame({"id": np.arange(100, dtype="int8"), "x": np.arange(100.0)})
    synth = case.make().fit({"a": frame}, on="id")
    same(synth.sample(20, keys=True)["id"].dtype, np.dtype("int8"), "the dtype of keys")
    with refused(KeyTypeError, "60 more keys of eight bits", says="int8"):
        synth.sample(60, keys=True)


# -- parties ---------------------------------------------------------------------------------------


def any_number_of_parties_will_do(case: SynthesizerCase) -> None:
    """One or five, with records that not all have; `small` has two parties and `zoo` three."""
    for n_parties in (1, 5):
        frames = make_party_frames(60, n_parties, random_state=1, n_unmatched=3)
        synth = case.make().fit(frames, on=KEY)
        same(synth.sample(6).shape, (6, 10 * n_parties), f"the sample of {n_parties} parties")
        matched = 60 if n_parties > 1 else 63
        same(synth.alignment_.n_matched, matched, f"matched records of {n_parties} parties")


def a_party_may_have_nothing_but_constants(case: SynthesizerCase) -> None:
    """Its encoded width is 0; and so may all parties. Private fits come close."""
    index = pd.RangeIndex(100, 160)  # of its own: nothing is matched by position
    constants = pd.DataFrame({"x": np.full(60, 2.5), "y": ["same"] * 60}, index=index)
    numbers = pd.DataFrame({"z": np.arange(60)}, index=index)
    table = case.make().fit({"a": constants, "b": numbers}).sample(5)
    off = (table["x"] - 2.5).abs().max()
    require(off <= (0.5 if case.is_private else 0), f"a constant of 2.5 is off by {off}")
    same(table["y"].tolist(), ["same"] * 5, "a constant column")
    frames = {party: pd.DataFrame({f"{party}x": np.full(60, 1)}, index=index) for party in "ab"}
    found = case.make().fit(frames).sample(3)
    inside = found.isin([1, 2] if case.is_private else [1]).all(axis=None)
    require(inside, f"a table of constants of 1 is {found.to_numpy().tolist()}")


def a_single_column_will_do(case: SynthesizerCase) -> None:
    """Of numbers, text or booleans."""
    for values in (np.arange(60.0), ["u", "v"] * 30, [True, False] * 30):
        frame = pd.DataFrame({"x": values})
        table = case.make().fit({"a": frame}).sample(5)
        same(table.shape, (5, 1), "the sample of a single column")
        same(table["x"].dtype, frame["x"].dtype, "its dtype")


def declared_kinds_are_used(case: SynthesizerCase) -> None:
    """Whatever the mechanism, and also by a loaded model; others are inferred."""
    declared = {
        "count_1": "categorical",
        "score_1": "continuous",
        "city_1": "ordered",
        "flag_1": "categorical",
    }
    synth = case.fit_small(column_kinds=declared)
    for model in (synth, reloaded(synth)):
        kinds: dict[Any, str] = {}
        for party in model.parties_.values():
            kinds |= party.transformer.kinds_
        for label, kind in declared.items():
            same(kinds[label], kind, f"the kind of {label}, declared {kind}")
        same(kinds["score_2"], "integer", "the kind of a column of integers")


def others_show_by_their_messages_alone(case: SynthesizerCase) -> None:
    """What they sent being the same, a party's half is the same, whatever records they have."""
    told: Told = {}
    expected = halves_of(case.fit_told(told, ""))
    for name in small():
        found = halves_of(case.fit_told(told, name))[name]
        alike = found == expected[name]
        require(alike, f"the half of {name!r} depends on others' records beyond their messages")


# -- artefacts -------------------------------------------------------------------------------------


def no_record_is_saved(case: SynthesizerCase) -> None:
    """Neither as it is nor encoded, nor its key; all is JSON and safetensors, nothing a pickle."""
    synth = case.zoo.model
    with tempfile.TemporaryDirectory() as folder:
        with without_pickle():
            synth.save(f"{folder}/model")
            type(synth).load(f"{folder}/model", device="cpu")
        arrays, words = [*numbers_in(Path(folder))], words_in(Path(folder))
    for name, frame in zoo().items():
        raw = frame.select_dtypes("number").to_numpy(np.float64, na_value=0.0)
        for records in (raw, synth.parties_[name].transformer.transform(frame)):
            told = records[[len(set(record)) > 2 for record in records.tolist()]]  # not all missing
            found = find_record(arrays, told)
            require(found is None, f"a record of {name!r} is in the saved model")
        keys = sorted(words & set(frame.index))
        require(not keys, f"keys of {name!r} are in the saved model: {keys}")


def a_resumed_fit_is_the_whole_one(case: SynthesizerCase) -> None:
    """To the last byte of every half and of the history, if it stopped after its first epoch."""
    stop = SimpleNamespace(on_epoch_end=lambda state: True)
    with tempfile.TemporaryDirectory() as path:
        kept: dict[str, Any] = {
            "checkpoint": f"{path}/kept",
            "checkpoint_every": 1,
            "callbacks": [stop],
        }
        case.make().fit(small(), KEY, **kept)
        resumed = case.make().fit(small(), KEY, resume=f"{path}/kept")
    one, other = (s.history_.drop(columns="seconds") for s in (resumed, case.small.model))
    same_table(one, other, "the history of a resumed fit")
    require(halves_of(resumed) == halves_of(case.small.model), "a resumed fit has other halves")


def a_loaded_model_goes_on_with_the_same_samples(case: SynthesizerCase) -> None:
    """With the same parties, history and keys."""
    synth = case.make(random_state=None, column_kinds={0: "datetime"}).fit(zoo())
    synth.sample(2)
    loaded = reloaded(synth)
    same_table(loaded.history_, synth.history_, "the loaded history")
    if not (case.is_private and loaded.alignment_ is None):  # it tells the number of records
        same(loaded.alignment_, synth.alignment_, "the loaded alignment")
    same(loaded.interrupted_, False, "the loaded interrupted_")
    same(list(loaded.parties_), list(synth.parties_), "the loaded parties")
    same_table(loaded.sample(20), synth.sample(20), "the loaded model's next sample")
    keyed = loaded.sample(20, keys=True)
    same_table(keyed, synth.sample(20, keys=True), "the loaded model's next sample with keys")


def a_loaded_model_can_be_fitted_again(case: SynthesizerCase) -> None:
    """All parameters are saved, the encoding's too."""
    transformer = TableTransformer({"amount_1": "continuous"}, rare_threshold=0.0)
    synth = case.fit_small(transformer=transformer, column_kinds={"count_1": "continuous"})
    loaded = reloaded(synth)
    same(repr(loaded.get_params()), repr(synth.get_params()), "the loaded parameters")
    again = loaded.fit(small(), on=KEY).sample(9)
    if not case.is_private:
        same_table(again, synth.sample(9), "the sample of a loaded model that is fitted again")


REPEATABLE_LAWS = (
    same_random_state_same_bytes,
    generators_are_random_states,
    the_order_of_the_parties_changes_no_value,
    the_order_of_rows_changes_no_value,
    names_of_columns_change_no_value,
    others_show_by_their_messages_alone,
    a_resumed_fit_is_the_whole_one,
)
PRIVATE_LAWS = (no_two_private_fits_are_alike, nothing_but_releases_shows)


def synthesizer_checks(estimator: BaseSynthesizer) -> list[Check]:
    """Return one check for each law of a synthesizer.

    Parameters
    ----------
    estimator : BaseSynthesizer
        With parameters that make it fast: it is fitted about forty times, to tables of 60 to 100
        records. Not fitted itself.

    Examples
    --------
    >>> from vflsynth import IndependentSynthesizer
    >>> for check in synthesizer_checks(IndependentSynthesizer())[:5]:  # a test runs all of them
    ...     check()
    """
    case = SynthesizerCase(estimator)
    others = [*(REPEATABLE_LAWS if case.is_private else PRIVATE_LAWS)]
    if "column_kinds" not in estimator.get_params(deep=False):
        others.append(declared_kinds_are_used)
    if estimator.joins:
        others.append(others_show_by_their_messages_alone)
    if "resume" not in inspect.signature(estimator.fit).parameters:
        others.append(a_resumed_fit_is_the_whole_one)
    return [check for check in checks_of(case) if check.law not in others]
