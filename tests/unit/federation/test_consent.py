"""A site takes part in the jobs that were approved there, and in no others."""

import json
import re
import stat
from dataclasses import replace

import pytest

from tests.unit.federation.conftest import JOB_TEXT, SITE_TEXT
from vflsynth._signatures import new_key
from vflsynth.cli import main
from vflsynth.exceptions import ConsentError, ParameterError
from vflsynth.federation import consent, trail
from vflsynth.federation.job import Job
from vflsynth.federation.site import Site, Telling


def refused(job, site):
    with pytest.raises(ConsentError, match=f"{job.digest} is not approved at this site"):
        consent.check_consent(job, site)


def test_a_job_is_approved_by_hand_and_only_as_it_was_read(folder, cli):
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    refused(job, site)
    shown = cli(["parties", "approve", "job.toml", "lab.toml"]).out
    for words in (
        job.digest,
        '"epochs": 1',
        "DiscriminatorFeatures, every step, made of records. Tells: one vec",
    ):
        assert words in shown
    consent.check_consent(job, site)
    path = folder / "lab-folder" / consent.FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(json.loads(path.read_text())) == [job.digest]
    for change in (
        {"parameters": {"epochs": 2}},
        {"method": "GaussianCopulaSynthesizer", "parameters": {}},
        {"parties": ["lab", "other"]},
        {"exchange_timeout": 61.0},
    ):
        refused(Job.from_dict(job.to_dict() | change), site)
    assert main(["parties", "approve", "job.toml", "lab.toml", "--withdraw"]) == 0
    refused(job, site)


def test_what_is_withdrawn_meanwhile_is_not_approved_again(folder, monkeypatch):
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    other = replace(job, name="other")
    consent.approve(job, site)
    bound_to = consent.bound_to
    monkeypatch.setattr(consent, "bound_to", lambda of: consent.withdraw(job, of) and bound_to(of))
    consent.approve(other, site)  # reads the table, which takes a while
    monkeypatch.undo()
    refused(job, site)
    consent.check_consent(other, site)


@pytest.mark.parametrize("name", [consent.FILE, trail.FILE, "privacy-account.json"])
def test_no_job_has_its_folder_where_a_site_has_a_file(folder, name):
    with pytest.raises(ParameterError, match="name must not end in"):
        Job.from_dict(Job.read(folder / "job.toml").to_dict() | {"name": name})


def test_showing_is_not_approving(folder, cli):
    assert "leaves every party" in cli(["parties", "approve", "job.toml", "lab.toml", "--show"]).out
    refused(Job.read(folder / "job.toml"), Site.read(folder / "lab.toml"))


def test_that_a_job_is_private_is_said(folder, cli):
    privacy = '[parameters.privacy]\nmechanism = "dpsgd"\nepsilon = 1\ndelta = 1e-4\n'
    text = JOB_TEXT.replace("[par", 'method = "VertiGANSynthesizer"\n[par') + privacy
    (folder / "job.toml").write_text(text)
    shown = cli(["parties", "approve", "job.toml", "lab.toml", "--show"]).out
    assert "only what the privacy ledger counts leaves" in shown
    assert '"epsilon": 1' in shown


def test_a_site_can_agree_to_every_job(folder):
    job = Job.read(folder / "job.toml")
    (folder / "lab.toml").write_text('jobs = "any"\n' + SITE_TEXT)
    consent.check_consent(job, Site.read(folder / "lab.toml"))


def test_a_server_without_records_needs_no_consent(folder):
    consent.check_consent(
        Job.read(folder / "job.toml"), Site("server", folder / "server", jobs="approved")
    )


# -- who proposes a job signs it ------------------------------------------------------------------


@pytest.fixture
def key(folder, cli):
    """A proposer's key, and its public part in the site file."""
    public = re.search(r'name = "(\w+)"', cli(["parties", "key", "proposer.pem"]).out)[1]
    (folder / "lab.toml").write_text(f'{SITE_TEXT}jobs = "signed"\n[proposers]\nann = "{public}"\n')
    return folder / "proposer.pem"


def test_a_site_takes_what_a_known_proposer_signed(folder, key):
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    signature = consent.propose(job, key)
    consent.check_consent(job, site, signature)
    (line,) = trail.lines(site.folder)
    assert line["event"] == "proposed"
    proposal = json.loads(signature)["id"]
    said = {"job": "j", "digest": job.digest, "proposer": "ann", "proposal": proposal}
    assert line["details"] == said
    changed = Job.from_dict(job.to_dict() | {"parameters": {"epochs": 2}})
    for one, what in [(changed, signature), (job, ""), (job, None), (job, "0" * 128), (job, "x")]:
        with pytest.raises(ConsentError, match="than those of ann, whose proposals this site"):
            consent.check_consent(one, site, what)
    new_key(folder / "other.pem")
    with pytest.raises(ConsentError):
        consent.check_consent(job, site, consent.propose(job, folder / "other.pem"))


def test_signed_and_approved(folder, key):
    """Each alone is not enough where the site asks for both."""
    job = Job.read(folder / "job.toml")
    site = replace(Site.read(folder / "lab.toml"), jobs="approved")
    signature = consent.propose(job, key)
    with pytest.raises(ConsentError, match="is not approved"):
        consent.check_consent(job, site, signature)
    consent.approve(job, site)
    consent.check_consent(job, site, signature)
    with pytest.raises(ConsentError, match="no signature"):
        consent.check_consent(job, site)


def test_keys_that_are_none(folder, key):
    job = Job.read(folder / "job.toml")
    (folder / "none.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    for name in ("none.pem", "missing.pem", "job.toml"):
        with pytest.raises(ParameterError, match="cannot be read as a private key"):
            consent.propose(job, folder / name)
    assert main(["parties", "key", str(key)]) == 2  # nothing is overwritten


# -- what a proposal and an approval are for ------------------------------------------------------


def test_a_proposal_cannot_be_replayed(folder, key):
    """It was accepted twenty times of twenty; what is refused is a line of the trail."""
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    proposal = consent.propose(job, key, runs=2)
    allowed = 2 * (1 + job.most_restarts)
    for _ in range(allowed):
        consent.check_consent(job, site, proposal)
    for _ in range(3):
        with pytest.raises(ConsentError, match=f"was for {allowed} attempts, and had them"):
            consent.check_consent(job, site, proposal)
    assert [line["event"] for line in trail.lines(site.folder)] == (
        ["proposed"] * allowed + ["refused"] * 3
    )
    assert "had them" in trail.lines(site.folder)[-1]["details"]["reason"]
    consent.check_consent(job, site, consent.propose(job, key))


def test_a_proposal_is_for_those_whom_it_names(folder, key):
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    proposal = consent.propose(job, key)
    consent.check_consent(job, replace(site, party="clinic"), proposal)
    with pytest.raises(ConsentError, match="is for clinic, lab, server, and not for this site"):
        consent.check_consent(job, replace(site, party="press"), proposal)


def test_a_proposal_ends(folder, key):
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    with pytest.raises(ConsentError, match="could be begun until"):
        consent.check_consent(job, site, consent.propose(job, key, days=-1.0))


@pytest.mark.parametrize("change", [{"attempts": 99}, {"to": ["press"]}, {"until": "2999-01-01"}])
def test_what_a_proposal_says_is_signed(folder, key, change):
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    proposal = json.dumps(json.loads(consent.propose(job, key)) | change)
    with pytest.raises(ConsentError, match="than those of ann"):
        consent.check_consent(job, site, proposal)


def test_an_approval_is_of_the_site_as_it_was(folder):
    """Another table, kind, contract or limit, and somebody has to look again."""
    job, site = Job.read(folder / "job.toml"), Site.read(folder / "lab.toml")
    (folder / "lab.csv").write_text("id,a\n1,2\n2,3\n")
    (folder / "own.toml").write_text("[parties.lab]\n")
    site = replace(site, contract=folder / "own.toml")
    consent.approve(job, site)
    consent.check_consent(job, site)
    (folder / "lab.csv").write_text("id,a\n1,2\n2,9\n5,7\n")  # other records, the same columns
    consent.check_consent(job, site)
    limit = replace(site.bounds, most_rows=10)
    for changed, what in [
        (replace(site, column_kinds={"a": "categorical"}), "site file"),
        (replace(site, key="a"), "site file"),  # then `id` would be modelled
        (replace(site, bounds=limit), "limits"),
        (replace(site, telling=Telling(999.0)), "limits"),
    ]:
        with pytest.raises(ConsentError, match=f"approved when this site had another {what}"):
            consent.check_consent(job, changed)
    (folder / "lab.csv").write_text("id,a,diagnosis\n1,2,x\n2,9,y\n")
    (folder / "own.toml").write_text("[parties.lab.columns.a]\nextremes = true\n")
    with pytest.raises(ConsentError, match="another table's columns and contract"):
        consent.check_consent(job, site)
    consent.approve(job, site)
    consent.check_consent(job, site)
