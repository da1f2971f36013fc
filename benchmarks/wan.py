"""What a fit of ordinary size costs between organisations that are far apart.

Two parties and a server, each a process of its own on NVIDIA FLARE with mutual TLS, behind a proxy
that delays every byte by 25 ms in each direction and passes 100 Mbit/s: a round trip of 50 ms. The
methods' defaults, but for what the mode names, and for epochs where those are given: then the rest
of the run is worked out from the seconds and bytes of an epoch, and the row says so. With --quality
nothing is sent: models have the same bytes in one process, where their samples are judged.

    python -m benchmarks.wan --methods AutoregressiveSynthesizer
    python -m benchmarks.wan --methods VFLGANSynthesizer --epochs 2 --mode windows
    python -m benchmarks.wan --methods VFLGANSynthesizer --quality --mode windows --seeds 0 1
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import _commands, _results
from benchmarks._data import load_table
from benchmarks._federation import Parties
from vflsynth.evaluation import association_errors, detection_auc, frechet_distance
from vflsynth.federation.kit import write_job
from vflsynth.learning.messages import MaskedFake
from vflsynth.protocol.channel import MESSAGES, When
from vflsynth.protocol.schedule import default_epochs
from vflsynth.registry import Members

ONE_WAY, RATE = 0.025, 1e8
KEY = "record_id"
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "int8": {"wire_precision": "int8"},
    "windows": {"steps_per_exchange": 5, "wire_precision": "int8", "evaluate_every": 5},
}
_MAX_ROWS = 8000
METHODS = ("AutoregressiveSynthesizer", "VFLGANSynthesizer", "GaussianCopulaSynthesizer")
_SECONDS = 3_600.0


def judge(data: str, method: str, mode: str, seed: int) -> dict[str, Any]:
    """Fit in one process; return how good the sample is."""
    table = load_table(data)
    synth = Members("synthesizers")[method](random_state=seed, verbose=0, **MODES[mode])
    started = time.perf_counter()
    synth.fit(table.party_frames, transcript=True)
    seconds, real = time.perf_counter() - started, table.joined()
    sample, told = synth.sample(len(real)), synth.transcript_
    options: dict[str, Any] = {"categorical": table.categorical}
    errors = association_errors(real, sample, parties=table.party_columns, **options)
    own = told[(told["sender"] == "A") | (told["receiver"] == "A")]
    return {
        "data": data,
        "method": method,
        "mode": mode,
        "seed": seed,
        "frechet_distance": float(frechet_distance(real, sample, **options)),
        "association_error_across": float(errors["association_error_across"]),
        "detection_auc": float(detection_auc(real, sample, max_rows=_MAX_ROWS, **options)),
        "messages of a party": int(own["messages"].sum()),
        "megabytes of a party": round(float(own["bytes"].sum()) / 1e6, 1),
        "epochs": len(synth.history_),
        "fit_seconds": round(seconds, 1),
    }


def whole_run(report: dict[str, Any], party: str, epochs: int) -> float:
    """Return the megabytes of a party in a run of so many epochs, from the report of a shorter."""
    parameters, total = report["job"]["parameters"], 0.0
    found = parameters.get("epochs", epochs)
    every = parameters.get("evaluate_every", 1)
    times = {
        When.STEP: epochs / found,
        When.EPOCH: epochs / found,
        "evaluation": -(-epochs // every) / -(-found // every),
    }
    for row in report["left"] + report["arrived"]:
        if party in row.values():
            when: Any = MESSAGES[row["message"]].declared.when
            if row["message"] == MaskedFake.__name__:
                when = "evaluation"
            total += row["bytes"] * times.get(when, 1)
    return total / 1e6


def measure(
    data: str, method: str, rows: int | None, epochs: int | None, mode: str
) -> dict[str, Any]:
    """Fit once; return seconds and bytes."""
    frames = {
        name: frame.head(rows).reset_index(drop=True).rename_axis(KEY).reset_index()
        for name, frame in load_table(data).party_frames.items()
    }
    records = min(len(frame) for frame in frames.values())
    with tempfile.TemporaryDirectory() as folder:
        parties = Parties(Path(folder) / "far", frames, ONE_WAY, RATE, on=KEY)
        parameters = MODES[mode] | ({} if epochs is None else {"epochs": epochs})
        job = parties.job("wan", parameters, method=method, setup_timeout=900.0)
        with parties.open() as administrator:
            started = time.monotonic()
            job_id = administrator.submit(write_job(job, parties.folder / "jobs"))
            status = administrator.wait(job_id, _SECONDS)
            seconds = time.monotonic() - started
        report = json.loads((parties.folder / "server" / "wan" / "report-001.json").read_text())
        assert report["outcome"] == "finished", f"{status}: {report['outcome']}"
        assert parties.proxy is not None
        batch_size = report["settings"].get("batch_size", records)
        made = Members("synthesizers")[method](**MODES[mode]).method()
        epochs_by_default = getattr(made, "default_epochs", default_epochs)(records, batch_size)
        later = [e["seconds"] for e in report.get("history", [])[1:]]  # the first starts things up
        of_party = max(
            sum(r["bytes"] for r in report["left"] + report["arrived"] if name in r.values())
            for name in frames
        )
        return {
            "data": data,
            "method": method,
            "mode": mode,
            "records": records,
            "epochs": epochs,
            "seconds": round(seconds, 1),
            "exchanges": sum(r["messages"] for r in report["arrived"]),
            "megabytes of messages of the busiest party": round(of_party / 1e6, 1),
            "megabytes by default": round(
                max(whole_run(report, name, epochs_by_default) for name in frames), 1
            ),
            "megabytes through the proxy": round(parties.proxy.passed / 1e6, 1),
            "seconds of an epoch": statistics.median(later) if later else None,
            "epochs by default": epochs_by_default if epochs else None,
            "load average": os.getloadavg()[0],
        }


def main() -> None:
    """Measure and write."""
    parser = _commands.parser(__doc__, methods=METHODS)
    parser.add_argument("--data", default="adult")
    parser.add_argument("--rows", type=int, help="of the table, from its beginning (default: all)")
    parser.add_argument("--epochs", type=int, help="of each method (default: the method's)")
    parser.add_argument("--mode", choices=sorted(MODES), default="default")
    parser.add_argument("--quality", action="store_true", help="judge samples, in one process")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="with --quality")
    args = parser.parse_args()
    for method in args.methods:
        if args.quality:
            for seed in args.seeds:
                row = judge(args.data, method, args.mode, seed)
                print(json.dumps(row), flush=True)
                _results.put("wan_quality", row)
            continue
        row = measure(args.data, method, args.rows, args.epochs, args.mode)
        print(json.dumps(row, indent=1), flush=True)
        _results.put("wan", row)


if __name__ == "__main__":
    main()
