"""What is exact in a table: found, kept by every synthesizer, never looked for under privacy."""

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.later import later
from tests.structured import make_structured_frames
from vflsynth import (
    AutoregressiveSynthesizer,
    ColumnContract,
    Contract,
    DPLTSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    PartyContract,
    Range,
    TableTransformer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
    load,
)
from vflsynth.columns.evidence import evidence_of_wanted
from vflsynth.columns.wanted import Wanted
from vflsynth.contract import Check, codes_among, discover, propose
from vflsynth.contract.arithmetic import _may_be_nice, nice
from vflsynth.contract.given import modelled_wanted
from vflsynth.contract.steps import Computed, Copied, Fixed, Ordered, Placed, _drawn_like
from vflsynth.contract.structure import Structure
from vflsynth.datasets import make_party_frames
from vflsynth.evaluation import detection_auc, exact_structure
from vflsynth.exceptions import InfiniteValueError, ParameterError
from vflsynth.mechanisms import DPSGD
from vflsynth.privacy import PublicSchema
from vflsynth.release import release_gate
from vflsynth.run.local import Options

TEMPLATE = TableTransformer(rare_records=5, extreme_records=5)
SMALL = {"epochs": 1, "batch_size": 64, "verbose": 0}
PLAIN = [
    IndependentSynthesizer(),
    *later(
        VFLGANSynthesizer(**SMALL),
        AutoregressiveSynthesizer(**SMALL, protocol="trained"),
        GaussianCopulaSynthesizer(),
        VertiGANSynthesizer(**SMALL),
        WGANGPSynthesizer(**SMALL),
    ),
]
NARROW = SMALL | {"protocol": "trained", "hidden": 16, "n_features": 16, "random_state": 0}
WITHIN = {
    "hospital": {
        "discharge == admission + days(stay)",
        "bmi == round(weight / (height * height), 1)",
        "diastolic <= systolic",
        "(outcome == 'home') == (missing(reason))",
        "weekday == weekday(admission)",
        "walking == 100 - rest - sports",
    },
    "insurer": {
        "total == net + tax",
        "paid == rate * periods",
        "paid <= billed",
        "fixed combinations of grade, points",
        "grade determines class",
        "points determines class",
        "(minutes == 0) == (visits == 0)",
        "until == months_after(since, term)",
        "net determines band",
    },
}
FRAMES = make_structured_frames(600, random_state=0)


def titles(frame):
    return {finding.rule.title for finding in discover(frame)}


def own(party, frames=FRAMES):
    return frames[party].drop(columns="record_id")


def rules_within():
    return [
        finding.rule.learned(own(party), 1) for party in FRAMES for finding in discover(own(party))
    ]


def with_another(frame, **columns):
    """A table and another party's, whose records are matched by their index."""
    other = pd.DataFrame(columns or {"z": np.arange(len(frame)) % 7.0 + 0.5})
    keys = pd.Index([f"k{i}" for i in range(len(frame))])
    return {"one": frame.set_axis(keys, axis=0), "two": other.set_axis(keys, axis=0)}


def fitted(frame, **parameters):
    """The simplest model of one table, beside another party's."""
    return IndependentSynthesizer(random_state=0, **parameters).fit(with_another(frame))


# -- discovery -------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", WITHIN)
def test_every_kind_of_relation_is_found_and_no_other(party):
    assert titles(own(party)) == WITHIN[party]


def test_relations_across_parties_are_found_in_the_joined_table():
    joined = FRAMES["hospital"].merge(FRAMES["insurer"], on="record_id").drop(columns="record_id")
    assert titles(joined) == set().union(*WITHIN.values()) - {"paid <= billed"} | {
        "billed == fee + paid"
    }


def test_further_forms():
    rng = np.random.default_rng(0)
    day = np.datetime64("2020-01-01", "s") + rng.integers(0, 10**8, 500).astype("m8[s]")
    later = day + rng.integers(0, 10**7, 500).astype("m8[s]")
    frame = pd.DataFrame({"day": day, "later": later})
    frame["whole"] = (frame["later"] - frame["day"]).dt.days
    frame["net"] = rng.gamma(3, 30, 500).round(2)
    frame["vat"] = (0.19 * frame["net"]).round(2)
    frame["monthly"] = (frame["net"] / 12).round(2)
    frame["part"] = rng.integers(1, 50, 500)
    frame["percent"] = (frame["part"] / frame["net"] * 100).round(1)
    frame["power"] = (frame["part"] * frame["net"] / 9549).round(5)
    people = np.random.default_rng(1).normal([171, 75], [9, 14], (500, 2))
    frame["height"], frame["weight"] = people[:, 0].round(), people[:, 1].round(1)
    frame["bmi"] = (frame["weight"] / (frame["height"] / 100) ** 2).round(1)
    a, b = rng.integers(0, 4, (2, 500))
    frame["a"], frame["b"] = np.array(list("wxyz"))[a], np.array(list("klmn"))[b]
    frame["both"] = np.array(list("01234567"))[(a * 3 + b * 5) % 8]
    frame["again"] = frame["a"]
    assert titles(frame) == {
        "whole == (later - day) // days(1)",
        "vat == round(net * 0.19, 2)",
        "monthly == round(net / 12, 2)",
        "percent == round(part / net * 100, 1)",  # part == round(net * percent * 0.01, 0) as well
        "power == round(net * part / 9549, 5)",
        # In centimetres, with a factor of 10,000, the last digit may be another.
        "bmi == round(weight / ((height / 100) * (height / 100)), 1)",
        "a, b determine both",
        "a, both determine b",
        "b, both determine a",
        "again == a",
    }


def test_further_sums_digits_and_parts_of_times():
    rng = np.random.default_rng(0)
    time = np.datetime64("2019-02-27", "m") + rng.integers(0, 2_000_000, 500).astype("m8[m]")
    frame = pd.DataFrame({"time": pd.Series(time.astype("M8[s]"))})
    frame["quarter"] = frame["time"].dt.quarter
    frame["weekend"] = frame["time"].dt.day_of_week >= 5
    frame["clock"] = frame["time"].dt.hour * 100 + frame["time"].dt.minute
    frame["born"] = frame["time"] - pd.to_timedelta(rng.integers(0, 30_000, 500), unit="D")
    frame["age"] = [
        (t.year - b.year) - ((t.month, t.day, t.time()) < (b.month, b.day, b.time()))
        for t, b in zip(frame["time"], frame["born"])
    ]
    frame["joined"] = frame["born"] + pd.to_timedelta(rng.integers(0, 4000, 500), unit="D")
    frame["months"] = frame["joined"].dt.to_period("M").astype("int64")
    frame["months"] -= frame["born"].dt.to_period("M").astype("int64")
    frame["months"] -= frame["joined"].dt.day < frame["born"].dt.day
    frame["begun"] = 20180000 + 100 * rng.integers(1, 13, 500) + rng.integers(1, 29, 500)
    frame["on"] = frame["begun"] % 100
    parts = rng.gamma(2, 30, (500, 4)).round(2)
    frame[["a", "b", "c", "d"]] = parts
    frame["all"] = parts.sum(axis=1).round(2)
    exams = rng.integers(0, 101, (500, 2))
    frame["oral"], frame["written"] = exams.T
    frame["mark"] = (0.4 * exams[:, 0] + 0.6 * exams[:, 1]).round(1)
    frame["later"] = frame["oral"] + 7
    frame["pieces"], frame["price"] = rng.integers(1, 9, 500), rng.gamma(3, 9, 500).round(2)
    frame["less"] = rng.choice([0, 5, 10, 25], 500)
    frame["due"] = frame["pieces"] * frame["price"] * (1 - frame["less"] / 100)
    frame["due"] = frame["due"].round(2)
    frame["since"] = frame["begun"] % 365
    frame["logarithm"] = np.log(frame["due"]).round(4)
    frame["root"] = np.sqrt(frame["all"])
    frame["delay"] = rng.integers(-20, 300, 500)
    minutes = frame["time"].dt.hour * 60 + frame["time"].dt.minute + frame["delay"]
    frame["left"] = minutes % 1440 // 60 * 100 + minutes % 60
    assert titles(frame) - {"born <= joined", "born <= time"} == {
        "quarter == (month(time) + 2) // 3",
        "weekend == (weekday(time) >= 5)",
        "age == years_between(born, time)",
        "months == months_between(born, joined)",
        "on == begun % 100",
        "all == a + b + c + d",
        "mark == oral * 0.4 + written * 0.6",
        "later == oral + 7",
        "due == round(pieces * price * (1 - less / 100), 2)",
        "since == begun % 365",
        "logarithm == round(log(due), 4)",
        "root == sqrt(all)",
        "left == clock_of((minutes_of(clock) + delay) % 1440)",
    }


def test_numbers_are_computed_otherwise_for_each_label_and_beyond_a_limit():
    rng = np.random.default_rng(0)
    plan, zone = rng.choice(["day", "night", "green"], 2000), rng.choice(["A", "B"], 2000)
    insured = rng.random(2000) < 0.4
    frame = pd.DataFrame({"plan": plan, "zone": zone, "insured": insured})
    frame["kwh"], frame["hours"] = rng.integers(100, 9000, 2000), rng.integers(20, 61, 2000)
    own = frame["plan"].map({"day": 9.5, "night": 7.25, "green": 9.5})
    rate = frame["plan"].map({"day": 0.312, "night": 0.268, "green": 0.335})
    frame["bill"] = (own + rate * frame["kwh"]).round(2)
    part = frame["plan"].map({"day": 1.06 / 12, "night": 1, "green": 0.26125})
    frame["instalment"] = (frame["bill"] * part).round(2)
    frame["weight"], frame["volume"] = rng.gamma(3, 9, (2, 2000)).round(1)
    frame["charged"] = frame[["weight", "volume"]].max(axis=1)
    of_both = np.where(zone == "A", 1.5, 2.5) * np.where(plan == "night", 3, 1)
    frame["freight"] = (4 + of_both * frame["charged"]).round(2)
    frame["value"] = rng.integers(1, 5000, 2000)
    frame["premium"] = np.where(insured, (0.012 * frame["value"]).round(2), 0)
    frame["claim"], frame["own"] = rng.gamma(2, 400, 2000).round(2), rng.choice([0, 250, 500], 2000)
    frame["paid"] = (frame["claim"] - frame["own"]).clip(lower=0)
    frame["normal"] = frame["hours"].clip(upper=40)
    frame["begun"] = np.datetime64("2024-01-01") + rng.integers(0, 900, 2000).astype("m8[D]")
    months = frame["plan"].map({"day": 12, "night": 12, "green": 24})
    frame["until"] = [b + pd.DateOffset(months=m) for b, m in zip(frame["begun"], months)]
    frame["asked"] = frame["until"] - pd.to_timedelta(np.where(zone == "A", 30, 90), unit="D")
    frame["tax"] = np.maximum(0.1 * frame["claim"], 0.22 * frame["claim"] - 72).round(2)
    frame["fee"] = np.minimum(0.05 * frame["claim"], 0.02 * frame["claim"] + 15).round(2)
    frame["apart"] = (frame["weight"] - 20.5).abs().round(1)
    frame["rebate"] = rng.choice([0, 0.02, 0.05], 2000)
    frame["due"] = (frame["claim"] * (1 - frame["rebate"])).round(2)
    frame["heavy"] = frame["weight"] > frame["volume"]
    frame["state"] = np.where(frame["kwh"] > frame["value"], "more", "less")
    frame["some"], frame["more"] = rng.integers(0, 8, 2000), rng.integers(0, 90, 2000)
    frame["sum"] = frame["some"] + frame["more"]  # and no case of the few
    kinds = ("case", "comparison", "dates", "extreme", "product")
    assert {f.rule.title for f in discover(frame) if f.kind in kinds} == {
        "bill == round(case(plan, 'green', kwh * 0.335 + 9.5, 'night', kwh * 0.268 + 7.25, "
        "kwh * 0.312 + 9.5), 2)",
        "instalment == round(case(plan, 'green', bill * 0.26125, 'night', bill, "
        "bill * 1.06 / 12), 2)",
        "freight == case(plan, 'night', case(zone, 'B', charged * 7.5 + 4, charged * 4.5 + 4), "
        "case(zone, 'B', charged * 2.5 + 4, charged * 1.5 + 4))",
        "premium == round(case(insured, True, value * 0.012, 0.0), 2)",
        "charged == max(weight, volume)",
        "paid == max(claim - own, 0.0)",
        "normal == min(hours, 40)",
        "heavy == (volume < weight)",
        "state == case(value < kwh, True, 'more', 'less')",
        "until == months_after(begun, case(plan, 'green', 24, 12))",
        "until == asked + days(case(zone, 'B', 90, 30))",
        "tax == round(max(claim * 0.1, claim * 0.22 - 72), 2)",
        "fee == round(min(claim * 0.05, claim * 0.02 + 15), 2)",
        "apart == max(20.5 - weight, weight - 20.5)",
        "due == round(claim * (1 - rebate), 2)",
    }


def test_what_least_squares_cannot_tell_is_in_no_sum():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 101, (1500, 2)), columns=["oral", "written"])
    frame["height"] = rng.normal(170, 9, 1500).round(1)
    frame["span"] = (0.98 * frame["height"] + rng.normal(0, 0.5, 1500)).round(1)
    frame["mark"] = (0.3 * frame["oral"] + 0.7 * frame["written"]).round()
    assert titles(frame) - {"span <= height"} == {"mark == round(oral * 0.3 + written * 0.7, 0)"}


def test_no_label_of_few_records_has_a_rule():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"net": rng.gamma(2, 90, 900).round(2), "on": np.datetime64("2024-01-01")})
    frame["country"] = np.r_[rng.choice(["A", "B"], 897), ["few"] * 3]
    rate = frame["country"].map({"A": 0.2, "B": 0.07, "few": 0.0})
    frame["tax"] = (frame["net"] * rate).round(2)
    frame["on"] += pd.to_timedelta(rng.integers(0, 99, 900), unit="D")
    days = frame["country"].map({"A": 30, "B": 14, "few": 3})
    frame["due"] = frame["on"] + pd.to_timedelta(days, unit="D")
    found = {f.rule.repaired_column for f in discover(frame)}
    assert not found & {"tax", "due"}
    assert {"tax", "due"} <= {f.rule.repaired_column for f in discover(frame[:897])}


def test_labels_that_no_rule_can_say_have_none():
    rng = np.random.default_rng(0)
    days = np.array(["2020-01-01", "2021-01-01"], "M8[s]")
    for labels in (days, np.array([-np.inf, 2.5]), np.array([-1, 4])):
        of = rng.integers(0, 2, 400)
        frame = pd.DataFrame({"of": labels[of], "net": rng.gamma(2, 90, 400).round(2)})
        frame["tax"] = (frame["net"] * np.array([0.2, 0.07])[of]).round(2)
        frame["on"] = np.datetime64("2022-01-01") + rng.integers(0, 99, 400).astype("m8[D]")
        frame["due"] = frame["on"] + pd.to_timedelta(np.array([30, 14])[of], unit="D")
        frame["shown"] = labels[(frame["net"] < frame["net"].shift(fill_value=9)).astype(int)]
        assert ("tax" in {f.rule.repaired_column for f in discover(frame)}) == (labels[1] == 4)
    frame["capped"] = frame["net"].where(frame["net"] > 60, -np.inf)
    frame["long"] = np.where(frame["of"] == 4, "x" * 900, rng.choice(["v", "w"], 400))
    frame["longer"] = np.where(frame["of"] == 4, "x" * 1500, rng.choice(["y", "z"], 400))
    frame[["x" * 900, "y" * 900]] = np.stack([frame["net"], 2 * frame["net"]], axis=1)
    discover(frame)


def test_few_zeros_and_gaps_fix_other_columns_and_no_number_has_two_classes():
    rng = np.random.default_rng(0)
    words = np.where(np.arange(1000) < 30, 0.0, rng.gamma(3, 90, 1000).round(1))
    frame = pd.DataFrame(
        {"words": words, "links": np.where(words == 0, 0, 1 + rng.poisson(4, 1000))}
    )
    frame["mood"] = np.where(words == 0, np.nan, rng.normal(size=1000))
    frame["size"] = np.where(words > 250, "long", "short")
    found = titles(frame)
    assert {"words == 0.0 => links == 0", "(words == 0.0) == (missing(mood))"} & found
    assert "words determines size" in found
    border = frame["words"].sort_values().iloc[600]
    frame.loc[[100, 101], "words"], frame["size"] = border, np.where(frame["words"] > border, 1, 0)
    frame.loc[100:101, "size"] = [0, 1]
    assert "words determines size" not in titles(frame)


def test_a_time_may_lie_behind_two_others():
    rng = np.random.default_rng(0)
    begun = np.datetime64("2020-01-01", "us") + rng.integers(0, 900, 400).astype("m8[D]")
    days, before = rng.integers(0, 90, (2, 400))
    frame = pd.DataFrame({"begun": begun, "days": days, "ended": begun + days.astype("m8[D]")})
    frame["told"], frame["before"] = frame["ended"] - pd.to_timedelta(before, unit="D"), before
    rules = {"ended == begun + days(days)", "ended == told + days(before)"}
    assert rules <= titles(frame)
    rows = fitted(frame).sample(200)
    for rule in rules:
        assert Check(rule).keeps(rows).all()


def test_numbers_beyond_what_can_be_added_up_are_looked_at():
    rng = np.random.default_rng(0)
    beyond = {
        "large": rng.normal(size=60) * 1e300,
        "tiny": rng.normal(size=60) * 1e-300,
        "whole": rng.integers(-(2**63), 2**63 - 1, 60),
        "huge": rng.integers(0, 2**63, 60).astype("uint64") * np.uint64(2),
        "infinite": np.where(rng.random(60) < 0.1, np.inf, rng.normal(size=60)),
        "far": np.array(["0001-01-01", "9999-12-31"], "M8[s]")[rng.integers(0, 2, 60)],
        "nothing": np.full(60, np.nan),
    }
    usual = {"count": rng.integers(0, 50, 60), "share": rng.random(60)}
    for one, other in combinations(beyond, 2):
        frame = pd.DataFrame(usual | {one: beyond[one], other: beyond[other]})
        assert discover(frame) == []


@pytest.mark.parametrize("seed", [0, *later(1, 2)])
def test_nothing_is_found_by_chance(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([60, 300, 2000]))
    u = rng.normal(size=n)
    numbers = {f"x{i}": u + rng.normal(size=n) for i in range(6)}
    counts = {f"n{i}": rng.poisson(np.exp(1 + u / 2)) for i in range(6)}
    flags = {f"f{i}": (u + rng.normal(size=n) > 1).astype(int) for i in range(4)}
    labels = {f"c{i}": rng.choice(list("abcde"), n, p=[0.6, 0.2, 0.1, 0.06, 0.04]) for i in "12"}
    mostly = {"zero": np.where(rng.random(n) < 0.8, 0.0, rng.gamma(2, 10, n).round(2))}
    frame = pd.DataFrame(numbers | counts | flags | labels | mostly)
    assert discover(frame) == []
    assert codes_among(frame) == {}
    for party in make_party_frames(400, 2, random_state=seed).values():
        assert discover(party.drop(columns="record_id")) == []


def test_what_nearly_all_records_keep_is_told_with_its_share():
    frame = own("insurer").copy()
    frame.loc[frame.index[:3], "total"] += 1.0
    assert "total == net + tax" not in titles(frame)
    found = {f.rule.title: f for f in discover(frame, nearly=True)}["total == net + tax"]
    assert found.share == pytest.approx(597 / 600)
    assert "99.50% of the 600" in str(found)


def test_dependencies_and_values_that_nearly_hold_are_told_with_their_share():
    frame = own("insurer")
    assert {f.rule.title for f in discover(frame, nearly=True)} == titles(frame)
    frame.loc[frame.index[:3], "points"] = [30, 110, 30]
    frame.loc[frame["minutes"].nlargest(1).index, "visits"] = 0
    frame["billed twice"] = frame["billed"].where(frame.index > 3, 0.0)
    found = {f.rule.title: f.share for f in discover(frame, nearly=True) if not f.is_exact}
    assert found["fixed combinations of grade, points"] == pytest.approx(597 / 600, abs=0.002)
    assert 0.99 <= found["points determines class"] < 1.0
    assert 0.98 < found["(minutes == 0) == (visits == 0)"] < 1.0
    assert found["billed == col('billed twice')"] == pytest.approx(596 / 600)
    assert "minutes == 0 => visits == 0" in titles(frame)


def test_orders_that_follow_from_other_relations_are_not_told():
    rng = np.random.default_rng(0)
    a, b, slack = rng.integers(1, 50, (3, 800))
    claims = np.where(a < 25, 0, b)
    paid = np.where(claims == 0, 0, claims + rng.integers(40, 500, 800))
    frame = pd.DataFrame({"a": a, "b": b, "sum": a + b, "more": a + b + slack})
    assert titles(frame) == {"sum == a + b", "sum <= more"}  # so is a <= more
    frame = pd.DataFrame({"claims": claims, "paid": paid + 1000 * (claims > 0)})
    assert titles(frame) == {"(claims == 0) == (paid == 0)"}
    assert "claims <= paid" in titles(frame.assign(paid=claims + a % 7 * (claims > 0)))


def test_no_factor_that_is_nice_is_left_out_before_it_is_looked_at():
    few = np.outer(np.arange(1, 1000), 10.0 ** np.arange(-9, 9)).ravel()
    factors = np.concatenate([few * (1 + off) for off in (0, 9.9e-6, -9.9e-4, 3e-3)])
    factors = np.concatenate([factors, 1 / factors, -factors])
    left, short = _may_be_nice(factors), [nice(float(f))[0] is not None for f in factors[::7]]
    assert left[::7][short].all()
    assert left.mean() < 0.8


def test_codes_are_told_from_numbers_by_their_neighbours():
    rng = np.random.default_rng(0)
    n = 3000
    place = rng.integers(0, 70, n)
    x, y = place % 10 + rng.random(n), place // 10 + rng.random(n)
    age = rng.integers(18, 88, n)
    frame = pd.DataFrame(
        {
            "scattered": rng.permutation(900)[:70][place],
            "by row": place + 5,  # in order, but its end lies at the other side of the area
            "x": x,
            "y": y,
            "age": age,
            "wealth": age * 10 + rng.normal(size=n),
            "group": np.array(["young", "middle", "old"])[np.digitize(age, [40, 65])],
        }
    )
    assert set(codes_among(frame)) == {"scattered", "by row"}
    assert "age determines group" in titles(frame)


@pytest.mark.data
@pytest.mark.slow
def test_real_tables_have_the_relations_that_they_are_known_for():
    folder = Path(os.environ["VFLSYNTH_DATA"])
    red = pd.read_csv(folder / "winequality-red.csv", sep=None, engine="python")
    white = pd.read_csv(folder / "winequality-white.csv", sep=None, engine="python")
    assert titles(red) == {"col('free sulfur dioxide') <= col('total sulfur dioxide')"}
    assert titles(white) == set()
    adult = pd.read_parquet(folder / "adult.parquet")
    assert titles(adult) == {
        "fixed combinations of education, education-num",
        "workclass == '?' => occupation == '?'",
        "occupation == 'Priv-house-serv' => workclass == 'Private'",
    }
    houses = pd.read_parquet(folder / "california-housing.parquet")
    assert titles(houses) == {"total_bedrooms <= total_rooms"}
    assert codes_among(red) == codes_among(white) == codes_among(houses) == {}


# -- modelling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("synthesizer", PLAIN, ids=lambda s: type(s).__name__)
def test_every_sampled_row_keeps_what_is_exact_within_a_party(synthesizer, tmp_path):
    model = synthesizer.set_params(random_state=0).fit(FRAMES, on="record_id")
    model.save(tmp_path / "model")
    table = load(tmp_path / "model").sample(400)
    for rule in rules_within():
        assert rule.keeps(table).all(), rule.title
    for party in FRAMES:
        assert table[own(party).columns].dtypes.equals(own(party).dtypes)
    assert model.parties_["hospital"].transformer.kinds_["ward"] == "categorical"
    assert not {"total", "points", "class", "paid"} & set(
        model.parties_["insurer"].transformer.kinds_
    )


def test_without_it_rows_break_everything():
    model = IndependentSynthesizer(random_state=0, structure="ignore").fit(FRAMES, on="record_id")
    table = model.sample(400)
    assert all(rule.keeps(table).mean() < 0.99 for rule in rules_within())
    assert model.parties_["hospital"].preparation is None
    with pytest.raises(ParameterError, match="structure"):
        IndependentSynthesizer(structure="some").fit(FRAMES, on="record_id")


def test_missing_values_stay_where_they_belong():
    rng = np.random.default_rng(0)
    low = rng.normal(0, 10, 800).round(1)
    frame = pd.DataFrame({"low": low, "high": low + rng.gamma(2, 5, 800).round(1)})
    frame["net"], frame["tax"] = rng.integers(1, 99, (2, 800)).astype("float")
    frame["total"] = frame["net"] + frame["tax"]
    frame.loc[rng.random(800) < 0.3, "high"] = np.nan
    frame.loc[rng.random(800) < 0.2, ["tax", "total"]] = np.nan
    frame.loc[rng.random(800) < 0.1, "total"] = np.nan
    open_ = rng.random(800) < 0.4
    closed = pd.Series(np.datetime64("2020-01-01") + rng.integers(0, 900, 800).astype("m8[D]"))
    frame["state"], frame["closed"] = np.where(open_, "open", "shut"), closed.mask(open_)
    table = fitted(frame).sample(2000)
    known = table.dropna(subset=["low", "high"])
    assert (known["high"] >= known["low"]).all()
    assert table["high"].isna().mean() == pytest.approx(0.3, abs=0.05)
    sums = table.dropna(subset=["net", "tax", "total"])
    assert np.allclose(sums["total"], sums["net"] + sums["tax"])
    assert 0.2 < table["total"].isna().mean() < 0.5
    assert ((table["state"] == "open") == table["closed"].isna()).all()


def ordered_tables():
    """Tables of a column that is never beyond another one, which is rounded otherwise."""
    rng, n = np.random.default_rng(2), 400
    low, away = rng.lognormal(3, 1, n).round(2), rng.lognormal(3, 1.5, n)
    yield "cents", pd.DataFrame({"low": low, "high": (low + away).round(2)}), 0.01
    yield "hundreds", pd.DataFrame({"low": low, "high": np.ceil((low + away) / 100) * 100}), 100
    yield "down", pd.DataFrame({"low": -np.ceil((low + away) / 100) * 100, "high": -low}), 100
    whole = rng.integers(0, 5000, n)
    fifties = -(-(whole + rng.integers(0, 900, n)) // 50) * 50
    yield "whole", pd.DataFrame({"low": whole, "high": fifties}).convert_dtypes(), 50
    mixed = pd.DataFrame({"low": whole, "high": (whole + away).round(2)})
    yield "broken", mixed, 0.01
    yield "broken, nullable", mixed.convert_dtypes(), 0.01
    start = pd.Timestamp("2024-03-01 10:31") + pd.to_timedelta(rng.integers(0, 10**6, n), "s")
    end = (start + pd.to_timedelta(away, "D")).ceil("D").astype(start.dtype)
    yield "days", pd.DataFrame({"low": start, "high": end}), pd.Timedelta(days=1).value


@pytest.mark.parametrize(("name", "frame", "step"), list(ordered_tables()))
def test_a_column_in_an_order_stays_rounded_as_it_is(name, frame, step):
    """What was modelled as its distance from another column lost its hundreds."""
    made = Ordered.of(frame, "low", "high", 5, of_low=name == "down")
    away = made.difference(frame).sample(frac=1.0, random_state=0, ignore_index=True)
    own = made.restore({made.by[0]: frame[made.by[0]], made.column: away}, frame.index)
    assert own.dtype == frame[made.column].dtype
    table = frame.assign(**{made.column: own})
    assert (table["low"] <= table["high"]).all()
    count = own.astype("datetime64[ns]").astype("int64") if name == "days" else own.astype(float)
    assert np.allclose(count / step, np.round(count / step))


def hard_tables():
    """Tables in which one column is in several relations, or none is free."""
    rng = np.random.default_rng(0)
    n = 2000
    a, b, minutes = rng.integers(1, 50, (3, n))
    region, status = rng.integers(0, 5, n), rng.choice(["never", "past", "now"], n)
    one, other = rng.zipf(1.6, (2, n)) % 20
    total, minutes = a + b, np.where(rng.random(n) < 0.3, 0, minutes)
    part = (total * rng.random(n)).astype(int)
    larger = total + rng.integers(0, 30, n)
    day, flag = (minutes * rng.random(n)).astype(int), rng.integers(0, 3, n)
    net, own, country = rng.gamma(2, 90, n).round(2), 50.0 * (a % 4), np.array(["D", "F"])[a % 2]
    paid = (net - own).clip(0).round(2)
    vat = (net * np.where(country == "D", 0.19, 0.2)).round(2)
    named = {f"is {k}": (flag == k).astype(int) for k in range(3)}
    return {
        "an order below a total": {"a": a, "b": b, "total": total, "part": part},
        "a broken number over a total": {"a": a, "b": b, "total": total,
                                         "cost": (total + rng.gamma(2, 9, n)).round(1)},
        "totals in order": {"a": a, "b": b, "total": total, "c": part, "d": larger - part,
                            "larger": larger},
        "a share of a total": {"a": a, "b": b, "total": total,
                               "percent": (100 * a / total).round(1)},
        "two determine one": {"region": region, "town": region * 4 + rng.integers(0, 4, n) + 100,
                              "unit": [f"{r} {rng.integers(3)}" for r in region]},
        "rare combinations": {"u": one, "v": other, "w": [f"{k}" for k in (one + other) % 20]},
        "levels of two columns": {"status": status,
                                  "packs": np.where(status == "never", 0, a),
                                  "years": np.where(status == "past", b, 0)},
        "zero where a total is": {"minutes": minutes, "day": day, "night": minutes - day,
                                  "visits": np.where(minutes == 0, 0, b)},
        "a rate by label": {"net": net, "country": country, "vat": vat,
                            "gross": (net + vat).round(2)},
        "above a limit": {"net": net, "own": own, "paid": paid, "rest": (net - paid).round(2)},
        "flags and their names": named | {"kind": [f"kind {k}" for k in flag],
                                          "n": np.where(flag == 1, 0, a)},
    }  # fmt: skip


@pytest.mark.parametrize("proposed", [False, *later(True)])
@pytest.mark.parametrize("name", hard_tables())
def test_relations_that_share_columns_are_all_kept(name, proposed):
    frame = pd.DataFrame(hard_tables()[name])
    found = discover(frame)
    contract = propose({"one": frame})[0] if proposed else None
    table = fitted(frame, contract=contract).sample(1500)
    assert len(found) >= 2
    assert {f.rule.title for f in found if not f.rule.learned(frame, 1).keeps(table).all()} == set()


def test_no_level_of_few_records_is_kept_in_the_table_of_a_dependency(tmp_path):
    rng = np.random.default_rng(0)
    town = rng.integers(0, 12, 900)
    town[:3] = 40
    frame = pd.DataFrame({"town": [f"town {t}" for t in town]})
    frame["region"] = [f"region {t % 4}" if t < 40 else "region of three" for t in town]
    model = fitted(frame)
    (step,) = model.parties_["one"].preparation.steps
    assert step.column == "region"
    assert len(step.keys) == 12
    model.save(tmp_path / "model")
    text = "".join(p.read_text() for p in (tmp_path / "model").rglob("*.json"))
    assert "region 3" in text
    assert "region of three" not in text
    assert set(model.sample(3000)["region"]) == {f"region {k}" for k in range(4)}


@pytest.mark.parametrize("column", ["packs", "drug"])
def test_no_value_of_one_person_is_copied_to_where_a_column_is_fixed(column):
    """Six in a hundred give the others a value like theirs: a copy of one would count as many."""
    rng = np.random.default_rng(0)
    treated = rng.random(1000) < 0.06
    frame = pd.DataFrame({"smoking": np.where(treated, rng.choice(["now", "once"], 1000), "never")})
    frame["age"] = rng.integers(20, 90, 1000)
    frame["packs"] = np.where(treated, rng.integers(1, 6, 1000), 0)
    frame["drug"] = np.where(treated, rng.choice(["abc", "def"], 1000), "-").astype(object)
    secret = {"packs": 77, "drug": "ORPHAN"}[column]
    frame.loc[np.flatnonzero(treated)[7], column] = secret
    model = fitted(frame[["smoking", "age", column]])
    (step,) = model.parties_["one"].preparation.steps
    assert isinstance(step, Fixed)
    table = model.sample(20_000)
    assert secret not in set(table[column])
    assert ((table["smoking"] == "never") == (table[column] == frame[column].mode()[0])).all()
    others = set(frame[column]) - {secret}
    assert others - set(table[column]) <= {v for v in others if (frame[column] == v).sum() < 5}


LIKE = {
    "whole": pd.Series(np.arange(300) * 10, dtype="int64"),
    "unsigned": pd.Series(np.arange(300, dtype="uint64") + np.uint64(2**63)),
    "missing": pd.Series([*range(300), *[None] * 100], dtype="Int64"),
    "decimals": pd.Series(np.random.default_rng(0).lognormal(6, 0.5, 300).round(2)),
    "days": pd.Series(pd.date_range("1890-01-01", periods=300, freq="37D")),
    "zone": pd.Series(pd.date_range("2020-01-01", periods=300, freq="D", tz="Europe/Berlin")),
    "durations": pd.Series(pd.to_timedelta(np.arange(300), unit="s")),
}


@pytest.mark.parametrize("name", LIKE)
def test_what_is_drawn_like_numbers_of_one_record_each_lies_between_them(name):
    column = LIKE[name].sample(frac=1.0, random_state=0)
    made = _drawn_like(column, 5000, 5)
    assert made.dtype == column.dtype
    known = column.dropna().sort_values()
    assert known.iloc[4] <= made.min() <= made.max() <= known.iloc[-5]
    assert abs(made.isna().mean() - column.isna().mean()) < 0.02
    if name in ("days", "zone"):
        assert (made.dt.normalize() == made).all()
    if name == "decimals":
        assert (made.round(2) == made).all()
        assert made.isin(known).mean() < 0.05
    if name == "whole":
        assert (made % 10 == 0).all()


def test_what_is_drawn_like_others_is_what_enough_records_have():
    labels = pd.Series(["a"] * 60 + ["b"] * 30 + ["c"] * 4 + ["d", None, None])
    made = _drawn_like(labels, 9000, 5)
    assert set(made.dropna()) == {"a", "b"}
    assert abs((made == "a").mean() - (95 / 97) * 60 / 90) < 0.02
    assert _drawn_like(labels.tail(5), 10, 5) is None
    assert _drawn_like(labels.head(0), 10, 5) is None
    assert _drawn_like(pd.Series([1.5, 2.5, 3.5]), 10, 5) is None
    numbers = pd.Series([3] * 50 + [900] * 50 + [55], dtype="int64")
    assert set(_drawn_like(numbers, 1000, 5)) == {3, 900}


def test_numbers_that_were_never_seen_belong_to_the_run_around_them():
    age = np.repeat(np.arange(20, 80, 3), 30)
    group = np.array(["young", "middle", "old"])[np.digitize(age, [40, 60])]
    (step,) = Structure.of(pd.DataFrame({"age": age, "group": group}), TEMPLATE).steps
    asked = pd.Series([10, 37, 42, 57, 63, 99])
    made = step.restore({"age": asked}, asked.index).tolist()
    assert made == ["young", "young", "middle", "middle", "old", "old"]


def places(n, seed=0, n_codes=30):
    """Records at two coordinates, and the code of the nearest of some points."""
    rng = np.random.default_rng(seed)
    points = np.random.default_rng(1).random((n_codes, 2))
    spots = rng.random((n, 2))
    nearest = ((spots[:, None] - points) ** 2).sum(axis=-1).argmin(axis=1)
    codes = np.random.default_rng(2).permutation(900)[:n_codes] + 100
    frame = pd.DataFrame({"code": codes[nearest], "area": [f"area {k}" for k in nearest]})
    return frame.assign(x=10 * spots[:, 0], y=spots[:, 1], other=rng.normal(size=n))


def within(table):
    """Say which rows have the code of the nearest point."""
    points = np.random.default_rng(1).random((30, 2))
    spots = np.stack([table["x"] / 10, table["y"]], axis=1)
    nearest = ((spots[:, None] - points) ** 2).sum(axis=-1).argmin(axis=1)
    codes = np.random.default_rng(2).permutation(900)[:30] + 100
    return (codes[nearest] == table["code"]).to_numpy()


def test_codes_are_drawn_where_their_area_is():
    frame = places(3000).drop(columns="area")
    model = fitted(frame)
    table = model.sample(3000)
    assert within(frame).all()
    assert within(table).mean() > 0.9  # in one of thirty areas, by chance 4 %
    assert set(table["code"]) <= set(frame["code"])
    assert table["code"].value_counts(normalize=True).std() < 0.05
    given = model.sample(50, conditions={"code": int(frame["code"][0])})
    assert (given["code"] == frame["code"][0]).all()


def test_a_label_that_determines_the_code_follows_its_area():
    table = fitted(places(2000)).sample(1000)
    assert table.groupby("code")["area"].nunique().max() == 1
    assert within(table).mean() > 0.85


def test_areas_hold_no_label_of_few_records(tmp_path):
    """One record's label is learned of nowhere, and so it is written down nowhere."""
    frame = places(2000).drop(columns="area")
    frame["code"] = [f"farm {k}" for k in frame["code"]]
    frame.loc[7, "code"] = "the one farm"
    model = fitted(frame)
    assert isinstance(model.parties_["one"].preparation.steps[0], Placed)
    model.save(tmp_path / "model")
    text = "".join(p.read_text() for p in (tmp_path / "model").rglob("*.json"))
    assert "farm 1" in text
    assert "the one farm" not in text


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_label_is_moved_that_numbers_do_not_tell(share):
    frame = places(2000).drop(columns="area")
    rng = np.random.default_rng(0)
    frame["x"] = frame["x"].where(rng.random(2000) < share, 10 * rng.random(2000))
    if share:  # four groups, not areas enough
        frame["code"] = frame["code"] % 4
    found = Structure.of(frame, TEMPLATE)
    assert not any(isinstance(step, Placed) for step in found.steps)


def test_areas_leave_rows_alone_that_say_nothing():
    frame = places(2000).drop(columns="area")
    (step,) = Structure.of(frame, TEMPLATE).steps
    few = frame.head(4).assign(x=[np.nan, 3.0, 3.0, 3.0], y=0.5)
    few["code"] = pd.array([few["code"][0], None, 1, few["code"][3]], dtype="Int64")
    made = step.restore(dict(few.items()), few.index)
    assert made.astype("Int64")[[0, 1, 2]].equals(few["code"][[0, 1, 2]])
    assert within(few.tail(1).assign(code=made)).all()


def payments(n=3000, dtype="int64", seed=0):
    """Bills, and payments of which three in ten are the whole bill and two in ten are nothing."""
    rng = np.random.default_rng(seed)
    bill = np.round(rng.lognormal(7, 1, n) - 300)
    how = rng.random(n)
    paid = np.select([how < 0.3, how < 0.5], [bill.clip(0), 0.0], np.round(rng.lognormal(5, 1, n)))
    return pd.DataFrame({"bill": bill, "paid": paid}).astype(dtype)


def n_copied(table):
    return ((table["bill"] == table["paid"]) & (table["paid"] != 0)).mean()


DTYPES = ["int64", "Int64", "int32", "float32", "float64", "Float64", "uint32"]


def copies_in(frame, template=TEMPLATE):
    return Structure.of(frame, template, copies=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_that_often_equals_another_is_modelled_as_a_copy_of_it(dtype):
    frame = payments().clip(lower=0).astype(dtype) if dtype == "uint32" else payments(dtype=dtype)
    found = copies_in(frame)
    (step,) = found.steps
    assert isinstance(step, Copied)
    assert step.frequent == (0,)
    modelled = step.apply(frame, frame)
    assert (modelled["paid"] == step.mark).mean() == n_copied(frame)
    encoder = found.encoded(TEMPLATE).fit(modelled)
    decoded = encoder.inverse_transform(encoder.transform(modelled))
    made = step.restore(dict(decoded.items()), frame.index)
    assert made.dtype == frame["paid"].dtype
    rows = n_copied(decoded.assign(paid=made))
    assert abs(rows - n_copied(frame)) < 0.002  # extreme bills are drawn in
    bills = decoded["bill"].sample(frac=1.0, random_state=0, ignore_index=True)
    other = step.restore({"bill": bills, "paid": decoded["paid"]}, frame.index)
    assert other.between(0, np.sort(frame["paid"])[-5:].mean() + 1).all()  # no bill below zero


def test_a_copy_may_miss_values_and_its_mark_tells_of_no_record():
    frame = payments(dtype="Int64")
    frame["paid"] = frame["paid"].mask(np.arange(3000) % 7 == 0)
    (step,) = copies_in(frame).steps
    held = frame.copy()
    held.loc[5, "paid"] = held.loc[5, "bill"] = step.mark
    assert copies_in(held).steps[0].mark == step.mark
    modelled = step.apply(frame, frame)
    rows = np.flatnonzero(modelled["paid"].ne(step.mark).fillna(True))[:400].tolist()
    rows += np.flatnonzero(modelled["paid"].eq(step.mark).fillna(False))[:3].tolist()
    encoder = copies_in(frame).encoded(TEMPLATE).fit(modelled.iloc[rows])  # of matched records
    decoded = encoder.inverse_transform(encoder.transform(modelled.iloc[rows]))
    assert decoded["paid"].eq(step.mark).fillna(False).tolist() == [False] * 400 + [True] * 3
    made = step.restore(dict(modelled.items()), frame.index)
    high = frame["paid"].between(*step.ends) | frame["paid"].isna()
    assert made[high].equals(frame["paid"][high])
    assert made.isna().equals(frame["paid"].isna())


def test_equal_by_chance_is_no_copy():
    rng = np.random.default_rng(0)
    marks = rng.integers(0, 400, 3000)
    near = np.clip(marks + rng.integers(-1, 2, 3000), 0, 399)
    frame = pd.DataFrame({"marks": marks, "near": near})
    few = rng.integers(0, 12, 3000)  # each a bit too rare to be a state
    for label in ("some", "others"):
        frame[label] = np.where(few < 4, few, rng.integers(1, 10**6, 3000))
    frame.loc[:60, "others"] = frame.loc[60:120, "some"] = 7  # or those would be exact levels
    for own, kinds in ((frame, {}), (payments() % 200, {}), (payments(), {"paid": "categorical"})):
        template = TableTransformer(kinds=kinds or None, rare_records=5, extreme_records=5)
        assert not any(isinstance(step, Copied) for step in copies_in(own, template).steps)
    assert not Structure.of(payments(), TEMPLATE).steps
    assert not copies_in(payments(), TableTransformer(spike_share=None)).steps
    no_room = pd.Series(np.arange(300) % 128, dtype="uint8", name="b")
    assert Copied.of(no_room, "a", (), 1) is None


@pytest.mark.parametrize("factor", [1e-300, 1e303])
def test_copies_are_found_of_any_size(factor):
    frame = payments(dtype="float64")
    frame = frame.mask(frame < 0, 0.0) * factor
    (step,) = copies_in(frame).steps
    assert isinstance(step, Copied)
    made = step.restore(dict(step.apply(frame, frame).items()), frame.index)
    inside = frame["paid"].between(*step.ends)
    assert made[inside].equals(frame["paid"][inside])


def test_infinite_values_are_refused_in_the_words_of_the_table():
    frame = payments(dtype="float64")
    frame.loc[3, "paid"] = frame.loc[7, ["bill", "paid"]] = np.inf
    with pytest.raises(InfiniteValueError, match="party 'one', column 'bill': 1 infinite"):
        AutoregressiveSynthesizer(**NARROW).fit(with_another(frame))


def test_one_model_learns_copies_and_knows_of_them_when_asked():
    frame = payments(1000)
    frames = with_another(frame, z=np.arange(1000) % 3.5)
    other = VFLGANSynthesizer(**SMALL, random_state=0).fit(frames)
    assert other.parties_["one"].preparation is None
    model = AutoregressiveSynthesizer(**NARROW | {"epochs": 12}).fit(frames)
    table = model.sample(3000)
    assert abs(n_copied(table) - n_copied(frame)) < 0.06
    assert table["paid"].min() == 0  # no number near a mark: of fewer than a spike's 300 records
    table = model.sample(50, conditions={"paid": Range(3000, None)})
    assert (table["paid"] >= 3000).all()
    half = model.parties_["one"]
    wanted = modelled_wanted(half.preparation, {"paid": Wanted(low=900)}, ())
    assert evidence_of_wanted(half.transformer, wanted).allowed[1].tolist() == [[True, True]]
    assert n_copied(table) > 0.8  # other payments are smaller
    given = pd.DataFrame({"bill": [1000, 1000, 700], "paid": [1000, 40, None]})
    done = model.complete(given)
    assert done["bill"].tolist() == [1000, 1000, 700]
    assert done["paid"].tolist()[:2] == [1000, 40]
    many = model.complete(pd.DataFrame({"bill": [1111] * 500}))
    assert 0.15 < (many["paid"] == 1111).mean() < 0.5
    alone = model.complete(pd.DataFrame({"paid": [777] * 100}))
    assert (alone["paid"] == 777).all()
    bills = pd.DataFrame({"bill": [900] * 2, "paid": [900, 901], "z": [1.0] * 2})
    whole, near = model.log_prob(bills)
    assert whole > near + 2  # a bill is paid as often as all other amounts together
    with pytest.raises(ParameterError, match="'bill'"):
        model.log_prob(bills.drop(columns="bill"))


def test_a_step_undoes_what_another_did():
    frame = own("insurer")
    steps = Structure.of(frame, TEMPLATE).steps
    modelled = frame
    for step in steps:
        modelled = step.apply(frame, modelled)
    columns = {label: modelled[label] for label in modelled}
    for step in steps:
        columns[step.column] = step.restore(columns, frame.index)
    back = pd.DataFrame(columns)[frame.columns]
    high = frame["billed"].between(*np.sort(frame["billed"])[[4, -5]])  # the ends are averaged
    pd.testing.assert_frame_equal(back[high], frame[high])


def test_a_rule_across_parties_leaves_relations_within_them_as_they_are():
    contract = Contract(rules=["billed == fee + paid"])
    model = IndependentSynthesizer(random_state=0, contract=contract).fit(FRAMES, on="record_id")
    table = model.sample(300)
    assert np.allclose(table["billed"], table["fee"] + table["paid"])
    assert {rule.title for rule in rules_within() if not rule.keeps(table).all()} == set()


@pytest.mark.parametrize(("decimals", "computed"), [(0, {"copy", "total"}), (-1, {"copy"})])
def test_a_column_that_the_contract_rounds_computes_no_other(decimals, computed):
    contract = Contract({"one": PartyContract({"net": ColumnContract(decimals=decimals)})})
    rng = np.random.default_rng(0)
    net, tax = rng.integers(1, 99, (2, 300))
    frame = pd.DataFrame({"net": net, "tax": tax, "total": net + tax, "copy": tax})
    model = fitted(frame, contract=contract)
    steps = model.parties_["one"].preparation.steps
    assert {s.column for s in steps if isinstance(s, Computed)} == computed
    encoded = TableTransformer(encoders={"total": "standard"})
    model = fitted(frame, transformer=encoded)
    assert "total" in model.parties_["one"].transformer.kinds_


def test_conditions_and_given_cells_go_through_it():
    model = AutoregressiveSynthesizer(**NARROW)
    model.fit(FRAMES, on="record_id")
    table = model.sample(50, conditions={"points": 60, "total": Range(250, None)})
    assert set(table["grade"]) == {"grade d"}
    assert (table["total"] >= 250).all()
    given = pd.DataFrame({"class": ["low", "high"], "systolic": [120.0, 130.0]})
    done = model.complete(given)
    assert done["class"].tolist() == ["low", "high"]
    assert done["grade"].str[-1].tolist() <= ["c", "i"]
    for rule in rules_within():
        assert rule.keeps(done).all(), rule.title
    with pytest.raises(ParameterError, match="structure='ignore'"):
        model.log_prob(own("insurer"))


def test_records_are_as_probable_as_what_is_modelled_of_them():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, (2, 600))
    frame = pd.DataFrame({"a": np.array(list("xyz"))[a], "same": a + 5, "b": b})
    model = AutoregressiveSynthesizer(**NARROW)
    model.fit(with_another(frame, c=b))
    assert "same" not in model.parties_["one"].transformer.kinds_
    some = frame.head(20).assign(c=b[:20])
    assert np.allclose(model.log_prob(some), model.log_prob(some.drop(columns="same")))


# -- privacy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [DPSGD, PairwiseTables, LatentTree])
def test_under_privacy_nobody_looks_for_it(mechanism, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the records were searched")

    for name in ("discover", "codes_among"):
        monkeypatch.setattr(f"vflsynth.contract.structure.{name}", refuse)
    twice = pd.DataFrame({"a": np.arange(200.0) % 9, "b": np.arange(200.0) % 9})
    frames = with_another(twice, c=np.arange(200.0) % 5)
    schema = PublicSchema(bounds={"a": (0, 9), "b": (0, 9), "c": (0, 5)}, dtypes="given")
    privacy = mechanism(epsilon=1.0, delta=1e-5, public_schema=schema)
    kinds = {PairwiseTables: MixtureSynthesizer, LatentTree: DPLTSynthesizer}
    model = kinds.get(mechanism, VFLGANSynthesizer)(privacy=privacy, random_state=0)
    run = model._local_run(model.method(), frames, None, Options(), [bytes(32)])  # all are seated
    assert not run.preparations
    with pytest.raises(AssertionError, match="searched"):
        IndependentSynthesizer().fit(frames)


# -- contracts that inspect writes -----------------------------------------------------------------


def test_a_proposed_contract_computes_every_column_once_and_can_be_fitted():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (2, 500))
    first = pd.DataFrame({"a": a, "b": 2 * b + 1, "sum": a + 2 * b + 1})
    first["scaled"] = 3 * first["sum"]
    first["third"] = np.array(list("pqrstuvwxyz")[:9])[a]
    first["region"] = np.array(list("klm"))[a // 3]  # two columns determine it
    first.insert(0, "id", np.arange(500))
    second = pd.DataFrame({"id": np.arange(500), "z": rng.normal(size=500)})
    contract, reasons = propose({"one": first, "two": second}, "id")
    rules = contract.parties["one"].rules
    computed = [r.repaired_column for r in rules if r.repaired_column is not None]
    assert len(computed) == len(set(computed)) >= 3
    assert any("sum == a + b" in said for said in reasons["one"])
    model = IndependentSynthesizer(contract=contract, random_state=0)
    table = model.fit({"one": first, "two": second}, on="id").sample(100)
    assert (table["sum"] == table["a"] + table["b"]).all()


# -- the metric and the clause ---------------------------------------------------------------------


def test_the_metric_names_the_relation_that_fewest_rows_keep():
    real = own("insurer")
    synthetic = real.sample(400, random_state=0, ignore_index=True)
    synthetic.loc[:99, "total"] += 0.5
    synthetic.loc[:19, "points"] = 30
    result = exact_structure(real, synthetic)
    assert result.value == pytest.approx(0.75)
    assert result.parts["rule"].iloc[0] == "total == net + tax"
    assert result.parts["value"].is_monotonic_increasing
    assert set(result.parts["rule"]) == WITHIN["insurer"] - {"net determines band"}
    assert result.baseline == 1.0
    assert result.naive < 0.2
    plain = own("hospital")[["height", "fee"]]
    nothing = exact_structure(plain, plain)
    assert nothing.value == 1.0
    assert nothing.notes


def test_the_gate_fails_rows_that_break_what_all_real_rows_keep():
    real = own("insurer")[["net", "tax", "total"]]
    bad = real.sample(300, random_state=0, ignore_index=True)
    bad.loc[:29, "total"] += 0.5
    clause = release_gate(real, bad)["exact_structure"]
    assert clause.verdict == "failed"
    assert clause.value == pytest.approx(0.1)
    assert "10.00% of the rows break 'total == net + tax'" in clause.says
    plain = real[["net", "tax"]]
    assert release_gate(plain, plain)["exact_structure"].verdict == "not applicable"


@pytest.mark.slow
def test_boosted_trees_hardly_tell_rows_of_the_default_model_from_real_ones():
    both = make_structured_frames(8000, random_state=1)
    first = set(both["hospital"]["record_id"][::2])
    halves = [
        {party: f[f["record_id"].isin(first) == is_first] for party, f in both.items()}
        for is_first in (True, False)
    ]
    contract = Contract(rules=["billed == fee + paid"])
    model = AutoregressiveSynthesizer(random_state=0, verbose=0, contract=contract)
    model.fit(halves[0], on="record_id")
    real, other = (
        f["hospital"].merge(f["insurer"], on="record_id").drop(columns="record_id") for f in halves
    )
    table = model.sample(4000)[list(real.columns)]
    chance = detection_auc(real, other).value
    assert detection_auc(real, table).value <= chance + 0.03
    assert exact_structure(real, table).value == 1.0
