"""VFLGAN's rows as drawn, and resampled: one of four stays, by a classifier on random features.

    python -m benchmarks.resampling            # measures what is missing
    python -m benchmarks.resampling --show     # prints what is recorded

8,000 training and 8,000 test rows, 60 epochs, which is a quarter of the default; both samples are
of one fit. Rules broken in Adult: an education that is not its number, husbands and wives who are
not married or of the other sex.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks import _commands, _results
from benchmarks._data import load_table
from benchmarks.ladder import predictive
from vflsynth import VFLGANSynthesizer
from vflsynth.evaluation import detection_auc, frechet_distance, proximity

TABLES = ("adult", "california-housing")
TIMES, _ROWS, _EPOCHS = 4, 8000, 60
MEASURES = ("detection_auc", "tstr", "frechet_distance", "rules_broken", "closer_to_training_share")


def measured(name: str, seed: int) -> Iterator[_results.Row]:
    """Fit once, and judge both samples."""
    table = load_table(name)
    order = np.random.default_rng(seed).permutation(len(table.joined()))
    train, test = (
        table.joined().iloc[order[start : start + _ROWS]].reset_index(drop=True)
        for start in (0, _ROWS)
    )
    synth = VFLGANSynthesizer(
        column_kinds=dict.fromkeys(table.categorical, "categorical"),
        epochs=_EPOCHS,
        resample=TIMES,
        random_state=seed,
        verbose=0,
    )
    frames = {party: train[list(columns)] for party, columns in table.party_columns.items()}
    synth.fit(frames, transcript=True)
    assert synth.transcript_ is not None
    crossed = synth.transcript_.set_index("message").loc[["RowFeatures", "RowScorer"]]
    options = {"categorical": table.categorical, "random_state": seed}
    for method in ("resampled", "drawn"):
        if method == "drawn":
            for half in synth.parties_.values():
                half.sampler.scores = None
        started = time.process_time()
        rows = synth.sample(_ROWS, random_state=seed)[train.columns]
        seconds = time.process_time() - started
        near = proximity(train, rows, holdout=test, max_rows=2000, **options)
        yield {
            "data": name,
            "method": method,
            "seed": seed,
            "detection_auc": float(detection_auc(test, rows, max_rows=_ROWS, **options)),
            "tstr": predictive(rows, test, table),
            "frechet_distance": float(frechet_distance(test, rows, **options)),
            "rules_broken": broken(train, rows) if name == "adult" else 0.0,
            "closer_to_training_share": near["closer_to_training_share"].value,
            "rows_drawn_per_row": TIMES if method == "resampled" else 1,
            "messages": int(crossed["messages"].sum()) if method == "resampled" else 0,
            "megabytes": float(crossed["bytes"].sum()) / 1e6 if method == "resampled" else 0.0,
            "sample_seconds": round(seconds, 2),
        }


def broken(train: pd.DataFrame, rows: pd.DataFrame) -> float:
    """Share of Adult's rows that break a rule."""
    number = train.groupby("education")["education-num"].first()
    education = rows["education"].map(number).astype(float) != rows["education-num"].astype(float)
    husband, wife = (rows["relationship"] == who for who in ("Husband", "Wife"))
    married = rows["marital-status"].isin(["Married-civ-spouse", "Married-AF-spouse"])
    sex = (husband & (rows["sex"] != "Male")) | (wife & (rows["sex"] != "Female"))
    return float((education | sex | ((husband | wife) & ~married)).mean())


def show() -> None:
    """Print what is recorded."""
    titles = ("AUC", "TSTR", "FD", "broken", "nearer", "messages", "MB", "sample s")
    print(f"{'table':<20}{'rows':<11}" + "".join(f"{title:>9}" for title in titles) + "  seeds")
    for (data, method), cell in sorted(_results.cells("resampling").items()):
        values = [cell[m].mean() for m in (*MEASURES, "messages", "megabytes", "sample_seconds")]
        shown = "".join(f"{value:>9.3f}" for value in values[:5])
        shown += f"{values[5]:>9.0f}{values[6]:>9.1f}{values[7]:>9.2f}"
        print(f"{data:<20}{method:<11}{shown}{len(cell):>7}")


def main() -> None:
    """Measure what is missing, and print all."""
    parser = _commands.parser(__doc__, data=TABLES)
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    for name in () if arguments.show else arguments.data:
        for seed in _results.missing("resampling", arguments.seeds, data=name, method="drawn"):
            for row in measured(name, seed):
                _results.put("resampling", row)
    show()


if __name__ == "__main__":
    main()
