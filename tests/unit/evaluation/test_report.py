import base64
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest

from tests.later import later
from tests.smaller import judge_by_few_trees
from vflsynth.evaluation import (
    association_errors,
    average_variation_distance,
    detection_auc,
    evaluate,
    frechet_distance,
    marginal_distance,
    proximity,
    report,
    utility,
)
from vflsynth.exceptions import ColumnKindError, MissingExtraError, PartyDataError

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

EXPECTED = {
    "marginal_distance",
    "association_error",
    "association_error_within",
    "association_error_across",
    "incoherent_rows",
    "exact_structure",
    "frechet_distance",
    "average_variation_distance",
    "train_synthetic_test_real",
    "total_difference",
    "detection_auc",
    "distance_to_closest_record",
    "closer_to_training_share",
    "exact_copies",
    "new_row_share",
}


@pytest.fixture(autouse=True, scope="module")
def _few_trees():
    """A fifth of the usual trees: how well they learn is asked where utility is tested."""
    with pytest.MonkeyPatch.context() as patch:
        judge_by_few_trees(patch, 20)
        yield


@pytest.fixture(scope="module")
def page(make, parties):
    """A report of everything there is, with fresh rows of the real kind as synthetic ones."""
    history = pd.DataFrame(
        {
            "epoch": range(1, 21),
            "frechet_distance": np.r_[np.nan, np.linspace(5, 1, 19)],
            "discriminator_loss": np.linspace(0, -1, 20),
            "generator_loss": np.linspace(0, 1, 20),
            "seconds": 0.1,
        }
    )
    return report(
        make(600, seed=0),
        make(600, seed=1),
        parties=parties,
        target="grade",
        holdout=make(300, seed=2),
        history=history,
        notes=["Made by hand."],
        title="Two hospitals",
    )


def test_holds_every_metric_three_ways(page):
    assert set(page.results.to_frame().index) == EXPECTED
    assert set(json.loads(page.results.to_json())) == EXPECTED
    for text in ("Two hospitals", "Made by hand.", "across parties", "not a privacy guarantee"):
        assert text.lower() in page.html.lower()
    assert "needs real rows of all parties side by side" in page.html
    assert page.html.count("<img") >= 7 + 6 + 3 + 1 + 1 + 2
    assert len(page.html) < 2_000_000
    shown = page._repr_html_()
    assert shown.startswith('<iframe title="Report" srcdoc="&lt;!doctype html&gt;')
    assert shown.count('"') == 6  # none of the page's own quotes ends the attribute


def test_asks_nothing_of_the_network(page):
    page = page.html
    attributes = re.findall(r'(?:src|href|url|action)\s*=\s*"([^"]*)"', page)
    assert all(value.startswith("data:") for value in attributes)
    assert not re.search(r"https?://|@import|<script|url\(", page)
    pictures = re.findall(r"data:image/svg\+xml;base64,([^\"]*)", page)
    for picture in pictures:
        text = base64.b64decode(picture).decode("utf-8")
        ElementTree.fromstring(text)
        assert not re.search(r'href="(?!data:|#)', text)


def test_says_who_may_read_what_shows_real_rows(make):
    synthetic = make(60, seed=1).assign(city="Oslo")
    page = report(make(60, seed=0).assign(city=["Rare"] + ["Oslo"] * 59), synthetic).html
    pictures = map(base64.b64decode, re.findall(r"base64,([A-Za-z0-9+/=]+)", page))
    assert any(b"Rare" in picture for picture in pictures)
    (said,) = re.findall(r"<strong>Who may read this page.</strong>(.+?)</p>", page)
    assert "Those who may see the real rows" in said
    assert "no ε" in said


def test_escapes_what_the_tables_say(mixed, make):
    evil = "<script>alert(1)</script> $x_{ & \"'"
    real, synthetic = (
        frame[["age", "smoker"]].rename(columns={"age": evil})
        for frame in (mixed.head(100), make(100, seed=1))
    )
    page = report(real, synthetic, title=evil, notes=[evil], target=evil).html
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.slow
def test_same_tables_same_bytes(mixed, make):
    columns = ["age", "grade", "stage"]
    tables = mixed[columns].head(100), make(100, seed=1)[columns]
    first = report(*tables, target="grade", random_state=5)
    assert first.html == report(*tables, target="grade", random_state=5).html


def test_saves_whole_or_not_at_all(tmp_path, page, monkeypatch):
    path = page.save(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == page.html
    path.write_text("old", encoding="utf-8")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        page.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8") == "old"


@pytest.mark.usefixtures("blank_pictures")
def test_says_what_does_not_apply(mixed, make):
    page = report(mixed[["age", "grade"]], make(50, seed=1)[["age", "grade"]])
    assert "not applicable, because no target column was named" in page.html
    assert "not applicable, because no held-out rows were given" in page.html
    assert page.results["association_error_across"].value is None
    # Without parties the page judges all relations together, and speaks of no parties.
    assert "Do columns relate as they should?" in page.html
    assert "of all parties side by side" not in page.html


@pytest.mark.parametrize("rows", [2, *later(9)])
def test_tiny_tables(mixed, make, rows, request):
    if rows > 2:
        request.getfixturevalue("blank_pictures")
    page = report(mixed.head(rows), make(rows, seed=1), target="grade")
    assert "Columns one by one" in page.html


@pytest.mark.slow
def test_nasty_tables():
    real = pd.DataFrame(
        {
            "constant": [1.0] * 30,
            "gone": [np.nan] * 30,
            "label": ["only one"] * 30,
            "many": [f"id {i}" for i in range(30)],
            "huge": np.linspace(-1e300, 1e300, 30),
            7: pd.date_range("2020-01-01", periods=30),
        }
    )
    synthetic = real.assign(constant=2.0, gone=1.0, label="other", huge=0.0)
    page = report(
        real,
        synthetic,
        target="label",
        parties={"a": ["constant", "gone", "label"], "b": ["many", "huge", 7]},
    )
    assert "nan" not in re.sub(r"base64,[^\"]*", "", page.html).lower()


@pytest.mark.slow
def test_names_in_any_script_are_drawn(make):
    names = {"age": "年齢", "marker": "Größe", "smoker": "x" * 200}
    tables = (make(60, seed=i)[list(names)].rename(columns=names) for i in (0, 1))
    page = report(*tables)
    assert "年齢" in page.html


@pytest.mark.usefixtures("blank_pictures")
def test_verdict_follows_the_numbers(page, mixed):
    headline, cards = re.search(r"Close to the real data in [^<]*", page.html)[0], "<article"
    judged = page.html.count('class="ruler"')
    n = page.html.count(cards)
    assert headline.startswith(f"Close to the real data in {judged} of {n} respects. Not judged:")
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(
        {name: mixed[name].iloc[rng.permutation(600)].to_numpy() for name in mixed}
    )
    bad = report(mixed, noise.astype(mixed.dtypes), target="grade")
    assert "Far from real data" in bad.html
    assert "respects. Not close, the weakest first: " in bad.html


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
def test_one_bad_column_of_many_is_not_averaged_away():
    rng = np.random.default_rng(0)
    real = pd.DataFrame(rng.normal(size=(900, 14)), columns=[f"c{i}" for i in range(14)])
    synthetic = pd.DataFrame(rng.normal(size=(900, 14)), columns=real.columns)
    assert "are off by more than" not in report(real, synthetic).html
    synthetic.loc[:300, "c7"] = real["c7"].min()
    page = report(real, synthetic)
    assert page.results["marginal_distance"].gap_closed > 0.9
    assert "1 of 14 columns are off by more than 0.1; the worst is c7: 0.3" in page.html
    headline = re.search(r"Not close, the weakest first[^<]*", page.html)[0]
    assert "single columns" in headline


@pytest.mark.usefixtures("blank_pictures")
def test_scoring_above_real_rows_is_no_merit(cancer):
    # Copies of the rows tested on: better than training on other real rows.
    columns = ["mean radius", "target"]
    rng = np.random.default_rng(0)
    noisy = cancer[columns].assign(target=rng.choice(["malignant", "benign"], len(cancer)))
    assert "is no merit" in report(noisy, noisy, target="target").html


def test_evaluate_needs_no_extra(mixed, make, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert set(evaluate(mixed, make(50, seed=1))) == EXPECTED
    with pytest.raises(MissingExtraError, match=r"pip install 'vflsynth\[report\]'"):
        report(mixed, mixed)


@pytest.fixture
def coded():
    """A number, and a label that a csv file would turn into a number."""
    rng = np.random.default_rng(0)
    label = rng.choice(["0", "1"], 60)
    return pd.DataFrame({"x": (label == "1") * 2.0 + rng.normal(size=60), "label": label})


@pytest.mark.parametrize(
    "judge",
    [
        association_errors,
        average_variation_distance,
        detection_auc,
        evaluate,
        frechet_distance,
        marginal_distance,
        proximity,
        report,
        lambda real, synthetic: utility(real, synthetic, "label"),
    ],
)
def test_labels_that_a_csv_file_made_numbers_of_are_refused_everywhere(coded, judge):
    read_back = coded.astype({"label": "int64"})
    with pytest.raises(ColumnKindError, match=r"'label': text .* numbers of type int64.*parquet"):
        judge(coded, read_back)


@pytest.mark.parametrize("judge", [evaluate, proximity, report])
def test_a_held_out_table_is_named_where_it_is_at_fault(coded, judge):
    with pytest.raises(ColumnKindError, match="numbers of type int64 in the held-out table"):
        judge(coded, coded, holdout=coded.astype({"label": "int64"}))
    with pytest.raises(PartyDataError, match="column 'x': the held-out table has no such column"):
        judge(coded, coded, holdout=coded[["label"]])


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
def test_dates_of_arrow_and_wild_targets_are_judged(coded):
    dates = pd.Series(pd.date_range("2020", periods=60))
    real = coded.assign(
        day=dates.astype("date32[day][pyarrow]"),
        at=dates.dt.tz_localize("Europe/Berlin").astype("timestamp[us, tz=Europe/Berlin][pyarrow]"),
        y=coded["x"] * 1e300,
    )
    synthetic = real.assign(day=dates, at=dates.dt.tz_localize("UTC"))
    synthetic.loc[0, "y"] = np.inf
    found = report(real, synthetic, target="y", holdout=real).results
    assert found["train_synthetic_test_real"].value > 0.3
