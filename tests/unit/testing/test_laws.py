"""The laws find planted bugs, and say which law, of what, and what was found."""

import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator

from vflsynth import IndependentSynthesizer, VertiGANSynthesizer, registry
from vflsynth.columns import ContinuousTransformer
from vflsynth.exceptions import PrivacyParameterError
from vflsynth.methods.marginals.method import CopulaMethod, MarginalSampler
from vflsynth.methods.vertigan.method import VertiGANMethod, VertiGANParty
from vflsynth.privacy import GaussianRelease, LedgerEntry, NeighbouringRelation, PrivacyLedger
from vflsynth.splitdefense import Isotropic, Protection
from vflsynth.splitdefense.protections.gradients import root_mean_square
from vflsynth.testing import (
    column_kind_checks,
    mechanism_checks,
    parametrize_with_checks,
    protection_checks,
    synthesizer_checks,
)

pytestmark = pytest.mark.usefixtures("own_classes")


def broken(checks):
    """Names of the laws that do not hold, with what each says."""
    found = {}
    for check in checks:
        try:
            check()
        except AssertionError as error:
            found[check.law.__name__] = str(error)
    assert all(f"breaks the law {law!r}: " in says for law, says in found.items())
    return found


# -- synthesizers ----------------------------------------------------------------------------------


class Undocumented(IndependentSynthesizer):
    def fit(self, *arguments, **options):
        self.surprise_ = 1
        return super().fit(*arguments, **options)


class Careless(IndependentSynthesizer):
    def __init__(self, column_kinds=None, transformer=None, random_state=None):
        super().__init__(
            column_kinds=column_kinds, transformer=transformer, random_state=random_state
        )

    def fit(self, party_frames, on=None):
        for frame in party_frames.values():
            frame["new"] = np.random.rand(len(frame))  # noqa: NPY002
        return super().fit(party_frames, on)


class Repeating(IndependentSynthesizer):
    def sample(self, n, **options):
        return super().sample(n, **options | {"random_state": 0})


class Overwriting(IndependentSynthesizer):
    def __init__(self, *, column_kinds=None, transformer=None, random_state=None):
        super().__init__(
            column_kinds=column_kinds or {}, transformer=transformer, random_state=random_state
        )


class Planting(MarginalSampler):
    def to_dict(self):
        return super().to_dict() | {"example": self.row}


class Pickling(MarginalSampler):
    def to_dict(self):
        return super().to_dict() | {"example": str(pickle.dumps(self.width))}


class CheatingMethod(CopulaMethod):
    def build(self, party, *arguments):
        super().build(party, *arguments)
        self.first = getattr(self, "first", party)

    def samplers(self, party, settings):
        (made,) = super().samplers(party, settings)
        made.row = party.encode()[3].tolist()
        if self.parameters.cheat is None:
            made.loadings += float(self.first.encode().sum())
        else:
            made.__class__ = self.parameters.cheat
        return [made]


class Reading(IndependentSynthesizer):
    methods: ClassVar = {None: CheatingMethod}
    cheat = None


class Keeping(Reading):
    cheat = Planting


class Pickles(Reading):
    cheat = Pickling


class Forgetting(VertiGANParty):
    def load_state(self, state):
        super().load_state({n: own * 0 if "optim" in n else own for n, own in state.items()})


class ForgettingMethod(VertiGANMethod):
    party = Forgetting


class Forgetful(VertiGANSynthesizer):
    methods: ClassVar = {None: ForgettingMethod}

    def __init__(self, *, epochs=2, device="cpu", random_state=None, verbose=0):
        super().__init__(epochs=epochs, device=device, random_state=random_state, verbose=verbose)


@pytest.mark.parametrize(
    ("kind", "laws"),
    [
        (Reading, {"others_show_by_their_messages_alone"}),
        (Keeping, {"no_record_is_saved"}),
        (Pickles, {"no_record_is_saved"}),
        (Forgetful, {"a_resumed_fit_is_the_whole_one"}),
        (Overwriting, {"init_only_stores_its_arguments", "clone_and_set_params_round_trip"}),
        (Undocumented, {"learned_attributes_are_the_documented_ones"}),
        (
            Careless,
            {
                "arguments_are_keywords",
                "fit_returns_self_and_leaves_its_inputs_alone",
                "global_random_state_is_neither_read_nor_changed",
            },
        ),
        (Repeating, {"two_samples_differ_and_a_seeded_one_repeats"}),
    ],
)
def test_synthesizers(kind, laws):
    checks = synthesizer_checks(registry.register(kind)())
    assert set(broken(check for check in checks if check.law.__name__ in laws)) == laws


# -- columns ---------------------------------------------------------------------------------------

COLUMN = pd.Series([1.5, 2.25, np.nan, 4.125], name="x")


class Rounding(ContinuousTransformer):
    kind = "rounding"

    def _decode(self, matrix):
        return super()._decode(matrix).round(1)


class Shuffling(ContinuousTransformer):
    kind = "shuffling"

    def encode_into(self, column, out):
        super().encode_into(column.sort_values(), out)


class Hoarding(ContinuousTransformer):
    kind = "hoarding"

    def _state(self):
        return super()._state() | {"rows": self.rows}

    def fit(self, column, y=None):
        self.rows = column.fillna(0.0).tolist()
        np.random.rand()  # noqa: NPY002
        return super().fit(column, y)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Hoarding, "the_order_of_records_changes_no_code"),
        (Hoarding, "global_random_state_is_left_alone"),
        (Rounding, "the_column_survives_the_round_trip"),
        (Shuffling, "the_order_of_records_changes_no_code"),
    ],
)
def test_columns(kind, law):
    found = broken(column_kind_checks(registry.register(kind)(), COLUMN))
    assert law in found
    assert "an_empty_column_is_refused" not in found


# -- protections -----------------------------------------------------------------------------------


class Absolute(Protection):
    def protect(self, gradients, context):
        return gradients + context.draws.normal("x", tuple(gradients.shape[1:]))


class Unseeded(Protection):
    def protect(self, gradients, context):
        return gradients + root_mean_square(gradients) * torch.randn(gradients.shape)


class Seeding(Protection):
    def protect(self, gradients, context):
        torch.manual_seed(0)
        return gradients + root_mean_square(gradients) * torch.randn(gradients.shape[1:])


class InPlace(Protection):
    def protect(self, gradients, context):
        return gradients.mul_(0.5)


@pytest.mark.parametrize(
    ("kind", "laws"),
    [
        (
            Absolute,
            {
                "scale_does_not_matter",
                "zero_stays_zero",
                "gradients_that_are_not_finite_are_refused",
            },
        ),
        (Unseeded, {"draws_belong_to_seed_and_step", "replicas_do_not_mix"}),
        (Seeding, {"it_keeps_nothing_and_draws_nothing_else"}),
        (InPlace, {"what_is_sent_has_the_gradients_shape"}),
    ],
)
def test_protections(kind, laws):
    assert laws <= set(broken(protection_checks(registry.register(kind)())))


def test_a_class_that_is_not_registered():
    found = broken(protection_checks(Absolute()))
    assert "write @vflsynth.registry.register above it" in found["its_class_is_registered"]
    assert "Absolute() breaks the law 'its_class_is_reg" in found["its_class_is_registered"]


# -- mechanisms ------------------------------------------------------------------------------------


class Count(BaseEstimator):
    """Release a noisy count: the smallest mechanism that there can be."""

    registry_group = "mechanisms"
    name: ClassVar[str] = "count"
    wrong_by = 1.0

    def __init__(self, *, epsilon=None, delta=None, noise_multiplier=None):
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier

    def check(self):
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise PrivacyParameterError("epsilon", self.epsilon, "given, or noise_multiplier")
        if self.epsilon is not None and self.epsilon <= 0:
            raise PrivacyParameterError("epsilon", self.epsilon, "positive")
        if self.delta is None:
            raise PrivacyParameterError("delta", None, "given")

    def plan(self):
        self.check()
        noise = self.noise_multiplier
        if noise is None:
            low, high = 1e-3, 1e3
            while high / low > 1.0001:
                noise = (low * high) ** 0.5
                enough = self._ledger(noise).epsilon() <= self.epsilon
                low, high = (low, noise) if enough else (noise, high)
            noise = high * self.wrong_by
        return Planned(self._ledger(noise))

    def _ledger(self, noise):
        release = GaussianRelease(
            released="the number of records",
            party="a",
            noise_multiplier=noise,
            sensitivity=1.0,
            relation=NeighbouringRelation.ADD_OR_REMOVE_ONE,
        )
        return PrivacyLedger(
            mechanism="noisy count",
            claim="ε bounds what the count reveals.",
            covers_synthetic_data=True,
            delta=self.delta,
            entries=(LedgerEntry("count", release),),
            target_epsilon=self.epsilon,
            protected_against=("whoever reads the count",),
        )


class Planned:
    covers: ClassVar[dict] = {}

    def __init__(self, ledger):
        self.ledger = ledger


class Overspending(Count):
    wrong_by = 0.8


class Deaf(Count):
    def plan(self):
        return Planned(Count(epsilon=1.0, delta=self.delta)._ledger(8.0))


def checks_of(kind):
    return mechanism_checks(kind(epsilon=1.0, delta=1e-5), lambda mechanism: mechanism.plan())


def test_mechanisms():
    nobody = broken(checks_of(registry.register(Count)))
    assert set(nobody) == {"nothing_but_releases_shows"}
    assert "no registered synthesizer has it among its methods" in nobody.popitem()[1]
    found = broken(checks_of(registry.register(Overspending)))
    law = "noise_is_calibrated_to_epsilon"
    assert set(found) == {law, "nothing_but_releases_shows"}
    assert "asked for an epsilon of 1, the ledger has 1." in found[law]
    assert {law, "more_noise_costs_less"} < set(broken(checks_of(registry.register(Deaf))))


# -- pytest ----------------------------------------------------------------------------------------


def test_every_law_of_every_object_is_a_test_of_its_own():
    mark = parametrize_with_checks({"iso": protection_checks(Isotropic())})
    ids = [parameter.id for parameter in mark.args[1]]
    assert "iso-scale_does_not_matter" in ids
    assert len(set(ids)) == len(ids) > 10
