"""What a law is, how it fails, and how pytest runs one test per law."""

from __future__ import annotations

import inspect
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state

from vflsynth import registry
from vflsynth.codec import family_of, from_json, parameters_to_json, to_json
from vflsynth.columns import PublicSchema
from vflsynth.datasets import make_party_frames

Value = TypeVar("Value")


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
        """Check; AssertionError names the law, the object and what was found."""
        try:
            self.law(self.subject)
        except Exception as error:
            raise AssertionError(
                f"{self.subject} breaks the law {self.law.__name__!r}: "
                f"{'' if isinstance(error, AssertionError) else f'{type(error).__name__}: '}{error}"
            ) from error


@dataclass(frozen=True)
class Case(Generic[Value]):
    """An object whose laws are checked, with what they need of it."""

    value: Value

    def __str__(self) -> str:
        return str(self.value)


def checks_of(case: Case[Any]) -> list[Check]:
    """Return one check per law of a case: those of its module, and of parameters if it has any.

    Laws of a module are, in its order, all functions of one `case` of the case's class.
    """
    kind = type(case)
    laws = [*PARAMETER_LAWS] if hasattr(case.value, "get_params") else []
    for thing in vars(sys.modules[kind.__module__]).values():
        of_kind = inspect.isfunction(thing) and thing.__annotations__.get("case") == kind.__name__
        if of_kind and thing.__code__.co_argcount == 1:
            laws.append(thing)
    return [Check(law, case) for law in laws]


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


def _global_random_state() -> tuple[Any, ...]:
    """Return the states of the generators that Python, NumPy and torch share with everybody."""
    _, numbers, position, *_ = check_random_state(None).get_state()
    return random.getstate(), numbers.tolist(), position, torch.get_rng_state().tolist()


@contextmanager
def global_random_state_left_alone() -> Iterator[None]:
    """Raise AssertionError if the block changes the state of a generator that everybody shares.

    States are others than usual within it, and the usual ones afterwards.
    """
    numbers = check_random_state(None)
    usual = random.getstate(), numbers.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            random.seed(1)
            numbers.seed(1)
            torch.manual_seed(1)
            before = _global_random_state()
            yield
            left_alone = _global_random_state() == before
            require(left_alone, "it draws from a global random state, or seeds it")
        finally:
            random.setstate(usual[0])
            numbers.set_state(usual[1])


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
    found = registry.find(registry.full_name(cls), cls.registry_group)
    require(found is cls, f"its full name finds {found}")


def parameters_survive_json(case: Any) -> None:
    """What is written with an artefact is what is read."""
    written = json.dumps(parameters_to_json(case.value), allow_nan=False)
    made = type(case.value)(**{n: from_json(v) for n, v in json.loads(written).items()})
    same(repr(made), repr(case.value), "what is read back")
    same(to_json(made), to_json(case.value), "what is written again")


def its_own_parameters_pass_its_check(case: Any) -> None:
    """Where there is a `check`, it is called before any record is read."""
    getattr(case.value, "check", lambda: None)()


PARAMETER_LAWS = (
    init_only_stores_its_arguments,
    unknown_parameters_are_type_errors,
    clone_and_set_params_round_trip,
    its_class_is_registered,
    parameters_survive_json,
    its_own_parameters_pass_its_check,
)


Tables = Mapping[str, pd.DataFrame]

KEY = "record_id"
"""Key column of `small`."""

LABELS = "labels"
"""Name of whoever has the labels of a classifier."""

CLASSES = ["no", "yes"]
"""Which there are."""


def small() -> dict[str, pd.DataFrame]:
    """Make two parties' frames of 60 records with a key column."""
    return make_party_frames(60, random_state=1)


def zoo() -> dict[str, pd.DataFrame]:
    """Make three parties with every dtype, as one would meet them; the index is the key."""
    rng, n = np.random.default_rng(3), 61
    keys = pd.Index([f"p{i:03d}" for i in rng.permutation(n)], name="person")

    def holes(values: Any) -> Any:
        return pd.Series(values).mask(rng.random(n) < 0.2).array

    integers = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    levels = ["low", "middle", "high", "never"]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    numbers: dict[Any, Any] = {name: rng.integers(0, 100, n).astype(name) for name in integers}
    numbers |= {
        "float32": rng.normal(size=n).astype("float32"),
        "float64": rng.normal(size=n),
        "float with NaN": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
        "zero-inflated": np.where(rng.random(n) < 0.5, 0.0, rng.exponential(size=n)),
    }
    nullable: dict[Any, Any] = {
        "Int64": holes(pd.array(rng.integers(0, 50, n), "Int64")),
        "UInt8": holes(pd.array(rng.integers(0, 50, n), "UInt8")),
        "Float64": holes(pd.array(rng.normal(size=n), "Float64")),
        "boolean": holes(pd.array(rng.random(n) < 0.5, "boolean")),
        "string": holes(pd.array(rng.choice(["x", "y", "zz"], n), "string")),
        "bool": rng.random(n) < 0.3,
    }
    labels: dict[Any, Any] = {
        7: pd.Categorical(rng.choice(levels[:3], n), levels),
        8: pd.Categorical(rng.choice(levels[:3], n), levels, ordered=True),
        0: days,
        1: days.tz_localize("Europe/Berlin"),
        2: pd.Series(days).mask(rng.random(n) < 0.2).array,
        "object": rng.choice(np.array(["r", "s"], dtype=object), n),
        "constant": np.full(n, 3),
    }
    frames = {"numbers": numbers, "nullable": nullable, "labels": labels}
    return {
        party: pd.DataFrame(columns, index=keys).sample(frac=1, random_state=i)
        for i, (party, columns) in enumerate(frames.items())
    }


def private_tables(n_records: int) -> tuple[dict[str, pd.DataFrame], PublicSchema]:
    """Make tables of two parties, and what is public of them, that a private fit is tried on.

    Columns are of every kind, with missing values, sorted by `KEY`; the first records of a longer
    table are those of a shorter one. All columns but one of numbers are public: its range is then
    published with noise.
    """
    k = np.arange(n_records)
    amount = np.where(k % 10 < 8, 0.0, k % 7)
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta((7 * k) % 300, "D"))
    numbers = {"amount": amount, "visits": k % 6, "flag": k % 3 == 0}
    others = {
        "rate": pd.Series((k % 11) / 10.0).mask(k % 4 == 3),
        "day": days.dt.as_unit("s").mask(k % 5 == 4),
        "town": np.where(k % 4 == 1, "north", "south").astype(object),
    }
    schema = PublicSchema(
        {"amount": (0, 10), "visits": (0, 6), "day": ("2020-01-01", "2020-12-31")},
        {"flag": (False, True), "town": ("north", "south")},
        dtypes={
            KEY: "int64",
            "amount": "float64",
            "visits": "Int64",
            "flag": "boolean",
            "rate": "float64",
            "day": "datetime64[s]",
            "town": "str",
        },
    )
    return {"a": pd.DataFrame({KEY: k} | numbers), "b": pd.DataFrame({KEY: k} | others)}, schema


def private_labels(n_records: int) -> pd.DataFrame:
    """Return labels of as many records of `private_tables`, by `KEY`."""
    k = np.arange(n_records)
    return pd.DataFrame({KEY: k, "label": np.where(k % 3 == 0, "yes", "no").astype(object)})


def replaced(tables: Tables) -> dict[str, Tables]:
    """Return tables whose last record is as far from all others as can be, by what it has.

    That is values that are extreme, missing or impossible.
    """

    def other(value: Callable[[pd.Series[Any]], Any]) -> Tables:
        changed = {}
        for name, table in tables.items():
            columns = dict(table.items())
            for label, column in table.drop(columns=KEY).items():
                columns[label] = column.astype(object)
                columns[label].iloc[-1] = value(column)
            changed[name] = pd.DataFrame(columns, index=table.index)
        return changed

    return {
        "whose values are far away": other(lambda column: _ODD[family_of(column.dtype)][0]),
        "whose values are missing": other(lambda column: None),
        "whose values are of other types": other(lambda column: _ODD[family_of(column.dtype)][1]),
    }


_ODD: dict[str, tuple[Any, Any]] = {
    "truth value": (True, "perhaps"),
    "whole number": (10**6, "12 or so"),
    "number": (1e9, "12 or so"),
    "time": (pd.Timestamp("1800-01-01"), "yesterday"),
    "text": ("nowhere", 7.5),
    "label": ("nowhere", 7.5),
}
"""For each kind of columns a value far from all others, and one that is not of its types."""
