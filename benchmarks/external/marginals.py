"""Fit MST or AIM to one coded table and write a synthetic one. Runs in its own environment.

Started by ``benchmarks/_private.py``; knows nothing of vflsynth. The package's innermost loop is
replaced by the same one in less time (``inference.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
from dpmm.models import aim
from dpmm.models.aim import AIMGM
from dpmm.models.base.mechanisms import mechanism
from dpmm.models.base.mechanisms.cdp2adp import cdp_eps
from dpmm.models.mst import MSTGM
from inference import TreeInference, model_size

METHODS = {"mst": MSTGM, "aim": AIMGM}


def main() -> None:
    """Read codes and numbers of cells, fit, write codes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("real", type=Path, help="npz: codes (record, column), sizes (column,)")
    parser.add_argument("output", type=Path, help="npz: codes, seconds")
    parser.add_argument("--rho", type=float, required=True, help="budget, zero-concentrated DP")
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--limits", type=json.loads, default={}, help="more arguments of a method")
    args = parser.parse_args()

    content = np.load(args.real)
    codes, sizes = content["codes"], content["sizes"]
    columns = [f"c{position}" for position in range(codes.shape[1])]
    # The noise is the operating system's; the seed is for selection and sampling.
    aim.FactoredInference = mechanism.FactoredInference = TreeInference
    aim.hypothetical_model_size = model_size
    started = time.perf_counter()
    model = METHODS[args.method](
        epsilon=cdp_eps(args.rho, args.delta),  # which it turns back into rho
        delta=args.delta,
        domain=dict(zip(columns, map(int, sizes))),
        random_state=np.random.RandomState(args.seed),
        n_jobs=1,
        **args.limits,
    )
    model.fit(pd.DataFrame(codes, columns=columns))
    seconds = time.perf_counter() - started
    table = model.generate(n_records=len(codes))[columns]
    side = args.output.with_name(args.output.stem + ".tmp.npz")
    np.savez(side, codes=table.to_numpy(dtype=np.int64), seconds=seconds)
    os.replace(side, args.output)


if __name__ == "__main__":
    main()
