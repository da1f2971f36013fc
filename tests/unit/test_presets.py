import pytest

from vflsynth import VertiGANSynthesizer, VFLGANSynthesizer, WGANGPSynthesizer, preset
from vflsynth.exceptions import ParameterError
from vflsynth.presets import METHODS, PRESETS

SYNTHESIZERS = {
    "vflgan": VFLGANSynthesizer,
    "vflgan-base": VFLGANSynthesizer,
    "vertigan": VertiGANSynthesizer,
    "wgan-gp": WGANGPSynthesizer,
}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_parameters_are_those_of_the_methods_synthesizer(name, method):
    parameters = preset(name, method)
    synth = SYNTHESIZERS[method](**parameters)
    assert synth.get_params(deep=False).items() >= parameters.items()


def test_base_differs_from_vflgan_in_the_heads_alone():
    full, base = preset("adult") | {"transformer": None}, preset("adult", "vflgan-base")
    different = {k for k, v in base.items() if full[k] != v}
    assert different == {"private_heads", "transformer"}
    assert not base["private_heads"]


def test_discriminator_of_wgan_gp_has_as_many_units_as_all_of_vflgan():
    assert preset("red-wine", "wgan-gp")["discriminator_hidden"] == (2 * 16, 2 * 32, 32)
    assert preset("red-wine", "vertigan")["discriminator_hidden"] == (16, 32)


def test_presets_are_fresh():
    preset("adult")["epochs"] = 1
    assert preset("adult")["epochs"] == 75


@pytest.mark.parametrize(("name", "method"), [("wine", "vflgan"), ("adult", "gan")])
def test_unknown_names(name, method):
    with pytest.raises(ParameterError, match=f"'{name}'|'{method}'"):
        preset(name, method)
