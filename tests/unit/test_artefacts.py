"""Saved directories: complete or absent, checked before they are believed, never executed."""

import json
import os
import stat

import pytest
import torch

from vflsynth import _artefacts as artefacts
from vflsynth.exceptions import ArtefactError, ArtefactVersionError

KIND = "vflsynth test"


def save(path, text="first", kind=KIND):
    with artefacts.new_directory(path, kind) as root:
        artefacts.write_json(root / "folder" / "content.json", {"text": text})
        artefacts.write_tensors(root / "tensors.safetensors", {"a": torch.arange(6.0).view(2, 3)})
    return path


def text_of(path):
    root = artefacts.open_directory(path, KIND)
    return artefacts.read_json(root / "folder" / "content.json")["text"]


def edit_manifest(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


@pytest.fixture
def saved(tmp_path):
    return save(tmp_path / "saved")


def test_round_trip(saved, tmp_path):
    root = artefacts.open_directory(saved, KIND)
    assert text_of(saved) == "first"
    tensors = artefacts.read_tensors(root / "tensors.safetensors")
    assert torch.equal(tensors["a"], torch.arange(6.0).view(2, 3))
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]
    assert stat.S_IMODE(saved.stat().st_mode) == 0o755
    assert artefacts.kind_of(saved) == KIND


def test_views_of_one_buffer_are_saved_as_their_own_values(tmp_path):
    """Networks' parameters are views of the optimiser's flat buffer."""
    flat = torch.arange(10.0)
    artefacts.write_tensors(tmp_path / "t", {"a": flat[:4].view(2, 2), "b": flat[4:]})
    restored = artefacts.read_tensors(tmp_path / "t")
    assert restored["a"].tolist() == [[0, 1], [2, 3]]
    assert restored["b"].tolist() == [4, 5, 6, 7, 8, 9]


def test_saving_again_replaces(saved, tmp_path):
    save(saved, "second")
    assert text_of(saved) == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_missing_parents_are_made_and_an_empty_directory_is_used(tmp_path):
    assert text_of(save(tmp_path / "a" / "b" / "c")) == "first"
    (tmp_path / "empty").mkdir()
    assert text_of(save(tmp_path / "empty")) == "first"


def test_relative_paths(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    save("model")
    assert text_of(tmp_path / "here" / "model") == "first"
    save("../here/../there")
    assert text_of(tmp_path / "there") == "first"


@pytest.mark.parametrize("path", [".", ".."])
def test_the_working_folder_is_not_replaced(tmp_path, monkeypatch, path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    with pytest.raises(ArtefactError, match="holds the working folder"):
        save(path)
    assert list(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "b"]


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a working folder from being removed")
def test_a_working_folder_that_is_gone_keeps_nobody_from_saving(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert text_of(save(tmp_path / "saved")) == "first"


def test_behind_a_link_the_directory_is_written(saved, tmp_path):
    (tmp_path / "latest").symlink_to(saved)
    save(tmp_path / "latest", "second")
    assert (tmp_path / "latest").is_symlink()
    assert text_of(saved) == text_of(tmp_path / "latest") == "second"
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    save(tmp_path / "dangling")
    assert text_of(tmp_path / "new") == "first"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_half_way_leaves_no_trace(saved, tmp_path, error):
    def fail(path):
        with artefacts.new_directory(path, KIND) as root:
            artefacts.write_json(root / "content.json", {})
            raise error

    for path in (saved, tmp_path / "new"):
        with pytest.raises(error):
            fail(path)
    assert text_of(saved) == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize("at", [1, 2])
def test_a_failing_rename_leaves_the_original(saved, tmp_path, monkeypatch, at):
    """First the old directory is moved aside, then the new one into its place."""
    rename, calls = os.rename, []

    def failing(*arguments, **options):
        calls.append(arguments)
        if len(calls) == at:
            raise OSError("no")
        rename(*arguments, **options)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(ArtefactError, match="no"):
        save(saved, "second")
    monkeypatch.undo()
    assert len(calls) >= at
    assert text_of(saved) == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_a_kill_between_the_renames_loses_nothing(saved, tmp_path):
    """What `_replace` leaves if the process ends after the first of its two renames."""
    attic = tmp_path / ".saved.old.x"
    attic.mkdir()
    saved.rename(attic / "saved")
    with pytest.raises(ArtefactError, match="cut off; move the earlier version back from") as error:
        text_of(saved)
    (tmp_path / str(error.value).rsplit(" ", 1)[-1]).rename(saved)
    assert text_of(saved) == "first"


def test_nothing_that_cannot_be_json_is_written(tmp_path):
    for content in (float("nan"), float("inf"), object()):
        with (
            pytest.raises((ValueError, TypeError)),
            artefacts.new_directory(tmp_path / "new", KIND) as root,
        ):
            artefacts.write_json(root / "content.json", content)
    assert not (tmp_path / "new").exists()


# -- what is refused to be overwritten ----------------------------------------------------------


def foreign_file(path):
    path.write_text("mine")


def foreign_directory(path):
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def foreign_manifest(path):
    """Manifests are common: browser extensions and web apps have one."""
    path.mkdir()
    (path / "manifest.json").write_text('{"name": "app", "version": "1"}')
    (path / "app.js").write_text("mine")


def other_kind(path):
    save(path, kind="vflsynth other")


def with_a_file_of_the_users(path):
    save(path)
    (path / "folder" / "notes.txt").write_text("mine")


def with_a_link(path):
    save(path)
    (path / "data").symlink_to(path.parent)


@pytest.mark.parametrize(
    "make",
    [
        foreign_file,
        foreign_directory,
        foreign_manifest,
        other_kind,
        with_a_file_of_the_users,
        with_a_link,
    ],
)
def test_what_is_not_ours_is_not_overwritten(tmp_path, make):
    path = tmp_path / "there"
    make(path)
    before = {file: file.is_file() and file.read_bytes() for file in tmp_path.rglob("*")}
    with pytest.raises(ArtefactError, match="there"):
        save(path)
    with pytest.raises(ArtefactError, match="there"):
        artefacts.check_target(path, KIND)
    assert {file: file.is_file() and file.read_bytes() for file in tmp_path.rglob("*")} == before


def test_a_damaged_artefact_may_be_replaced(saved):
    (saved / "tensors.safetensors").unlink()
    save(saved, "second")
    assert text_of(saved) == "second"


def test_a_path_that_cannot_exist(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactError, match="cannot be written"):
        save(tmp_path / "file" / "below")
    with pytest.raises(ArtefactError, match="file is not a folder"):
        artefacts.check_target(tmp_path / "file" / "below", KIND)


def test_a_target_is_tried_and_no_trace_is_left(tmp_path, monkeypatch):
    """Before long work: its result would be lost if it could not be written."""
    assert artefacts.check_target(tmp_path / "a" / "b", KIND) == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []

    def denied(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", denied)
    with pytest.raises(ArtefactError, match=r"b cannot be written: .*Permission denied"):
        artefacts.check_target(tmp_path / "a" / "b", KIND)


# -- what is refused to be read -----------------------------------------------------------------


def truncate(path):
    file = path / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def change_one_byte(path):
    file = path / "folder" / "content.json"
    file.write_bytes(file.read_bytes().replace(b"first", b"fxrst"))


def remove(path):
    (path / "tensors.safetensors").unlink()


def add(path):
    (path / "extra.bin").write_bytes(b"")


def link(path):
    """Same bytes, but outside: what is read later may be different."""
    file = path / "folder" / "content.json"
    (path.parent / "outside").write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(path.parent / "outside")


def link_folder(path):
    (path / "linked").symlink_to(path.parent)


def rename(path):
    (path / "tensors.safetensors").rename(path / "other.safetensors")


def remove_manifest(path):
    (path / "manifest.json").unlink()


def truncate_manifest(path):
    file = path / "manifest.json"
    file.write_bytes(file.read_bytes()[:-3])


def deep_manifest(path):
    (path / "manifest.json").write_text("[" * 200_000)


def binary_manifest(path):
    (path / "manifest.json").write_bytes(b"\xff\xfe\x00")


def list_manifest(path):
    (path / "manifest.json").write_text("[]")


def no_files(path):
    edit_manifest(path, files=None)


def wrong_kind(path):
    edit_manifest(path, kind="vflsynth other")


def no_version(path):
    edit_manifest(path, format_version="1")


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        change_one_byte,
        remove,
        add,
        link,
        link_folder,
        rename,
        remove_manifest,
        truncate_manifest,
        deep_manifest,
        binary_manifest,
        list_manifest,
        no_files,
        wrong_kind,
        no_version,
    ],
)
def test_damage_is_noticed(saved, damage):
    damage(saved)
    with pytest.raises(ArtefactError, match="saved"):
        artefacts.open_directory(saved, KIND)


def test_a_missing_directory(tmp_path):
    with pytest.raises(ArtefactError, match=r"nothing does not exist\. Fix: check the path$"):
        artefacts.open_directory(tmp_path / "nothing", KIND)
    with pytest.raises(ArtefactError, match=r"nothing does not exist\. Fix: check the path$"):
        artefacts.kind_of(tmp_path / "nothing")


def test_a_newer_version_is_named_even_if_its_manifest_looks_different(saved):
    edit_manifest(saved, format_version=99, files=["new", "style"])
    with pytest.raises(ArtefactVersionError, match=r"99.*Upgrade"):
        artefacts.open_directory(saved, KIND)


@pytest.mark.parametrize("content", [b"", b"no", b"\x08\0\0\0\0\0\0\0{}      ", b"\xff" * 64])
def test_tensors_that_are_none(tmp_path, content):
    (tmp_path / "t").write_bytes(content)
    if content.endswith(b"{}      "):
        assert artefacts.read_tensors(tmp_path / "t") == {}
    else:
        with pytest.raises(ArtefactError, match="cannot be read"):
            artefacts.read_tensors(tmp_path / "t")
    with pytest.raises(ArtefactError, match="cannot be read"):
        artefacts.read_tensors(tmp_path / "absent")


def test_a_pickle_is_not_loaded(tmp_path):
    """What torch.load would execute is just bytes here."""
    torch.save({"a": torch.zeros(2)}, tmp_path / "t")
    with pytest.raises(ArtefactError):
        artefacts.read_tensors(tmp_path / "t")


def test_reading_turns_errors_of_content_into_artefact_errors(tmp_path):
    with pytest.raises(ArtefactError, match="KeyError"), artefacts.reading(tmp_path, "a model"):
        {}["name"]
    with pytest.raises(KeyboardInterrupt), artefacts.reading(tmp_path, "a model"):
        raise KeyboardInterrupt


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Else it could be empty after a power failure."""
    path, events = tmp_path / "new" / "file.json", []
    rename = type(path).replace

    def renamed(side, target):
        events.append("rename")
        return rename(side, target)

    def synced(descriptor):
        events.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(type(path), "replace", renamed)
    monkeypatch.setattr(os, "fsync", synced)
    for content in ({"a": 1}, {"a": [2.0, None]}):
        events.clear()
        artefacts.replace_json(path, content)
        assert artefacts.read_json(path) == content
        assert events == [path.stat().st_ino, "rename", path.parent.stat().st_ino]
        assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]


def test_a_secret_file_is_its_owners_whatever_a_crash_left(tmp_path):
    path = tmp_path / "secret"
    side = tmp_path / f".secret.{os.getpid()}.tmp"
    side.write_text("half")
    side.chmod(0o644)
    artefacts.replace_text(path, "whole", mode=0o600)
    assert path.read_text() == "whole"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_two_processes_each_writes_a_file_of_its_own(tmp_path, monkeypatch):
    path, fsync = tmp_path / "file", os.fsync

    def meanwhile(descriptor):
        monkeypatch.setattr(os, "fsync", fsync)
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda: 1)
            artefacts.replace_text(path, "theirs")
        assert path.read_text() == "theirs"
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    artefacts.replace_text(path, "ours")
    assert path.read_text() == "ours"
    assert [*tmp_path.iterdir()] == [path]


def test_a_full_disk_leaves_the_earlier_file_alone(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    artefacts.replace_text(tmp_path / "file", "earlier")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtefactError, match=r"file cannot be written: .*No space left"):
        artefacts.replace_text(tmp_path / "file", "later")
    (left,) = tmp_path.iterdir()
    assert left.read_text() == "earlier"


def test_a_file_that_cannot_be_written_leaves_the_earlier_one(tmp_path):
    artefacts.replace_json(tmp_path / "file", 1)
    with pytest.raises(ValueError, match="JSON compliant"):
        artefacts.replace_json(tmp_path / "file", float("nan"))
    assert artefacts.read_json(tmp_path / "file") == 1
