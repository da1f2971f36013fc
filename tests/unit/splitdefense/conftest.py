from __future__ import annotations

from collections.abc import Iterator
from functools import wraps

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from vflsynth.splitdefense import RandomizedResponse
from vflsynth.splitdefense.leakage import attacks, labels
from vflsynth.splitdefense.leakage import columns as of_columns

_HONEST = RandomizedResponse.transform


@pytest.fixture(scope="module", autouse=True)
def same_responses() -> Iterator[None]:
    """Have every fit draw the same responses, so that tests can repeat it."""

    @wraps(_HONEST)
    def transform(self, labels, n_classes, key=b"the same in every fit of these tests"[:32]):
        return _HONEST(self, labels, n_classes, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RandomizedResponse, "transform", transform)
        yield


@pytest.fixture
def fresh_responses(monkeypatch):
    """Have responses come from the operating system again."""
    monkeypatch.setattr(RandomizedResponse, "transform", _HONEST)


@pytest.fixture(scope="session")
def tables():
    """Breast cancer between a bank with labels and two shops: frames keyed by `id`, labels."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    rng = np.random.default_rng(0)
    parts = {"bank": X.columns[:8], "shop": X.columns[8:20], "web": X.columns[20:]}
    frames = {}
    for name, columns in parts.items():
        frame = X[list(columns)].assign(id=X.index + 1000)
        frames[name] = frame if name == "bank" else frame.iloc[rng.permutation(len(frame))]
    return frames, pd.Series(np.where(y == 1, "benign", "malignant"))


@pytest.fixture(scope="session")
def digits():
    """Handwritten digits, left and right halves of the images: ten classes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    images = pd.DataFrame(X / 16.0, columns=[f"pixel_{i}" for i in range(64)])
    left = [c for i, c in enumerate(images) if i % 8 < 4]
    right = [c for c in images if c not in left]
    return {"left": images[left], "right": images[right]}, y


@pytest.fixture(scope="module")
def short_attacks() -> Iterator[None]:
    """Have attacks that train by descent take few steps, where no test asks what they find."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "_MATCHING_STEPS", 30)
        patch.setattr(labels, "_SIMULATED_RECORDS", 150)
        patch.setattr(labels, "_STARTS", 1)
        patch.setattr(of_columns, "_STEPS", 30)
        patch.setattr(of_columns, "_TREES", 5)
        patch.setattr(attacks, "_FINE_TUNING_STEPS", 20)
        patch.setattr(attacks, "_STEPS", 20)
        yield
