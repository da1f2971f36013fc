"""What would fail at a site, found before anybody trains."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from vflsynth._artefacts import check_writable
from vflsynth._device import resolve_device
from vflsynth._version import __version__
from vflsynth.exceptions import ParameterError, VFLSynthError
from vflsynth.federation.administrator import check_installed
from vflsynth.federation.attempts import server_node
from vflsynth.federation.certificates import check_certificate
from vflsynth.federation.consent import check_approved
from vflsynth.federation.job import Job
from vflsynth.federation.party_node import check_table
from vflsynth.federation.site import SITE_FILE, Site
from vflsynth.frames.keys import check_no_repeated_key, key_kind
from vflsynth.frames.party_frames import party_keys

_LEAST_DISK = 1 << 30
_SECONDS = 5.0
_LAST_WORD = 1.0
"""Seconds in which a server that refuses a certificate says so, once it has shown its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what was found, or what is wrong and how it is mended."""

    subject: str
    detail: str
    good: bool = True


def preflight(job: Job, site: Site, kit: Path | None = None) -> Iterator[Finding]:
    """Look at everything that a run needs of a site; nothing is sent but a handshake.

    With the site's start-up kit also at certificate, policy and the way to the server.
    """
    looks: list[tuple[str, Callable[[], str]]] = [
        ("software", _software),
        ("table", lambda: _table(job, site)),
        ("consent", lambda: _consent(job, site)),
        ("folder", lambda: _folder(site)),
        ("device", lambda: str(resolve_device(site.device))),
    ]
    if site.party in job.parties:
        looks.insert(2, ("secret", lambda: f"{len(site.the_shared)} bytes"))
    if kit is not None:
        looks += [
            ("certificate", lambda: check_certificate(kit, site.party)),
            ("kit", lambda: _prepared(kit, site)),
        ]
        if site.party in job.parties:
            looks.append(("server", lambda: _handshake(kit)))
    for subject, look in looks:
        try:
            yield Finding(subject, look())
        except VFLSynthError as error:
            yield Finding(subject, str(error), good=False)


def _software() -> str:
    check_installed()
    found = {name: metadata.version(name) for name in ("nvflare", "PyNaCl", "torch")}
    return ", ".join(f"{name} {v}" for name, v in {"vflsynth": __version__, **found}.items())


def _table(job: Job, site: Site) -> str:
    if site.party not in job.parties:
        server_node(job, site)
        return "not needed here" if site.table is None else "labels can be used"
    table = check_table(job, site, job.method_for_node())
    keys = party_keys(table.frame, job.key_of(site))
    check_no_repeated_key(site.party, keys)
    of = "" if table.keys is None else f" of {len(table.keys):,}"
    found = f"{len(table.frame):,}{of} rows, {len(table.labels)} columns, keys are {key_kind(keys)}"
    if table.preparation is None:
        return found
    rules = table.preparation.titles
    return (
        f"{found}; contract: {len(rules)} rules, {len(table.preparation.left_out)} columns left out"
    )


def _consent(job: Job, site: Site) -> str:
    said = {
        "any": "every job is agreed to",
        "signed": f"whatever {', '.join(site.proposers)} sign is agreed to",
    }
    if site.table is None and site.party not in job.parties:
        return "not needed here"
    if site.jobs in said:
        return said[site.jobs]
    check_approved(job, site)
    signed = f"; it must be signed by {' or '.join(site.proposers)}" if site.proposers else ""
    return f"approved{signed}"


def _folder(site: Site) -> str:
    check_writable(site.folder / "anything")
    nearest = next(p for p in [site.folder, *site.folder.resolve().parents] if p.exists())
    free = shutil.disk_usage(nearest).free
    if free < _LEAST_DISK:
        raise ParameterError(
            f"{nearest} has {free / 2**20:,.0f} MiB left. Fix: make room for checkpoints, at least "
            f"{_LEAST_DISK / 2**20:,.0f} MiB"
        )
    return f"{site.folder}: {free / 2**30:,.1f} GiB left"


def _prepared(kit: Path, site: Site) -> str:
    path = kit / "local" / SITE_FILE
    try:
        there = Site.read(path)
    except VFLSynthError as error:
        raise ParameterError(
            f"{kit} is not prepared. Fix: vflsynth parties prepare {kit} SITE"
        ) from error
    if there.absolute() != site.absolute():
        raise ParameterError(
            f"{path} is of another site file, or of an earlier state of it. Fix: vflsynth parties "
            f"prepare {kit} SITE, and start the kit again"
        )
    return "prepared with this site file"


def _handshake(kit: Path) -> str:
    startup = kit / "startup"
    try:
        file = json.loads((startup / "fed_client.json").read_text(encoding="utf-8"))
        host, port = file["servers"][0]["service"]["target"].rsplit(":", 1)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ParameterError(f"{startup} names no server. Fix: package the kit") from error
    try:
        context = ssl.create_default_context(cafile=startup / "rootCA.pem")
        context.check_hostname = False  # FLARE compares names itself
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
        with (
            socket.create_connection((host, int(port)), _SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            version = secure.version()
            secure.settimeout(_LAST_WORD)
            with suppress(TimeoutError):  # it waits for a first message
                if not secure.recv(1):
                    raise ConnectionResetError("it ends the connection")
    except (ssl.SSLError, ConnectionResetError) as error:
        raise ParameterError(
            f"{host}:{port} does not accept this certificate, or has one of another federation: "
            f"{getattr(error, 'reason', error)}. Fix: look at both clocks, and package both kits "
            "with certificates of one authority"
        ) from error
    except OSError as error:
        raise ParameterError(
            f"{host}:{port} cannot be reached: {error.strerror or error}. Fix: start the server's "
            "kit, and open this port from here to there"
        ) from error
    return f"{host}:{port} answers, {version}"
