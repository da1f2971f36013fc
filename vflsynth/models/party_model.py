"""Fitted models: each party's half, how it samples, and how it is saved."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import torch.nn.functional as F

from vflsynth import _artefacts as artefacts
from vflsynth._random import RandomState, RandomStreams, derive, secret_from
from vflsynth.codec import from_json, scalar_from_json, scalar_to_json, to_json
from vflsynth.columns import TableTransformer
from vflsynth.columns.wanted import Domain
from vflsynth.contract import Preparation
from vflsynth.contract.given import domains
from vflsynth.exceptions import ArtefactError, ParameterError, RuleError, VFLSynthError
from vflsynth.frames.keys import KeyMinter
from vflsynth.models.choosing import CHOOSER, Choice, Portion, chosen_rows, portions
from vflsynth.models.samplers import SAMPLE_BLOCK, RowSampler
from vflsynth.registry import find

_DECODED = 8 * SAMPLE_BLOCK
"""Rows that are one-hot at a time."""

PARTY_KIND = "vflsynth party model"
"""What the manifest of a saved half says."""

PassedOn = Mapping[str, npt.NDArray[np.float32]]
"""Numbers about synthetic rows that one party hands to another, (row, number), by party."""


@dataclass(repr=False, eq=False)
class PartyModel:
    """One party's half of a fitted model: enough to sample its columns, and no more.

    Discriminators are training state and are not part of it; neither is any record.

    Parameters
    ----------
    name : str
    transformer : TableTransformer
        Fitted.
    sampler : RowSampler
        Draws encoded rows.
    on : hashable
        Name of the key column, None if records were matched by the index.
    minter : KeyMinter
        Makes fresh keys of the original type.
    preparation : Preparation, optional
        How what is decoded becomes what is published, if there is a contract.

    Attributes
    ----------
    source : Path or None
        Where it was loaded from.
    """

    name: str
    transformer: TableTransformer
    sampler: RowSampler
    _: KW_ONLY
    on: Hashable
    minter: KeyMinter
    preparation: Preparation | None = None
    source: Path | None = field(default=None, init=False)

    @property
    def after(self) -> tuple[str, ...]:
        """Parties that have to draw first; none, if all draw from shared latents."""
        return self.sampler.after

    @property
    def domains(self) -> dict[Hashable, Domain]:
        """What can be asked of the columns that are published, by label."""
        return domains(self.preparation, self.transformer)

    def sample(
        self, n: int, random_state: RandomState = None, *, received: PassedOn | None = None
    ) -> pd.DataFrame:
        """Sample the party's columns.

        Parameters
        ----------
        n : int
            Rows.
        random_state : int, numpy Generator, RandomState or None
            Parties that use the same integer get rows that belong together.
        received : mapping of party name to array, optional
            What the parties of `after` passed on, see `pass_on`.

        Returns
        -------
        DataFrame, shape (n, column)
            The party's columns in their original order and dtypes, with a fresh index.

        Raises
        ------
        ParameterError
            If what a party before this one passed on is missing, or of other rows.
        ParameterError, RuleError
            As of `check_alone`.
        """
        self.check_alone()
        return self.sample_and_pass_on(n, secret_from(random_state), received)[0]

    def pass_on(
        self, n: int, random_state: RandomState = None, *, received: PassedOn | None = None
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Compute what later parties need to draw rows that belong to this party's.

        Parameters
        ----------
        n, random_state, received
            As of `sample`, and the same.

        Returns
        -------
        dict of party name to float32 array, shape (n, number)
            Made of synthetic rows only; empty if nobody comes after this party.
        """
        self.check_alone()
        return self.sample_and_pass_on(n, secret_from(random_state), received)[1]

    @property
    def times(self) -> int:
        """How many rows are drawn for one that stays, before rules leave out any."""
        return 1 if self.sampler.scores is None else self.sampler.scores.times

    def choice(
        self, planned: Iterable[Portion], parts: npt.NDArray[np.float32], table: pd.DataFrame
    ) -> Choice:
        """Say what the party tells of drawn rows for the choice of those that stay."""
        scores = self.sampler.scores
        assert scores is not None, "nothing was computed"
        return Choice.of(self.name, scores, planned, parts, table)

    def check_alone(self) -> None:
        """Raise RuleError where the party leaves out rows: others' parts say which stay.

        ParameterError where rows are resampled, which takes all parties' scores.
        """
        kind: type[RuleError | ParameterError] = RuleError
        if self.times > 1:
            kind, why = ParameterError, f"one of {self.times} stays (resample)"
        elif self.preparation is not None and self.preparation.selects:
            own = " or ".join(map(repr, self.preparation.open_rules)) or "rules of other parties"
            why = f"rows that break {own} are left out"
        else:
            return
        raise kind(
            f"party {self.name!r} cannot draw its rows alone: {why}, at all parties the same. Fix: "
            "draw from the whole model, or a part at every party ('vflsynth parties sample'), and "
            "put the parts together ('vflsynth parties join')"
        )

    def sample_and_pass_on(
        self, n: int, secret: bytes, received: PassedOn | None = None, *, repairs: bool = True
    ) -> tuple[pd.DataFrame, dict[str, npt.NDArray[np.float32]]]:
        """Sample from a secret that the parties share, and return what `pass_on` does, too.

        `repairs` says whether columns that a contract's rules compute are computed. Raises
        ArtefactError if the half was loaded, and what it says cannot be drawn from.
        """
        try:
            return self._sampled(n, secret, received, repairs)
        except VFLSynthError:
            raise
        except Exception as error:
            if self.source is None:
                raise
            raise ArtefactError(
                f"{self.source} describes a model that cannot be used, though its digests are "
                f"right: {error!r}"
            ) from error

    def _sampled(
        self, n: int, secret: bytes, received: PassedOn | None, repairs: bool
    ) -> tuple[pd.DataFrame, dict[str, npt.NDArray[np.float32]]]:
        sampler = self.sampler
        given = self._check_received(n, received or {})
        shared = RandomStreams([derive(secret, "latents")], sampler.device)
        private = RandomStreams([derive(secret, f"party {self.name}")], sampler.device)
        passed_on: dict[str, npt.NDArray[np.float32]] = {}
        tables = []
        for first in range(0, max(n, 1), _DECODED):
            rows = min(_DECODED, n - first)
            encoded = np.empty((rows, self.transformer.width_), np.float32)
            for start in range(first, max(first + rows, first + 1), SAMPLE_BLOCK):
                block = start // SAMPLE_BLOCK
                latent = sampler.latents(shared, block, SAMPLE_BLOCK)
                part = {name: _block(own, start, sampler.device) for name, own in given.items()}
                drawn = sampler.draw_given(part, latent, private, block)[: n - start]
                encoded[start - first : start - first + SAMPLE_BLOCK] = drawn.cpu().numpy()
                for name, numbers in sampler.pass_on(drawn).items():
                    all_rows = passed_on.setdefault(
                        name, np.empty((n, numbers.shape[1]), np.float32)
                    )
                    all_rows[start : start + SAMPLE_BLOCK] = numbers.cpu().numpy()
            tables.append(self.transformer.inverse_transform(encoded, generated=True))
        table = stacked(tables)
        if self.preparation is not None:
            table = self.preparation.restore(table, secret, self.name, repairs=repairs)
        return table, passed_on

    def _check_received(self, n: int, received: PassedOn) -> PassedOn:
        for name in self.after:
            if name not in received:
                raise ParameterError(
                    f"party {self.name!r} draws its columns given what {', '.join(self.after)} "
                    f"passed on, and nothing of {name!r} was received. Fix: draw at {name!r} "
                    "first with the same seed and number of rows, and give this half what that one "
                    "passes on (`PartyModel.pass_on`, of 'vflsynth parties sample' --passed)"
                )
            if len(received[name]) != n:
                raise ParameterError(
                    f"party {self.name!r} received {len(received[name])} rows of {name!r} and is "
                    f"to draw {n}"
                )
        return {name: received[name] for name in self.after}

    def add_keys(self, table: pd.DataFrame, start: int = 0) -> pd.DataFrame:
        """Put fresh keys, from the one at `start` on, into the key column or the index."""
        return with_keys(table, self.minter.starting_at(self.minter.offset + start), self.on)

    # -- saving ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save this half alone, JSON and safetensors, in a directory for its owner only."""
        with artefacts.new_directory(path, PARTY_KIND, private=True) as root:
            self.write(root)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
        """Load a half saved by `save`.

        Raises
        ------
        ArtefactError
            If it is not one, or is damaged.
        """
        return cls.read(artefacts.open_directory(path, PARTY_KIND), device)

    def write(self, folder: Path) -> None:
        """Write the files of this half into a folder."""
        content = {
            "name": self.name,
            "on": scalar_to_json(self.on),
            "keys": self.minter.to_dict(),
            "sampler": {"kind": self.sampler.kind, **self.sampler.to_dict()},
            "transformer": self.transformer.to_dict(),
        }
        if self.preparation is not None:
            content["preparation"] = to_json(self.preparation, "preparation")
        artefacts.write_json(folder / "party.json", content)
        artefacts.write_tensors(folder / "sampler.safetensors", self.sampler.tensors())

    @classmethod
    def read(cls, folder: Path, device: torch.device | str = "cpu") -> Self:
        """Read the files of a half from a folder."""
        content = artefacts.read_json(folder / "party.json")
        tensors = artefacts.read_tensors(folder / "sampler.safetensors", device)
        with artefacts.reading(folder, "a party's model"):
            transformer = TableTransformer.from_dict(content["transformer"])
            sampler = dict(content["sampler"])
            kind = find(sampler.pop("kind"), "samplers")
            found = cls(
                content["name"],
                transformer,
                kind.restore(sampler, tensors, transformer.spans_),
                on=scalar_from_json(content["on"]),
                minter=KeyMinter.from_dict(content["keys"]),
                preparation=from_json(content.get("preparation")),
            )
            found.source = folder
            return found


def sample_parties(
    halves: Mapping[str, PartyModel], n: int, secret: bytes, *, repairs: bool = True
) -> dict[str, pd.DataFrame]:
    """Sample all parties' columns, each party after those whose rows it needs to know of.

    Row i is the same record in all tables; `repairs` as of `PartyModel.sample_and_pass_on`. Raises
    ParameterError if halves come after each other in a circle, or after one that is not there.
    """
    times = max(half.times for half in halves.values())
    if times == 1:
        return _all_drawn(halves, n, secret, repairs)[0]
    kept: dict[str, list[pd.DataFrame]] = {name: [] for name in halves}
    for portion in portions(n, times, secret):
        tables, judged = _all_drawn(halves, *portion[1:], repairs)
        rows = chosen_rows(
            [halves[name].choice([portion], own, tables[name]) for name, own in judged.items()]
        )
        for name, table in tables.items():
            kept[name].append(table.take(rows))
    return {name: stacked(own) for name, own in kept.items()}


def _all_drawn(
    halves: Mapping[str, PartyModel], n: int, secret: bytes, repairs: bool
) -> tuple[dict[str, pd.DataFrame], PassedOn]:
    """Draw all parties' columns, and return what each computed for the choice of rows, too."""
    tables: dict[str, pd.DataFrame] = {}
    judged: dict[str, npt.NDArray[np.float32]] = {}
    waiting: dict[str, dict[str, npt.NDArray[np.float32]]] = {name: {} for name in halves}
    while len(tables) < len(halves):
        ready = [n for n in halves if n not in tables and set(halves[n].after) <= set(tables)]
        if not ready:
            left = ", ".join(name for name in halves if name not in tables)
            raise ParameterError(f"the halves of {left} wait for halves that are not there")
        for name in ready:
            half = halves[name]
            tables[name], passed_on = half.sample_and_pass_on(
                n, secret, waiting.pop(name), repairs=repairs
            )
            for receiver, numbers in passed_on.items():
                if receiver in waiting:
                    waiting[receiver][name] = numbers
                elif receiver == CHOOSER:
                    judged[name] = numbers
    return {name: tables[name] for name in halves}, judged


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put tables below each other, and count their rows anew; the index keeps its name."""
    table = tables[0] if len(tables) == 1 else pd.concat(tables)
    return table.set_axis(pd.RangeIndex(len(table), name=tables[0].index.name), axis=0)


def with_keys(table: pd.DataFrame, minter: KeyMinter, on: Hashable) -> pd.DataFrame:
    """Put fresh keys into a key column in front; into the index, if `on` is None."""
    if on is None:
        keys = minter.mint(len(table), name=table.index.name)
        return table.set_axis(pd.Index(keys), axis=0)
    table = table.copy(deep=False)
    table.insert(0, on, minter.mint(len(table), name=on))
    return table


def _block(rows: npt.NDArray[np.float32], start: int, device: torch.device) -> torch.Tensor:
    """Rows of one block, filled up with zeros."""
    own = torch.tensor(np.ascontiguousarray(rows[start : start + SAMPLE_BLOCK], np.float32))
    return F.pad(own, (0, 0, 0, SAMPLE_BLOCK - len(own))).to(device)
