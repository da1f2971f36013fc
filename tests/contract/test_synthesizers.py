"""Laws of every synthesizer; `vflsynth.testing` has them."""

import pytest

from vflsynth import (
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
from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.privacy import PublicSchema
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
HIDDEN = {"discriminator_hidden": (8,)}
# A little noise, so that tiny tables show something, and given as such: nothing is calibrated.
NOISE = {
    "noise_multiplier": 0.02,
    "delta": 1e-3,
    "n_bins": 8,
    "public_schema": PublicSchema(dtypes="given"),
}
LIKELIHOOD = {"epochs": 2, "hidden": 8, "n_features": 16, "device": "cpu", "verbose": 0}
# To be extended by every new synthesizer, with parameters that make it fast. `VARIANTS` of one that
# is listed, by a parameter or a mechanism that another synthesizer shows, wait for `make slow`; so
# do laws that are broken by what all have in common.
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
    "autoregressive": AutoregressiveSynthesizer(**LIKELIHOOD),
    "autoregressive, trained contexts": AutoregressiveSynthesizer(**LIKELIHOOD, protocol="trained"),
    "autoregressive, one message": AutoregressiveSynthesizer(**LIKELIHOOD, protocol="one_message"),
    "DPLT": DPLTSynthesizer(privacy=LatentTree(**NOISE), n_latent_states=3),
    "mixture": MixtureSynthesizer(privacy=PairwiseTables(**NOISE), n_components=8),
    "VFLGAN, DP-SGD": VFLGANSynthesizer(**CUT, privacy=DPSGD(**NOISE, n_records=60)),
    "VFLGAN, first layer": VFLGANSynthesizer(
        **CUT, privacy=FirstLayer(noise_multiplier=1.0, delta=1e-3)
    ),
    "VertiGAN, DP-SGD": VertiGANSynthesizer(**GAN, **HIDDEN, privacy=DPSGD(**NOISE, n_records=60)),
    "VertiGAN, first layer": VertiGANSynthesizer(
        **GAN, **HIDDEN, privacy=FirstLayer(noise_multiplier=1.0, delta=1e-3)
    ),
    "WGAN-GP, DP-SGD": WGANGPSynthesizer(**GAN, **HIDDEN, privacy=DPSGD(**NOISE, n_records=60)),
    "WGAN-GP, DPSGD-GAN": WGANGPSynthesizer(**GAN, **HIDDEN, privacy=DPSGDGAN(**NOISE)),
    "WGAN-GP, GS-WGAN": WGANGPSynthesizer(
        **GAN | {"epochs": 1}, **HIDDEN, privacy=GSWGAN(**NOISE, n_shards=2)
    ),
    "WGAN-GP, first layer": WGANGPSynthesizer(
        **GAN, **HIDDEN, privacy=FirstLayer(noise_multiplier=1.0, delta=1e-3)
    ),
}


@pytest.fixture(autouse=True, scope="module")
def _short(short_searches, few_steps):
    """Take few steps where their number is no parameter."""


VARIANTS = {
    "VFLGAN, first layer",
    "WGAN-GP, DPSGD-GAN",
    "WGAN-GP, GS-WGAN",
    "VFLGAN-base",
    "VFLGAN, last epoch",
    "autoregressive, trained contexts",
    "autoregressive, one message",
    "VertiGAN, DP-SGD",
    "VertiGAN, first layer",
    "WGAN-GP, DP-SGD",
    "WGAN-GP, first layer",
}


# Of these, whose training or encoding another one shows, the laws that are most easily broken.
ALIKE = {"WGAN-GP", "Gaussian copula", "VFLGAN, DP-SGD"}
TELLING = {
    "same_random_state_same_bytes",
    "samples_look_like_the_party_frames",
    "parts_are_the_table",
    "no_two_private_fits_are_alike",
    "nothing_but_releases_shows",
}
# What the base class makes of a generator, a second fit, rows or parties is the same for all.
SHOWN_BY = {
    "generators_are_random_states": {"independent"},
    "global_random_state_is_neither_read_nor_changed": {"VFLGAN", "autoregressive"},
    "the_order_of_the_parties_changes_no_value": {"VFLGAN", "autoregressive"},
    "the_order_of_rows_changes_no_value": {"VFLGAN", "autoregressive"},
    "names_of_columns_change_no_value": {"VFLGAN", "autoregressive"},
    "a_failed_fit_keeps_the_model": {"VertiGAN", "DPLT"},
    "any_number_of_parties_will_do": {"VFLGAN", "autoregressive"},
    "a_longer_sample_begins_like_a_shorter_one": {"VFLGAN", "autoregressive"},
    "others_show_by_their_messages_alone": {"VFLGAN", "VertiGAN", "autoregressive"},
    "a_resumed_fit_is_the_whole_one": {"VertiGAN", "autoregressive"},
    "records_are_completed": {"VertiGAN", "autoregressive", "mixture", "DPLT"},
    "conditions_hold": {"VFLGAN", "independent", "autoregressive"},
    "fit_forgets_the_previous_fit": {"autoregressive"},
    "a_loaded_model_can_be_fitted_again": {"autoregressive", "DPLT"},
    "fit_returns_self_and_leaves_its_inputs_alone": {"VertiGAN", "DPLT"},
    "same_random_state_same_bytes": {"VFLGAN", "VertiGAN", "independent", "autoregressive"},
    "declared_kinds_are_used": {"VertiGAN", "independent", "mixture"},
    "learned_attributes_are_the_documented_ones": {"VFLGAN", "autoregressive", "mixture", "DPLT"},
}


def waits(name, check):
    law = check.law.__name__
    if name in VARIANTS or (name in ALIKE and law not in TELLING):
        return True
    return name not in SHOWN_BY.get(law, {name})


def checks(slow):
    made = {name: synthesizer_checks(synthesizer) for name, synthesizer in SYNTHESIZERS.items()}
    return parametrize_with_checks(
        {name: [c for c in own if waits(name, c) == slow] for name, own in made.items()}
    )


@checks(slow=False)
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_laws(check):
    check()


@pytest.mark.slow
@checks(slow=True)
@pytest.mark.filterwarnings("ignore::vflsynth.exceptions.NoPrivacyWarning")
def test_laws_of_variants(check):
    check()
