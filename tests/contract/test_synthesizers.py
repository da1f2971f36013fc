"""Laws of every synthesizer; `vflsynth.testing` has them."""

from vflsynth.synthesizers import (
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.testing import parametrize_with_checks, synthesizer_checks

GAN = {
    "epochs": 2,
    "batch_size": 16,
    "latent_dim": 4,
    "generator_hidden": (8, 8),
    "discriminator_steps": 2,
    "device": "cpu",
    "verbose": 0,
}
CUT = GAN | {"first_part": (8,), "shared_hidden": (8,)}
# To be extended by every new synthesizer, with parameters that make it fast.
SYNTHESIZERS = {
    "VFLGAN": VFLGANSynthesizer(**CUT),
    "VFLGAN-base": VFLGANSynthesizer(
        **CUT, private_heads=False, gradient_penalty="paper", generator_average=0.0
    ),
    "VFLGAN, last epoch": VFLGANSynthesizer(
        **CUT, model_selection="last", bias=False, batch_norm_eps=None
    ),
    "VertiGAN": VertiGANSynthesizer(**GAN, discriminator_hidden=(8,)),
    "WGAN-GP": WGANGPSynthesizer(**GAN, discriminator_hidden=(8,)),
    "Gaussian copula": GaussianCopulaSynthesizer(),
    "independent": IndependentSynthesizer(),
}


@parametrize_with_checks({name: synthesizer_checks(s) for name, s in SYNTHESIZERS.items()})
def test_laws(check):
    check()
