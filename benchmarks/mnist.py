"""MNIST between two parties, upper and lower halves (VFLGAN §5.2.1): distance, score, picture.

    VFLSYNTH_DATA=... python -m benchmarks.mnist run --epochs 300        # the paper's length: a GPU
    VFLSYNTH_DATA=... python -m benchmarks.mnist run --settings default --epochs 40
    VFLSYNTH_DATA=... python -m benchmarks.mnist run --settings end_to_end --epochs 10
    python -m benchmarks.mnist show

A run that is stopped goes on from its last checkpoint when the command is given again.

Pictures of samples go to ``benchmarks/results/mnist``, one per method, settings and length.
Networks are those of the paper's code but for a linear output layer instead of tanh: pixels are
scaled to [-1, 1] and clipped when they are decoded. With ``--settings default``, which train three
times faster here, networks are those that every class uses for tables. The last generator is kept
(its average, but with settings "paper") rather than the best of many. The paper's order (VFLGAN at
twice WGAN-GP's distance, VertiGAN at seven times) comes out, if not its size, where the penalty
bounds the shared critic ("end_to_end"), and not with "ours".
"""

from __future__ import annotations

from benchmarks import _commands, _digits, _results
from benchmarks._runs import SETTINGS, SYNTHESIZERS, parameters


def main() -> None:
    """Run or show."""
    parser = _commands.parser(__doc__, "run", "show", method=SYNTHESIZERS)
    parser.add_argument("--settings", choices=SETTINGS, default="ours")
    parser.add_argument("--epochs", type=int, default=300)
    _digits.add_options(parser, device="auto")
    arguments = parser.parse_args()
    if arguments.action == "run":
        models = {}
        for method in arguments.method:
            settings, epochs = arguments.settings, arguments.epochs
            row = {"data": "mnist", "method": method, "settings": settings, "epochs": epochs}
            chosen = parameters("mnist", method, settings) | {
                "epochs": epochs,
                "transformer": _digits.PixelTransformer(),
                "model_selection": "last",
                "verbose": 0,
            }
            models[f"{method}.{settings}.{epochs}"] = row, SYNTHESIZERS[method](**chosen)
        _digits.run("mnist", models, arguments)
    show()


def show() -> None:
    """Print what is there, by settings and length."""
    rows = _results.rows("mnist")
    for settings, epochs in dict.fromkeys((row["settings"], row["epochs"]) for row in rows):
        found = {
            row["method"]: row
            for row in rows
            if (row["settings"], row["epochs"]) == (settings, epochs)
        }
        print(f"MNIST halves, settings {settings}, {epochs} epochs (paper: 300)")
        print("paper: FD of VFLGAN about 2 times WGAN-GP's, VertiGAN's about 7 times")
        for method in SYNTHESIZERS:
            if method in found:
                row = found[method]
                base = found.get("wgan-gp", row)["frechet_distance"]
                print(
                    f"{method:<12} FD {row['frechet_distance']:8.3f} "
                    f"({row['frechet_distance'] / base:.2f} x WGAN-GP's)  "
                    f"IS {row['inception_score']:.2f}  {row['training_seconds']:.0f} s"
                )
        _digits.show_judges(row)
        print()


if __name__ == "__main__":
    main()
