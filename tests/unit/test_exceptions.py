"""Errors come back from worker processes, which pickle them as `copy` does, as they were raised."""

import copy
import inspect

import pytest

from vflsynth import exceptions
from vflsynth.exceptions import PartyDataError, VFLSynthError

ERRORS = [
    kind
    for kind in vars(exceptions).values()
    if inspect.isclass(kind) and issubclass(kind, VFLSynthError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_can_cross_processes(kind):
    known = inspect.signature(kind.__init__).parameters.values()
    needed = [
        parameter
        for parameter in list(known)[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    told = {parameter.name: f"some {parameter.name}" for parameter in needed}
    positional = [told.pop(p.name) for p in needed if p.kind is not p.KEYWORD_ONLY]
    error = kind(*positional, **told)
    again = copy.copy(error)
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_what_it_says_of_the_table_comes_along():
    error = PartyDataError("it has gaps", fix="fill them", party="lab", column="age", rows=[3])
    again = copy.copy(error)
    assert (again.party, again.column, again.rows, again.fix) == ("lab", "age", (3,), "fill them")
