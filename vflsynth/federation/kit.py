"""What turns FLARE's own start-up kits into ours: project, site policy, job."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ParameterError, UnusableFileError
from vflsynth.federation import daemon
from vflsynth.federation.job import Job
from vflsynth.federation.site import SITE_FILE, Site

EXECUTOR = "vflsynth.federation.flare.PartyExecutor"
CONTROLLER = "vflsynth.federation.flare.ServerController"
ADMIN = "admin@vflsynth.org"
PROJECT = "vflsynth"

_SERVER_DAEMON = "nvflare.private.fed.server.fed_server.FederatedServer"
_STREAMS_LOGS = "site_log_streamer"
_LAUNCHERS = "vflsynth.federation.worker"
_AROUND_A_FRAME = 1 << 16
_COMMUNICATION = {"streaming_retry_timeout": 10.0}
"""FLARE keeps a thread for every reply until it cannot be sent again any more, by default for 65
seconds: thousands of threads and hundreds of MiB at a hundred exchanges a second."""


def project(job: Job, host: str, port: int) -> str:
    """Return the project file for ``nvflare provision``: YAML, which JSON is.

    It makes everybody's private keys in one place, so it is for federations on one machine;
    organisations use `definitions`. `host` is the name under which the parties reach the server;
    the only address that anybody dials.
    """
    server = _participant(host, "server") | {"fed_learn_port": port, "admin_port": port}
    participants = [server, *(_participant(name, "client") for name in job.parties)]
    participants.append(_participant(ADMIN, "admin", role="project_admin"))
    builders = "nvflare.lighter.impl"
    content = {
        "api_version": 3,
        "name": PROJECT,
        "description": "training across organisations with vflsynth",
        "participants": participants,
        "builders": [
            {"path": f"{builders}.workspace.WorkspaceBuilder"},
            {
                "path": f"{builders}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "tcp"},
            },
            {"path": f"{builders}.cert.CertBuilder"},
            {"path": f"{builders}.signature.SignatureBuilder"},
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def definitions(job: Job, host: str, port: int) -> dict[str, str]:
    """Return what ``nvflare cert`` needs so that every private key stays where it was made.

    `host` is as of `project`. Returns file names and YAML, which JSON is: ``profile.yml`` for the
    certificate authority (``cert init`` and ``cert approve``), and for everybody a definition for
    ``cert request``: ``server.yml``, ``admin.yml``, and one with the name of every party.
    """
    service = {"host": host, "fed_learn_port": port, "admin_port": port}
    profile = {"name": PROJECT, "scheme": "tcp", "connection_security": "mtls", "server": service}
    everybody = {
        "server": _participant(host, "server"),
        "admin": _participant(ADMIN, "admin", role="lead"),
        **{name: _participant(name, "client") for name in job.parties},
    }
    files = {"profile": profile} | {
        name: {"name": PROJECT, "participants": [who]} for name, who in everybody.items()
    }
    return {f"{name}.yml": json.dumps(file, indent=1) + "\n" for name, file in files.items()}


def _participant(name: str, kind: str, **more: str) -> dict[str, Any]:
    org = _org(name) if kind == "client" else "server"
    return {"name": name, "type": kind, "org": org} | more


def _org(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def hide_keys(folder: Path) -> None:
    """Let nobody but the owner read private keys below a folder."""
    for pattern in ("*.key", "*.pfx", "cert.json"):
        for path in folder.rglob(pattern):
            path.chmod(0o600)


def prepare(kit: Path, site: Site) -> None:
    """Write a site's own policy and site file into its start-up kit.

    The policy: the only class that a job can have built here is ours; no role may send code
    (``byoc: none``); FLARE does not send the site's logs to the server, which it does by default,
    since an error about a table may show values of it. Private keys become their owner's alone.
    Raises ParameterError if `kit` is not as ``nvflare provision`` or ``nvflare package`` made it.
    """
    local = kit / "local"
    is_server = (kit / "startup" / "fed_server.json").is_file()
    try:
        resources = json.loads((local / "resources.json.default").read_text())
        authorization = json.loads((local / "authorization.json.default").read_text())
        logs = json.loads((local / "log_config.json.default").read_text())
    except (OSError, ValueError) as error:
        raise UnusableFileError(f"{kit} is not a start-up kit of FLARE: {error}") from error
    if site.party != (name := owner(kit)):
        raise ParameterError(f"{kit} is the kit of {name!r}, and the site file of {site.party!r}")
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [CONTROLLER if is_server else EXECUTOR]
    resources["allow_log_streaming"] = False
    resources["components"] = [
        _ours(c, kit) for c in resources["components"] if c["id"] != _STREAMS_LOGS
    ]
    if is_server:
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(
            kit.resolve() / "storage" / "snapshots"
        )
    for role, rights in authorization["permissions"].items():
        if rights == "any":
            authorization["permissions"][role] = rights = dict.fromkeys(_RIGHTS, "any")
        rights["byoc"] = "none"
        if is_server and "download_job" in rights:  # whoever submitted a job hears how it ended
            rights["get_job_log"] = rights["download_job"]
    # What claims to be larger is refused before memory is taken for it.
    largest = {"streaming_max_blob_size": site.max_frame_bytes + _AROUND_A_FRAME}
    logs["loggers"]["root"]["level"] = "WARNING"  # every exchange would be a line
    # The server's daemon alone knows whose process died before the job's own processes had started.
    logs["loggers"] |= {"vflsynth": {"level": "INFO"}, _SERVER_DAEMON: {"level": "INFO"}}
    for name, content in (
        ("comm_config.json", _COMMUNICATION | largest),
        ("resources.json", resources),
        ("authorization.json", authorization),
        ("log_config.json", logs),
    ):
        artefacts.replace_json(local / name, content)
    hide_keys(kit)
    site.write(local / SITE_FILE)


def owner(kit: Path) -> str:
    """Return the name of the site whose kit it is; ParameterError if it is none of a node."""
    if (kit / "startup" / "fed_server.json").is_file():
        return "server"
    try:
        content = json.loads((kit / "startup" / "fed_client.json").read_text(encoding="utf-8"))
        return str(content["client"]["fqsn"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UnusableFileError(f"{kit} is not a start-up kit of a node of FLARE") from error


def node_command(kit: Path) -> list[str]:
    """Return the command of a node's process, which stays in the foreground.

    FLARE's own ``start.sh`` leaves a process behind and starts it anew up to five times; a service
    manager or a container does that better. Raises ParameterError if it is no start-up kit.
    """
    name = owner(kit)
    kind = "server" if name == "server" else "client"
    own = ["org=server"] if kind == "server" else [f"uid={name}", f"org={_org(name)}"]
    return [
        *(sys.executable, "-P", "-u", daemon.__file__, f"{kind}_train"),
        *("-m", str(kit.resolve()), "-s", f"fed_{kind}.json", "--set", "secure_train=true"),
        *own,
        "config_folder=config",
    ]


ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of a node: several share a machine, and its networks are small."""

_RIGHTS = (
    "submit_job",
    "clone_job",
    "manage_job",
    "download_job",
    "view",
    "operate",
    "shell_commands",
)


def packed(text: str) -> str:
    """Return a text in letters and digits: FLARE looks for variables of its own in braces."""
    return base64.urlsafe_b64encode(text.encode()).decode()


def unpacked(text: str) -> str:
    """Return what `packed` was given; ParameterError if it is something else."""
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True).decode()
    except (ValueError, TypeError) as error:
        raise ParameterError("the job in FLARE's configuration cannot be read") from error


def write_job(job: Job, folder: Path, proposal: str | None = None) -> Path:
    """Write a job for FLARE into a folder of its own: three files of configuration, no code.

    Whoever proposes it signed the proposal. Returns the job's own folder.
    """
    args = {
        "job": packed(json.dumps(job.to_dict())),
        "proposal": None if proposal is None else packed(proposal),
    }
    meta = {
        "name": job.name,
        "resource_spec": {},
        "min_clients": len(job.parties),
        "mandatory_clients": list(job.parties),
        "deploy_map": {"server": ["server"], "party": list(job.parties)},
    }
    filters: dict[str, Any] = {"task_data_filters": [], "task_result_filters": [], "components": []}
    server = {
        "format_version": 2,
        "workflows": [{"id": "run", "path": CONTROLLER, "args": args}],
        **filters,
    }
    party = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": {"path": EXECUTOR, "args": args}}],
        **filters,
    }
    target = folder / job.name
    for path, text in (
        ("meta.json", meta),
        ("server/config/config_fed_server.json", server),
        ("party/config/config_fed_client.json", party),
    ):
        artefacts.replace_json(target / path, text)
    return target


def _ours(component: Mapping[str, Any], kit: Path) -> Mapping[str, Any]:
    """Keep the server's jobs in its kit, not in the system's temporary directory; fork workers."""
    if component["id"] == "process_launcher":
        kind = "Server" if "server" in component["path"] else "Client"
        return {**component, "path": f"{_LAUNCHERS}.{kind}Launcher"}
    if component["id"] == "job_manager":
        arguments = component["args"] | {"uri_root": str(kit.resolve() / "storage" / "jobs")}
        return {**component, "args": arguments}
    return component
