"""Parameters that several synthesizers have, once, and which features go together.

Whatever does not go together is refused here, with the reason (`check_combination`).

A class takes an entry into its docstring by naming it in braces on a line of its own, alone or
with others: ``{epochs, learning_rate}``. The default is read from the signature. ``{no effect}``
becomes what each mechanism makes useless, as the methods declare it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import fill, indent
from typing import Any, Self

from sklearn.base import BaseEstimator

from vflsynth.columns import TableTransformer
from vflsynth.contract import Contract
from vflsynth.exceptions import ParameterError, PrivacyParameterError
from vflsynth.mechanisms import Mechanism
from vflsynth.privacy import NeighbouringRelation
from vflsynth.protocol.channel import PRECISIONS
from vflsynth.registry import Choice, Map, Members, Number, Optional, Pair, Rule, Sizes, find
from vflsynth.run.local import Options

_WIDTH = 100
_POSITIVE = Number(0, closed=(False, True))
_SHARE = Number(0, 1, closed=(True, False))
_YES_OR_NO = Choice((True, False))
_LINE = re.compile(r"^( *)\{([a-z_, ]+)\}$", re.M)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter's type and meaning, for people, and what it may be, for `fit`.

    `kind` is the type, as numpydoc has it; `text` names the default where that is None. Without a
    rule other code checks it.
    """

    kind: str
    text: str
    rule: Rule | None = None


PARAMETERS = {
    "latent_dim": Parameter(
        "int",
        "Random numbers that one synthetic record is made of, the same at all parties (the paper's "
        "l). Default: from the encoded width.",
        Optional(Number(1, whole=True)),
    ),
    "generator_hidden": Parameter(
        "sequence of int",
        "Hidden layer sizes of the generators. Default: two, of a size that follows from the "
        "encoded width and, without `privacy`, the number of records.",
        Optional(Sizes()),
    ),
    "bias": Parameter("bool", "Whether hidden and discriminator layers have biases.", _YES_OR_NO),
    "batch_norm_eps": Parameter(
        "float or None",
        "Of the generators' batch normalisation (the reference code has 0.8); None leaves it out.",
        Optional(_POSITIVE),
    ),
    "gumbel_temperature": Parameter(
        "float",
        "How soft the choice between categories is that generators are trained with; small is "
        "nearly a hard choice (straight-through Gumbel-softmax).",
        _POSITIVE,
    ),
    "gradient_penalty_weight": Parameter(
        "float",
        "How strongly the slope of discriminators is held near one: large is smooth and slow, "
        "small may diverge (λ of Eqs. 3 and 4).",
        Number(0),
    ),
    "discriminator_steps": Parameter(
        "int",
        "How often discriminators move per step of the generators (T_d).",
        Number(1, whole=True),
    ),
    "batch_size": Parameter(
        "int",
        "Records per discriminator step. Default: from the number of records.",
        Optional(Number(2, whole=True)),
    ),
    "epochs": Parameter(
        "int",
        "Passes over the records. Default: as many as give about 15,000 discriminator steps.",
        Optional(Number(1, whole=True)),
    ),
    "learning_rate": Parameter("float", "How far a step goes, for all networks (Adam).", _POSITIVE),
    "betas": Parameter(
        "tuple of float",
        "How long steps and their sizes are remembered, 0 to 1 (decay rates of Adam's moments). "
        "Default: (0, 0.9), WGAN-GP's, and (0.5, 0.999), as the reference code of VFLGAN has them, "
        "with `privacy`.",
        Optional(Pair(_SHARE)),
    ),
    "generator_average": Parameter(
        "float",
        "Decay per generator step of an exponential average of the generators, which is what is "
        "evaluated, kept and sampled from; after t steps at most (1 + t)/(10 + t): starts are "
        "forgotten. 0 uses the generators themselves.",
        _SHARE,
    ),
    "model_selection": Parameter(
        '{"best", "last"}',
        "Keep the generators of the last epoch, or of that with the lowest Fréchet distance, which "
        "the server learns from masked records.",
        Choice(("best", "last")),
    ),
    "evaluate_every": Parameter(
        "int",
        "Epochs between evaluations of the Fréchet distance, to select by. Default: at most 20 "
        "evaluations, the last epoch's among them.",
        Optional(Number(1, whole=True)),
    ),
    "calibrate_marginals": Parameter(
        "bool",
        "Whether every party, once training is over, gives its generated columns the marginals of "
        "its records: categories their shares, numbers their quantiles, each the mean of ten "
        "records or more. Order stays, and with it the relations between columns. False is the "
        "paper's.",
        _YES_OR_NO,
    ),
    "resample": Parameter(
        "int",
        "Rows that are drawn for each that comes out. Of more than one, those stay that a "
        "classifier takes for real, which the server trains at the end on random features of "
        "records and of drawn rows, with every column's distribution as drawn. Rows are harder to "
        "tell and break fewer rules; the server is shown more, and no party can sample alone. Not "
        "with `privacy`.",
        Number(1, 64, whole=True),
    ),
    "wire_precision": Parameter(
        '{"float32", "float16", "int8"}',
        "Of what parties and server exchange at every step. With fewer bits a model is another "
        "one, but the same in one process and across processes.",
        Choice(PRECISIONS),
    ),
    "column_kinds": Parameter(
        "mapping",
        'Column label to kind, over all parties: "continuous", "integer", "boolean", '
        '"categorical", "ordered", "datetime". Default: inferred, see '
        "`vflsynth.columns.kinds.infer_kind`.",
        Optional(Map("column labels to kinds")),
    ),
    "contract": Parameter(
        "Contract",
        "What is modelled, what may come out and which rules hold in every sampled row, see "
        "`vflsynth.contract`.",
    ),
    "structure": Parameter(
        '{"exact", "ignore"}',
        '"exact" keeps relations that hold in all of a party\'s records in every sampled row: '
        "columns that others compute or determine, orders, values that fix others; whole numbers "
        "that are codes count as labels. Columns of the contract's rules are left to these. See "
        "`vflsynth.contract.discover`. With `privacy` nothing is looked for: declare rules in the "
        "contract.",
        Choice(("exact", "ignore")),
    ),
    "transformer": Parameter(
        "TableTransformer", "Cloned for every party. Default: ``TableTransformer()``."
    ),
    "memory_limit": Parameter(
        "float",
        "Bytes that a fit may take by our estimate. Default: 90 % of what is free now.",
        Optional(_POSITIVE),
    ),
    "device": Parameter("str", '"auto" takes a GPU when there is one; else a torch device.'),
    "random_state": Parameter(
        "int, numpy Generator, RandomState or None",
        "Seeds everything but the noise of mechanisms; on one CPU the same integer gives the same "
        "bytes.",
    ),
    "verbose": Parameter("int", "0 shows no progress.", Number(0, whole=True)),
}

ATTRIBUTES = {
    "parties_": Parameter("dict of str to PartyModel", "Each party's half of the model."),
    "alignment_": Parameter(
        "AlignmentReport", "Matched, dropped and duplicated records per party."
    ),
    "history_": Parameter("DataFrame", "Empty: nothing is trained in epochs."),
    "settings_": Parameter("dict", "Sizes and rates after defaults were filled in."),
    "device_": Parameter("str", "Where it was trained."),
    "interrupted_": Parameter("bool", "Whether Ctrl-C ended training early."),
    "transcript_": Parameter(
        "DataFrame or None", "Messages and bytes per boundary, if ``fit(transcript=True)``."
    ),
    "privacy_ledger_": Parameter(
        "PrivacyLedger or None",
        "What was released, what it cost and what it does not cover; print it. None without "
        "`privacy`.",
    ),
}


class WithParts(BaseEstimator):  # type: ignore[misc]
    """An estimator some of whose parameters are objects with parameters of their own."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``transformer__...`` changes the default encoding if there is no other.

        Parameters
        ----------
        **params
            As of scikit-learn.

        Raises
        ------
        ParameterError
            If a parameter is one of an object that is not there.
        """
        known = self.get_params(deep=False)
        for name in [name for name in params if "__" in name]:
            owner, _, own = name.partition("__")
            part = params.get(owner, known.get(owner))
            if owner == "transformer" and part is None:
                part = TableTransformer()
            elif owner == "privacy" and isinstance(part, str):
                part = mechanism_of(part)
            if owner not in known:
                continue  # scikit-learn refuses it
            if not hasattr(part, "set_params"):
                raise ParameterError(
                    f"{name}: set {owner} to an object that has {own!r} first; it is {part!r}"
                )
            params[owner] = part
        super().set_params(**params)
        return self


def mechanism_of(text: str) -> Mechanism:
    """Return the mechanism that a text says, with its parameters."""
    name, *said = (part.strip() for part in text.split(","))
    values = (part.partition("=") for part in said)
    try:
        given = {key.strip(): json.loads(value) for key, _, value in values}
        if len(given) < len(said):
            raise ValueError("one is said twice")
    except ValueError:
        raise ParameterError(
            f"privacy={text!r} cannot be read. Fix: a mechanism and its parameters, such as "
            "'pairwise_tables, epsilon=3, delta=1e-6'"
        ) from None
    try:
        made: Mechanism = find(name, "mechanisms")(**given)
    except (ParameterError, TypeError) as error:
        raise ParameterError(f"privacy={text!r}: {error}") from error
    return made


def rules_of(estimator: type[Any], own: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return what each parameter of an estimator may be; a class's own rules come first."""
    names = inspect.signature(estimator.__init__).parameters
    shared = {name: found.rule for name, found in PARAMETERS.items() if name in names}
    return {**{name: rule for name, rule in shared.items() if rule is not None}, **own}


def document(estimator: type[Any]) -> None:
    """Put the entries that an estimator's docstring names where it names them."""
    if estimator.__doc__:
        estimator.__doc__ = _LINE.sub(lambda found: _entries(estimator, found), estimator.__doc__)


def _entries(estimator: type[Any], found: re.Match[str]) -> str:
    margin, named = found[1], found[2]
    if named == "no effect":
        return _wrapped(_no_effect(estimator), margin)
    defaults = _parameters(estimator)
    return "\n".join(
        indent(_head(name, defaults), margin)
        + "\n"
        + _wrapped((PARAMETERS | ATTRIBUTES)[name].text, margin + "    ")
        for name in named.split(", ")
    )


def _head(name: str, defaults: Mapping[str, Any]) -> str:
    if name in ATTRIBUTES:
        return f"{name} : {ATTRIBUTES[name].kind}"
    default, kind = defaults[name], PARAMETERS[name].kind
    if default is None:
        return f"{name} : {kind}, " + ("default=None" if "None" in kind else "optional")
    shown = f'"{default}"' if isinstance(default, str) else f"{default!r}"
    return f"{name} : {kind}, default={shown}"


def _no_effect(estimator: type[Any]) -> str:
    """Say which parameters each mechanism makes useless."""
    parts = [
        f"with `{mechanism.__name__}` " + ", ".join(f"`{name}`" for name in sorted(unused))
        for mechanism, method in estimator.methods.items()
        if mechanism is not None
        if (unused := method.without_effect(mechanism) & {*_parameters(estimator)})
    ]
    if not parts:
        return "Every parameter has an effect with every mechanism."
    return "No effect, and refused unless they are the default: " + "; ".join(parts) + "."


def _parameters(estimator: type[Any]) -> dict[str, Any]:
    """Return defaults by name: of the signature, and of what will be fields of a dataclass."""
    signature = inspect.signature(estimator.__init__).parameters
    fields = {name: vars(estimator).get(name) for name in inspect.get_annotations(estimator)}
    return {name: parameter.default for name, parameter in signature.items()} | fields


def _wrapped(text: str, margin: str) -> str:
    return fill(text, _WIDTH, initial_indent=margin, subsequent_indent=margin)


def check_combination(estimator: Any, **how: Any) -> None:
    """Refuse what does not go together: ParameterError has the reason, and what to use instead.

    `how` are keywords of `reason_against`.
    """
    reason = reason_against(estimator, **how)
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
    """Return the error that refuses a combination, None if it works.

    Parties may have a process of their own each; `n_models` are fitted at once.
    """
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
            f"contract of {name} must be None or a Contract, got a {type(contract).__name__}. Fix: "
            "vflsynth.contract.read_contract reads a file"
        )
    if not hasattr(estimator, "methods"):
        return None
    privacy = estimator.privacy
    options = options or Options()
    if privacy is None and None not in estimator.methods:
        needed = _words(kind.__name__ for kind in estimator.methods if kind is not None)
        return ParameterError(f"{name} needs privacy={needed}(...), got None")
    if privacy is None:
        if options.account is None:
            return None
        return ParameterError(
            f"account is for private fits, and {name} has no privacy: no ε bounds what such a "
            "model reveals, so it cannot be booked. Fix: privacy= (--privacy), or leave account out"
        )
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
    if (useless := _without_effect(estimator)) is not None:
        return useless
    if (needed := method.reason_against(estimator, privacy)) is not None:
        return ParameterError(f"{name} with {type(privacy).__name__} needs {needed}")
    return _cannot_hide(privacy) or _several_releases(
        privacy, n_models, options, keep_discriminators
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


def _cannot_hide(privacy: Mechanism) -> ParameterError | None:
    """Refuse to hide how many records are common where somebody is told, or has to know."""
    if privacy.intersection_epsilon is None:
        return None
    if not privacy.secure_sums:
        reason = "its batches are drawn from the common records, which the server counts"
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
    privacy: Mechanism, n_models: int, options: Options, keep_discriminators: bool
) -> ParameterError | None:
    """Refuse what would release more than the ledger counts."""
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
