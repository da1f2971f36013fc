"""Parameters as JSON: everything comes back as what it was."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflsynth.codec import from_json, parameters_from_json, parameters_to_json, to_json
from vflsynth.columns import Log, Standardizer, TableTransformer
from vflsynth.exceptions import ArtefactError, ParameterError
from vflsynth.privacy import PublicSchema
from vflsynth.splitdefense import (
    GAFM,
    GAFMClassifier,
    Isotropic,
    LeakageMonitor,
    MaliciousSGD,
    Marvell,
    Protection,
    RandomizedResponse,
    SplitNNClassifier,
)


def through_json(value):
    return from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.datetimes()
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(scalars | st.tuples(scalars, scalars), inner),
    ),
    max_leaves=20,
)


@given(values)
def test_values_come_back_with_their_types(value):
    found = through_json(value)
    assert found == value
    assert json.dumps(to_json(found)) == json.dumps(to_json(value))  # 1, True and 1.0 are equal


@pytest.mark.parametrize(
    "value",
    [
        (1, [2, (3,)], {"tuple": ["not a tuple"], "object": "x", "parameters": {}}),
        {1: "a", "1": "b", (1, "x"): {}, pd.Timestamp("2020-01-01", tz="UTC"): None},
        [np.int8(3), np.float32(0.5), np.bool_(True), math.inf, -math.inf],
        pd.Timedelta("1D"),
    ],
)
def test_nothing_is_taken_for_something_else(value):
    assert through_json(value) == value


def test_not_a_number_and_arrays():
    assert math.isnan(through_json(math.nan))
    assert through_json(np.array([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert through_json(pd.Series(["a", None], dtype=object)) == ["a", None]
    assert through_json(pd.array([1, None], "Int64")) == [1, pd.NA]


@pytest.mark.parametrize(
    "value",
    [
        TableTransformer({7: "categorical", "x": "continuous"}, spike_share=None),
        TableTransformer(encoders={7: Log(2.5), ("x", 1): "ranks"}, continuous=Standardizer()),
        PublicSchema({"age": (0, 120)}, {7: ("a", "b"), ("x", 1): [True, False]}),
        Marvell(4.0),
        GAFM(discriminator_hidden=[8]),
        LeakageMonitor(every=3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_of_registered_classes(value):
    found = through_json(value)
    assert type(found) is type(value)
    assert repr(found) == repr(value)


def test_estimators_keep_everything():
    classifier = SplitNNClassifier(
        objective=GAFM(),
        protection=Isotropic(),
        label_privacy=RandomizedResponse(1.0),
        malicious={"shop": MaliciousSGD(0.1)},
        monitor=LeakageMonitor(every=5),
        transformer=TableTransformer({3: "ordered"}),
        party_dropout={"shop": 0.25},
        party_columns={"shop": [1, "x"]},
        bottom_hidden=[16],
        random_state=np.int64(3),
    )
    written = json.dumps(parameters_to_json(classifier), allow_nan=False)
    found = SplitNNClassifier(**parameters_from_json(json.loads(written)))
    assert repr(found.get_params()) == repr(classifier.get_params()).replace("np.int64(3)", "3")
    generator = GAFMClassifier(random_state=np.random.default_rng(0))
    assert parameters_to_json(generator)["random_state"] is None


class Unregistered(Protection):
    def protect(self, gradients, context):
        return gradients


@pytest.mark.parametrize(
    ("protection", "says"),
    [
        (
            Unregistered(),
            r"SplitNNClassifier\.protection cannot be saved: \S+:Unregistered is not registered",
        ),
        (
            [Isotropic(), Unregistered()],
            r"SplitNNClassifier\.protection\[1\] cannot be saved: .* @vflsynth",
        ),
        ({"a": b"x"}, r"SplitNNClassifier\.protection\['a'\] cannot be saved: .* bytes .*; give"),
        ({b"x": 1}, r"a key of SplitNNClassifier\.protection cannot be saved"),
    ],
)
def test_what_cannot_be_saved_is_named_with_the_fix(protection, says):
    with pytest.raises(ParameterError, match=says):
        parameters_to_json(SplitNNClassifier(protection=protection))


@pytest.mark.parametrize(
    "content",
    [
        {"object": "subprocess:Popen", "parameters": {"args": "ls"}},
        {"object": "Marvell", "parameters": {}},
        {"object": "vflsynth.methods.vflgan.estimator:VFLGANSynthesizer", "parameters": {}},
        {"object": "vflsynth.splitdefense.protections.marvell:Marvell", "parameters": {"x": 1}},
        {"part": "Marvell"},
        {"mapping": [[1]]},
        {"mapping": [[[], 1]]},
        {"mapping": 3},
        {},
    ],
)
def test_other_content_is_refused(content):
    with pytest.raises(ArtefactError):
        from_json(content)
