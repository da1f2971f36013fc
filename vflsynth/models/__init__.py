"""Fitted models: each party's half, how it samples, and how it is saved."""

from vflsynth.models.party_model import PartyModel
from vflsynth.models.samplers import RowSampler
from vflsynth.models.sources import Numbers, Source, number_sources

__all__ = ["Numbers", "PartyModel", "RowSampler", "Source", "number_sources"]
