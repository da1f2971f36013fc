"""``vflsynth verify``: a folder that was handed out -> whether its publisher signed it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from vflsynth.cli.console import say
from vflsynth.cli.options import Option
from vflsynth.exceptions import ParameterError
from vflsynth.release import verify_release

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


OPTIONS = [
    Option("dossier DOSSIER", "the folder to judge, as it is"),
    Option(
        "--public KEY",
        "the publisher's public key, 64 hexadecimal digits, or a file with them",
        required=True,
    ),
]


def run(options: argparse.Namespace) -> int:
    """Verify, and say what was signed."""
    content = verify_release(options.dossier, _key(options.public))
    table, bound = content["table"], content["contract"]
    say(f"{options.dossier}: holds what the owner of this key signed, and nothing else")
    say(f"table checked: {(options.dossier / table['file']).resolve()}")
    say(f"sha256 {table['sha256']}")
    say(f"{content['date']}, {table['rows']:,} rows: {content['headline']}")
    for changed in bound["changes_since_fit"]:
        say(f"changed after the fit: {changed}")
    for missing in bound["not_measured"]:
        say(f"not measured: {missing}")
    return 0


def _key(text: str) -> str:
    try:
        key = Path(text).read_text(encoding="utf-8") if Path(text).is_file() else text
    except (OSError, ValueError) as error:
        raise ParameterError(f"--public: {text} cannot be read: {error}") from error
    if not re.fullmatch(r"[0-9a-fA-F]{64}", key.strip()):
        raise ParameterError(
            f"--public: {text!r} is no public key, nor a file with one alone: a key has 64 "
            "hexadecimal digits"
        )
    return key.strip()
