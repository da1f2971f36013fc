"""``vflsynth verify``: a folder that was handed out -> whether its publisher signed it."""

from __future__ import annotations

import argparse
from pathlib import Path

from vflsynth.cli.console import say
from vflsynth.cli.options import file
from vflsynth.exceptions import ParameterError
from vflsynth.release import verify_release

SUMMARY = "check a published table, its page and its numbers against a signature"
DESCRIPTION = """\
Compare every file of a release with its digest, and check who signed the digests.

Get the publisher's public key from somewhere else than the folder: whoever changes the files can
write another key beside them.
"""
EPILOG = """\
examples:
  vflsynth verify release/public --public 5f0c...e1
  vflsynth verify release/public --public publisher.pub
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    file(parser, "dossier", "DOSSIER", "the folder handed out")
    parser.add_argument(
        "--public",
        required=True,
        metavar="KEY",
        help="the publisher's public key, 64 hexadecimal digits, or a file with them",
    )


def run(options: argparse.Namespace) -> int:
    """Verify, and say what was signed."""
    content = verify_release(options.dossier, _key(options.public))
    table = content["table"]
    say(f"{options.dossier}: all files are those that the owner of this key signed")
    say(f"{content['date']}, {table['file']}, {table['rows']:,} rows: {content['headline']}")
    return 0


def _key(text: str) -> str:
    try:
        return Path(text).read_text(encoding="utf-8").strip() if Path(text).is_file() else text
    except (OSError, ValueError) as error:
        raise ParameterError(f"--public: {text} cannot be read: {error}") from error
