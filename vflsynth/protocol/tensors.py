"""What a tensor of a message is: its type and its axes, declared with the field that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from typing import Any

import torch
from torch import Tensor

from vflsynth.exceptions import ProtocolError

_KEY = "vflsynth tensor"

REAL = torch.float32, torch.float64
"""Of what networks and other models compute."""
PACKED = *REAL, torch.float16, torch.int8
"""The same as senders round it, see `vflsynth.protocol.precision`."""
STEPS = torch.int32, torch.int64
"""Whole numbers of 32 bits or, where sums need more, of 64."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a tensor must be.

    Parameters
    ----------
    types : tuple of torch.dtype
        Any of them.
    axes : tuple of str or int
        Names of the axes, or their lengths; axes of one name are equally long throughout a message.
    """

    types: tuple[torch.dtype, ...]
    axes: tuple[str | int, ...]

    def accepts(self, tensor: Tensor, lengths: dict[str, int]) -> bool:
        """Say whether a tensor is so; `lengths`, of the axes before it, gets those of its own."""
        if tensor.dtype not in self.types or tensor.dim() != len(self.axes):
            return False
        return all(
            length == (axis if isinstance(axis, int) else lengths.setdefault(axis, length))
            for axis, length in zip(self.axes, tensor.shape, strict=True)
        )

    def words(self, lengths: Mapping[str, int]) -> str:
        """Say what it must be, with the lengths that are known."""
        known = {axis: f"{axis}={length}" for axis, length in lengths.items()}
        axes = ", ".join(known.get(str(axis), str(axis)) for axis in self.axes)
        return f"{' or '.join(map(_name, self.types))} of shape ({axes})"


def holds(types: torch.dtype | tuple[torch.dtype, ...], *axes: str | int) -> Any:
    """Declare a tensor of a message, see `Held`; in place of a field's default value.

    Examples
    --------
    ``sizes: Tensor = holds(torch.int64, "column")``
    """
    kinds = types if isinstance(types, tuple) else (types,)
    return field(metadata={_KEY: Held(kinds, axes)})


def held_by(name: str, declared: tuple[Field[Any], ...]) -> dict[str, Held]:
    """Return what the tensors of a class of messages must be, by field.

    Raises
    ------
    ProtocolError
        If a field is a tensor and does not say of which type and axes.
    """
    for own in declared:
        if own.type in ("Tensor", "torch.Tensor", Tensor) and _KEY not in own.metadata:
            raise ProtocolError(
                f"{name}.{own.name} is a tensor of any kind. Fix: declare its type and axes, as in "
                f'{own.name}: Tensor = holds(torch.int64, "column")'
            )
    return {own.name: own.metadata[_KEY] for own in declared if _KEY in own.metadata}


def problem_of(tensors: Mapping[str, Tensor], held: Mapping[str, Held]) -> str | None:
    """Say which tensor is not what it must be, and what it must be; None if all are."""
    lengths: dict[str, int] = {}
    for name, expected in held.items():
        before, tensor = dict(lengths), tensors[name]
        if not expected.accepts(tensor, lengths):
            return (
                f"{name} are {_name(tensor.dtype)} of shape {tuple(tensor.shape)}; expected "
                f"{expected.words(before)}"
            )
    return None


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
