"""What fewer than five matched people hold is neither in samples nor in saved halves."""

import re

import numpy as np
import pandas as pd
import pytest

from tests.later import later
from vflsynth import IndependentSynthesizer
from vflsynth.contract import steps
from vflsynth.exceptions import EmptyColumnError


def _tables(seed, n, others):
    """Return tables by party, each with one structure; all numbers and days are one record's."""
    rng, size = np.random.default_rng(seed), n + others
    none = rng.permutation(size) < (0.88 if seed % 2 else 0.7) * size
    some, days = np.flatnonzero(~none[:n]), rng.choice(20_000, size, replace=False)
    number = pd.Series(
        pd.Timestamp("1990-01-01") + pd.to_timedelta(days, "D")
        if seed % 4 == 2
        else np.round(np.exp(rng.normal(9, 0.3, size)), 4)
    )
    zero = number.min() - (number.max() - number.min())
    spiked = number.where(~none, zero)
    tied = spiked.copy()
    tied[some[:3]] = number[some].sort_values().iloc[len(some) // 2]
    code = np.where(none, rng.integers(0, 2, size), rng.integers(1, 5, size))
    label = np.where(none, "none", "usual").astype(object)
    label[some[:5]], label[some[5 : 6 + seed % 4]] = "five", "SECRET"
    levels = pd.CategoricalDtype(["usual", "five", "SECRET", "none"], ordered=seed % 4 < 2)
    part = np.where(number < number.median(), "lower", "upper")
    alike = pd.Series(np.where(np.arange(size) < n, label, "SECRET other")).astype("category")
    return {
        "filled": {"label": np.where(none, "none", rng.choice(["x", "y"], size)), "number": tied},
        "labels": {"flag": np.where(none, "no", rng.choice(["y", "z"], size)),
                   "label": pd.Series(label).astype(levels)},
        "otherwise": {"code": code.astype(str), "kind": np.array(["none", "none", *"uvw"])[code],
                      "number": number.where(code > 0, zero)},
        "order": {"low": number, "high": number + (number[::-1].array - number.min()) // 4},
        "looked up": {"number": spiked,
                      "part": np.where(none, "none", part)},
        "alike": {"one": alike, "two": alike},
    }  # fmt: skip


@pytest.mark.parametrize("seed", [0, 2, *later(1)])
def test_what_few_hold_is_neither_in_samples_nor_in_halves(seed, tmp_path):
    n, others = 301, 9
    frames = {
        name: pd.DataFrame(own).add_prefix(f"{name} ").assign(id=range(n + others))
        for name, own in _tables(seed, n, others).items()
    }
    frames["rest"] = pd.DataFrame({"id": range(n), "age": np.arange(n) % 60})
    model = IndependentSynthesizer(random_state=seed).fit(frames, on="id")
    model.save(tmp_path / "model")
    written = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    numbers = set(re.findall(r"-?[\d.]+", written))
    found = ["SECRET"] if "SECRET" in written else []
    table = model.sample(4000)
    for label in table.columns.drop("age"):
        real = frames[next(name for name in frames if label.startswith(f"{name} "))][label][:n]
        few, drawn = real.value_counts().loc[lambda k: k < 5].index, table[label].value_counts()
        found += [(label, value) for value in few if drawn.get(value, 0) >= 15]
        types = getattr(table[label].dtype, "categories", ())
        found += [(label, value) for value in types if "SECRET" in str(value)]
        if real.dtype == float:  # neither a number, nor what tells it beside a common one
            common = real.mode()[0]
            found += [(label, v) for v in few if {str(v), str((v + common) / 2)} & numbers]
    assert found == []


PUBLIC = ["flu", "gout", "leprosy", "rabies"]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("rare", [*range(1, 5), "unmatched"])
def test_what_a_type_lacks_of_a_public_list_does_not_say_what_few_have(rare, ordered):
    """Nobody can tell which one it is, of those that are not common."""

    def published(secret):
        code = np.resize(np.array(["flu", "gout"], object), 101)
        code[slice(100, 101) if rare == "unmatched" else slice(rare)] = secret
        name = np.where(code == "flu", "a cold", np.where(code == "gout", "a pain", secret))
        lists = {"code": PUBLIC, "name": ["a cold", "a pain", *PUBLIC]}
        lab = pd.DataFrame({"id": range(101), "code": code, "name": name})
        lab = lab.astype({k: pd.CategoricalDtype(own, ordered) for k, own in lists.items()})
        frames = {"lab": lab, "clinic": lab[["id"]][:100].assign(age=np.arange(100) % 60)}
        table = IndependentSynthesizer(random_state=0).fit(frames, on="id").sample(20)
        return [table[label].cat.categories.tolist() for label in ("code", "name")]

    assert published("leprosy") == published("rabies") == [["flu", "gout"], ["a cold", "a pain"]]


def test_a_value_of_four_is_not_filled_in_until_it_is_common():
    four = pd.Series([20.25] * 4 + [k + 0.5 for k in range(40)])
    assert (steps._drawn_like(four, 1000, 5) == 20.25).sum() < 30


@pytest.mark.parametrize("n_known", [1, 4])
def test_a_column_of_fewer_values_than_may_come_out_is_refused(n_known):
    sparse = pd.DataFrame({"x": np.full(300, np.nan), "s": np.arange(300) % 3})
    sparse.loc[: n_known - 1, "x"] = 770017.25 + np.arange(n_known)
    frames = {"lab": sparse, "clinic": pd.DataFrame({"age": np.arange(300) % 60})}
    with pytest.raises(EmptyColumnError, match=r"party 'lab', column 'x': fewer than 5 records"):
        IndependentSynthesizer(random_state=0).fit(frames)


@pytest.mark.parametrize("seed", [0, *later(1, 2)])
def test_nobody_reads_a_fortune_off_published_rows(seed):
    """The end of a range is a mean of five, and four of them are what incomes mostly are."""
    rng = np.random.default_rng(seed)
    incomes = rng.lognormal(10.5, 0.4, 2000).round()
    fortune = incomes[7] = float(rng.integers(2_000_000, 50_000_000))
    frames = {"tax": pd.DataFrame({"income": incomes}), "lab": pd.DataFrame({"z": incomes % 7.5})}
    keys = pd.Index([f"k{i}" for i in range(2000)])
    frames = {name: own.set_axis(keys) for name, own in frames.items()}
    drawn = IndependentSynthesizer(random_state=seed).fit(frames).sample(20_000)["income"]
    guess = 5 * drawn.max() - 4 * 3 * drawn.median()
    assert guess < 0.2 * fortune  # of a plain mean, within three in a hundred of it
