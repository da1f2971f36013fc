from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from vflsynth import VFLGANSynthesizer
from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.datasets import make_party_frames
from vflsynth.methods.gan.calibration import MarginalMap, logit_offsets
from vflsynth.methods.gan.sampler import GeneratorSampler, GeneratorSpec

pytestmark = pytest.mark.usefixtures("full_blocks")

SPANS = (
    OutputSpan(0, 1, "identity", "a", "value"),
    OutputSpan(1, 1, "identity", "b", "value", gate=2),
    OutputSpan(2, 3, "softmax", "b", "state"),
    OutputSpan(5, 4, "softmax", "c", "category"),
)
SPEC = GeneratorSpec(3, (8, 8), bias=True, temperature=0.2, batch_norm_eps=1e-5)


def records(n=2000, seed=0):
    """Encoded records with a long tail, a column half of which has no value, and categories."""
    rng = torch.Generator().manual_seed(seed)
    rows = torch.zeros(n, 9)
    rows[:, 0] = torch.randn(n, generator=rng).exp()
    state = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), n, True, generator=rng)
    category = torch.multinomial(torch.tensor([0.7, 0.25, 0.049, 0.001]), n, True, generator=rng)
    rows[torch.arange(n), 2 + state] = 1.0
    rows[torch.arange(n), 5 + category] = 1.0
    rows[:, 1] = (torch.rand(n, generator=rng) * 3 - 7) * rows[:, 2]
    return rows


def sampler(head=None):
    spec = replace(SPEC, head=head)
    generator = spec.build(SPANS, RandomStreams([b"weights"]))
    return GeneratorSampler(spec, SPANS, generator.state_dict())


def draw(made, n=8000):
    streams = RandomStreams([b"draws"])
    return made.draw(streams.normal("z", 0, (n, 3)), streams, 1)


def test_offsets_give_categories_their_shares():
    logits = torch.randn(5000, 9, generator=torch.Generator().manual_seed(1)) * 3
    offsets = logit_offsets(logits, records(), SPANS)
    assert (offsets[:2] == 0).all()
    for span in SPANS[2:]:
        place = slice(span.start, span.stop)
        shares = torch.softmax(logits[:, place] + offsets[place], 1).mean(0)
        assert shares.sub(records()[:, place].mean(0)).abs().max() < 2e-4


def test_a_category_that_nobody_has_stays_away_and_offsets_stay_finite():
    rows = records()
    rows[:, 5:] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    logits = torch.zeros(100, 9)
    offsets = logit_offsets(logits, rows, SPANS)
    assert offsets.abs().max() <= 10.0
    assert torch.softmax(offsets[5:], 0)[0] > 0.999


def test_a_map_rises_and_gives_numbers_the_records_quantiles():
    theirs, ours = records(), records(5000, seed=1)
    ours[:, 0] = torch.randn(5000)
    found = MarginalMap.fit(SPANS, ours, theirs).apply(ours)
    order = ours[:, 0].argsort()
    assert (found[order, 0].diff() >= 0).all()
    assert ks_2samp(found[:, 0], theirs[:, 0]).statistic < 0.01
    at_ends = (found[:, 0] <= theirs[:, 0].min()) | (found[:, 0] >= theirs[:, 0].max())
    assert at_ends.float().mean() < 0.002
    assert ks_2samp(ours[:, 0], theirs[:, 0]).statistic > 0.3


def test_absent_values_and_categories_stay_as_they_are():
    ours = records(seed=1)
    found = MarginalMap.fit(SPANS, ours, records()).apply(ours)
    assert torch.equal(found[:, 2:], ours[:, 2:])
    absent = ours[:, 2] == 0
    assert (found[absent, 1] == 0).all()
    assert (found[~absent, 1] < -3.9).all()


def test_no_knot_is_one_records_value():
    theirs = records()
    found = MarginalMap.fit(SPANS, records(seed=1), theirs)
    assert found.after.shape == (2, 200)
    assert not np.isin(found.after[0].numpy(), theirs[:, 0].numpy()).any()


@pytest.mark.parametrize("n", [1, 5, 19])
def test_too_few_records_change_nothing(n):
    ours = records()
    assert torch.equal(MarginalMap.fit(SPANS, ours, records(n)).apply(ours), ours)


def test_parts_and_restored_maps_are_the_same_maps():
    found = MarginalMap.fit(SPANS, records(seed=1), records())
    rows = records(100, seed=2)
    restored = MarginalMap.restore(found.tensors(), SPANS)
    assert torch.equal(restored.apply(rows), found.apply(rows))
    part = found.part(slice(1, 5))
    assert torch.equal(part.apply(rows[:, 1:5]), found.apply(rows)[:, 1:5])


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t["before"].neg_(),
        lambda t: t["slopes"].neg_(),
        lambda t: t.update(after=t["after"][:, :-1]),
        lambda t: t.update(before=t["before"][:1], after=t["after"][:1]),
        lambda t: t.pop("after"),
    ],
)
def test_damaged_maps_are_refused(change):
    tensors = dict(MarginalMap.fit(SPANS, records(seed=1), records()).tensors())
    change(tensors)
    with pytest.raises((ValueError, KeyError)):
        MarginalMap.restore(tensors, SPANS)


@pytest.mark.parametrize("head", [None, 5])
def test_a_calibrated_sampler_has_the_marginals_and_the_old_one_is_as_before(head):
    """Drawn one after the other, columns have them given those before as they come out."""
    made, theirs = sampler(head), records()
    before = draw(made)
    calibrated = made.calibrated(theirs, RandomStreams([b"own"]))
    assert torch.equal(draw(made), before)
    rows = draw(calibrated)
    assert (rows[:, 2:].mean(0) - theirs[:, 2:].mean(0)).abs().max() < 0.02
    assert ks_2samp(rows[:, 0], theirs[:, 0]).statistic < 0.025
    there = rows[:, 2] > 0, theirs[:, 2] > 0
    assert ks_2samp(rows[there[0], 1], theirs[there[1], 1]).statistic < 0.04
    if head is not None:
        restored = GeneratorSampler.restore(calibrated.to_dict(), calibrated.tensors(), SPANS)
        assert torch.equal(draw(restored), rows)
        return
    part = calibrated.part([span.shifted(-5) for span in SPANS[3:]], slice(5, 9))
    assert (part.generator.output.bias == calibrated.generator.output.bias[..., 5:]).all()


@pytest.mark.slow
def test_every_replica_is_calibrated_by_its_own_records():
    frames = make_party_frames(200, 2, random_state=0)
    synth = VFLGANSynthesizer(epochs=1, random_state=0, verbose=0, device="cpu")
    order = frames["party_1"].set_index("record_id")["amount_1"].sort_index().to_numpy().argsort()
    low, high = synth.fit_replicas(
        frames, "record_id", random_states=[0, 0], replica_rows=np.stack([order[:80], order[-80:]])
    )
    amounts = [model.sample(500)["amount_1"] for model in (low, high)]
    assert amounts[0].mean() < amounts[1].mean()
    assert amounts[0].quantile(0.9) < amounts[1].quantile(0.1)


def test_the_papers_sampler_is_not_calibrated(monkeypatch):
    monkeypatch.setattr(
        "vflsynth.methods.gan.sampler.CALIBRATION_ROWS", 256
    )  # nobody asks how well
    frames = make_party_frames(100, 2, random_state=0)
    plain, own = (
        VFLGANSynthesizer(
            epochs=1, random_state=0, verbose=0, device="cpu", calibrate_marginals=calibrate
        ).fit(frames, on="record_id")
        for calibrate in (False, True)
    )
    assert plain.parties_["party_1"].sampler.marginals is None
    assert own.parties_["party_1"].sampler.marginals is not None
