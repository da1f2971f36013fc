"""``vflsynth completion``: what shells need to complete commands, options and files."""

from __future__ import annotations

import argparse

from vflsynth.cli.console import say
from vflsynth.cli.options import Option
from vflsynth.cli.schema import SHIPPED

DESCRIPTION = """\
Print a shell's script that completes commands, options and their choices.
"""
EPILOG = """\
examples:
  vflsynth completion bash > ~/.local/share/bash-completion/completions/vflsynth
  vflsynth completion zsh > ~/.zfunc/_vflsynth
"""

SHELLS = ("bash", "zsh", "tcsh")


OPTIONS = [Option("shell", "whose script", choices=SHELLS)]


def run(options: argparse.Namespace) -> int:
    """Print it."""
    say((SHIPPED / f"completion.{options.shell}").read_text(encoding="utf-8"))
    return 0
