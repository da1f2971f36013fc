"""Private synthesis of one table by each method of ``dp.py`` and ``wgan_mechanisms.py``.

Every seed is a release of its own: noise comes from the operating system, a seed only fixes
initial weights, latents and samples. Nothing is tuned per table.

MST and AIM (McKenna et al.) see the *joined* table and run in an environment of their own,
``benchmarks/.envs/marginals``, created on first use. "aim_privtree" is AIM at its best: its
package's own pipeline, which divides numbers by PrivTree between the public bounds, for the share
of ε that is its own. The others need a discrete table: as our mechanisms do, they pay a fifth of
their budget for finding where numbers lie between the public bounds (by the same code), and get 32
equal bins there; numbers are drawn evenly from their bins.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone

from benchmarks import _commands, _results, _runs
from benchmarks._data import BenchmarkTable, load_table
from benchmarks._schemas import DELTAS, N_RECORDS, SCHEMAS, schema_of
from benchmarks.external.run import prepare_environment
from vflsynth import (
    DPLTSynthesizer,
    MixtureSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.columns.bins import Bins, Cells, cell_codes, n_cells
from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.schema import Bounds
from vflsynth.exceptions import NoPrivacyWarning
from vflsynth.mechanisms import Mechanism
from vflsynth.methods.synthesizer import BaseSynthesizer
from vflsynth.privacy import (
    GaussianRelease,
    NeighbouringRelation,
    RDPAccountant,
    calibrate_noise_multiplier,
)
from vflsynth.privacy.histograms import histogram_sensitivity, release_divided_histograms
from vflsynth.registry import find

# Found on red wine at epsilon 10 without counting that search as spent: somewhat favourable there.
DPSGD_OPTIONS: dict[str, Any] = {"max_grad_norm": 2.0, "preprocessing_share": 0.15}
DPSGD_MODEL: dict[str, Any] = {"discriminator_steps": 2}

Synthesizer = VFLGANSynthesizer | VertiGANSynthesizer | WGANGPSynthesizer

GANS: dict[str, tuple[type[Synthesizer], str]] = {
    "dpsgd": (VFLGANSynthesizer, "dpsgd"),
    "first_layer": (VFLGANSynthesizer, "first_layer"),
    "vertigan_dpsgd": (VertiGANSynthesizer, "dpsgd"),
    "vertigan_first_layer": (VertiGANSynthesizer, "first_layer"),
}
"""Synthesizer and mechanism; VertiGAN's settings are those of VFLGAN's mechanism."""

FIRST_LAYER = tuple(name for name, (_, mechanism) in GANS.items() if mechanism == "first_layer")
AIM_PIPELINE = "aim_privtree"
MARGINAL_METHODS = ("mst", "aim", "aim_full", AIM_PIPELINE)
OTHERS = ("dplt", "pairwise_tables")
"""Of ours, those that are no GAN."""

METHODS = (*GANS, *OTHERS, *MARGINAL_METHODS)

NOISE, RIVALS_NOISE, SUPERSEDED_NOISE = "discrete", "theirs", "continuous"
"""Rows of ours with continuous noise are older than exact releases and secure sums: they are
measured again when they are asked for, and never averaged with others."""

N_BINS = 32
PREPROCESSING_SHARE = 0.2
AIM_LIMITS: dict[str, dict[str, float]] = {
    "aim": {"max_model_size": 2.0, "n_iters": 400},
    "aim_full": {"max_model_size": 80.0, "n_iters": 1000},
    AIM_PIPELINE: {"max_model_size": 80.0, "n_iters": 1000, "bins_share": 1 / 11},
}
"""MiB, iterations per round, and PrivTree's share of ε. All but the first are the package's own,
which has an ε of .1 for bins beside 1; its pipeline has no limit of size."""

MARGINALS = Path(__file__).parent / "external" / "marginals.py"
_MARGINALS_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # large arrays are made and freed a thousand times
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}


@dataclass(frozen=True)
class Release:
    """What one seed of a method gave: as many records as the real table has.

    `epsilon` was spent, at the table's δ; that of `FIRST_LAYER` is not one of the sample. Sizes and
    steps are JSON-safe `parameters`. `seconds` of the fit are the mean of models that were trained
    together; `megabytes`, 10^6 bytes, are what the party that has most of it sent and received,
    where that was counted.
    """

    sample: pd.DataFrame
    epsilon: float
    parameters: dict[str, Any]
    seconds: float
    megabytes: float | None = None


Synthesise = Callable[[BenchmarkTable, str, float, list[int]], Iterator[Release]]


def make_mechanism(name: str, epsilon: float, delta: float, **options: Any) -> Mechanism:
    """Make a mechanism, with parameters of its own. No other function of the benchmarks does.

    Two of the paper's δ are above one over the number of records, which has to be insisted on.
    """
    options["large_delta"] = True
    made: Mechanism = find(name, "mechanisms")(epsilon=epsilon, delta=delta, **options)
    return made


def main(
    doc: str | None,
    results: str,
    names: Mapping[str, Sequence[str]],
    synthesise: Synthesise,
    show: Callable[[], None],
    **defaults: object,
) -> None:
    """Run the cells that were asked for and are missing, or show all; one thread.

    `names` has one entry: what the methods are called in the table `results`, and the methods.
    `defaults` are those of the options.
    """
    ((kind, choices),) = names.items()
    parser = _commands.parser(doc, "run", "show", data=SCHEMAS, **{kind: choices})
    parser.add_argument("--epsilon", type=float, nargs="+")
    _commands.add_seeds(parser)
    parser.set_defaults(**defaults)
    arguments = vars(parser.parse_args())
    if arguments["action"] == "show":
        show()
        return
    torch.set_num_threads(1)
    for name, epsilon, data in product(*(arguments[key] for key in (kind, "epsilon", "data"))):
        cell = {"data": data, kind: name, "epsilon": epsilon}
        noise = RIVALS_NOISE if name in MARGINAL_METHODS else NOISE
        if not (wanted := _results.missing(results, arguments["seeds"], **cell, noise=noise)):
            continue
        table = load_table(data)
        releases = synthesise(table, name, epsilon, wanted)
        for seed, release in zip(wanted, releases, strict=True):
            row = {
                **cell,
                "seed": seed,
                "epsilon_spent": round(release.epsilon, 6),
                "delta": DELTAS[data],
                "noise": noise,
                "parameters": release.parameters,
                **_runs.scores(table, release.sample),
                "fit_seconds": round(release.seconds, 1),
            }
            if release.megabytes is not None:
                row["party_megabytes"] = round(release.megabytes, 2)
            _results.put(results, row)
            print(
                f"{data} {name} epsilon {epsilon:g} seed {seed}: FD {row['frechet_distance']:.3f}, "
                f"TD {row['total_difference']}, {release.seconds:.0f} s",
                flush=True,
            )


def synthesise(
    table: BenchmarkTable, method: str, epsilon: float, seeds: list[int]
) -> Iterator[Release]:
    """Yield one release per seed, of a method for tables that may not be joined or of a rival."""
    if method in GANS:
        yield from gan_releases(table, *GANS[method], epsilon, seeds)
    for seed in seeds:
        if method in OTHERS:
            yield _fitted(table, make_synthesizer(table, method, epsilon), seed)
        elif method in MARGINAL_METHODS:
            yield rival_release(table, method, epsilon, seed)


def gan_releases(
    table: BenchmarkTable,
    synthesizer: type[Synthesizer],
    mechanism: str,
    epsilon: float,
    seeds: list[int],
) -> Iterator[Release]:
    """Yield one release per seed; the seeds are trained together where the mechanism can."""
    model = _make_gan(table, synthesizer, mechanism, epsilon)
    n_records = len(table.party_frames["A"])
    if mechanism == "gs_wgan":  # which makes one model per fit
        for seed in seeds:
            yield _fitted(table, model, seed)
        return
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        models = model.fit_replicas(table.party_frames, random_states=seeds)
    seconds = (time.perf_counter() - started) / len(seeds)
    for seed, fitted in zip(seeds, models, strict=True):
        ledger = fitted.privacy_ledger_
        assert ledger is not None
        sample = fitted.sample(n_records, random_state=seed)
        yield Release(sample, ledger.epsilon(), fitted.settings_, seconds)


def make_synthesizer(table: BenchmarkTable, method: str, epsilon: float) -> BaseSynthesizer:
    """Make any method that is ours, with the table's public schema where it takes one."""
    if method in GANS:
        return _make_gan(table, *GANS[method], epsilon)
    mechanism = "latent_tree" if method == "dplt" else method
    schema, delta = schema_of(table), DELTAS[table.name]
    privacy = make_mechanism(mechanism, epsilon, delta, public_schema=schema)
    synthesizer = DPLTSynthesizer if method == "dplt" else MixtureSynthesizer
    return synthesizer(privacy=privacy)


def _make_gan(
    table: BenchmarkTable,
    synthesizer: type[Synthesizer],
    mechanism: str,
    epsilon: float,
) -> Synthesizer:
    options: dict[str, Any] = {}
    model: dict[str, Any] = {}
    if mechanism == "first_layer":
        options["calibration"] = "paper"
        model["column_kinds"] = dict.fromkeys(table.categorical, "categorical")
    else:
        options["public_schema"] = schema_of(table)
    if mechanism == "dpsgd":
        options["n_records"] = N_RECORDS[table.name]
    if mechanism in ("dpsgd", "dpsgd_gan"):
        options |= DPSGD_OPTIONS
        model |= DPSGD_MODEL
    privacy = make_mechanism(mechanism, epsilon, DELTAS[table.name], **options)
    return synthesizer(privacy=privacy, device="cpu", verbose=0, **model)


def _fitted(table: BenchmarkTable, model: BaseSynthesizer, seed: int) -> Release:
    """Fit one model and sample as many records as the table has."""
    frames, started = table.party_frames, time.perf_counter()
    fitted = clone(model).set_params(random_state=seed).fit(frames, transcript=True)
    seconds = time.perf_counter() - started
    crossed = fitted.transcript_
    moved = [
        crossed.loc[(crossed["sender"] == party) | (crossed["receiver"] == party), "bytes"].sum()
        for party in frames
    ]
    return Release(
        fitted.sample(len(frames["A"]), random_state=seed),
        fitted.privacy_ledger_.epsilon(),
        fitted.settings_,
        seconds,
        float(max(moved)) / 1e6,
    )


def marginals_environment() -> tuple[Path, dict[str, str]]:
    """Return the interpreter that has MST and AIM, made on first use, and its variables."""
    python = prepare_environment("marginals", MARGINALS.with_name("marginals-requirements.txt"))
    return python, os.environ | _MARGINALS_VARIABLES


def release_cells(table: BenchmarkTable, epsilon: float) -> dict[str, Cells]:
    """Divide the columns of the joined table for MST and AIM, for a share of the budget."""
    frame = table.joined()
    rho = _rho_of(epsilon, DELTAS[table.name])
    histograms = release_divided_histograms(
        frame,
        schema_of(table),
        n_bins=N_BINS,
        noise_std=histogram_sensitivity(frame.shape[1], NeighbouringRelation.ADD_OR_REMOVE_ONE)
        / math.sqrt(2.0 * PREPROCESSING_SHARE * rho),
    )
    return {name: _even(histogram) for name, histogram in histograms.items()}


def save_codes(path: Path, frame: pd.DataFrame, cells: Mapping[str, Cells]) -> None:
    """Write the joined table as MST and AIM read it."""
    np.savez(
        path,
        codes=np.stack([cell_codes(frame[c], cells[c]) for c in frame], axis=1),
        sizes=[n_cells(cells[c]) for c in frame],
    )


def rival_release(table: BenchmarkTable, method: str, epsilon: float, seed: int) -> Release:
    """Fit a rival to the joined table and sample as many records."""
    fit = _aim_pipeline if method == AIM_PIPELINE else _marginals
    return fit(table, method, epsilon, seed)


def _aim_pipeline(table: BenchmarkTable, method: str, epsilon: float, seed: int) -> Release:
    python, environment = marginals_environment()
    frame, schema, limits = table.joined(), schema_of(table), AIM_LIMITS[method]
    domain = {
        **{c: {"lower": low, "upper": high} for c, (low, high) in schema.bounds.items()},
        **{c: {"categories": [str(v) for v in values]} for c, values in schema.categories.items()},
    }
    # Its bins reach to the largest number only if they are computed in the column's type.
    wide = frame.astype(dict.fromkeys(schema.bounds, "float64"))
    with tempfile.TemporaryDirectory() as folder:
        real, output = Path(folder) / "real.csv", Path(folder) / "synthetic.csv"
        wide.to_csv(real, index=False)
        command = [python, MARGINALS, "pipeline", real, output, "--seed", seed]
        command += ["--epsilon", epsilon, "--delta", DELTAS[table.name]]
        command += ["--domain", json.dumps(domain), "--limits", json.dumps(limits)]
        done = subprocess.run(
            list(map(str, command)), check=True, env=environment, stdout=subprocess.PIPE, text=True
        )
        told = json.loads(done.stdout.splitlines()[-1])
        drawn = pd.read_csv(output, dtype=dict.fromkeys(schema.categories, str))
    drawn = drawn[list(frame.columns)]
    whole = [c for c in schema.bounds if frame[c].dtype.kind == "i"]
    drawn[whole] = drawn[whole].round()
    sample = drawn.astype(frame.dtypes)
    return Release(sample, epsilon, {**limits, "bins": told["bins"]}, told["seconds"])


def _marginals(table: BenchmarkTable, method: str, epsilon: float, seed: int) -> Release:
    python, environment = marginals_environment()
    frame, delta = table.joined(), DELTAS[table.name]
    rho, cells = _rho_of(epsilon, delta), release_cells(table, epsilon)
    limits = AIM_LIMITS.get(method, {})
    with tempfile.TemporaryDirectory() as folder:
        real, output = Path(folder) / "real.npz", Path(folder) / "synthetic.npz"
        save_codes(real, frame, cells)
        command = [python, MARGINALS, method.removesuffix("_full"), real, output]
        command += ["--rho", (1.0 - PREPROCESSING_SHARE) * rho, "--delta", delta, "--seed", seed]
        command += ["--limits", json.dumps(limits)]
        subprocess.run(list(map(str, command)), check=True, env=environment)
        with np.load(output) as content:
            codes, seconds = content["codes"], float(content["seconds"])
    rng = np.random.default_rng(seed)
    sample = pd.DataFrame(
        {c: _values(codes[:, i], frame[c], cells[c], rng) for i, c in enumerate(frame)}
    )
    parameters = {"n_bins": N_BINS, "preprocessing_share": PREPROCESSING_SHARE, **limits}
    return Release(sample, epsilon, parameters, seconds)


def _even(histogram: NoisyHistogram) -> Cells:
    """Divide a column evenly between its first bin and its last, as others' mechanisms expect."""
    cells = histogram.cells
    if not isinstance(cells, Bins):
        return cells
    there = np.flatnonzero(histogram.shares())
    first, last = there[0], there[-1] + 1
    if cells.edges[first] == cells.edges[last]:  # a single value, which no bin is even beside
        first, last = max(0, first - 1), min(len(cells), last + 1)
    ends = float(cells.edges[first]), float(cells.edges[last])
    return Bins.even(Bounds(*ends), N_BINS)


def _rho_of(epsilon: float, delta: float) -> float:
    """Return the zero-concentrated budget that (ε, δ) allows, in which MST and AIM count."""

    def gaussian(noise_multiplier: float) -> GaussianRelease:
        relation = NeighbouringRelation.ADD_OR_REMOVE_ONE
        return GaussianRelease("everything", "A", noise_multiplier, 1.0, relation)

    noise_multiplier = calibrate_noise_multiplier(
        gaussian, epsilon=epsilon, delta=delta, accountant=RDPAccountant()
    )
    return 0.5 / noise_multiplier**2


def _values(
    codes: npt.NDArray[np.int64],
    real: pd.Series[Any],
    cells: Cells,
    rng: np.random.Generator,
) -> pd.Series[Any]:
    """Draw a value of the column's type from each cell; the tables have no missing values."""
    if isinstance(cells, Bins):
        places = np.minimum(codes, len(cells) - 1)
        numbers = cells.lows[places] + (cells.highs - cells.lows)[places] * rng.random(len(codes))
        return pd.Series(np.rint(numbers) if real.dtype.kind == "i" else numbers, dtype=real.dtype)
    values = pd.Series(cells.values)
    return values.take(np.minimum(codes, len(values) - 1)).reset_index(drop=True)
