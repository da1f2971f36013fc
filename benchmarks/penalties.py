"""The two gradient penalties side by side, on red wine, to see which deserves to be the default.

Run with ``VFLSYNTH_DATA=... python -m benchmarks.penalties``. Both are measured with the paper's
sizes and schedule and with the default ones; everything else, seeds too, is the same.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks import _runs
from benchmarks._data import load_table
from vflsynth import VFLGANSynthesizer, preset
from vflsynth.evaluation import utility


def main() -> None:
    """Measure and write a result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    args = parser.parse_args()
    table = load_table("red-wine")
    real = table.joined()
    rows = []
    settings: dict[str, dict[str, Any]] = {
        "paper's sizes and schedule": preset("red-wine") | _runs.OURS,
        "default": {},
    }
    for name, chosen in settings.items():
        for penalty in ("layerwise", "paper"):
            synth = VFLGANSynthesizer(
                **chosen | {"gradient_penalty": penalty}, device="cpu", verbose=0
            )
            models = synth.fit_replicas(table.party_frames, random_states=args.seeds)
            distances = [model.history_["frechet_distance"] for model in models]
            differences = [
                float(
                    utility(real, model.sample(len(real)), table.target, protocol="paper")[
                        "total_difference"
                    ]
                )
                for model in models
            ]
            rows.append(
                {
                    "settings": name,
                    "gradient_penalty": penalty,
                    "frechet_distance_best": [round(float(d.min()), 4) for d in distances],
                    "frechet_distance_last": [round(float(d.iloc[-1]), 4) for d in distances],
                    "total_difference": np.round(differences, 4).tolist(),
                }
            )
            print(rows[-1], flush=True)
    _runs.write(
        _runs.RESULTS / "penalties.json",
        {"rows": rows, "seeds": args.seeds, **_runs.environment()},
    )


if __name__ == "__main__":
    main()
