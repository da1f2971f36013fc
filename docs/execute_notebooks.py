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


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook as it is after running from top to bottom in a folder of its own."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, timeout=1800, kernel_name="python3", resources=resources, record_timing=False
        ).execute()
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


if __name__ == "__main__":
    main()
