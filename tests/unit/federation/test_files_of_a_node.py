"""What a node writes: who may read it, what happens when it cannot, or when it is damaged."""

import errno
import json
import logging
import stat
import threading
from dataclasses import replace

import pytest
import torch

from tests.unit.federation.trial import Dead, Direct
from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import (
    ArtefactError,
    ParameterError,
    PartyStoppedError,
    PayloadRejectedError,
)
from vflsynth.federation.exchange import RemoteChannel
from vflsynth.federation.kit import prepare
from vflsynth.federation.limits import MAX_BYTES, Limits
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.site import Site
from vflsynth.federation.wire import Frame, encode
from vflsynth.protocol.messages import Hello, KeysToReblind

NODES = ("server", "party_1", "party_2")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def assert_private(root):
    found = [root, *root.rglob("*")]
    assert len(found) > 2
    for path in found:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_checkpoints_and_halves_are_their_owners(make_trial):
    trial = make_trial(parameters={"epochs": 2}).run()
    for node in NODES:
        for checkpoint in (trial.kept(node) / "checkpoints").iterdir():
            assert_private(checkpoint)
        assert mode(trial.kept(node) / "report-001.json") & 0o600
    for party in NODES[1:]:
        assert_private(trial.kept(party) / "half")


def test_accounts_and_private_encodings_too(make_private_trial):
    trial = make_private_trial().run()
    assert trial.outcome["server"] is None
    for node in NODES:
        assert mode(trial.folder / node / "privacy-account.json") == 0o600
    for party in NODES[1:]:
        assert mode(trial.kept(party) / "encoding.json") == 0o600


def test_parts_of_a_split_classifier_too(make_split_trial):
    trial = make_split_trial(1, parameters={"epochs": 1}).run()
    for node in ("server", *trial.sites):
        assert_private(trial.kept(node) / "half")


def test_a_whole_model_is_for_everybody(tmp_path):
    with artefacts.new_directory(tmp_path / "model", "kind") as root:
        artefacts.write_json(root / "a.json", {})
    assert mode(tmp_path / "model") == 0o755


def full(*names):
    """Make the disk full for files of these names, as the system says it: without a path."""

    def write(path, content):
        if any(part in path.parts for part in names):
            raise OSError(errno.ENOSPC, "No space left on device")
        write_tensors(path, content)

    write_tensors = artefacts.write_tensors
    return write


def test_a_full_disk_is_named_with_the_path_and_stops_everybody(make_trial, monkeypatch):
    monkeypatch.setattr(artefacts, "write_tensors", full("party_1"))
    trial = make_trial(parameters={"epochs": 3}).run()
    error = trial.outcome["party_1"]
    assert isinstance(error, ArtefactError)
    assert str(trial.kept("party_1") / "checkpoints" / "epoch-000002") in str(error)
    assert "No space left on device" in str(error)
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    assert trial.outcome["server"].party == "party_1"
    assert not any((trial.kept("party_1") / "checkpoints").iterdir())
    monkeypatch.undo()
    trial.finish()


def test_a_text_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def fsync(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    artefacts.replace_text(tmp_path / "account", "before")
    monkeypatch.setattr(artefacts.os, "fsync", fsync)
    with pytest.raises(ArtefactError, match=r"account cannot be written: .*No space left"):
        artefacts.replace_text(tmp_path / "account", "after")
    assert (tmp_path / "account").read_text() == "before"


def test_a_damaged_checkpoint_is_reported(make_trial, caplog):
    trial = make_trial(checkpoint_every=1, parameters={"epochs": 2}).run()
    damaged = trial.kept("party_2") / "checkpoints" / "epoch-000002"
    tensors = damaged / "state.safetensors"
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(bytes(data))
    with caplog.at_level(logging.WARNING, "vflsynth"):
        trial.run()
    assert f"{damaged} is damaged and not used: " in caplog.text
    assert "its digest differs" in caplog.text
    assert trial.outcome["server"] is None  # it went on from the one before
    assert list(trial.report("party_2", 2)["damaged_checkpoints"]) == [str(damaged)]
    assert trial.report("party_1", 2)["damaged_checkpoints"] == {}


def test_a_checkpoint_without_its_list_of_files_is_moved_away_and_keeps_nobody(make_trial):
    trial = make_trial(checkpoint_every=1, parameters={"epochs": 2}).run()
    folder = trial.kept("party_2") / "checkpoints"
    (folder / "epoch-000002" / "manifest.json").unlink()
    trial.finish()
    (aside,) = folder.glob("damaged-*-epoch-000002")
    assert (aside / "state.safetensors").is_file()
    trial.finish()
    assert trial.report("party_2", 3)["damaged_checkpoints"] == {}


def test_a_half_that_cannot_be_replaced_is_found_before_training(make_trial):
    trial = make_trial()
    (trial.kept("party_1") / "half").mkdir(parents=True)
    (trial.kept("party_1") / "half" / "of somebody").touch()
    with pytest.raises(ArtefactError, match="was not saved by vflsynth"):
        PartyNode(trial.job, trial.sites["party_1"])


# -- reports --------------------------------------------------------------------------------------


def test_a_process_that_is_killed_leaves_a_report_that_says_so(make_trial):
    seen = []

    class Looking(Direct):
        def exchange(self, frame, timeout):
            seen.append(trial.report(self._name))
            raise Dead

    trial = make_trial()
    trial.change("party_2", folder=trial.folder / "party_2")
    trial.job = trial.job.from_dict(trial.job.to_dict() | {"setup_timeout": 1.0})
    trial.run(Looking)
    assert len(seen) == 2
    for report in seen:
        assert report["outcome"] is None
        assert "its process was killed" in report["note"]


# -- limits ---------------------------------------------------------------------------------------


def test_a_job_with_larger_frames_than_a_site_takes_is_refused(make_trial):
    trial = make_trial(max_frame_bytes=MAX_BYTES + 1)
    trial.change("party_1", max_frame_bytes=MAX_BYTES + 1)
    trial.server_site = Site(
        "server", trial.folder / "server", own=bytes(32), max_frame_bytes=MAX_BYTES + 1
    )
    trial.job = trial.job.from_dict(trial.job.to_dict() | {"setup_timeout": 1.0})
    trial.run()
    assert isinstance(trial.outcome["party_2"], ParameterError)
    assert "takes frames of at most 268,435,456 bytes" in str(trial.outcome["party_2"])


def test_who_would_send_a_frame_that_is_too_large_says_so(make_trial):
    trial = make_trial(max_frame_bytes=1 << 16, n_records=2_100)
    trial.run()
    errors = [trial.outcome[name] for name in trial.sites]
    assert any(isinstance(error, PayloadRejectedError) for error in errors)
    for error in [*errors, trial.outcome["server"]]:  # keys go in parts, masked records in one
        assert "a frame with MaskedReal would have" in str(error)


def test_a_server_that_would_send_too_large_a_frame_says_so():
    channel = RemoteChannel(["a"], "r", Limits(60, 60, max_bytes=1 << 10))
    hello = encode(Frame("r", 0, (Hello("a", "server", 0, {}),)))
    party = threading.Thread(target=channel.exchange, args=("a", hello))
    party.start()
    channel.gather(Hello, 0)
    keys = torch.zeros(100, 32, dtype=torch.uint8)
    channel.scatter({"a": KeysToReblind("server", "a", 1, keys, keys[0].clone())})
    with pytest.raises(PayloadRejectedError, match="a frame with KeysToReblind would have"):
        channel.gather(Hello, 1)
    channel.abort(RuntimeError())
    party.join()


def write_defaults(local, resources, permissions):
    """Write what FLARE leaves in a kit that it makes."""
    local.mkdir(parents=True)
    for name, content in {
        "resources": resources,
        "authorization": {"permissions": permissions},
        "log_config": {"loggers": {"root": {}}},
    }.items():
        (local / f"{name}.json.default").write_text(json.dumps(content))


@pytest.mark.parametrize("node", ["party", "server"])
def test_a_kit_takes_no_code_and_builds_one_class(tmp_path, node):
    """FLARE enforces it; `integration/test_flare.py` has jobs try."""
    local, startup = tmp_path / "kit" / "local", tmp_path / "kit" / "startup"
    startup.mkdir(parents=True)
    resources = {"components": [], "class_allow_list": ["*"]}
    client = {"client": {"fqsn": "party_1"}}
    (startup / "fed_client.json").write_text(json.dumps(client))
    site = Site("party_1", tmp_path / "party_1", tmp_path / "table.parquet")
    own, foreign = site, replace(site, party="party_2")
    if node == "server":
        (startup / "fed_server.json").write_text("{}")
        resources["snapshot_persistor"] = {"args": {"storage": {"args": {}}}}
        own, foreign = Site("server", tmp_path / "server"), site
    lead = {"submit_job": "any", "download_job": "n:submitter", "byoc": "any"}
    roles = {"project_admin": "any", "lead": lead}
    write_defaults(local, resources, roles)
    with pytest.raises(ParameterError, match=f"the site file of '{foreign.party}'"):
        prepare(tmp_path / "kit", foreign)
    assert not (local / "vflsynth.toml").exists()
    prepare(tmp_path / "kit", own)
    written = json.loads((local / "resources.json").read_text())
    assert written["class_list_enforcement_mode"] == "enforce"
    (only,) = written["class_allow_list"]
    assert only.startswith("vflsynth.federation.flare.")
    rights = json.loads((local / "authorization.json").read_text())["permissions"]
    assert {role: own["byoc"] for role, own in rights.items()} == dict.fromkeys(roles, "none")
    assert rights["project_admin"]["submit_job"] == "any"
    # The log of a job at the server says how it ended; FLARE lets nobody read it otherwise.
    logs = {"project_admin": "any", "lead": "n:submitter"} if node == "server" else {}
    assert {
        role: own["get_job_log"] for role, own in rights.items() if "get_job_log" in own
    } == logs


def test_the_transport_refuses_larger_frames_before_it_takes_memory(tmp_path):
    """FLARE reads a blob's declared size and refuses it; the kit says from which size on."""
    blob_streamer = pytest.importorskip("nvflare.fuel.f3.streaming.blob_streamer")
    site = Site("lab", tmp_path / "lab", max_frame_bytes=1 << 20)
    local = tmp_path / "kit" / "local"
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "fed_client.json").write_text('{"client": {"fqsn": "lab"}}')
    write_defaults(local, {"components": []}, {})
    prepare(tmp_path / "kit", site)
    limit = json.loads((local / "comm_config.json").read_text())["streaming_max_blob_size"]
    assert (1 << 20) < limit < (1 << 20) + (1 << 17)

    class Declared:
        def get_size(self):
            return limit + 1

    with pytest.raises(Exception, match="exceeds configured limit"):
        blob_streamer.BlobTask(None, Declared(), limit)
    assert Site.read(local / "vflsynth.toml").max_frame_bytes == 1 << 20
