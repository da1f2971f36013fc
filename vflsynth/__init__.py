"""Synthetic tables from vertically partitioned data: several parties, one table, no join.

Several organisations hold different columns about the same records. `VFLGANSynthesizer` learns to
generate all columns together, so that relations across organisations survive, while each
organisation's rows stay where they are.
"""

from vflsynth._version import __version__
from vflsynth.columns import Range, TableTransformer
from vflsynth.contract import ColumnContract, Contract, PartyContract
from vflsynth.frames import MatchOn
from vflsynth.loading import load
from vflsynth.models import PartyModel
from vflsynth.presets import preset
from vflsynth.run import EarlyStopping
from vflsynth.synthesizers import (
    AutoregressiveSynthesizer,
    DPLTSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    MixtureSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)

__all__ = [
    "AutoregressiveSynthesizer",
    "ColumnContract",
    "Contract",
    "DPLTSynthesizer",
    "EarlyStopping",
    "GaussianCopulaSynthesizer",
    "IndependentSynthesizer",
    "MatchOn",
    "MixtureSynthesizer",
    "PartyContract",
    "PartyModel",
    "Range",
    "TableTransformer",
    "VFLGANSynthesizer",
    "VertiGANSynthesizer",
    "WGANGPSynthesizer",
    "__version__",
    "load",
    "preset",
]
