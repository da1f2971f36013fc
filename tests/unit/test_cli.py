"""The command line as a person and a script meet it: results, messages, exit codes."""

import hashlib
import inspect
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.smaller import judge_by_few_trees
from vflsynth import IndependentSynthesizer, VFLGANSynthesizer
from vflsynth.cli import main
from vflsynth.cli.audit import _SCHEMES
from vflsynth.cli.judged import Judged
from vflsynth.cli.main import command_parser
from vflsynth.cli.methods import modes
from vflsynth.cli.parties import ACTIONS
from vflsynth.cli.records import open_model
from vflsynth.cli.release import _publishable
from vflsynth.cli.sample import condition_of
from vflsynth.cli.tables import PartyFile
from vflsynth.columns import Range
from vflsynth.columns.wanted import Domain
from vflsynth.exceptions import ColumnMismatchError, ParameterError
from vflsynth.federation.job import Job
from vflsynth.frames import read_table, write_table
from vflsynth.registry import Members
from vflsynth.release import release_gate

pytestmark = pytest.mark.usefixtures("short_searches", "few_trees")

SMALL = ["--set", "generator_hidden=[8]", "--set", "first_part=[8]", "--seed", "3", "--quiet"]
COMMANDS = (
    "fit", "sample", "complete", "evaluate", "audit", "release", "verify", "inspect", "account",
    "methods", "parties", "demo", "new", "publish",
)  # fmt: skip


@pytest.fixture(scope="module")
def few_trees():
    """Forests that judge tables: how well is not asked here."""
    with pytest.MonkeyPatch.context() as patch:
        judge_by_few_trees(patch, 5)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two parties' tables, rows in different orders, and a model of them."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    health = rng.normal(size=150)
    ids = [f"P{i:03d}" for i in range(150)]
    lab = pd.DataFrame({"id": ids, "marker": health.round(2), "count": rng.poisson(20, 150)})
    clinic = pd.DataFrame(
        {
            "id": ids,
            "visit": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 150), "D"),
            "diagnosis": pd.Categorical(np.where(health > 0, "ill", "well")),
        }
    )
    write_table(lab, folder / "lab.csv")
    write_table(clinic.sample(frac=1, random_state=1)[:140], folder / "clinic.parquet")
    selecting = ["--set", "model_selection=best", "--transcript"]
    assert main([*fit(folder), *SMALL, "--epochs", "2", *selecting]) == 0
    VFLGANSynthesizer.load(folder / "model").parties_["lab"].save(folder / "half")
    return folder


def tables_in(folder):
    return [f"lab={folder / 'lab.csv'}", f"clinic={folder / 'clinic.parquet'}"]


def fit(folder, output="model"):
    return ["fit", *tables_in(folder), "--on", "id", "--output", str(folder / output)]


def evaluate(folder, synthetic):
    tables = tables_in(folder)
    return ["evaluate", "--real", *tables, "--on", "id", "--synthetic", str(synthetic)]


def code_of(arguments):
    """What a command returns, or ends with."""
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code


def interrupt(*_, **__):
    raise KeyboardInterrupt


# help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command, capsys):
    assert code_of([command, "--help"]) == 0
    assert "vflsynth" in capsys.readouterr().out
    (own,) = [a for a in command_parser()._subparsers._group_actions if command in a.choices]
    for action in own.choices[command]._actions:
        assert action.help, action.option_strings


def test_help_lists_the_commands_and_exit_codes(capsys):
    assert code_of(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^    {command} ", text, re.M) for command in COMMANDS)
    assert re.findall(r"^  (\d+)  +\w", text, re.M) == ["0", "1", "2", "3", "4", "5", "130"]


def test_help_of_evaluate_says_that_it_joins_real_rows(capsys):
    assert code_of(["evaluate", "--help"]) == 0
    assert "real rows of all parties side by side" in " ".join(capsys.readouterr().out.split())


# fit


def test_fit_saves_a_model_and_reports_the_matching_before_training(folder, cli):
    arguments = [*fit(folder, "loud"), *SMALL, "--epochs", "1"]
    arguments.remove("--quiet")
    result, messages = cli(arguments)
    assert "140 records of 2 parties, 4 columns" in result
    matched, training = messages.index("lab: 150 rows, 140 matched"), messages.index("training")
    assert matched < training
    assert VFLGANSynthesizer.load(folder / "loud").alignment_.n_matched == 140


def test_quiet_leaves_results_only(folder, cli):
    result, messages = cli([*fit(folder, "quiet"), *SMALL, "--epochs", "1"])
    assert result
    assert messages == ""


def test_fit_passes_options_on(folder):
    arguments = ["--epochs", "3", "--patience", "1", "--set", "learning_rate=1e-9",
                 "--set", "model_selection=best", "--set", "generator_average=0",
                 "--kind", "count=continuous"]  # fmt: skip
    assert main([*fit(folder, "options"), *SMALL, *arguments]) == 0
    synth = VFLGANSynthesizer.load(folder / "options")
    assert synth.parties_["lab"].transformer.kinds_["count"] == "continuous"
    assert synth.settings_["generator_hidden"] == [8]
    assert synth.settings_["learning_rate"] == 1e-9


@pytest.mark.slow
def test_interrupted_fit_keeps_the_model_and_resumes_to_the_same_bytes(folder):
    # --epochs is part of a run's identity, so the interruption has to be a real one.
    options, often = [*SMALL, "--epochs", "40"], ["--checkpoint-every", "1"]
    whole, part, checkpoint = (str(folder / name) for name in ("whole", "part", "checkpoint"))
    assert main([*fit(folder, whole), *options]) == 0

    command = [sys.executable, "-m", "vflsynth"]
    command += [*fit(folder, part), *options, *often, "--checkpoint", checkpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 600
        while not (folder / "checkpoint").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        messages = process.communicate()[1].decode()
    assert process.returncode == 130, messages
    assert "the model so far was kept" in messages
    assert "Traceback" not in messages
    assert 0 < len(VFLGANSynthesizer.load(part).history_) < 40

    assert main([*fit(folder, part), *options, "--resume", checkpoint]) == 0
    for party in ("lab", "clinic"):
        file = f"parties/{party}/sampler.safetensors"
        assert (folder / "part" / file).read_bytes() == (folder / "whole" / file).read_bytes()


INTERRUPTED = pytest.mark.filterwarnings("default:training was interrupted")


@contextmanager
def interrupted_at_once():
    flag = threading.Event()
    flag.set()
    yield flag


class InterruptAfterAnEpoch:
    def __init__(self, patience):
        pass

    def on_epoch_end(self, state):
        signal.raise_signal(signal.SIGINT)


def contents(root):
    return {file: file.is_file() and file.read_bytes() for file in sorted(root.rglob("*"))}


@INTERRUPTED
@pytest.mark.parametrize("there", [True, False])
def test_a_fit_interrupted_before_its_first_epoch_ended_saves_nothing(
    folder, tmp_path, monkeypatch, cli, there
):
    options = [*SMALL, "--epochs", "2"]
    if there:
        assert main([*fit(folder, tmp_path / "m"), *options]) == 0
    before = contents(tmp_path)
    monkeypatch.setattr("vflsynth.run.loop._interruptible", interrupted_at_once)
    result, messages = cli([*fit(folder, tmp_path / "m"), *options], 130)
    assert result == ""
    assert "before the first epoch ended; nothing was saved" in messages
    assert ("m is what it was" in messages) is there
    assert "so far was kept" not in messages
    assert contents(tmp_path) == before


@INTERRUPTED
def test_an_interrupted_fit_replaces_no_model(folder, tmp_path, monkeypatch, cli):
    command = [*fit(folder, tmp_path / "m"), *SMALL]
    assert main([*command, "--epochs", "1"]) == 0
    before = contents(tmp_path)
    monkeypatch.setattr("vflsynth.cli.fit.EarlyStopping", InterruptAfterAnEpoch)
    for suffix in ("-interrupted", "-interrupted-2"):
        result, messages = cli([*command, "--epochs", "9", "--patience", "1"], 130)
        assert f"model saved: {tmp_path / 'm'}{suffix}\n" in result
        assert "m is what it was" in messages
        kept = VFLGANSynthesizer.load(f"{tmp_path / 'm'}{suffix}")
        assert kept.interrupted_
        assert len(kept.history_) == 1
    assert before.items() <= contents(tmp_path).items()


@INTERRUPTED
def test_an_interrupted_fit_is_saved_where_it_belongs_if_nothing_is_there(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("vflsynth.cli.fit.EarlyStopping", InterruptAfterAnEpoch)
    (tmp_path / "m").mkdir()
    options = [*SMALL, "--epochs", "9", "--patience", "1"]
    assert main([*fit(folder, tmp_path / "m"), *options]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert len(VFLGANSynthesizer.load(tmp_path / "m").history_) == 1


class InterruptTwice(InterruptAfterAnEpoch):
    def on_epoch_end(self, state):
        if state.epoch == 2:
            raise KeyboardInterrupt


def test_a_fit_that_is_ended_at_once_points_to_its_checkpoint(folder, tmp_path, monkeypatch, cli):
    monkeypatch.setattr("vflsynth.cli.fit.EarlyStopping", InterruptTwice)
    command = [*fit(folder, tmp_path / "m"), *SMALL, "--epochs", "9", "--patience", "1"]
    checkpoint = tmp_path / "ck"
    said = cli([*command, "--checkpoint", str(checkpoint), "--checkpoint-every", "1"], 130).err
    assert f"no model was saved; --resume {checkpoint} continues from the checkpoint" in said
    assert [path.name for path in tmp_path.iterdir()] == ["ck"]
    assert "interrupted; nothing was saved" in cli(command, 130).err


@pytest.fixture
def no_training(monkeypatch):
    """Whatever is refused has to be refused before it."""

    def fail(*_, **__):
        raise AssertionError("long work was begun")

    monkeypatch.setattr("vflsynth.VFLGANSynthesizer.fit", fail)
    monkeypatch.setattr("vflsynth.cli.evaluate.report", fail)
    monkeypatch.setattr("vflsynth.methods.synthesizer.BaseSynthesizer.sample", fail)
    for scheme in ("assd", "asif"):
        monkeypatch.setitem(_SCHEMES, scheme, fail)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["-o", "m", "--checkpoint", "m"], 2, "--checkpoint m are the same"),
        (["-o", "ck/m", "--resume", "ck"], 2, "lie inside each other"),
        (["-o", "m", "--checkpoint", "ck/1", "--resume", "ck"], 2, "lie inside each other"),
        (["-o", "lab.csv/m"], 2, "lab.csv is not a folder"),
        (["-o", "m", "--checkpoint", "lab.csv/ck"], 2, "lab.csv is not a folder"),
        (["-o", "foreign"], 2, "foreign exists and is not a saved"),
        (["-o", "model/m"], 2, "a saved vflsynth model, which could not be opened"),
        (["-o", "m", "--set", 'column_kinds={"marker": "continuous"}'], 2, "use --kind"),
        (["-o", "m", "--set", "device=cpu"], 2, "use --device"),
        (["-o", "m", "--set", "verbose=1"], 2, "use --quiet"),
    ],
)
def test_fit_refuses_what_would_lose_a_training(folder, monkeypatch, cli, options, code, says):
    monkeypatch.chdir(folder)
    (folder / "foreign" / "lab").mkdir(parents=True, exist_ok=True)
    (folder / "foreign" / "lab" / "notes.txt").write_text("mine")
    before = contents(folder)
    tables = ["lab.csv", "clinic.parquet", "--on", "id", "--seed", "1", "--quiet"]
    (line,) = cli(["fit", *tables, *options], code).err.splitlines()
    assert says in line
    assert contents(folder) == before


@pytest.mark.usefixtures("no_training")
def test_a_folder_that_cannot_be_written_is_found_before_training(folder, monkeypatch, cli):
    def denied(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("vflsynth._artefacts.tempfile.mkdtemp", denied)
    said = cli([*fit(folder, "denied"), *SMALL], 2).err
    assert "denied cannot be written: [Errno 13] Permission denied" in said


def test_a_new_run_does_not_replace_the_checkpoint_of_another(folder, tmp_path, cli):
    command = [*fit(folder, tmp_path / "m"), *SMALL, "--epochs", "2"]
    new, old = ["--checkpoint", str(tmp_path / "new")], ["--checkpoint", str(tmp_path / "ck")]
    resume = ["--resume", str(tmp_path / "ck")]
    assert main([*command, *old]) == 0
    before = contents(tmp_path / "ck")
    assert f"--resume {tmp_path / 'ck'}, remove the checkpoint" in cli([*command, *old], 2).err
    shutil.copytree(tmp_path / "ck", tmp_path / "new")
    assert main([*command, *new, *resume]) == 2
    assert contents(tmp_path / "ck") == before
    assert main([*command, *old, *resume]) == 0


# methods and mechanisms

TINY = {
    "generator_hidden": [4], "first_part": [4], "shared_hidden": [4], "discriminator_hidden": [4],
    "latent_dim": 3, "epochs": 1, "batch_size": 16, "n_states": 2, "n_labels": 2,
    "n_latent_states": 2, "hidden": 4,
}  # fmt: skip
TINY_MECHANISM = {"n_features": 20, "n_records": 140, "n_bins": 4}


def combinations():
    """Every method and every mechanism is fitted from the command line; the other pairs if slow.

    `tests/contract/test_combinations.py` fits all of them without it.
    """
    seen = set()
    for method, kind in Members("synthesizers").items():
        for mode in modes(kind):
            pair = method, mode["privacy"]
            marks = pytest.mark.slow if seen >= {*pair} else ()
            seen |= {*pair}
            yield pytest.param(*pair, marks=marks)


@pytest.fixture(scope="module")
def parquet(folder):
    """The same tables with types that are fixed beforehand."""
    for name in ("lab.csv", "clinic.parquet"):
        write_table(read_table(folder / name), folder / f"fixed-{name.split('.')[0]}.parquet")
    return [f"{name}={folder / f'fixed-{name}.parquet'}" for name in ("lab", "clinic")]


def settings(method, mechanism):
    """Options for a fit of no time and no use."""
    known = inspect.signature(Members("synthesizers")[method]).parameters
    given = {name: value for name, value in TINY.items() if name in known}
    options = ["--method", method, "--seed", "3", "--quiet"]
    if mechanism is not None:
        own = inspect.signature(Members("mechanisms")[mechanism]).parameters
        values = {n: value for n, value in TINY_MECHANISM.items() if n in own}
        rest = "".join(f", {name}={value}" for name, value in values.items())
        options += ["--privacy", f"{mechanism}, noise_multiplier=2, delta=1e-3{rest}"]
        if "public_schema" in own:
            options += ["--bounds", "marker=-4,4", "--bounds", "count=0,50"]
            options += ["--bounds", "visit=2024-01-01,2024-12-31"]
            options += ["--categories", "diagnosis=ill,well"]
    return options + [f"--set={name}={json.dumps(value)}" for name, value in given.items()]


@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
@pytest.mark.parametrize(("method", "mechanism"), [*combinations()])
def test_every_method_and_mechanism_from_fit_to_sample(
    parquet, tmp_path, capsys, cli, method, mechanism
):
    model = str(tmp_path / "model")
    command = ["fit", *parquet, "--on", "id", "--output", model]
    assert main([*command, *settings(method, mechanism)]) == 0, capsys.readouterr().err
    assert f"vflsynth inspect {model}" in capsys.readouterr().out or mechanism is None
    text = cli(["inspect", model]).out
    assert text.startswith(method)
    assert ("\nPrivacy ledger: " in text) is (mechanism is not None)
    assert re.search(r"diagnosis +category +categorical +\d", text)
    drawn, messages = cli(["sample", model, "-n", "3", "--quiet"])
    assert drawn.startswith('"marker","count","visit","diagnosis"\n')
    assert messages == ""


def test_a_file_says_what_options_say(folder, parquet, tmp_path):
    options = ["--on", "id", *settings("VertiGANSynthesizer", None), "--kind", "count=continuous"]
    options += ["--set", "transformer.rare_threshold=0.1"]
    assert main(["fit", *parquet, *options, "--output", str(tmp_path / "by-options")]) == 0
    tables = ("fixed-clinic", "fixed-lab")
    for name in tables:
        shutil.copy(folder / f"{name}.parquet", tmp_path)
    values = {n: TINY[n] for n in ("generator_hidden", "discriminator_hidden", "latent_dim")}
    file = tmp_path / "run.toml"
    file.write_text(
        'method = "VertiGANSynthesizer"\non = "id"\n'
        '[parties]\nlab = "fixed-lab.parquet"\nclinic = "fixed-clinic.parquet"\n'
        '[column_kinds]\ncount = "continuous"\n'
        "[parameters]\nepochs = 1\nbatch_size = 16\nrandom_state = 3\n"
        + "".join(f"{name} = {value}\n" for name, value in values.items())
        + "[parameters.transformer]\nrare_threshold = 0.1\n"
    )
    output = ["--quiet", "--output"]
    assert main(["fit", "--config", str(file), *output, str(tmp_path / "by-file")]) == 0
    assert bytes_of(tmp_path / "by-file") == bytes_of(tmp_path / "by-options")
    changed = ["--epochs", "2", *output, str(tmp_path / "overridden")]
    assert main(["fit", "--config", str(file), *changed]) == 0
    synth = open_model(tmp_path / "overridden")
    assert (synth.epochs, synth.generator_hidden) == (2, (4,))


def test_a_job_file_is_the_same_fit_in_one_process(parquet, tmp_path, cli):
    options = ["--on", "id", *settings("VFLGANSynthesizer", None)]
    assert main(["fit", *parquet[::-1], *options, "--output", str(tmp_path / "by-options")]) == 0
    values = {n: v for n, v in TINY.items() if n in inspect.signature(VFLGANSynthesizer).parameters}
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "one"\nparties = ["clinic", "lab"]\non = "id"\nexchange_timeout = 9\n'
        "[parameters]\n" + "".join(f"{name} = {value}\n" for name, value in values.items())
    )
    assert Job.read(job).parties == ("clinic", "lab")
    command = ["fit", "--config", str(job), "--seed", "3", "--quiet"]
    assert main([*command, *parquet, "--output", str(tmp_path / "by-job")]) == 0
    assert bytes_of(tmp_path / "by-job") == bytes_of(tmp_path / "by-options")
    said = cli([*command, parquet[0], "--output", str(tmp_path / "m")], 2).err
    assert "parties are clinic, lab, and tables are given of lab" in said


def bytes_of(model):
    return {file.parent.name: file.read_bytes() for file in model.rglob("*.safetensors")}


def test_the_types_of_a_csv_file_are_not_public(folder, tmp_path, cli):
    options = ["--privacy", "dpsgd, n_records=60, epsilon=1, delta=1e-3", "--quiet"]
    (line,) = cli([*fit(folder, tmp_path / "m"), *options], 2).err.splitlines()
    assert "party 'lab': the fit is private and takes the types of columns as public" in line
    assert "store the table as parquet" in line


@pytest.mark.filterwarnings("default::vflsynth.exceptions.NoPrivacyWarning")
def test_a_delta_of_one_over_n_is_said_by_what_was_published(tmp_path, cli):
    x = np.arange(400) % 10
    pd.DataFrame({"x": x}).to_parquet(tmp_path / "lab.parquet")
    pd.DataFrame({"big": x > 4}).to_parquet(tmp_path / "clinic.parquet")
    tables = [str(tmp_path / f"{name}.parquet") for name in ("lab", "clinic")]
    options = ["--method", "DPLTSynthesizer", "--bounds", "x=0,10"]
    privacy = "latent_tree, epsilon=50, n_bins=4, delta="
    command = ["fit", *tables, *options, "--output", str(tmp_path / "m"), "--privacy"]
    assert "delta must be at most 0.01" in cli([*command, privacy + "0.5"], 2).err
    said = cli([*command, privacy + "0.01"]).err
    for party in ("lab", "clinic"):
        assert f"party '{party}': delta=0.01 is one over the number of records or more" in said
    assert "one over the number" not in cli([*command, privacy + "0.01, large_delta=true"]).err


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--privacy", "dpsgd, n_shards=3"], "command line: dpsgd has no 'n_shards', which is for"),
        (["--privacy", "dpsgd"], "epsilon must be given"),
        (["--privacy", "latent_tree, epsilon=1, delta=0.1"], "LatentTree is for DPLTSynthesizer"),
        (["--privacy", "dpsgd, epsilon"], "not of the form NAME=VALUE"),
        (["--set", "privacy.epsilon=-1"], "epsilon must be None or a number > 0, got -1"),
        (["--set", "epochs=3", "--set", "epochs.more=3"], "epochs was set to 3 before"),
        (["--method", "IndependentSynthesizer", "--epochs", "3"], "has no 'epochs'"),
        (["--method", "IndependentSynthesizer", "--device", "cpu"], "has no 'device'"),
        (["--method", "IndependentSynthesizer", "--patience", "3"], "--patience is for methods"),
        (["--bounds", "marker"], "not of the form COLUMN=LOW,HIGH"),
        (["--config", "absent.toml"], "absent.toml cannot be read"),
        (["--config", "wrong.toml"], "wrong.toml: unknown 'epochs'; there are method, on"),
    ],
)
def test_what_cannot_be_fitted_is_said_before(folder, monkeypatch, capsys, options, says):
    monkeypatch.chdir(folder)
    Path("wrong.toml").write_text("epochs = 3\n")
    command = ["fit", "fixed-lab.parquet", "--on", "id", "-o", "m", "-q"]
    assert code_of([*command, *options]) == (3 if "cannot be read" in says else 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_a_fit_needs_tables(cli):
    said = cli(["fit", "-o", "m", "-q"], 2).err
    assert "there are no tables; name them as PARTY=FILE, or in --config" in said


@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.OwnTableWarning")
@pytest.mark.parametrize("odd", ["unknown", "", "1"])
def test_one_value_of_a_private_csv_moves_no_other(odd, tmp_path):
    """True and false alone are truth values to a program that looks at all of them."""

    def counts(last):
        values = ["true", "false"] * 100
        values[-1] = last
        for party, column in {"lab": values, "clinic": range(200)}.items():
            lines = [f"{i},{value}" for i, value in enumerate(column)]
            (tmp_path / f"{party}.csv").write_text("\n".join([f"id,x_{party}", *lines]) + "\n")
        tables = [f"{party}={tmp_path / party}.csv" for party in ("lab", "clinic")]
        assert main(["fit", "--quiet", "--config", str(tmp_path / "run.toml"), *tables,
                     "--output", str(tmp_path / "model")]) == 0  # fmt: skip
        half = json.loads((tmp_path / "model/parties/lab/party.json").read_text())
        (column,) = half["transformer"]["transformers"]
        shutil.rmtree(tmp_path / "model")
        return np.array(column["state"]["counts"]) * 2.0 ** column["state"]["exponent"]

    (tmp_path / "run.toml").write_text(
        """
method = "MixtureSynthesizer"
on = "id"
[parameters]
n_components = 2
[parameters.privacy]
mechanism = "pairwise_tables"
noise_multiplier = 0.01
delta = 1e-6
[privacy.categories]
x_lab = ["true", "false"]
[privacy.bounds]
x_clinic = [0, 200]
[privacy.dtypes]
id = "int64"
x_lab = "str"
x_clinic = "Int64"
"""
    )
    moved = counts(odd) - counts("false")
    assert np.abs(moved).max() == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("dpsgd", {"mechanism": "dpsgd"}),
        ("dpsgd,epsilon=3 , delta=1e-6", {"mechanism": "dpsgd", "epsilon": 3, "delta": 1e-6}),
        ("epsilon=3", {"epsilon": 3}),
        ("m, widths=[1, 2], name=x", {"mechanism": "m", "widths": [1, 2], "name": "x"}),
    ],
)  # fmt: skip
def test_privacy_on_the_command_line(text, read):
    assert command_parser().parse_args(["fit", "-o", "m", "--privacy", text]).privacy == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("age=0,120", ("age", [0, 120])),
        ("when=2024-01-01,2024-12-31", ("when", ["2024-01-01", "2024-12-31"])),
        ("ill=true,false", ("ill", [True, False])),
        ('code=["1", "2"]', ("code", ["1", "2"])),
        ("a=b=1,2", ("a=b", [1, 2])),
    ],
)
def test_what_is_public_on_the_command_line(text, read):
    assert command_parser().parse_args(["fit", "-o", "m", "--bounds", text]).bounds == [read]


def test_tables_may_be_named_one_at_a_time():
    said = ["evaluate", "--real", "a=a.csv", "--real", "b=b.csv", "--synthetic", "s.csv"]
    assert [own.party for own in command_parser().parse_args(said).real] == ["a", "b"]


def test_methods_are_listed_with_what_goes_with_them(cli):
    groups = ("synthesizers", "classifiers")
    found = {name: modes(kind) for group in groups for name, kind in Members(group).items()}
    joins = found["WGANGPSynthesizer"]
    assert [mode["privacy"] for mode in joins] == [
        None, "dpsgd", "first_layer", "dpsgd_gan", "gs_wgan",
    ]  # fmt: skip
    assert not any(mode["across_processes"] for mode in joins)
    assert "it joins the parties' tables" in joins[0]["reason"]
    assert all(mode["across_processes"] for mode in found["VertiGANSynthesizer"])
    (split,) = found["MarvellClassifier"]
    assert (split["across_processes"], split["with"]) == (True, {"monitor": False})
    text = cli(["methods"]).out
    listed = {line.split(" (")[0] for line in text.splitlines() if line[:1].strip()}
    assert listed == {*found, *Members("mechanisms")}
    assert "across processes: yes, with monitor=false" in text
    assert "DPLTSynthesizer (synthesizer)\n    Differentially private latent tree" in text
    assert "    privacy: latent_tree\n    across processes: yes\n" in text
    assert "\n    methods: WGANGPSynthesizer\n" in text.partition("gs_wgan (mechanism)")[2]
    said = " ".join(text.split())
    assert "max_grad_norm=1.0, n_shards" in said


def test_letters_that_an_output_lacks_are_escaped(monkeypatch):
    """Windows writes files and pipes in an encoding without ε."""
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", narrow)
    assert main(["methods"]) == 0
    assert rb"\u03b5" in narrow.buffer.getvalue()


# sample


def test_sample_writes_the_dtypes_of_the_tables(folder):
    out = folder / "new" / "synthetic.parquet"
    assert main(["sample", str(folder / "model"), "-n", "30", "-o", str(out)]) == 0
    table = read_table(out)
    real = [read_table(folder / file).drop(columns="id") for file in ("lab.csv", "clinic.parquet")]
    assert table.dtypes.equals(pd.concat(real, axis=1).dtypes)
    assert len(table) == 30


def test_standard_output_is_what_a_file_would_hold(tmp_path, capfdbinary):
    values = {"text": ["", "NA", None, "x"] * 20, "switch": ["False", "false", None, "1"] * 20}
    frames = {name: pd.DataFrame({name: column}) for name, column in values.items()}
    frames["wait"] = pd.DataFrame({"wait": pd.to_timedelta([1, 2, 3, 4] * 20, "D")})
    IndependentSynthesizer(random_state=0).fit(frames).save(tmp_path / "model")
    command = ["sample", str(tmp_path / "model"), "-n", "40", "--quiet"]
    assert main([*command, "-o", str(tmp_path / "sample.csv")]) == 0
    capfdbinary.readouterr()
    assert main(command) == 0
    assert capfdbinary.readouterr().out == (tmp_path / "sample.csv").read_bytes()


def test_an_output_without_an_ending_is_a_folder_of_parts(folder, tmp_path, cli):
    out = tmp_path / "parts"
    command = ["sample", str(folder / "model"), "-n", "40", "--seed", "7", "--keys", "-o", str(out)]
    assert "40 rows in 1 files" in cli(command).out
    assert pd.read_parquet(out / "part-00000.parquet")["id"].is_unique
    assert main([*command, "--where", "count=1..50"]) == 2


def test_sample_says_that_it_replaces_a_file(folder, tmp_path, cli):
    command = ["sample", str(folder / "model"), "-n", "3", "-o", str(tmp_path / "sample.csv")]
    assert "replacing" not in cli(command).err
    assert f"replacing {tmp_path / 'sample.csv'}" in cli(command).err


def test_no_table_is_replaced_that_was_not_drawn(folder, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    for name in ("lab.csv", "clinic.parquet"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "other.parquet").write_text("no table")
    before = contents(tmp_path)
    for name in before:
        for command in (["sample", "-n", "3"], ["complete", str(folder / "lab.csv"), "--on", "id"]):
            first, *rest = command
            said = cli([first, str(folder / "model"), *rest, "-q", "-o", str(name)], 2).err
            assert f"{name} is there already" in said
    assert contents(tmp_path) == before
    (tmp_path / "empty.csv").touch()  # as mktemp makes
    assert main(["sample", str(folder / "model"), "-n", "3", "-o", "empty.csv"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "count=1..9", "--where", "count=5.."], "'count' has a condition already"),
        (["--where", "count=9..1"], "the range ends before it begins"),
        (["--where", "visit=01.02.2024.."], "have them, days as 2023-12-31"),
        (["--seed", "-1"], "--seed: '-1' is not a whole number from 0 up"),
        (["--jobs", "2", "-o", "sample.csv"], "--jobs is for folders"),
    ],
)
def test_sample_refuses(folder, tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    assert code_of(["sample", str(folder / "model"), "-n", "3", *options]) == 2
    assert message in capsys.readouterr().err


def test_same_seed_same_records(folder, cli):
    def sample(*options):
        return cli(["sample", str(folder / "model"), "-n", "5", *options]).out

    assert sample("--seed", "1") == sample("--seed", "1")
    assert sample("--seed", "1") != sample("--seed", "2")
    assert sample() == sample()


# complete


def test_complete_keeps_what_is_there_and_draws_the_rest(folder, cli):
    """From csv, with empty cells of all kinds: whole numbers, floats, dates, labels."""
    assert main(["sample", str(folder / "model"), "-n", "40", "--keys", "-q",
                 "-o", str(folder / "drawn.parquet")]) == 0  # fmt: skip
    drawn = read_table(folder / "drawn.parquet")
    known = drawn.drop(columns="marker").astype({"count": "Int64"})
    known.loc[::3, "count"] = pd.NA
    known.loc[1::4, "visit"] = pd.NaT
    known.loc[2::5, "diagnosis"] = None
    write_table(known, folder / "known.csv")
    command = ["complete", str(folder / "model"), str(folder / "known.csv"), "--on", "id"]
    said = cli([*command, "-o", str(folder / "completed.parquet")]).err
    assert "effective draws per record" in said
    completed = read_table(folder / "completed.parquet")
    assert list(completed) == ["id", "marker", "count", "visit", "diagnosis"]
    pd.testing.assert_series_equal(completed.dtypes, drawn.dtypes[list(completed)])
    assert not completed.isna().any(axis=None)
    given = known.notna()
    for name in known:
        kept = completed.loc[given[name], name] == drawn.loc[given[name], name]
        assert kept.all()


@pytest.mark.filterwarnings("default:text was read as numbers")
def test_complete_reads_numbers_as_in_any_table(folder, tmp_path, cli):
    """Semicolons and decimal commas; what is no number is named with its party."""
    command = ["complete", str(folder / "model"), str(tmp_path / "known.csv"), "-q"]
    (tmp_path / "known.csv").write_text("marker;diagnosis\n0,25;ill\n;well\n")
    result, messages = cli(command)
    assert result.splitlines()[1].startswith("0.25,")
    assert "text was read as numbers with a decimal comma: 'marker'" in messages
    (tmp_path / "known.csv").write_text("marker,diagnosis\nhigh,ill\n")
    assert "party 'lab', column 'marker'" in cli(command, 3).err


def test_complete_prints_the_same_records_for_the_same_seed(folder, tmp_path, cli):
    known = tmp_path / "known.parquet"
    write_table(pd.DataFrame({"diagnosis": ["ill", "well", None] * 5}), known)

    def complete(*options):
        return cli(["complete", str(folder / "model"), str(known), "-q", *options]).out

    assert complete().splitlines()[0] == '"marker","count","visit","diagnosis"'
    assert complete() == complete()
    assert complete("--seed", "1") == complete("--seed", "1") != complete("--seed", "2")


@pytest.mark.parametrize(
    ("known", "options", "code", "message"),
    [
        ({"height": [1.0]}, [], 2, "height"),
        ({"diagnosis": ["sad"]}, [], 3, "column 'diagnosis': 1 rows hold values"),
        ({"diagnosis": ["ill"]}, ["--on", "id"], 2, "has no such column"),
        ({"diagnosis": ["ill"]}, ["--on", "diagnosis"], 2, "the model draws this column"),
        ({"diagnosis": ["ill"]}, ["-o", "known.csv"], 2, "would be lost"),
        ({"height": [1.0]}, ["-o", "known.xlsx"], 2, "one of .csv, .csv.gz, .parquet."),
    ],
)
def test_complete_refuses(folder, tmp_path, monkeypatch, cli, known, options, code, message):
    monkeypatch.chdir(tmp_path)
    write_table(pd.DataFrame(known), tmp_path / "known.csv")
    assert message in cli(["complete", str(folder / "model"), "known.csv", *options], code).err


# evaluate


@pytest.fixture(scope="module")
def synthetic(folder):
    out = folder / "for-evaluation.parquet"
    assert main(["sample", str(folder / "model"), "-n", "140", "--keys", "-o", str(out)]) == 0
    return out


@pytest.mark.usefixtures("blank_pictures")
def test_evaluate_prints_and_writes_a_report(folder, synthetic, cli):
    page = folder / "reports" / "report.html"
    options = ["--target", "diagnosis", "--model", str(folder / "model"), "-o", str(page)]
    result = cli([*evaluate(folder, synthetic), *options]).out
    assert "Fréchet distance" in result
    assert "TSTR" in result
    assert "tested on 30 % of the real rows" in result
    html = page.read_text(encoding="utf-8")
    assert "Fréchet distance during training" in html
    assert "wasserstein_shared" in html


def test_evaluate_prints_the_scores_of_sdmetrics_beside_ours(folder, synthetic, cli):
    printed = cli([*evaluate(folder, synthetic), "--quiet", "--sdmetrics"]).out
    for score in ("SDMetrics quality score", "SDMetrics diagnostic score", "Fréchet"):
        assert score in printed


def test_evaluate_one_party_alone_as_json(folder, synthetic, cli):
    tables = ["--real", f"lab={folder / 'lab.csv'}", "--on", "id", "--synthetic", str(synthetic)]
    result, messages = cli(["evaluate", *tables, "--json"])
    results = json.loads(result)
    assert results["frechet_distance"]["value"] > 0
    assert "not compared, only in the synthetic table: id, visit, diagnosis" in messages


def test_evaluate_compares_the_columns_that_both_have(folder, synthetic, cli):
    """A contract may have left one out: the table is judged all the same."""
    path = folder / "without.csv"
    write_table(read_table(synthetic).drop(columns="marker"), path)
    tables = ["--real", f"lab={folder / 'lab.csv'}", "--on", "lab=id", "--synthetic", str(path)]
    result, messages = cli(["evaluate", *tables, "--json"])
    assert json.loads(result)["frechet_distance"]["value"] >= 0
    assert "not compared, only in the real table: marker" in messages
    said = cli(["evaluate", *tables, "--target", "marker"], 2).err
    assert "--target marker: the synthetic table has no such column" in said


def test_key_columns_of_several_names(folder, tmp_path, cli):
    clinic = read_table(folder / "clinic.parquet").rename(columns={"id": "No"})
    clinic["No"] = clinic["No"].str.lower()
    write_table(clinic, tmp_path / "clinic.parquet")
    arguments = ["inspect", f"lab={folder / 'lab.csv'}", f"clinic={tmp_path / 'clinic.parquet'}"]
    keys = ["--on", "lab=id", "--on", "clinic=No"]
    said = cli([*arguments, *keys, "--key-form", "casefold"]).out
    assert "140 records matched by key columns 'id' of lab, 'No' of clinic" in said
    assert "--key-form 'casefold'" in cli([*arguments, *keys], 3).err
    said = cli([*arguments, "--on", "id", "--on", "No"], 2).err
    assert "--on id No must be COLUMN, or PARTY=COLUMN" in said
    said = cli([*arguments, *keys, "--on", "lab=marker"], 2).err
    assert "--on lab=id clinic=No lab=marker must be" in said
    said = cli([*arguments, "--on", "lab=id"], 3).err
    assert "party 'clinic': on= (--on) names the key columns of 'lab'" in said


def test_evaluate_uses_held_out_records(folder, synthetic, tmp_path, cli):
    held_out = ["--holdout"]
    for file in ("lab.csv", "clinic.parquet"):
        other = read_table(folder / file)
        write_table(other.assign(id="other " + other["id"]), tmp_path / file)
        held_out.append(f"{Path(file).stem}={tmp_path / file}")
    results = json.loads(cli([*evaluate(folder, synthetic), *held_out, "--json", "-q"]).out)
    assert results["closer_to_training_share"]["value"] is not None


def test_records_that_were_trained_on_are_not_held_out(folder, synthetic, cli):
    held_out = ["--holdout", f"lab={folder / 'lab.csv'}", f"clinic={folder / 'clinic.parquet'}"]
    said = cli([*evaluate(folder, synthetic), *held_out], 3).err
    assert "140 of the 140 records of --holdout are in the tables of --real" in said


# inspect


def test_inspect_model(folder, cli):
    text = cli(["inspect", str(folder / "model")]).out
    assert "140 matched by key column 'id'; dropped: lab 10, clinic 0" in text
    assert re.search(r"diagnosis +category +categorical +2", text)
    assert re.search(r"DiscriminatorFeatures +lab +server +\d", text)

    assert re.findall("^party ([a-z]+): 2 columns, ", text, re.M) == ["lab", "clinic"]
    assert "training: 2 epochs in" in text
    assert "settings: batch_size" in text
    assert "contract=" not in text  # none was given


def test_inspect_half_knows_nothing_of_the_other(folder, cli):
    text = cli(["inspect", str(folder / "half")]).out
    assert "marker" in text
    assert "diagnosis" not in text


def test_inspect_tables_names_what_cannot_be_used(folder, tmp_path, cli):
    many = pd.DataFrame({"id": range(600), "text": [f"t{i}" for i in range(600)], "empty": np.nan})
    write_table(many, tmp_path / "many.csv")
    lines = cli(["inspect", str(tmp_path / "many.csv")]).out.splitlines()
    told = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert told["id"].split()[2:] == ["integer", "1", "600"]
    assert "600 of 600 values are different" in told["text"]
    assert "100%" in told["empty"]
    assert any(line.startswith("  Fix of 'empty': ") for line in lines)


def test_lists_are_named_and_left_out_of_what_is_proposed(tmp_path, cli):
    lists = tmp_path / "lists.parquet"
    table = pd.DataFrame({"id": range(4), "x": [[1], [2], [3], [4]], "y": [0.5, 1.5, 2.5, 3.5]})
    table.to_parquet(lists)
    contract = tmp_path / "contract.toml"
    out = cli(["inspect", str(lists), "--on", "id", "--write-contract", str(contract)]).out
    assert "holds values of type ndarray" in out
    assert "column 'x': holds values of type ndarray, and is left out" in contract.read_text()
    assert '[parties.lists.columns.x]\nrole = "free text"' in contract.read_text()


def test_a_condition_is_about_a_column_whatever_its_name():
    columns = {"h=1": Domain(np.dtype(float)), "x": Domain(np.dtype(float))}
    assert condition_of("h=1 = 2..3", columns) == ("h=1", Range(2.0, 3.0))
    assert condition_of("x=2", columns) == ("x", 2.0)
    for text in ("h=1", "h=2", "x", "="):
        with pytest.raises(ParameterError, match="must be COLUMN=VALUE"):
            condition_of(text, columns)


def test_a_corrected_contract_is_not_proposed_over(folder, tmp_path, cli):
    path = tmp_path / "c.toml"
    command = ["inspect", *tables_in(folder), "--on", "id", "--write-contract", str(path)]
    assert main(command) == main(command) == 0, "the same proposal may be written again"
    path.write_text(corrected := path.read_text() + "# seen")
    assert "give it as --contract" in cli(command, 2).err
    assert path.read_text() == corrected


def test_inspect_tables_shows_what_can_be_matched(folder, cli):
    text = cli(["inspect", *tables_in(folder), "--on", "id"]).out
    assert re.search(r"id +\S+ +key", text)
    assert "clinic: 140 rows, 140 matched" in text


# release


LENIENT = """
[release]
worst_column = 1
worst_pair = 2
mass_at_extremes = 1
real_extremes = 1e6
detection = 1
utility = 1
[release.waived]
unique_combinations = "a test"
membership = "a test"
singling_out = "a test"
linkability = "a test"
inference = "a test"
"""


def test_keys_in_the_index_are_released_if_they_are_fresh():
    """Where real tables have theirs in the index: 'sample --keys' puts fresh ones there."""
    real = {party: pd.DataFrame({party: [1.0, 2.0]}, index=[7, 8]) for party in "ab"}
    judged = pd.concat(real.values(), axis=1)

    def published(keys):
        drawn = judged.set_axis(pd.Index(keys).rename("id"))
        return _publishable(Judged(real, None, judged, drawn, {}, None, None, []))

    assert published([10, 11]).columns.tolist() == ["a", "b"]
    for keys in ([7, 10], ["07", "x"], range(7, 9)):
        with pytest.raises(ColumnMismatchError, match="keys of real records"):
            published(keys)
    drawn = judged.set_axis(pd.MultiIndex.from_product([[7, 8], [0]]))
    with pytest.raises(ColumnMismatchError, match=r"'index': .* cannot be judged"):
        _publishable(Judged(real, None, judged, drawn, {}, None, None, []))


@pytest.mark.parametrize(("name", "words"), [("p.parquet", "is a folder"), ("d.toml", "unknown")])
def test_what_cannot_be_handed_out_is_not_judged(name, words, tmp_path, capsys):
    (tmp_path / "p.parquet").mkdir()
    command = ["release", "model", "--real", "lab=lab.csv", "--synthetic", str(tmp_path / name)]
    assert main([*command, "-o", str(tmp_path / "out")]) in {2, 3}
    assert words in capsys.readouterr().err


def last_written(path):
    return path.stat().st_mtime_ns


def touched(path, *tables, **known):
    """Judge, while somebody writes."""
    dossier = release_gate(*tables, **known)
    path.touch()
    return dossier


@pytest.mark.usefixtures("blank_pictures")
def test_release_and_verify(folder, tmp_path, monkeypatch, cli):
    """A model of two epochs is bad: only a contract that asks for little lets it pass."""
    table, key = tmp_path / "synthetic.csv", tmp_path / "publisher.pem"
    assert main(["sample", str(folder / "model"), "-n", "150", "-o", str(table), "-q"]) == 0
    public = re.search(r"[0-9a-f]{64}", cli(["parties", "key", str(key)]).out)[0]
    (tmp_path / "lenient.toml").write_text(LENIENT)
    tables = tables_in(folder)
    command = ["release", str(folder / "model"), "--real", *tables, "--on", "id",
               "--synthetic", str(table), "--target", "diagnosis", "-q"]  # fmt: skip

    drawn = read_table(table)
    for column, values, words in (
        ("id", ["P007", *map(str, range(149))], "keys of real records"),
        ("id", ["p007 ", *map(str, range(149))], "keys of real records"),
        ("note", ["by hand"] * 150, "cannot be judged"),
    ):
        write_table(drawn.assign(**{column: pd.array(values, dtype="str")}), tmp_path / "more.csv")
        more = [str(tmp_path / "more.csv") if part == str(table) else part for part in command]
        assert words in cli([*more, "-o", str(tmp_path / "more")], 3).err

    for name, words in (("id", "keys of real records"), (None, "cannot be judged")):
        hidden = drawn.set_axis(pd.Index([f"P{i:03d}" for i in range(150)], name=name))
        write_table(hidden, tmp_path / "more.parquet")
        more = [str(tmp_path / "more.parquet") if part == str(table) else part for part in command]
        assert words in cli([*more, "-o", str(tmp_path / "more")], 3).err

    fewer = tmp_path / "fewer.csv"
    write_table(read_table(folder / "lab.csv").head(100), fewer)
    other = [f"lab={fewer}" if part == tables[0] else part for part in command]
    assert "the tables of --real have" in cli([*other, "-o", str(tmp_path / "other")], 2).err

    out = tmp_path / "out"
    with monkeypatch.context() as changing:
        changing.setattr("vflsynth.cli.release.release_gate", None)  # not reached
        told = cli([*command, "--key", str(table), "-o", str(out)], 3).err
        assert "cannot be read as a private key" in told

    for file in (table, folder / "lab.csv"):
        with monkeypatch.context() as changing:
            changing.setattr("vflsynth.cli.release.release_gate", partial(touched, file))
            for module in ("cli.release", "release.publishing"):
                changing.setattr(f"vflsynth.{module}.file_digest", last_written)
            told = cli([*command, "-o", str(tmp_path / "strict")], 3).err
            assert f"{file} changed while it was judged" in told
    assert cli([*command, "-o", str(tmp_path / "strict")], 1).out.startswith("Fails ")
    assert not (tmp_path / "strict" / "public").exists()

    lenient = ["--contract", str(tmp_path / "lenient.toml"), "--key", str(key), "-o", str(out)]
    said = cli([*command, *lenient]).out
    assert said.startswith("Passes with changed limits")
    assert "waived" in said
    said = cli(["verify", str(out / "public"), "--public", public]).out
    assert "150 rows" in said
    assert "changed after the fit: The limit of " in said
    assert f"table checked: {out / 'public' / 'synthetic.csv'}" in said
    assert hashlib.sha256(table.read_bytes()).hexdigest() in said
    for wrong in ("", public[:-1], str(key), str(tmp_path)):
        assert "is no public key" in cli(["verify", str(out / "public"), "--public", wrong], 2).err
    with (out / "public" / "synthetic.csv").open("a") as file:
        file.write("0,0,2024-01-01,ill\n")
    told = cli(["verify", str(out / "public"), "--public", public], 3).err
    assert "synthetic.csv was changed" in told


# demo


@pytest.mark.slow
def test_an_interrupted_demo_says_where_its_files_are(tmp_path, monkeypatch, cli):
    monkeypatch.setattr("vflsynth.cli.fit.run", interrupt)
    messages = cli(["demo", "--output", str(tmp_path)], 130).err
    assert f"interrupted; what was finished before is in {tmp_path}" in messages


# what goes wrong


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_a_command_is_imported_is_no_traceback(monkeypatch, cli, number):
    def interrupt(_):
        signal.raise_signal(number)
        time.sleep(600)  # a busy machine may answer it later

    monkeypatch.setattr(sys.modules["vflsynth.cli.main"], "import_module", interrupt)
    assert cli(["fit", "--help"], 130).err == "vflsynth: error: interrupted; nothing was done yet\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "COMMAND"),
        (["fit", "lab.csv"], 2, "--output"),
        (["fit", "lab.csv", "-o", "x", "--kind", "marker"], 2, "COLUMN=KIND"),
        (["fit", "lab.csv", "-o", "x", "--set", "epochs"], 2, "NAME=VALUE"),
        (["fit", "lab.csv", "-o", "x", "--epochs", "0"], 2, "--epochs: '0' is not"),
        (["fit", "lab.csv", "-o", "x", "--device", "abacus"], 2, "abacus"),
        (["fit", "lab.csv", "-o", "x", "--checkpoint", "y"], 2, "--seed"),
        (["fit", "absent.csv", "-o", "x"], 3, "absent.csv"),
        (["fit", "lab.csv", "lab=clinic.parquet", "-o", "x"], 3, "'lab'"),
        (["fit", "lab.csv", "clinic.parquet", "-o", "x"], 3, "column 'id'"),
        (["fit", "lab.csv", "clinic.parquet", "--on", "key", "-o", "x"], 3, "'key'"),
        (["fit", "lab.csv", "--on", "id", "-o", "x", "--seed", "1", "--resume", "y"], 3, "y"),
        (["fit", "lab.csv", "--on", "id", "-o", "x", "--account", "y"], 2, "privacy= (--privacy)"),
        (["sample", "model", "-n", "-1"], 2, "-1"),
        (["sample", "half", "-n", "1"], 2, "one party's half"),
        (["sample", "model", "-n", "1", "-o", "x.xls"], 2, "x.xls"),
        (["sample", "absent", "-n", "1"], 3, "absent"),
        (["sample", ".", "-n", "1"], 3, "manifest"),
        (["inspect", "absent"], 3, "absent"),
        (["inspect", "=absent.csv"], 2, "is not of the form PARTY=FILE"),
        (["inspect", "absent.csv"], 3, "absent.csv"),
        (["inspect", "model", "--on", "id"], 2, "--on"),
        (["complete", "model", "lab.csv", "--draws", "0"], 2, "--draws: '0' is not a whole number"),
        (["fit", "lab=lab.csv", "-o", "m", "--patience", "0"], 2, "--patience: '0' is not"),
        (["fit", "lab=lab.csv", "-o", "m", "--checkpoint-every", "-1"], 2, "--checkpoint-every: "),
        (["fit", "lab=lab.csv", "-o", "m", "--max-records", "0"], 2, "--max-records: '0' is not"),
        (["parties", "console", "s", "--port", "99999"], 2, "'99999' is not a whole"),
        (["parties", "project", "j", "--host", "h", "--port", "-1", "-o", "p"], 2, "0 to 65535"),
        (["evaluate", "--real", "lab.csv", "--synthetic", "absent.csv"], 3, "absent.csv"),
        (["evaluate", "--real", "lab.csv", "--synthetic", "lab.csv", "--model", "model"], 2,
         "--output"),
    ],
)  # fmt: skip
def test_failures_are_one_line_and_a_code(folder, monkeypatch, capsys, arguments, code, says):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    assert code_of([*arguments, "--quiet"] if arguments else []) == code
    result, messages = capsys.readouterr()
    assert result == ""
    (line,) = messages.splitlines()
    assert line.startswith("vflsynth: error: ")
    assert says in line
    assert sorted(folder.rglob("*")) == before


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["evaluate", "-o", "lab.csv/r.html"], 2, "lab.csv is not a folder"),
        (["evaluate", "-o", "half"], 2, "is a folder"),
        (["evaluate", "-o", "r.pdf"], 2, "r.pdf is to be HTML"),
        (["audit", "--json", "-o", "r.json"], 2, "r.json is to be HTML"),
        (["evaluate", "-o", "lab.csv"], 2, "is read, too, and would be lost"),
        (["evaluate", "-o", "model/r.html"], 2, "could not be opened any more"),
        (["audit", "-o", "lab.csv/r.html"], 2, "lab.csv is not a folder"),
        (["audit", "-o", "clinic.parquet"], 2, "is read, too, and would be lost"),
        (["audit", "--cache", "lab.csv"], 2, "lab.csv is not a folder"),
        (["audit", "--cache", "model"], 2, "could not be opened any more"),
        (["audit", "--jobs", "0"], 2, "'0' is not a number of processes"),
        (["audit", "--jobs", "two"], 2, "'two' is not a number of processes"),
        (["audit", "--models", "9"], 2, "--models: '9' is not a whole number from 10 up"),
        (["evaluate", "--categorical", "agee"], 3, "column 'agee': named in categorical= (--cat"),
        (["sample", "-o", "lab.csv/s.csv"], 2, "lab.csv is not a folder"),
        (["sample", "-o", "s", "--jobs", "0"], 2, "'0' is not a number of processes"),
        (["sample", "-o", "s.xlsx"], 2, "one of .csv, .csv.gz, .parquet."),
        (["sample", "-o", "model/s.csv"], 2, "could not be opened any more"),
    ],
)
def test_wrong_options_are_found_before_long_work(
    folder, monkeypatch, capsys, arguments, code, says
):
    monkeypatch.chdir(folder)
    real = ["--real", "lab.csv", "clinic.parquet", "--on", "id"]
    rest = {
        "evaluate": [*real, "--synthetic", "lab.csv"],
        "audit": ["model", *real],
        "sample": ["model", "-n", "5"],
    }
    before = contents(folder)
    command, *options = arguments
    assert code_of([command, *rest[command], *options, "--quiet"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert contents(folder) == before


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("real", "says"),
    [
        (["lab=lab.csv"], "party 'clinic': the model was fitted on a table of this party"),
        (["lab.csv", "clinic.parquet", "other=lab.csv"], "party 'other': the model has no such"),
        (["lab=wide.csv", "clinic.parquet"], "party 'lab': the table has columns that the model "
         "has not: ['extra']"),
        (["lab=narrow.csv", "clinic.parquet"], "party 'lab': the table lacks columns of the "
         "model: ['marker']"),
    ],
)  # fmt: skip
def test_audit_wants_the_tables_of_the_model(folder, tmp_path, monkeypatch, cli, real, says):
    lab = read_table(folder / "lab.csv")
    write_table(lab.assign(extra=1), tmp_path / "wide.csv")
    write_table(lab.drop(columns="marker"), tmp_path / "narrow.csv")
    write_table(lab, tmp_path / "lab.csv")
    write_table(read_table(folder / "clinic.parquet"), tmp_path / "clinic.parquet")
    monkeypatch.chdir(tmp_path)
    command = ["audit", str(folder / "model"), "--real", *real, "--on", "id", "-q"]
    (line,) = cli(command, 3).err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    ("cache", "says"),
    [([], "nothing was saved"), (["--cache", "seen"], "seen has what was observed of the models")],
)
def test_an_interrupted_audit_says_what_is_left(folder, monkeypatch, cli, cache, says):
    monkeypatch.setitem(_SCHEMES, "assd", interrupt)
    command = ["audit", str(folder / "model"), "--real", *tables_in(folder), "--on", "id", *cache]
    messages = cli(command, 130).err
    assert f"interrupted; {says}" in messages
    assert ("nothing was saved" in messages) is (not cache)


def test_a_private_model_s_epsilon_covers_no_measurement(tmp_path, monkeypatch, cli):
    x = np.arange(400) % 10
    pd.DataFrame({"x": x}).to_parquet(tmp_path / "lab.parquet")
    pd.DataFrame({"big": x > 4}).to_parquet(tmp_path / "clinic.parquet")
    tables, model = [str(tmp_path / f"{n}.parquet") for n in ("lab", "clinic")], tmp_path / "m"
    command = ["fit", *tables, "--method", "DPLTSynthesizer", "--bounds", "x=0,10", "-q"]
    privacy = "latent_tree, epsilon=50, n_bins=4, delta=1e-4"
    assert main([*command, "--privacy", privacy, "-o", str(model)]) == 0
    monkeypatch.setitem(_SCHEMES, "assd", interrupt)
    monkeypatch.setattr("vflsynth.cli.evaluate.report", interrupt)
    report = ["--synthetic", tables[0], "--model", str(model), "-o", str(tmp_path / "page.html")]
    for measuring in (["audit", str(model)], ["evaluate", *report]):
        assert "ε pays for handing none of it out" in cli([*measuring, "--real", *tables], 130).err


def test_truncated_model_is_an_artefact_error(folder, tmp_path, cli):
    assert main([*fit(folder, str(tmp_path / "model")), *SMALL, "--epochs", "1"]) == 0
    file = tmp_path / "model" / "parties" / "lab" / "sampler.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert "sampler.safetensors" in cli(["sample", str(tmp_path / "model"), "-n", "1", "-q"], 3).err


def test_debug_shows_where_an_error_comes_from(folder, cli):
    assert "Traceback" in cli(["inspect", str(folder / "absent.csv"), "--debug"], 3).err


def test_mistakes_of_one_file_are_told_apart(tmp_path, cli):
    (tmp_path / "job.toml").write_text('nmae = "study"\nepocs = 2\n')
    command = ["fit", "--config", str(tmp_path / "job.toml"), "-o", str(tmp_path / "model")]
    (line,) = cli(command, 2).err.splitlines()
    assert "; " + str(tmp_path / "job.toml") + ": unknown 'epocs'" in line


def test_unexpected_errors_are_one_line_too(folder, cli, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("vflsynth.cli.inspect.describe_model", fail)
    (line,) = cli(["inspect", str(folder / "model")], 5).err.splitlines()
    assert line.startswith("vflsynth: error: unexpected ZeroDivisionError: two lines")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["simulate", "job.toml"], "checkpoints stay; the same command goes on"),
        (["submit", "job.toml", "--admin", "kit"], "abort job.toml --admin kit"),
        (["logs", "kit"], "nothing was saved"),
    ],
)
def test_ctrl_c_does_not_hide_what_a_job_has_left(cli, monkeypatch, arguments, says):
    action = ACTIONS[arguments[0]]
    monkeypatch.setitem(ACTIONS, arguments[0], action._replace(do=interrupt))
    assert says in cli(["parties", *arguments], 130).err


@pytest.mark.parametrize("on_ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
def test_termination_does_what_ctrl_c_does(folder, capsys, monkeypatch, on_ctrl_c):
    """Also where Ctrl-C is ignored, as in whatever a script starts with ``&``."""
    before = signal.getsignal(signal.SIGTERM)

    def terminated(*_, **__):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(600)  # a busy machine may answer it later

    monkeypatch.setattr("vflsynth.cli.inspect.describe_model", terminated)
    ctrl_c = signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        assert main(["inspect", str(folder / "model")]) == 130
    finally:
        signal.signal(signal.SIGINT, ctrl_c)
    assert "nothing was saved" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_reader_that_goes_away_is_no_error(folder):
    command = [sys.executable, "-m", "vflsynth"]
    command += ["sample", str(folder / "model"), "-n", "50000"]  # more than a pipe holds
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        messages = process.stderr.read().decode()
    assert process.returncode == 141
    assert messages == ""


@pytest.mark.parametrize(
    ("text", "party", "path"),
    [
        ("lab=lab.csv", "lab", "lab.csv"),
        ("lab.csv.gz", "lab", "lab.csv.gz"),
        ("lab=a=b.csv", "lab", "a=b.csv"),
        ("run/date=today/lab.csv", "lab", "run/date=today/lab.csv"),
        ("North lab=north/lab.csv", "North lab", "north/lab.csv"),
    ],
)
def test_party_files(text, party, path):
    assert PartyFile.parse(text) == PartyFile(party, Path(path))


# parties that draw one after the other


@pytest.mark.slow
def test_an_autoregressive_model_is_fitted_and_resumed(folder, tmp_path, cli, monkeypatch):
    method = ["--method", "AutoregressiveSynthesizer"]
    method += ["--set", "hidden=8", "--set", "n_features=16"]
    options = [*method, "--epochs", "4", "--seed", "0", "--quiet", "--transcript"]
    command = [*fit(folder, tmp_path / "m"), *options]
    run = str(tmp_path / "run")
    assert main([*command, "--checkpoint", run, "--checkpoint-every", "2"]) == 0
    assert main([*fit(folder, tmp_path / "again"), *options, "--resume", run]) == 0
    assert "bits_per_record = 8" in cli(["inspect", str(tmp_path / "m")]).out
    monkeypatch.chdir(tmp_path)
    for model in ("m", "again"):
        assert main(["sample", model, "-n", "9", "--seed", "5", "-o", f"{model}.parquet"]) == 0
    whole = pd.read_parquet("m.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet("again.parquet"), whole)


def test_the_doctor_names_what_is_missing_and_what_for(cli, monkeypatch):
    from vflsynth.cli import doctor

    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda n: None if n == "matplotlib" else real(n))
    out = cli(["doctor"]).out
    assert re.search(r"^  torch +\d", out, re.M)
    assert "report: missing matplotlib; needed for reports" in out
    assert "cpu: " in out


def test_the_doctor_knows_every_extra_for_users():
    import tomllib

    from vflsynth.cli.doctor import EXTRAS

    content = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    ours = set(content["project"]["optional-dependencies"])
    assert set(EXTRAS) <= ours
    assert ours - set(EXTRAS) <= {"dev", "docs", "release"}


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["smaple"], "sample"),
        (["verify", "x", "--public", "y", "--pubic", "z"], "--public"),
        (["audit", "--scheme", "asssd"], "assd"),
    ],
)
def test_wrong_words_are_answered_with_near_ones(arguments, meant, capsys):
    assert code_of(arguments) == 2
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


def test_wrong_columns_are_answered_with_near_ones(folder, tmp_path, cli):
    tables = tables_in(folder)
    said = cli(["fit", *tables, "--on", "ID", "-o", str(tmp_path / "m"), "-q"], 3).err
    assert "column is absent (did you mean 'id'?); the" in said
    (tmp_path / "c.toml").write_text("[parties.lab.columns.markr]\nrole = 'sensitive'\n")
    contract = ["--contract", str(tmp_path / "c.toml")]
    said = cli(["fit", *tables, "--on", "id", *contract, "-o", str(tmp_path / "m"), "-q"], 3).err
    assert "did you mean 'marker'?" in said


def test_shells_complete_every_command(cli):
    script = cli(["completion", "bash"]).out
    for word in ("publish", "--method", "--audit-minutes", "doctor"):
        assert word in script
