"""Time per training step against a plain PyTorch loop with the same networks, on one core.

The two take turns, an epoch each, so that a machine whose speed drifts does not decide; the ratio
is taken turn by turn, and its median and quartiles are reported.

    VFLSYNTH_DATA=... python -m benchmarks.step_time --replicas 1 100
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd
import torch

from benchmarks import _commands, _results
from benchmarks._data import load_table
from benchmarks.plain_vflgan import PlainVFLGAN
from vflsynth import VFLGANSynthesizer, preset
from vflsynth.run.loop import EpochState


class TakeTurns:
    """A callback that runs an epoch of the plain loop after each of ours and times both.

    Process time is taken: on one thread, it leaves out what other programs take of the machine.
    """

    def __init__(self, plain: PlainVFLGAN, replicas: int) -> None:
        self.plain, self.replicas = plain, replicas
        self.seconds_per_step: list[tuple[float, float]] = []
        self._resumed: float | None = None

    def on_epoch_end(self, state: EpochState) -> None:
        """Take the time of our epoch, then run and time one of the plain loop."""
        ended = time.process_time()
        steps = self.plain.epoch()
        now = time.process_time()
        if self._resumed is not None:  # the first epoch warms up
            own = (ended - self._resumed) / (state.steps_per_epoch * self.replicas)
            self.seconds_per_step.append((own, (now - ended) / steps))
        self._resumed = time.process_time()


def encoded(frames: Mapping[str, pd.DataFrame]) -> list[torch.Tensor]:
    """Encode red wine as the package does: standardised numbers, one-hot quality."""
    matrices = []
    for frame in frames.values():
        columns = frame.select_dtypes("float")
        blocks = [((columns - columns.mean()) / columns.std()).to_numpy()]
        if "quality" in frame:
            blocks.append(np.eye(6)[frame["quality"].to_numpy() - 3])
        matrices.append(torch.from_numpy(np.concatenate(blocks, 1)).float())
    return matrices


def main() -> None:
    """Measure and write."""
    parser = _commands.parser(__doc__, penalty=("end_to_end", "layerwise"))
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--turns", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    frames = load_table("red-wine").party_frames
    for penalty, replicas in product(args.penalty, args.replicas):
        plain = PlainVFLGAN(*encoded(frames), n_categories=6, penalty=penalty)
        turns = TakeTurns(plain, replicas)
        settings = preset("red-wine") | {
            "gradient_penalty": penalty,
            "epochs": args.turns + 1,
            "model_selection": "last",
        }
        VFLGANSynthesizer(**settings, device="cpu", verbose=0).fit_replicas(
            frames, random_states=range(replicas), callbacks=[turns]
        )
        own, theirs = np.array(turns.seconds_per_step).T
        quartiles = np.quantile(theirs / own, [0.25, 0.5, 0.75]).round(2)
        row = {
            "replicas": replicas,
            "gradient_penalty": penalty,
            "ms_per_model_step": round(1e3 * float(np.median(own)), 4),
            "plain_ms_per_step": round(1e3 * float(np.median(theirs)), 4),
            "times_faster": dict(zip(("q25", "median", "q75"), quartiles.tolist())),
        }
        print(row, flush=True)
        _results.put("step_time", row)


if __name__ == "__main__":
    main()
