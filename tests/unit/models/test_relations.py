import pytest
import torch

from vflsynth import VFLGANSynthesizer
from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.datasets import make_party_frames
from vflsynth.methods.gan.relations import Relations, Tree
from vflsynth.methods.gan.sampler import GeneratorSampler, GeneratorSpec

SPANS = (
    OutputSpan(0, 1, "identity", "a", "value"),
    OutputSpan(1, 3, "softmax", "b", "category"),
    OutputSpan(4, 1, "identity", "c", "value", gate=5),
    OutputSpan(5, 2, "softmax", "c", "state"),
)


def rows(n, seed, related):
    """A number, a category that follows it, and another that both move, if it is there."""
    rng = torch.Generator().manual_seed(seed)
    a, noise = torch.randn(2, n, generator=rng)
    follows = (a > 0.0).long() + (a > 1.0).long()
    b = follows if related else follows[torch.randperm(n, generator=rng)]
    there = (
        torch.rand(n, generator=rng) < torch.where(a > 0.0, 0.9, 0.5 if related else 0.9)
    ).float()
    c = (noise + (3.0 * b if related else 0.0)) * there
    one_hot = torch.nn.functional.one_hot(b, 3)
    return torch.cat([torch.stack([a], 1), one_hot, torch.stack([c, there, 1.0 - there], 1)], 1)


def uniform(n, k, seed=0):
    return torch.rand(n, k, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def found():
    return Relations.fit(SPANS, rows(6000, 1, False), rows(6000, 2, True), uniform(6000, 2))


def test_relations_that_generated_rows_lack_are_put_in(found):
    drawn, theirs = rows(6000, 3, False), rows(6000, 4, True)
    mended = found.apply(drawn, uniform(6000, found.n_uniform, 5))
    assert torch.equal(mended[:, 0], drawn[:, 0])
    assert (mended[:, 1:4].sum(1) == 1.0).all()
    assert (mended[mended[:, 5] == 0.0, 4] == 0.0).all()
    for low, high in ((-9.0, 0.0), (0.0, 1.0), (1.0, 9.0)):
        ours, real = (r[(r[:, 0] > low) & (r[:, 0] <= high)] for r in (mended, theirs))
        torch.testing.assert_close(ours[:, 1:4].mean(0), real[:, 1:4].mean(0), atol=0.06, rtol=0)
        assert float(ours[:, 5].mean()) == pytest.approx(float(real[:, 5].mean()), abs=0.05)
        there, known = ours[:, 5] > 0.0, real[:, 5] > 0.0
        assert float(ours[there, 4].mean()) == pytest.approx(float(real[known, 4].mean()), abs=0.25)


def test_order_stays_within_a_leaf_and_with_it_what_other_parties_know(found):
    drawn = rows(6000, 3, False)
    mended = found.apply(drawn, uniform(6000, found.n_uniform))
    group = (drawn[:, 5] > 0.0) & (mended[:, 5] > 0.0) & (mended[:, 3] > 0.0)
    both = torch.stack([drawn[group, 4], mended[group, 4]])
    assert float(torch.corrcoef(both)[0, 1]) > 0.9


def test_trees_of_a_column_together_stretch_no_tail():
    n = 6
    spans = [OutputSpan(k, 1, "identity", str(k), "value") for k in range(n + 1)]

    def numbers(seed, related):
        x = torch.randn(6000, n + 1, generator=torch.Generator().manual_seed(seed))
        x[:, n] = 0.6 * x[:, n] + 0.8 * x[:, :n].sum(1) / n**0.5 if related else x[:, n]
        return x

    for seed in range(3):
        found = Relations.fit(spans, numbers(seed, False), numbers(9, True), uniform(6000, 2))
        drawn = numbers(seed + 5, False)
        mended = found.apply(drawn, uniform(6000, found.n_uniform))[:, n]
        assert len(found.mends) > 3
        assert mended.abs().max() < 4.5  # of so many standard normal numbers: 4 or so
        assert float(mended.std()) == pytest.approx(1.0, abs=0.06)
        # One map of all rows comes last; where a leaf's map ends values stay apart.
        assert len(found.mends[-1].tree.columns) == 1
        assert len(mended.unique()) > 5990


def test_rows_that_differ_by_chance_stay_as_they_are():
    for seed in range(5):
        ours, theirs = rows(2000, 10 + seed, True), rows(2000, 20 + seed, True)
        assert not Relations.fit(SPANS, ours, theirs, uniform(2000, 2)).mends


@pytest.mark.parametrize("n", [5, 100])
def test_too_few_records_change_nothing(n):
    assert not Relations.fit(SPANS, rows(2000, 1, False), rows(n, 2, True), uniform(2000, 2)).mends


def test_a_leaf_has_sixty_records_and_no_knot_is_one_records_value(found):
    theirs = rows(6000, 2, True)
    for mend in found.mends:
        nodes, counts = mend.tree.leaves(theirs).unique(return_counts=True)
        assert counts.sum() == 6000
        if mend.span.gate is None:
            assert counts.min() >= 60
        else:
            assert not torch.isin(mend.after[nodes], theirs[:, 4][theirs[:, 5] > 0.0]).any()


def test_bounded_numbers_and_codes_in_two_parts_are_left_alone():
    spans = (
        SPANS[0],
        OutputSpan(1, 3, "softmax", "b", "category"),
        OutputSpan(4, 3, "softmax", "b", "category", within=(3, 1, 1)),
    )
    ours, theirs = rows(6000, 1, False)[:, :4], rows(6000, 2, True)[:, :4]
    ours, theirs = (torch.cat([r, r[:, 1:4]], 1) for r in (ours, theirs))
    assert not Relations.fit(spans, ours, theirs, uniform(6000, 2)).mends
    bounded = (SPANS[0], OutputSpan(1, 1, "identity", "d", "value", bound=3.0))
    ours, theirs = ours[:, :2], theirs[:, [0, 0]]
    assert not Relations.fit(bounded, ours, theirs, uniform(6000, 2)).mends


def test_restored_relations_mend_as_the_saved_ones(found):
    drawn, numbers = rows(500, 3, False), uniform(500, found.n_uniform)
    again = Relations.restore(found.tensors(), SPANS)
    assert torch.equal(again.apply(drawn, numbers), found.apply(drawn, numbers))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t["0.columns"].fill_(1),
        lambda t: t["0.children"].fill_(0),
        lambda t: t["0.start"].fill_(2),
        lambda t: t["0.keep"].sub_(2.0),
        lambda t: t.update({"0.instead": t["0.instead"][:1]}),
        lambda t: t.update({"0.thresholds": t["0.thresholds"][:1]}),
        lambda t: t.update({"0.quantiles": torch.zeros(1, 5)}),
        lambda t: [v.neg_() for k, v in t.items() if k.endswith(".after")],
        lambda t: t.update({k: v[:1] for k, v in t.items() if k.endswith(".before")}),
        lambda t: t.update({k: v[:, :1] for k, v in t.items() if k.endswith(".slopes")}),
        lambda t: [v.zero_() for k, v in t.items() if k.endswith(".reach")],
    ],
)
def test_damaged_relations_are_refused(found, change):
    tensors = {name: value.clone() for name, value in found.tensors().items()}
    change(tensors)
    with pytest.raises(ValueError, match=r"must|needs|can only|begins"):
        Relations.restore(tensors, SPANS)


def test_a_trees_leaves_are_where_its_answers_go():
    columns, thresholds = torch.tensor([0, 0, 3, 0, 0]), torch.tensor([0.5, 0.0, 0.5, 0.0, 0.0])
    tree = Tree(columns, thresholds, torch.tensor([[1, 2], [1, 1], [3, 4], [3, 3], [4, 4]]))
    tree.check(4)
    asked = torch.tensor([[0.5, 0, 0, 1], [0.6, 0, 0, 1], [0.6, 0, 1, 0]])
    assert tree.leaves(asked).tolist() == [1, 4, 3]


def test_a_sampler_mends_what_it_draws_and_is_saved_with_it():
    spec = GeneratorSpec(3, (8, 8), bias=True, temperature=0.2, batch_norm_eps=1e-5, head=5)
    generator = spec.build(SPANS, RandomStreams([b"weights"]))
    theirs = rows(3000, 2, True)
    made = GeneratorSampler(spec, SPANS, generator.state_dict())
    plain = made.calibrated(theirs, RandomStreams([b"own"]))
    own = made.calibrated(theirs, RandomStreams([b"own"]), relations=True)
    streams = RandomStreams([b"draws"])
    latent = streams.normal("z", 0, (4000, 3))
    drawn, before = (s.draw(latent, streams, 1) for s in (own, plain))
    above = theirs[:, 0] > 0.0
    for at, shares in ((0.0, theirs[above, 1:4].mean(0)),):
        error, errors = (
            float((r[r[:, 0] > at, 1:4].mean(0) - shares).abs().max()) for r in (drawn, before)
        )
        assert error < 0.06 < errors
    again = GeneratorSampler.restore(own.to_dict(), own.tensors(), SPANS)
    assert torch.equal(again.draw(latent, streams, 1), drawn)


def test_without_calibration_or_if_asked_for_nothing_is_mended():
    frames = make_party_frames(100, 2, random_state=0)
    for options, expected in (({}, True), ({"calibrate_relations": False}, False)):
        model = VFLGANSynthesizer(epochs=1, random_state=0, verbose=0, device="cpu", **options)
        model.fit(frames, on="record_id")
        assert (model.parties_["party_1"].sampler.relations is not None) is expected
