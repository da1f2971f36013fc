"""What one party's half hands to another's when they draw apart, as files."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsynth.contract import SharedRows, attempts
from vflsynth.exceptions import MisalignedError, TableFileError
from vflsynth.frames import read_table, write_table
from vflsynth.models.choosing import CHOOSER, Choice, Portion, portions
from vflsynth.models.party_model import PartyModel, stacked

_MARK = "vflsynth passed on"

Numbers = npt.NDArray[np.float32]
"""About synthetic rows, (row, number)."""


def draw_with_files(
    half: PartyModel, n: int, secret: bytes, folder: Path | None = None
) -> pd.DataFrame:
    """Draw a party's rows, after reading what others passed on, and pass on in turn.

    The folder has files ``SENDER-to-RECEIVER.parquet``, which hold numbers about synthetic rows:
    those to this party are read, those from it written. It is not needed where nobody waits for
    anybody. Raises TableFileError if a file is not there, MisalignedError if it is of another
    sample, RuleError or ParameterError if others say which rows stay (`draw_part_with_files` is for
    these).
    """
    half.check_alone()
    return _drawn(half, [(n, n, secret)], secret, folder)[0]


def draw_part_with_files(
    half: PartyModel, n: int, n_drawn: int, secret: bytes, folder: Path | None = None
) -> tuple[pd.DataFrame, SharedRows | None, Choice | None]:
    """Draw a party's part of a sample of n rows, also where others' parts say which of them stay.

    Where rows that break rules are left out, at least `n_drawn` are drawn, as many at all parties
    that pass on. Those that keep the party's own rules are returned, and which they are with the
    rules that are open, for `vflsynth.contract.rows_for_all`. Where rows are resampled, all that
    were drawn are of the part, and with them comes its party's part of the choice. Otherwise as
    `draw_with_files`.
    """
    selects = half.preparation is not None and half.preparation.selects
    planned: list[Portion] = []
    for asked, own in attempts(n, secret):
        planned += portions(asked, half.times, own)
        if not selects or sum(kept for kept, _, _ in planned) >= n_drawn:
            break
    table, judged = _drawn(half, planned, secret, folder)
    choice = None if judged is None else half.choice(planned, judged)
    if half.preparation is None or not selects:
        return table, None, choice
    return *SharedRows.of(table, half.preparation, n), choice


def _drawn(
    half: PartyModel, planned: Sequence[Portion], secret: bytes, folder: Path | None
) -> tuple[pd.DataFrame, Numbers | None]:
    """Draw all that is planned, one portion after the other, and what is computed for a choice."""
    n_drawn = sum(size for _, size, _ in planned)
    mark = hmac.new(secret, f"passed on {n_drawn}".encode(), hashlib.sha256).hexdigest()[:16]
    received: dict[str, Numbers] = {}
    for name in half.after if folder is not None else ():
        assert folder is not None
        path = folder / f"{name}-to-{half.name}.parquet"
        if not path.exists():
            raise TableFileError(
                f"{path} is not there: {half.name!r} draws its columns given what {name!r} passes "
                "on",
                fix=f"draw at {name!r} first, and bring the file here",
                party=half.name,
            )
        table = read_table(path)
        if table.attrs.get(_MARK) != mark:
            raise MisalignedError(
                f"{path} is of another sample",
                fix="draw at all parties with the same seed or request and number of rows",
                party=name,
            )
        received[name] = table.to_numpy(np.float32)
    tables: list[pd.DataFrame] = []
    passed_on: dict[str, list[Numbers]] = {}
    start = 0
    for _, size, own in planned:
        given = {name: numbers[start : start + size] for name, numbers in received.items()}
        table, passed = half.sample_and_pass_on(size, own, given)
        tables.append(table)
        for receiver, numbers in passed.items():
            passed_on.setdefault(receiver, []).append(numbers)
        start += size
    whole = {receiver: np.concatenate(numbers) for receiver, numbers in passed_on.items()}
    judged = whole.pop(CHOOSER, None)
    if folder is not None:
        _write(folder, half.name, whole, mark)
    return stacked(tables), judged


def _write(folder: Path, sender: str, passed_on: Mapping[str, Numbers], mark: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for receiver, numbers in passed_on.items():
        table = pd.DataFrame(numbers, columns=[str(k) for k in range(numbers.shape[1])])
        table.attrs[_MARK] = mark
        write_table(table, folder / f"{sender}-to-{receiver}.parquet")
