"""``vflsynth parties``: the same run with every party in a process of its own."""

from __future__ import annotations

import argparse
import json
import logging
import os
from pathlib import Path

from vflsynth._signatures import new_key
from vflsynth.cli.console import say
from vflsynth.cli.targets import add_passed
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.federation import trail
from vflsynth.federation.administrator import DONE, abort, submit
from vflsynth.federation.consent import FILE as APPROVED
from vflsynth.federation.consent import approve, describe, withdraw
from vflsynth.federation.console import ADDRESS, console
from vflsynth.federation.job import Job
from vflsynth.federation.kit import ONE_THREAD, definitions, node_command, prepare
from vflsynth.federation.preflight import preflight
from vflsynth.federation.progress import job_state
from vflsynth.federation.sampling import draw_part, join_parts
from vflsynth.federation.simulate import reproducible, simulate
from vflsynth.federation.site import SITE_FILE, Site
from vflsynth.frames import read_table, write_table

logger = logging.getLogger("vflsynth")

SUMMARY = "train with every party in its own process, in other organisations if need be"
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", dest="action", required=True, help="what to do"
    )

    one = actions.add_parser("simulate", help="server and parties as processes of this machine")
    _job(one)
    one.add_argument(
        "--sites",
        metavar="DIR",
        type=Path,
        help="where PARTY.toml, and server.toml if there is one, are (default: beside the job)",
    )
    one.add_argument(
        "--kits",
        metavar="DIR",
        type=Path,
        help="for certificates and logs (default: kits beside the job)",
    )
    one.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="use the secrets of a fit in one process with this random_state, to compare with it",
    )
    _attempts(one)
    _timeout(one)

    one = actions.add_parser("project", help="write what 'nvflare cert' needs of everybody")
    _job(one)
    one.add_argument("--host", required=True, help="the server's name, as the parties dial it")
    one.add_argument("--port", required=True, type=int, help="the one port that is dialled")
    one.add_argument("-o", "--output", required=True, metavar="DIR", type=Path)

    one = actions.add_parser("prepare", help="write site policy and site file into a start-up kit")
    one.add_argument("kit", metavar="KIT", type=Path, help="folder made by nvflare")
    one.add_argument("site", metavar="SITE", type=Path, help="site file")

    one = actions.add_parser("start", help="run a site's node from its kit, in the foreground")
    one.add_argument("kit", metavar="KIT", type=Path, help="prepared start-up kit")

    one = actions.add_parser("approve", help="take part in a job: show it, and write down consent")
    _job(one)
    one.add_argument("site", metavar="SITE", type=Path, help="site file")
    one.add_argument("--withdraw", action="store_true", help="take the consent back")
    one.add_argument("--show", action="store_true", help="only show what would be agreed to")

    one = actions.add_parser("check", help="say before a run what would fail at a site")
    _job(one)
    one.add_argument("site", metavar="SITE", type=Path, help="site file")
    one.add_argument(
        "--kit", metavar="KIT", type=Path, help="its start-up kit: certificate, policy, the server"
    )

    one = actions.add_parser("console", help="serve a site's read-only page, and metrics of it")
    one.add_argument("site", metavar="SITE", type=Path, help="site file")
    one.add_argument("--port", required=True, type=int, help="where the page will be")
    one.add_argument(
        "--address",
        default=ADDRESS,
        help="there is no log-in: whoever reaches it sees the page (default: %(default)s)",
    )
    one.add_argument(
        "--known-as",
        metavar="NAME",
        nargs="+",
        default=[],
        help="names of this machine that a browser may ask for; others are refused",
    )

    one = actions.add_parser("status", help="say how a job is going at a site, or how it ended")
    _job(one)
    one.add_argument("site", metavar="SITE", type=Path, help="site file")

    one = actions.add_parser("trail", help="show a site's audit trail, and check that it is whole")
    one.add_argument("site", metavar="SITE", type=Path, help="site file")

    one = actions.add_parser("logs", help="show the end of a site's logs")
    one.add_argument("kit", metavar="KIT", type=Path, help="start-up kit of the site")
    one.add_argument("-n", type=int, default=20, metavar="N", help="lines of each (default: 20)")

    one = actions.add_parser("key", help="make a key to sign proposals with; print its public part")
    one.add_argument("output", metavar="FILE", type=Path, help="the private key")

    one = actions.add_parser("abort", help="stop a job; it can go on from its checkpoints")
    _job(one)
    _admin(one)

    one = actions.add_parser("submit", help="start a job and wait for its end")
    _job(one)
    _admin(one)
    one.add_argument(
        "--key", metavar="FILE", type=Path, help="sign the job with the proposer's private key"
    )
    _attempts(one)
    _timeout(one)

    one = actions.add_parser("sample", help="draw one party's part of a sample")
    _job(one)
    one.add_argument("site", metavar="SITE", type=Path, help="site file")
    one.add_argument("-n", required=True, type=int, metavar="N", help="how many records")
    one.add_argument("--request", required=True, metavar="NAME", help="names the sample")
    one.add_argument("--keys", action="store_true", help="add fresh keys; at one party only")
    one.add_argument(
        "--drawn",
        type=int,
        metavar="N",
        help="where rules leave out rows: how many to draw, so that enough are left (default: "
        "twice as many as are asked for)",
    )
    one.add_argument("-o", "--output", required=True, metavar="FILE", type=Path, help=".parquet")
    add_passed(one)

    one = actions.add_parser("join", help="put all parties' parts of a sample side by side")
    one.add_argument("parts", nargs="+", metavar="FILE", type=Path)
    one.add_argument("-o", "--output", required=True, metavar="FILE", type=Path)


def run(options: argparse.Namespace) -> int:
    """Do one action; 1 if a run across processes failed."""
    match options.action:
        case "simulate":
            return _simulate(options)
        case "project":
            _project(options)
        case "prepare":
            prepare(options.kit, Site.read(options.site))
            say(f"{options.kit}: prepared; start it with 'vflsynth parties start {options.kit}'")
        case "start":
            _start(options.kit)
        case "approve":
            _approve(Job.read(options.job), Site.read(options.site), options)
        case "status":
            site, job = Site.read(options.site), Job.read(options.job)
            say(f"{site.party}: {job_state(site.folder, job.name)}")
        case "trail":
            _trail(Site.read(options.site))
        case "logs":
            _logs(options.kit, options.n)
        case "check":
            return _check(Job.read(options.job), Site.read(options.site), options.kit)
        case "console":
            _console(Site.read(options.site), options)
        case "key":
            public = new_key(options.output)
            say(
                f"{options.output}: keep it to yourself. For site files:\n[proposers]\nname = "
                f'"{public}"'
            )
        case "abort":
            job = Job.read(options.job)
            say(f"{abort(job, options.admin)} runs of job {job.name!r} stopped")
        case "submit":
            ended = submit(
                Job.read(options.job),
                options.admin,
                options.timeout,
                attempts=options.attempts,
                key=options.key,
            )
            say(
                f"FLARE says {ended}; the folder of every node that began has a report of the "
                "run, and the server's kit a log.txt"
            )
            return 0 if ended.endswith(DONE) else 1
        case "sample":
            site, job = Site.read(options.site), Job.read(options.job)
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
        case "join":
            parts = {path.name: read_table(path) for path in options.parts}
            table, cost = join_parts(parts)
            if cost is not None:
                logger.info("%s", cost)
            _write(table, options.output)
    return 0


def _simulate(options: argparse.Namespace) -> int:
    job = Job.read(options.job)
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
    outcomes = simulate(
        job,
        sites,
        options.kits or beside / "kits",
        seconds=options.timeout,
        attempts=options.attempts,
    )
    for name, outcome in outcomes.items():
        say(f"{name}: {outcome}; see {sites[name].folder / job.name}")
    if set(outcomes.values()) != {"finished"}:
        failed = next(
            text for text in [outcomes["server"], *outcomes.values()] if text != "finished"
        )
        raise ProtocolError(failed)
    return 0


def _approve(job: Job, site: Site, options: argparse.Namespace) -> None:
    if options.withdraw:
        was = "withdrawn" if withdraw(job, site) else "was not approved"
        say(f"{site.party}: job {job.name!r} {was}")
        return
    say(describe(job))
    if not options.show:
        approve(job, site)
        say(f"{site.party}: approved; {site.folder / APPROVED}")


def _project(options: argparse.Namespace) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    files = definitions(Job.read(options.job), options.host, options.port)
    for name, text in files.items():
        (options.output / name).write_text(text)
    say(f"{options.output}: {', '.join(files)}; see 'vflsynth parties --help' for what comes next")


def _start(kit: Path) -> None:
    """Become the node's process, so that signals of a service manager reach it."""
    command = node_command(kit)
    if not (kit / "local" / SITE_FILE).is_file():
        raise ParameterError(
            f"{kit} is not prepared, so it has no policy. Fix: vflsynth parties prepare {kit} SITE"
        )
    (kit / "transfer").mkdir(exist_ok=True)
    os.chdir(kit)
    os.execvpe(command[0], command, ONE_THREAD | os.environ)


def _check(job: Job, site: Site, kit: Path | None) -> int:
    """Say what was found, good or bad; 1 if something would fail."""
    all_good = True
    for finding in preflight(job, site, kit):
        say(f"{'ok   ' if finding.good else 'FAILS'} {finding.subject}: {finding.detail}")
        all_good &= finding.good
    return 0 if all_good else 1


def _console(site: Site, options: argparse.Namespace) -> None:
    with console(site, options.port, options.address, options.known_as) as server:
        host, port = server.server_address[:2]
        say(f"http://{host!s}:{port}/ and /metrics, until Ctrl-C")
        server.serve_forever()


def _trail(site: Site) -> None:
    n, last = trail.verify(site.folder)
    for line in trail.lines(site.folder):
        say(f"{line['time']} {line['event']} {json.dumps(line['details'])}")
    say(f"{site.party}: {n} lines, whole; the last digest is {last}")


def _logs(kit: Path, n: int) -> None:
    """Show FLARE's own log and that of the job that ran last."""
    own = kit / "log.txt"
    if not own.exists():
        raise ParameterError(f"{kit} has no log.txt: nothing was started from it")
    jobs = sorted(kit.glob("*/log.txt"), key=lambda path: path.stat().st_mtime)
    for path in [own, *jobs[-1:]]:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        say("\n".join([f"{path}:", *lines[-n:]]))


def _write(table: object, path: Path) -> None:
    write_table(table, path)  # type: ignore[arg-type]
    say(f"{path}: {len(table):,} rows")  # type: ignore[arg-type]


def _job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", type=Path, help="job file")


def _admin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--admin", required=True, metavar="KIT", type=Path, help="start-up kit of the administrator"
    )


def _attempts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attempts",
        type=int,
        default=1,
        metavar="N",
        help="submit it again, up to N times in all, while it fails (default: 1)",
    )


def _timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout", type=float, default=86400.0, metavar="S", help="seconds (default: a day)"
    )
