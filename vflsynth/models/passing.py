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
from vflsynth.models.party_model import PartyModel

_MARK = "vflsynth passed on"


def draw_with_files(
    half: PartyModel, n: int, secret: bytes, folder: Path | None = None
) -> pd.DataFrame:
    """Draw a party's rows, after reading what others passed on, and pass on in turn.

    The folder has files ``SENDER-to-RECEIVER.parquet``, which hold numbers about synthetic rows:
    those to this party are read, those from it written. It is not needed where nobody waits for
    anybody. Raises TableFileError if a file is not there, MisalignedError if it is of another
    sample, RuleError if a party leaves out rows (`draw_part_with_files` is for these).
    """
    half.check_alone()
    return _drawn(half, [(n, secret)], secret, folder)


def draw_part_with_files(
    half: PartyModel, n: int, n_drawn: int, secret: bytes, folder: Path | None = None
) -> tuple[pd.DataFrame, SharedRows]:
    """Draw a party's part of a sample of n rows from which rows that break rules are left out.

    At least `n_drawn` rows are drawn, as many at all parties that pass on. Returns those that keep
    the party's own rules, and which they are with the rules that are open, for
    `vflsynth.contract.rows_for_all`. Otherwise as `draw_with_files`.
    """
    assert half.preparation is not None
    planned: list[tuple[int, bytes]] = []
    for attempt in attempts(n, secret):
        planned.append(attempt)
        if sum(size for size, _ in planned) >= n_drawn:
            break
    return SharedRows.of(_drawn(half, planned, secret, folder), half.preparation, n)


def _drawn(
    half: PartyModel, planned: Sequence[tuple[int, bytes]], secret: bytes, folder: Path | None
) -> pd.DataFrame:
    """Draw all that is planned, one attempt after the other."""
    n_drawn = sum(size for size, _ in planned)
    mark = hmac.new(secret, f"passed on {n_drawn}".encode(), hashlib.sha256).hexdigest()[:16]
    received: dict[str, npt.NDArray[np.float32]] = {}
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
    passed_on: dict[str, list[npt.NDArray[np.float32]]] = {}
    start = 0
    for size, own in planned:
        given = {name: numbers[start : start + size] for name, numbers in received.items()}
        table, passed = half.sample_and_pass_on(size, own, given)
        tables.append(table)
        for receiver, numbers in passed.items():
            passed_on.setdefault(receiver, []).append(numbers)
        start += size
    if folder is not None:
        whole = {receiver: np.concatenate(numbers) for receiver, numbers in passed_on.items()}
        _write(folder, half.name, whole, mark)
    if len(tables) == 1:
        return tables[0]
    index = pd.RangeIndex(n_drawn, name=tables[0].index.name)
    return pd.concat(tables, ignore_index=True).set_axis(index, axis=0)


def _write(
    folder: Path, sender: str, passed_on: Mapping[str, npt.NDArray[np.float32]], mark: str
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for receiver, numbers in passed_on.items():
        table = pd.DataFrame(numbers, columns=[str(k) for k in range(numbers.shape[1])])
        table.attrs[_MARK] = mark
        write_table(table, folder / f"{sender}-to-{receiver}.parquet")
