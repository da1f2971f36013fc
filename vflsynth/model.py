"""Fitted models: each party's half, how it samples, and how it is saved."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from vflsynth import _artefacts as artefacts
from vflsynth._random import RandomState, RandomStreams, derive, secret_from
from vflsynth.exceptions import ArtefactError
from vflsynth.frames import KeyMinter
from vflsynth.networks import Generator
from vflsynth.parties.gan_party import GANParty, sample_encoded
from vflsynth.transformers import TableTransformer

SAMPLE_BLOCK = 8192
"""Rows generated at once; part of what a sample's bytes depend on."""

_PARTY_KIND = "vflsynth party model"


@dataclass(frozen=True, slots=True)
class GeneratorSpec:
    """What is needed to build a generator besides the spans of the encoded row."""

    latent_dim: int
    hidden: tuple[int, ...]
    bias: bool
    temperature: float
    batch_norm_eps: float | None


class PartyModel:
    """One party's half of a fitted model: enough to sample its columns, and no more.

    Discriminators are training state and are not part of it; neither is any record.

    Parameters
    ----------
    name : str
    transformer : TableTransformer
        Fitted.
    spec : GeneratorSpec
    weights : mapping of str to Tensor
        State of the generator, one replica.
    on : hashable
        Name of the key column, None if records were matched by the index.
    minter : KeyMinter
        Makes fresh keys of the original type.
    device : torch.device, default="cpu"
    """

    def __init__(
        self,
        name: str,
        transformer: TableTransformer,
        spec: GeneratorSpec,
        weights: Mapping[str, torch.Tensor],
        *,
        on: Hashable,
        minter: KeyMinter,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name, self.transformer, self.spec = name, transformer, spec
        self.on, self.minter = on, minter
        self.generator = Generator(
            spec.latent_dim,
            spec.hidden,
            transformer.spans_,
            bias=spec.bias,
            temperature=spec.temperature,
            batch_norm_eps=spec.batch_norm_eps,
            streams=RandomStreams([b""], device),  # overwritten by the weights below
        )
        self.generator.load_state_dict(dict(weights))

    @classmethod
    def of(cls, party: GANParty, replica: int, minter: KeyMinter, on: Hashable) -> Self:
        """Take what a party selected in training, for one replica."""
        settings = party.settings
        spec = GeneratorSpec(
            settings.latent_dim,
            settings.generator_hidden,
            settings.bias,
            settings.gumbel_temperature,
            settings.batch_norm_eps,
        )
        weights = {k: v[replica : replica + 1] for k, v in party.selected.items()}
        return cls(
            party.name,
            party.transformer,
            spec,
            weights,
            on=on,
            minter=minter,
            device=party.streams.device,
        )

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
        device = self.generator.output.weight.device
        shared = RandomStreams([derive(secret, "latents")], device)
        private = RandomStreams([derive(secret, f"party {self.name}")], device)
        encoded = np.empty((n, self.transformer.width_), np.float32)
        for block, start in enumerate(range(0, n, SAMPLE_BLOCK)):
            latent = shared.normal("sample", block, (SAMPLE_BLOCK, self.spec.latent_dim))
            rows = encoded[start : start + SAMPLE_BLOCK]
            rows[:] = sample_encoded(self.generator, latent, private, block)[0, : len(rows)].cpu()
        return self.transformer.inverse_transform(encoded)

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
        """Save this half alone: a directory of JSON and safetensors."""
        with artefacts.new_directory(path, _PARTY_KIND) as root:
            self.write(root)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
        """Load a half saved by `save`.

        Raises
        ------
        ArtefactError
            If it is not one, or is damaged.
        """
        return cls.read(artefacts.open_directory(path, _PARTY_KIND), device)

    def write(self, folder: Path) -> None:
        """Write the files of this half into a folder."""
        artefacts.write_json(
            folder / "party.json",
            {
                "name": self.name,
                "on": self.on,
                "keys": self.minter.to_dict(),
                "generator": asdict(self.spec),
                "transformer": self.transformer.to_dict(),
            },
        )
        artefacts.write_tensors(folder / "generator.safetensors", self.generator.state_dict())

    @classmethod
    def read(cls, folder: Path, device: torch.device | str = "cpu") -> Self:
        """Read the files of a half from a folder."""
        content: dict[str, Any] = artefacts.read_json(folder / "party.json")
        weights = artefacts.read_tensors(folder / "generator.safetensors", device)
        try:
            generator = content["generator"]
            return cls(
                content["name"],
                TableTransformer.from_dict(content["transformer"]),
                GeneratorSpec(**{**generator, "hidden": tuple(generator["hidden"])}),
                weights,
                on=content["on"],
                minter=KeyMinter.from_dict(content["keys"]),
                device=device,
            )
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise ArtefactError(f"{folder} does not describe a party's model: {error}") from error
