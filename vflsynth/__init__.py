"""Synthetic tables from vertically partitioned data: several parties, one table, no join.

Several organisations hold different columns about the same records. `VFLGANSynthesizer` learns to
generate all columns together, so that relations across organisations survive, while each
organisation's rows stay where they are.

Names are imported when they are first used: ``import vflsynth`` itself takes no time.
"""

from typing import TYPE_CHECKING

from vflsynth._lazy import lazily
from vflsynth._version import __version__

if TYPE_CHECKING:
    from vflsynth.audit import audit_intermediate_features, audit_synthetic_data
    from vflsynth.cli.publish import publish
    from vflsynth.columns import Range, TableTransformer
    from vflsynth.contract import ColumnContract, Contract, PartyContract
    from vflsynth.evaluation import evaluate
    from vflsynth.frames import MatchOn, read_records
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
        MixtureSynthesizer,
        PairwiseTables,
        VertiGANSynthesizer,
        VFLGANSynthesizer,
        WGANGPSynthesizer,
    )
    from vflsynth.models import PartyModel
    from vflsynth.presets import preset
    from vflsynth.release import release_gate, verify_release, write_release
    from vflsynth.run.loop import EarlyStopping
else:
    __getattr__ = lazily(__name__)

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
    "audit_intermediate_features",
    "audit_synthetic_data",
    "evaluate",
    "load",
    "preset",
    "publish",
    "read_records",
    "release_gate",
    "verify_release",
    "write_release",
]


def __dir__() -> list[str]:
    return __all__
