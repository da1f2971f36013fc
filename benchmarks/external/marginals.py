"""Fit MST or AIM to one table and write a synthetic one. Runs in its own environment.

Started by ``benchmarks/_private.py``; knows nothing of vflsynth. "mst" and "aim" read a coded
table; "pipeline" is the package's own ``AIMPipeline``, which divides numbers by PrivTree for an ε
of its own, and reads the table itself. The package's innermost loop is replaced by the same one in
less time (``inference.py``).
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
from dpmm.pipelines.aim import AIMPipeline
from inference import TreeInference, model_size

METHODS = {"mst": MSTGM, "aim": AIMGM}


def main() -> None:
    """Read a table, fit, write synthetic rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=(*METHODS, "pipeline"))
    parser.add_argument("real", type=Path, help="npz: codes (record, column), sizes; or csv")
    parser.add_argument("output", type=Path, help="npz: codes, seconds; or csv")
    parser.add_argument("--rho", type=float, help="budget, zero-concentrated DP")
    parser.add_argument("--epsilon", type=float, help="budget of a pipeline, bins and model")
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--domain", type=json.loads, help="public bounds and labels of columns")
    parser.add_argument("--limits", type=json.loads, default={}, help="more arguments of a method")
    parser.add_argument("--own-inference", action="store_true", help="the package's innermost loop")
    args = parser.parse_args()
    if not args.own_inference:
        aim.FactoredInference = mechanism.FactoredInference = TreeInference
        aim.hypothetical_model_size = model_size
    side = args.output.with_name("tmp-" + args.output.name)
    (_by_pipeline if args.method == "pipeline" else _of_codes)(args, side)
    os.replace(side, args.output)


def _of_codes(args: argparse.Namespace, side: Path) -> None:
    content = np.load(args.real)
    codes, sizes = content["codes"], content["sizes"]
    columns = [f"c{position}" for position in range(codes.shape[1])]
    # The noise is the operating system's; the seed is for selection and sampling.
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
    np.savez(side, codes=table.to_numpy(dtype=np.int64), seconds=seconds)


def _by_pipeline(args: argparse.Namespace, side: Path) -> None:
    """Have the package divide numbers, fit and decode; labels are text, the others numbers."""
    labels = {c: str for c, known in args.domain.items() if "categories" in known}
    real = pd.read_csv(args.real, dtype=labels, keep_default_na=False)
    limits = dict(args.limits)
    for_bins = limits.pop("bins_share") * args.epsilon
    started = time.perf_counter()
    pipeline = AIMPipeline(
        epsilon=args.epsilon - for_bins,
        delta=args.delta,
        max_model_size=limits.pop("max_model_size"),
        proc_epsilon=for_bins,
        n_jobs=1,
        gen_kwargs=limits,
    )
    pipeline.fit(real, domain=args.domain, random_state=args.seed)
    seconds = time.perf_counter() - started
    bins = {c: int(n) for c, n in pipeline.proc.bin_domain.items()}
    print(json.dumps({"seconds": seconds, "bins": bins}))
    pipeline.generate(n_records=len(real), random_state=args.seed).to_csv(side, index=False)


if __name__ == "__main__":
    main()
