"""Execute the notebooks and keep what they show: python docs/execute_notebooks.py [NAME ...]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def main() -> None:
    """Execute all notebooks, or those named."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            nbformat.write(executed(path), path)


def executed(path: Path, first: str = "") -> nbformat.NotebookNode:
    """Return a notebook after running some code, and it from top to bottom, in a new folder."""
    notebook = nbformat.read(path, as_version=4)
    if first:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(
            notebook,
            timeout=1800,
            kernel_name="python3",
            resources=resources,
            record_timing=False,
            coalesce_streams=True,
        ).execute()
    if first:
        del notebook.cells[0]
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


if __name__ == "__main__":
    main()
