"""Estimators made of names and plain values: from command lines, TOML files and jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.exceptions import ParameterError
from vflsynth.mechanisms import Mechanism
from vflsynth.registry import Members, find

_OBJECTS = ("privacy", "transformer")
"""Parameters that are tables of their own."""


def make_estimator(
    method: str,
    parameters: Mapping[str, Any],
    *,
    where: str,
    refused: Mapping[str, str] | None = None,
) -> Any:
    """Make a synthesizer or a split classifier.

    Parameters
    ----------
    method : str
        Short or full name of a registered class, such as ``"VFLGANSynthesizer"``.
    parameters : mapping of str to JSON or TOML values
        ``privacy`` is a table with ``mechanism`` and that mechanism's parameters, ``transformer``
        one with those of `TableTransformer`.
    where : str
        What error messages begin with.
    refused : mapping of str to str, optional
        Parameters that may not be given here, and where they belong.

    Returns
    -------
    BaseSynthesizer or BaseSplitClassifier

    Raises
    ------
    ParameterError
        Naming what there is instead.
    """
    group = "classifiers" if method in Members("classifiers") else "synthesizers"
    try:
        kind = find(group, method)
    except ParameterError as error:
        raise ParameterError(
            f"{where}: method must be a synthesizer or a classifier, got {method!r}; there are "
            f"{', '.join((*Members('synthesizers'), *Members('classifiers')))}"
        ) from error
    known = kind().get_params(deep=False)
    for name in parameters:
        if name in (refused or {}):
            raise ParameterError(f"{where}: {name} {(refused or {})[name]}")
        check_known(name, known, f"{where}: {kind.__name__}")
    values = {name: _plain(v) for name, v in parameters.items() if name not in _OBJECTS}
    if parameters.get("privacy") is not None:
        values["privacy"] = make_mechanism(parameters["privacy"], where=f"{where}: privacy")
    if parameters.get("transformer") is not None:
        given = _table(parameters["transformer"], f"{where}: transformer")
        options = TableTransformer().get_params(deep=False)
        for name in given:
            check_known(name, options, f"{where}: transformer")
        values["transformer"] = TableTransformer(**{k: _plain(v) for k, v in given.items()})
    return kind(**values)


def make_mechanism(content: Any, *, where: str) -> Mechanism:
    """Make a mechanism of a table with ``mechanism`` and that mechanism's own parameters.

    Parameters
    ----------
    content : mapping
        ``mechanism`` is the name of a registered one; default: "kernel_mean_embedding".
        ``public_schema`` is a table with ``bounds`` and ``categories``.
    where : str
        What error messages begin with.

    Raises
    ------
    ParameterError
        If the name or a parameter is unknown. Values are checked when they are used.
    """
    given = dict(_table(content, where))
    kind = find("mechanisms", str(given.pop("mechanism", "kernel_mean_embedding")))
    known = kind().get_params(deep=False)
    for name in given:
        check_known(name, known, f"{where}: {kind.__name__}")
    values = {name: _plain(value) for name, value in given.items() if name != "public_schema"}
    if given.get("public_schema") is not None:
        public = _table(given["public_schema"], f"{where}: public_schema")
        for name in public:
            check_known(name, ("bounds", "categories"), f"{where}: public_schema")
        values["public_schema"] = PublicSchema(**public)
    made: Mechanism = kind(**values)
    return made


def check_known(name: str, known: Collection[str], where: str) -> None:
    """Refuse a name that does not exist.

    Raises
    ------
    ParameterError
    """
    if name not in known:
        raise ParameterError(f"{where} has no {name!r}; there are {', '.join(known)}")


def _table(content: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise ParameterError(f"{where} must be a table of names and values, got {content!r}")
    return content


def _plain(value: Any) -> Any:
    """Return lists as the tuples that parameters are."""
    return tuple(value) if isinstance(value, list) else value
