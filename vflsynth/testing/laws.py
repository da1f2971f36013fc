"""What a law is, and how it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


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

        Raises
        ------
        AssertionError
            Naming the law, the object and what was found.
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


def require(holds: object, otherwise: str) -> None:
    """Raise AssertionError with a text unless something holds."""
    if not holds:
        raise AssertionError(otherwise)
