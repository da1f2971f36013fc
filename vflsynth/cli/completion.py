"""``vflsynth completion``: what shells need to complete commands, options and files."""

from __future__ import annotations

import argparse

from vflsynth.cli.console import say
from vflsynth.exceptions import MissingExtraError

DESCRIPTION = """\
Print a shell's script that completes commands, options and their choices.
"""
EPILOG = """\
examples:
  vflsynth completion bash > ~/.local/share/bash-completion/completions/vflsynth
  vflsynth completion zsh > ~/.zfunc/_vflsynth

Needs the extra 'completion'.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="whose script")


def run(options: argparse.Namespace) -> int:
    """Print it."""
    try:
        import shtab
    except ImportError as error:
        raise MissingExtraError("completion in a shell", "shtab", "completion") from error
    from vflsynth.cli.main import command_parser

    say(shtab.complete(command_parser(), shell=options.shell))
    return 0
