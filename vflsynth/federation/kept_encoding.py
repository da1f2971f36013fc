"""An encoding that is released once per run, however often the run is resumed."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

import pandas as pd
import torch

from vflsynth import _artefacts as artefacts
from vflsynth.columns import NoisyHistogram, TableTransformer
from vflsynth.exceptions import ArtefactError
from vflsynth.privacy.encoding import PublicEncoding

FILE = "encoding.json"


@dataclass(frozen=True, slots=True)
class KeptEncoding(PublicEncoding):
    """A `PublicEncoding` that is written down before anything computed from it leaves.

    Parameters
    ----------
    schema, n_bins, noise_std, discovery, kinds, columns
        See `PublicEncoding`.
    folder : Path
        Of the run at this site.
    again : bool
        Take the encoding that is there instead of releasing histograms anew: the run goes on from a
        checkpoint whose networks were trained with it.
    """

    folder: Path = field(kw_only=True)
    again: bool = field(kw_only=True)

    @classmethod
    def keeping(cls, encoding: PublicEncoding, folder: Path, *, again: bool) -> Self:
        """Keep an encoding in a folder."""
        values = {f.name: getattr(encoding, f.name) for f in fields(PublicEncoding)}
        return cls(**values, folder=folder, again=again)

    def histograms(
        self, party: str, matched: pd.DataFrame, noise: torch.Generator | None = None
    ) -> dict[Hashable, NoisyHistogram]:
        """Release histograms, unless there is an encoding to go on with."""
        if self.again:
            return {}
        return PublicEncoding.histograms(self, party, matched, noise)

    def transformer(
        self, party: str, matched: pd.DataFrame, histograms: Mapping[Hashable, NoisyHistogram]
    ) -> TableTransformer:
        """Make the encoding and write it down, or read it.

        Raises
        ------
        ArtefactError
            If it is missing or damaged.
        """
        path = self.folder / FILE
        if self.again:
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ArtefactError(
                    f"{path} cannot be read: {error}. The run goes on only with the encoding that "
                    "its networks know; give the job another name to start anew"
                ) from error
            with artefacts.reading(path, "an encoding"):
                return TableTransformer.from_dict(content)
        made = PublicEncoding.transformer(self, party, matched, histograms)
        artefacts.replace_json(path, made.to_dict())
        return made
