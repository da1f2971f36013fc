"""``vflsynth doctor``: what this machine has, and what is missing for what."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re

import torch

from vflsynth import __version__
from vflsynth._device import available_memory
from vflsynth.cli.console import say, table
from vflsynth.reporting import size_text

DESCRIPTION = """\
Say which versions are installed, which devices PyTorch finds, and what each extra brings or lacks.
Nothing is imported that is not installed, and nothing leaves the machine.
"""
EPILOG = """\
examples:
  vflsynth doctor
"""

EXTRAS = {
    "report": "reports, audits' pages and plots",
    "privacy": "DPSGD, DPSGDGAN and GSWGAN, and tighter accountants",
    "opacus": "SplitNNClassifier with privacy, and DP-SGD for your own PyTorch modules",
    "flare": "runs between organisations ('vflsynth parties')",
    "excel": "tables in Excel files",
    "sql": "tables in databases",
    "sdmetrics": "SDMetrics' own scores beside ours",
}
"""What each extra is for; its packages are read off the installed metadata."""


def run(options: argparse.Namespace) -> int:
    """Look and print."""
    lines = [f"vflsynth {__version__} on Python {platform.python_version()}, {platform.platform()}"]
    needed = _requirements()
    required = [
        {"package": name, "version": _version(name) or "MISSING"}
        for name, extra in needed
        if extra is None
    ]
    lines += ["", table(required), ""] if required else [""]
    for extra, purpose in EXTRAS.items():
        packages = {name: _version(name) for name, of in needed if of == extra}
        if missing := [name for name, version in packages.items() if version is None]:
            lines.append(f"{extra}: missing {', '.join(missing)}; needed for {purpose}")
            lines.append(f"  pip install 'vflsynth[{extra}]'")
        else:
            brought = ", ".join(f"{name} {version}" for name, version in packages.items())
            lines.append(f"{extra}: {brought or 'here'}; for {purpose}")
    processor, cores = platform.processor() or platform.machine(), os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    lines += ["", _device(torch.device("cpu"), f"{processor}, {cores} threads")]
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        lines.append(_device(device, torch.cuda.get_device_name(device)))
    if not torch.cuda.device_count():
        lines.append("no GPU that this build of PyTorch can use: fits run on the CPU")
    say("\n".join(lines))
    return 0


def _device(device: torch.device, name: str) -> str:
    free = available_memory(device)
    return f"{device}: {name}{'' if free is None else f', {size_text(free)} free'}"


def _requirements() -> list[tuple[str, str | None]]:
    """Return the packages that the installed metadata name, and the extra that asks for each."""
    try:
        lines = importlib.metadata.requires("vflsynth") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return []
    found = []
    for line in lines:
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        name = re.match(r"[\w.-]+", line)
        if name:
            found.append((name[0], extra[1] if extra else None))
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
