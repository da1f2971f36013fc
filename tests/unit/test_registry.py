"""Names of classes: in files, on command lines, in notebooks, from installed packages."""

import importlib.metadata
import logging
import sys

import pytest

from vflsynth import VFLGANSynthesizer, registry
from vflsynth.exceptions import ParameterError
from vflsynth.splitdefense import Isotropic, Marvell, Protection
from vflsynth.splitdefense.protections.marvell import Marvell as TheSame

pytestmark = pytest.mark.usefixtures("own_classes")


def a_class(name="Marvell", module="somebody.else", base=Protection):
    return type(name, (base,), {"__module__": module, "__qualname__": name})


def test_own_classes_are_found_by_short_and_full_name():
    full = "vflsynth.splitdefense.protections.marvell:Marvell"
    assert registry.full_name(Marvell) == full
    assert registry.find("Marvell", "protections") is TheSame
    assert registry.find(full, "protections") is Marvell
    assert registry.find("VFLGANSynthesizer", "synthesizers") is VFLGANSynthesizer
    assert set(registry.Members("column_kinds")) >= {"continuous", "categorical"}


def test_a_user_s_class_of_the_same_name_hides_none_of_ours():
    theirs = registry.register(a_class())
    names = list(registry.Members("protections"))
    assert "Marvell" not in names
    assert {registry.full_name(Marvell), "somebody.else:Marvell"} <= set(names)
    assert registry.find("somebody.else:Marvell", "protections") is theirs
    assert registry.named_in_file(registry.full_name(Marvell), "protections") is Marvell
    with pytest.raises(ParameterError, match=r"several protections .* name: vflsynth.* or some"):
        registry.find("Marvell", "protections")


def test_two_classes_of_one_full_name(monkeypatch):
    first = registry.register(a_class())
    assert registry.register(first) is first
    second = a_class()
    with pytest.raises(ParameterError, match=r"already is a class somebody\.else:Marvell"):
        registry.register(second)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # a notebook's cell is run again
    registry.register(second)
    assert registry.find("somebody.else:Marvell", "protections") is second
    assert registry.is_registered(second)
    assert not registry.is_registered(first)


def test_what_belongs_to_no_group_is_refused():
    with pytest.raises(ParameterError, match="builtins:int cannot be registered"):
        registry.register(int)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ParameterError, match=r"no 'Marvel' among the protections; .*Isotropic"):
        registry.find("Marvel", "protections")


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "Marvell", "json", "", ":"])
def test_a_file_gives_nothing_but_registered_classes_by_full_name(name):
    with pytest.raises(ParameterError, match=r"no class .* is registered"):
        registry.named_in_file(name, "protections", "parameters")


def entry_points(*values):
    group = "vflsynth.protections"
    return lambda group=group: [
        importlib.metadata.EntryPoint(value.partition(":")[2], value, group) for value in values
    ]


def test_entry_points_are_loaded_once_at_the_first_look_up(monkeypatch, caplog):
    from vflsynth.splitdefense import protections

    theirs = a_class("Theirs")
    monkeypatch.setattr(protections, "Theirs", theirs, raising=False)
    found = entry_points("vflsynth.splitdefense.protections:Theirs", "nowhere:Missing")
    monkeypatch.setattr(importlib.metadata, "entry_points", found)
    registry._loaded.discard("protections")
    assert not registry.is_registered(theirs)
    with caplog.at_level(logging.WARNING, "vflsynth"):
        assert registry.find("Theirs", "protections") is theirs
    assert "Missing = nowhere:Missing cannot be loaded" in caplog.text
    monkeypatch.setattr(importlib.metadata, "entry_points", None)
    assert registry.find("Isotropic", "protections") is Isotropic
