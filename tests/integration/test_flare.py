"""NVIDIA FLARE on this machine: real processes, real certificates."""

import json
import re
import signal
import socket
import ssl
import struct
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch

from tests.integration.processes import KEY, PATIENCE, Running, epoch, trains
from vflsynth._artefacts import read_tensors
from vflsynth.federation.kit import prepare, project
from vflsynth.federation.preflight import preflight
from vflsynth.federation.simulate import HOST, free_port, make_kits
from vflsynth.federation.site import Budget
from vflsynth.privacy import PublicSchema
from vflsynth.splitdefense import MarvellClassifier

pytest.importorskip("nvflare", reason="needs the extra 'flare'")


def with_code(folder):
    (folder / "party" / "custom").mkdir()
    (folder / "party" / "custom" / "thief.py").write_text("print('here')\n")


def of_another_class(folder):
    path = folder / "party" / "config" / "config_fed_client.json"
    text = path.read_text()
    path.write_text(text.replace("vflsynth.federation.flare.PartyExecutor", "subprocess.Popen"))
    assert path.read_text() != text


@pytest.mark.slow
@pytest.mark.parametrize("change", [with_code, of_another_class])
def test_foreign_code_is_refused(running, change):
    job = running.job(f"foreign-{change.__name__}", epochs=1)
    job_id = running.submit(job, change)
    status = running.administrator.wait(job_id, PATIENCE)
    assert status != "FINISHED:COMPLETED"
    assert running.outcome("party_1", job.name) is None  # nothing of ours ran either
    said = "".join(p.read_text() for p in running.folder.rglob("log.txt"))
    said += str(running.administrator.details(job_id))
    refused = "BYOC not permitted" if change is with_code else "not in allow_list"
    assert re.search(rf"party_\d.*{refused}", said, re.S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("certificate", "alert"), [(None, "certificate required"), ("foreign", "unknown ca")]
)
def test_who_has_no_certificate_of_this_federation_is_refused(
    running, tmp_path, certificate, alert
):
    kit = running.federation.kits["party_1"] / "startup"
    context = ssl.create_default_context(cafile=kit / "rootCA.pem")
    if certificate:
        kits = make_kits(project(running.job("any"), HOST, free_port()), tmp_path)
        foreign = kits / "party_1" / "startup"
        context.load_cert_chain(foreign / "client.crt", foreign / "client.key")
    port = json.loads((kit / "fed_client.json").read_text())["servers"][0]["service"]["target"]
    with (
        socket.create_connection(("localhost", int(port.split(":")[1])), PATIENCE) as plain,
        pytest.raises(ssl.SSLError, match=alert),
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.recv(1)


@contextmanager
def connected(running):
    """A TLS connection to the server's own port, with a party's certificate."""
    kit = running.federation.kits["party_1"] / "startup"
    context = ssl.create_default_context(cafile=kit / "rootCA.pem")
    context.load_cert_chain(kit / "client.crt", kit / "client.key")
    with (
        socket.create_connection(("localhost", running.proxy.target), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        yield secure


@pytest.mark.slow
def test_a_message_that_is_announced_takes_no_memory(running):
    """FLARE alone takes it all when 16 bytes have said how long the message will be."""
    before = running.memory()["server"]
    with connected(running) as secure:
        secure.sendall(struct.pack(">IHBBHHHH", 1_900_000_000, 0, 1, 0, 0, 0, 0, 0))
        with suppress(ssl.SSLError, ConnectionError):
            assert secure.recv(1) == b""  # the server hung up
    after = running.memory()["server"]
    assert after - before < 100, (before, after)  # MiB


@pytest.mark.slow
def test_who_connects_and_says_nothing_keeps_nobody_out(running):
    """FLARE alone finishes one handshake before it begins the next."""
    with socket.create_connection(("localhost", running.proxy.target)), connected(running):
        pass


@pytest.mark.slow
def test_a_check_finds_the_server_and_what_would_fail(running):
    """A look at a site that is ready, and at the same one with something wrong."""
    site, kit = running.sites["party_1"], running.federation.kits["party_1"]
    job = running.job("looked-at", epochs=1)

    def problems(site=site, kit=kit):
        return {f.subject: f.detail for f in preflight(job, site, kit) if not f.good}

    assert problems() == {}
    assert "has no shared secret" in problems(replace(site, shared=None))["secret"]
    assert "of an earlier state" in problems(replace(site, shared=bytes(32)))["kit"]
    other = running.federation.kits["party_2"]
    assert "is of 'party_2'" in problems(kit=other)["certificate"]
    service = running.federation.kits["party_1"] / "startup" / "fed_client.json"
    text = service.read_text()
    service.write_text(text.replace(str(running.proxy.port), str(free_port())))
    try:
        assert "cannot be reached" in problems()["server"]
    finally:
        service.write_text(text)


@pytest.mark.slow
def test_another_secret(running):
    """And the reason reaches every node."""
    site = running.sites["party_2"]
    local = running.federation.kits["party_2"] / "local" / "vflsynth.toml"
    replace(site, shared=bytes(32)).write(local)
    try:
        job = running.job("another-secret", epochs=1)
        status = running.administrator.wait(running.submit(job), PATIENCE)
    finally:
        site.write(local)
    assert status != "FINISHED:COMPLETED"
    for node in ("server", "party_1", "party_2"):
        assert "different shared secrets" in running.outcome(node, job.name)


@pytest.mark.slow
def test_a_party_that_is_killed(running):
    """Every other node says who, when, what next."""
    federation, job = running.federation, running.job("killed", epochs=100_000)
    job_id = running.submit(job)
    running.wait_for(trains(running, "killed"))
    federation.kill("party_2")
    died = time.monotonic()
    running.wait_for(
        lambda: all(running.outcome(node, "killed") for node in ("server", "party_1")),
    )
    print(f"the last node knew after {time.monotonic() - died:.1f} s")
    for node in ("server", "party_1"):
        outcome = running.outcome(node, "killed")
        assert re.search(r"party 'party_2', step \d+: no answer|party 'party_2'", outcome)
        assert "Next:" in outcome
    assert running.administrator.wait(job_id, PATIENCE) != "FINISHED:COMPLETED"
    federation.start("party_2")


# -- minutes rather than seconds ------------------------------------------------------------------


@pytest.mark.slow
def test_a_party_that_hangs(running):
    federation, job = running.federation, running.job("hung", epochs=100_000)
    job_id = running.submit(job)
    running.wait_for(trains(running, "hung"))
    federation.signal("party_2", signal.SIGSTOP)
    running.wait_for(
        lambda: all(running.outcome(node, "hung") for node in ("server", "party_1")),
    )
    federation.signal("party_2", signal.SIGCONT)
    assert "party 'party_2', step" in running.outcome("server", "hung")
    running.wait_for(lambda: running.outcome("party_2", "hung"))  # it wakes up, and is told
    running.administrator.wait(job_id, PATIENCE)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(running):
    federation, job = running.federation, running.job("goes-on", epochs=200)
    job_id = running.submit(job)
    running.wait_for(trains(running, "goes-on"))
    federation.kill("party_2")
    running.administrator.wait(job_id, PATIENCE)
    assert "finished" not in (running.outcome(node, job.name) for node in running.sites)
    federation.start("party_2")
    running.wait_for(lambda: len(running.administrator.clients()) == 2)
    status = running.administrator.wait(running.submit(job), PATIENCE)
    assert status == "FINISHED:COMPLETED"
    assert running.outcome("server", job.name, 2) == "finished"
    running.assert_as_in_one_process(job)


@pytest.mark.slow
def test_a_renewed_certificate_takes_a_run_on(running):
    """As docs/how-to/operate.md says: another key, the same authority, the same folder."""
    job, federation = running.job("renewed", epochs=60), running.federation
    before = running.submit(job)
    running.wait_for(trains(running, job.name, "party_2"))
    federation.kill("party_2")
    running.administrator.wait(before, PATIENCE)

    old_kit, kit = federation.kits["party_2"], running.authority.issue("party_2", "renewed")
    kit = federation.kits["party_2"] = kit / "party_2"
    running.through_proxy(kit)
    prepare(kit, running.sites["party_2"])
    for name in ("client.key", "client.crt", "rootCA.pem"):
        same = (old_kit / "startup" / name).read_bytes() == (kit / "startup" / name).read_bytes()
        assert same == (name == "rootCA.pem")
    federation.start("party_2")
    running.wait_for(lambda: len(running.administrator.clients()) == 2)
    assert all(f.good for f in preflight(job, running.sites["party_2"], kit))
    assert running.administrator.wait(running.submit(job), PATIENCE) == "FINISHED:COMPLETED"
    assert running.outcome("party_2", job.name, 2) == "finished"
    running.assert_as_in_one_process(job)


@pytest.mark.slow
def test_three_parties_and_600_steps_give_the_bytes_of_one_process(tmp_path):
    running = Running(tmp_path, n_parties=3)
    job = running.job("three", epochs=200)  # of three steps
    with running.open():
        assert running.administrator.wait(running.submit(job), PATIENCE) == "FINISHED:COMPLETED"
    running.assert_as_in_one_process(job)


@pytest.mark.slow
@pytest.mark.parametrize("n_passive", [1, 2])
def test_a_split_classifier_gives_the_bytes_of_one_process(tmp_path, n_passive):
    running = Running(tmp_path, n_passive + 1, "MarvellClassifier")
    job = running.job("split", epochs=200)
    with running.open():
        assert running.administrator.wait(running.submit(job), PATIENCE) == "FINISHED:COMPLETED"
    model = MarvellClassifier(**job.parameters, random_state=0, device="cpu")
    model.fit(running.frames, running.labels, KEY)
    for name, half in model.parties_.items():
        ours = read_tensors(tmp_path / name / "split" / "half" / "bottom.safetensors")
        for key, value in half.network.state_dict().items():
            assert torch.equal(value, ours[key].double()), (name, key)


@pytest.mark.slow
def test_memory_does_not_grow_over_5000_steps(running):
    """FLARE keeps threads and notes of late replies for some time: first more, then no more."""
    job = running.job("long", epochs=1_700)  # of three steps
    job_id = running.submit(job)
    found = {}
    for reached in (200, 700, 1_200, 1_690):
        running.wait_for(lambda least=reached: epoch(running, "long") >= least)
        found[reached] = {node: round(mib) for node, mib in running.memory().items()}
    print("MiB after epochs:", found)
    assert running.administrator.wait(job_id, PATIENCE) == "FINISHED:COMPLETED"
    for node, mib in found[1_690].items():
        assert mib - found[700][node] < 40, found  # a thread per exchange took 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mechanism", "parameters"),
    [
        ("MixtureSynthesizer", "pairwise_tables", {"n_components": 8}),
        ("DPLTSynthesizer", "latent_tree", {}),
    ],
)
def test_a_private_run(tmp_path, kind, mechanism, parameters):
    """Three processes, noise of their own, an account at every node."""
    running = Running(tmp_path, kind=kind)
    schema = PublicSchema(
        {f"{c}_{i}": (-3, 12) for c in ("measure", "count") for i in (1, 2)},
        {f"flag_{i}": (False, True) for i in (1, 2)},
    )
    for i in (1, 2):
        name = f"party_{i}"
        running.frames[name] = running.frames[name][
            [KEY, f"measure_{i}", f"count_{i}", f"flag_{i}"]
        ]
        running.frames[name].to_parquet(running.sites[name].table)
        site = replace(running.sites[name], budget=Budget(2.0, 1e-3), schema=schema)
        site.write(running.federation.kits[name] / "local" / "vflsynth.toml")
    privacy = {"mechanism": mechanism, "epsilon": 2.0, "delta": 1e-3}
    job = running.job("private", privacy=privacy, **parameters)
    with running.open():
        assert running.administrator.wait(running.submit(job), PATIENCE) == "FINISHED:COMPLETED"
    for node in ("server", "party_1", "party_2"):
        report = json.loads((tmp_path / node / "private" / "report-001.json").read_text())
        assert report["privacy"]["all runs of this folder"]["epsilon"] == pytest.approx(2.0)
    for name in running.frames:
        assert len(running.half(name, job).sample(20)) == 20
