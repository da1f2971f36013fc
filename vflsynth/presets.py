"""Named settings: what the VFLGAN paper's experiments used, as far as its code says."""

from __future__ import annotations

from typing import Any

from vflsynth.exceptions import ParameterError
from vflsynth.transformers import TableTransformer

# Sizes, rates and schedules of the reference code; the paper's text gives few of them.
_WINE: dict[str, Any] = {
    "latent_dim": 10,
    "generator_hidden": (16, 32, 64),
    "first_part": (16, 32),
    "shared_hidden": (32,),
    "gumbel_temperature": 0.2,
    "gradient_penalty_weight": 10.0,
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "red-wine": {
        **_WINE,
        "bias": False,
        "learning_rate": 5e-4,
        "batch_size": 16,
        "epochs": 150,
    },
    "white-wine": {**_WINE, "learning_rate": 4e-4, "batch_size": 64, "epochs": 400},
    "adult": {
        "latent_dim": 20,
        "generator_hidden": (32, 64, 128),
        "first_part": (256, 128),
        "shared_hidden": (128,),
        "gumbel_temperature": 1.0,
        "gradient_penalty_weight": 30.0,
        "learning_rate": 5e-4,
        "batch_size": 64,
        "epochs": 75,
    },
    "mnist": {
        "latent_dim": 100,
        "generator_hidden": (128, 256, 512, 1024),
        "first_part": (512, 256),
        "shared_hidden": (256,),
        "gradient_penalty_weight": 40.0,
        "learning_rate": 2e-4,
        "batch_size": 64,
        "epochs": 300,
    },
}
PRESETS = tuple(_SETTINGS)
"""Names that `preset` knows."""


def preset(name: str) -> dict[str, Any]:
    """Parameters of one of the paper's experiments, to be passed to `VFLGANSynthesizer`.

    Parameters
    ----------
    name : {"red-wine", "white-wine", "adult", "mnist"}

    Returns
    -------
    dict
        A fresh one, to be changed at will. Encoding and penalty are the reference code's too: plain
        standardisation, no rare or repeated values set apart, the layer-wise penalty, batch
        normalisation with eps 0.8, the last or best epoch's generator rather than an average.

    Raises
    ------
    ParameterError
        If there is no such preset.

    Notes
    -----
    Source: the reference code of VFLGAN; the paper leaves out the penalty's weight and most sizes.

    Examples
    --------
    >>> from vflsynth import VFLGANSynthesizer, preset
    >>> VFLGANSynthesizer(**preset("red-wine") | {"epochs": 10}).epochs
    10
    """
    if name not in _SETTINGS:
        raise ParameterError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return {
        "gradient_penalty": "layerwise",
        "batch_norm_eps": 0.8,
        "generator_average": 0.0,
        "transformer": TableTransformer(rare_threshold=0.0, spike_share=None),
        **_SETTINGS[name],
    }
