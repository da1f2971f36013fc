"""Participants: what answers questions and takes messages, each kind by a method of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from vflsynth.exceptions import ProtocolError
from vflsynth.protocol.declaration import Message

F = TypeVar("F", bound=Callable[..., Any])


def answers(kind: type[Message]) -> Callable[[F], F]:
    """Mark a method ``(self, step) -> message`` as what answers a question for this kind."""
    return _mark("_answers", kind)


def takes(kind: type[Message]) -> Callable[[F], F]:
    """Mark a method ``(self, message) -> None`` as what acts on messages of this kind."""
    return _mark("_takes", kind)


def _mark(mark: str, kind: type[Message]) -> Callable[[F], F]:
    def marked(method: F) -> F:
        setattr(method, mark, kind)
        return method

    return marked


class Participant:
    """Anything with a name that a channel reaches.

    Subclasses mark methods with `answers` and `takes`. A method that overrides a marked one is
    asked in its place, and need not be marked again.
    """

    name: str
    _by_question: ClassVar[dict[type[Message], str]] = {}
    _by_message: ClassVar[dict[type[Message], str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        asked, taken = {}, {}
        for base in reversed(cls.__mro__):
            for name, member in vars(base).items():
                if (kind := getattr(member, "_answers", None)) is not None:
                    asked[kind] = name
                if (kind := getattr(member, "_takes", None)) is not None:
                    taken[kind] = name
        cls._by_question, cls._by_message = asked, taken

    def answer(self, kind: type[Message], step: int) -> Message:
        """Compute the message of this kind for `step`.

        Raises
        ------
        ProtocolError
            If this participant has no answer.
        """
        method = self._by_question.get(kind)
        if method is None:
            raise ProtocolError(f"party {self.name!r} cannot answer {kind.__name__}")
        found: Message = getattr(self, method)(step)
        return found

    def take(self, message: Message) -> None:
        """Act on a message from the server.

        Raises
        ------
        ProtocolError
            If this participant does not expect it.
        """
        method = self._by_message.get(type(message))
        if method is None:
            raise ProtocolError(f"party {self.name!r} cannot take {type(message).__name__}")
        getattr(self, method)(message)
