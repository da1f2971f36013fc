"""Pages that mkdocs makes from the package itself, so that they cannot be out of date."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from made_errors import errors_page
from made_messages import leaving_table, protocol_table
from made_notebooks import notebook_page
from make_tables import covers
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation

import vflsynth.splitdefense  # noqa: F401 (declares messages)
from vflsynth.cli.main import command_parser

ROOT = Path(__file__).parents[1]

NOTEBOOKS = {
    "01_quickstart": "tutorials/first-table",
    "02_split_defense": "tutorials/labels",
    "03_privacy": "tutorials/privacy",
}
"""Where an executed notebook appears."""

API = {
    "methods": "Synthesizers",
    "run.loop": "Training: callbacks and history",
    "models": "Fitted models",
    "columns": "Columns",
    "frames": "Tables and keys",
    "mechanisms": "Mechanisms of differential privacy",
    "privacy": "Privacy: schema, accountants, ledger",
    "evaluation": "Evaluation",
    "audit": "Audit",
    "adversary": "Attackers of an audit",
    "splitdefense": "Split-learning classifiers",
    "protocol.channel": "Protocol",
    "testing": "Laws for extensions",
}
"""Packages and modules with a page of the reference, and its title."""

SHOWN = {
    "run.loop": ("Callback", "EarlyStopping", "EpochState", "Progress"),
    "models": ("PartyModel", "RowSampler", "Source", "Numbers", "number_sources"),
    "protocol.channel": (
        "message",
        "holds",
        "answers",
        "takes",
        "Message",
        "Declaration",
        "Held",
        "MadeOf",
        "When",
        "Uses",
        "MESSAGES",
        "Participant",
        "Channel",
        "LocalChannel",
        "Transcript",
        "Precision",
        "pack",
        "unpack",
        "unpack_from",
    ),
}
"""What a page shows of what has more, which only the package itself calls."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    pages = {
        "reference/command-line.md": command_line_page(),
        "reference/errors.md": errors_page(ROOT / "vflsynth"),
        "reference/messages.md": messages_page(),
        **{
            f"reference/{name.partition('.')[0]}.md": api_page(name, title)
            for name, title in API.items()
        },
    }
    for name, page in pages.items():
        files.append(File.generated(config, name, content=page))
    for name, target in NOTEBOOKS.items():
        page, pictures = notebook_page(ROOT / "notebooks" / f"{name}.ipynb", target)
        files.append(File.generated(config, f"{target}.md", content=page))
        for path, picture in pictures.items():
            files.append(File.generated(config, path, content=picture))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in sources, take off marks of figures, and turn LaTeX into MathML for browsers."""
    markdown = re.sub(r"<!--(= .+? --|/--)>", "", markdown)
    markdown = re.sub(r"^<!-- source: (\S+) (.+) -->$", _source, markdown, flags=re.MULTILINE)
    return re.sub(
        r"^```math\n(.*?)^```$",
        lambda found: convert(found[1].strip(), display="block"),
        markdown,
        flags=re.DOTALL | re.MULTILINE,
    )


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Write ``llms.txt``: every page with its address, for readers that are programs."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for page in sorted(files.documentation_pages(), key=lambda file: file.src_uri):
        text = page.content_string
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), page.name)
        lines.append(f"- [{title}]({page.dest_uri.removesuffix('index.html') or './'})")
    text = "\n".join(lines) + "\n"
    files.append(File.generated(config, "llms.txt", content=text))
    return nav


def _source(found: re.Match[str]) -> str:
    """Return the named statements of a file, as they stand there."""
    text = (ROOT / found[1]).read_text(encoding="utf-8")
    wanted, parts = found[2].split(), {}
    for node in ast.parse(text).body:
        name = node.targets[0] if isinstance(node, ast.Assign) else node
        name = getattr(name, "name", getattr(name, "id", None))
        if name in wanted:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            parts[name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    blank = "\n\n\n"
    return f"```python\n{blank.join(parts[name] for name in wanted)}\n```"


def api_page(name: str, title: str) -> str:
    """Return a page that mkdocstrings fills with a package's public names."""
    page = f"# {title}\n\n::: vflsynth.{name}\n    options:\n      show_root_heading: false\n"
    return page + (f"      members: [{', '.join(SHOWN[name])}]\n" if name in SHOWN else "")


def messages_page() -> str:
    """Return what may cross, as the messages declare it and as the mechanisms pay for it."""
    return f"""\
# Messages

All that may cross a party's boundary, made from what messages declare: n records, B of them in a
batch, R models at once (a plain fit is one), d_i features and w_i encoded columns of party i.

## What leaves each party

Made of record keys, of records, or of networks that were trained on them. The last column says
which mechanisms send a message and which entry of the privacy ledger pays for it. The others refuse
it, but for `FirstLayer`, which does not protect the synthetic table and sends what a fit without
`privacy` does.

{leaving_table(covers())}

## Every message, and what its receiver can learn

{protocol_table()}
"""


def command_line_page() -> str:
    """Return the help of every command, as it is printed."""
    top = command_parser()
    parts = ["# Command line", "", "What `vflsynth COMMAND --help` prints.", ""]
    for command, level in _commands(top, 2):
        help_text = command.format_help()
        parts += [f"{'#' * level} `{command.prog}`", "", f"```text\n{help_text}```", ""]
    return "\n".join(parts)


def _commands(
    parser: argparse.ArgumentParser, level: int
) -> list[tuple[argparse.ArgumentParser, int]]:
    found = [(parser, level)]
    for action in parser._actions:  # argparse has no public way to its subcommands
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                found += _commands(each, min(level + 1, 3))
    return found
