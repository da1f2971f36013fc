"""A site's console: one read-only page, and the same in OpenMetrics form.

What it shows is in the site's folder already: how jobs are going, what they spent of the privacy
budget, whether the audit trail is whole. No record, no key and no name of a column is there.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vflsynth._version import __version__
from vflsynth.exceptions import ArtefactError, ParameterError
from vflsynth.federation import trail
from vflsynth.federation.account import told_bits
from vflsynth.federation.progress import JobState, job_state, report_of
from vflsynth.federation.site import Site
from vflsynth.privacy.ledger import conditional
from vflsynth.reporting import duration_text, number_text, render, require_packages

ADDRESS = "127.0.0.1"
METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_REFRESH = "5"
"""Seconds after which a browser asks again."""


@dataclass(frozen=True, slots=True)
class SiteState:
    """What a site's folder says at one moment.

    The job that was begun last comes first. `trail` counts lines of the audit trail; None if it is
    broken. `told` are bits of every record by receiver, as that says. `epsilon` is what all private
    runs that ended have spent, at `delta`, None without any, and `conditions` what it depends on
    beyond theorems; see `vflsynth.privacy.PrivacyLedger`.
    """

    site: Site
    jobs: list[JobState]
    trail: int | None
    told: dict[str, float]
    epsilon: float | None
    delta: float | None
    conditions: tuple[str, ...]

    @classmethod
    def of(cls, site: Site) -> SiteState:
        """Read the folder."""
        reports = sorted(
            site.folder.glob(f"*/{trail.REPORTS}"), key=lambda path: path.stat().st_mtime
        )
        names = list(dict.fromkeys(path.parent.name for path in reversed(reports)))
        try:
            n_lines: int | None = trail.verify(site.folder)[0]
            told = told_bits(site)
        except ArtefactError:
            n_lines, told = None, {}
        newest = (report_of(path).get("privacy") for path in reversed(reports))
        private: dict[str, Any] = next(filter(None, newest), {})
        spent = private.get("all runs of this folder", {})
        epsilon = spent.get("epsilon")
        return cls(
            site,
            [job_state(site.folder, name) for name in names],
            n_lines,
            told,
            None if epsilon is None else float(epsilon),  # "infinite" is a number to float
            spent.get("delta"),
            tuple(spent.get("conditions", ())),
        )


def metrics(state: SiteState) -> str:
    """Write a site's state as OpenMetrics text (the standard of 2020, as Prometheus reads it)."""
    lines: list[str] = []
    for name, kind, meaning, samples in _families(state):
        lines += [f"# TYPE vflsynth_{name} {kind}", f"# HELP vflsynth_{name} {meaning}"]
        total = "_total" if kind == "counter" else ""
        lines += [
            f"vflsynth_{name}{total}{{{labels}}} {_number(value)}" for labels, value in samples
        ]
    return "\n".join([*lines, "# EOF", ""])


def _families(state: SiteState) -> Iterator[tuple[str, str, str, list[tuple[str, float]]]]:
    def of_jobs(value: Any) -> list[tuple[str, float]]:
        found = [(job.job, value(job)) for job in state.jobs]
        return [(f"{own},{_label('job', name)}", v) for name, v in found if v is not None]

    own = _label("party", state.site.party)
    now = time.time()
    meaning = "1 while a process works on the job."
    yield "job_running", "gauge", meaning, of_jobs(lambda j: int(j.running))
    yield "job_attempts", "counter", "Attempts that were begun.", of_jobs(lambda j: j.attempts)
    meaning = "1 if the last attempt ended with an error."
    failed = of_jobs(lambda j: int(j.outcome not in (None, "finished")))
    yield "job_failed", "gauge", meaning, failed
    meaning = "Seconds that the running job's training will still take."
    left = of_jobs(lambda j: j.found.get("seconds_left") if j.running else None)
    yield "job_seconds_left", "gauge", meaning, left
    for name, kind, meaning in (
        ("epoch", "gauge", "Epoch that is being trained."),
        ("n_epochs", "gauge", "Epochs that will be trained."),
        ("sent_bytes", "counter", "Bytes of messages that left in this attempt."),
        ("received_bytes", "counter", "Bytes of messages that arrived in this attempt."),
    ):
        yield f"job_{name}", kind, meaning, of_jobs(lambda j, name=name: j.found.get(name))
    meaning = "Seconds since the running job was last asked for something."
    silent = of_jobs(lambda j: now - j.found["updated"] if j.running and j.found else None)
    yield "job_silent_seconds", "gauge", meaning, silent
    meaning = "1 if the audit trail's chain of digests holds."
    yield "trail_whole", "gauge", meaning, [(own, int(state.trail is not None))]
    if state.epsilon is not None:
        meaning = "Epsilon of all private runs that ended, at the site's delta"
        meaning = f"{conditional(meaning, *state.conditions)}."
        yield "epsilon", "gauge", meaning, [(own, state.epsilon)]
    if state.site.budget is not None:
        meaning = "Epsilon that the site agreed to."
        yield "epsilon_budget", "gauge", meaning, [(own, state.site.budget.epsilon)]


def _number(value: float) -> str:
    return "+Inf" if math.isinf(value) else repr(value)


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{escaped}"'


def page(state: SiteState) -> str:
    """Fill the page."""
    running = [job.job for job in state.jobs if job.running] or ["Nothing"]
    headline = f"{' and '.join(running)} {'are' if running[1:] else 'is'} running"
    return str(
        render(
            "vflsynth.federation",
            "console.html",
            title=f"Site {state.site.party}",
            facts=[f"vflsynth {__version__}", time.strftime("%Y-%m-%d %H:%M:%S %Z")],
            headline=headline,
            cards=list(_cards(state)),
            rows=[_row(job) for job in state.jobs],
        )
    )


def _cards(state: SiteState) -> Iterator[dict[str, str]]:
    for job in state.jobs:
        if job.running:
            epochs = "epoch" in job.found
            yield {
                "level": "partly",
                "title": job.job,
                "value": f"{job.found['epoch']} of {job.found['n_epochs']}" if epochs else "…",
                "unit": "epochs" if epochs else str(job.found.get("phase", "starting")),
                "text": str(job),
            }
    budget = state.site.budget
    if state.epsilon is not None or budget is not None:
        spent = 0.0 if state.epsilon is None else state.epsilon
        left = "no budget is set" if budget is None else f"{budget.epsilon:g} agreed to"
        over = budget is not None and spent > 0.8 * budget.epsilon
        yield {
            "level": "far" if over else "close",
            "title": "Privacy budget",
            "value": number_text(spent),
            "unit": conditional(f"epsilon spent by runs that ended, {left}", *state.conditions),
            "text": "What an epsilon covers is in the report of each run.",
        }
    if told := state.told:
        total, telling = sum(told.values()), state.site.telling
        yield {
            "level": "far" if total > 0.8 * telling.bits else "close",
            "title": "Contexts of every record",
            "value": number_text(total),
            "unit": f"bits told in {telling.days} days, if receivers pool them",
            "text": ", ".join(f"{name}: {bits:g}" for name, bits in sorted(told.items())),
        }
    whole = state.trail is not None
    yield {
        "level": "close" if whole else "far",
        "title": "Audit trail",
        "value": f"{state.trail} lines" if whole else "broken",
        "unit": "each holds the digest of the one before",
        "text": ""
        if whole
        else "A line was changed, taken out or put in; this node will not go "
        "on. See 'vflsynth parties trail'.",
    }


def _row(job: JobState) -> dict[str, Any]:
    left = job.found.get("seconds_left")
    outcome = re.sub(r"^(\w+): .*", r"\1", str(job.outcome), flags=re.S)  # which may name columns
    return {
        "name": job.job,
        "level": "partly" if job.running else "close" if job.outcome == "finished" else "far",
        "state": job.found.get("phase", "running") if job.running else outcome,
        "epoch": f"{job.found['epoch']}/{job.found['n_epochs']}" if "epoch" in job.found else "",
        "left": duration_text(left) if job.running and left is not None else "",
        "attempts": job.attempts,
        "started": job.started,
        "megabytes": [job.found.get(f"{n}_bytes", 0) / 1e6 for n in ("sent", "received")],
    }


def console(
    site: Site, port: int, address: str = ADDRESS, names: Collection[str] = ()
) -> ThreadingHTTPServer:
    """Make the server of a site's console; its `serve_forever` serves it.

    Port 0 takes one that is free. There is no log-in: whoever reaches the address sees the page. A
    browser may know it by further `names`. A page of somebody else's, whose name was made to lead
    here, is refused: it has another name. Raises ParameterError if the port is taken and
    MissingExtraError without the extra 'report'.
    """
    require_packages("the console")
    known = {"localhost", "127.0.0.1", "[::1]", address.lower(), *map(str.lower, names)}

    class Handler(BaseHTTPRequestHandler):
        """Answers GET, and nothing else."""

        def do_GET(self) -> None:
            """Show the state of this moment."""
            host = re.sub(r":[0-9]+$", "", self.headers.get("Host", "")).lower()
            if host not in known:
                self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
                return
            state = SiteState.of(site)
            pages = {"/": ("text/html; charset=utf-8", page), "/metrics": (METRICS, metrics)}
            if self.path not in pages:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            kind, write = pages[self.path]
            content = write(state).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if self.path == "/":
                self.send_header("Refresh", _REFRESH)
            self.end_headers()
            self.wfile.write(content)

        def end_headers(self) -> None:
            """Have browsers run nothing, keep nothing, and show it in nobody else's page."""
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet: a browser asks every few seconds."""

    try:
        return ThreadingHTTPServer((address, port), Handler)
    except OSError as error:
        raise ParameterError(
            f"{address}:{port} cannot be served on: {error.strerror}. Fix: another --port"
        ) from error
