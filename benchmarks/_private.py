"""Private synthesis of one table by each method of ``benchmarks/dp.py``.

Every seed is a release of its own: noise comes from the operating system, a seed only fixes
initial weights, latents and samples. Nothing is tuned per table.

MST and AIM (McKenna et al.) see the *joined* table, discretised into 32 equal bins between the
public bounds, and run in an environment of their own, ``benchmarks/.envs/marginals``, created on
first use. Numbers are drawn evenly from their bins.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks._data import BenchmarkTable
from benchmarks._schemas import DELTAS, N_RECORDS, SCHEMAS
from benchmarks.external.run import prepare_environment
from vflsynth import DPLTSynthesizer, VFLGANSynthesizer
from vflsynth.exceptions import NoPrivacyWarning
from vflsynth.privacy import GaussianPrivacy
from vflsynth.privacy.schema import Bounds, PublicColumn, cell_codes, n_cells

# Found on red wine at epsilon 10 without counting that search as spent: somewhat favourable there.
DPSGD: dict[str, Any] = {"max_grad_norm": 2.0, "preprocessing_share": 0.15}
DPSGD_MODEL: dict[str, Any] = {"discriminator_steps": 2}

VFLGAN_MECHANISMS = ("kernel_mean_embedding", "dpsgd", "first_layer")
MARGINAL_METHODS = ("mst", "aim")
METHODS = (*VFLGAN_MECHANISMS, "dplt", *MARGINAL_METHODS)

N_BINS = 32
AIM_MODEL_SIZE = 2.0
"""MiB. The package's 80 make a fit take hours."""

_MARGINALS = Path(__file__).parent / "external" / "marginals.py"


@dataclass(frozen=True)
class Release:
    """What one seed of a method gave.

    Parameters
    ----------
    sample : DataFrame
        As many records as the real table has.
    epsilon : float
        Spent, at the table's δ. That of ``first_layer`` is not one of the sample.
    parameters : dict
        Sizes and steps, JSON-safe.
    seconds : float
        Of the fit; of models that were trained together, the mean.
    """

    sample: pd.DataFrame
    epsilon: float
    parameters: dict[str, Any]
    seconds: float


def synthesise(
    table: BenchmarkTable, method: str, epsilon: float, seeds: list[int]
) -> Iterator[Release]:
    """Yield one release per seed."""
    if method in VFLGAN_MECHANISMS:
        yield from _vflgan(table, method, epsilon, seeds)
    for seed in seeds:
        if method == "dplt":
            yield _dplt(table, epsilon, seed)
        elif method in MARGINAL_METHODS:
            yield _marginals(table, method, epsilon, seed)


def _vflgan(
    table: BenchmarkTable, mechanism: str, epsilon: float, seeds: list[int]
) -> Iterator[Release]:
    """Train the seeds together where the mechanism can: its steps cost operations, not size."""
    model, n_records = _make_vflgan(table, mechanism, epsilon), len(table.party_frames["A"])
    together = [[seed] for seed in seeds] if mechanism == "kernel_mean_embedding" else [seeds]
    for some in together:
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoPrivacyWarning)
            models = model.fit_replicas(table.party_frames, random_states=some)
        seconds = (time.perf_counter() - started) / len(some)
        for seed, fitted in zip(some, models, strict=True):
            ledger = fitted.privacy_ledger_
            assert ledger is not None
            sample = fitted.sample(n_records, random_state=seed)
            yield Release(sample, ledger.epsilon(), fitted.settings_, seconds)


def _make_vflgan(table: BenchmarkTable, mechanism: str, epsilon: float) -> VFLGANSynthesizer:
    options: dict[str, Any] = {"mechanism": mechanism, "delta": DELTAS[table.name]}
    model: dict[str, Any] = {}
    if mechanism != "first_layer":
        options["public_schema"] = SCHEMAS[table.name]
    else:
        model["column_kinds"] = dict.fromkeys(table.categorical, "categorical")
    if mechanism == "dpsgd":
        options |= {"n_records": N_RECORDS[table.name], **DPSGD}
        model |= DPSGD_MODEL
    privacy = GaussianPrivacy(epsilon=epsilon, **options)
    return VFLGANSynthesizer(privacy=privacy, device="cpu", verbose=0, **model)


def _dplt(table: BenchmarkTable, epsilon: float, seed: int) -> Release:
    schema, delta = SCHEMAS[table.name], DELTAS[table.name]
    privacy = GaussianPrivacy(
        epsilon=epsilon, delta=delta, mechanism="latent_tree", public_schema=schema
    )
    started = time.perf_counter()
    model = DPLTSynthesizer(privacy=privacy, random_state=seed).fit(table.party_frames)
    seconds = time.perf_counter() - started
    assert model.privacy_ledger_ is not None
    sizes = ("group_size", "n_states", "n_latent_states")
    return Release(
        model.sample(len(table.party_frames["A"]), random_state=seed),
        model.privacy_ledger_.epsilon(),
        {name: model.get_params()[name] for name in sizes},
        seconds,
    )


def _marginals(table: BenchmarkTable, method: str, epsilon: float, seed: int) -> Release:
    requirements = _MARGINALS.with_name("marginals-requirements.txt")
    python = prepare_environment("marginals", requirements)
    frame, schema = table.joined(), SCHEMAS[table.name]
    parameters: dict[str, Any] = {"n_bins": N_BINS}
    if method == "aim":
        parameters["max_model_size"] = AIM_MODEL_SIZE
    with tempfile.TemporaryDirectory() as folder:
        real, output = Path(folder) / "real.npz", Path(folder) / "synthetic.npz"
        np.savez(
            real,
            codes=np.stack([cell_codes(frame[c], schema[c], N_BINS) for c in frame], axis=1),
            sizes=[n_cells(schema[c], N_BINS) for c in frame],
        )
        command = [python, _MARGINALS, method, real, output, "--epsilon", epsilon]
        command += ["--delta", DELTAS[table.name], "--seed", seed]
        if method == "aim":
            command += ["--max-model-size", AIM_MODEL_SIZE]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        subprocess.run(list(map(str, command)), check=True, env=environment)
        with np.load(output) as content:
            codes, seconds = content["codes"], float(content["seconds"])
    rng = np.random.default_rng(seed)
    sample = pd.DataFrame(
        {c: _values(codes[:, i], frame[c], schema[c], rng) for i, c in enumerate(frame)}
    )
    return Release(sample, epsilon, parameters, seconds)


def _values(
    codes: npt.NDArray[np.int64],
    real: pd.Series[Any],
    column: PublicColumn,
    rng: np.random.Generator,
) -> pd.Series[Any]:
    """Draw a value of the column's type from each cell; the tables have no missing values."""
    if isinstance(column, Bounds):
        codes = np.minimum(codes, N_BINS - 1)
        width = (column.high - column.low) / N_BINS
        numbers = column.low + width * (codes + rng.random(len(codes)))
        return pd.Series(np.rint(numbers) if real.dtype.kind == "i" else numbers, dtype=real.dtype)
    values = pd.Series(column.values)
    return values.take(np.minimum(codes, len(values) - 1)).reset_index(drop=True)
