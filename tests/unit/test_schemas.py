"""JSON schemas say of a file what its reader says: for editors."""

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from vflsynth._schema import toml_text
from vflsynth.cli import demo
from vflsynth.cli.schema import CLASSES

SITE = {"party": "lab", "folder": "f", "jobs": "any", "secrets": {"shared": "ab" * 32}}
CONTRACT = tomllib.loads(demo._CONTRACT)
STUDY = tomllib.loads(demo._STUDY.format(epochs="epochs = 3", rows=9, seed=0))
JOB = {"name": "one", "parties": ["a", "b"], "method": "SplitNNClassifier"}


@pytest.fixture
def schema(cli):
    def of(kind):
        made = json.loads(cli(["schema", kind]).out)
        jsonschema.Draft202012Validator.check_schema(made)
        return jsonschema.Draft202012Validator(made)

    return of


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("study", STUDY, {"publish": {"rows": 0}}),
        ("study", STUDY, {"parameters": {"epoch": 3}}),
        ("study", STUDY, {"parameters": {"privacy": {"mechanism": "laplace"}}}),
        ("study", STUDY, {"method": "SplitNNClassifier"}),
        ("job", JOB, {"restarts": -1}),
        ("site", SITE, {"jobs": "some"}),
        ("site", SITE, {"matching": {"most_row": 3}}),
        ("contract", CONTRACT, {"release": {"utility": -1}}),
        ("contract", CONTRACT, {"parties": {"lab": {"columns": {"age": {"role": "king"}}}}}),
        ("table", {"file": "lab.csv", "decimal": ","}, {"seperator": ";"}),
    ],
)
def test_an_editor_sees_what_the_reader_sees(schema, kind, right, wrong):
    schema(kind).validate(right)
    with pytest.raises(jsonschema.ValidationError):
        schema(kind).validate(right | wrong)


@pytest.mark.parametrize("kind", CLASSES)
def test_keys_are_described(schema, kind):
    """By the docstrings of the classes: an editor shows them where the key is typed."""
    keys = schema(kind).schema["properties"]
    described = [name for name, own in keys.items() if own.get("description")]
    assert len(described) > len(keys) / 2, sorted(keys.keys() - described)


def test_the_site_file_of_the_documentation_is_one(schema):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "private-runs.md").read_text()
    said = re.search(r"```toml\n(# private.toml.*?)```", text, re.S)[1]
    schema("site").validate(SITE | tomllib.loads(said))


def test_what_is_written_is_toml_that_people_read():
    said = {
        "rules": ['sex == "M" => age <= 120', "a <= b", 'it\'s "so"\n'],
        "pairs": [["x", None], [1, 2.5]],
        "none": None,
        "lab": {"odd 'name'": {"a b": True}},
        "rows": [{"among": ["a"]}, {"among": ["b"]}],
    }
    text = toml_text(said, "for people\n\nto read")
    assert text.startswith("# for people\n#\n# to read\n")
    assert "'sex == \"M\" => age <= 120'" in text
    del said["none"]
    said["pairs"] = [["x", {}], [1, 2.5]]
    assert tomllib.loads(text) == said
