"""Columns of many levels: the code in two parts, and who may come out."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflsynth.columns import Categories
from vflsynth.columns.categorical import (
    CategoricalTransformer,
    OrderedTransformer,
    TwoPartCode,
    members,
    shared_slots,
)
from vflsynth.exceptions import (
    ArtefactError,
    CardinalityError,
    ColumnKindError,
    PrivacyParameterError,
)

LABELS = [f"{i:05d}" for i in range(400)]


def column(times: int = 6, *, missing: int = 0) -> pd.Series:
    """400 zip codes, each held so often, in an order of its own."""
    values = [*np.repeat(LABELS, times), *[None] * missing]
    return pd.Series(values, name="zip").sample(frac=1.0, random_state=0, ignore_index=True)


@pytest.mark.parametrize("last_alone", [False, True])
@pytest.mark.parametrize("n_slots", [257, 258, 289, 290, 5000])
def test_every_slot_has_one_pair_and_widths_are_square_roots(n_slots: int, last_alone: bool):
    code = TwoPartCode.of(n_slots, last_alone=last_alone)
    slots = np.arange(n_slots)
    matrix = np.zeros((n_slots, code.width), np.float32)
    code.write(slots, matrix)
    assert sum(code.sizes) == n_slots
    assert (matrix.sum(1) == 2).all()
    assert len(np.unique(matrix, axis=0)) == n_slots
    np.testing.assert_array_equal(code.read(matrix), slots)
    assert code.width <= 2 * np.sqrt(n_slots) + 3
    assert code.sizes[-1] == 1 or not last_alone


def test_whatever_is_decoded_is_a_slot() -> None:
    code = TwoPartCode((3, 2, 1))
    matrix = np.random.default_rng(0).normal(size=(500, code.width))
    matrix[:, code.n_groups + 2] += 5.0  # a place that two of the groups lack
    assert set(code.read(matrix)) <= set(range(6))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 12))
def test_every_shared_slot_is_held_by_enough_records(counts: list[int], fewest: int) -> None:
    records = np.array(counts)
    if records.sum() < fewest:
        with pytest.raises(ValueError, match="fewer than"):
            shared_slots(records, fewest)
        return
    try:
        slots, comes_out = shared_slots(records, fewest)
    except ValueError:
        # Rare levels alone, too few: nothing else may be refused.
        assert (records < fewest).all()
        raise
    held = np.bincount(slots, weights=records)
    assert (held >= fewest).all()
    assert set(slots[comes_out]) == set(range(slots.max() + 1))
    for slot in range(slots.max() + 1):
        own = np.flatnonzero((slots == slot) & comes_out)
        assert len(own) == 1 or (records[own] < fewest).all()  # frequent ones stay alone


def test_nobody_need_have_the_level_with_which_a_shared_slot_ends() -> None:
    """Whoever draws many rows sees where slots end: levels of one are drawn alike."""
    held: list[int] = []
    for seed in range(20):
        records = np.zeros(2000, np.intp)
        records[np.random.default_rng(seed).choice(2000, 40, replace=False)] = 1
        slots, comes_out = shared_slots(records, 5)
        assert comes_out.all()
        assert slots.max() >= 4
        held += records[np.flatnonzero(np.diff(slots))].tolist()  # the last slot ends with the list
    assert np.mean(held) < 0.1  # one in fifty


def test_levels_of_a_slot_take_turns() -> None:
    levels = np.array([0, 1, -1, 1, 1])
    drawn = members(np.array([1] * 3000 + [0] * 5), levels, 2)
    np.testing.assert_allclose(np.bincount(drawn[:3000])[[1, 3, 4]], 1000, atol=5)
    assert set(drawn[3000:]) == {0}


@pytest.mark.parametrize("as_type", ["str", "category", "int64", "ordered"])
@pytest.mark.parametrize("missing", [0, 30])
def test_many_values_come_back_and_are_saved(as_type: str, missing: int) -> None:
    values = column(missing=missing)
    if as_type == "int64":
        values = values.astype("Int64")
    elif as_type == "ordered":
        values = values.astype(pd.CategoricalDtype(LABELS[::-1], ordered=True))
    else:
        values = values.astype(as_type)
    kind = OrderedTransformer if as_type == "ordered" else CategoricalTransformer
    transformer = kind(rare_threshold=0.5).fit(values)
    assert transformer.width_ <= 42
    restored = kind.from_dict(json.loads(json.dumps(transformer.to_dict())))
    matrix = transformer.transform(values)
    for one in (transformer, restored):
        pd.testing.assert_series_equal(one.inverse_transform(matrix), values)
    wild = np.random.default_rng(1).normal(size=(300, transformer.width_))
    assert set(restored.inverse_transform(wild).dropna()) <= set(values.dropna())


def test_up_to_256_values_are_one_hot() -> None:
    few = column()[lambda c: c.isin(LABELS[:256])].reset_index(drop=True)
    assert CategoricalTransformer(rare_threshold=0).fit(few).width_ == 256
    assert CategoricalTransformer(rare_threshold=0).fit(column()).width_ == 40


def test_a_value_of_few_records_is_not_kept() -> None:
    values = pd.concat([column(), pd.Series(["00399x"] * 4 + ["99999"])], ignore_index=True)
    transformer = CategoricalTransformer().fit(values)
    decoded = transformer.inverse_transform(transformer.transform(values))
    assert "99999" not in set(decoded)
    assert "00399x" not in json.dumps(transformer.to_dict())
    assert set(decoded) <= set(column())
    pooled = CategoricalTransformer(rare="pool").fit(values)
    decoded = pooled.inverse_transform(pooled.transform(values))
    assert (decoded == "other").sum() == 5


def test_rare_values_of_a_public_list_come_out_whether_records_hold_them_or_not() -> None:
    real = column()[lambda c: c < "00200"]
    lonely = pd.Series(["00207", "00213", "00222", "00222", "00228", "00391"])
    values = pd.concat([real, lonely], ignore_index=True)
    transformer = CategoricalTransformer(categories=LABELS).fit(values)
    matrix = transformer.transform(pd.Series(["00213"] * 5000))
    decoded = CategoricalTransformer.from_dict(transformer.to_dict()).inverse_transform(matrix)
    assert set(decoded) == set(LABELS[200:])  # all that no five records hold, alike
    assert decoded.value_counts().max() < 30
    exact = transformer.inverse_transform(transformer.transform(real))
    assert exact.tolist() == real.tolist()


def test_values_beyond_a_public_list_are_refused_without_being_shown() -> None:
    values = pd.concat([column(), pd.Series(["secret"] * 9)], ignore_index=True)
    with pytest.raises(ColumnKindError, match="1 of its values are not in the public") as caught:
        CategoricalTransformer(categories=LABELS).fit(values)
    assert "secret" not in str(caught.value)


def test_a_long_public_list_is_refused_under_privacy() -> None:
    listed = Categories(tuple(range(1025)))
    with pytest.raises(CardinalityError, match="1025 categories"):
        CategoricalTransformer.public_column("zip", np.dtype("int64"), listed)


@pytest.mark.parametrize("values", [LABELS[:1] * 9, LABELS[:9]], ids=["frequent", "rare"])
def test_a_single_slot_is_a_constant(values: list[str]) -> None:
    transformer = CategoricalTransformer(categories=LABELS).fit(pd.Series(values))
    assert transformer.width_ == 0
    decoded = transformer.inverse_transform(np.zeros((800, 0)))
    assert len(set(decoded)) == (1 if len(set(values)) == 1 else len(LABELS))


@pytest.mark.parametrize("listed", [5, "abc", ["a", "a"]])
def test_what_is_no_list_is_refused(listed: object) -> None:
    with pytest.raises(PrivacyParameterError, match="categories"):
        CategoricalTransformer(categories=listed).fit(pd.Series(["a"]))


@pytest.mark.parametrize("change", [{"slots": [10**12] * 400}, {"slots": [0]}, {"lost": [999]}])
def test_a_damaged_file_is_refused(change: dict[str, list[int]]) -> None:
    content = CategoricalTransformer().fit(column()).to_dict()
    content["state"] |= change
    with pytest.raises(ArtefactError):
        CategoricalTransformer.from_dict(content)


FORGOTTEN = pd.Series(["a"] * 60 + ["b"] * 30 + [f"c{i}" for i in range(200)], name="x")


def test_forgotten_text_is_redrawn_by_how_frequent_other_values_are() -> None:
    transformer = CategoricalTransformer(rare_records=5).fit(FORGOTTEN)
    decoded = transformer.inverse_transform(transformer.transform(FORGOTTEN))
    assert (decoded[:90] == FORGOTTEN[:90]).all()
    # Two thirds of 200: three standard deviations are 20.
    assert abs((decoded[90:] == "a").sum() - 133) < 20
    assert set(decoded) == {"a", "b"}


def test_what_a_forgotten_value_becomes_depends_on_nothing_but_itself() -> None:
    transformer = CategoricalTransformer(rare_records=5).fit(FORGOTTEN)
    whole = transformer.transform(FORGOTTEN)
    again = CategoricalTransformer.from_dict(json.loads(json.dumps(transformer.to_dict())))
    for start in range(90, 290, 50):
        part = FORGOTTEN.iloc[start : start + 50]
        assert np.array_equal(again.transform(part), whole[start : start + 50])


def test_forgotten_text_is_the_most_frequent_value_if_it_is_to_be_nearest() -> None:
    transformer = CategoricalTransformer(rare_records=5, rare="nearest").fit(FORGOTTEN[::-1])
    decoded = transformer.inverse_transform(transformer.transform(FORGOTTEN))
    assert set(decoded[90:]) == {"a"}


def test_forgotten_numbers_are_the_nearest_in_any_case() -> None:
    column = pd.Series([10] * 9 + [20] * 9 + [12, 19], name="x")
    for rare in ("redraw", "nearest", "pool"):
        transformer = CategoricalTransformer(rare_records=5, rare=rare).fit(column)
        decoded = transformer.inverse_transform(transformer.transform(column))
        assert decoded.tolist()[-2:] == [10, 20]


def test_text_of_which_nothing_is_left_is_other() -> None:
    column = pd.Series([f"c{i}" for i in range(9)], name="x")
    transformer = CategoricalTransformer(rare_records=5).fit(column)
    assert set(transformer.inverse_transform(transformer.transform(column))) == {"other"}
