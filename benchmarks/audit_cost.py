"""What an audit costs against the number of models and of records, as a picture.

    python -m benchmarks.audit_cost

On generated tables, with the default settings cut to 200 steps or one epoch, on one core. The
picture is ``benchmarks/results/audit_cost.svg``.
"""

from __future__ import annotations

from itertools import chain

from matplotlib.figure import Figure

from benchmarks import _commands, _results
from vflsynth import VFLGANSynthesizer
from vflsynth.adversary import RandomForest
from vflsynth.audit import audit_synthetic_data
from vflsynth.datasets import make_party_frames

MODELS = (10, 20, 50, 100)
RECORDS = (200, 1000, 5000, 20_000)
FIXED_MODELS, FIXED_RECORDS = 20, 1000
STEPS, BATCH_SIZE = 200, 32


def main() -> None:
    """Measure, write and draw."""
    _commands.parser(__doc__).parse_args()
    for curve, models, records in chain(
        (("models", n, FIXED_RECORDS) for n in MODELS),
        (("records", FIXED_MODELS, n) for n in RECORDS),
    ):
        row = measure(models, records)
        print(row, flush=True)
        _results.put(
            "audit_cost", {"curve": curve, **row, "steps": STEPS, "batch_size": BATCH_SIZE}
        )
    draw().savefig(_results.RESULTS / "audit_cost.svg", metadata={"Date": None})


def measure(n_models: int, n_records: int) -> _results.Row:
    """Audit one record and return processor seconds of training and observing models."""
    frames = make_party_frames(n_records, 2, random_state=0)
    synthesizer = VFLGANSynthesizer(
        batch_size=BATCH_SIZE,
        epochs=max(1, STEPS * BATCH_SIZE // n_records),
        model_selection="last",
        device="cpu",
    )
    audit = audit_synthetic_data(
        synthesizer,
        frames,
        "record_id",
        targets=["farthest"],
        n_models=n_models,
        adversaries=[RandomForest(n_trees=100)],
        verbose=0,
    )
    return {
        "models": n_models,
        "records": n_records,
        "processor_seconds": round(audit.cpu_seconds, 2),
        "seconds_per_model": round(audit.cpu_seconds / audit.n_trained, 4),
    }


def draw() -> Figure:
    """Draw both curves, logarithmic on both axes."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, name in zip(panels, ("models", "records")):
        rows = _results.rows("audit_cost", curve=name)
        axes.loglog([row[name] for row in rows], [row["processor_seconds"] for row in rows], "o-")
        axes.set_xlabel("models per world" if name == "models" else "records")
        axes.grid(visible=True, alpha=0.3)
        axes.set_ylim(1, 100)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
    panels[0].set_ylabel("processor seconds of the audit")
    panels[0].set_title(f"{FIXED_RECORDS:,} records, {STEPS} steps", fontsize=9)
    panels[1].set_title(f"{FIXED_MODELS} models per world, {STEPS} steps or one epoch", fontsize=9)
    return figure


if __name__ == "__main__":
    main()
