"""Fitted models: each party's half, how it samples, and how it is saved."""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import torch

from vflsynth import _artefacts as artefacts
from vflsynth._random import RandomState, RandomStreams, derive, secret_from
from vflsynth.columns import TableTransformer
from vflsynth.columns.codec import scalar_from_json, scalar_to_json
from vflsynth.frames import KeyMinter
from vflsynth.models.samplers import SAMPLERS, RowSampler

SAMPLE_BLOCK = 8192
"""Rows generated at once; part of what a sample's bytes depend on."""

PARTY_KIND = "vflsynth party model"
"""What the manifest of a saved half says."""


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
    """

    def __init__(
        self,
        name: str,
        transformer: TableTransformer,
        sampler: RowSampler,
        *,
        on: Hashable,
        minter: KeyMinter,
    ) -> None:
        self.name, self.transformer, self.sampler = name, transformer, sampler
        self.on, self.minter = on, minter

    def sample(self, n: int, random_state: RandomState = None) -> pd.DataFrame:
        """Sample the party's columns.

        Parameters
        ----------
        n : int
            Rows.
        random_state : int, numpy Generator, RandomState or None
            Parties that use the same integer get rows that belong together.

        Returns
        -------
        DataFrame, shape (n, column)
            The party's columns in their original order and dtypes, with a fresh index.
        """
        return self.sample_from_secret(n, secret_from(random_state))

    def sample_from_secret(self, n: int, secret: bytes) -> pd.DataFrame:
        """Sample with latents from a secret that the parties share."""
        sampler = self.sampler
        shared = RandomStreams([derive(secret, "latents")], sampler.device)
        private = RandomStreams([derive(secret, f"party {self.name}")], sampler.device)
        encoded = np.empty((n, self.transformer.width_), np.float32)
        for block, start in enumerate(range(0, n, SAMPLE_BLOCK)):
            latent = shared.normal("sample", block, (SAMPLE_BLOCK, sampler.latent_dim))
            rows = encoded[start : start + SAMPLE_BLOCK]
            rows[:] = sampler.draw(latent, private, block)[: len(rows)].cpu()
        return self.transformer.inverse_transform(encoded, generated=True)

    def add_keys(self, table: pd.DataFrame) -> pd.DataFrame:
        """Put fresh keys into the key column, in front, or into the index."""
        if self.on is None:
            keys = self.minter.mint(len(table), name=table.index.name)
            return table.set_axis(pd.Index(keys), axis=0)
        table = table.copy(deep=False)
        table.insert(0, self.on, self.minter.mint(len(table), name=self.on))
        return table

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
        artefacts.write_json(
            folder / "party.json",
            {
                "name": self.name,
                "on": scalar_to_json(self.on),
                "keys": self.minter.to_dict(),
                "sampler": {"kind": self.sampler.kind, **self.sampler.to_dict()},
                "transformer": self.transformer.to_dict(),
            },
        )
        artefacts.write_tensors(folder / "sampler.safetensors", self.sampler.tensors())

    @classmethod
    def read(cls, folder: Path, device: torch.device | str = "cpu") -> Self:
        """Read the files of a half from a folder."""
        content = artefacts.read_json(folder / "party.json")
        tensors = artefacts.read_tensors(folder / "sampler.safetensors", device)
        with artefacts.reading(folder, "a party's model"):
            transformer = TableTransformer.from_dict(content["transformer"])
            sampler = dict(content["sampler"])
            kind = SAMPLERS[sampler.pop("kind")]
            return cls(
                content["name"],
                transformer,
                kind.restore(sampler, tensors, transformer.spans_, device),
                on=scalar_from_json(content["on"]),
                minter=KeyMinter.from_dict(content["keys"]),
            )
