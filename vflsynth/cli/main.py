"""``vflsynth``: the commands, and what a failure looks like to a person and to a script."""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from importlib import import_module
from types import FrameType
from typing import NoReturn

from vflsynth import __version__
from vflsynth._signals import handling
from vflsynth.cli.console import reporting
from vflsynth.cli.options import declare
from vflsynth.exceptions import (
    ArtefactError,
    ContractError,
    MissingExtraError,
    ParameterError,
    PartyDataError,
    PrivacyBudgetError,
    ProtocolError,
    UnsupportedEventError,
    UnusableFileError,
    VFLSynthError,
    did_you_mean,
)

logger = logging.getLogger("vflsynth")

_DESCRIPTION = """\
One synthetic table from several organisations' columns about the same people, without a join.

  vflsynth new lab=lab.csv clinic=clinic.parquet --on patient_id
  vflsynth publish study.toml

and every step of it by itself:

  vflsynth fit lab=lab.csv clinic=clinic.parquet --on patient_id --output model
  vflsynth sample model -n 5000 -o synthetic.parquet
  vflsynth evaluate --real lab=lab.csv clinic=clinic.parquet --on patient_id \\
      --synthetic synthetic.parquet --target diagnosis -o report.html
  vflsynth audit model --real lab=lab.csv clinic=clinic.parquet --on patient_id -o audit.html
  vflsynth release model --real lab=lab.csv clinic=clinic.parquet --on patient_id \\
      --synthetic synthetic.parquet --key publisher.pem -o release
  vflsynth verify release/public --public KEY

'vflsynth COMMAND --help' has examples of each.
"""

_EPILOG = """\
Tables are csv (also .csv.gz) or parquet files; parquet keeps every dtype. Results go to standard
output, progress and messages to standard error. Nothing is ever left half written.

exit codes:
  0    done; what was judged passes
  1    what was judged fails: a clause of a release, a check before a run
  2    wrong usage: an option, a parameter or a budget cannot be this, or a package is missing
  3    what is read cannot be used as it is: tables, contract, files; the message names the fix
  4    another party, or the server, did not do what the protocol asks
  5    failed for another reason
  130  interrupted with Ctrl-C or SIGTERM; fit saves the epochs that were finished
"""


_COMMANDS = {
    "new": "ask what is to be published, and write a study",
    "publish": "do a study: from tables to a release that others can check",
    "fit": "learn a model from the tables of two or more parties",
    "sample": "draw synthetic records from a model",
    "complete": "draw what a table lacks: columns, and missing cells",
    "evaluate": "compare a synthetic table with the real ones",
    "audit": "measure what a model's synthetic data tell about single records",
    "release": "decide whether a synthetic table may be published, and write its dossier",
    "verify": "check a published table, its page and its numbers against a signature",
    "inspect": "show what is in a model, or how tables would be read",
    "account": "show, make or limit a privacy account",
    "schema": "print the JSON schema of a file, for editors",
    "methods": "list the synthesizers, classifiers and mechanisms of privacy that there are",
    "parties": "train with every party in its own process, in other organisations if need be",
    "demo": "two parties' real tables -> one synthetic table and a report",
    "doctor": "say what this machine has, and what is missing for what",
    "completion": "print a script with which a shell completes commands and options",
}
"""What each command is for. Its module is imported when it is the one that runs."""

_NEXT = {
    "fit": "sample {output} -n 1000 -o synthetic.parquet",
    "sample": "evaluate --real PARTY=FILE ... --on KEY --synthetic {output} -o report.html",
    "evaluate": "audit {model} --real {real} {keys} --json > audit.json",
    "audit": "release {model} --real {real} {keys} --synthetic FILE --audit {answers} -o release",
    "release": "verify {output}/public --public KEY",
}
"""What comes after a command, with what it was told; capitals are to be filled in."""


class ExitCode(IntEnum):
    """What the process returns."""

    DONE = 0
    FAILS = 1
    USAGE = 2
    DATA = 3
    PROTOCOL = 4
    OTHERWISE = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Do at SIGTERM, which schedulers and `timeout` send, what is done at Ctrl-C."""
    # A script's `vflsynth ... &` ignores Ctrl-C, and must still end when it is told to.
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if not callable(on_ctrl_c):
        raise KeyboardInterrupt
    on_ctrl_c(signal.SIGINT, frame)  # now: a signal would be answered some time later


@handling(signal.SIGTERM, _interrupt)
def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.

    Returns
    -------
    int
        One of `ExitCode`.

    Raises
    ------
    SystemExit
        For ``--help`` and ``--version``, and with code 2 for arguments that cannot be parsed.
    """
    if sys.stdout is None:  # closed by who started it
        sys.stdout = io.TextIOWrapper(io.FileIO(os.devnull, "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):  # files and pipes on Windows cannot hold an ε
        sys.stdout.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        parser = command_parser(next((a for a in given if not a.startswith("-")), ""))
        options = parser.parse_args(given)
    except KeyboardInterrupt:  # what a command needs is imported here, which takes seconds
        with reporting(quiet=False):
            logger.error("interrupted; nothing was done yet")
        return ExitCode.INTERRUPTED
    with reporting(quiet=options.quiet):
        try:
            code = options.run(options)
            sys.stdout.flush()
            if not code and (following := next_command(options)) is not None:
                logger.info("next: %s", following)
        except BrokenPipeError:  # the reader has seen enough, as in `vflsynth inspect x | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.BROKEN_PIPE
        except KeyboardInterrupt:
            logger.error("interrupted; %s", options.interrupted(options), exc_info=options.debug)
            return ExitCode.INTERRUPTED
        except Exception as error:
            logger.error("%s", _one_line(error), exc_info=options.debug)
            return exit_code(error)
    return ExitCode(code)


class _Parser(argparse.ArgumentParser):
    """Answers wrong usage with one line."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"unrecognized arguments: (\S+)|invalid choice: '([^']*)'", message)
        if wrong is not None:
            message += did_you_mean(wrong[1] or wrong[2], _words(self))
        self.exit(ExitCode.USAGE, f"vflsynth: error: {message} (see '{self.prog} --help')\n")


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Return all options and choices of a command line."""
    for action in parser._actions:  # argparse has no public way to them
        yield from action.option_strings
        yield from map(str, action.choices or ())
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                yield from _words(own)


class _Overview(argparse.RawDescriptionHelpFormatter):
    """Leaves room for the names of commands, which argparse measures without their indent."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 14


def command_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    With `only`, the command that will run, others are named and not imported.
    """
    parser = _Parser(
        prog="vflsynth", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=_Overview
    )
    parser.add_argument("--version", action="version", version=f"vflsynth {__version__}")
    everywhere = _Parser(add_help=False)
    group = everywhere.add_argument_group("messages")
    group.add_argument("-q", "--quiet", action="store_true", help="only results and errors")
    group.add_argument("--debug", action="store_true", help="show where an error comes from")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in _COMMANDS.items():
        if only not in (None, name):
            commands.add_parser(name, help=summary, add_help=False)
            continue
        command = import_module(f"vflsynth.cli.{name}")
        own = commands.add_parser(
            name,
            parents=[everywhere],
            help=summary,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        declare(own, getattr(command, "OPTIONS", ()))
        if actions := getattr(command, "ACTIONS", None):
            parts = own.add_subparsers(
                title="actions", metavar="ACTION", dest="action", required=True, help="what to do"
            )
            for label, action in actions.items():
                declare(parts.add_parser(label, help=action.help), action.options)
        own.set_defaults(
            run=command.run,
            interrupted=getattr(command, "interrupted", lambda _: "nothing was saved"),
            command=name,
        )
    return parser


def next_command(options: argparse.Namespace) -> str | None:
    """Return the command that comes after one, with what this one was told."""
    if options.command not in _NEXT:
        return None
    said = {name: _quoted(value or name.upper()) for name, value in vars(options).items()}
    said["keys"] = " ".join(f"--on {_quoted(text)}" for text in vars(options).get("on") or ())
    said["answers"] = "audit.json" if vars(options).get("json") else "JSON_OF_AUDIT"
    tables = vars(options).get("real", ())
    said["real"] = " ".join(_quoted(f"{table.party}={table.path}") for table in tables)
    return " ".join(f"vflsynth {_NEXT[options.command].format(**said)}".split())


def _quoted(value: object) -> str:
    """Return a value as a shell takes it, also with blanks in it."""
    return shlex.quote(str(value))


def exit_code(error: Exception) -> ExitCode:
    """Return what the process returns after an error."""
    match error:
        case UnusableFileError():  # also a ParameterError
            return ExitCode.DATA
        case (
            ParameterError()
            | MissingExtraError()
            | UnsupportedEventError()
            | PrivacyBudgetError()
            | argparse.ArgumentTypeError()
        ):
            return ExitCode.USAGE
        case PartyDataError() | ContractError() | ArtefactError():
            return ExitCode.DATA
        case ProtocolError() | TimeoutError():
            return ExitCode.PROTOCOL
    return ExitCode.OTHERWISE


def _one_line(error: Exception) -> str:
    known = isinstance(error, VFLSynthError | OSError | argparse.ArgumentTypeError)
    # Of ours, each line is a mistake of its own.
    told = "; ".join(str(error).splitlines()) if known else str(error)
    said = [told.removesuffix("."), *getattr(error, "__notes__", ())]
    text = " ".join((". ".join(said) if said[1:] else told).split())
    if known:
        return text
    return f"unexpected {type(error).__name__}: {text} (--debug shows where it comes from)"
