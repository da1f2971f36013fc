"""The command line: the main job from files. One module per command."""

from vflsynth.cli.main import ExitCode, main

__all__ = ["ExitCode", "main"]
