"""One road from tables to a release: planned, done, cut off anywhere, gone on with."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from io import StringIO

import numpy as np
import pandas as pd
import pytest

import vflsynth
import vflsynth.cli.evaluate
from tests.smaller import judge_by_few_trees
from vflsynth._signatures import new_key
from vflsynth.audit import inference
from vflsynth.cli import main
from vflsynth.cli.study import Study
from vflsynth.cli.tables import check_target
from vflsynth.contract import read_contract
from vflsynth.evaluation import pictures, train_test
from vflsynth.exceptions import ParameterError, PartyDataError
from vflsynth.federation.job import Job
from vflsynth.frames import read_table, write_table
from vflsynth.privacy import PrivacyAccount
from vflsynth.run.server_run import ServerRun

STEPS = ("inspect", "fit", "sample", "evaluate", "audit", "release", "verify")
LIMITS = dict.fromkeys(
    (
        "worst_column",
        "worst_pair",
        "incoherent_rows",
        "detection",
        "utility",
        "unique_combinations",
        "singling_out",
        "linkability",
        "inference",
    ),
    1.0,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Write what 'vflsynth new' makes of two small tables, and limits that a poor model keeps."""
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(0)
    ids = [f"P{i:03d}" for i in range(120)]
    age = rng.integers(20, 80, 120)
    hospital = pd.DataFrame({"id": ids, "age": age, "stay": rng.poisson(5, 120) + 1})
    insurer = pd.DataFrame(
        {"id": ids, "cost": rng.normal(age, 5.0).round(1), "plan": rng.choice(["a", "b"], 120)}
    )
    write_table(hospital, folder / "hospital.csv")
    write_table(insurer[:110], folder / "insurer.csv")
    tables = [f"{name}={folder / name}.csv" for name in ("hospital", "insurer")]
    new = ["new", *tables, "--on", "id", "--target", "plan", "--epsilon", "0", "--seed", "0"]
    assert main([*new, "-o", str(folder / "study.toml"), "-q"]) == 0
    text = (folder / "study.toml").read_text()
    (folder / "study.toml").write_text('method = "IndependentSynthesizer"\n' + text)
    limits = "".join(f"{name} = {limit}\n" for name, limit in LIMITS.items())
    contract = (folder / "contract.toml").read_text()
    assert "110 matched records can show 0.35" in contract
    waived = '[release.waived]\nmembership = "not attacked"\n'
    contract = f"{contract.partition('[release')[0]}[release]\n{limits}\n{waived}"
    (folder / "contract.toml").write_text(contract)
    return folder / "study.toml"


@pytest.fixture(autouse=True)
def quick(monkeypatch, blank_pictures):
    """Forests and boosting of a few trees, and no picture."""
    judge_by_few_trees(monkeypatch, 5, n_rounds=5, modules=(train_test, inference))
    for drawn in ("marginals", "association_maps", "pairs"):
        monkeypatch.setattr(f"vflsynth.evaluation.pictures.{drawn}", lambda *_: [])
    monkeypatch.setattr("vflsynth.evaluation.pictures.projection", lambda *_: None)
    blank = pictures.Picture("", "", "data:,")
    monkeypatch.setattr("vflsynth.evaluation.pictures.utility", lambda _: blank)


def copied(study, folder):
    for name in ("study.toml", "contract.toml", "hospital.csv", "insurer.csv", "publisher.pem"):
        shutil.copy(study.parent / name, folder / name)
    text = (folder / "study.toml").read_text().replace(str(study.parent), str(folder))
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def trained(study, folder, epochs):
    """A copy of the study whose method trains in epochs."""
    path = copied(study, folder)
    text = path.read_text().replace("IndependentSynthesizer", "VFLGANSynthesizer")
    path.write_text(f"{text}[parameters]\nepochs = {epochs}\nbatch_size = 16\n")
    return path


def left(folder):
    """Return what recipient and publisher have, but for commitments, their digests, the date."""
    model = folder / "published" / "model"
    found = {path.name: path.read_bytes() for path in sorted(model.rglob("*.safetensors"))}
    found["table"] = (folder / "published" / "synthetic.parquet").read_bytes()
    public = folder / "published" / "release" / "public"
    found["published"] = (public / "synthetic.parquet").read_bytes()
    content = json.loads((public / "release.json").read_text())
    return found | {"release": {k: content[k] for k in content.keys() - {"commitments", "date"}}}


def test_cut_off_at_every_step_it_ends_with_the_same(study, tmp_path, monkeypatch, cli):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        copied(study, folder)
    said = cli(["publish", str(whole / "study.toml"), "-q"]).out
    assert "Passes with 1 clause waived without a measurement: " in said
    key = re.search(r"--public ([0-9a-f]{64})", said)[1]
    assert main(["verify", str(whole / "published/release/public"), "--public", key]) == 0
    ran = []
    for step in STEPS:
        module = __import__(f"vflsynth.cli.{step}", fromlist=["run"])
        own = module.run

        def killed(options, own=own, step=step):
            ran.append(step)
            own(options)  # it is done, and nobody could write that down
            raise KeyboardInterrupt

        def counted(options, own=own, step=step):
            ran.append(step)
            return own(options)

        monkeypatch.setattr(module, "run", killed)
        assert "next: vflsynth publish" in cli(["publish", str(cut / "study.toml"), "-q"], 130).err
        monkeypatch.setattr(module, "run", counted)
    assert main(["publish", str(cut / "study.toml"), "-q"]) == 0
    assert ran == [step for step in STEPS for _ in range(2)], "once cut off, once to its end"
    assert left(cut) == left(whole)
    ran.clear()
    assert main(["publish", str(cut / "study.toml"), "-q"]) == 0
    assert not ran
    (cut / "published" / "synthetic.parquet").write_bytes(b"another table")
    assert main(["publish", str(cut / "study.toml"), "-q"]) == 0
    assert ran == ["sample"], "the same table needs no other verdict"


def killed_in(path, step, by):
    """Start the command, send it a signal once it has begun a step; return how it ended."""
    command = [sys.executable, "-m", "vflsynth", "publish", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        for line in process.stderr:
            if step is not None and line.startswith(f"$ vflsynth {step} ".encode()):
                process.send_signal(by)
                break
        said = process.communicate()[1].decode()
    return process.returncode, f"next: vflsynth publish {path}" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "ended"), [(signal.SIGKILL, (-signal.SIGKILL, False)), (signal.SIGINT, (130, True))]
)
def test_killed_in_every_step_it_ends_with_the_same(study, tmp_path, by, ended):
    """As a machine or a person ends it: in the midst of a step, a new process each time."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        copied(study, folder)
    assert killed_in(whole / "study.toml", None, by) == (0, False)
    found = {step: killed_in(cut / "study.toml", step, by) for step in STEPS}
    assert found == dict.fromkeys(STEPS, ended)
    assert killed_in(cut / "study.toml", None, by) == (0, False)
    assert left(cut) == left(whole)


@pytest.mark.parametrize("becomes", [0, 130, ImportError("broken")])
def test_a_ctrl_c_that_a_step_swallows_ends_the_job(study, tmp_path, monkeypatch, cli, becomes):
    """As trainings do, which keep what they have, and imports, which may fail of it."""

    def swallows(_):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if isinstance(becomes, Exception):
            raise becomes
        return becomes

    monkeypatch.setattr("vflsynth.cli.inspect.run", swallows)
    path = copied(study, tmp_path)
    said = cli(["publish", str(path), "-q"], 130).err
    assert f"interrupted; what was finished is kept; next: vflsynth publish {path}" in said
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ('key = "lost.pem"', "lost.pem cannot be read as a private key"),
        ('key = "study.toml"', "study.toml cannot be read as a private key"),
        ('holdout.hospital = "lost.csv"', "party 'hospital': there is no file"),
        ('holdout.hospital = "hospital.csv"', "110 of the 120 records of --holdout are in"),
    ],
)
def test_what_the_last_steps_read_is_looked_for_first(study, tmp_path, cli, said, says):
    text = study.read_text().replace('key = "publisher.pem"\n', "")
    copied = tmp_path / "study.toml"
    shutil.copy(study.parent / "hospital.csv", tmp_path)
    copied.write_text(text.replace("[publish]", f"[publish]\n{said}"))
    assert says in cli(["publish", str(copied)], 3).err
    assert not (tmp_path / "published").exists()


def test_a_ctrl_c_in_the_trial_ends_the_job(study, tmp_path, monkeypatch):
    path = trained(study, tmp_path, epochs=7)
    pressed = lambda *_: signal.raise_signal(signal.SIGINT)  # noqa: E731
    monkeypatch.setattr("vflsynth.cli.study.Trial.on_epoch_end", pressed)
    assert main(["publish", str(path)]) == 130
    assert not (tmp_path / "published").exists()


@pytest.mark.slow
def test_a_training_goes_on_where_it_was_cut_off(study, tmp_path, monkeypatch):
    """From the last checkpoint, to the same model as in one go."""
    models = []

    def release(options):
        options.output.mkdir()
        return 0

    monkeypatch.setattr("vflsynth.cli.release.run", release)
    monkeypatch.setattr("vflsynth.cli.verify.run", lambda _: 0)
    for cut in (False, True):
        folder = tmp_path / str(cut)
        folder.mkdir()
        path = trained(study, folder, epochs=6)
        path.write_text(f"checkpoint_every = 2\n{path.read_text()}")
        if cut:
            epochs = []

            def killed(self, state, own=ServerRun.on_epoch_end, epochs=epochs):
                epochs.append(state.epoch)
                if len(epochs) == 5:
                    raise SystemExit  # nothing is saved but the checkpoint
                return own(self, state)

            monkeypatch.setattr(ServerRun, "on_epoch_end", killed)
            with pytest.raises(SystemExit):
                main(["publish", str(path), "-q"])
        assert main(["publish", str(path), "-q"]) == 0
        assert not (folder / "published" / "checkpoint").exists()
        models.append(sorted((folder / "published" / "model").rglob("*.safetensors")))
    assert epochs[:7] == [1, 2, 3, 4, 5, 5, 6]  # then those of the audit
    assert [path.read_bytes() for path in models[0]] == [path.read_bytes() for path in models[1]]


def test_two_jobs_at_once_in_a_folder_are_refused(study, tmp_path, capsys):
    path = copied(study, tmp_path)
    locks = pytest.importorskip("vflsynth._locks")
    with locks.lock(tmp_path / "published" / ".lock", ""):
        assert main(["publish", str(path), "-q"]) == 2
    assert "another 'vflsynth publish' is at work here" in capsys.readouterr().err
    assert [entry.name for entry in (tmp_path / "published").iterdir()] == [".lock"]


def test_what_is_somebody_s_own_stays(study, tmp_path, cli):
    path, out = copied(study, tmp_path), tmp_path / "published"
    out.touch()
    assert "published is not a folder" in cli(["publish", str(path)], 2).err
    out.unlink()
    out.mkdir()
    write_table(own := read_table(tmp_path / "hospital.csv"), out / "synthetic.parquet")
    assert "was not drawn from it" in cli(["publish", str(path), "-q"], 2).err
    assert read_table(out / "synthetic.parquet").equals(own)


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_reports_of_real_rows_are_their_owner_s(study, tmp_path, monkeypatch):
    path = copied(study, tmp_path)
    monkeypatch.setattr("vflsynth.cli.inspect.run", lambda _: 2)  # as if it were interrupted
    with pytest.raises(KeyboardInterrupt):
        vflsynth.publish(path, quiet=True)
    assert (tmp_path / "published").stat().st_mode & 0o077 == 0


def test_only_what_changed_is_done_again(study, tmp_path, monkeypatch):
    path, done = copied(study, tmp_path), []
    path.write_text('key_form = "casefold"\n' + path.read_text())

    def wrote(options, step):
        done.append(step)
        assert step in ("fit", "sample", "verify") or options.key_form == "casefold"
        if hasattr(options, "output"):
            options.output.write_text(str(getattr(options, "seed", "")))
        return 0

    for step in STEPS:
        monkeypatch.setattr(f"vflsynth.cli.{step}.run", partial(wrote, step=step))
    roles = {"sensitive": ["-x"], "quasi-identifier": ["-y"]}
    monkeypatch.setattr("vflsynth.cli.study.Study.roles", lambda *_: roles)

    def three_rows(job):
        seed, table = job.study.seed, job.out / "synthetic.parquet"
        return ["model", "-n", "3", "--seed", seed, "-o", table]

    monkeypatch.setattr("vflsynth.cli.publish._Job._sample", three_rows)
    assert vflsynth.publish(path, quiet=True)
    done.clear()
    path.write_text(path.read_text().replace('target = "plan"', 'title = "-Costs"'))
    assert vflsynth.publish(path, quiet=True)
    assert done == ["evaluate", "audit", "release"], "of what is sensitive, and predicted"
    path.write_text(path.read_text().replace("seed = 0", "seed = 1"))
    assert vflsynth.publish(path, quiet=True)
    assert done[3:] == ["fit", "sample", "evaluate", "audit", "release"]
    done.clear()
    contract = tmp_path / "contract.toml"
    contract.write_text(contract.read_text().replace("utility = 1.0", "utility = 0.9"))
    assert vflsynth.publish(path, quiet=True)
    assert done == ["inspect", "evaluate", "release"], "limits bind no model"
    (tmp_path / "lab.toml").write_text('file = "hospital.csv"\n')
    path.write_text(re.sub("hospital = .*", 'hospital = "lab.toml"', path.read_text(), count=1))
    assert vflsynth.publish(path, quiet=True)
    done.clear()
    write_table(read_table(tmp_path / "hospital.csv").assign(stay=1), tmp_path / "hospital.csv")
    assert vflsynth.publish(path, quiet=True)
    assert done[:2] == ["inspect", "fit"], "of a description the table counts"
    done.clear()
    assert (tmp_path / "published" / "release").read_text() == "0", "not the seed of the model"
    (tmp_path / "publisher.pem").unlink()
    public = new_key(tmp_path / "publisher.pem")
    assert vflsynth.publish(path, quiet=True)
    assert done == ["release", "verify"], "another key under the same name signs anew"
    assert (tmp_path / "published" / "publisher.pub").read_text().strip() == public
    done.clear()
    path.write_text(path.read_text().replace("insurer = ", "payer = "))
    assert vflsynth.publish(path, quiet=True)
    assert done[:2] == ["inspect", "fit"], "a contract is of parties by their names"


def test_a_table_that_changes_meanwhile_is_not_handed_out(study, tmp_path, monkeypatch, cli):
    copied(study, tmp_path)
    table, evaluate = tmp_path / "hospital.csv", vflsynth.cli.evaluate.run

    def changing(options):
        code = evaluate(options)
        table.write_text("".join(table.read_text().splitlines(keepends=True)[:100]))
        return code

    monkeypatch.setattr("vflsynth.cli.evaluate.run", changing)
    said = cli(["publish", str(tmp_path / "study.toml"), "-q"], 3).err
    assert "read or wrote changed since" in said
    assert not (tmp_path / "published" / "release").exists()


def test_an_error_of_a_step_ends_with_what_comes_next(study, tmp_path, monkeypatch, cli):
    path = copied(study, tmp_path)

    def fails(_):
        raise PartyDataError("there is a gap", fix="fill it")

    monkeypatch.setattr("vflsynth.cli.inspect.run", fails)
    said = cli(["publish", str(path)], 3).err.splitlines()[-1]
    assert said == (
        "vflsynth: error: there is a gap. Fix: fill it. "
        f"Next: vflsynth publish {path}; what is done is kept"
    )


def test_python_publishes_what_the_command_line_does(study, monkeypatch, capsys):
    """A step that fails names what comes next; the contract or the study is to be changed."""
    done = []
    for step in STEPS:
        monkeypatch.setattr(
            f"vflsynth.cli.{step}.run", lambda _, step=step: done.append(step) or step == "release"
        )
    monkeypatch.setattr("vflsynth.cli.publish._digest", lambda path: "")
    monkeypatch.setattr("vflsynth.cli.publish._Job._sample", lambda _: ["model", "-n", "3"])
    monkeypatch.setattr("vflsynth.cli.publish._Job._check_unchanged", lambda *_: None)
    assert vflsynth.publish(study) is False
    assert done == list(STEPS[:-1])
    said = capsys.readouterr().out
    assert "next: look at " in said
    assert "contract.toml" in said
    assert vflsynth.publish(study, quiet=True) is False
    assert capsys.readouterr().out == ""
    shutil.rmtree(study.parent / "published")


def test_the_plan_says_what_by_which_method_and_why(study, tmp_path, cli):
    path = copied(study, tmp_path)
    path.write_text(path.read_text().replace('method = "IndependentSynthesizer"\n', ""))
    said = cli(["publish", str(path), "--plan"]).out
    assert "GaussianCopulaSynthesizer: networks learn fewer than 300 rows by heart" in said
    assert [line.split()[1] for line in said.splitlines()[2:9]] == list(STEPS)
    path.write_text(path.read_text().replace('target = "plan"', 'target = "plans"'))
    assert "did you mean 'plan'?" in cli(["publish", str(path), "--plan"], 2).err
    assert not (tmp_path / "published").exists()


def test_a_training_is_tried_for_how_long_it_takes(study, tmp_path, cli):
    path = trained(study, tmp_path, epochs=7)
    said = cli(["publish", str(path), "--plan"]).err
    assert re.search(r"fit: at most 7 epochs, \d+ s, [\d.]+ .B of memory", said)


def test_as_many_records_are_tried_as_are_drawn(study, tmp_path, monkeypatch, cli):
    path = trained(study, tmp_path, epochs=2)
    path.write_text("max_records = 60\n" + path.read_text())
    monkeypatch.delattr("vflsynth.cli.study.read_party_frames")
    assert "fit: at most 2 epochs" in cli(["publish", str(path), "--plan"]).err


def test_an_audit_too_short_to_speak_is_refused_before_anything_is_done(study, tmp_path, cli):
    path = trained(study, tmp_path, epochs=7)
    path.write_text(path.read_text().replace("[publish]", "[publish]\naudit_minutes = 1e-5"))
    assert "publish.audit_minutes = 1e-05 is too short" in cli(["publish", str(path)], 2).err
    assert not (tmp_path / "published" / "model").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('output = "published"', "output = 3"), "output must be text"),
        (("[publish]", "[publish]\naudit_minutes = -1"), "audit_minutes must be"),
        (("[publish]", "[publish]\naudit_minuets = 1"), "did you mean 'audit_minutes'?"),
        (("[parties]", "[partys]"), "did you mean 'parties'?"),
    ],
)
def test_what_a_study_says_wrong_is_named(study, tmp_path, change, said):
    path = copied(study, tmp_path)
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(ParameterError) as error:
        Study.read(path)
    assert said in str(error.value)


def test_parties_that_never_meet_take_the_same_file_as_a_job(study, tmp_path):
    path = copied(study, tmp_path)
    path.write_text('name = "costs"\n' + path.read_text().replace('contract = "contract.toml"', ""))
    job = Job.read(path)
    assert job.parties == ("hospital", "insurer")
    assert job.on == "id"


def test_new_needs_what_nobody_can_be_asked(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "give it as an option" in cli(["new"], 2).err
    write_table(pd.DataFrame({"id": range(60), "age": range(60)}), tmp_path / "lab.csv")
    command = ["new", "lab.csv", "--on", "id", "--target", "", "--audit-minutes", "1"]
    assert "store the table as parquet" in cli([*command, "--epsilon", "3"], 2).err
    assert "did you mean 'age'?" in cli([*command, "--epsilon", "0", "--target", "agee"], 2).err
    said = cli([*command, "--epsilon", "0", "--target", "id"], 2).err
    assert "no table has a column 'id' to predict; there are age" in said
    assert not (tmp_path / "study.toml").exists()
    (tmp_path / "contract.toml").touch()
    said = cli([*command, "--epsilon", "0", "-o", "other.toml"], 2).err
    assert "another folder (--output)" in said


def test_a_key_of_one_party_may_be_predicted_of_another():
    frames = {"lab": pd.DataFrame(columns=["id", "ward"]), "ward": pd.DataFrame(columns=["ward"])}
    on = {"lab": "id", "ward": "ward"}
    assert check_target(frames, on, "ward") == "ward"
    with pytest.raises(
        ParameterError, match="no table has a column 'id' to predict; there are ward"
    ):
        check_target(frames, on, "id")


def test_whoever_mistypes_an_answer_is_asked_again(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(pd.DataFrame({"id": range(60), "age": range(60)}), tmp_path / "lab.csv")
    said = StringIO("\nlap.csv\nlab.csv\nident\nid\nagee\nage\nnone\n3\n\n\n")
    monkeypatch.setattr(said, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", said)
    shown = cli(["new"]).err
    times = [shown.count(f"{number}/5") for number in range(1, 6)]
    assert times == [3, 2, 2, 3, 1]
    assert Study.read(tmp_path / "study.toml").target == "age"
    assert main(["new", "lab.csv", "-o", "end/study.toml"]) == 130, "nothing more is said"


def test_tables_may_name_their_keys_differently(tmp_path, cli):
    """A table without its key is an error of 'new', not of a training."""
    write_table(pd.DataFrame({"id": range(60), "age": range(60)}), tmp_path / "lab.csv")
    write_table(pd.DataFrame({"member": range(60), "stay": range(60)}), tmp_path / "ward.csv")
    command = ["new", str(tmp_path / "lab.csv"), str(tmp_path / "ward.csv"), "--target", ""]
    command += ["--epsilon", "0", "--audit-minutes", "1", "-o", str(tmp_path / "study.toml")]
    said = cli([*command, "--on", "id"], 3).err
    assert "party 'ward': no column 'id' to match records by" in said
    assert "Fix: --on lab=COLUMN --on ward=COLUMN" in cli([*command, "--on", "lab=id"], 3).err
    assert "60 records matched" in cli([*command, "--on", "lab=id", "--on", "ward=member"]).err
    assert Study.read(tmp_path / "study.toml").on_options == ["lab=id", "ward=member"]
    assert "member" not in read_contract(tmp_path / "contract.toml").parties["ward"].columns


def test_a_study_in_another_folder_finds_the_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(pd.DataFrame({"id": range(60), "age": range(60)}), tmp_path / "lab.csv")
    command = ["new", "lab.csv", "--on", "id", "--target", "", "--epsilon", "0", "-q"]
    assert main([*command, "--audit-minutes", "1", "-o", "studies/study.toml"]) == 0
    assert Study.read(tmp_path / "studies/study.toml").parties["lab"].is_file()


def test_a_private_study_is_proposed_by_names_alone(tmp_path, cli):
    """No record is read for the contract, and how many there are is nobody's business."""
    frame = pd.DataFrame({"id": range(60), "age": range(60), "stay": range(60)})
    write_table(frame, tmp_path / "lab.parquet")
    command = ["new", str(tmp_path / "lab.parquet"), "--on", "id", "--target", "", "-q"]
    command += ["--epsilon", "3", "--audit-minutes", "5", "-o", str(tmp_path / "study.toml")]
    assert main(command) == 0
    proposed = read_contract(tmp_path / "contract.toml")
    assert set(proposed.release.waived) == {"utility", "inference"}, "nothing is to be predicted"
    columns = proposed.parties["lab"].columns
    assert {label: column.role for label, column in columns.items()} == {"age": "quasi-identifier"}
    study = Study.read(tmp_path / "study.toml")
    assert (study.method, study.is_private, study.rows) == ("MixtureSynthesizer", True, 1000)
    text = (tmp_path / "study.toml").read_text()
    write_table(pd.concat([frame] * 20, ignore_index=True), tmp_path / "lab.parquet")
    for name in ("study.toml", "contract.toml"):
        (tmp_path / name).unlink()
    assert main(command) == 0, "the account that is there is kept"
    more = (tmp_path / "study.toml").read_text()
    differ = {*text.split("\n")} ^ {*more.split("\n")}
    assert all(line.startswith("seed = ") for line in differ), "whatever the number of records"
    assert len(differ) == 2, "nobody can guess the seed"
    (tmp_path / "study.toml").write_text(text.replace("rows = 1000", ""))
    assert "a private study needs rows" in cli(["publish", str(tmp_path / "study.toml")], 2).err
    (tmp_path / "account.json").unlink()
    (tmp_path / "study.toml").write_text(text)
    assert "account.json" in cli(["publish", str(tmp_path / "study.toml"), "--plan"], 3).err, (
        "never taken for an empty one"
    )


def test_a_private_study_that_is_done_again_says_what_all_fits_spent(tmp_path, cli):
    """A change of the study is one more release about the same people."""
    rng = np.random.default_rng(0)
    ages = {"id": range(400), "age": rng.integers(18, 90, 400), "stay": rng.integers(0, 9, 400)}
    write_table(pd.DataFrame(ages), tmp_path / "lab.parquet")
    study = tmp_path / "study.toml"
    command = ["new", str(tmp_path / "lab.parquet"), "--on", "id", "--target", "", "-q"]
    assert main([*command, "--epsilon", "1", "--audit-minutes", "0", "-o", str(study)]) == 0
    assert "once cut off, it is paid for again" in cli(["publish", str(study), "--plan"]).err
    assert main(["publish", str(study), "-q"]) in (0, 1)
    account = PrivacyAccount(tmp_path / "account.json")
    assert account.epsilon(1e-6) == pytest.approx(1.0, rel=0.01)
    state = tmp_path / "published/state.json"
    killed = json.loads(state.read_text())
    model = killed["steps"].pop("fit")["outputs"]["model"]  # written once the model is there
    state.write_text(json.dumps(killed))
    assert main(["publish", str(study), "-q"]) in (0, 1)
    assert len(account.attempts) == 1, "a fit that was done is not paid for again"
    state.write_text(json.dumps(killed | {"before": model}))  # as one that Ctrl-C ended
    assert main(["publish", str(study), "-q"]) in (0, 1)
    assert len(account.attempts) == 2
    study.write_text(study.read_text().replace("seed = ", "seed = 1"))
    assert main(["publish", str(study), "-q"]) in (0, 1)
    assert len(account.attempts) == 3
    told = (tmp_path / "published/release.txt").read_text()
    assert f"ε = {account.epsilon(1e-6):.4g}" in told
    assert "2 other runs" in told
