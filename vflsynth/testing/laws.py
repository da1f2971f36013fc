"""What a law is, how it fails, and how pytest runs one test per law."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sklearn.base import clone

from vflsynth import registry
from vflsynth.parameters import from_json, parameters_to_json, to_json


@dataclass(frozen=True)
class Check:
    """One law, about one object; called, it passes or raises.

    Parameters
    ----------
    law : callable
        A function of one argument, which raises if the law does not hold.
    subject : object
        Its argument.
    """

    law: Callable[[Any], None]
    subject: Any

    def __call__(self) -> None:
        """Check.

        Raises AssertionError, naming the law, the object and what was found.
        """
        try:
            self.law(self.subject)
        except Exception as error:
            raise AssertionError(
                f"{self.subject} breaks the law {self.law.__name__!r}: "
                f"{'' if isinstance(error, AssertionError) else f'{type(error).__name__}: '}{error}"
            ) from error


def checks_of(laws: Iterable[Callable[[Any], None]], subject: Any) -> list[Check]:
    """Return one check per law, all about the same object."""
    return [Check(law, subject) for law in laws]


def laws_of(case: type[Any]) -> tuple[Callable[[Any], None], ...]:
    """Return the laws of a module in its order: all functions of one `case` of a class of it."""
    return tuple(
        thing
        for thing in vars(sys.modules[case.__module__]).values()
        if inspect.isfunction(thing) and thing.__annotations__.get("case") == case.__name__
        if thing.__code__.co_argcount == 1
    )


def parametrize_with_checks(checks: Mapping[str, Iterable[Check]]) -> Any:
    """Decorate a test so that pytest runs it once per object and law.

    Parameters
    ----------
    checks : mapping of str to checks
        By the name that an object has in the tests' names.

    Returns
    -------
    MarkDecorator
        Of the argument ``check``.

    Examples
    --------
    >>> from vflsynth.splitdefense import Isotropic
    >>> from vflsynth.testing import parametrize_with_checks, protection_checks
    >>> @parametrize_with_checks({"isotropic": protection_checks(Isotropic(4.0))})
    ... def test_laws(check):
    ...     check()
    """
    import pytest

    return pytest.mark.parametrize(
        "check",
        [
            pytest.param(check, id=f"{name}-{check.law.__name__}")
            for name, own in checks.items()
            for check in own
        ],
    )


# -- how a law says what it found ------------------------------------------------------------------


def require(holds: object, otherwise: str) -> None:
    """Raise AssertionError with a text unless something holds."""
    if not holds:
        raise AssertionError(otherwise)


def same(found: Any, expected: Any, what: str) -> None:
    """Raise AssertionError unless two values are equal."""
    require(found == expected, f"{what} is {found!r}; expected {expected!r}")


def same_table(found: pd.DataFrame, expected: pd.DataFrame, what: str) -> None:
    """Raise AssertionError unless two tables are equal to the last bit."""
    try:
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


@contextmanager
def refused(kind: type[Exception], what: str, says: str = "") -> Iterator[None]:
    """Raise AssertionError unless the block raises an error of a kind that says something."""
    try:
        yield
    except kind as error:
        require(says in str(error), f"the error for {what} does not say {says!r}: {error}")
        return
    except Exception as error:
        raise AssertionError(
            f"{what} raised {error!r}; expected an error of {kind.__name__}"
        ) from error
    raise AssertionError(f"{what} was accepted; expected {kind.__name__}")


# -- laws of all parameter objects, whose argument has one as its attribute `value` ----------------


def init_only_stores_its_arguments(case: Any) -> None:
    """Whatever is given comes back from get_params, unchanged, and nothing else is set."""
    marks = {name: object() for name in case.value.get_params(deep=False)}
    made = type(case.value)(**marks)
    same(made.get_params(deep=False), marks, "get_params")
    same(vars(made), marks, "what __init__ sets")
    parameters = inspect.signature(type(case.value)).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    if len(defaults) == len(parameters):
        same(type(case.value)().get_params(deep=False), defaults, "get_params of the defaults")


def unknown_parameters_are_type_errors(case: Any) -> None:
    """A misspelt parameter does not pass silently."""
    with refused(TypeError, "the parameter 'no_such_parameter'"):
        type(case.value)(no_such_parameter=1)
    with refused(ValueError, "set_params(no_such_parameter=1)"):
        clone(case.value).set_params(no_such_parameter=1)


def clone_and_set_params_round_trip(case: Any) -> None:
    """A clone has the same parameters, and takes them back."""
    copied = clone(case.value)
    same(repr(copied), repr(case.value), "the clone")
    parameters = copied.get_params(deep=False)
    require(copied.set_params(**parameters) is copied, "set_params does not return its object")
    same(copied.get_params(deep=False), parameters, "what set_params leaves")


def its_class_is_registered(case: Any) -> None:
    """Files and command lines can name it."""
    cls = type(case.value)
    require(
        registry.is_registered(cls),
        f"{registry.full_name(cls)} is not registered; write @vflsynth.registry.register above it",
    )
    found = registry.find(cls.registry_group, registry.full_name(cls))
    require(found is cls, f"its full name finds {found}")


def parameters_survive_json(case: Any) -> None:
    """What is written with an artefact is what is read."""
    written = json.dumps(parameters_to_json(case.value), allow_nan=False)
    made = type(case.value)(**{n: from_json(v) for n, v in json.loads(written).items()})
    same(repr(made), repr(case.value), "what is read back")
    same(to_json(made), to_json(case.value), "what is written again")


PARAMETER_LAWS = (
    init_only_stores_its_arguments,
    unknown_parameters_are_type_errors,
    clone_and_set_params_round_trip,
    its_class_is_registered,
    parameters_survive_json,
)
