"""What a look at a site finds; with its kit and a server in `tests/integration/test_flare.py`."""

import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections import namedtuple
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from tests.unit.federation.conftest import SITE_TEXT
from vflsynth._locks import lock
from vflsynth.cli import main
from vflsynth.federation import consent, daemon, preflight
from vflsynth.federation.job import Job
from vflsynth.federation.kit import definitions
from vflsynth.federation.site import SITE_FILE, Site

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

SECRET = f'[secrets]\nshared = "{"ab" * 32}"\n'


def test_all_that_is_wrong_is_said_at_once_and_mended_one_by_one(folder, capsys):
    command = ["parties", "check", "job.toml", "lab.toml"]

    def failing():
        code = main(command)
        lines = capsys.readouterr().out.splitlines()
        found = {line.split()[1].rstrip(":") for line in lines if line.startswith("FAILS")}
        assert code == bool(found)
        return found

    assert failing() == {"table", "secret", "consent"}
    (folder / "lab.csv").write_text("id,age\n1,40\n2,41\n3,42\n")
    assert failing() == {"secret", "consent"}
    (folder / "lab.toml").write_text(SITE_TEXT + SECRET)
    assert failing() == {"consent"}
    consent.approve(Job.read(folder / "job.toml"), Site.read(folder / "lab.toml"))
    assert failing() == set()
    (folder / "lab.toml").write_text(f'{SITE_TEXT}device = "no-such"\n{SECRET}')
    assert failing() == {"device"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("1", "2", "2"), "1 key occurs more than once, in 2 rows"),
        (("1", "", "3"), "1 of 3 keys are missing or blank"),
        (("1", "2", "3"), "keys are integers"),
        (("x", "y", "z"), "keys are text"),
    ],
)
def test_keys_are_looked_at_before_anybody_trains(folder, keys, words):
    rows = "".join(f"{key},40\n" for key in keys)
    (folder / "lab.csv").write_text(f"id,age\n{rows}")
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    found = {f.subject: f for f in preflight.preflight(job, site)}["table"]
    assert words in found.detail
    assert found.good == words.startswith("keys are")


def test_a_kit_is_one_process_s(tmp_path):
    """Also of FLARE's daemons, which would lock each other out."""
    command = [sys.executable, "-P", daemon.__file__, "client_train", "-m", str(tmp_path)]
    with lock(tmp_path / daemon.LEASE, "is held"):
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode
        assert "another process uses this kit" in refused.stderr
    with daemon.lease(tmp_path):
        pass  # whoever held it is gone


def test_a_full_disk(folder, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: usage(9, 9, 5 << 20))
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    found = {f.subject: f for f in preflight.preflight(job, site)}
    assert not found["folder"].good
    assert "has 5 MiB left" in found["folder"].detail


def test_a_server_needs_no_table_and_no_secret(folder):
    job = Job.read(folder / "job.toml")
    found = list(preflight.preflight(job, Site("server", folder / "server")))
    assert all(finding.good for finding in found)
    assert "secret" not in {finding.subject for finding in found}


def test_a_kit_that_is_none(folder):
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    bad = {f.subject for f in preflight.preflight(job, site, folder / "kit") if not f.good}
    assert {"certificate", "kit", "server"} <= bad


def test_everybody_gets_a_definition(folder):
    command = "parties project job.toml --host vfl.example.org --port 8102 -o project"
    assert main(command.split()) == 0
    files = {path.name for path in (folder / "project").iterdir()}
    assert files == {f"{n}.yml" for n in ("profile", "server", "admin", "clinic", "lab")}
    job = Job.read(folder / "job.toml")
    assert files == set(definitions(job, "vfl.example.org", 8102))


@pytest.mark.parametrize(
    ("own", "root", "words"),
    [
        (365, 3650, ["of lab, 364 days left"]),
        (20, 3650, ["of lab, 19 days left; renew it now"]),
        (90, 100, ["of lab, 89 days left; the authority's own ends in 99 days"]),
        (-1, 100, ["client.crt is valid from"]),
        (90, -1, ["rootCA.pem is valid from"]),
    ],
)
def test_a_certificate_that_ends_soon_and_an_authority_that_does(folder, own, root, words):
    make_kit(folder / "kit", own, root)
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    found = {f.subject: f for f in preflight.preflight(job, site, folder / "kit")}["certificate"]
    assert found.good is (min(own, root) > 0)
    assert all(word in found.detail for word in words), found.detail


WRONG = {
    "ended": "client.crt is valid from",
    "another's": "client.crt is of 'clinic', and not of 'lab'. Fix: package the kit",
    "another key": "client.key is not the key of",
    "another study's": "client.crt is not of the authority of",
    "read by others": "client.key can be read by others. Fix: chmod 600",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_node_does_not_start_with_a_certificate_that_its_server_refuses(
    folder, capsys, monkeypatch, wrong
):
    """It would knock for ever, and neither would say why."""
    kit = folder / "kit"
    make_kit(kit, -1 if wrong == "ended" else 90, name="clinic" if wrong == "another's" else "lab")
    if wrong in ("another key", "another study's"):
        make_kit(folder / "other")
        file = "client.key" if wrong == "another key" else "rootCA.pem"
        shutil.copy2(folder / "other" / "startup" / file, kit / "startup" / file)
    elif wrong == "read by others":
        (kit / "startup" / "client.key").chmod(0o644)
    monkeypatch.setattr("os.execvpe", None)
    assert main(["parties", "start", str(kit)]) == 3
    assert WRONG[wrong] in capsys.readouterr().err


def test_a_server_that_refuses_a_certificate_after_it_showed_its_own(folder):
    """In TLS 1.3 a client's handshake is over before the server has seen its certificate."""
    for name in ("kit", "other"):
        make_kit(folder / name)
    startup, other = (folder / name / "startup" for name in ("kit", "other"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=other / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    with socket.create_server(("localhost", 0)) as listening:
        target = {"service": {"target": f"localhost:{listening.getsockname()[1]}"}}
        (startup / "fed_client.json").write_text(json.dumps({"servers": [target]}))

        def serve():
            with suppress(OSError):
                context.wrap_socket(listening.accept()[0], server_side=True).close()

        server = threading.Thread(target=serve)
        server.start()
        found = {f.subject: f for f in preflight.preflight(job, site, folder / "kit")}["server"]
        server.join()
    assert not found.good
    assert "does not accept this certificate" in found.detail


def make_kit(kit, days=90, root=3650, name="lab"):
    """Make a prepared kit of `lab`, with a certificate of `name` that ends in so many days."""
    startup, local = kit / "startup", kit / "local"
    startup.mkdir(parents=True)
    local.mkdir()
    (startup / "fed_client.json").write_text('{"client": {"fqsn": "lab"}}')
    (local / SITE_FILE).touch()
    authority, own = (ed25519.Ed25519PrivateKey.generate() for _ in range(2))
    (startup / "rootCA.pem").write_bytes(certificate("authority", authority, authority, root))
    (startup / "client.crt").write_bytes(certificate(name, own, authority, days))
    pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = startup / "client.key"
    key.touch(mode=0o600)
    key.write_bytes(own.private_bytes(pem, kind, serialization.NoEncryption()))


def certificate(name, key, authority, days):
    """Make a certificate that ends in so many days."""
    said = {
        "subject": x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        "issuer": x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]),
    }
    ends = datetime.now(UTC) + timedelta(days=days)
    made = x509.CertificateBuilder().subject_name(said["subject"]).issuer_name(said["issuer"])
    made = made.public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(ends - timedelta(days=4000)).not_valid_after(ends)
    made = made.add_extension(x509.BasicConstraints(name == "authority", None), critical=True)
    return made.sign(authority, None).public_bytes(serialization.Encoding.PEM)
