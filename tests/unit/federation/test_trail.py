"""The audit trail of a site holds together, and says when it does not."""

import hashlib
import json
import stat
import threading

import pytest

from vflsynth.exceptions import ArtefactError
from vflsynth.federation import consent, trail
from vflsynth.federation.job import Job
from vflsynth.federation.progress import job_state
from vflsynth.federation.sampling import draw_part
from vflsynth.privacy import account_file


def write(folder, n=4):
    for i in range(n):
        trail.append(folder, "attempt", {"job": "j", "number": i})
    return folder / trail.FILE


def test_what_is_written_can_be_verified(tmp_path):
    assert trail.verify(tmp_path) == (0, "0" * 64)
    path = write(tmp_path)
    n, last = trail.verify(tmp_path)
    assert n == 4
    assert json.loads(path.read_text().splitlines()[-1])["digest"] == last
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def swapped(lines):
    return [lines[0], lines[2], lines[1], lines[3]]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [lines[0].replace('"number": 0', '"number": 9'), *lines[1:]], 1),
        (lambda lines: [lines[0], *lines[2:]], 2),
        (lambda lines: lines[1:], 1),
        (swapped, 2),
        (lambda lines: [*lines, lines[-1]], 5),
        (lambda lines: [*lines, "{}"], 5),
        (lambda lines: [*lines, "not JSON"], 5),
        (lambda lines: [*lines, "[1]"], 5),
        (lambda lines: [*lines[:3], lines[3][:-20]], 4),
    ],
)
def test_whatever_is_changed_is_found_and_nothing_is_added_to_it(tmp_path, change, line):
    path = write(tmp_path)
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(ArtefactError, match=f"line {line}: is not what was written"):
        trail.verify(tmp_path)
    with pytest.raises(ArtefactError, match=f"line {line}"):
        write(tmp_path, 1)


def test_a_trail_that_was_lost_or_cut_is_not_taken_for_a_new_one(tmp_path):
    path = write(tmp_path)
    for left in ("", "".join(path.read_text().splitlines(keepends=True)[:2])):
        path.write_text(left)
        with pytest.raises(ArtefactError, match=r"lacks what was in it.*knows of 4 lines"):
            write(tmp_path, 1)
    path.unlink()
    with pytest.raises(ArtefactError, match="lacks what was in it"):
        trail.lines(tmp_path)
    (tmp_path / f".{trail.FILE}.head").unlink()
    assert trail.lines(tmp_path) == []


def test_a_line_without_its_end_is_found(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text()[:-1])
    with pytest.raises(ArtefactError, match="line 4: is not what was written"):
        trail.verify(tmp_path)


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    path = write(tmp_path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(trail.os, "fsync", full)
        with pytest.raises(ArtefactError, match=r"cannot be written.*No space"):
            write(tmp_path, 1)
    assert path.read_bytes() == before
    write(tmp_path, 1)
    assert trail.verify(tmp_path)[0] == 5


def test_a_line_of_ones_own_with_a_right_digest_does_not_fit_in(tmp_path):
    """Digests are public: the chain tells, not a secret."""
    path = write(tmp_path)
    lines = path.read_text().splitlines()
    forged = json.loads(lines[1]) | {"details": {"job": "another"}}
    del forged["digest"]
    forged["digest"] = account_file.digest_of(forged)
    path.write_text("\n".join([lines[0], json.dumps(forged), *lines[2:]]) + "\n")
    with pytest.raises(ArtefactError, match="line 3"):
        trail.verify(tmp_path)


def test_two_nodes_of_a_site_add_lines_one_after_the_other(tmp_path):
    threads = [threading.Thread(target=write, args=(tmp_path, 5)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trail.verify(tmp_path)[0] == 15


def test_no_report_is_written_over_when_earlier_ones_are_cleared_away(tmp_path):
    job = Job.from_dict({"name": "j", "parties": ["a"]})
    for _ in range(3):
        trail.Report(tmp_path / "j", "a", job).end(None)
    last = (tmp_path / "j" / "report-003.json").read_bytes()
    for number in (1, 2):
        (tmp_path / "j" / f"report-00{number}.json").unlink()
    for _ in range(2):
        trail.Report(tmp_path / "j", "a", job).end(None)
    assert sorted(path.name[7:10] for path in (tmp_path / "j").iterdir()) == ["003", "004", "005"]
    assert (tmp_path / "j" / "report-003.json").read_bytes() == last


def test_a_copy_is_no_attempt_and_a_thousandth_is_the_last(tmp_path):
    job, own = Job.from_dict({"name": "j", "parties": ["a"]}), tmp_path / "j"
    own.mkdir()
    for number in ("999", "copy"):
        (own / f"report-{number}.json").write_text('{"outcome": null}')
    trail.Report(own, "a", job).end(None)
    assert (own / "report-copy.json").read_text() == '{"outcome": null}'
    assert json.loads((own / "report-999.json").read_text())["outcome"] == trail.KILLED
    assert job_state(tmp_path, "j").outcome == "finished"


def events(folder):
    trail.verify(folder)
    return [(line["event"], line["details"]) for line in trail.lines(folder)]


def test_a_run_is_in_the_trail_of_every_site(make_trial, tmp_path, cli):
    trial = make_trial(parameters={"epochs": 1})
    site = trial.sites["party_1"]
    consent.approve(trial.job, site)
    trial.run()
    draw_part(trial.job, site, 5, "first")
    found = dict(events(site.folder))
    assert [event for event, _ in events(site.folder)] == [
        "approved", "began", "matched", "ended", "sampled",
    ]  # fmt: skip
    assert found["approved"]["digest"] == found["began"]["digest"] == trial.job.digest
    assert found["matched"]["records"] == 40
    assert found["matched"]["rows"] == {"party_1": 40, "party_2": 40}
    report = site.folder / found["ended"]["report"]
    assert found["ended"]["outcome"] == "finished"
    assert found["ended"]["sha256"] == hashlib.sha256(report.read_bytes()).hexdigest()
    assert found["sampled"] == {"job": "trial", "request": "first", "rows": 5, "keys": False}
    assert [event for event, _ in events(trial.folder / "server")] == ["began", "ended"]
    site.write(tmp_path / "site.toml")
    said = cli(["parties", "trail", str(tmp_path / "site.toml")]).out
    assert "party_1: 5 lines, whole; the last digest is " in said
    path = site.folder / trail.FILE
    path.write_text(path.read_text().replace("finished", "Finished"))
    assert "line 4" in cli(["parties", "trail", str(tmp_path / "site.toml")], 3).err
