"""What it costs to have every party in a process of its own, on NVIDIA FLARE with mutual TLS.

Everything is of one run on one machine: a fit in one process, then the same over loopback and over
a TCP proxy of ours that delays every byte by 10 ms in each direction. The models are compared byte
by byte. Then a party is killed.

    python -m benchmarks.engine
    python -m benchmarks.engine --keys 1000000 --parties 2    # matching alone

An exchange goes through a dozen threads of four processes, each of which waits for its turn where
other programs keep the cores busy. There, ``chrt --rr 1 python -m benchmarks.engine`` gives all of
them priority; the result says whether they had it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import _commands, _results
from benchmarks._federation import Parties, bytes_of_half
from vflsynth import VFLGANSynthesizer, preset
from vflsynth.datasets import make_party_frames
from vflsynth.federation.administrator import Administrator
from vflsynth.federation.guardian import descendants
from vflsynth.federation.job import Job
from vflsynth.federation.kit import write_job
from vflsynth.federation.psi import POINT, KeyBlinder, common_positions, n_copies
from vflsynth.federation.simulate import Federation
from vflsynth.federation.wire import Frame, decode, encode
from vflsynth.methods.vflgan.messages import DiscriminatorFeatures, DiscriminatorGradients
from vflsynth.protocol.channel import SERVER, LocalChannel, Message, Participant, answers, takes

ONE_WAY = 0.01
"""Seconds that the proxy keeps every byte."""

RECORDS, BATCH, WIDTH = 1_024, 64, 128
"""A batch's features of one party are 64 x 128 numbers for real and as many for fake records."""

DEATH_TIMEOUT = 10.0
"""Exchange timeout of the run in which a party is killed."""

_COMMON = {"batch_size": BATCH, "model_selection": "last", "gradient_penalty": "paper"}
_ADULT = {"latent_dim", "generator_hidden", "first_part", "shared_hidden", "discriminator_steps"}
NETWORKS: dict[str, dict[str, Any]] = {
    "hardly any": {
        **_COMMON,
        "latent_dim": 4,
        "generator_hidden": [8],
        "first_part": [WIDTH],
        "shared_hidden": [],
        "private_heads": False,
    },
    "the paper's for Adult": _COMMON | {k: v for k, v in preset("adult").items() if k in _ADULT},
}


def in_process(frames: Mapping[str, pd.DataFrame], job: Job) -> tuple[np.ndarray, dict[str, bytes]]:
    """Fit in this process; return the seconds of every epoch, and the parties' generators."""
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in job.parameters.items()}
    synth = VFLGANSynthesizer(**values, random_state=0, device="cpu", verbose=0)
    synth.fit(frames, "record_id")
    models = {name: bytes_of_half(half) for name, half in synth.parties_.items()}
    return synth.history_["seconds"].to_numpy(), models


def compare(
    parties: Parties, administrator: Administrator, networks: str, epochs: int
) -> dict[str, Any]:
    """Train in one process and across processes; compare times, bytes and models."""
    parameters = NETWORKS[networks] | {"epochs": epochs}
    job = parties.job(f"{networks.split()[0]}-{epochs}", parameters)
    local_seconds, local_models = in_process(parties.frames, job)
    report = parties.train(administrator, job)
    seconds = np.array([record["seconds"] for record in report["history"]])
    steps = RECORDS // BATCH
    every = int(report["job"]["parameters"].get("discriminator_steps", 5))
    generator_steps = steps * epochs // every
    exchanges = (steps * epochs + generator_steps) / epochs + 1  # and the losses
    ms_local = 1e3 * float(np.median(local_seconds[1:])) / steps
    ms = 1e3 * seconds[1:] / steps
    floats = 4 * BATCH * WIDTH
    # Real and fake features of both parties up, gradients down; fakes alone in generator steps.
    least = 2 * 2 * (2 * floats + floats * generator_steps / (steps * epochs))
    sent = sum(row["bytes"] for row in report["left"] + report["arrived"])
    return {
        "networks": networks,
        "parameters": parameters,
        "steps": steps * epochs,
        "exchanges": round(exchanges * epochs),
        "exchanges_per_second": {
            "median of epochs": round(exchanges / float(np.median(seconds[1:])), 1),
            "fastest tenth": round(exchanges / float(np.quantile(seconds[1:], 0.1)), 1),
        },
        "ms_per_step": {
            "in one process": round(ms_local, 3),
            "across processes": round(float(np.median(ms)), 3),
            "across processes, q10 and q90 of epochs": np.quantile(ms, [0.1, 0.9])
            .round(3)
            .tolist(),
            "added": round(float(np.median(ms)) - ms_local, 3),
        },
        "ms_per_exchange": round(1e3 * float(np.median(seconds[1:])) / exchanges, 3),
        "bytes_per_step": {
            "least: float32 numbers of features and gradients": round(least),
            "in messages of all kinds, matching included": round(sent / (steps * epochs)),
            "in frames": round(frame_bytes(steps * epochs, generator_steps)),
        },
        "models equal those of one process byte for byte": parties.bytes_of(job) == local_models,
    }


def frame_bytes(steps: int, generator_steps: int) -> float:
    """Bytes of the frames of a step of both parties, both ways."""

    def size(rows: int) -> int:
        values = torch.zeros(1, rows, WIDTH)
        up = DiscriminatorFeatures("party_1", SERVER, steps, values)
        down = DiscriminatorGradients(SERVER, "party_1", steps, values)
        pair = [up, down]
        return sum(len(encode(Frame("adult", steps, (item,), tag="0" * 16))) for item in pair)

    return 2 * (size(2 * BATCH) + size(BATCH) * generator_steps / steps)


def per_step(
    parties: Parties, administrator: Administrator, networks: str, epochs: tuple[int, int]
) -> dict[str, float]:
    """Bytes that pass the proxy, TLS and FLARE's envelopes included, and time of all processes.

    Two runs of different lengths, so that starting, joining and matching drop out.
    """
    assert parties.proxy is not None
    found = []
    for n in epochs:
        before = parties.proxy.passed, cpu_seconds(parties.federation)
        job = parties.job(f"wire-{n}", NETWORKS[networks] | {"epochs": n})
        parties.train(administrator, job)
        time.sleep(5)  # until the daemons have taken notice of their children's ends
        after = parties.proxy.passed, cpu_seconds(parties.federation)
        found.append((after[0] - before[0], after[1] - before[1]))
    steps = (epochs[1] - epochs[0]) * (RECORDS // BATCH)
    return {
        "wire bytes, TLS and FLARE included": round((found[1][0] - found[0][0]) / steps),
        "CPU ms of all processes": round(1e3 * (found[1][1] - found[0][1]) / steps, 2),
    }


def cpu_seconds(federation: Federation) -> float:
    """Process time of all nodes and of their children that have ended."""
    ticks = 0
    pids = [pid for p in federation.processes.values() for pid in (p.pid, *descendants(p.pid))]
    for pid in pids:
        text = Path(f"/proc/{pid}/stat").read_text()
        ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def death(parties: Parties, administrator: Administrator) -> dict[str, Any]:
    """Kill one party's processes in the middle of a run; time until the last node says so."""
    parameters = NETWORKS["hardly any"] | {"epochs": 100_000}
    job = parties.job("death", parameters, exchange_timeout=DEATH_TIMEOUT, checkpoint_every=5)
    job_id = administrator.submit(write_job(job, parties.folder / "jobs"))
    checkpoints = parties.folder / "party_1" / "death" / "checkpoints"
    deadline = time.monotonic() + 120
    while not (checkpoints.exists() and any(checkpoints.iterdir())):
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.05)
    parties.federation.kill("party_2")
    died = time.monotonic()
    reports = {
        node: parties.folder / node / "death" / "report-001.json" for node in ("server", "party_1")
    }
    found: dict[str, Any] = {"exchange_timeout": DEATH_TIMEOUT, "seconds": {}}
    while len(found["seconds"]) < len(reports):
        for node, path in reports.items():
            outcome = json.loads(path.read_text())["outcome"]
            if outcome is not None and node not in found["seconds"]:
                found["seconds"][node] = round(time.monotonic() - died, 1)
                found[f"{node} says"] = outcome
        assert time.monotonic() - died < 120, "a node never noticed"
        time.sleep(0.05)
    administrator.wait(job_id, 120)
    return found


class _Prepared(Participant):
    """A party that answers at once, with the same message."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.message = DiscriminatorFeatures(name, SERVER, 0, torch.zeros(1, 2 * BATCH, WIDTH))

    @answers(DiscriminatorFeatures)
    def features(self, step: int) -> Message:
        return self.message

    @takes(DiscriminatorGradients)
    def gradients(self, message: Message) -> None:
        pass


def local_driver(repeats: int = 20_000) -> dict[str, Any]:
    """Time of a step in the in-process driver beyond what parties and server do; and of frames."""
    parties = [_Prepared("party_1"), _Prepared("party_2")]
    channel = LocalChannel(parties)
    replies = {
        p.name: DiscriminatorGradients(SERVER, p.name, 0, torch.zeros(1, 2 * BATCH, WIDTH))
        for p in parties
    }

    def seconds(step: Any, times: int) -> float:
        found = []
        for _ in range(10):
            started = time.process_time()
            for _ in range(times // 10):
                step()
            found.append((time.process_time() - started) / (times // 10))
        return min(found)

    def through_channel() -> None:
        channel.gather(DiscriminatorFeatures, 0)
        channel.scatter(replies)

    def directly() -> None:
        for party in parties:
            party.answer(DiscriminatorFeatures, 0)
        for party in parties:
            party.take(replies[party.name])

    frame = Frame("run", 0, (parties[0].message,), tag="0" * 16)
    data = encode(frame)
    with_channel, without = seconds(through_channel, repeats), seconds(directly, repeats)
    return {
        "ms_per_step": round(1e3 * (with_channel - without), 5),
        "frame_bytes": len(data),
        "ms_to_encode": round(1e3 * seconds(lambda: encode(frame), repeats // 10), 4),
        "ms_to_decode": round(1e3 * seconds(lambda: decode(data, 1 << 28), repeats // 10), 4),
    }


def matching(n_keys: int, n_parties: int) -> dict[str, Any]:
    """Time what one party computes to match records, and what the server does.

    The others' lists are the party's own, which cost the same to blind; the server's are random
    bytes, half of which are common.
    """
    n_points, rng = n_copies(n_parties) * n_keys, np.random.default_rng()
    keys, order = pd.RangeIndex(n_keys), rng.permutation(n_points)
    blinder = KeyBlinder(keys, order, bytes(32), copies=n_copies(n_parties))
    common = rng.integers(0, 256, (n_points // 2, POINT), np.uint8)
    own = (n_parties, n_points - len(common), POINT)
    lists = {
        str(i): torch.from_numpy(rng.permutation(np.concatenate([common, part])))
        for i, part in enumerate(rng.integers(0, 256, own, np.uint8))
    }
    timed: dict[str, float] = {}
    waited: dict[str, float] = {}

    @contextmanager
    def timing(name: str) -> Iterator[None]:
        started, began = time.process_time(), time.perf_counter()
        yield
        timed[name] = round(time.process_time() - started, 2)
        waited[name] = round(time.perf_counter() - began, 2)

    with timing("a party blinds its keys"):
        points = blinder.blind()
    with timing("a party blinds the others'"):
        for _ in range(n_parties - 1):
            blinder.reblind(points)
    with timing("the server compares"):
        places = common_positions(lists)
    assert len(places["0"]) == len(common)
    received = points.numel() * (2 if n_parties == 2 else n_parties - 1) + places["0"].nbytes
    return {
        "keys": n_keys,
        "parties": n_parties,
        "points of a key": n_copies(n_parties),
        "cpu_seconds": timed,
        "seconds": waited,
        "megabytes of a party": round((points.numel() * n_parties + received) / 1e6, 1),
        "cores": os.cpu_count(),
        "load average": os.getloadavg()[0],
    }


def main() -> None:
    """Measure and write."""
    parser = _commands.parser(__doc__)
    parser.add_argument("--epochs", type=int, default=60, help=f"of {RECORDS // BATCH} steps")
    parser.add_argument("--keys", type=int, default=100_000, help="of every party")
    parser.add_argument("--parties", type=int, nargs="+", help="match their keys, and nothing else")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.parties:
        for n_parties in args.parties:
            row = matching(args.keys, n_parties)
            print(json.dumps(row), flush=True)
            _results.put("matching", row)
        return
    load_before = os.getloadavg()[0]
    frames = make_party_frames(RECORDS, 2, random_state=0)
    result: dict[str, Any] = {"local driver": local_driver()}
    print(result, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        parties = Parties(Path(folder) / "loopback", frames)
        with parties.open() as administrator:
            result["loopback"] = [
                compare(parties, administrator, networks, args.epochs) for networks in NETWORKS
            ]
            print(json.dumps(result["loopback"], indent=1), flush=True)
            result["death of a party"] = death(parties, administrator)
            print(result["death of a party"], flush=True)
        parties = Parties(Path(folder) / "delayed", frames, ONE_WAY)
        with parties.open() as administrator:
            few = max(2, args.epochs // 4)
            result["round trip of 20 ms"] = [
                compare(parties, administrator, networks, few) for networks in NETWORKS
            ]
            print(json.dumps(result["round trip of 20 ms"], indent=1), flush=True)
            result["a step with hardly any networks"] = per_step(
                parties, administrator, "hardly any", (2, 2 + few)
            )
    result["before other programs"] = os.sched_getscheduler(0) == os.SCHED_RR
    result["cores"] = os.cpu_count()
    result["load average before and after"] = [load_before, os.getloadavg()[0]]
    _results.put("engine", result)


if __name__ == "__main__":
    main()
