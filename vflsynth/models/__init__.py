"""Fitted models: each party's half, how it samples, and how it is saved."""

from vflsynth.models.autoregressive import AutoregressiveSampler
from vflsynth.models.party_model import PartyModel, sample_parties
from vflsynth.models.passing import draw_with_files
from vflsynth.models.samplers import (
    GeneratorSampler,
    GeneratorSpec,
    LatentTreeSampler,
    MarginalSampler,
    RowSampler,
)

__all__ = [
    "AutoregressiveSampler",
    "GeneratorSampler",
    "GeneratorSpec",
    "LatentTreeSampler",
    "MarginalSampler",
    "PartyModel",
    "RowSampler",
    "draw_with_files",
    "sample_parties",
]
