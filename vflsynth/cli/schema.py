"""``vflsynth schema``: the JSON schema of a file, for editors that complete and check TOML."""

from __future__ import annotations

import argparse
import inspect
import json
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from vflsynth.cli.console import say
from vflsynth.cli.options import Option
from vflsynth.registry import Members

SHIPPED = Path(__file__).parent / "shipped"
"""Schemas and completion as files, so that printing one loads nothing: docs/make_tables.py."""

CLASSES = {
    "study": "vflsynth.configuration.FitFile",
    "job": "vflsynth.configuration.FitFile",
    "site": "vflsynth.federation.site.SiteFile",
    "contract": "vflsynth.contract.files.ContractFile",
    "table": "vflsynth.frames.sources.Description",
}

DESCRIPTION = """\
Print the JSON schema of a file: its keys, what they are, and which values they may have. Editors
that know TOML complete and check the file by it.
"""
EPILOG = """\
examples:
  vflsynth schema study > study.schema.json

In the first line of study.toml: #:schema study.schema.json
"""


OPTIONS = [Option("file", "what kind of file", choices=[*CLASSES])]


def run(options: argparse.Namespace) -> int:
    """Print it; where other packages add names, made of what is installed."""
    if any(group.startswith("vflsynth.") for group in entry_points().groups):
        say(text_of(options.file))
    else:
        say((SHIPPED / f"{options.file}.schema.json").read_text(encoding="utf-8").rstrip("\n"))
    return 0


def text_of(file: str) -> str:
    """Return the schema of a kind of file, of what is installed."""
    from vflsynth._schema import json_schema

    module, _, name = CLASSES[file].rpartition(".")
    made = json_schema(getattr(import_module(module), name), f"vflsynth {file}")
    if file in ("study", "job"):
        groups = ("synthesizers", *(("classifiers",) * (file == "job")))
        made["required"] = ["name", "parties"] if file == "job" else ["parties"]
        keys = made["properties"]
        keys["method"]["enum"] = [method for group in groups for method in Members(group)]
        keys["parameters"] |= _parameters(*groups)
        mechanism = _parameters("mechanisms")
        mechanism["properties"].pop("public_schema")  # has tables of its own
        mechanism["properties"]["mechanism"] = {"enum": [*Members("mechanisms")]}
        keys["parameters"]["properties"]["privacy"] |= mechanism
        for key in ("column_kinds", "device", "contract", "verbose"):  # keys of their own, or none
            keys["parameters"]["properties"].pop(key, None)
    return json.dumps(made, indent=1, ensure_ascii=False)


def _parameters(*groups: str) -> dict[str, Any]:
    """Return the parameters of all members of groups, with whose they are."""
    whose: dict[str, list[str]] = {}
    for group in groups:
        for name, kind in Members(group).items():
            for parameter in inspect.signature(kind).parameters:
                whose.setdefault(parameter, []).append(name)
    said = {name: {"description": f"Of {', '.join(kinds)}."} for name, kinds in whose.items()}
    return {"type": "object", "properties": said, "additionalProperties": False}
