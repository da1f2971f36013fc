import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from vflsynth import DPSGDGAN, GSWGAN, LatentTree, PairwiseTables, VertiGANSynthesizer
from vflsynth.exceptions import ParameterError
from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.mechanisms.base import in_full_precision
from vflsynth.privacy import NeighbouringRelation, PublicSchema, Sampler

SCHEMA = PublicSchema(dtypes="given", bounds={"x": (0, 1)})
VALID = {"epsilon": 10.0, "delta": 5e-4}
ALL = (DPSGD, DPSGDGAN, FirstLayer, GSWGAN, LatentTree, PairwiseTables)


def test_clone_and_set_params_round_trip():
    mechanism = DPSGD(**VALID, public_schema=SCHEMA, n_records=60)
    copy = clone(mechanism)
    assert copy is not mechanism
    assert copy.get_params() == mechanism.get_params()
    assert copy.set_params(n_records=500).n_records == 500


def test_parameters_are_keyword_only():
    for mechanism in ALL:
        with pytest.raises(TypeError):
            mechanism(10.0, 1e-5)


@pytest.mark.parametrize("mechanism", ALL)
def test_every_mechanism_takes_its_own_parameters_only(mechanism):
    own = set(mechanism().get_params())
    for parameter in {name for other in ALL for name in other().get_params()} - own:
        with pytest.raises(TypeError, match=parameter):
            mechanism(**VALID, **{parameter: 7})
    assert set(mechanism.rules) <= own


@pytest.mark.parametrize(
    ("mechanism", "name", "relation", "sampler", "one_release"),
    [
        (LatentTree, "latent_tree", "add_or_remove_one", "none", True),
        (PairwiseTables, "pairwise_tables", "add_or_remove_one", "none", True),
        (DPSGD, "dpsgd", "add_or_remove_one", "poisson", False),
        (FirstLayer, "first_layer", "replace_one", "without_replacement", False),
        (DPSGDGAN, "dpsgd_gan", "replace_one", "without_replacement", False),
        (GSWGAN, "gs_wgan", "replace_one", "without_replacement", True),
    ],
)
def test_defaults_of_each_mechanism(mechanism, name, relation, sampler, one_release):
    given = mechanism(**VALID)
    given.check()
    assert given.name == name
    assert given.relation is NeighbouringRelation(relation)
    assert given.sampler is Sampler(sampler)
    assert given.one_release == one_release


@pytest.mark.parametrize("mechanism", ALL)
def test_noise_multiplier_instead_of_epsilon(mechanism):
    mechanism(delta=5e-4, noise_multiplier=1.1).check()


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": None}, "epsilon"),
        ({"noise_multiplier": 1.0}, "not both"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": "10"}, "epsilon"),
        ({"delta": None}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"epsilon": None, "noise_multiplier": -1.0}, "noise_multiplier"),
        ({"epsilon": None, "noise_multiplier": 1e300}, "noise_multiplier"),
        ({"neighbouring_relation": "swap"}, "neighbouring_relation"),
    ],
)
def test_illegal_values_of_what_all_have_are_named(mechanism, changes, message):
    with pytest.raises(ParameterError, match=message):
        mechanism(**(VALID | changes)).check()


HISTOGRAMS = tuple(mechanism for mechanism in ALL if mechanism is not FirstLayer)
CLIPPING = (DPSGD, DPSGDGAN, FirstLayer, GSWGAN)
FIXED = (DPSGDGAN, FirstLayer, GSWGAN)


@pytest.mark.parametrize(
    ("mechanisms", "changes", "message"),
    [
        (CLIPPING, {"max_grad_norm": 0.0}, "max_grad_norm"),
        (CLIPPING, {"max_grad_norm": 1e40}, "max_grad_norm"),
        (FIXED, {"neighbouring_relation": "add_or_remove_one"}, "'replace_one' for {}"),
        ((DPSGD,), {"n_records": 1}, "n_records"),
        ((GSWGAN,), {"n_shards": 1}, "n_shards"),
        ((PairwiseTables, LatentTree), {"preprocessing_share": 0.0}, "share must be a number in"),
        (HISTOGRAMS, {"preprocessing_share": 1.0}, "preprocessing_share"),
        (HISTOGRAMS, {"preprocessing_share": -0.1}, "preprocessing_share"),
        ((DPSGD, DPSGDGAN, GSWGAN), {"preprocessing_share": 0}, "public_schema"),
        (HISTOGRAMS, {"public_schema": {"bounds": {"a": (0, 1)}}}, "public_schema"),
        (HISTOGRAMS, {"n_bins": 1}, "n_bins"),
        (HISTOGRAMS, {"n_bins": 2.5}, "n_bins"),
        (HISTOGRAMS, {"n_bins": 10**7}, "n_bins"),
    ],
)
def test_illegal_values_of_what_some_have_are_named(mechanisms, changes, message):
    for mechanism in mechanisms:
        with pytest.raises(ParameterError, match=message.format(mechanism.__name__)):
            mechanism(**(VALID | changes)).check()


def test_public_scaling_costs_nothing_with_dpsgd():
    DPSGD(**VALID, public_schema=SCHEMA, preprocessing_share=0.0).check()


@pytest.mark.parametrize(
    ("mechanism", "relation"),
    [(FirstLayer, None), (GSWGAN, None), (PairwiseTables, "replace_one"), (DPSGD, "replace_one")],
)
def test_a_delta_of_one_over_n_is_refused_unless_insisted_on(mechanism, relation):
    given = mechanism(epsilon=1.0, delta=1e-2, neighbouring_relation=relation)
    given.check_delta(99)
    for n_records in (100, 101):
        with pytest.raises(
            ParameterError, match=r"below one over the number of records, 10.*insis"
        ):
            given.check_delta(n_records)
    given.set_params(large_delta=True).check_delta(101)


@pytest.mark.parametrize("mechanism", ALL)
def test_a_delta_that_no_table_justifies_is_refused_unless_insisted_on(mechanism):
    """Before any record is looked at."""
    mechanism(**VALID).set_params(delta=0.01).check()
    for delta in (0.011, 1 / 60, 0.5, 0.99):
        given = mechanism(**VALID).set_params(delta=delta)
        with pytest.raises(ParameterError, match=r"delta must be at most 0\.01, .*insists"):
            given.check()
        given.set_params(large_delta=True).check()


@pytest.mark.parametrize("mechanism", [PairwiseTables, LatentTree])
def test_a_private_number_of_records_is_not_compared_with_delta(mechanism):
    """Whether a fit is refused would tell it."""
    mechanism(epsilon=1.0, delta=1e-2).check_delta(10**6)


def test_the_public_number_of_records_is_compared_with_delta():
    given = DPSGD(epsilon=1.0, delta=1e-2, n_records=100)
    for n_records in (5, 10**6):
        with pytest.raises(ParameterError, match="100"):
            given.check_delta(n_records)
    DPSGD(epsilon=1.0, delta=1e-2, n_records=99).check_delta(10**6)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_noise_is_planned_with_numbers_in_full_precision(kind):
    """Half of one as float16 has noise on a grid of steps that overflow."""
    given = DPSGD(epsilon=kind(2.0), delta=1e-4, max_grad_norm=kind(0.5), n_records=60)
    used = in_full_precision(given)
    assert [type(used.epsilon), type(used.max_grad_norm)] == [float, float]
    assert (used.epsilon, used.max_grad_norm, used.n_records) == (2.0, 0.5, 60)
    assert type(given.epsilon) is kind
    frames = {"bank": pd.DataFrame({"x": [0.25, 0.5] * 30})}
    given.set_params(public_schema=SCHEMA)
    model = VertiGANSynthesizer(privacy=given, epochs=1, verbose=0).fit(frames)
    assert model.sample(3)["x"].between(0, 1).all()


def test_a_mechanism_without_batches_says_that_it_is_one_release():
    class Unsaid(LatentTree):
        one_release = False

    with pytest.raises(ParameterError, match=r"Unsaid draws no batches.*Fix: one_release = True"):
        Unsaid(**VALID, public_schema=SCHEMA).check()
