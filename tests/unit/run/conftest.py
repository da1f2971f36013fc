"""A GAN over two tiny tables that trains in a blink."""

from collections.abc import Callable

import pytest

from tests.later import later
from vflsynth import VertiGANSynthesizer, VFLGANSynthesizer
from vflsynth.methods.gan.estimator import GANSynthesizer

FAST = {
    "model_selection": "best",
    "epochs": 6,
    "batch_size": 16,
    "latent_dim": 4,
    "generator_hidden": (8, 8),
    "discriminator_steps": 2,
    "random_state": 0,
    "device": "cpu",
    "verbose": 0,
}


@pytest.fixture(autouse=True, scope="module")
def _rough_shares(rough_shares: None) -> None:
    """Runs are compared with each other."""


@pytest.fixture(scope="module")
def make_vflgan() -> Callable[..., VFLGANSynthesizer]:
    """Make a fast VFLGAN, with some parameters changed."""
    return lambda **changes: VFLGANSynthesizer(
        **FAST | {"first_part": (8,), "shared_hidden": (8,)} | changes
    )


@pytest.fixture(params=["average, best", "VertiGAN", *later("last")])
def make_gan(request, make_vflgan) -> Callable[..., GANSynthesizer]:
    """Make one of three GANs that keep different state."""
    if request.param == "VertiGAN":
        return lambda **changes: VertiGANSynthesizer(**FAST | changes)
    if request.param == "last":
        plain = {"model_selection": "last", "generator_average": 0.0, "gradient_penalty": "paper"}
        return lambda **changes: make_vflgan(**plain | changes)
    return make_vflgan
