"""A package that is installed beside vflsynth adds classes of its own, found by name alone."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

import vflsynth
from tests.extension.fresh import run_python

PACKAGE = Path(__file__).parent / "package"
ROOT = Path(vflsynth.__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the package as pip would leave it there."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE / "vflsynth_example", site / "vflsynth_example")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    about = site / f"vflsynth_example-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return site


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Where models are saved."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def python(site, models):
    """Run Python where the package is installed, or where it is not; return what it prints."""

    def run(*arguments, installed=True, code=0):
        paths = [str(site), str(ROOT)] if installed else [str(ROOT)]
        found, said = run_python(arguments, paths, models)
        assert found == code, said
        return said

    return run


@pytest.mark.slow
def test_the_package_obeys_all_laws(python):
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "error"]
    said = python("-m", "pytest", *options, str(PACKAGE / "tests"))
    assert " passed" in said
    assert "failed" not in said
    assert "skipped" not in said


COMMAND = ("-c", "import sys; from vflsynth.cli import main; sys.exit(main())")
PRIVATE = "rated_dpsgd, noise_multiplier=3, delta=1e-3, n_records=60, discriminator_rate=0.01"
FIT = f"""
import sys
import numpy as np
from vflsynth import registry
from vflsynth.cli import main
from vflsynth.datasets import make_party_frames
from vflsynth.splitdefense import SplitNNClassifier

frames = make_party_frames(60, 2, random_state=0)
for name, table in frames.items():
    table[['record_id', 'measure_' + name[-1]]].to_parquet(name + '.parquet')
fit = ["fit", "party_1=party_1.parquet", "party_2=party_2.parquet", "--on", "record_id"]
fit += ["--method", "RatedSynthesizer", "--privacy", {PRIVATE!r}, "--epochs", "1"]
fit += ["--bounds", "measure_1=-9,9", "--bounds", "measure_2=-9,9", "-o", "rated", "--quiet"]
for command in (["methods"], fit):
    if code := main(command):
        sys.exit(code)
    print("-- done", flush=True)

frames["party_1"]["letter"] = frames["party_1"]["group_1"].str[0]
kind = registry.find("ComonotoneSynthesizer", "synthesizers")
kind(column_kinds={{"letter": "letter"}}, random_state=0).fit(frames, on="record_id").save("model")

X = np.random.default_rng(0).normal(size=(80, 3))
signs = registry.find("Signs", "protections")(scale=0.5)
classifier = SplitNNClassifier(protection=signs, epochs=2, random_state=0).fit(X, X[:, 0] > 0)
classifier.save("classifier")
"""
USE = """
import sys
import pandas as pd
from vflsynth.cli import main
from vflsynth.evaluation import evaluate
from vflsynth.splitdefense import SplitNNClassifier

for model in ("model", "rated"):
    if code := main(["sample", model, "-n", "5", "--quiet"]):
        sys.exit(code)
    print("-- done", flush=True)
print(SplitNNClassifier.load("classifier").protection)
print("-- done", flush=True)
table = pd.DataFrame({"a": [1.0, 2.0, None, 4.0]})
print(evaluate(table, table)["largest_gap"].value)
"""


def parts(said):
    return said.split("-- done\n")


@pytest.fixture(scope="module")
def fitted(python):
    """Train and save with classes that are found by name; what a command line says of them."""
    return parts(python("-c", FIT))


@pytest.fixture(scope="module")
def used(python, fitted):
    """What another process makes of what was saved: two tables, a protection and a metric."""
    return parts(python("-c", USE))


@pytest.mark.slow
@pytest.mark.usefixtures("fitted")
def test_models_name_the_package_s_classes_in_full(models):
    content = json.loads((models / "model" / "synthesizer.json").read_text())
    assert content["class"] == "vflsynth_example:ComonotoneSynthesizer"
    content = json.loads((models / "classifier" / "classifier.json").read_text())
    assert content["parameters"]["protection"]["object"] == "vflsynth_example:Signs"


def test_another_process_samples_from_the_command_line(used):
    header, *rows = used[0].splitlines()
    assert '"letter"' in header.split(",")
    assert len(rows) == 5


def test_another_process_loads_a_protection_by_its_name(used):
    assert "Signs(scale=0.5)" in used[2]


@pytest.mark.usefixtures("fitted")
def test_without_the_package_the_error_says_what_to_install(python):
    said = python(*COMMAND, "sample", "model", "-n", "5", "--quiet", installed=False, code=3)
    assert "no class 'vflsynth_example:ComonotoneSynthesizer' is registered" in said
    assert "install the package that has it" in said


def test_the_command_line_lists_and_fits_them(fitted, used, models):
    assert "RatedSynthesizer (synthesizer)" in fitted[0]
    assert "rated_dpsgd (mechanism)" in fitted[0]
    content = json.loads((models / "rated" / "synthesizer.json").read_text())
    assert content["parameters"]["privacy"]["object"] == "vflsynth_example:RatedDPSGD"
    assert len(used[1].splitlines()) == 6


ACROSS = """
import sys
from pathlib import Path
from tests.unit.federation.trial import Trial
from vflsynth.columns import PublicSchema
from vflsynth.datasets import make_party_frames
from vflsynth.federation.job import Job
from vflsynth.federation.site import Budget

frames = make_party_frames(60, 2, random_state=0)
frames = {name: table[["record_id", "measure_" + name[-1]]] for name, table in frames.items()}
privacy = {"mechanism": "rated_dpsgd", "noise_multiplier": 3.0, "delta": 1e-3, "n_records": 40}
for number, (method, parameters) in enumerate(
    [
        ("ComonotoneSynthesizer", {}),
        ("RatedSynthesizer", {"epochs": 1, "batch_size": 8, "privacy": privacy}),
    ]
):
    job = Job.from_dict(
        {
            "name": "trial",
            "parties": sorted(frames),
            "method": method,
            "on": "record_id",
            "parameters": parameters,
        }
    )
    folder = Path(f"across{number}")
    folder.mkdir()
    trial = Trial(folder.resolve(), frames, job)
    if parameters:
        schema = PublicSchema({"measure_1": (-9, 9), "measure_2": (-9, 9)}, dtypes="given")
        for name in frames:
            trial.change(name, budget=Budget(1e3, 1e-3), schema=schema)
    print(method, set(trial.run().outcome.values()))
"""


def test_they_run_across_processes(python):
    pytest.importorskip("nacl.bindings", reason="needs the extra 'flare'")
    assert python("-c", ACROSS).splitlines() == [
        "ComonotoneSynthesizer {None}",
        "RatedSynthesizer {None}",
    ]


def test_a_metric_is_in_every_evaluation(used):
    assert used[3].splitlines()[-1] == "0.0"
