"""Numbers in fewer bits: what senders make of features and gradients before they leave.

A message holds the packed numbers themselves, so what a transcript counts is what crosses, and runs
in one process and across processes compute with the same rounded numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from vflsynth.exceptions import PayloadRejectedError
from vflsynth.protocol.declaration import Message

Precision: TypeAlias = Literal["float32", "float16", "int8"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

_BLOCK, _SCALE = 128, 4
"""Numbers that share a scale, and its bytes."""
_LARGEST = 127.0


def pack(
    values: Tensor, precision: Precision, uniform: Callable[[tuple[int, ...]], Tensor]
) -> Tensor:
    """Round numbers.

    Parameters
    ----------
    values : Tensor of float32, shape (replica, row, column)
    precision : {"float32", "float16", "int8"}
        "int8" has a scale for every 128 numbers of a row, and rounds up or down at random so that
        the mean is right (stochastic rounding).
    uniform : callable
        Draws from [0, 1) of shape (replica, *shape), given the shape; asked for "int8" only.

    Returns
    -------
    Tensor
        Of this type; for "int8" each row's numbers are followed by the bytes of its scales.
    """
    if precision == "float32":
        return values
    if precision == "float16":
        return values.half()
    rows, columns = values.shape[1:]
    blocks = -(-columns // _BLOCK)
    padded = F.pad(values, (0, blocks * _BLOCK - columns)).reshape(-1, rows, blocks, _BLOCK)
    scales = padded.abs().amax(-1, keepdim=True) / _LARGEST
    draws = uniform((rows, blocks, _BLOCK))
    # What is not finite makes a scale that is not, which `unpack` refuses.
    rounded = torch.floor(torch.nan_to_num(padded / scales) + draws).clamp(-_LARGEST, _LARGEST)
    numbers = rounded.to(torch.int8).flatten(-2)[..., :columns]
    return torch.cat([numbers, scales.squeeze(-1).contiguous().view(torch.int8)], -1)


def unpack(packed: Tensor, precision: Precision) -> Tensor:
    """Return the numbers that `pack` rounded to.

    Parameters
    ----------
    packed : Tensor, shape (replica, row, column), with the bytes of scales
    precision : {"float32", "float16", "int8"}

    Returns
    -------
    Tensor of float32
        Of any shape: whoever takes it checks that.

    Raises PayloadRejectedError if it is of another type, or was packed and cannot be read or is
    not finite.
    """
    exact = precision == "float32" and packed.dtype == torch.float64  # of networks in double
    if packed.dtype != getattr(torch, precision) and not exact:
        raise _refused(f"numbers of {packed.dtype} came; expected torch.{precision}")
    if precision == "float32":
        return packed
    if precision == "float16":
        values = packed.float()
    else:
        blocks = -(-packed.shape[-1] // (_BLOCK + _SCALE))
        columns = packed.shape[-1] - blocks * _SCALE
        if packed.dim() != 3 or columns < 1:
            raise _refused(f"int8 numbers of shape {tuple(packed.shape)} came, without scales")
        scales = packed[..., columns:].contiguous().view(torch.float32)
        numbers = F.pad(packed[..., :columns].float(), (0, blocks * _BLOCK - columns))
        numbers = numbers.reshape(*scales.shape, _BLOCK)
        values = (numbers * scales.unsqueeze(-1)).flatten(-2)
        values = values[..., :columns]
    if not bool(torch.isfinite(values).all()):
        raise PayloadRejectedError(
            "numbers came that are not finite: training diverged, or they were damaged",
            fix="lower learning_rate, or use a higher wire_precision",
        )
    return values


def unpack_from(message: Message, packed: Tensor, precision: Precision) -> Tensor:
    """Return the numbers of a message, see `unpack`; the error says whose they are."""
    try:
        return unpack(packed, precision)
    except PayloadRejectedError as error:
        raise PayloadRejectedError(
            error.problem, fix=error.fix, party=message.sender, step=message.step
        ) from error


def _refused(problem: str) -> PayloadRejectedError:
    return PayloadRejectedError(
        problem, fix="give all parties the same settings and version of vflsynth"
    )
