"""Rows whose values do not go together, against slow obvious code and against planted ones."""

import numpy as np
import pandas as pd
import pytest

from vflsynth.evaluation import incoherent_rows, report
from vflsynth.evaluation.coherence import LEAST_EXPECTED
from vflsynth.evaluation.page import MOST_INCOHERENT


def families(n, seed, wrong=0.0):
    """Rows of which a share has the wrong sex for the relationship."""
    rng = np.random.default_rng(seed)
    who = rng.choice(["husband", "wife", "child"], n, p=[0.5, 0.3, 0.2])
    sex = np.where(who == "husband", "male", np.where(who == "wife", "female", "male"))
    either = (who == "child") & (rng.random(n) < 0.5)
    sex = np.where(either, "female", sex)
    swapped = rng.random(n) < wrong
    other = np.where(sex == "male", "female", "male")
    age = np.where(who == "child", rng.integers(0, 18, n), rng.integers(18, 90, n))
    return pd.DataFrame({"who": who, "sex": np.where(swapped, other, sex), "age": age})


def slowly(real, synthetic):
    """Count rows that have two labels which exclude each other, one by one."""
    bad = set()
    for a in real:
        for b in real:
            for x in real[a].unique():
                for y in real[b].unique():
                    expected = (real[a] == x).sum() * (real[b] == y).sum() / len(real)
                    there = ((real[a] == x) & (real[b] == y)).sum()
                    if a != b and expected >= LEAST_EXPECTED and there <= expected / 20:
                        bad.add((a, x, b, y))
    rows = [
        any((a, row[a], b, row[b]) in bad for a in real for b in real)
        for row in synthetic.to_dict("records")
    ]
    return np.mean(rows)


@pytest.mark.parametrize("seed", range(3))
def test_it_counts_what_the_obvious_code_counts(seed):
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 4, 600)
    real = pd.DataFrame(
        {"a": base, "b": (base + rng.integers(0, 2, 600)) % 4, "c": rng.integers(0, 3, 600)}
    ).astype(str)
    synthetic = pd.DataFrame(rng.integers(0, 4, (200, 3)), columns=list("abc")).astype(str)
    result = incoherent_rows(real, synthetic)
    assert float(result) == pytest.approx(slowly(real, synthetic))
    assert 0.3 < float(result) < 0.7


def test_planted_rows_are_counted_and_named():
    real, synthetic = families(4000, 0), families(4000, 1, wrong=0.1)
    result = incoherent_rows(real, synthetic)
    assert float(result) == pytest.approx(0.08, abs=0.01)  # children may have either sex
    assert result.baseline == 0.0
    assert list(result.parts["column"]) == ["who", "sex", "age"]
    assert result.parts["most_often"].iloc[0] == "who = husband and sex = female"
    assert result.parts["value"].iloc[2] == 0.0


def test_exceptions_of_real_tables_are_no_licence():
    """Two of 4,000 real rows break the rule, as in Adult; it is one nevertheless."""
    real = pd.concat([families(4000, 0), pd.DataFrame({"who": ["husband"] * 2, "sex": ["female"] * 2, "age": [40, 50]})])  # fmt: skip # noqa: E501
    assert float(incoherent_rows(real, families(4000, 1, wrong=0.1))) > 0.07


def test_numbers_count_by_tenths_and_their_spikes_alone():
    rng = np.random.default_rng(0)
    low = rng.lognormal(size=3000)
    real = pd.DataFrame({"low": low, "high": low + rng.exponential(size=3000)})
    real.loc[::3, "low"] = 0.0  # a third has nothing, and then no level either
    real["level"] = np.where(real["low"] == 0.0, "none", "some")
    fine = incoherent_rows(real.iloc[::2], real.iloc[1::2])
    assert float(fine) < 0.01
    level = real.assign(level=rng.permutation(real["level"]))
    wrong = (level["level"] == "none") != (level["low"] == 0.0)
    assert float(incoherent_rows(real, level)) == pytest.approx(wrong.mean())
    high = real.assign(high=rng.permutation(real["high"]))
    assert float(incoherent_rows(real, high)) > 0.5 * (high["high"] < high["low"]).mean()


def test_missing_values_are_a_value():
    real = pd.DataFrame({"smokes": ["yes", "no"] * 200, "packs": [1.5, np.nan] * 200})
    synthetic = real.assign(packs=real["packs"].to_numpy()[::-1])
    assert float(incoherent_rows(real, real)) == 0.0
    assert float(incoherent_rows(real, synthetic)) == 1.0


def test_independent_columns_and_small_tables_exclude_nothing():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 5, (2000, 8))).astype(str).rename(columns=str)
    for real in (table, families(30, 0)):
        result = incoherent_rows(real, real)
        assert (result.value, result.baseline, result.naive) == (0.0, 0.0, 0.0)
        assert "go together" in result.notes[-1]


def test_fresh_rows_are_as_incoherent_as_their_baseline():
    """Of 2,000 real rows, no two tenths are common enough in one half to exclude each other."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4000, 1)) + 0.7 * rng.normal(size=(4000, 12))
    real, fresh = (pd.DataFrame(half).rename(columns=str) for half in np.split(values, 2))
    result = incoherent_rows(real, fresh)
    assert result.value > 0.1
    assert result.value == pytest.approx(result.baseline, abs=0.04)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize(("wrong", "is_said"), [(0.05, True), (0.016, False)])
def test_a_report_does_not_call_such_a_table_close(wrong, is_said):
    """Unless so few rows are wrong that it may be chance."""
    pytest.importorskip("matplotlib")
    real, synthetic = families(2000, 0), families(2000, 1, wrong=wrong)
    assert float(incoherent_rows(real, synthetic)) > MOST_INCOHERENT
    page = report(real, synthetic)
    headline = page.html.split('class="headline">')[1].split("</p>")[0]
    assert ("rows that hold together" in headline) == is_said
    assert ("most often who = husband and sex = female" in page.html) == is_said
