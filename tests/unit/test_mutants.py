"""Mutants that `make slow` runs: each can be made, of a package whose files may have moved."""

import pytest

from tools.mutate import ROOT, Mutant, changed, check, functions, mutants


@pytest.fixture(scope="module")
def known():
    return functions(ROOT)


def test_every_mutant_has_its_function_its_text_and_its_tests():
    """If not: change `tools/mutants.toml` with what it is about."""
    assert len(mutants()) >= 60
    check(ROOT, mutants())


def test_a_mutant_is_one_place_of_one_function(known):
    path, function, faulty = changed(Mutant("Places.received", ">=", ">", ()), known)
    right = path.read_text(encoding="utf-8")
    assert (faulty.count(">="), len(faulty)) == (right.count(">=") - 1, len(right) - 1)
    assert function.lstrip().startswith("def received(")


@pytest.mark.parametrize(
    ("where", "text", "words"),
    [
        ("Places.taken", ">=", "0 functions have that name"),
        ("Places.received", "=>", "has it 0 times"),
        ("Places.received", "found", "times"),
        ("_nearest", "<=", "functions have that name"),
    ],
)
def test_a_mutant_that_cannot_be_made_is_named(known, where, text, words):
    with pytest.raises(LookupError, match=words):
        changed(Mutant(where, text, "", ()), known)
