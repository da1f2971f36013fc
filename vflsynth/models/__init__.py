"""Fitted models: each party's half, how it samples, and how it is saved."""

from vflsynth.models.completing import weigh_rows
from vflsynth.models.conditions import complete_rows, sample_given
from vflsynth.models.party_model import PartyModel, sample_parties, with_keys
from vflsynth.models.passing import draw_part_with_files, draw_with_files
from vflsynth.models.samplers import RowSampler
from vflsynth.models.sources import Numbers, Source, number_sources

__all__ = [
    "Numbers",
    "PartyModel",
    "RowSampler",
    "Source",
    "complete_rows",
    "draw_part_with_files",
    "draw_with_files",
    "number_sources",
    "sample_given",
    "sample_parties",
    "weigh_rows",
    "with_keys",
]
