"""``vflsynth doctor``: what this machine has, and what is missing for what."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
from typing import Any

import torch

from vflsynth import __version__
from vflsynth._device import available_memory
from vflsynth.cli.console import say, table
from vflsynth.cli.options import flag
from vflsynth.reporting import size_text

DESCRIPTION = """\
Say which versions are installed, which devices PyTorch finds, and what each extra brings or lacks.
Nothing is imported that is not installed, and nothing leaves the machine.
"""
EPILOG = """\
examples:
  vflsynth doctor
  vflsynth doctor --json
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flag(parser, "--json", "the same as JSON")


def run(options: argparse.Namespace) -> int:
    """Look and print."""
    found = examine()
    say(json.dumps(found, indent=1) if options.json else _text(found))
    return 0


def examine() -> dict[str, Any]:
    """Describe the machine, JSON-safe."""
    required = [name for name, extra in _requirements() if extra is None]
    extras = []
    for name, purpose in EXTRAS.items():
        packages = {n: _version(n) for n, extra in _requirements() if extra == name}
        extras.append(
            {
                "extra": name,
                "for": purpose,
                "packages": packages,
                "missing": [package for package, version in packages.items() if version is None],
            }
        )
    cpu = torch.device("cpu")
    devices = [
        {"device": "cpu", "name": platform.processor() or platform.machine(), "threads": _cores()}
        | {"free_memory": available_memory(cpu)}
    ]
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        devices.append(
            {
                "device": str(device),
                "name": torch.cuda.get_device_name(device),
                "free_memory": available_memory(device),
            }
        )
    return {
        "vflsynth": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in required},
        "extras": extras,
        "devices": devices,
    }


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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _text(found: dict[str, Any]) -> str:
    lines = [f"vflsynth {found['vflsynth']} on Python {found['python']}, {found['system']}", ""]
    packages = [{"package": n, "version": v or "MISSING"} for n, v in found["packages"].items()]
    lines += [table(packages), ""] if packages else []
    for extra in found["extras"]:
        brought = ", ".join(f"{n} {v}" for n, v in extra["packages"].items() if v)
        if extra["missing"]:
            missing = ", ".join(extra["missing"])
            lines.append(f"{extra['extra']}: missing {missing}; needed for {extra['for']}")
            lines.append(f"  pip install 'vflsynth[{extra['extra']}]'")
        else:
            lines.append(f"{extra['extra']}: {brought or 'here'}; for {extra['for']}")
    lines.append("")
    for device in found["devices"]:
        free = device["free_memory"]
        memory = "" if free is None else f", {size_text(free)} free"
        threads = f", {device['threads']} threads" if "threads" in device else ""
        lines.append(f"{device['device']}: {device['name']}{threads}{memory}")
    if len(found["devices"]) == 1:
        lines.append("no GPU that this build of PyTorch can use: fits run on the CPU")
    return "\n".join(lines)
