"""Synthetic tables from vertically partitioned data: several parties, one table, no join.

Several organisations hold different columns about the same records. `VFLGANSynthesizer` learns to
generate all columns together, so that relations across organisations survive, while each
organisation's rows stay where they are.

Names are imported when they are first used: ``import vflsynth`` itself takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vflsynth._version import __version__

if TYPE_CHECKING:
    from vflsynth.columns import Range, TableTransformer
    from vflsynth.contract import ColumnContract, Contract, PartyContract
    from vflsynth.frames import MatchOn
    from vflsynth.loading import load
    from vflsynth.mechanisms import DPSGD, FirstLayer
    from vflsynth.methods import (
        DPSGDGAN,
        GSWGAN,
        AutoregressiveSynthesizer,
        DPLTSynthesizer,
        GaussianCopulaSynthesizer,
        IndependentSynthesizer,
        LatentTree,
        MeanEmbedding,
        MixtureSynthesizer,
        PairwiseTables,
        VertiGANSynthesizer,
        VFLGANSynthesizer,
        WGANGPSynthesizer,
    )
    from vflsynth.models import PartyModel
    from vflsynth.presets import preset
    from vflsynth.run import EarlyStopping

_HOMES = {
    "columns": ("Range", "TableTransformer"),
    "contract": ("ColumnContract", "Contract", "PartyContract"),
    "frames": ("MatchOn",),
    "loading": ("load",),
    "mechanisms": ("DPSGD", "FirstLayer"),
    "methods": (
        "AutoregressiveSynthesizer",
        "DPLTSynthesizer",
        "DPSGDGAN",
        "GSWGAN",
        "GaussianCopulaSynthesizer",
        "IndependentSynthesizer",
        "LatentTree",
        "MeanEmbedding",
        "MixtureSynthesizer",
        "PairwiseTables",
        "VFLGANSynthesizer",
        "VertiGANSynthesizer",
        "WGANGPSynthesizer",
    ),
    "models": ("PartyModel",),
    "presets": ("preset",),
    "run": ("EarlyStopping",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DPSGD",
    "DPSGDGAN",
    "GSWGAN",
    "AutoregressiveSynthesizer",
    "ColumnContract",
    "Contract",
    "DPLTSynthesizer",
    "EarlyStopping",
    "FirstLayer",
    "GaussianCopulaSynthesizer",
    "IndependentSynthesizer",
    "LatentTree",
    "MatchOn",
    "MeanEmbedding",
    "MixtureSynthesizer",
    "PairwiseTables",
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vflsynth' has no attribute {name!r}")
    return getattr(import_module(f"vflsynth.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
