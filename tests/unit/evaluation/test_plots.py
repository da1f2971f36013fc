"""Plots draw on axes that are given, or on new ones, and return them."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from vflsynth.evaluation import associations, plot_marginals
from vflsynth.evaluation.drawing import draw_map, maps_of
from vflsynth.exceptions import ParameterError


@pytest.fixture(autouse=True)
def _no_window():
    with mpl.rc_context({"backend": "agg"}):
        yield
        pyplot.close("all")


@pytest.fixture
def tables(rng):
    def table(n):
        ages = rng.normal(50, 10, n)
        ward = np.where(ages > 50, "A", "B")
        return pd.DataFrame({"age": ages, "cost": 2 * ages + rng.normal(size=n), "ward": ward})

    return table(80), table(60)


def test_marginals_have_one_panel_per_column(tables):
    axes = plot_marginals(*tables)
    assert [each.get_title(loc="left") for each in axes] == ["age", "cost", "ward"]
    assert [t.get_text() for t in axes[2].get_yticklabels()] in (["A", "B"], ["B", "A"])
    assert len({each.figure for each in axes}) == 1
    assert plot_marginals(*tables, columns=["cost"])[0].get_title(loc="left") == "cost"


def test_maps_are_those_of_both_tables_and_their_difference(tables):
    parties = {"lab": ["cost"], "clinic": ["age", "ward"]}
    maps = maps_of(associations(*tables, parties=parties))
    real, synthetic, difference = (map_.matrix for map_ in maps.values())
    assert np.allclose(difference, np.abs(real - synthetic), equal_nan=True)
    axes = pyplot.subplots()[1]
    draw_map(axes, maps["Real"])
    assert [text.get_text() for text in axes.texts] == ["clinic", "lab"]  # as the columns stand
    assert len(axes.lines) == 2  # part the parties


def test_what_cannot_be_drawn_is_refused(tables):
    with pytest.raises(ParameterError, match="3 Axes, got 2"):
        plot_marginals(*tables, axes=pyplot.subplots(1, 2)[1])


def test_given_axes_are_drawn_on(tables):
    figure, grid = pyplot.subplots(1, 3)
    drawn = plot_marginals(*tables, axes=grid)
    assert all(a is b for a, b in zip(drawn, grid))
    assert pyplot.get_fignums() == [figure.number]
