"""Every error this package raises on purpose: what happened, where, and what to do next.

All of them derive from `VFLSynthError`. Errors about input tables carry the party, the
column and positions of example rows as attributes, so that a program can react to them as well as a
person.
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self


class VFLSynthError(Exception):
    """Base class of all errors raised on purpose by vflsynth."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it come back from a worker process, whatever `__init__` needs."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class ParameterError(VFLSynthError, ValueError):
    """A parameter of an estimator has a value outside its documented range."""


def _where(**known: object) -> str:
    """Return what an error is about, of what is known, before a colon."""
    said = [f"{name} {value!r}" for name, value in known.items() if value is not None]
    return f"{', '.join(said)}: " if said else ""


class PartyDataError(VFLSynthError, ValueError):
    """A party's table cannot be used as it is.

    Parameters
    ----------
    problem : str
        What is wrong, with the numbers.
    fix : str
        What the owner of the table can do about it.
    party : str, optional
        Name of the party whose table it is.
    column : object, optional
        Name of the offending column.
    rows : sequence of int, optional
        Positions, from 0, of up to a few rows that show the problem: messages and logs have neither
        values nor keys.
    """

    def __init__(
        self,
        problem: str,
        *,
        fix: str,
        party: str | None = None,
        column: Any = None,
        rows: Sequence[Any] = (),
    ) -> None:
        self.problem, self.fix, self.party, self.column = problem, fix, party, column
        self.rows = tuple(rows)
        shown = ", ".join(repr(row) for row in self.rows[:5])
        super().__init__(
            _where(party=party, column=column)
            + problem.rstrip(".")
            + (f" (for example in rows {shown})" if shown else "")
            + f". Fix: {fix.rstrip('.')}."
        )

    def about(self, **known: Any) -> Self:
        """Return the same error with another `party`, `column` or `rows`."""
        told = {"party": self.party, "column": self.column, "rows": self.rows} | known
        return type(self)(self.problem, fix=self.fix, **told)


class PartyNameError(PartyDataError):
    """A party's name is not text, or cannot be the name of a folder."""


class ColumnNameError(PartyDataError):
    """A column name is repeated inside a table, unknown, or neither text nor an integer."""


class NoColumnsError(PartyDataError):
    """A table has no column to model."""


class TableFileError(PartyDataError):
    """A file cannot be read or written as a table."""


class DuplicateKeyError(PartyDataError):
    """A key value occurs more than once in one party's table."""


class MissingKeyError(PartyDataError):
    """The key column is absent or has missing values."""


class KeyTypeError(PartyDataError):
    """The key columns of two parties have different types, so that no key could ever match."""


class SharedColumnError(PartyDataError):
    """Two parties own a column of the same name (the VFLGAN paper's assumption 2)."""


class NoOverlapError(PartyDataError):
    """The parties have no record in common."""


class TooFewRecordsError(PartyDataError):
    """Fewer matched records than a training batch, or a model without a guarantee, needs."""


class EmptyColumnError(PartyDataError):
    """A column has no value at all."""


class ColumnKindError(PartyDataError):
    """A column's values do not fit the kind that was inferred or asked for."""


class CardinalityError(PartyDataError):
    """A column has too many distinct values to be one-hot encoded, or to be published unasked."""


class IdentifierError(CardinalityError):
    """A column looks like identifiers, names or free text, and nobody said what becomes of it."""


class InfiniteValueError(PartyDataError):
    """A numeric column holds plus or minus infinity."""


class UnseenValueError(PartyDataError):
    """A value cannot be encoded because it did not occur when the transformer was fitted."""


class ConditionError(PartyDataError, ParameterError):
    """Records are asked for that the model does not, or hardly ever, draw."""


class ColumnMismatchError(PartyDataError):
    """A table's columns are not the columns that the transformer was fitted on."""


class EncodedMatrixError(VFLSynthError, ValueError):
    """A matrix to decode has the wrong shape or holds NaN."""


class MemoryLimitError(PartyDataError):
    """The estimated memory of a fit exceeds the limit."""


class TimeLimitError(VFLSynthError, ValueError):
    """The estimated time of a fit exceeds the limit."""


class ContractError(VFLSynthError, ValueError):
    """A publishing contract is malformed, or contradicts tables, parameters or another party's."""


class RuleError(ContractError):
    """Too few drawn rows keep the rules of a contract."""


class ArtefactError(VFLSynthError, ValueError):
    """A saved model or checkpoint is truncated, foreign or was tampered with."""


class ArtefactVersionError(ArtefactError):
    """A saved model was written by a version that this one cannot read."""


class UnusableFileError(ArtefactError, ParameterError):
    """A file or folder of settings, a key or a start-up kit is not there, or cannot be used."""


class TrainingDivergedError(VFLSynthError, ArithmeticError):
    """A loss stopped being finite."""


class ProtocolError(VFLSynthError, RuntimeError):
    """A message does not follow the protocol: wrong kind, shape, step or sender."""


class ExchangeError(ProtocolError):
    """An exchange between organisations failed.

    Parameters
    ----------
    problem : str
        What happened.
    fix : str
        What to do next.
    party : str, optional
        Whose message or silence it was.
    step : int, optional
        The training step, or epoch, that could not be finished; None if there is none.
    """

    def __init__(
        self, problem: str, *, fix: str, party: str | None = None, step: int | None = None
    ) -> None:
        self.problem, self.fix, self.party, self.step = problem, fix, party, step
        where = _where(party=party, step=step)
        super().__init__(f"{where}{problem.rstrip('.')}. Next: {fix.rstrip('.')}.")


class PartyLostError(ExchangeError):
    """A party, or the server, did not answer in time."""


class PartyStoppedError(ExchangeError):
    """A party met an error of its own and stopped the run."""


class MisalignedError(ExchangeError):
    """Parties disagree about secret, records or batch, as their keyed tags show."""


class ProtocolMismatchError(ExchangeError):
    """Nodes run different versions, jobs or runs."""


class PayloadRejectedError(ExchangeError):
    """A frame is damaged, too large, not finite, or not what was asked for."""


class RunAbortedError(ExchangeError):
    """Another node stopped the run; the message has its reason."""


class RunInterruptedError(RunAbortedError):
    """A party was lost or the server restarted; all begin again from the last common checkpoint."""


class ConsentError(ExchangeError):
    """A site was asked to take part in a job that nobody there approved."""


class ToldTooMuchError(ExchangeError):
    """More bits of every record would leave a site than its site file allows."""


class AccountRewoundError(ExchangeError):
    """A site's privacy account lacks what others remember of it."""


class NoCommonCheckpointError(ExchangeError):
    """The nodes have no checkpoint of the same epoch of this run."""


class MissingExtraError(VFLSynthError, ImportError):
    """An optional dependency is needed; the message names the extra to install.

    Parameters
    ----------
    feature : str
        What was asked for.
    package : str
        The package that could not be imported.
    extra : str
        The extra of vflsynth that brings it.
    """

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the package {package!r}. Install it with: "
            f"pip install 'vflsynth[{extra}]'"
        )


class PrivacyParameterError(ParameterError):
    """A privacy parameter is missing or out of range.

    Parameters
    ----------
    name : str
        Name of the parameter.
    value : object
        What was received.
    expected : str
        What it must be.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        self.name, self.value = name, value
        super().__init__(f"{name} must be {expected.rstrip('.')}; received {value!r}.")


class UnsupportedEventError(VFLSynthError, ValueError):
    """An accountant is not valid for the sampling scheme and neighbouring relation of an event."""


class PrivacyBudgetError(VFLSynthError, RuntimeError):
    """A privacy budget cannot be met, or the next step would overshoot it."""


class PublishingWarning(UserWarning):
    """A table is probably not what its owner means to model or to publish."""


class OwnTableWarning(UserWarning):
    """What a private run tells an owner of the owner's own table, and nobody else.

    It may say what single records have: it is no part of what a guarantee is about, and is neither
    sent, saved with a model, nor published.
    """


class NoPrivacyWarning(UserWarning):
    """A mechanism, or a delta, was asked for that does not protect the synthetic data."""


_PACKAGE = str(Path(__file__).parent) + os.sep


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn from the first caller outside this package, however deep inside we are."""
    frame, stacklevel = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(message, category, stacklevel=stacklevel)


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return what somebody may have meant, in parentheses; nothing if nothing is near.

    Examples
    --------
    >>> did_you_mean("epoch", ["epochs", "batch_size"])
    " (did you mean 'epochs'?)"
    """
    folded = {text.casefold(): text for text in map(str, known)}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""
