"""Figure 7 of the VFLGAN paper (upper half): the Fréchet distance over training, as a picture.

    python -m benchmarks.figure7        # writes benchmarks/results/figure7.png

Draws what ``benchmarks/table1.py`` has measured: the mean over seeds, and the range between the
lowest and the highest seed.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from benchmarks import _commands, _results, _runs
from benchmarks.table1 import PAPER


def main() -> None:
    """Draw one panel per table and settings."""
    _commands.parser(__doc__).parse_args()
    found = _results.cells("table1")
    data = [name for name in PAPER if any(key[0] == name for key in found)]
    settings = [name for name in reversed(_runs.SETTINGS) if any(key[2] == name for key in found)]
    size = (3.2 * len(data), 2.8 * len(settings))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(settings), len(data), squeeze=False)
    for row, choice in zip(panels, settings, strict=True):
        for panel, name in zip(row, data, strict=True):
            panel.set_title(f"{name}, settings {choice}", fontsize=9)
            panel.set_yscale("log")
            panel.set_xlabel("epoch", fontsize=8)
            panel.tick_params(labelsize=7)
            for method, color in _runs.COLORS.items():
                if (name, method, choice) in found:
                    cell = found[name, method, choice]
                    curves = np.array(cell["frechet_distance_curve"].tolist())
                    best = cell["frechet_distance_best"].mean()
                    _runs.draw_curves(panel, curves, color, f"{method} {best:.2f}")
            if panel.lines:
                panel.legend(fontsize=7)
            else:
                panel.set_visible(False)
        row[0].set_ylabel("Fréchet distance", fontsize=8)
    figure.savefig(_results.RESULTS / "figure7.png", dpi=110)


if __name__ == "__main__":
    main()
