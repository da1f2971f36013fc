"""Which device a run uses, and how much memory it may take."""

from __future__ import annotations

import os

import torch

from vflsynth.exceptions import ParameterError


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn the `device` parameter into a device: ``"auto"`` takes a GPU when there is one.

    Raises
    ------
    ParameterError
        If there is no such device here.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device  # fails now rather than in the middle of a fit
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        raise ParameterError(
            f"device must be 'auto' or a device that torch has here, such as 'cpu', got {device!r}"
        ) from error


def available_memory(device: torch.device) -> int | None:
    """Bytes that can be taken on the device now, or None where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
