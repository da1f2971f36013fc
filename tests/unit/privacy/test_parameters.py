import math

import pytest
from sklearn.base import clone

from vflsynth.exceptions import ParameterError
from vflsynth.privacy import GaussianPrivacy, NeighbouringRelation, PublicSchema, Sampler

SCHEMA = PublicSchema(bounds={"x": (0, 1)})
VALID = {"epsilon": 10.0, "delta": 5e-4, "public_schema": SCHEMA}


def test_clone_and_set_params_round_trip():
    privacy = GaussianPrivacy(**VALID, bandwidths=[1.0])
    copy = clone(privacy)
    assert copy is not privacy
    assert copy.get_params() == privacy.get_params()
    assert copy.set_params(max_grad_norm=2.5).max_grad_norm == 2.5


def test_parameters_are_keyword_only_and_stored_unchanged():
    with pytest.raises(TypeError):
        GaussianPrivacy(10.0, 1e-5)
    bandwidths = [1.0, 2.0]
    assert GaussianPrivacy(bandwidths=bandwidths).bandwidths is bandwidths


@pytest.mark.parametrize(
    ("mechanism", "relation", "sampler"),
    [
        ("kernel_mean_embedding", "add_or_remove_one", "none"),
        ("dpsgd", "add_or_remove_one", "poisson"),
        ("first_layer", "replace_one", "without_replacement"),
        ("dpsgd_gan", "replace_one", "without_replacement"),
        ("gs_wgan", "replace_one", "without_replacement"),
    ],
)
def test_defaults_of_each_mechanism(mechanism, relation, sampler):
    privacy = GaussianPrivacy(**VALID, mechanism=mechanism)
    privacy.validate()
    assert privacy.relation is NeighbouringRelation(relation)
    assert privacy.sampler is Sampler(sampler)


def test_noise_multiplier_instead_of_epsilon():
    GaussianPrivacy(**(VALID | {"epsilon": None, "noise_multiplier": 1.1})).validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mechanism": "magic"}, "mechanism"),
        ({"epsilon": None}, "epsilon"),
        ({"noise_multiplier": 1.0}, "not both"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": "10"}, "epsilon"),
        ({"delta": None}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"epsilon": None, "noise_multiplier": -1.0}, "noise_multiplier"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"neighbouring_relation": "swap"}, "neighbouring_relation"),
        (
            {"mechanism": "first_layer", "neighbouring_relation": "add_or_remove_one"},
            "replace_one",
        ),
        (
            {"mechanism": "dpsgd_gan", "neighbouring_relation": "add_or_remove_one"},
            "replace_one.*'dpsgd_gan'",
        ),
        (
            {"mechanism": "gs_wgan", "neighbouring_relation": "add_or_remove_one"},
            "replace_one.*'gs_wgan'",
        ),
        ({"gradient_penalty_at": "nowhere"}, "gradient_penalty_at"),
        ({"gradient_penalty_at": "records"}, "gradient_penalty_at"),
        ({"n_shards": 1}, "n_shards"),
        ({"preprocessing_share": 0.0}, "preprocessing_share"),
        ({"preprocessing_share": 1.0}, "preprocessing_share"),
        ({"n_bins": 1}, "n_bins"),
        ({"n_bins": 2.5}, "n_bins"),
        ({"n_features": 7}, "n_features"),
        ({"bandwidths": ()}, "bandwidths"),
        ({"bandwidths": (1.0, -1.0)}, "bandwidths"),
        ({"public_schema": None, "mechanism": "dpsgd", "preprocessing_share": 0}, "public_schema"),
        ({"public_schema": {"bounds": {"a": (0, 1)}}}, "public_schema"),
        ({"bandwidths": 3.0}, "bandwidths"),
    ],
)
def test_illegal_values_are_named(changes, message):
    with pytest.raises(ParameterError, match=message):
        GaussianPrivacy(**(VALID | changes)).validate()


def test_public_scaling_costs_nothing_with_dpsgd():
    GaussianPrivacy(**VALID, mechanism="dpsgd", preprocessing_share=0.0).validate()


def test_the_papers_mechanism_needs_no_schema():
    GaussianPrivacy(epsilon=10, delta=5e-4, mechanism="first_layer").validate()
