"""What is in the files of a model: numbers, words, whole records, and no pickle."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Floats = npt.NDArray[np.float64]


def find_record(arrays: Iterable[Any], records: Any, tolerance: float = 1e-5) -> int | None:
    """Look for a record among arrays, whatever their shapes: its position in `records`, or None."""
    apart = np.array([np.nan])  # no record begins in one array and ends in another
    parts = [np.asarray(array, dtype=np.float64).ravel() for array in arrays]
    flat = np.concatenate([piece for part in parts for piece in (part, apart)])
    width = records.shape[1]
    for position, record in enumerate(np.asarray(records, dtype=np.float64)):
        starts = np.arange(max(0, len(flat) - width + 1))
        for offset, value in enumerate(record):
            starts = starts[np.abs(flat[starts + offset] - value) <= tolerance]
        if len(starts):
            return position
    return None


def number_lists(content: Any) -> Iterator[Floats]:
    """Return every list of numbers in JSON, whatever it is nested in."""
    if isinstance(content, dict):
        for value in content.values():
            yield from number_lists(value)
    elif isinstance(content, list):
        if content and all(isinstance(item, int | float) for item in content):
            yield np.asarray(content, dtype=float)
        for item in content:
            yield from number_lists(item)
    elif isinstance(content, int | float):
        yield np.asarray([content], dtype=float)


def numbers_in(folder: Path) -> Iterator[npt.NDArray[Any]]:
    """Return the arrays of all files of a folder, by rows and by columns, and lists of numbers.

    Raises AssertionError if a file is neither JSON nor safetensors.
    """
    for file in filter(Path.is_file, folder.rglob("*")):
        if file.suffix == ".json":
            lists = list(number_lists(json.loads(file.read_text(encoding="utf-8"))))
            yield from lists
            yield np.concatenate([*lists, [0.0] * 1000])  # a row may be spread over lists
        elif file.suffix == ".safetensors":
            for array in load_file(file).values():
                yield array
                yield array.T
        else:
            raise AssertionError(f"{file.name} is neither JSON nor safetensors")


def words_in(folder: Path) -> set[str]:
    """Return the words of all JSON files of a folder."""
    texts = [file.read_text(encoding="utf-8") for file in folder.rglob("*.json")]
    return {word for text in texts for word in re.findall(r"\w+", text)}


def files_within(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a folder, by where they are."""
    return {
        f"file {file.relative_to(folder).as_posix()}": file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def halves_of(model: Any) -> dict[str, dict[str, bytes]]:
    """Return the files of every party's half of a model, saved, by where they are."""
    found = {}
    for name, half in model.parties_.items():
        with tempfile.TemporaryDirectory() as folder:
            half.save(f"{folder}/half")
            found[name] = files_within(Path(folder))
    return found


@contextmanager
def without_pickle() -> Iterator[None]:
    """Raise AssertionError if the block pickles anything, or reads a pickle."""
    used: set[str] = set()

    def watch(frame: FrameType, event: str, what: Any) -> None:
        name = f"{getattr(what, '__module__', '')}.{getattr(what, '__qualname__', '')}"
        if event == "c_call" and "pickle" in name.lower():
            used.add(name.strip("."))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
    if used:
        raise AssertionError(f"pickles are used: {', '.join(sorted(used))}")
