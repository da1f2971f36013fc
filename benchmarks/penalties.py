"""The two gradient penalties side by side on red wine, to choose the default.

    VFLSYNTH_DATA=... python -m benchmarks.penalties

Both are measured with the paper's sizes and schedule and with the default ones. Everything else,
seeds too, is the same.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from benchmarks import _commands, _results, _runs
from benchmarks._data import load_table
from vflsynth import TableTransformer, VFLGANSynthesizer, preset
from vflsynth.evaluation import utility

PENALTIES = ("layerwise", "paper")
SETTINGS = ("paper's sizes and schedule", "default")


def main() -> None:
    """Measure the seeds that are missing."""
    parser = _commands.parser(__doc__)
    _commands.add_seeds(parser)
    seeds = parser.parse_args().seeds
    table = load_table("red-wine")
    real = table.joined()
    for settings, penalty in product(SETTINGS, PENALTIES):
        key = {"settings": settings, "gradient_penalty": penalty}
        wanted = _results.missing("penalties", seeds, **key)
        if not wanted:
            continue
        chosen: dict[str, Any] = preset("red-wine") | _runs.OURS
        if settings == "default":
            encoding = TableTransformer(continuous="standard")
            plain = {"calibrate_marginals": False, "model_selection": "best"}  # for the distances
            chosen = {"transformer": encoding, **plain}
        chosen["gradient_penalty"] = penalty
        synth = VFLGANSynthesizer(**chosen, device="cpu", verbose=0)
        models = synth.fit_replicas(table.party_frames, random_states=wanted)
        for seed, model in zip(wanted, models, strict=True):
            distances = model.history_["frechet_distance"].round(4)
            found = utility(real, model.sample(len(real)), table.target, protocol="paper")
            row = {
                **key,
                "seed": seed,
                "frechet_distance_best": float(distances.min()),
                "frechet_distance_last": float(distances.iloc[-1]),
                "total_difference": round(float(found["total_difference"]), 4),
            }
            print(row, flush=True)
            _results.put("penalties", row)


if __name__ == "__main__":
    main()
