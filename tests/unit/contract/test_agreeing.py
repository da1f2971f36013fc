"""Columns that are all modelled and made to agree: shares of a whole, times and their parts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflsynth import AutoregressiveSynthesizer, IndependentSynthesizer
from vflsynth.contract import Check
from vflsynth.contract.agreeing import Moved, Share

SHARES = Check("c == 100 - a - b")


def restored(steps, drawn):
    """Restore a table as a fitted half does: steps in turn, each column in place."""
    columns = {label: drawn[label] for label in drawn}
    for step in steps:
        columns[step.column] = step.restore(columns, drawn.index)
    return pd.DataFrame(columns)


def moved(frame, parts, least):
    """The step of a time with all its parts."""
    rules = tuple(Check(text) for text in parts)
    return replace(Moved.of(frame, rules[0], least), rules=rules)


def of_hundred(values):
    """A table of whole shares as it was trained on."""
    first = np.arange(101) % 50
    return pd.DataFrame({"a": first, "b": first, "c": 100 - 2 * first}).astype(values)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 100)] * 3), min_size=1, max_size=30))
@pytest.mark.parametrize("dtype", ["int64", "float64", "Int64"])
def test_shares_add_up_and_only_the_largest_changes_where_it_can(dtype, rows):
    steps = Share.of(of_hundred(dtype), SHARES)
    assert [step.column for step in steps] == ["c", "a", "b"]
    drawn = pd.DataFrame(rows, columns=["a", "b", "c"]).astype(dtype)
    made = restored(steps, drawn)
    assert (made.sum(axis="columns") == 100).all()
    assert (made >= 0).all(axis=None)
    for before, after in zip(drawn.to_numpy(float), made.to_numpy(float)):
        if before.max() + 100 - before.sum() >= 0:
            assert np.count_nonzero(before != after) <= 1
            assert before[before != after].tolist() in ([], [before.max()])


def test_shares_of_missing_or_negative_numbers_and_other_rules_are_none():
    frame = of_hundred("float64")
    assert Share.of(frame.assign(a=frame["a"].mask(frame.index == 3)), SHARES) == []
    assert Share.of(frame - 1, Check("c == 97 - a - b")) == []
    for text in ("c == a - b", "c == 100 + a - b", "c == 100 - 2 * a", "c <= 100 - a - b"):
        assert Check(text).shares is None


PARTS = ("month == month(t)", "weekday == weekday(t)", "hour == hour(t)", "minute == minute(t)")


@pytest.mark.parametrize("dtype", ["M8[s]", "M8[ns]", "datetime64[us, Europe/Berlin]"])
def test_a_time_is_moved_to_the_nearest_that_has_its_parts(dtype):
    rng = np.random.default_rng(0)
    seconds = pd.Series(rng.integers(1_500_000_000, 1_600_000_000, 200))
    times = pd.to_datetime(seconds, unit="s")
    own = times.dt.tz_localize("UTC").astype(dtype) if "," in dtype else times.astype(dtype)
    drawn = pd.DataFrame({"t": own, "month": rng.integers(1, 13, 200)})
    drawn["weekday"] = rng.integers(0, 7, 200)
    drawn["hour"] = rng.integers(0, 24, 200).astype(float)
    drawn["minute"] = pd.array(rng.integers(0, 60, 200), "Int64")
    drawn.loc[3, "t"], drawn.loc[4, "minute"] = pd.NaT, None
    step = moved(drawn, PARTS, 5)
    made = restored([step], drawn)
    assert made["t"].dtype == own.dtype
    assert made["t"].isna().tolist() == drawn["t"].isna().tolist()
    assert made["t"][4] == drawn["t"][4]
    first, last = (end.tz_convert("UTC").tz_localize(None) if end.tz else end for end in step.ends)
    months = pd.date_range(first.normalize().replace(day=1), last, freq="MS")
    for k in (0, 1, 50, 199):
        row, begin = drawn.loc[k], times[k].normalize().replace(day=1)
        nearest = min(months[months.month == row["month"]], key=lambda month: abs(month - begin))
        found = made["t"][k].tz_convert("UTC").tz_localize(None) if "," in dtype else made["t"][k]
        assert (found.year, found.month) == (nearest.year, nearest.month)
        assert found.day_of_week == row["weekday"]
        assert abs(found.day - times[k].day) <= 9
        clock = found.hour, found.minute, found.second
        assert clock == (row["hour"], row["minute"], times[k].second)


def test_days_that_move_to_other_months_keep_their_weekday_and_do_not_pile_up():
    days = np.arange("2023-01-01", "2023-02-01", dtype="M8[D]")
    table = pd.DataFrame({"t": days.astype("M8[s]"), "month": 2})
    ends = table.assign(t=days.astype("M8[s]") + np.timedelta64(31, "D"), month=2)
    both = pd.concat([table.assign(month=1), ends], ignore_index=True)
    step = moved(both, ["month == month(t)"], 1)
    made = restored([step], table)["t"]
    assert (made.dt.month == 2).all()
    assert (made.dt.day_of_week == table["t"].dt.day_of_week).all()
    assert made.value_counts().max() <= 2
    ordered = pd.DataFrame({"t": days[[3, 17]].astype("M8[s]"), "day": [4, 9]})
    step = moved(table.assign(day=table["t"].dt.day), ["day == day(t)"], 1)
    assert restored([step], ordered)["t"].dt.day.tolist() == [4, 9]


def test_a_time_that_cannot_have_its_parts_stays_and_tells_them():
    march = pd.DataFrame({"t": pd.date_range("2020-03-01", periods=31), "month": 3})
    step = moved(march, ["month == month(t)"], 1)
    drawn = march.assign(month=[4, *march["month"][1:]])
    assert restored([step], drawn)["t"].tolist() == march["t"].tolist()


def make_visits(n):
    """Visits of one party, whose number depends on the weekday alone, and shares of the other."""
    rng = np.random.default_rng(0)
    day = pd.Series(np.datetime64("2023-01-01", "us") + rng.integers(0, 700, n).astype("m8[D]"))
    weekday = day.dt.day_of_week
    visits = rng.poisson(np.where(weekday >= 5, 2, 30))
    shares = rng.multinomial(100, [0.2, 0.3, 0.5], n)
    keys = pd.Index([f"k{i}" for i in range(n)])
    one = pd.DataFrame({"day": day, "weekday": weekday, "visits": visits})
    other = pd.DataFrame(shares, columns=["bus", "car", "train"])
    return {"clinic": one.set_index(keys), "traffic": other.set_index(keys)}


def test_what_depends_on_a_weekday_still_does_and_days_agree():
    frames = make_visits(1500)
    synth = AutoregressiveSynthesizer(epochs=15, random_state=0, verbose=0).fit(frames)
    rows = synth.sample(1000)
    assert (rows["day"].dt.day_of_week == rows["weekday"]).all()
    assert (rows[["bus", "car", "train"]].sum(axis="columns") == 100).all()
    weekend = rows["weekday"] >= 5
    assert rows["visits"][weekend].mean() < 8
    assert rows["visits"][~weekend].mean() > 22


def test_a_weekday_can_be_asked_for_and_filled_in():
    synth = IndependentSynthesizer(random_state=0).fit(make_visits(400))
    asked = synth.sample(50, conditions={"weekday": 6})
    assert (asked["weekday"] == 6).all()
    assert (asked["day"].dt.day_of_week == 6).all()
    known = synth.sample(40).assign(weekday=pd.array([None] * 20 + [2] * 20, "Int64"))
    known["day"] = known["day"].mask(known.index >= 20)
    known[["bus", "train"]] = known[["bus", "train"]].astype("Int64")
    known["train"] = known["train"].mask(known.index % 2 == 0)
    known.loc[::3, "bus"] = None
    filled = synth.complete(known)
    assert (filled["day"].dt.day_of_week == filled["weekday"]).all()
    one_is_missing = known[["bus", "train"]].isna().any(axis="columns")
    sums = filled[["bus", "car", "train"]].sum(axis="columns")
    assert (sums[one_is_missing] == 100).all()
