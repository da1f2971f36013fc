"""Estimates are compared with what processes were seen to take; see the numbers below."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from vflsynth import VFLGANSynthesizer
from vflsynth.columns import TableTransformer
from vflsynth.learning import FromRecords
from vflsynth.methods.gan.memory import estimate_memory
from vflsynth.methods.vflgan.party import VFLGANParty
from vflsynth.protocol import LocalChannel
from vflsynth.run import match_records

MiB = 2**20
N = 20_000


def estimate(frames, **parameters):
    return VFLGANSynthesizer(device="cpu", verbose=0, **parameters).estimate_memory(frames)


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    flags = {f"flag {i}": rng.random(N) < 0.5 for i in range(20)}
    return {
        "wide": {"a": pd.DataFrame(flags | {"wide": rng.integers(0, 250, N).astype(str)})},
        "numbers": {
            "a": pd.DataFrame(rng.normal(size=(N, 40)), columns=[f"c{i}" for i in range(40)]),
            "b": pd.DataFrame(rng.normal(size=(N, 10)), columns=[f"d{i}" for i in range(10)]),
        },
    }


@pytest.mark.parametrize(("name", "seen"), [("wide", 334 * MiB), ("numbers", 107 * MiB)])
def test_estimates_are_of_the_size_that_was_seen(columns, name, seen):
    """Peak resident memory of a fit, less that of the process before: one core, float32."""
    wide = TableTransformer(rare_threshold=0.0)
    got = estimate(columns[name], batch_size=256, transformer=wide)
    assert 0.5 * seen < got < 2.0 * seen


def settings_and_party():
    frames = {"a": pd.DataFrame({"x": np.linspace(0, 1, 100), "y": ["u", "v"] * 50})}
    party = VFLGANParty("a", frames["a"], None)
    match_records(LocalChannel([party]), frames, None)
    party.prepare(FromRecords(TableTransformer()))
    widths = {"a": party.transformer.width_}
    return VFLGANSynthesizer().method().settings(100, widths), party


def test_what_grows_with_what():
    settings, party = settings_and_party()

    def of(n=100, replicas=1, own_rows=False, **changes):
        changed = dataclasses.replace(settings, **changes)
        return estimate_memory(party, changed, n, replicas, own_rows=own_rows)

    width = party.transformer.width_
    assert of(n=200) - of(n=100) == 4 * 5 * 100 * width
    assert of(n=200, replicas=3) - of(n=100, replicas=3) == 4 * 5 * 100 * width
    assert of(replicas=3, own_rows=True) - of(replicas=3) == 4 * 4 * 2 * 100 * width
    assert of(replicas=5) - of(replicas=3) == 2 * (of(replicas=2) - of(replicas=1))
    assert of(batch_size=64) > of(batch_size=32)
    assert of(generator_hidden=(512, 512)) > of()
