"""Which features go together: the one place that refuses what does not, and says why."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from vflsynth.contract import Contract
from vflsynth.exceptions import ParameterError, PrivacyParameterError
from vflsynth.mechanisms import Mechanism
from vflsynth.privacy import NeighbouringRelation
from vflsynth.registry import Members
from vflsynth.run import Options


def check_combination(
    estimator: Any,
    *,
    across_processes: bool = False,
    n_models: int = 1,
    options: Options | None = None,
    keep_discriminators: bool = False,
) -> None:
    """Refuse what does not go together: ParameterError has the reason, and what to use instead.

    Parties may have a process of their own each; `n_models` are fitted at once.
    """
    reason = reason_against(
        estimator,
        across_processes=across_processes,
        n_models=n_models,
        options=options,
        keep_discriminators=keep_discriminators,
    )
    if reason is not None:
        raise reason


def reason_against(
    estimator: Any,
    *,
    across_processes: bool = False,
    n_models: int = 1,
    options: Options | None = None,
    keep_discriminators: bool = False,
) -> ParameterError | None:
    """Return the error that refuses a combination, None if it works; see `check_combination`."""
    name = type(estimator).__name__
    if across_processes and getattr(estimator, "joins", False):
        return ParameterError(
            f"{name} cannot run across processes: it joins the parties' tables, and the protocol "
            "has no message that may carry rows. Fix: VertiGANSynthesizer, or fit in one process"
        )
    if across_processes and getattr(estimator, "monitor", False):
        return ParameterError(
            f"{name} across processes needs monitor=False: nobody has what leakage is measured "
            "with when parties are in processes of their own"
        )
    split = hasattr(estimator, "make_objective")
    if across_processes and split and getattr(estimator, "privacy", None) is not None:
        return ParameterError(
            f"{name} across processes needs privacy=None: ε would be about the fitted models that "
            "every process has, which nobody brings together. Fix: fit in one process"
        )
    contract = getattr(estimator, "contract", None)
    if not isinstance(contract, Contract | None):
        return ParameterError(
            f"contract of {name} must be None or a Contract, got a {type(contract).__name__}"
        )
    if not hasattr(estimator, "methods"):
        return None
    privacy = estimator.privacy
    if privacy is None:
        if None in estimator.methods:
            return _nothing_to_book(name, options)
        needed = _words(kind.__name__ for kind in estimator.methods if kind is not None)
        return ParameterError(f"{name} needs privacy={needed}(...), got None")
    if not isinstance(privacy, Mechanism):
        known = _words("None" if k is None else f"{k.__name__}(...)" for k in estimator.methods)
        return ParameterError(f"privacy of {name} must be {known}, got {privacy!r}")
    if type(privacy) not in estimator.methods:
        return _wrong_mechanism(estimator, type(privacy))
    privacy.check()
    method = estimator.methods[type(privacy)]
    if privacy.protects_synthetic_data and not method.learns_of_releases():
        return PrivacyParameterError(
            "privacy",
            type(privacy).__name__,
            f"of another synthesizer than {name}: {method.__name__} makes its halves of records, "
            "and those of a private run are made of releases alone. Fix: a method with a `learner`",
        )
    return (
        _without_effect(estimator)
        or _not_with(estimator)
        or _cannot_hide(estimator)
        or _several_releases(privacy, n_models, options, keep_discriminators)
        or None
    )


def _nothing_to_book(name: str, options: Options | None) -> ParameterError | None:
    if options is None or options.account is None:
        return None
    return ParameterError(
        f"account is for private fits, and {name} has no privacy: no ε bounds what such a model "
        "reveals, so it cannot be booked. Fix: privacy=..., or leave account out"
    )


def _wrong_mechanism(estimator: Any, mechanism: type[Mechanism]) -> PrivacyParameterError:
    name = type(estimator).__name__
    known = _words(kind.__name__ for kind in estimator.methods if kind is not None)
    homes = _words(
        kind.__name__
        for kind in Members("synthesizers").values()
        if mechanism in getattr(kind, "methods", {})
    )
    use = f"{known} for {name}" if known else f"None for {name}, which has no private mode"
    return PrivacyParameterError(
        "privacy",
        mechanism.__name__,
        f"{use}: {mechanism.__name__} is for {homes or 'no synthesizer that is installed'}",
    )


def _without_effect(estimator: Any) -> ParameterError | None:
    """Refuse parameters that were changed and would not be looked at."""
    defaults = inspect.signature(type(estimator).__init__).parameters
    mechanism = type(estimator.privacy)
    unused = estimator.methods[mechanism].without_effect(mechanism)
    for parameter in sorted(unused):
        value = getattr(estimator, parameter, None)
        default = defaults[parameter].default if parameter in defaults else None
        if value is None or value is default or value == default:
            continue
        having = _words(
            "no privacy" if kind is None else kind.__name__
            for kind, method in estimator.methods.items()
            if parameter not in method.without_effect(kind)
        )
        return ParameterError(
            f"{type(estimator).__name__}: {parameter}={value!r} has no effect with "
            f"{mechanism.__name__}; it is for {having}. Fix: leave it out"
        )
    return None


def _not_with(estimator: Any) -> ParameterError | None:
    """Refuse parameters that the mechanism's method cannot go with."""
    mechanism = estimator.privacy
    reason = estimator.methods[type(mechanism)].reason_against(estimator, mechanism)
    if reason is None:
        return None
    return ParameterError(
        f"{type(estimator).__name__} with {type(mechanism).__name__} needs {reason}"
    )


def _cannot_hide(estimator: Any) -> ParameterError | None:
    """Refuse to hide how many records are common where somebody is told, or has to know."""
    privacy = estimator.privacy
    if privacy.intersection_epsilon is None:
        return None
    if not privacy.secure_sums:
        reason = "its batches are drawn from the common records, which the server counts"
    elif getattr(estimator, "joins", False):
        reason = f"whoever joins the tables for {type(estimator).__name__} sees all records"
    elif privacy.relation is NeighbouringRelation.REPLACE_ONE:
        reason = "'replace_one' takes their number as public. Fix: 'add_or_remove_one'"
    else:
        return None
    return PrivacyParameterError(
        "intersection_epsilon",
        privacy.intersection_epsilon,
        f"None for {type(privacy).__name__} here: how many records are common cannot be hidden, as "
        f"{reason}",
    )


def _several_releases(
    privacy: Mechanism, n_models: int, options: Options | None, keep_discriminators: bool
) -> ParameterError | None:
    """Refuse what would release more than the ledger counts."""
    options = options or Options()
    refused = [name for name in ("checkpoint", "resume") if getattr(options, name) is not None]
    if privacy.one_release:
        if options.replica_rows is not None:
            refused.append("replica_rows")
        if keep_discriminators:
            refused.append("keep_discriminators")
        if n_models > 1:
            refused.append("several models at once")
    if not refused:
        return None
    return ParameterError(
        f"{type(privacy).__name__} does not support {', '.join(refused)}: every fit and every "
        "resumed fit releases anew, and the ledger counts one release. Call fit once per model"
    )


def _words(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(names))
