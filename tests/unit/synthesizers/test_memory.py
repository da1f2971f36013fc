"""Estimates are compared with what fits are seen to take."""

import ctypes
import dataclasses
import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vflsynth import (
    AutoregressiveSynthesizer,
    DPLTSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    Range,
    VFLGANSynthesizer,
)
from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.exceptions import MemoryLimitError
from vflsynth.learning.base import FromRecords, Size
from vflsynth.methods.gan.settings import estimate_memory
from vflsynth.methods.latent_tree import method, model
from vflsynth.methods.vflgan.party import VFLGANParty
from vflsynth.protocol.channel import LocalChannel
from vflsynth.run import local
from vflsynth.run.local import match_records


def mixed(n, n_columns, seed=0):
    """Numbers, labels and counts, ten of them at a time related; at two parties."""
    rng = np.random.default_rng(seed)
    common, found = rng.normal(size=(n, n_columns // 10 + 1)), {}
    for i in range(n_columns):
        x = common[:, i // 10] + rng.normal(size=n)
        counts, labels = np.clip(np.round(5 * x), -20, 20).astype(int), np.digitize(x, [-1, 0, 1])
        found[f"c{i}"] = (x, labels.astype(str), counts)[i % 3]
    table = pd.DataFrame(found)
    return {"a": table.iloc[:, : n_columns // 2], "b": table.iloc[:, n_columns // 2 :]}


def peak_of(fit):
    """Bytes by which the process grew at most: Linux sets its own record back when asked to."""
    status = Path("/proc/self/status")
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        pytest.skip("the system does not tell peaks")
    before = _kilobytes(status, "VmRSS")
    fit()
    return 1024 * (_kilobytes(status, "VmHWM") - before)


def _kilobytes(status, name):
    (line,) = (own for own in status.read_text().splitlines() if own.startswith(name))
    return int(line.split()[1])


PEAKS = {
    "all seen": (AutoregressiveSynthesizer(epochs=1), (300, 80)),
    "some seen": (AutoregressiveSynthesizer(epochs=1), (300, 140)),
    "sequential": (VFLGANSynthesizer(epochs=1, discriminator_steps=1), (2000, 200)),
    "sequential, narrow": (VFLGANSynthesizer(epochs=1, batch_size=2048), (20000, 12)),
    "parallel": (VFLGANSynthesizer(epochs=1, generator="parallel"), (2000, 200)),
}


@pytest.mark.slow
@pytest.mark.usefixtures("quick_contexts", "full_blocks")
@pytest.mark.parametrize("name", PEAKS)
def test_estimates_are_of_the_size_that_is_measured(name):
    """Within a factor of two of how much the process grew; small fits are lost in its noise."""
    synth, shape = PEAKS[name]
    frames = mixed(*shape)
    synth.set_params(device="cpu", verbose=0, random_state=0)
    estimated = synth.estimate_memory(frames)
    assert 0.5 * estimated < peak_of(lambda: synth.fit(frames)) < 2.0 * estimated


PRIVATE = {
    "latent tree": lambda given: DPLTSynthesizer(privacy=LatentTree(**given)),
    "mixture": lambda given: MixtureSynthesizer(privacy=PairwiseTables(**given)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_estimates_of_private_fits_are_of_the_size_that_is_measured(name, monkeypatch):
    estimates, check = [], local.check_memory
    monkeypatch.setattr(
        local, "check_memory", lambda *a, **k: estimates.append(check(*a, **k)) or estimates[-1]
    )
    given = {"delta": 1e-6, "public_schema": PublicSchema(dtypes="given"), "epsilon": 20.0}
    PRIVATE[name](given).fit(mixed(300, 6))  # what is loaded once
    frames = mixed(20_000, 20)
    measured = peak_of(lambda: PRIVATE[name](given).fit(frames))
    assert 0.5 * estimates[-1] < measured < 2.0 * estimates[-1]


def test_the_largest_group_of_a_latent_tree_takes_what_is_estimated(monkeypatch):
    """Arrays of cells times latent states, two at a time, counted by the allocator."""
    monkeypatch.setattr(model, "_EM_STEPS", 2)
    monkeypatch.setattr(model, "_EM_STARTS", 1)
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(12**4)).reshape([12] * 4)
    tracemalloc.start()
    model.LatentClasses.fit(joint, 8, rng)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 < peak / (8 * method._COPIES * joint.size * 8) < 2.0


def test_every_method_refuses_what_does_not_fit(monkeypatch):
    """By name, with what to change, before a network is made or a table counted."""
    monkeypatch.setattr("vflsynth.run.local.available_memory", lambda device: 50_000)
    given = {"delta": 1e-4, "public_schema": PublicSchema(dtypes="given"), "epsilon": 20.0}
    fits = {
        "hidden": AutoregressiveSynthesizer(verbose=0),
        "batch_size": VFLGANSynthesizer(verbose=0),
        "n_states": MixtureSynthesizer(privacy=PairwiseTables(**given)),
        "group_size": DPLTSynthesizer(privacy=LatentTree(**given)),
        "records or columns": GaussianCopulaSynthesizer(),
    }
    frames = mixed(200, 20)
    for advice, synth in fits.items():
        with pytest.raises(MemoryLimitError, match=r"party '[ab]'.*GiB") as caught:
            synth.fit(frames)
        assert advice in caught.value.fix


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
        return estimate_memory(party, changed, Size(n, replicas, own_rows))

    width = party.transformer.width_
    assert of(n=200) - of(n=100) == 4 * 5 * 100 * width
    assert of(n=200, replicas=3) - of(n=100, replicas=3) == 4 * 5 * 100 * width
    assert of(replicas=3, own_rows=True) - of(replicas=3) == 4 * 4 * 2 * 100 * width
    assert of(replicas=5) - of(replicas=3) == 2 * (of(replicas=2) - of(replicas=1))
    assert of(batch_size=64) > of(batch_size=32)
    assert of(generator_hidden=(512, 512)) > of()


@pytest.mark.parametrize("conditions", [None, {"c0": Range(0, None)}])
def test_a_sample_that_no_memory_holds_is_refused_before_it_is_drawn(conditions):
    synth = IndependentSynthesizer(random_state=0).fit(mixed(50, 4))
    with pytest.raises(MemoryLimitError, match="draw them with sample_to"):
        synth.sample(10**15, conditions=conditions)
