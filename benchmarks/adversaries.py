"""Attacks against synthesizers, and against protections of labels, with intervals.

    python -m benchmarks.adversaries synthetic   # attack by synthesizer, red wine
    python -m benchmarks.adversaries labels      # attack by protection, Spambase and others
    python -m benchmarks.adversaries attributes  # guesses of a sensitive value, German credit
    python -m benchmarks.adversaries show

Synthesizers are audited on 300 records by their default settings, but for GANs, which are trained
for fewer epochs: 200 in place of 800, CTGAN 100 in place of 300. 100 models are trained with and
100 without the record that stands out most, of slow ones fewer. "rows", "halves" and "blind" are
planted: a bootstrap, each party's half of another record, and noise. CTGAN comes from PyPI, has the
joined table, and runs in an environment of its own (`benchmarks.external`), through joblib on dask.
An attack's AUC is that of its adversary that was best in training; "own density" is that of an
attacker who holds the model. Synthetic tables are kept in ``benchmarks/cache/adversaries``, so that
a run that was cut short goes on, and another attack needs no more models.

Sensitive values are guessed by who knows all other columns of a record: the value of the nearest
synthetic record, and what a model that can tell calls most probable. Every model is trained on a
random half of the records, so that each record is asked about with it and without it; the interval
is that of the mean over models of the difference between the two.

Protections are attacked on what two passive parties, and both together, have of a
training; the range is that of three trainings. "All trainings" is one party that took part in all
three, as a search over parameters makes it do.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from scipy.stats import t
from sklearn.base import BaseEstimator

from benchmarks import _commands, _results
from benchmarks._data import load_red_wine, load_south_german_credit
from benchmarks._split import TABLES, divided, zero_to_one
from benchmarks.external.run import prepare_environment
from vflsynth import (
    AutoregressiveSynthesizer,
    GaussianCopulaSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.adversary.encoding import Attribute, Encoding, distance_blocks
from vflsynth.audit import JoinedTable, audit_synthetic_data
from vflsynth.audit.criteria import values_of
from vflsynth.audit.game import train
from vflsynth.audit.inference import most_probable, right
from vflsynth.audit.playing import STACKED
from vflsynth.splitdefense import (
    DIMIP,
    GAFMClassifier,
    Isotropic,
    MarvellClassifier,
    MaxNorm,
    RandomizedResponse,
    SplitNNClassifier,
)
from vflsynth.splitdefense.leakage.attacks import transcript_attacks
from vflsynth.splitdefense.leakage.monitor import Evidence, pooled
from vflsynth.splitdefense.settings import AS_PUBLISHED

N_RECORDS, N_MODELS, EPOCHS = 300, 100, 200
FEWER = {"vflgan": 20, "autoregressive": 12, "ctgan": 12}
CTGAN_EPOCHS = 100
HALVES, N_APPLICANTS, ASKED = 24, 300, 150
SENSITIVE = ("credit_risk",)
N_LABELLED, LABEL_EPOCHS, SEEDS = 2000, 30, (0, 1, 2)
Frames = dict[str, pd.DataFrame]


def bootstrap(frames: Frames, random_state: int, *, together: bool) -> pd.DataFrame:
    """Publish a bootstrap of the records, or each party's half beside that of another record."""
    rng = np.random.default_rng(random_state)
    n = len(next(iter(frames.values())))
    rows = rng.integers(n, size=N_RECORDS)  # as many in both worlds: their number tells nothing
    parts = []
    for frame in frames.values():
        parts.append(frame.iloc[rows].reset_index(drop=True))
        rows = rows if together else rng.integers(n, size=N_RECORDS)
    return pd.concat(parts, axis=1)


def blind(frames: Frames, random_state: int) -> pd.DataFrame:
    """Publish noise."""
    rng = np.random.default_rng(random_state)
    columns = [column for frame in frames.values() for column in frame.columns]
    return pd.DataFrame(rng.normal(size=(N_RECORDS, len(columns))), columns=columns)


def records() -> Frames:
    """Return the records that are asked about."""
    return {
        party: frame.iloc[:: len(frame) // N_RECORDS].head(N_RECORDS)
        for party, frame in load_red_wine().party_frames.items()
    }


def ctgan() -> JoinedTable:
    """Return CTGAN, which only its own environment has."""
    from ctgan import CTGAN

    return JoinedTable(CTGAN(epochs=CTGAN_EPOCHS, enable_gpu=False))


_TRAINING: dict[str, Any] = {"epochs": EPOCHS, "model_selection": "last", "device": "cpu"}

SYNTHESIZERS: dict[str, Callable[[], Any]] = {
    "rows": lambda: partial(bootstrap, together=True),
    "halves": lambda: partial(bootstrap, together=False),
    "blind": lambda: blind,
    "copula": GaussianCopulaSynthesizer,
    "vflgan": lambda: VFLGANSynthesizer(**_TRAINING),
    "vertigan": lambda: VertiGANSynthesizer(**_TRAINING),
    "wgan-gp": lambda: WGANGPSynthesizer(**_TRAINING),
    "ctgan": ctgan,
    "autoregressive": lambda: AutoregressiveSynthesizer(device="cpu"),
    "one-message": lambda: AutoregressiveSynthesizer(device="cpu", protocol="one_message"),
}
GUESSED = ("rows", "halves", "copula", "autoregressive", "one-message")

_OWN = "log_prob of "  # columns of what is kept: the model's own density of parts of the records


def _own(asked: pd.DataFrame) -> str:
    return _OWN + ", ".join(asked.columns)


class Published:
    """What was kept of a model: its table, and what it says of the records."""

    def __init__(self, path: Path) -> None:
        self._table = pd.read_parquet(path)

    def sample(self, n: int) -> pd.DataFrame:
        """Return the table, whatever its size."""
        return self._table.loc[:, [not name.startswith(_OWN) for name in self._table.columns]]

    def log_prob(self, asked: pd.DataFrame) -> pd.Series[Any]:
        """Return the model's own density of columns that were asked about, of some records."""
        return self._table[_own(asked)].loc[asked.index]


class Kept(BaseEstimator):  # type: ignore[misc]
    """One of the synthesizers whose tables are kept: what was made once is not made again."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def log_prob(self) -> Any:
        """What the synthesizer has, if it has it."""
        return SYNTHESIZERS[self.name]().log_prob

    def fit(self, frames: Frames, on: Hashable = None) -> Published:
        """Return what one model publishes."""
        return self.fit_replicas(frames, on, random_states=[0])[0]

    def fit_replicas(
        self, frames: Frames, on: Hashable = None, *, random_states: Sequence[int]
    ) -> list[Published]:
        """Return what models with these seeds publish, trained if it is not at hand."""
        joined = pd.concat(list(frames.values()), axis=1)
        digest = hashlib.sha256(pd.util.hash_pandas_object(joined).to_numpy().tobytes())
        folder = _results.CACHE / "adversaries" / self.name / digest.hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        paths = {state: folder / f"{state}.parquet" for state in random_states}
        missing = [state for state in random_states if not paths[state].exists()]
        if missing:
            models = train(SYNTHESIZERS[self.name](), frames, on, missing)
            for state, model in zip(missing, models, strict=True):
                table = model.sample(N_RECORDS)
                if hasattr(model, "log_prob"):
                    parts = list(records().values())
                    parts.append(pd.concat(parts, axis=1))
                    own = {_own(part): model.log_prob(part) for part in parts}
                    table = table.set_axis(parts[0].index).assign(**own)
                side = paths[state].with_suffix(".tmp")
                table.to_parquet(side)
                os.replace(side, paths[state])
        return [Published(path) for path in paths.values()]


_LABELS: dict[str, Any] = AS_PUBLISHED | {"epochs": LABEL_EPOCHS, "device": "cpu"}

PROTECTIONS: dict[str, Callable[[], Any]] = {
    "none": lambda: SplitNNClassifier(**_LABELS),
    "max norm": lambda: SplitNNClassifier(protection=MaxNorm(), **_LABELS),
    "isotropic": lambda: SplitNNClassifier(protection=Isotropic(), **_LABELS),
    "marvell 4": lambda: MarvellClassifier(power_scale=4.0, **_LABELS),
    "marvell 16": lambda: MarvellClassifier(power_scale=16.0, **_LABELS),
    "gafm": lambda: GAFMClassifier(epochs=LABEL_EPOCHS, device="cpu"),
    "dimip": lambda: SplitNNClassifier(objective=DIMIP(0.5, 5), **_LABELS),
    "label privacy": lambda: SplitNNClassifier(label_privacy=RandomizedResponse(1.0), **_LABELS),
}


def main() -> None:
    """Measure or show."""
    parser = _commands.parser(
        __doc__,
        *("synthetic", "labels", "attributes", "show"),
        synthesizers=SYNTHESIZERS,
        protections=PROTECTIONS,
        data=TABLES,
    )
    options = parser.parse_args()
    part = options.action
    if part == "show":
        show()
        return
    if part == "synthetic":
        cells = [("red-wine", name) for name in options.synthesizers]
    elif part == "attributes":
        cells = [("south-german-credit", n) for n in options.synthesizers if n in GUESSED]
    else:
        cells = list(product(options.data, options.protections))
    for data, name in cells:
        key = {"part": part, "data": data, "victim": name}
        if _results.rows("adversaries", **key):
            continue
        if name == "ctgan" and find_spec(name) is None:
            elsewhere(name)
            continue
        measure = {"synthetic": synthetic, "attributes": attributes}.get(part)
        measured = measure(name) if measure else labels(data, name)
        print(*key.values(), measured, flush=True)
        _results.put("adversaries", key | measured)


def elsewhere(name: str) -> None:
    """Audit a synthesizer in the environment that has it, and dask."""
    requirements = Path(__file__).parent / "external" / "audit-requirements.txt"
    python = prepare_environment("audit", requirements)
    command = [python, "-m", "benchmarks.adversaries", "synthetic", "--synthesizers", name]
    subprocess.run(command, check=True)


@contextmanager
def processes(name: str) -> Iterator[None]:
    """Give joblib the workers of a dask cluster for what comes from outside."""
    if name != "ctgan":
        yield
        return
    from distributed import Client

    cluster = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, joblib.parallel_config("dask"):
        yield


def synthetic(name: str) -> _results.Row:
    """Audit one synthesizer; return the AUC of each attack, and what the report says."""
    victim = SYNTHESIZERS[name]()
    planted = not hasattr(victim, "fit")
    with processes(name):
        audit = audit_synthetic_data(
            victim if planted else Kept(name),
            records(),
            targets=["most_outlying"],
            n_models=FEWER.get(name, N_MODELS),
            attacker="model" if hasattr(victim, "log_prob") else "table",
            verbose=0,
        )
    target = audit.targets[0]  # the others, if any, are of who holds the model
    attacks = {}
    for found in audit.targets:
        for attack in sorted(found.attacks, key=lambda one: one.training_auc):
            if found is target or attack.statistic != STACKED:
                attacks[attack.statistic] = [attack.auc.value, attack.auc.low, attack.auc.high]
    strongest = target.strongest
    return {
        "models": audit.n_models,
        "attacks": attacks,
        "strongest": [strongest.auc.value, strongest.auc.low, strongest.auc.high],
        "beats_guessing": audit.beats_guessing(target),
        "processor_seconds": round(audit.cpu_seconds, 1),
    }


def attributes(name: str) -> _results.Row:
    """Guess values from models of halves: right with the record, without it, and the difference."""
    frames = {
        party: frame.sample(N_APPLICANTS, random_state=0).reset_index(drop=True)
        for party, frame in load_south_german_credit().party_frames.items()
    }
    table = pd.concat(list(frames.values()), axis=1)
    asked = table.sample(ASKED, random_state=0)
    guessed: dict[str, list[tuple[float, float]]] = {}
    for state in range(HALVES):
        order = np.random.default_rng(state).permutation(len(table))
        used = np.sort(order[: len(table) // 2])
        halves = {party: frame.iloc[used] for party, frame in frames.items()}
        (model,) = train(SYNTHESIZERS[name](), halves, None, [state])
        published = model.sample(len(used))
        inside = asked.index.isin(used)
        for column in SENSITIVE:
            attribute = Attribute.learn(table[column], categorical=True)
            encoding = Encoding(table.drop(columns=column), [])
            distances = distance_blocks(encoding.encode(asked), encoding.encode(published))
            nearest = np.concatenate([block.argmin(axis=1) for block in distances])
            guesses = {"nearest": values_of(attribute, published)[nearest]}
            if hasattr(model, "log_prob"):
                guesses["own density"], _ = most_probable(model, asked, table.iloc[used], attribute)
            for attack, values in guesses.items():
                hits = right(attribute, values, values_of(attribute, asked))
                rates = float(hits[inside].mean()), float(hits[~inside].mean())
                guessed.setdefault(f"{column}, {attack}", []).append(rates)
    attacks = {}
    for attack, found in guessed.items():
        rates = np.array(found)
        gaps = rates[:, 0] - rates[:, 1]
        reach = float(t.ppf(0.975, HALVES - 1) * gaps.std(ddof=1) / HALVES**0.5)
        middle = float(gaps.mean())
        attacks[attack] = [*rates.mean(axis=0).tolist(), middle, middle - reach, middle + reach]
    return {"models": HALVES, "attacks": attacks}


def labels(data: str, victim: str) -> _results.Row:
    """Attack one protection in several trainings; return the AUC of each attack without labels."""
    table, y = TABLES[data]()
    chosen = np.random.default_rng(0).permutation(len(y))[:N_LABELLED]
    frames = divided(table.iloc[chosen].reset_index(drop=True), 2)
    attacks: dict[str, list[float]] = {}
    own: list[Evidence] = []
    for seed in SEEDS:
        model = PROTECTIONS[victim]().set_params(transformer=zero_to_one(), random_state=seed)
        evidence = list(model.fit(frames, y[chosen]).evidence_.values())
        own.append(evidence[0])
        attackers = {"one party": evidence[0], "both parties": pooled(evidence, "both parties")}
        if seed == SEEDS[-1]:
            attackers["one party, all trainings"] = pooled(own, "one party, all trainings")
        for attacker, one in attackers.items():
            twin = model if attacker == "one party" else None
            table_of = transcript_attacks(one, classifier=twin).query("measure == 'AUC'")
            for found in table_of.itertuples():
                if "labels" not in found.knows:
                    name = found.attack.split(" (")[0]
                    attacks.setdefault(f"{name}, {attacker}", []).append(found.value)
    return {
        "attacks": {
            attack: [float(np.mean(values)), min(values), max(values)]
            for attack, values in attacks.items()
        }
    }


def show() -> None:
    """Print both tables."""
    found = _results.rows("adversaries", part="synthetic")
    if found:
        print(f"Red wine, {N_RECORDS} records: AUC (95 % interval)")
        names = ["strongest in training", *max((row["attacks"] for row in found), key=len)]
        _print_row("", 26, [row["victim"] for row in found])
        for name in names:
            strongest = name == "strongest in training"
            values = [row["strongest"] if strongest else row["attacks"].get(name) for row in found]
            _print_row(name, 26, map(_cell, values))
        _print_row("models per world", 26, [row.get("models", N_MODELS) for row in found])
        said = ["yes" if row["beats_guessing"] else "not shown" for row in found]
        _print_row("said to beat guessing", 26, said)
    found = _results.rows("adversaries", part="attributes")
    if found:
        print(
            f"\nSouth German credit, {N_APPLICANTS} records, {HALVES} models of a random half "
            f"each, {ASKED} asked about:\nshare of right guesses with the record, without it, "
            "and the difference (95 % interval)"
        )
        for row in found:
            for name, (used, others, gap, low, high) in row["attacks"].items():
                print(
                    f"{row['victim']:<16}{name:<36}{used:>7.3f}{others:>7.3f}"
                    f"{gap:>8.3f} ({low:.3f} to {high:.3f})"
                )
    for data in TABLES:
        found = _results.rows("adversaries", part="labels", data=data)
        if not found:
            continue
        print(
            f"\n{data}, {N_LABELLED:,} records, {LABEL_EPOCHS} epochs, {len(SEEDS)} trainings: "
            "mean AUC (lowest-highest), no label known"
        )
        _print_row("", 60, [row["victim"] for row in found])
        for name in max((row["attacks"] for row in found), key=len):
            _print_row(name, 60, [_cell(row["attacks"].get(name)) for row in found])


def _print_row(name: str, wide: int, cells: Iterable[object]) -> None:
    print(f"{name:<{wide}}" + "".join(f"{cell:>19}" for cell in cells))


def _cell(value: list[float] | None) -> str:
    if value is None or np.isnan(value[0]):
        return ""
    return f"{value[0]:.2f} ({value[1]:.2f}-{value[2]:.2f})"


if __name__ == "__main__":
    main()
