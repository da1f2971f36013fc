"""``vflsynth parties``: the same run with every party in a process of its own."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vflsynth import _artefacts as artefacts
from vflsynth.cli.console import say
from vflsynth.cli.options import Option, check_file, check_folder, check_table, whole
from vflsynth.exceptions import ParameterError, ProtocolError, UnusableFileError

if TYPE_CHECKING:
    import pandas as pd

    from vflsynth.federation.job import Job
    from vflsynth.federation.site import Site

logger = logging.getLogger("vflsynth")

DESCRIPTION = """\
Train with every party in a process of its own, on NVIDIA FLARE (pip install 'vflsynth[flare]').

A job file says what all sites agree on, a site file what one site alone decides: where its table
is, the kinds of its columns, the secret that the parties share and the server never learns.
"""
EPILOG = """\
examples, on one machine, with lab.toml and clinic.toml beside job.toml:
  vflsynth parties simulate job.toml

examples, really apart, where every private key stays where it is made:
  vflsynth parties project job.toml --host vfl.example.org --port 8102 -o project
  nvflare cert init --profile project/profile.yml -o ca                     # the authority
  nvflare cert request -p project/lab.yml --out lab-request                 # everybody
  nvflare cert approve lab.request.zip -c ca --profile project/profile.yml  # the authority
  nvflare package lab.signed.zip --request-dir lab-request -w kits          # everybody
  vflsynth parties prepare kits/vflsynth/prod_00/lab lab.toml               # at every site
  vflsynth parties approve job.toml lab.toml                                # once it was read
  vflsynth parties start kits/vflsynth/prod_00/lab                          # at every site
  vflsynth parties check job.toml lab.toml --kit kits/vflsynth/prod_00/lab  # at every party
  vflsynth parties submit job.toml --admin kits/vflsynth/prod_00/admin@vflsynth.org
  vflsynth parties console lab.toml --port 8103                             # at every site
  vflsynth parties sample job.toml lab.toml -n 5000 --request one -o lab.parquet
  vflsynth parties join lab.parquet clinic.parquet -o synthetic.parquet
"""


def run(options: argparse.Namespace) -> int:
    """Do one action; 1 if a run across processes failed."""
    return ACTIONS[options.action].do(options) or 0


def interrupted(options: argparse.Namespace) -> str:
    """Say what is left of an action that Ctrl-C ended."""
    if options.action == "simulate":
        return "checkpoints stay; the same command goes on from the last that all sites have"
    if options.action == "submit":
        stop = f"vflsynth parties abort {options.job} --admin {options.admin}"
        return f"if the job was started, it goes on without this command; to stop it: {stop}"
    return "nothing was saved"


def _job(options: argparse.Namespace) -> Job:
    from vflsynth.federation.job import Job

    return Job.read(options.job)


def _site(options: argparse.Namespace) -> Site:
    from vflsynth.federation.site import Site

    return Site.read(options.site)


def _simulate(options: argparse.Namespace) -> int:
    from vflsynth.federation.simulate import reproducible, simulate
    from vflsynth.federation.site import Site

    job = _job(options)
    beside = options.job.resolve().parent
    folder = options.sites or beside
    sites = {name: Site.read(folder / f"{name}.toml") for name in job.parties}
    server = folder / "server.toml"
    sites["server"] = (
        Site.read(server) if server.exists() else Site("server", beside / "server-folder")
    )
    for name, site in sites.items():
        if site.party != name:
            raise ParameterError(f"{name}.toml is the site file of {site.party!r}")
    if options.seed is not None:
        sites = reproducible(job, sites, options.seed)
    outcomes = simulate(job, sites, options.kits or beside / "kits", seconds=options.timeout)
    for name, outcome in outcomes.items():
        say(f"{name}: {outcome}; see {sites[name].folder / job.name}")
    for outcome in [outcomes["server"], *outcomes.values()]:
        if outcome != "finished":
            raise ProtocolError(outcome)
    return 0


def _approve(options: argparse.Namespace) -> None:
    from vflsynth.federation.consent import FILE, approve, describe, withdraw

    job, site = _job(options), _site(options)
    if options.withdraw:
        was = "withdrawn" if withdraw(job, site) else "was not approved"
        say(f"{site.party}: job {job.name!r} {was}")
        return
    say(describe(job))
    if not options.show:
        approve(job, site)
        say(f"{site.party}: approved; {site.folder / FILE}")


def _project(options: argparse.Namespace) -> None:
    from vflsynth.federation.kit import definitions

    check_folder("--output", options.output)
    files = definitions(_job(options), options.host, options.port)
    for name, text in files.items():
        artefacts.replace_text(options.output / name, text)
    say(f"{options.output}: {', '.join(files)}; see 'vflsynth parties --help' for what comes next")


def _prepare(options: argparse.Namespace) -> None:
    from vflsynth.federation.kit import prepare

    prepare(options.kit, _site(options))
    say(f"{options.kit}: prepared; start it with 'vflsynth parties start {options.kit}'")


def _start(options: argparse.Namespace) -> None:
    """Become the node's process, so that signals of a service manager reach it."""
    from vflsynth.federation.certificates import check_certificate
    from vflsynth.federation.kit import ONE_THREAD, node_command, owner
    from vflsynth.federation.site import SITE_FILE

    kit = options.kit
    command = node_command(kit)
    if not (kit / "local" / SITE_FILE).is_file():
        raise ParameterError(
            f"{kit} is not prepared, so it has no policy. Fix: vflsynth parties prepare {kit} SITE"
        )
    check_certificate(kit, owner(kit))
    (kit / "transfer").mkdir(exist_ok=True)
    os.chdir(kit)
    os.execvpe(command[0], command, ONE_THREAD | os.environ)


def _check(options: argparse.Namespace) -> int:
    """Say what was found, good or bad; 1 if something would fail."""
    from vflsynth.federation.preflight import preflight

    all_good = True
    for finding in preflight(_job(options), _site(options), options.kit):
        say(f"{'ok   ' if finding.good else 'FAILS'} {finding.subject}: {finding.detail}")
        all_good &= finding.good
    return 0 if all_good else 1


def _console(options: argparse.Namespace) -> None:
    from vflsynth.federation.console import console

    with console(_site(options), options.port, options.address, options.known_as) as server:
        host, port = server.server_address[:2]
        say(f"http://{host!s}:{port}/ and /metrics, until Ctrl-C")
        server.serve_forever()


def _status(options: argparse.Namespace) -> None:
    from vflsynth.federation.progress import job_state

    site, job = _site(options), _job(options)
    say(f"{site.party}: {job_state(site.folder, job.name)}")


def _trail(options: argparse.Namespace) -> None:
    from vflsynth.federation import trail

    site = _site(options)
    n, last = trail.verify(site.folder)
    for line in trail.lines(site.folder):
        say(f"{line['time']} {line['event']} {json.dumps(line['details'])}")
    say(f"{site.party}: {n} lines, whole; the last digest is {last}")


def _logs(options: argparse.Namespace) -> None:
    """Show FLARE's own log and that of the job that ran last."""
    kit = options.kit
    own = kit / "log.txt"
    if not own.exists():
        raise UnusableFileError(f"{kit} has no log.txt: nothing was started from it")
    jobs = sorted(kit.glob("*/log.txt"), key=lambda path: path.stat().st_mtime)
    for path in [own, *jobs[-1:]]:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        say("\n".join([f"{path}:", *lines[-options.n :]]))


def _key(options: argparse.Namespace) -> None:
    from vflsynth._signatures import new_key

    check_file("output", options.output)
    public = new_key(options.output)
    say(f'{options.output}: keep it to yourself. For site files:\n[proposers]\nname = "{public}"')


def _abort(options: argparse.Namespace) -> None:
    from vflsynth.federation.administrator import abort

    job = _job(options)
    say(f"{abort(job, options.admin)} runs of job {job.name!r} stopped")


def _submit(options: argparse.Namespace) -> int:
    from vflsynth.federation.administrator import submit

    job, attempts = _job(options), options.attempts
    ended = submit(job, options.admin, options.timeout, attempts=attempts, key=options.key)
    if not ended.finished:
        raise ProtocolError(f"job {job.name!r} did not finish: {ended}")
    say(f"{job.name}: {ended}; the folder of every node has a report of the run")
    return 0


def _sample(options: argparse.Namespace) -> None:
    from vflsynth.federation.sampling import draw_part

    site, job = _site(options), _job(options)
    check_table("--output", options.output, [] if site.table is None else [site.table])
    part = draw_part(
        job,
        site,
        options.n,
        options.request,
        keys=options.keys,
        passed=options.passed,
        drawn=options.drawn,
    )
    _write(part, options.output)


def _join(options: argparse.Namespace) -> None:
    from vflsynth.federation.joining import join_parts
    from vflsynth.frames import read_table

    check_table("--output", options.output, options.parts)
    table, cost = join_parts({str(path): read_table(path) for path in options.parts})
    if cost is not None:
        logger.info("%s", cost)
    _write(table, options.output)


def _write(table: pd.DataFrame, path: Path) -> None:
    from vflsynth.frames import write_table

    write_table(table, path)
    say(f"{path}: {len(table):,} rows")


class _Action(NamedTuple):
    """What it is for, what it does, and its options."""

    help: str
    do: Callable[[argparse.Namespace], int | None]
    options: Sequence[Option]


_JOB = Option("job JOB", "job file")
_SITE = Option("site SITE", "site file")
_KIT = Option("kit KIT", "start-up kit of the site, a folder made by nvflare")
_ADMIN = Option("--admin KIT", "start-up kit of the administrator", required=True)
_TIMEOUT = Option("--timeout S", "seconds (default: a day)", type=float, default=86400.0)
_SIMULATE = [
    Option(
        "--sites DIR",
        "where PARTY.toml, and server.toml if there is one, are (default: beside the job)",
    ),
    Option("--kits DIR", "for certificates and logs (default: kits beside the job)"),
    Option(
        "--seed SEED",
        "use the secrets of a fit in one process with this random_state, to compare with it",
    ),
]
_PROJECT = [
    Option("--host HOST", "the server's name, as the parties dial it", required=True),
    Option("--port PORT", "the one port that is dialled", required=True),
    Option("-o --output DIR", "folder to write to", required=True),
]
_APPROVE = [
    Option("--withdraw", "take the consent back"),
    Option("--show", "only show what would be agreed to"),
]
_CONSOLE = [
    Option("--port PORT", "where the page will be", required=True),
    Option(
        "--address ADDRESS",
        "there is no log-in: whoever reaches it sees the page (default: %(default)s)",
        default="127.0.0.1",
    ),
    Option(
        "--known-as NAME...",
        "names of this machine that a browser may ask for; others are refused",
    ),
]
_SAMPLE = [
    Option("-n N", "how many records", required=True, type=whole(0)),
    Option("--request NAME", "names the sample", required=True),
    Option("--keys", "add fresh keys; at one party only"),
    Option(
        "--drawn N",
        "where rules leave out rows: how many to draw, so that enough are left (default: twice as "
        "many as are asked for)",
    ),
    Option(
        "--passed DIR",
        "for methods whose parties draw one after the other, such as AutoregressiveSynthesizer: "
        "what was passed on to this party is read from DIR/PARTY-to-PARTY.parquet, and what it "
        "passes on is written there",
    ),
    Option("-o --output FILE", ".parquet", required=True),
]
_JOIN = [
    Option("parts FILE...", "all parties' parts"),
    Option("-o --output FILE", "the whole sample", required=True),
]
_SUBMIT = [
    Option("--key FILE", "sign the job with the proposer's private key"),
    Option("--attempts N", "submit it N times at most, until it succeeds", default=1),
]
ACTIONS = {
    "simulate": _Action(
        "server and parties as processes of this machine", _simulate, [_JOB, *_SIMULATE, _TIMEOUT]
    ),
    "project": _Action("write what 'nvflare cert' needs of everybody", _project, [_JOB, *_PROJECT]),
    "prepare": _Action(
        "write site policy and site file into a start-up kit", _prepare, [_KIT, _SITE]
    ),
    "start": _Action("run a site's node from its prepared kit, in the foreground", _start, [_KIT]),
    "approve": _Action(
        "take part in a job: show it, and write down consent", _approve, [_JOB, _SITE, *_APPROVE]
    ),
    "check": _Action(
        "say before a run what would fail at a site",
        _check,
        [_JOB, _SITE, Option("--kit KIT", "its start-up kit: certificate, policy, the server")],
    ),
    "console": _Action(
        "serve a site's read-only page, and metrics of it", _console, [_SITE, *_CONSOLE]
    ),
    "status": _Action("say how a job is going at a site, or how it ended", _status, [_JOB, _SITE]),
    "trail": _Action("show a site's audit trail, and check that it is whole", _trail, [_SITE]),
    "logs": _Action(
        "show the end of a site's logs",
        _logs,
        [_KIT, Option("-n N", "lines of each (default: 20)", default=20)],
    ),
    "key": _Action(
        "make a key to sign proposals with; print its public part",
        _key,
        [Option("output FILE", "the private key")],
    ),
    "abort": _Action("stop a job; it can go on from its checkpoints", _abort, [_JOB, _ADMIN]),
    "submit": _Action(
        "start a job and wait for its end", _submit, [_JOB, _ADMIN, *_SUBMIT, _TIMEOUT]
    ),
    "sample": _Action("draw one party's part of a sample", _sample, [_JOB, _SITE, *_SAMPLE]),
    "join": _Action("put all parties' parts of a sample side by side", _join, _JOIN),
}
