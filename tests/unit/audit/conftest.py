"""Small worlds to play in."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from vflsynth import VFLGANSynthesizer
from vflsynth.datasets import make_party_frames


class OwnTime:
    """A clock that training alone moves on: what is planned by it is the same on a busy machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    process_time = staticmethod(time.process_time)


@pytest.fixture(autouse=True, scope="module")
def _rough_shares(rough_shares: None) -> None:
    """Hundreds of shadow models are asked which records they were trained on."""


@pytest.fixture
def own_time(monkeypatch: pytest.MonkeyPatch) -> OwnTime:
    """What audits read the time from."""
    clock = OwnTime()
    for module in ("audit.schedule", "audit.playing", "audit.shadow", "run.loop"):
        monkeypatch.setattr(f"vflsynth.{module}.time", clock)
    return clock


@pytest.fixture
def small_frames() -> dict[str, pd.DataFrame]:
    """Mixed columns of two parties, 40 records, keys in ``record_id``."""
    return make_party_frames(40, 2, random_state=0)


@pytest.fixture
def number_frames() -> dict[str, pd.DataFrame]:
    """Numbers of two parties, 40 records matched by the index."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 4)), columns=list("abcd"))
    return {"left": table[["a", "b"]], "right": table[["c", "d"]]}


@pytest.fixture
def tiny() -> VFLGANSynthesizer:
    """A synthesizer that trains in no time and learns as much."""
    return make_tiny()


def make_tiny() -> VFLGANSynthesizer:
    return VFLGANSynthesizer(
        latent_dim=3,
        generator_hidden=(4,),
        first_part=(4, 3),
        shared_hidden=(4,),
        epochs=1,
        batch_size=8,
        device="cpu",
    )
