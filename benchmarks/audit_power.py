"""How often audits find planted leaks, and how often they find one where there is none.

    VFLSYNTH_DATA=... python -m benchmarks.audit_power leaks      # five plants, 40 and 100 models
    VFLSYNTH_DATA=... python -m benchmarks.audit_power nothing    # 500 audits of what tells nothing
    python -m benchmarks.audit_power show

100 records of red wine, of which one is asked about; what is published is 100 records, too:

- *rows*: a bootstrap of the records;
- *halves*: each party's half beside that of another record;
- *columns*: every value beside values of other records;
- *half a record*: records with noise, and in 60 % of the tables that may, half of the values of the
  record in question in one of them;
- *limits*: noise, cut off where the records' values end; asks about the most outlying record.

What tells nothing is one of the first three, made of the other records alone; so that there are
many audits of it, they see two columns of each party, and have 20 models a world. An audit's forest
has 100 trees, of what tells nothing 20; everything else is the default. Beside it is the simplest
attack: how many published values are exactly those of the record, with nothing to learn, on all
models where audits are judged by half of them. Repetitions differ in seeds. They are written in
order, each as soon as it and those before it are done: a run that was cut short goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import joblib
import numpy as np
import pandas as pd

from benchmarks import _commands, _results
from benchmarks.adversaries import Frames, records
from vflsynth.adversary import LikelihoodRatio, RandomForest, RegularisedLogistic
from vflsynth.adversary.intervals import auc, binomial_interval, rank_sum_p_value
from vflsynth.audit import audit_synthetic_data

N_RECORDS, REPEATS, NEGATIVES = 100, 10, 500
MODELS, NEGATIVE_MODELS = (40, 100), 20
SHOWS = 0.6
FIELDS = ("p", "p of the attack best in training", "its AUC", "AUC of the most telling")
FIELDS += ("AUC of the count", "p of the count")
ORDINARY = 17

Publisher = Callable[[Frames, int], pd.DataFrame]


def resampled(frames: Frames, random_state: int, groups: str) -> pd.DataFrame:
    """Draw records with repetition: whole ones, parties' parts, or columns by themselves."""
    rng = np.random.default_rng(random_state)
    table = pd.concat(list(frames.values()), axis=1)
    parts = {
        "rows": [list(table.columns)],
        "halves": [list(frame.columns) for frame in frames.values()],
        "columns": [[column] for column in table.columns],
    }[groups]
    drawn = [
        table[columns].iloc[rng.integers(len(table), size=N_RECORDS)].reset_index(drop=True)
        for columns in parts
    ]
    return pd.concat(drawn, axis=1)


def half_a_record(frames: Frames, random_state: int, target: Hashable) -> pd.DataFrame:
    """Publish noisy records, of which one may have half of the target's values."""
    rng = np.random.default_rng(random_state)
    table = pd.concat(list(frames.values()), axis=1)
    others = table.drop(index=target, errors="ignore")
    made = others.iloc[rng.integers(len(others), size=N_RECORDS)].reset_index(drop=True)
    made = made + rng.normal(size=made.shape) * 0.3 * others.std().to_numpy()
    if target in table.index and rng.random() < SHOWS:
        copied = rng.permutation(table.shape[1])[: table.shape[1] // 2]
        values = table.loc[target].to_numpy(np.float64)[copied]
        made.iloc[int(rng.integers(N_RECORDS)), copied] = values
    return made


def limits(frames: Frames, random_state: int) -> pd.DataFrame:
    """Publish noise within the range of the records."""
    table = pd.concat(list(frames.values()), axis=1).astype(np.float64)
    noise = np.random.default_rng(random_state).normal(size=(N_RECORDS, table.shape[1]))
    middle, spread = table.median(), table.std()
    made = pd.DataFrame(noise * 3.0, columns=table.columns) * spread + middle
    return made.clip(table.min(), table.max(), axis=1)


def publisher(leak: str, target: Hashable) -> Publisher:
    """Return a way to publish that leaks, or "nothing" with a number for a way that does not."""
    if leak == "limits":
        return limits
    if leak == "half a record":
        return lambda frames, state: half_a_record(frames, state, target)
    if not leak.startswith("nothing"):
        return lambda frames, state: resampled(frames, state, leak)
    groups = ("rows", "halves", "columns")[int(leak.split()[1]) % 3]

    def of_others(frames: Frames, state: int) -> pd.DataFrame:
        others = {n: frame.drop(index=target, errors="ignore") for n, frame in frames.items()}
        return resampled(others, state, groups)

    return of_others


LEAKS = ("rows", "halves", "columns", "half a record", "limits")


def measured(leak: str, n_models: int, repeat: int) -> list[float]:
    """Audit once; return the `FIELDS`."""
    small = leak.startswith("nothing")
    frames = {p: f.iloc[:N_RECORDS, : 2 if small else None] for p, f in records().items()}
    table = pd.concat(list(frames.values()), axis=1)
    scaled = (table - table.mean()) / table.std()
    outlying = scaled.abs().max(axis=1).idxmax()
    target = outlying if leak == "limits" else table.index[ORDINARY]
    publish, counts = publisher(leak, target), ([], [])  # type: tuple[list[float], list[float]]
    wanted = table.loc[target].to_numpy(np.float64)

    def watched(frames: Frames, state: int) -> pd.DataFrame:
        made = publish(frames, state)
        inside = target in next(iter(frames.values())).index
        counts[inside].append(float((made.to_numpy(np.float64) == wanted).sum()))
        return made

    audit = audit_synthetic_data(
        watched,
        frames,
        targets=[target],
        n_models=n_models,
        adversaries=[RandomForest(20 if small else 100), RegularisedLogistic(), LikelihoodRatio()],
        n_jobs=1,
        random_state=repeat,
        verbose=0,
    ).targets[0]
    scores = np.array([*counts[1], *counts[0]])
    inside = np.arange(len(scores)) < len(counts[1])
    best = audit.strongest
    found = (audit.p_value, best.p_value, best.auc.value, audit.most_telling.auc.value)
    return [round(v, 5) for v in (*found, auc(scores, inside), rank_sum_p_value(scores, inside))]


def main() -> None:
    """Measure or show."""
    parser = _commands.parser(__doc__, "leaks", "nothing", "show", leaks=LEAKS)
    parser.add_argument("--models", type=int, nargs="+", default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1, help="audits at a time")
    options = parser.parse_args()
    if options.action == "show":
        show()
        return
    if options.action == "leaks":
        repeats = options.repeats or REPEATS
        cells = [(leak, models, n) for n in range(repeats) for models in options.models
                 for leak in options.leaks]  # fmt: skip
    else:
        cells = [("nothing", NEGATIVE_MODELS, n) for n in range(options.repeats or NEGATIVES)]
    done = {(row["leak"], row["models"]): row["found"] for row in _results.rows("audit_power")}
    cells = [cell for cell in cells if cell[2] >= len(done.setdefault(cell[:2], []))]
    audits = (
        joblib.delayed(measured)(f"nothing {n}" if leak == "nothing" else leak, models, n)
        for leak, models, n in cells
    )
    in_order = joblib.Parallel(n_jobs=options.jobs, return_as="generator")(audits)
    for (leak, models, repeat), audit in zip(cells, in_order, strict=True):
        found = done[leak, models]
        found.append(audit)
        _results.put("audit_power", {"leak": leak, "models": models, "found": found})
        print(leak, models, repeat, audit, flush=True)


def show() -> None:
    """Print how often leaks are found, and what is found where there is none."""
    print(f"shares of audits that say at 5 % that one of {N_RECORDS} records is told apart")
    columns = ("repeats", "audit", "best in tr.", "count", "its AUC", "telling", "count AUC")
    print(f"{'leak, models per world':<28}" + "".join(f"{column:>13}" for column in columns))
    for leak in (*LEAKS, "nothing"):
        for row in _results.rows("audit_power", leak=leak):
            found = np.array(row["found"])
            p, p_chosen, chosen, telling, count, p_count = found.T
            shares = [float((values <= 0.05).mean()) for values in (p, p_chosen, p_count)]
            cells = [*shares, chosen.mean(), telling.mean(), count.mean()]
            print(
                f"{leak + ', ' + str(row['models']):<28}{len(found):>13}"
                + "".join(f"{cell:>13.3f}" for cell in cells)
            )
            if leak == "nothing":
                alarms = binomial_interval(int((p <= 0.05).sum()), len(found))
                print(
                    f"{'':<28}false alarms: {alarms} (95 % interval); at most .05 is promised; "
                    f"{len(found)} of {NEGATIVES} audits were run"
                )


if __name__ == "__main__":
    main()
