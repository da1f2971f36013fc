"""DIMIP and Party-wise Dropout: accuracy, accuracy after quitting, and completion attacks.

    VFLSYNTH_DATA=... python benchmarks/split_dimip.py --dataset mnist

Two parties: the active one has the left halves of the images (or the even columns), the passive one
the right halves. MNIST: 6,000 training and 2,000 test images. Scales of the gradient baselines are
relative to the gradients (see `vflsynth.splitdefense.protections`).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from _data import _read_idx, data_file
from _split import NumbersTable, arguments, spambase, spread, write
from sklearn.base import clone

from vflsynth.splitdefense import (
    DIMIP,
    PPDL,
    DiscreteSGD,
    GradientCompression,
    LeakageMonitor,
    NoisyGradient,
    SplitNNClassifier,
)
from vflsynth.splitdefense.leakage.attacks import completion_attacks
from vflsynth.transformers import TableTransformer


class Pixels(TableTransformer):
    """Numbers as they are."""

    def fit(self, frame: pd.DataFrame, y: object = None, *, party: str | None = None) -> Pixels:
        """Take note of the width."""
        self.kinds_ = dict.fromkeys(frame.columns, "continuous")
        self.width_ = frame.shape[1]
        return self

    def transform(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the values."""
        return frame.to_numpy(np.float32, copy=True)


def mnist() -> tuple[dict[str, pd.DataFrame], np.ndarray]:
    """Left and right halves of 8,000 images."""
    images = _read_idx(data_file("mnist/train-images-idx3-ubyte.gz"))[:8000] / 255.0
    y = _read_idx(data_file("mnist/train-labels-idx1-ubyte.gz"))[:8000]
    halves = {"active": images[:, :, :14], "passive": images[:, :, 14:]}
    frames = {
        name: pd.DataFrame(
            half.reshape(len(half), -1), columns=[f"{name} {i}" for i in range(14 * 28)]
        )
        for name, half in halves.items()
    }
    return frames, y.astype(int)


def spambase_halves() -> tuple[dict[str, pd.DataFrame], np.ndarray]:
    """Even and odd columns, log-transformed."""
    table, y = spambase()
    table = np.log1p(table)
    return {"active": table[table.columns[::2]], "passive": table[table.columns[1::2]]}, y


SETTINGS: dict[str, dict[str, Any]] = {
    "mnist": {
        "bottom_hidden": (128,),
        "intermediate_dim": 64,
        "top_hidden": (128,),
        "batch_size": 128,
        "epochs": 12,
        "transformer": Pixels(),
    },
    "spambase": {
        "bottom_hidden": (32,),
        "intermediate_dim": 16,
        "top_hidden": (32,),
        "batch_size": 64,
        "epochs": 25,
        "transformer": NumbersTable(spike_share=None, rare_threshold=0.0),
    },
}
PREDICTOR = {"mnist": (128, 64), "spambase": (32, 16)}


def families(dataset: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of the table, by what can be trained at once."""
    predictor = PREDICTOR[dataset]
    plain = {
        "none": {},
        **{f"NG {s:g}": {"protection": NoisyGradient(s)} for s in (0.1, 1.0, 10.0)},
        **{f"GC keep {k:g}": {"protection": GradientCompression(k)} for k in (0.1, 0.02)},
        "PPDL .1": {"protection": PPDL(0.1)},
        "PPDL .01": {"protection": PPDL(0.01)},
        "DSGD 1": {"protection": DiscreteSGD(1)},
        "DSGD 1, noise 1": {"protection": DiscreteSGD(1, noise_scale=1.0)},
        **{f"dropout {p:g}": {"party_dropout": p} for p in (0.05, 0.1, 0.3)},
    }
    one_step = {
        f"DIMIP {w:g}": {"objective": DIMIP(w, 1, predictor_hidden=predictor)}
        for w in (0.02, 0.05, 0.1, 0.5)
    }
    dropout = {"objective": DIMIP(0.1, 1, predictor_hidden=predictor), "party_dropout": 0.1}
    five_steps = {
        f"DIMIP {w:g}, 5 steps": {"objective": DIMIP(w, 5, predictor_hidden=predictor)}
        for w in (0.05, 0.1, 0.5)
    }
    no_regularizer = DIMIP(0.5, 1, regularizer=False, predictor_hidden=predictor)
    prior = DIMIP(0.9, 1, bound="prior", predictor_hidden=predictor)
    return {
        "plain": plain,
        "DIMIP": one_step | {"DIMIP 0.1, dropout 0.1": dropout},
        "DIMIP, 5 steps": five_steps,
        "DIMIP, no regularizer": {"DIMIP 0.5, no regularizer": {"objective": no_regularizer}},
        "DIMIP, prior": {"DIMIP 0.9, prior": {"objective": prior}},
        "multihead": {"multihead": {"absent": "multihead"}},
    }


def main() -> None:
    """Train and attack."""
    options = arguments(
        __doc__.splitlines()[0], dataset="mnist", families=tuple(families("mnist")), seeds=2
    )
    frames, y = mnist() if options.dataset == "mnist" else spambase_halves()
    seeds = range(options.seeds)
    orders = np.stack([np.random.default_rng(seed).permutation(len(y)) for seed in seeds])
    cut = int(0.75 * len(y))
    base = SplitNNClassifier(
        active="active",
        monitor=LeakageMonitor(every=50),
        learning_rate=1e-3,
        device="cpu",
        **SETTINGS[options.dataset],
    )
    for family in options.families:
        start = time.perf_counter()
        rows = families(options.dataset)[family]
        models = base.fit_replicas(
            frames,
            y,
            random_states=[seed for _ in rows for seed in seeds],
            parameters=[row for row in rows.values() for _ in seeds],
            replica_rows=np.concatenate([orders[:, :cut]] * len(rows)),
        )
        results: dict[str, Any] = {}
        for i, name in enumerate(rows):
            measured: dict[str, list[float]] = {}
            for seed in seeds:
                model, test = models[i * len(seeds) + seed], orders[seed, cut:]
                some = {party: frame.iloc[test] for party, frame in frames.items()}
                attacks = completion_attacks(
                    model.evidence_["passive"], model.parties_["passive"].network, seed
                )
                values = {
                    "accuracy": float((model.predict(some) == y[test]).mean()),
                    "after quitting": float(
                        (model.predict(some, absent={"passive"}) == y[test]).mean()
                    ),
                }
                for attack in attacks.itertuples():
                    values[f"{attack.attack}, {attack.knows}"] = attack.value
                    values[f"floor of {attack.attack}, {attack.knows}"] = attack.baseline
                for key, value in values.items():
                    measured.setdefault(key, []).append(value)
            results[name] = {key: spread(values) for key, values in measured.items()}
            print(name, {k: v["mean"] for k, v in results[name].items()}, flush=True)
        label = f"split_dimip_{options.dataset}_{family.replace(', ', '_').replace(' ', '_')}"
        write(options.output, label, vars(options) | {"output": ""}, results, start)
    if "plain" in options.families:
        standalone = []
        for seed in seeds:
            alone = clone(base).set_params(random_state=seed, monitor=False)
            rows, test = orders[seed, :cut], orders[seed, cut:]
            own = frames["active"]
            alone.fit({"active": own.iloc[rows]}, y[rows])
            standalone.append(alone.score({"active": own.iloc[test]}, y[test]))
        print("standalone", spread(standalone))
        settings = vars(options) | {"output": ""}
        found = {"standalone": {"accuracy": spread(standalone)}}
        write(options.output, f"split_dimip_{options.dataset}_standalone", settings, found, start)


if __name__ == "__main__":
    main()
