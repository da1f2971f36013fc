"""Which device a run uses, and how much memory it may take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from threadpoolctl import ThreadpoolController

from vflsynth.exceptions import ParameterError

_CONTAINER, _LIMIT_AND_USE = Path("/sys/fs/cgroup"), ("max", "current")

_WORTH_SHARING = 5e7
"""Multiply-adds of the largest product of a step from which several threads gain something."""


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn the `device` parameter into a device: ``"auto"`` takes a GPU when there is one.

    Raises ParameterError if there is no such device here.
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
    """Bytes that can be taken on the device now, or None where the system does not tell.

    On Linux without swapping, with what the system would give back of its cache of files, and
    within the limit of a container.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(1024 * int(own.split()[1]) for own in lines if own.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        try:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            return None
    try:  # version 2 of control groups, where "max" is no limit
        limit, used = (int((_CONTAINER / f"memory.{name}").read_text()) for name in _LIMIT_AND_USE)
        stat = dict(line.split() for line in (_CONTAINER / "memory.stat").read_text().splitlines())
        return max(0, min(free, limit - used + int(stat["inactive_file"])))
    except (OSError, ValueError, KeyError):
        return free


@contextmanager
def few_threads(multiply_adds: float, device: torch.device) -> Iterator[None]:
    """Run small work on one thread, and set back the number of threads afterwards.

    Work is small by the multiplications of the largest matrix product of a step.

    Threads that wait for each other after every operation of some microseconds gain nothing on a
    free machine, and on one whose cores have other work they wait for the scheduler.
    """
    if device.type != "cpu" or multiply_adds > _WORTH_SHARING:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _thread_pools().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _thread_pools() -> ThreadpoolController:
    """Look for linear algebra among the process's libraries, once: it takes some milliseconds."""
    return ThreadpoolController()
