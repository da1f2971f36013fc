import hashlib
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vflsynth._random import RandomStreams, derive, secret_from
from vflsynth.exceptions import ParameterError

DRAWS = ["normal", "uniform", "gumbel"]


def test_secret_of_an_integer_is_always_the_same():
    assert secret_from(7) == secret_from(np.int64(7))
    assert len({secret_from(seed) for seed in range(-50, 50)}) == 100
    assert secret_from(2**80) != secret_from(2**81)


def test_secret_of_a_generator_advances_it():
    generator = np.random.default_rng(0)
    first, second = secret_from(generator), secret_from(generator)
    assert first != second
    assert first == secret_from(np.random.default_rng(0))
    assert len(secret_from(np.random.RandomState(0))) == 32


def test_secret_of_none_is_fresh():
    assert secret_from(None) != secret_from(None)


@pytest.mark.parametrize("state", [1.0, "7", True, [1], np.random])
def test_other_random_states_are_refused(state):
    with pytest.raises(ParameterError, match="random_state"):
        secret_from(state)


def test_derived_secrets_are_independent_of_each_other():
    derived = {derive(secret, label) for secret in (b"a", b"b") for label in ("x", "y", "")}
    assert len(derived) == 6
    assert all(len(secret) == hashlib.sha256().digest_size for secret in derived)


@pytest.mark.parametrize("kind", DRAWS)
@given(index=st.integers(0, 5_000), detour=st.integers(0, 5_000), size=st.integers(1, 40))
def test_a_draw_is_a_function_of_its_index(kind, index, detour, size):
    """Whatever was drawn before, and whichever replicas are drawn with it."""
    streams = RandomStreams([b"0", b"1"])
    shape = (3, size)
    getattr(streams, kind)("x", detour, shape)
    drawn = getattr(streams, kind)("x", index, shape)
    alone = getattr(RandomStreams([b"1"]), kind)("x", index, shape)
    assert drawn.shape == (2, *shape)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn[1:], alone)
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("kind", DRAWS)
def test_draws_never_repeat(kind):
    """Not within a block, not across blocks, names or children."""
    streams = RandomStreams([b"0"])
    draws = [getattr(streams, kind)("x", index, (50, 7)) for index in range(200)]
    draws.append(getattr(streams, kind)("y", 0, (50, 7)))
    draws.append(getattr(streams.child("x"), kind)("x", 0, (50, 7)))
    values = torch.stack(draws).view(len(draws), -1)
    assert len(torch.unique(values, dim=0)) == len(draws)


def test_the_same_name_may_be_drawn_in_two_shapes():
    """An evaluation's last block can be shorter."""
    streams = RandomStreams([b"0"])
    first = streams.normal("x", 3, (4, 2))
    streams.normal("x", 3, (5, 2))
    assert torch.equal(streams.normal("x", 3, (4, 2)), first)


@pytest.mark.parametrize(
    ("kind", "distribution"),
    [("normal", stats.norm), ("uniform", stats.uniform), ("gumbel", stats.gumbel_r)],
)
def test_distributions(kind, distribution):
    streams = RandomStreams([b"seed"])
    drawn = torch.cat([getattr(streams, kind)("x", i, (5_000,))[0] for i in range(8)])
    assert torch.isfinite(drawn).all()
    assert stats.kstest(drawn.double().numpy(), distribution.cdf).pvalue > 0.001


@given(n=st.integers(1, 60), index=st.integers(0, 9))
def test_permutations(n, index):
    streams = RandomStreams([b"0", b"1"])
    permutations = streams.permutation("rows", index, n)
    assert torch.equal(permutations.sort(1).values, torch.arange(n).expand(2, n))
    assert torch.equal(permutations[1:], RandomStreams([b"1"]).permutation("rows", index, n))


def test_permutations_differ_between_epochs_and_replicas():
    streams = RandomStreams([b"0", b"1"])
    drawn = torch.cat([streams.permutation("rows", epoch, 50) for epoch in range(5)])
    assert len(torch.unique(drawn, dim=0)) == 10


def test_an_empty_draw():
    assert RandomStreams([b"0"]).normal("x", 0, (4, 0)).shape == (1, 4, 0)


@given(index=st.integers(0, 5_000), n=st.integers(1, 300))
def test_points_of_a_latin_hypercube_are_a_function_of_their_index(index, n):
    """Of the secret and of where they stand in the design, whoever draws more of it."""
    drawn = RandomStreams([b"0", b"1"]).latin_hypercube("x", index, n, 3)
    assert (drawn.shape, drawn.dtype) == ((2, n, 3), torch.float64)
    more = RandomStreams([b"1"]).latin_hypercube("x", index, 8_192, 3)
    assert ((more >= 0.0) & (more < 1.0)).all()
    assert torch.equal(drawn[1:], more[:, :n])
    assert not torch.equal(drawn[0], drawn[1])


def test_a_latin_hypercube_fills_every_dimension_evenly():
    """Every 128 points, and all 8,192 more finely."""
    (points,) = RandomStreams([b"seed"]).latin_hypercube("x", 0, 8_192, 20).numpy()
    for values in points.T:
        assert np.array_equal(np.sort((values * 8_192).astype(int)), np.arange(8_192))
        for part in np.split(values, 64):
            assert np.array_equal(np.sort((part * 128).astype(int)), np.arange(128))


def test_dimensions_of_a_latin_hypercube_are_independent():
    """Cells of every two dimensions have counts that vary as those of independent points."""
    streams = RandomStreams([b"seed"])
    spread = []
    for index in range(20):
        (points,) = streams.latin_hypercube("x", index, 1024, 6).numpy()
        for one, other in combinations(points.T, 2):
            counts, *_ = np.histogram2d(one, other, 8, [[0.0, 1.0]] * 2)
            spread.append(np.square(counts - 16.0).sum() / 16.0)
    mean = np.mean(spread)  # of a chi-squared number with 49 degrees of freedom, margins known
    assert abs(mean - 49.0) < 5.0 * np.sqrt(2.0 * 49.0 / len(spread))


def test_each_point_of_a_latin_hypercube_is_uniform():
    streams = RandomStreams([b"seed"])
    drawn = torch.cat([streams.latin_hypercube("x", i, 100, 2) for i in range(1_000)])
    for points in drawn[:, [0, 99]].reshape(1_000, -1).T.numpy():
        assert stats.kstest(points, stats.uniform.cdf).pvalue > 0.001
