"""Plots for notebooks return the axes that they drew on; maps name columns and parties."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib import pyplot

from vflsynth.evaluation import plot_marginals
from vflsynth.evaluation.pictures import name_map


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


def test_the_largest_numbers_are_drawn(rng):
    table = pd.DataFrame({"x": rng.choice([-1e308, 1.0, 1.7e308], 80)})
    (axes,) = plot_marginals(pa.table(table), table)
    axes.figure.canvas.draw()
    assert np.isfinite(axes.get_xlim()).all()


def test_lines_part_the_parties_of_a_map():
    axes = pyplot.subplots()[1]
    name_map(axes, ["age", "ward", "cost"], ["clinic", "clinic", "lab"])
    assert [text.get_text() for text in axes.texts] == ["clinic", "lab"]
    assert len(axes.lines) == 2  # part the parties
