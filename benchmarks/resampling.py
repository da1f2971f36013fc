"""VFLGAN's rows as drawn, and resampled: one of four or of eight stays.

    python -m benchmarks.resampling            # measures what is missing
    python -m benchmarks.resampling --show     # prints what is recorded

Default settings; the tables, their rows and the scores are the ladder's, and all samples of a seed
are of one fit. Parties send features of records and of drawn rows when training is over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks import _commands, _results, ladder
from vflsynth import VFLGANSynthesizer

TABLES = ("adult", "california-housing", "credit-default")
TIMES = {"as drawn": 1, "one of 4": 4, "one of 8": 8}
COLUMNS = {
    "trees": "detection",
    "TSTR": "tstr",
    "FD": "frechet_distance",
    "within": "trend_within",
    "across": "trend_across",
    "rules": "rule_violations",
    "nearer": "closer_to_training_share",
    "MB": "feature_megabytes",
    "sample s": "sample_cpu_seconds",
}


def measured(name: str, seed: int) -> Iterator[_results.Row]:
    """Fit once, and judge all samples."""
    table, train, test = ladder.split(name)
    synth = VFLGANSynthesizer(resample=max(TIMES.values()), random_state=seed, verbose=0)
    frames = {party: train[list(columns)] for party, columns in table.party_columns.items()}
    synth.fit(frames, transcript=True)
    assert synth.transcript_ is not None
    crossed = synth.transcript_.set_index("message").loc[["RowFeatures", "RowScorer"]]
    learned = {party: half.sampler.scores for party, half in synth.parties_.items()}
    for method, times in sorted(TIMES.items(), key=lambda item: -item[1]):
        for party, half in synth.parties_.items():
            scores = learned[party]
            assert scores is not None
            half.sampler.scores = replace(scores, times=times) if times > 1 else None
        started = time.process_time()
        rows = synth.sample(len(train))
        seconds = time.process_time() - started
        found = ladder.scores(table, train, test, rows, seed)
        found |= ladder.broken_rules(table, train, rows)
        yield {
            "data": name,
            "method": method,
            "seed": seed,
            **found,
            "feature_megabytes": float(crossed["bytes"].sum()) / 1e6 if times > 1 else 0.0,
            "sample_cpu_seconds": round(seconds, 2),
        }


def show() -> None:
    """Print what is recorded."""
    print(f"{'table':<20}{'rows':<10}" + "".join(f"{t:>9}" for t in COLUMNS) + "  seeds")
    for (data, method), cell in sorted(_results.cells("resampling").items()):
        means = [cell[key].mean() if key in cell else float("nan") for key in COLUMNS.values()]
        shown = "".join(f"{'-':>9}" if x != x else f"{x:>9.3f}" for x in means)
        print(f"{data:<20}{method:<10}{shown}{len(cell):>7}")


def main() -> None:
    """Measure what is missing, and print all."""
    parser = _commands.parser(__doc__, data=TABLES)
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    for name in () if arguments.show else arguments.data:
        for seed in _results.missing("resampling", arguments.seeds, data=name, method="as drawn"):
            for row in measured(name, seed):
                _results.put("resampling", row)
    show()


if __name__ == "__main__":
    main()
