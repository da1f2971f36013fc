"""What pictures leave out, and how they write what they show."""

import base64
import re

import numpy as np
import pandas as pd
import pytest

from vflsynth.evaluation import pictures
from vflsynth.evaluation.association import associations
from vflsynth.evaluation.columns import TableEncoder
from vflsynth.evaluation.marginals import marginal_distance
from vflsynth.evaluation.page import _truncated
from vflsynth.reporting import GRID, INK, REAL, encode_svg, new_figure

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)

    def make(shift):
        table = pd.DataFrame(rng.normal(size=(80, 5)), columns=list("abcde"))
        table["a"] += shift
        table["c"] += table["b"]
        table["day"] = pd.Timestamp("2019-05-01") + pd.to_timedelta(rng.integers(0, 900, 80), "D")
        return table

    return make(0.0), make(3.0)


def drawn(picture):
    return base64.b64decode(picture.source.partition(",")[2]).decode()


def test_the_target_is_drawn_though_it_is_fine(tables, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_COLUMNS", 2)
    parts = marginal_distance(*tables).parts
    best = parts.sort_values("value")["column"].iloc[0]
    encoder = TableEncoder(*tables)
    titles = [p.title for p in pictures.marginals(encoder, *tables, parts, best)]
    assert titles == ["a", best]
    assert len(pictures.marginals(encoder, *tables, parts)) == 2


def test_a_pair_of_the_target_is_drawn(tables, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PAIRS", 2)
    found = associations(*tables)
    rng = np.random.default_rng(0)
    drawn_ones = pictures.pairs(TableEncoder(*tables), *tables, found, rng, "e")
    assert len(drawn_ones) == 2
    assert "e" in drawn_ones[-1].title.split(" and ")


def test_large_maps_show_what_is_furthest_off_and_the_target(tables, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_IN_MAP", 3)
    found = associations(*tables)
    real, synthetic, _ = pictures.association_maps(found, "e")
    for picture in (real, synthetic):
        assert ">e<" in drawn(picture)
    off = np.abs(found.real - found.synthetic)
    np.fill_diagonal(off, 0)
    assert f">{found.names[int(off.max(axis=1).argmax())]}<" in drawn(real)


def test_dates_are_written_as_dates(tables):
    parts = marginal_distance(*tables, columns=["day"]).parts
    (picture,) = pictures.marginals(TableEncoder(*tables, columns=["day"]), *tables, parts)
    assert "20-" in drawn(picture)
    assert "2020-" in drawn(picture)
    assert "e9" not in drawn(picture).partition('<g id="text')[2]


def test_what_is_left_out_is_said():
    assert _truncated(5, 5, "columns", "e") == ""
    assert "24 of 30 columns are shown, the target among them" in _truncated(30, 24, "columns", "e")
    assert "target" not in _truncated(30, 24, "columns", None)


def test_pictures_follow_a_dark_page():
    """Every colour of ours is a variable with two values; text without a colour has ink."""
    figure, axes = new_figure(2, 2)
    axes.plot([0, 1], [0, 1], color=REAL)
    axes.set_title("a line", color=INK)
    svg = base64.b64decode(encode_svg(figure).partition(",")[2]).decode()
    rules, drawn = svg.split("</style>", 1)
    assert "prefers-color-scheme:dark" in rules
    assert f":{REAL};" in rules
    for colour in (REAL, INK, GRID, "#ffffff", "#000000"):
        assert colour not in drawn
    used = set(re.findall(r"var\((--c\d)\)", drawn))
    light, dark = (set(re.findall(r"(--c\d):", part)) for part in rules.split("@media"))
    assert used <= light == dark
