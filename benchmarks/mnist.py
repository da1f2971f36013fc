"""MNIST between two parties, upper and lower halves (VFLGAN §5.2.1): distances, scores, pictures.

    VFLSYNTH_DATA=... python -m benchmarks.mnist run --device cuda              # what is recorded
    VFLSYNTH_DATA=... python -m benchmarks.mnist run --settings default --epochs 40 --seeds 0
    python -m benchmarks.mnist show
    python -m benchmarks.mnist draw

All seeds of a method are trained at once, and judged every few epochs (Figures 1, 5 and 6). A run
that is stopped goes on from its last checkpoint when the command is given again. The last generator
is judged (its average, but with settings "paper").

Pictures of samples go to ``benchmarks/results/mnist``, one per method, settings and length; the
action draw makes ``docs/pictures/mnist.png`` of some of them, the curves, and what
`mnist_mechanisms` has drawn. Networks are those of the paper's code, with settings "default" those
that every class uses for tables, without the paper's tanh. "ours" has the layerwise penalty with
the code's weight, "end_to_end" one weight for all methods and the penalty that bounds the shared
critic.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.image import imread

from benchmarks import _commands, _digits, _results
from benchmarks._runs import COLORS, SETTINGS, SYNTHESIZERS, draw_curves, parameters

DRAWN = "end_to_end", 100
SAMPLES = {
    "wgan-gp, 190 epochs": "mnist/wgan-gp.end_to_end.190.png",
    "vertigan, 100": "mnist/vertigan.end_to_end.100.png",
    "vflgan-base, 110": "mnist/vflgan-base.end_to_end.110.png",
    "vflgan, 100": "mnist/vflgan.end_to_end.100.png",
    "ε 10: dpsgd_gan": "mnist_mechanisms/dpsgd_gan.png",
    "gs_wgan": "mnist_mechanisms/gs_wgan.png",
    "first_layer": "mnist_mechanisms/first_layer-reference-bound.png",
    "vflgan, first_layer": "mnist_mechanisms/vflgan-first_layer.png",
}
PICTURE = _results.RESULTS.parents[1] / "docs" / "pictures" / "mnist.png"
MEASURES = {"frechet_distance": "Fréchet distance", "inception_score": "inception score"}


def main() -> None:
    """Run, show or draw."""
    parser = _commands.parser(__doc__, "run", "show", "draw", method=SYNTHESIZERS)
    parser.add_argument("--settings", choices=SETTINGS, default="end_to_end")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--every", type=int, default=10, help="epochs between two judgements")
    _commands.add_seeds(parser, [0, 1, 2])
    _digits.add_options(parser, device="auto")
    arguments = parser.parse_args()
    if arguments.action == "run":
        models = {}
        own = arguments.settings == "default"
        pixels = _digits.PixelTransformer() if own else _digits.BoundedPixelTransformer()
        for method in arguments.method:
            settings, epochs = arguments.settings, arguments.epochs
            row = {"data": "mnist", "method": method, "settings": settings, "epochs": epochs}
            chosen = parameters("mnist", method, settings) | {
                "epochs": epochs,
                "transformer": pixels,
                "model_selection": "last",
                "verbose": 0,
            }
            models[f"{method}.{settings}.{epochs}"] = row, SYNTHESIZERS[method](**chosen)
        _digits.run_watched("mnist", models, arguments)
    if arguments.action == "draw":
        draw()
    else:
        show()


def show() -> None:
    """Print what is there, by settings and length: means, and the lowest on the way."""
    rows = _results.rows("mnist")
    for settings, epochs in dict.fromkeys((row["settings"], row["epochs"]) for row in rows):
        found = {
            method: frame
            for (own, length, method), frame in _results.cells("mnist").items()
            if (own, length) == (settings, epochs)
        }
        print(f"MNIST halves, settings {settings}, {epochs} epochs (paper: 300)")
        print("paper: FD of VFLGAN about 2 times WGAN-GP's, VertiGAN's about 7 times")
        for method in SYNTHESIZERS:
            if method in found:
                print(_line(method, found[method], found.get("wgan-gp", found[method])))
        print()
    _digits.show_judges(rows[-1])


def _line(method: str, frame: pd.DataFrame, base: pd.DataFrame) -> str:
    distance, score = frame["frechet_distance"], frame["inception_score"]
    times = distance.mean() / base["frechet_distance"].mean()
    text = f"{method:<12} FD {distance.mean():8.1f} ({times:.2f} x WGAN-GP's)"
    text += f"  IS {score.mean():.2f}  {len(frame)} seed" + "s" * (len(frame) > 1)
    if len(frame) > 1:
        text += f"  FD from {distance.min():.1f} to {distance.max():.1f}"
    curves = [c for c in frame.get("curve", []) if isinstance(c, dict)]
    if curves:
        lowest = np.mean([min(curve["frechet_distance"]) for curve in curves])
        highest = np.mean([max(curve["inception_score"]) for curve in curves])
        text += f"  on the way: FD {lowest:.1f}, IS {highest:.2f}"
    return text


def draw() -> None:
    """Draw both measures over training, mean and range of the seeds, and samples below them."""
    found = {
        method: frame
        for (settings, epochs, method), frame in _results.cells("mnist").items()
        if (settings, epochs) == DRAWN
    }
    figure = Figure(figsize=(7.2, 7.2), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(2, 3))
    for panel, (measure, label) in zip(upper.subplots(1, 2), MEASURES.items(), strict=True):
        panel.set_title(label, fontsize=9)
        panel.set_xlabel("epoch", fontsize=8)
        panel.tick_params(labelsize=7)
        for method, color in COLORS.items():
            frame = found[method]
            curves = np.array([curve[measure] for curve in frame["curve"]])
            draw_curves(panel, curves, color, method, every=int(frame["every"].iloc[0]))
        if measure == "frechet_distance":
            panel.set_yscale("log")
            panel.legend(fontsize=7)
    for panel, (title, path) in zip(lower.subplots(2, 4).flat, SAMPLES.items(), strict=True):
        panel.imshow(imread(_results.RESULTS / path))
        panel.set_title(title, fontsize=8)
        panel.set_axis_off()
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
