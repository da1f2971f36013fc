"""Federations on this machine for benchmarks: real processes, behind a line of given quality."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd

from vflsynth import PartyModel
from vflsynth.federation.administrator import Administrator
from vflsynth.federation.job import Job
from vflsynth.federation.kit import project, write_job
from vflsynth.federation.simulate import HOST, Federation, free_port, make_kits, reproducible
from vflsynth.federation.site import Site

_BUFFER = 0.05
"""Seconds of data that a line holds before its sender has to wait."""


class Delay:
    """A TCP proxy in a thread of its own that delays and counts what passes.

    It dials the port `target` of this machine. Delay and bits are those of each direction, bits of
    each connection.
    """

    def __init__(self, target: int, seconds: float, bits_per_second: float = float("inf")) -> None:
        self.target, self.seconds, self.rate = target, seconds, bits_per_second
        self.passed = 0
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, HOST, 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self.target)
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def send() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                writer.write(data)
                if not data:
                    writer.close()
                    return
                await writer.drain()

        sender = asyncio.ensure_future(send())
        free = 0.0  # when the line has sent what was given to it
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.passed += len(data)
                free = max(free, self._loop.time()) + 8 * len(data) / self.rate
                waiting.put_nowait((free + self.seconds, data))
                while free - self._loop.time() > _BUFFER:  # else memory would hold all of it
                    await asyncio.sleep(_BUFFER)
        waiting.put_nowait((0.0, b""))
        with suppress(ConnectionError):
            await sender


class Parties:
    """Two parties and a server on this machine.

    With a `delay`, in seconds, a proxy is between parties and server, see `Delay`; without, parties
    dial the server itself. `on` is the key column.
    """

    def __init__(
        self,
        folder: Path,
        frames: Mapping[str, pd.DataFrame],
        delay: float | None = None,
        bits_per_second: float = float("inf"),
        on: str = "record_id",
    ) -> None:
        self.folder, self.frames, self._on = folder, frames, on
        folder.mkdir(parents=True)
        sites, shared = {"server": Site("server", folder / "server")}, os.urandom(32)
        for name, frame in frames.items():
            table = folder / f"{name}.parquet"
            frame.to_parquet(table)
            sites[name] = Site(name, folder / name, table, shared=shared)
        job = self.job("any", {})
        port = free_port()
        content = json.loads(project(job, HOST, port))
        self.proxy = None if delay is None else Delay(port, delay, bits_per_second)
        if self.proxy is not None:
            for participant in content["participants"]:
                if participant["type"] == "client":
                    participant["connect_to"] = {"host": HOST, "port": self.proxy.port}
        kits = make_kits(json.dumps(content), folder / "kits")
        self.federation = Federation(job, kits, reproducible(job, sites, 0))

    def job(self, name: str, parameters: Mapping[str, Any], **more: Any) -> Job:
        """Make a job."""
        content = {"name": name, "parties": sorted(self.frames), "on": self._on, **more}
        return Job.from_dict({**content, "parameters": dict(parameters)})

    @contextmanager
    def open(self) -> Iterator[Administrator]:
        """Run the processes for a while."""
        with self.federation.running():
            administrator = Administrator(self.federation.admin, sorted(self.frames))
            yield administrator
            administrator.close()

    def train(self, administrator: Administrator, job: Job) -> dict[str, Any]:
        """Run a job to its end and return the server's report."""
        job_id = administrator.submit(write_job(job, self.folder / "jobs"))
        status = administrator.wait(job_id, 1_800)
        path = self.folder / "server" / job.name / "report-001.json"
        report: dict[str, Any] = json.loads(path.read_text())
        assert report["outcome"] == "finished", f"{status}: {report['outcome']}"
        return report

    def bytes_of(self, job: Job) -> dict[str, bytes]:
        """Return the parties' generators."""
        halves = {
            name: PartyModel.load(self.folder / name / job.name / "half") for name in self.frames
        }
        return {name: bytes_of_half(half) for name, half in halves.items()}


def bytes_of_half(half: PartyModel) -> bytes:
    """Return the numbers of a party's half."""
    return b"".join(value.numpy().tobytes() for value in half.sampler.tensors().values())
