"""The law of non-interference: what a private fit shows follows from its releases alone.

Whoever has what a fit released, noise included, must learn nothing more from its files, messages,
warnings and errors. Two tables are fitted; the second fit is handed the releases of the first, so
that all that is made of releases is the same. Whatever still differs was read off the records.

Messages are compared byte for byte, but for those that are made of records before noise is added:
of these, types and sizes. What tells numbers of records, which ledgers except, is left out where
that number is private: in the messages with which parties join, and lengths of axes of records.
What a run tells an owner of the owner's own table (`OwnTableWarning`) leaves nobody's machine.

Neighbouring tables that differ by the worst record there is say nothing of steps in the *number* of
records, unless it happens to be at one. But a fit that is handed its releases must be the same for
any two tables, not for neighbours alone. So numbers of records are tried that double: whatever
becomes of a step, the two ends of the range are on different sides of it. Where a fit differs, the
step is then found by halving, and named. What this cannot see is a function of the number that
takes the same value at all numbers that are tried.
"""

from __future__ import annotations

import gc
import json
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from vflsynth.exceptions import OwnTableWarning
from vflsynth.learning.base import Method, Party
from vflsynth.methods.parameters import reason_against
from vflsynth.privacy import NeighbouringRelation
from vflsynth.privacy.events import sampled_releases
from vflsynth.privacy.noise import discrete_gaussian
from vflsynth.privacy.releases import Grid, Ints, Release
from vflsynth.protocol.channel import MadeOf, Message, Transcript, When
from vflsynth.registry import Members
from vflsynth.run import local, party_run
from vflsynth.run.local import Options
from vflsynth.secure.ring import Arithmetic
from vflsynth.splitdefense import RandomizedResponse
from vflsynth.testing.kept import files_within
from vflsynth.testing.laws import (
    CLASSES,
    KEY,
    LABELS,
    Tables,
    private_labels,
    private_tables,
    replaced,
    require,
)

Seen = dict[str, Any]

SIZES = (20, 40, 300)
"""Numbers of records that a quick search tries."""

USUAL = 41
"""Another one, which no size of a network is."""

REPLACE = NeighbouringRelation.REPLACE_ONE

SMALL = {
    "epochs": 1,
    "batch_size": 8,
    "latent_dim": 2,
    "generator_hidden": (4,),
    "n_components": 4,
    "hidden": 4,
    "n_features": 8,
    "device": "cpu",
}
"""What makes a synthesizer fast, of the parameters that it has."""

_SAME_BATCHES = b"the same batches in both fits..."


class Tape:
    """Releases of a fit, with the sums before the noise; played again, another fit makes the same.

    `totals` are sums over records, in steps. Noise is drawn unless another fit's tape is `played`.
    What a fit in one process sends is in the `transcript`.
    """

    def __init__(self, played: Tape | None = None) -> None:
        self.transcript = Transcript(keep_messages=True)
        self._played = played
        self._made: dict[str, list[tuple[Ints, Release]]] = {}
        self._grid: Grid | None = None
        self._responses: list[torch.Tensor] = []

    @property
    def totals(self) -> list[Ints]:
        """Sums before the noise, of all threads one after the other."""
        return [total for own in sorted(self._made) for total, _ in self._made[own]]

    @property
    def releases(self) -> list[Release]:
        """What was published, in the same order."""
        return [release for own in sorted(self._made) for _, release in self._made[own]]

    @property
    def messages(self) -> list[Message]:
        """What was sent."""
        return self.transcript.messages or []

    @contextmanager
    def running(self, secret: bytes = _SAME_BATCHES) -> Iterator[Tape]:
        """Have all that is released go through the tape, and batches drawn of a secret."""
        signed, respond = Arithmetic.signed, RandomizedResponse.transform
        with ExitStack() as stack:
            for where, name, new in (
                (RandomizedResponse, "transform", lambda *own: self._respond(respond(*own))),
                (Grid, "release", lambda grid, total, *, rng=None: self._release(grid, total, rng)),
                (Grid, "noise", lambda grid, shape, *, rng=None: self._of_a_party(grid, shape)),
                (Arithmetic, "signed", lambda own, steps: self._of_all(signed(own, steps))),
                (local, "_entropy", lambda noise: secret),
                (local, "Transcript", lambda: self.transcript),
                (party_run, "_nonce", lambda: "the same batches at all sites"),
            ):
                stack.enter_context(patch.object(where, name, new))
            yield self

    def _release(self, grid: Grid, total: Ints, rng: torch.Generator | None) -> Release:
        own = threading.current_thread().name  # nodes of one process are threads
        made = self._made.setdefault(own, [])
        if self._played is None:
            found = Release(total + discrete_gaussian(total.shape, grid.sigma, rng=rng), grid)
        else:
            past = self._played._made.get(own, [])
            require(len(made) < len(past), f"release {len(made) + 1} of {len(past)}")
            found = past[len(made)][1]
            require(
                (found.grid, found.steps.shape) == (grid, total.shape),
                f"release {len(made) + 1} has shape {total.shape} and noise {grid.noise_std:g}; "
                f"that of the other table {found.steps.shape} and {found.grid.noise_std:g}",
            )
        made.append((total.copy(), found))
        return found

    def _respond(self, drawn: torch.Tensor) -> torch.Tensor:
        """Randomised labels are drawn once per replica, all at a time."""
        place = len(self._responses)
        self._responses.append(drawn if self._played is None else self._played._responses[place])
        return self._responses[place]

    def _of_a_party(self, grid: Grid, shape: Sequence[int]) -> Ints:
        """Parties of a secure sum add no noise: one draw is added to what comes out."""
        self._grid = grid
        return np.zeros(shape, np.int64)

    def _of_all(self, total: Ints) -> Ints:
        assert self._grid is not None, "parties have added their noise"
        return self._release(self._grid, total, None).steps


def observe(
    estimator: Any, tables: Tables, on: Any, tape: Tape, *, looks: int = 3
) -> tuple[Seen, Any]:
    """Fit, and return all that anybody sees of it, by where it is, and the fitted model.

    The estimator, not fitted itself, has a mechanism or label privacy; labels of a classifier are
    the last column of the table of `LABELS`. Seen are how the fit ends, its warnings, files of the
    saved model, and messages. Transcript and alignment report tell numbers of records, which the
    ledger excepts. The model is None after an error. Raises AssertionError if what makes a half can
    reach records (see `records_within`) in as many fits as there are `looks`, each with noise of
    its own: an array that noise makes as long as the tables are is found in one of some hundred.
    """
    model = clone(estimator).set_params(random_state=0)
    seen: Seen = {"how it ends": "well"}
    fitted = None
    with tape.running(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            run = _fit(model, tables, on)
            fitted = model
        except Exception as error:
            seen["how it ends"] = f"{type(error).__name__}: {error}"
    seen["warnings"] = [
        f"{own.category.__name__}: {own.message}"
        for own in said
        if not issubclass(own.category, OwnTableWarning)
    ]
    seen["number of releases"] = len(tape.releases)
    if fitted is None:
        return seen, None
    for name, node in run.parties.items():
        if within := records_within(node.learning):
            require(looks > 1, f"what makes the half of {name!r} reaches {', '.join(within)}")
            observe(estimator, tables, on, Tape(), looks=looks - 1)
    with tempfile.TemporaryDirectory() as path:
        fitted.save(Path(path) / "model")
        seen |= files_within(Path(path))
    mechanism = run.method.privacy
    counted = mechanism is None or mechanism.relation is REPLACE
    for message in tape.messages:
        place, content = as_seen(message, _is_public(message, run.method), counted=counted)
        if counted or content not in seen.setdefault(place, []):
            seen.setdefault(place, []).append(content)
    return seen, fitted


def _fit(model: Any, tables: Tables, on: Any) -> Any:
    """Fit a synthesizer, or a classifier; return the run."""
    options = Options(transcript=True)
    if LABELS not in tables:
        return model._fit_models([model], tables, on, options)
    own = dict(tables)
    labels: Any = own.pop(LABELS).set_index(on).iloc[:, -1]
    if model.active is not None:
        labels = labels.reindex(own[model.active][on]).to_numpy()
    model._prepare()
    return model._train([model], own, labels, on, options)


def records_within(learning: object) -> list[str]:
    """Return what an object can reach, by its attributes or theirs, that has records.

    That is tables with rows, arrays with as many rows as tables of `USUAL` records, and what knows
    records or their number: a party, or a method.
    """
    found, seen, left = [], set(), [learning]
    while left:
        at = left.pop()
        if id(at) in seen or isinstance(at, type | ModuleType | FunctionType):
            continue
        seen.add(id(at))
        kind = type(at).__name__
        if isinstance(at, Party | Method):
            found.append(f"a {kind}")
        elif isinstance(at, pd.DataFrame | pd.Series):
            found += [f"a {kind} of {len(at)} rows"] * (len(at) > 0)
        elif isinstance(at, np.ndarray | torch.Tensor):
            found += [f"a {kind} of shape {tuple(at.shape)}"] * (USUAL in at.shape)
            if isinstance(at, np.ndarray) and at.dtype == object:
                left += at.ravel().tolist()
        else:
            left += gc.get_referents(at)
    return found


def _is_public(message: Message, method: Method) -> bool:
    """Whether what a message holds must be the same: it follows from releases, or of no record."""
    declared = type(message).declared
    if method.privacy is None:  # of labels, which are randomised first
        return True
    cover = method.private_plan.covers.get(type(message).__name__)
    if cover is not None or declared.made_of is MadeOf.RECORDS:
        return cover is not None and cover.noised
    return declared.made_of is not MadeOf.KEYS and not declared.masked


def as_seen(message: Message, public: bool, *, counted: bool) -> tuple[str, Any]:
    """Return what must be the same of a message, and under which name.

    That is all of it if it is `public`; else types and lengths. Unless numbers of records are
    public (`counted`), lengths of axes of records and numbers of blocks are left out.
    """
    own = type(message)
    step = message.step if counted or own.declared.when is not When.BLOCK else "any"
    place = f"message {own.__name__} of {message.sender!r} to {message.receiver!r}, step {step}"
    if public:
        return place, _value(dict(message.contents()), counted)
    return place, [
        (name, str(getattr(message, name).dtype), axis, length)
        for name, held in own.held.items()
        for axis, length in zip(held.axes, getattr(message, name).shape, strict=True)
        if counted or str(axis).rpartition(" ")[2] not in _OF_RECORDS
    ]


_OF_RECORDS = {"record", "row", "block", "key"}
_NUMBERS = {"rows", "n_records"}
_NONCES = {"nonce", "nonces"}


def _value(value: Any, counted: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.cpu().numpy().tobytes()
    if isinstance(value, dict):  # also of what a party says of itself
        hidden = _NONCES if counted else _NONCES | _NUMBERS
        return {k: _value(own, counted) for k, own in value.items() if k not in hidden}
    return repr(value)


def difference(one: Seen, other: Seen) -> str:
    """Say in a line where two fits differ; empty if nobody can tell them apart."""
    places = [*one, *(place for place in other if place not in one)]
    for place in sorted(places, key=lambda place: place.endswith("manifest.json")):  # of digests
        if place not in one or place not in other:
            return f"{place!r} is there for one table only"
        a, b = one[place], other[place]
        if a == b:
            continue
        if place.endswith(".json"):
            where, a, b = next(_leaves(json.loads(a), json.loads(b), place))
            place = where
        elif isinstance(a, bytes):
            a, b = (f"{len(own)} bytes" if len(a) != len(b) else "other bytes" for own in (a, b))
        return f"{place!r} is {_short(a)} for one table, and {_short(b)} for the other"
    return ""


def _leaves(one: Any, other: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Find the parts in which two contents of JSON differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name, own in one.items():
            yield from _leaves(own, other[name], f"{where}, {name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for own, its in zip(one, other, strict=True):
            yield from _leaves(own, its, where)
    elif one != other:
        yield where, one, other


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


# -- the law ---------------------------------------------------------------------------------------


def ready(estimator: Any) -> Any:
    """Return a clone that knows what is public of `private_tables` and `private_labels`."""
    made = clone(estimator)
    if hasattr(made, "classes"):
        made.set_params(classes=CLASSES)
    if getattr(made, "privacy", None) is not None:
        given = {"public_schema": private_tables(1)[1], "n_records": USUAL}
        known = made.privacy.get_params(deep=False)
        made.privacy.set_params(**{name: value for name, value in given.items() if name in known})
    return made


def _tables_for(estimator: Any, n_records: int) -> Tables:
    """Return tables, and labels for a classifier."""
    labels = {LABELS: private_labels(n_records)} if hasattr(estimator, "label_privacy") else {}
    return private_tables(n_records)[0] | labels


def _neighbours_for(estimator: Any) -> dict[str, Tables]:
    """Return neighbours of tables of the usual number of records; if labels are private, of these.

    What is released of a larger table may be more than the smaller one can have, by a chance of
    10^-88.
    """
    tables, more = _tables_for(estimator, USUAL), _tables_for(estimator, USUAL + 1)
    if getattr(estimator, "privacy", None) is None:
        one = {LABELS: tables[LABELS]}
        return {how: {**tables, **own} for how, own in replaced(one).items()}
    if estimator.privacy.relation is REPLACE:
        return replaced(tables)
    first = next(iter(tables))
    one_more = {"": more, f"at {first!r} alone": {**tables, first: more[first]}}
    return {
        f"with one record more {how}".strip(): own
        for how, own in (one_more | replaced(more)).items()
    }


def carriers(mechanism: Any) -> list[Any]:
    """Return the registered synthesizers that can have a mechanism, as small as can be.

    Raises AssertionError if none does, or one carries it to a method that makes halves of records.
    """
    found = []
    for kind in Members("synthesizers").values():
        method = getattr(kind, "methods", {}).get(type(mechanism))
        if method is not None:
            require(
                method.learns_of_releases() or not mechanism.protects_synthetic_data,
                f"{kind.__name__} carries it to {method.__name__}, which makes halves of records",
            )
            known = kind().get_params(deep=False)
            small = {name: value for name, value in SMALL.items() if name in known}
            made = kind(**small, privacy=clone(mechanism))
            if reason_against(made) is None:
                found.append(made)
    require(found, "no registered synthesizer has it among its methods: nothing was tried")
    return found


def what_tells_records_apart(estimator: Any) -> list[str]:
    """Return what tells neighbouring tables apart, though their releases are the same.

    There is one text for each neighbour that differs, with the first place where it does. The
    estimator has a mechanism that protects the synthetic data, or label privacy.
    """
    estimator = ready(estimator)
    one, model = observe(estimator, _tables_for(estimator, USUAL), KEY, tape := Tape())
    require(model is not None, f"the law needs a fit that ends well: {one['how it ends']}")
    found = []
    for how, changed in _neighbours_for(estimator).items():
        other, _ = observe(estimator, changed, KEY, again := Tape(tape))
        if said := difference(one, other) or overspent(model, tape, again):
            found.append(f"a table {how}: {said}")
    return found


def overspent(model: Any, tape: Tape, again: Tape) -> str:
    """Say how far a record moved all that was released, if its ledger pays for less; else nothing.

    In squared standard deviations of the noise, which add up; batches are not drawn anew.
    """
    if not getattr(model, "privacy", None):
        return ""
    made = zip(tape.totals, again.totals, tape.releases, strict=False)
    moved = sum(float(np.square((a - b) / release.grid.sigma).sum()) for a, b, release in made)
    parts = sampled_releases(model.privacy_ledger_.event)
    paid = sum(part.steps / part.joint_noise_multiplier**2 for part in parts)
    if moved <= paid * (1.0 + 1e-9):
        return ""
    return (
        f"it moves what is released by {moved:.3g} squared noises; the ledger pays for {paid:.3g}"
    )


def what_is_as_it_is(estimator: Any) -> list[str]:
    """Return what messages hold without noise, though they or the ledger say otherwise.

    That is tensors of masked messages that are the same whatever the parties' secret, and messages
    with neither noise nor mask if the ledger does not except the server, which gets them.
    """
    tapes = [first := Tape(), Tape(first)]
    for tape, secret in zip(tapes, (_SAME_BATCHES, _SAME_BATCHES[::-1]), strict=True):
        with tape.running(secret), warnings.catch_warnings(action="ignore"):
            run = _fit(ready(estimator), _tables_for(estimator, USUAL), KEY)
    runs = [[own for own in tape.messages if own.declared.masked] for tape in tapes]
    found = [
        f"{type(one).__name__}.{name} of {one.sender!r}, masked, is the same with another secret"
        for one, other in zip(*runs, strict=True)
        for name in one.held
        if torch.equal(getattr(one, name), getattr(other, name)) and getattr(one, name).numel()
    ]
    covers, ledger = run.method.private_plan.covers, run.method.private_plan.ledger
    bare = {type(own).__name__ for own in first.messages if not own.declared.masked}
    bare = {name for name in bare & covers.keys() if not covers[name].noised}
    if bare and not any(whom.startswith("the server:") for whom in ledger.not_protected_against):
        found.append(f"not_protected_against lacks 'the server: ...', which gets {sorted(bare)}")
    return found


def what_tells_numbers_apart(estimator: Any, sizes: Sequence[int] = SIZES) -> list[str]:
    """Return the steps in the number of records that show, though releases are the same.

    The number of records is private for the estimator's mechanism. Releases are those of the
    smallest of the sizes; every step that is found by halving is told with its two numbers, one
    apart.
    """
    estimator, (least, *others) = ready(estimator), sorted(sizes)
    base, model = observe(estimator, _tables_for(estimator, least), KEY, tape := Tape())
    require(model is not None, f"the law needs a fit that ends well: {base['how it ends']}")

    def told(n_records: int) -> str:
        seen, _ = observe(estimator, _tables_for(estimator, n_records), KEY, Tape(tape))
        return difference(base, seen)

    found = []
    for size in others:
        if not (said := told(size)):
            continue
        same, differs = least, size
        while abs(same - differs) > 1:
            middle = (same + differs) // 2
            if says := told(middle):
                differs, said = middle, says
            else:
                same = middle
        found.append(f"{same} and {differs} records, though the releases are the same: {said}")
    return list(dict.fromkeys(found))


def check_private(estimator: Any) -> None:
    """Check that nothing but its releases shows what records a private fit had, or how many.

    A record moves these by no more than the ledger pays for, and messages hide what they say they
    hide. If the mechanism does not protect the synthetic data, there is nothing to check. Raises
    AssertionError with all that was found.
    """
    privacy = estimator.get_params(deep=False).get("privacy")
    if privacy is None or not privacy.protects_synthetic_data:
        return
    found = what_tells_records_apart(estimator) + what_is_as_it_is(estimator)
    if privacy.relation is NeighbouringRelation.ADD_OR_REMOVE_ONE:
        found += what_tells_numbers_apart(estimator)
    require(not found, "; ".join(found))
