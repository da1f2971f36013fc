"""Outside judges: their formulas, the published split, and rows that anybody brings."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import _field, ladder
from benchmarks._data import BenchmarkTable
from benchmarks.external import field as judge
from benchmarks.external import outside
from benchmarks.external.run import ENVIRONMENTS

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 240),
        "region": RNG.choice(["north", "south", "east"], 240),
        "income": RNG.lognormal(10, 1, 240),
        "ill": RNG.choice(["yes", "no"], 240),
    }
)
LABELS = ["region", "ill"]


@pytest.fixture
def name(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder, "_OWN", {})
    TABLE.to_csv(tmp_path / "mine.csv", index=False)
    return ladder.own_table(tmp_path / "mine.csv", "ill", 2)


def test_the_published_split_goes_on_until_training_rows_have_every_label():
    frame = pd.DataFrame({"label": ["rare", *["common"] * 9]})
    for place in range(10):  # wherever the rare row is, it is never a test row
        moved = frame.iloc[np.roll(np.arange(10), place)].reset_index(drop=True)
        train, test = _field.published_split(moved, ["label"])
        assert (len(train), len(test)) == (9, 1)
        assert set(train["label"]) == {"rare", "common"}
    first, _ = _field.published_split(frame, [])
    order = np.arange(10)
    np.random.RandomState(1234).shuffle(order)
    assert first["label"].tolist() == frame["label"].iloc[order[:9]].tolist()


def test_copies_are_precise_and_cover_everything_and_a_far_point_does_neither():
    rows = judge.features(TABLE, TABLE, TABLE, LABELS)[0]
    same = judge.precision_and_recall(rows, rows)
    assert same == pytest.approx({"alpha_precision": 1.0, "beta_recall": 1.0}, abs=0.01)
    far = judge.precision_and_recall(rows, np.full_like(rows, 9.0))
    assert far == pytest.approx({"alpha_precision": 0.0, "beta_recall": 0.0}, abs=0.05)


def test_numbers_are_scaled_to_the_training_range_and_labels_one_hot():
    train = pd.DataFrame({"a": [0.0, 10.0], "b": ["x", "y"]})
    other = pd.DataFrame({"a": [20.0], "b": ["z"]})
    made = judge.features(train, train, other, ["b"])
    assert made[0].tolist() == [[0, 1, 0, 0], [1, 0, 1, 0]]
    assert made[2].tolist() == [[2, 0, 0, 1]]


def test_the_nearer_share_is_one_for_copies_and_half_for_fresh_rows():
    rng = np.random.default_rng(1)
    train, test, fresh = (rng.normal(size=(400, 3)) for _ in range(3))
    assert judge.nearer_share(train, test, train, 0) == 1.0
    assert judge.nearer_share(train, test, fresh, 0) == pytest.approx(0.5, abs=0.1)
    # Twice as many training rows are no advantage: as many as test rows are drawn.
    more = np.concatenate([train, rng.normal(size=(400, 3))])
    assert judge.nearer_share(more, test, fresh, 0) == pytest.approx(0.5, abs=0.1)


def test_a_label_that_the_real_table_lacks_gets_a_column_of_its_own():
    new = TABLE.assign(region="other").astype({"region": object, "ill": object})
    real = TABLE.astype({"region": object, "ill": object})
    one, other = judge.without_new_labels(real, new)
    assert other["region_other"].eq(1.0).all()
    assert one["region_other"].eq(0.0).all()
    assert one["ill"].equals(real["ill"])  # the judge encodes it
    assert judge.without_new_labels(real, real)[1] is real


def test_ours_stand_beside_published_rows_and_aims_are_said():
    mine = {"data": "adult", "method": "bounded", "seed": 0}
    found = {"detection_xgboost": 0.5, "fit_cpu_seconds": 10.0, "shape": 0.9}
    shown = _field.show(["adult"], ["bounded"], {("adult", "bounded"): [mine | found]})
    assert "TabDiff (published)                0.841   0.990   0.993" in shown
    assert "XGB of bounded: 0.500 (at least 0.90: MISSED)" in shown


def test_another_judge_has_columns_of_its_own_and_no_published_rows():
    found = {"avg_h_dist": 0.125, "mia.ensemble.mia_dpi.auc": 0.5}
    shown = _field.show(["adult"], [], {("adult", "mine"): [found]}, "outside")
    head, *rows = shown.splitlines()
    assert head.split()[:3] == ["adult", "Helling", "pMSE"]
    row = next(row for row in rows if row.split()[0] == "mine")
    assert row.split()[1:3] == ["0.125", "-"]
    assert "published" not in shown


def test_inference_gains_what_members_have_beyond_others():
    members = {"a.auc": 0.8, "b.r2": 0.3, "b.rmse": 9.0, "c.r2": -2.0, "d.auc": float("nan")}
    others = {"a.auc": 0.7, "b.r2": -0.1, "b.rmse": 1.0, "c.r2": -0.5, "d.auc": 0.6}
    assert outside.gain(members, others) == pytest.approx((0.1 + 0.3 + 0.0) / 3)


def test_what_tells_rows_is_asked_of_the_judge_who_says_it(monkeypatch):
    monkeypatch.setattr("sys.argv", ["ladder", "--judge", "outside", "--data", "adult", "--seen"])
    with pytest.raises(SystemExit):
        ladder.main()


def test_a_file_without_a_column_is_refused_by_name(name, tmp_path):
    TABLE.drop(columns="income").to_csv(tmp_path / "theirs.csv", index=False)
    with pytest.raises(SystemExit, match=r"theirs\.csv lacks the columns income"):
        ladder._rows_of(tmp_path / "theirs.csv", TABLE)


def test_a_synthesizer_is_named_by_module_and_class():
    made = _field.synthesizer_of("vflsynth:IndependentSynthesizer")
    assert made(random_state=3).random_state == 3
    with pytest.raises(SystemExit, match="wanted module:Class"):
        _field.synthesizer_of("vflsynth")


def needs(by):
    return pytest.mark.skipif(
        not (ENVIRONMENTS / by).exists(),
        reason=f"the judge has no environment: python -m benchmarks.ladder --judge {by} makes it",
    )


@pytest.mark.slow
@needs("outside")
def test_other_packages_find_copies_of_training_rows():
    train, test, fresh = np.split(np.random.default_rng(1).normal(size=(900, 4)), 3)
    frames = [pd.DataFrame(rows, columns=list("abcd")) for rows in (train, test, fresh)]
    for frame in frames:
        frame["ill"] = np.where(frame["a"] > 0, "yes", "no")
    table = BenchmarkTable("t", {"A": frames[0][["a", "b"]], "B": frames[0][["c", "d", "ill"]]},
                           "ill", "classification", ("ill",))  # fmt: skip
    copies, others = (
        _field.judge(table, frames[0], frames[1], rows, 0, by="outside")
        for rows in (frames[0], frames[2])
    )
    found = {name: (copies[name], others[name]) for name in copies}
    for name, least in {
        "mia.classifier.auc": 0.7,
        "mia.ensemble.mia_domias.auc": 0.65,
        "mia.ensemble.auc": 0.65,
        "priv_loss_nnaa": 0.4,
        "aia.gain": 0.5,
    }.items():
        assert found[name][0] > least > found[name][1] + 0.1, name
    assert copies["eps_identif_risk"] == 0.0, "a score that is blind to exact copies, says the page"


@pytest.mark.slow
@needs("field")
def test_the_judge_scores_rows_that_somebody_brings(name, tmp_path, monkeypatch, capsys):
    _, train, _ = ladder.split(name)
    train.to_csv(tmp_path / "theirs.csv", index=False)
    command = ["ladder", "--judge", "field", "--table", str(tmp_path / "mine.csv")]
    command += ["--target", "ill", "--first", "2", "--rows", str(tmp_path / "theirs.csv"), "--seen"]
    monkeypatch.setattr("sys.argv", command)
    ladder.main()
    told = capsys.readouterr().out
    row = next(line.split() for line in told.splitlines() if line.split()[:1] == ["theirs"])
    scores = dict(zip(_field.COLUMNS["field"], map(float, row[1:-2])))
    assert scores["XGB"] > 0.9
    assert scores["Shape"] == scores["Trend"] == 1.0
    assert scores["nearer"] == pytest.approx(0.75, abs=0.1)  # half of the rows are drawn
    assert "share of gain: " in told
