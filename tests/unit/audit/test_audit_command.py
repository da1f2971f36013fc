"""``vflsynth audit`` from files."""

from __future__ import annotations

import json

import pytest
from sklearn.base import clone

from vflsynth import DPLTSynthesizer, TableTransformer, VFLGANSynthesizer
from vflsynth.audit import RandomForest, RegularisedLogistic, playing
from vflsynth.cli import main
from vflsynth.cli.models import open_model
from vflsynth.frames import write_table
from vflsynth.mechanisms import LatentTree
from vflsynth.privacy import PublicSchema


@pytest.fixture
def command(small_frames, tiny, tmp_path):
    """A saved model, its tables, and the start of the command."""
    for name, frame in small_frames.items():
        write_table(frame, tmp_path / f"{name}.parquet")
    model = tiny.set_params(
        random_state=0,
        verbose=0,
        column_kinds={"count_1": "categorical"},
        transformer=TableTransformer(rare_threshold=0.0, rare_records=0),  # of 40 records
    ).fit(small_frames, "record_id")
    model.save(tmp_path / "model")
    tables = [f"{name}={tmp_path / name}.parquet" for name in small_frames]
    return [
        "audit", str(tmp_path / "model"), "--real", *tables, "--on", "record_id", "--models", "10",
    ]  # fmt: skip


@pytest.fixture
def small_forest(monkeypatch):
    """A fiftieth of the paper's trees, where what matters is that the audit is run at all."""
    few = (RandomForest(n_trees=20), RegularisedLogistic())
    monkeypatch.setattr(playing, "default_adversaries", lambda: few)


def test_it_audits_a_model_like_the_saved_one(command, small_frames, tiny, tmp_path):
    again = clone(open_model(tmp_path / "model"))
    assert isinstance(again, VFLGANSynthesizer)
    assert not hasattr(again, "parties_")
    assert again.column_kinds == {"count_1": "categorical"}
    assert again.transformer.rare_threshold == 0.0
    assert list(again.first_part) == [4, 3]
    assert again.epochs == 1


@pytest.mark.usefixtures("small_forest")
def test_it_prints_a_conclusion_and_writes_a_page(command, small_frames, tmp_path, capsys):
    key = str(small_frames["party_1"]["record_id"].iloc[3])
    page = tmp_path / "new" / "audit.html"
    options = ["--target", key, "--quiet", "-o", str(page), "--claim", "9", "1e-5"]
    options += ["--sensitive", "city_1", "--quasi-identifiers", "count_1", "--minutes", "5"]
    assert main([*command, *options]) == 0
    result, messages = capsys.readouterr()
    assert f"record {key}" in result
    assert "ε = 9 at δ = 1e-05" in result
    assert messages == ""
    html = page.read_text(encoding="utf-8")
    assert "Who the attacker is" in html
    for question in ("Singling out", "Linkability", "Attribute inference of &#39;city_1&#39;"):
        assert question in html
        assert f"{question.partition(' of ')[0]}" in result


@pytest.mark.usefixtures("small_forest")
def test_a_model_without_transformer_and_column_kinds(number_frames, tmp_path, capsys):
    schema = PublicSchema(dtypes="given", bounds=dict.fromkeys("abcd", (-4.0, 4.0)))
    privacy = LatentTree(epsilon=9.0, delta=1e-3, public_schema=schema, n_bins=4)
    frames = {name: frame.rename_axis("id").reset_index() for name, frame in number_frames.items()}
    for name, frame in frames.items():
        write_table(frame, tmp_path / f"{name}.parquet")
    model = DPLTSynthesizer(privacy=privacy, n_states=4, n_latent_states=2, random_state=0)
    model.fit(frames, "id").save(tmp_path / "model")
    tables = [f"{name}={tmp_path / name}.parquet" for name in frames]
    target = ["--on", "id", "--target", "3", "--models", "10", "--quiet", "--json"]
    assert main(["audit", str(tmp_path / "model"), "--real", *tables, *target]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["scheme"] == "ASSD"
    assert len(content["targets"]) == 1


@pytest.mark.usefixtures("small_forest")
def test_what_options_say_is_audited_as_the_model_fitted_with_them(command, tmp_path, capsys):
    rest = ["--target", "farthest", "--quiet", "--json"]
    synth = open_model(tmp_path / "model")
    settings = {
        name: json.dumps(value, default=list)
        for name, value in synth.get_params(deep=False).items()
        if name not in ("random_state", "column_kinds", "device", "verbose", "transformer")
        and value is not None
    }
    options = [f"--set={name}={value}" for name, value in settings.items()]
    options += ["--set=transformer.rare_threshold=0", "--set=transformer.rare_records=0"]
    options += ["--kind", "count_1=categorical"]
    assert main([*command, *rest]) == 0
    of_the_model = json.loads(capsys.readouterr().out)
    without_model = [part for part in command if part != str(tmp_path / "model")]
    assert main([*without_model, *rest, *options]) == 0
    assert json.loads(capsys.readouterr().out)["targets"] == of_the_model["targets"]


@pytest.mark.usefixtures("small_forest")
def test_a_private_fit_of_a_file_is_audited(command, tmp_path, capsys):
    tables = "".join(f'{n} = "{n}.parquet"\n' for n in ("party_1", "party_2"))
    file = tmp_path / "run.toml"
    file.write_text(
        'method = "DPLTSynthesizer"\non = "record_id"\n[parameters]\nn_states = 2\n'
        "[parameters.privacy]\nepsilon = 999\ndelta = 1e-3\nn_bins = 4\n[parties]\n" + tables
    )
    options = ["--target", "farthest", "--models", "10", "--json", "--quiet"]
    assert main(["audit", "--config", str(file), *options]) == 0
    assert len(json.loads(capsys.readouterr().out)["targets"]) == 1
    assert main([*command, "--config", str(file), "--quiet"]) == 2
    assert "says how it was fitted" in capsys.readouterr().err
    assert main(["audit", "--method", "DPLTSynthesizer", "--quiet"]) == 2
    assert "DPLTSynthesizer needs privacy=LatentTree" in capsys.readouterr().err
    assert main(["audit", "--quiet"]) == 2
    assert "no tables; give them with --real" in capsys.readouterr().err


@pytest.mark.usefixtures("small_forest")
def test_intermediate_features_as_json(command, capsys):
    options = ["--scheme", "asif", "--target", "farthest", "--json", "--quiet"]
    assert main([*command, *options]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["scheme"] == "ASIF"
    assert len(content["targets"]) == 2


def test_wrong_usage_and_unknown_records_have_their_exit_codes(command, capsys):
    assert main([*command, "--target", "nobody", "--quiet"]) == 3
    assert main([*command, "--models", "3", "--quiet"]) == 2
    assert main([*command, "--scheme", "asif", "--claim", "1", "--quiet"]) == 2
    assert main([*command, "--scheme", "asif", "--sensitive", "city_1", "--quiet"]) == 2
    assert main([*command, "--minutes", "1e-5", "--quiet"]) == 2
    assert "n_models" in capsys.readouterr().err
