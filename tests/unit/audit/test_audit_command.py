"""``vflsynth audit`` from files."""

from __future__ import annotations

import json

import pytest
from sklearn.base import clone

from tests.unit.audit.conftest import make_tiny
from vflsynth import DPLTSynthesizer, LatentTree, TableTransformer, VFLGANSynthesizer
from vflsynth.adversary import Naive, RandomForest, RegularisedLogistic
from vflsynth.audit import audit_intermediate_features, audit_synthetic_data, playing
from vflsynth.cli import main
from vflsynth.cli.records import open_model
from vflsynth.datasets import make_party_frames
from vflsynth.frames import write_table
from vflsynth.privacy import PublicSchema


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a saved model and its tables."""
    folder = tmp_path_factory.mktemp("saved")
    frames = make_party_frames(40, 2, random_state=0)
    for name, frame in frames.items():
        write_table(frame, folder / f"{name}.parquet")
    model = make_tiny().set_params(
        random_state=0,
        verbose=0,
        column_kinds={"count_1": "categorical"},
        transformer=TableTransformer(rare_threshold=0.0, rare_records=0),  # of 40 records
    )
    model.fit(frames, "record_id").save(folder / "model")
    return folder


@pytest.fixture
def command(saved, small_frames):
    """The start of the command."""
    tables = [f"{name}={saved / name}.parquet" for name in small_frames]
    return [
        "audit", str(saved / "model"), "--real", *tables, "--on", "record_id", "--models", "10",
    ]  # fmt: skip


@pytest.fixture
def small_forest(monkeypatch):
    """A fiftieth of the paper's trees, where what matters is that the audit is run at all."""
    few = (RandomForest(n_trees=20), RegularisedLogistic(inverse_penalties=(1.0,), n_folds=3))
    monkeypatch.setattr(playing, "default_adversaries", lambda: few)


@pytest.fixture
def one_statistic(monkeypatch):
    """One statistic in place of nine, likewise."""
    for audit in (audit_synthetic_data, audit_intermediate_features):
        monkeypatch.setitem(audit.__kwdefaults__, "statistics", (Naive(),))


def test_it_audits_a_model_like_the_saved_one(saved):
    again = clone(open_model(saved / "model"))
    assert isinstance(again, VFLGANSynthesizer)
    assert not hasattr(again, "parties_")
    assert again.column_kinds == {"count_1": "categorical"}
    assert again.transformer.rare_threshold == 0.0
    assert list(again.first_part) == [4, 3]
    assert again.epochs == 1


@pytest.mark.usefixtures("small_forest", "one_statistic")
def test_it_prints_a_conclusion_and_writes_a_page(command, small_frames, tmp_path, cli):
    key = str(small_frames["party_1"]["record_id"].iloc[3])
    page = tmp_path / "new" / "audit.html"
    options = ["--target", key, "--quiet", "-o", str(page)]
    options += ["--sensitive", "city_1", "--quasi-identifiers", "count_1", "--minutes", "5"]
    result, messages = cli([*command, *options])
    assert f"record {key}" in result
    assert "outlying" not in result, "no other record is asked about"
    assert messages == ""
    html = page.read_text(encoding="utf-8")
    assert "Who the attacker is" in html
    for question in ("Singling out", "Linkability", "Attribute inference of &#39;city_1&#39;"):
        assert question in html
        assert f"{question.partition(' of ')[0]}" in result


@pytest.mark.slow
@pytest.mark.usefixtures("small_forest", "one_statistic")
def test_a_model_without_transformer_and_column_kinds(number_frames, tmp_path, cli):
    schema = PublicSchema(dtypes="given", bounds=dict.fromkeys("abcd", (-4.0, 4.0)))
    privacy = LatentTree(epsilon=9.0, delta=1e-3, public_schema=schema, n_bins=4)
    frames = {name: frame.rename_axis("id").reset_index() for name, frame in number_frames.items()}
    for name, frame in frames.items():
        write_table(frame, tmp_path / f"{name}.parquet")
    model = DPLTSynthesizer(privacy=privacy, n_states=4, n_latent_states=2, random_state=0)
    model.fit(frames, "id").save(tmp_path / "model")
    tables = [f"{name}={tmp_path / name}.parquet" for name in frames]
    target = ["--on", "id", "--target", "3", "--models", "10", "--quiet", "--json"]
    content = json.loads(cli(["audit", str(tmp_path / "model"), "--real", *tables, *target]).out)
    assert content["scheme"] == "ASSD"
    assert len(content["targets"]) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("small_forest", "one_statistic")
def test_intermediate_features_as_json(command, cli):
    options = ["--scheme", "asif", "--target", "farthest", "--json", "--quiet"]
    content = json.loads(cli([*command, *options]).out)
    assert content["scheme"] == "ASIF"
    assert len(content["targets"]) == 2


@pytest.mark.usefixtures("small_forest", "one_statistic")
def test_wrong_usage_and_unknown_records_have_their_exit_codes(command, cli):
    assert main([*command, "--target", "nobody", "--quiet"]) == 3
    assert main([*command, "--scheme", "asif", "--sensitive", "city_1", "--quiet"]) == 2
    assert "fewer targets" in cli([*command, "--minutes", "1e-5", "--quiet"], 2).err
