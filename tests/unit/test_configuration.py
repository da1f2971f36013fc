"""What files, jobs and command lines say becomes an estimator, or an error that names the place."""

import dataclasses
import datetime

import pytest

from vflsynth import DPLTSynthesizer, LatentTree, VFLGANSynthesizer
from vflsynth.columns import Log, Standardizer
from vflsynth.configuration import (
    Configuration,
    make_estimator,
    make_mechanism,
    read_configuration,
)
from vflsynth.exceptions import ParameterError
from vflsynth.federation.job import Job
from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.privacy import PublicSchema
from vflsynth.splitdefense import Marvell

PRIVATE = {"parameters": {"privacy": {"mechanism": "dpsgd", "epsilon": 3, "max_grad_norm": 2}}}


def test_a_file_says_everything(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        """
        method = "VFLGANSynthesizer"
        on = "id"
        device = "cpu"
        checkpoint_every = 3
        [parties]
        lab = "tables/lab.parquet"
        [parameters]
        generator_hidden = [8, 4]
        random_state = 7
        [parameters.privacy]
        epsilon = 3
        delta = 1e-6
        n_records = 60
        [parameters.transformer]
        rare_threshold = 0
        [column_kinds]
        zip = "categorical"
        [privacy.bounds]
        age = [0, 120]
        admitted = [2020-01-01, 2024-12-31]
        [privacy.categories]
        smoker = ["no", "yes"]
        """
    )
    configuration = Configuration({str(file): read_configuration(file)})
    synth = configuration.make(lambda text: {"zip": 12}.get(text, text))
    assert configuration.on == "id"
    assert configuration.checkpoint_every == 3
    assert configuration.parties == {"lab": tmp_path / "tables" / "lab.parquet"}
    assert type(synth) is VFLGANSynthesizer
    assert (synth.device, synth.random_state) == ("cpu", 7)
    assert synth.generator_hidden == (8, 4)
    assert synth.column_kinds == {12: "categorical"}
    assert synth.transformer.rare_threshold == 0
    assert type(synth.privacy) is DPSGD
    assert synth.privacy.n_records == 60
    synth = configuration.make()
    assert synth.privacy.public_schema == PublicSchema(
        {"age": [0, 120], "admitted": [datetime.date(2020, 1, 1), datetime.date(2024, 12, 31)]},
        {"smoker": ["no", "yes"]},
    )


def test_later_parts_override_value_by_value_and_mechanisms_as_a_whole():
    whole = PRIVATE | {"column_kinds": {"a": "categorical", "b": "integer"}}
    other = {
        "parameters": {"privacy": {"delta": 0.1, "epsilon": 5}},
        "column_kinds": {"b": "ordered"},
    }
    synth = Configuration({"file": whole, "options": other}).make()
    assert repr(synth.privacy) == repr(DPSGD(epsilon=5, delta=0.1, max_grad_norm=2))
    assert synth.column_kinds == {"a": "categorical", "b": "ordered"}
    other = {"parameters": {"privacy": {"mechanism": "first_layer", "epsilon": 5}}}
    synth = Configuration({"file": whole, "options": other}).make()
    assert repr(synth.privacy) == repr(FirstLayer(epsilon=5))
    columns = {"column_kinds": {"mechanism": "ordered"}}
    kinds = Configuration({"file": whole, "options": columns}).make().column_kinds
    assert kinds == whole["column_kinds"] | columns["column_kinds"]


def test_every_key_of_a_job_is_one_of_a_configuration():
    job = Job(name="one", parties=("b", "a"), on="id", parameters={"epochs": 3})
    assert set(job.to_dict()) == {field.name for field in dataclasses.fields(Job)}
    tables = {"parties": {"a": "a.parquet", "b": "b.parquet"}}
    configuration = Configuration({"job": job.to_dict(), "options": tables})
    assert list(configuration.parties) == ["b", "a"]
    assert configuration.make().epochs == 3
    with pytest.raises(ParameterError, match="parties are b, a, and tables are given of a"):
        Configuration({"job": job.to_dict(), "options": {"parties": {"a": "a.parquet"}}})


def test_the_mechanism_is_the_methods_first_unless_one_is_named():
    made = make_estimator("DPLTSynthesizer", {"privacy": {"epsilon": 1}}, where="x")
    assert type(made) is DPLTSynthesizer
    assert repr(made.privacy) == repr(LatentTree(epsilon=1))
    with pytest.raises(ParameterError, match="x: mechanism: there is no None among the mechanisms"):
        make_mechanism({"epsilon": 1}, where="x")


def test_objects_are_tables_that_name_their_class():
    table = {"class": "Marvell", "power_scale": 7}
    made = make_estimator("SplitNNClassifier", {"protection": table}, where="x").protection
    assert isinstance(made, Marvell)
    assert made.power_scale == 7
    with pytest.raises(ParameterError, match=r"x: protection: there is no 'os:path' among the"):
        make_estimator("SplitNNClassifier", {"protection": {"class": "os:path"}}, where="x")
    with pytest.raises(ParameterError, match="SplitNNClassifier is a classifier, and this command"):
        Configuration({"x": {"method": "SplitNNClassifier"}})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"methods": 1}, "f.toml: unknown 'methods'; there are method, on, key_form, parameters"),
        ({"method": "GAN"}, "f.toml and options: method: there is no 'GAN' among the synthesizers; "
                            "there are AutoregressiveSynthesizer, DPLTSynthesizer"),
        ({"method": 3}, "f.toml: method must be text, got 3"),
        ({"on": True}, "on must be the name of the key column, or a table of parties and names"),
        ({"parties": "lab.csv"}, "f.toml: parties must be a list of names, or a table"),
        ({"checkpoint_every": True}, "checkpoint_every must be a whole number ≥ 1, got True"),
        ({"parameters": {"epoch": 3}}, "f.toml: VFLGANSynthesizer has no 'epoch'; there are"),
        ({"parameters": {"device": "cpu"}}, "f.toml: parameters.device is a key of its own"),
        ({"parameters": {"column_kinds": {}}}, "f.toml: parameters.column_kinds is a table of its"),
        ({"parameters": {"privacy": 3}}, "privacy must be a table of names and values, got 3"),
        ({"parameters": {"privacy": {"mechanism": "laplace"}}},
         "f.toml: mechanism: there is no 'laplace' among the mechanisms; there are dpsgd"),
        ({"parameters": {"privacy": {"mechanism": ["dpsgd"]}}},
         "f.toml: mechanism: there is no ['dpsgd'] among the mechanisms; there are dpsgd"),
        ({"parameters": {"privacy": {"mechanism": "dpsgd", "n_shards": 7}}},
         "f.toml: dpsgd has no 'n_shards', which is for gs_wgan; there are epsilon"),
        ({"parameters": {"privacy": {"public_schema": {}}}}, "the tables [privacy.bounds]"),
        ({"parameters": {"transformer": {"kinds": {}}}}, "the table [column_kinds], or --kind"),
        ({"parameters": {"transformer": {"scale": 1}}}, "TableTransformer has no 'scale'; there"),
        ({"column_kinds": {"age": "number"}},
         "f.toml: column_kinds.age: there is no 'number' among the column kinds; there are bool"),
        ({"privacy": {"epsilon": 3}},
         "f.toml: privacy: unknown 'epsilon'; there are bounds, categories, dtypes"),
        ({"privacy": {"bound": {}}}, "f.toml: privacy: unknown 'bound'; there are bounds, categ"),
        ({"privacy": {"bounds": {"age": [0, 1]}}}, "have no effect with no privacy"),
        ({"privacy": {"bounds": {"age": [0]}}} | PRIVATE, "privacy needs bounds like age ="),
        ({"privacy": {"bounds": {"age": [0, 1]}},
          "parameters": {"privacy": {"mechanism": "first_layer"}}},
         "have no effect with FirstLayer"),
    ],
)  # fmt: skip
def test_errors_name_the_place_and_what_there_is(content, says):
    with pytest.raises(ParameterError) as error:
        Configuration({"f.toml": content, "options": {}}).make()
    assert says in str(error.value)


def test_encoders_are_names_or_tables_that_name_their_class():
    income = {"class": "log", "linear": 100.0}
    said = {"encoders": {"income": income, "age": "ranks"}, "continuous": {"class": "standard"}}
    made = Configuration({"job": {"parameters": {"transformer": said}}}).make().transformer
    assert made.encoders == {"income": Log(100.0), "age": "ranks"}
    assert made.continuous == Standardizer()
    said["encoders"]["income"] = {"class": "logs"}
    with pytest.raises(ParameterError, match=r"transformer.encoders.income: there is no 'logs'"):
        Configuration({"job": {"parameters": {"transformer": said}}}).make()


def test_columns_of_encoders_and_overrides_are_those_of_the_table():
    """TOML has no keys that are numbers: what was said of column 7 was never looked at."""
    said = {"encoders": {"7": "ranks"}, "overrides": {"7": {"spikes": [-9]}}}
    configuration = Configuration({"job": {"parameters": {"transformer": said}}})
    made = configuration.make(lambda text: {"7": 7}.get(text, text)).transformer
    assert made.encoders == {7: "ranks"}
    assert made.overrides == {7: {"spikes": [-9]}}


def test_errors_name_the_part_that_says_it():
    with pytest.raises(ParameterError, match="options: dpsgd has no 'n_shards'"):
        Configuration({"f.toml": PRIVATE, "options": {"parameters": {"privacy": {"n_shards": 2}}}})
    with pytest.raises(ParameterError, match=r"f.toml and options: privacy must be a table"):
        Configuration({"f.toml": PRIVATE, "options": {"parameters": {"privacy": 7}}})
    with pytest.raises(ParameterError, match=r"f.toml: DPLTSynthesizer has no 'epochs'"):
        Configuration(
            {"f.toml": {"parameters": {"epochs": 3}}, "options": {"method": "DPLTSynthesizer"}}
        )


def test_all_mistakes_are_named_at_once():
    """Of all parts and all tables, those of names in parameters after those of the form."""
    one = {"methods": 1, "privacy": {"bound": {}}, "publish": {"rows": 0}}
    other = {"column_kinds": {"age": "number"}, "restarts": -1}
    with pytest.raises(ParameterError) as error:
        Configuration({"one.toml": one, "other.toml": other})
    assert [line.split(", got")[0].split(";")[0] for line in str(error.value).splitlines()] == [
        "one.toml: privacy: unknown 'bound'",
        "one.toml: publish.rows must be a whole number ≥ 1",
        "one.toml: unknown 'methods'",
        "other.toml: restarts must be a whole number ≥ 0",
        "other.toml: column_kinds.age: there is no 'number' among the column kinds",
    ]
    assert "did you mean 'bounds'?" in str(error.value)
    parameters = {"epoch": 3, "device": "cpu", "privacy": {"mechanism": "dpsgd", "n_shards": 7}}
    with pytest.raises(ParameterError) as error:
        Configuration({"f.toml": {"parameters": parameters}})
    assert len(str(error.value).splitlines()) == 3


def test_a_file_that_is_none_is_named(tmp_path):
    (tmp_path / "run.toml").write_text("[parties]\nlab = 3\n")
    with pytest.raises(
        ParameterError, match=r"run.toml: parties must be .* names and files, got {'lab': 3}"
    ):
        read_configuration(tmp_path / "run.toml")
    (tmp_path / "run.toml").write_text("method VFLGAN")
    with pytest.raises(ParameterError, match=r"run.toml is no TOML: .*line 1"):
        read_configuration(tmp_path / "run.toml")
