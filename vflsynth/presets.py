"""Named settings: what the VFLGAN paper's experiments used, as far as its code says."""

from __future__ import annotations

from typing import Any

from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ParameterError

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
    "red-wine": {**_WINE, "bias": False, "learning_rate": 5e-4, "batch_size": 16, "epochs": 150},
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
METHODS = ("vflgan", "vflgan-base", "vertigan", "wgan-gp")
"""Methods that `preset` knows: those of the paper's comparison."""


def preset(name: str, method: str = "vflgan") -> dict[str, Any]:
    """Parameters of one of the paper's experiments, to be passed to the method's synthesizer.

    Parameters
    ----------
    name : {"red-wine", "white-wine", "adult", "mnist"}
    method : {"vflgan", "vflgan-base", "vertigan", "wgan-gp"}, default="vflgan"
        The first two are for `VFLGANSynthesizer`; VFLGAN-base has no private heads (§5.1.2). The
        others are for `VertiGANSynthesizer` and `WGANGPSynthesizer`.

    Returns
    -------
    dict
        A fresh one, to be changed at will. Encoding and penalty are the reference code's too: plain
        standardisation, no rare or repeated values set apart, rare and extreme ones kept, the
        layer-wise penalty, batch normalisation with eps 0.8, the last or best epoch's generator
        rather than an average.

    Raises
    ------
    ParameterError
        If there is no such preset or method.

    Notes
    -----
    Source: the reference code of VFLGAN; the paper leaves out the penalty's weight and most sizes.
    There is no code of the other methods. According to the paper's appendix A.4 their generators
    are VFLGAN's. VertiGAN's discriminators have the hidden layers of VFLGAN's first part. WGAN-GP's
    has as many units as both first parts and the shared discriminator together.

    Examples
    --------
    >>> from vflsynth import VFLGANSynthesizer, preset
    >>> VFLGANSynthesizer(**preset("red-wine") | {"epochs": 10}).epochs
    10
    """
    if name not in _SETTINGS:
        raise ParameterError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    if method not in METHODS:
        raise ParameterError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
    settings = {
        "batch_norm_eps": 0.8,
        "generator_average": 0.0,
        "model_selection": "best",
        "betas": (0.5, 0.999),
        "calibrate_marginals": False,
        "structure": "ignore",
        "transformer": TableTransformer(
            continuous="standard",
            rare_threshold=0.0,
            spike_share=None,
            rare_records=0,
            extreme_records=0,
        ),
        **_SETTINGS[name],
    }
    if method in ("vertigan", "wgan-gp"):
        first_part, shared_hidden = settings.pop("first_part"), settings.pop("shared_hidden")
        if method == "wgan-gp":
            first_part = (*(2 * size for size in first_part), *shared_hidden)
        settings["discriminator_hidden"] = first_part
    else:
        settings |= {
            "generator": "parallel",
            "residuals": False,
            "gradient_penalty": "layerwise",
            "discriminator_steps": 5,
            "private_heads": method == "vflgan",
        }
    return settings
