"""Warnings point at the user's line, whichever way leads to them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from tests.callbacks import CtrlC
from vflsynth import (
    DPLTSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
)
from vflsynth.columns import PublicSchema
from vflsynth.exceptions import NoPrivacyWarning, PublishingWarning
from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.methods.pairwise import product_mixtures

pytestmark = pytest.mark.usefixtures("short_searches")


@pytest.mark.parametrize("synthesizer", [VFLGANSynthesizer, VertiGANSynthesizer])
def test_an_interrupted_fit_warns_where_it_was_called(party_frames, synthesizer):
    model = synthesizer(epochs=3, verbose=0, random_state=0)
    with pytest.warns(RuntimeWarning, match="interrupted in epoch 2 of 3") as interrupted:
        model.fit(party_frames(), on="record_id", callbacks=[CtrlC()])
    assert [warning.filename for warning in interrupted] == [__file__]


def test_a_mechanism_that_does_not_protect_warns_where_it_was_asked_for(party_frames):
    privacy = FirstLayer(epsilon=10, delta=1e-3)
    model = VFLGANSynthesizer(privacy=privacy, epochs=1, batch_size=8, verbose=0, random_state=0)
    with pytest.warns(NoPrivacyWarning) as told:
        model.fit(party_frames(), on="record_id")
    assert [warning.filename for warning in told] == [__file__]


def of_400_records(synthesizer, mechanism, delta, **more):
    """With so little noise that what is published counts 400."""
    x = np.arange(400) % 10
    schema = PublicSchema({"x": (0, 10)}, {"big": (False, True)}, dtypes="given")
    options = {"noise_multiplier": 0.1, "delta": delta, "public_schema": schema, "n_bins": 4}
    small = {"epochs": 1, "batch_size": 50, "generator_hidden": (4,), "verbose": 0}
    if synthesizer in (DPLTSynthesizer, MixtureSynthesizer):
        small = {}
    made = synthesizer(privacy=mechanism(**options, **more), random_state=0, **small)
    return made, {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"big": x > 4})}


PRIVATE_NUMBERS = [
    (VFLGANSynthesizer, DPSGD, {"n_records": 99}),  # stated too low
    (DPLTSynthesizer, LatentTree, {}),
    (MixtureSynthesizer, PairwiseTables, {}),
]


@pytest.mark.parametrize(("synthesizer", "mechanism", "more"), PRIVATE_NUMBERS)
def test_a_delta_of_one_over_n_warns_where_only_what_is_published_tells_n(
    synthesizer, mechanism, more
):
    model, frames = of_400_records(synthesizer, mechanism, 0.01, **more)
    with pytest.warns(NoPrivacyWarning) as told:
        model.fit(frames)
    told = [warning for warning in told if warning.category is NoPrivacyWarning]
    assert [warning.filename for warning in told] == [__file__] * 2
    for party, warning in zip("ab", told):
        for words in (f"party '{party}': delta=0.01", "count about ", "below 0.0025", "insists"):
            assert words in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoPrivacyWarning)
        of_400_records(synthesizer, mechanism, 0.01, large_delta=True, **more)[0].fit(frames)
        of_400_records(synthesizer, mechanism, 0.001, **more)[0].fit(frames)


def test_noise_alone_does_not_warn():
    """Of as much of it some fits count thousands of records where there are 400."""
    model, frames = of_400_records(DPLTSynthesizer, LatentTree, 0.001)
    model.privacy.set_params(noise_multiplier=2000.0)
    for _ in range(5):
        model.fit(frames)


def test_parties_whose_relations_are_noise_are_named_where_fit_was_called(monkeypatch):
    """Which is decided by noise, and so is decided here."""
    own = lambda evidence, groups: groups.unsqueeze(1) == groups  # noqa: E731
    monkeypatch.setattr(product_mixtures, "related_pairs", own)
    none = lambda *evidence: torch.zeros(2, 2, dtype=torch.bool)  # noqa: E731
    monkeypatch.setattr(product_mixtures, "surely_related", none)
    draw = np.random.default_rng(0)
    frames = {party: pd.DataFrame({f"of_{party}": draw.integers(0, 4, 400)}) for party in "ab"}
    schema = PublicSchema({"of_a": (0, 3), "of_b": (0, 3)}, dtypes="given")
    privacy = PairwiseTables(epsilon=0.1, delta=1e-4, public_schema=schema)
    with pytest.warns(PublishingWarning, match="no relation of columns of 'a' and 'b'") as told:
        MixtureSynthesizer(privacy=privacy, random_state=0).fit(frames)
    told = [warning for warning in told if "no relation" in str(warning.message)]
    assert [warning.filename for warning in told] == [__file__]
