"""Numbers modulo powers of two: exact products, sums that are not mistaken, masks that differ."""

import numpy as np
import pytest
import torch

from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.secure import ring as ring_module
from vflsynth.secure.ring import (
    Arithmetic,
    Masks,
    column_products,
    elements_of,
    record_blocks,
    tensor_of,
    to_ring,
)

RINGS = [np.dtype(np.uint32), np.dtype(np.uint64)]


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 2), (300, 2, 5), (1, 4, 4), (0, 2, 3)])
def test_products_of_columns_are_those_of_python_integers(ring, shape, monkeypatch):
    monkeypatch.setattr(ring_module, "_LIMB_ROWS", 128)  # several runs of rows
    n, a, b = shape
    rng = np.random.default_rng(0)
    for largest in (2, 2**16 - 1, 2 ** (8 * ring.itemsize) - 1):
        one, other = (rng.integers(0, largest, (n, w), ring, endpoint=True) for w in (a, b))
        if n:
            one[0], other[-1] = largest, largest
        exact = one.astype(object).T @ other.astype(object) % 2 ** (8 * ring.itemsize)
        assert column_products(one, other).tolist() == np.array(exact).tolist()
        assert column_products(one, other).dtype == ring


@pytest.mark.parametrize("ring", RINGS)
def test_the_largest_limbs_are_added_without_rounding(ring):
    """As many rows as one run of float64 products takes, all of them the largest there are."""
    rows = ring_module._LIMB_ROWS
    full = np.full((rows, 1), np.iinfo(ring).max, ring)
    assert column_products(full, full).item() == rows % 2 ** (8 * ring.itemsize)


@pytest.mark.parametrize(
    ("largest", "shift", "ring", "n_bits"),
    [
        (2.0**31 - 1, 0, "uint32", 32),
        (2.0**31, 0, "uint64", 64),
        (1000.0, 29, "uint32", 61),
        (2.0**31 - 1, 32, "uint32", 64),
        (2.0**23 - 1, 40, "uint32", 64),
    ],
)
def test_the_ring_holds_the_largest_sum(largest, shift, ring, n_bits):
    found = Arithmetic.of(largest, shift)
    assert (str(found.ring), found.n_bits) == (ring, n_bits)
    ends = np.array([-largest, largest, 0.0, -1.0]).astype(np.int64)
    assert found.signed(found.in_steps(to_ring(ends, found.ring))).tolist() == [
        int(end) << shift for end in ends
    ]


def test_a_unit_of_less_than_a_step_is_nothing():
    found = Arithmetic.of(2.0**50, -3)
    assert found.n_bits == 64
    assert not found.in_steps(to_ring(np.array([7, -(2**40)]), found.ring)).any()


@pytest.mark.parametrize(("largest", "shift"), [(2.0**63, 0), (2.0**23, 40), (2.0**67, -4)])
def test_what_does_not_fit_is_refused(largest, shift):
    with pytest.raises(ParameterError, match="64 bits"):
        Arithmetic.of(largest, shift)


@pytest.mark.parametrize("shift", [0, 5, 32, 40])
def test_shares_in_steps_add_up_with_noise_of_either_sign(shift):
    arithmetic = Arithmetic.of(2.0**20, shift)
    rng = np.random.default_rng(shift)
    units = rng.integers(-(2**20), 2**20, 50)
    noise = rng.integers(-9, 9, (3, 50))
    parts = [rng.integers(0, 2**32, 50) for _ in range(2)]
    parts.append(units - parts[0] - parts[1])
    zeros = [Masks(b"secret").draw(label, (50,)) for label in "ab"]
    zeros.append(-zeros[0] - zeros[1])
    total = np.zeros(50, np.uint64)
    for number, part in enumerate(parts):
        zero = zeros[number]
        share = arithmetic.share(to_ring(part, arithmetic.ring), zero, noise[number])
        elements = elements_of(share, (50,), "a share")
        assert int(elements.max()) < 2**arithmetic.n_bits
        total += elements
    assert arithmetic.signed(total).tolist() == ((units << shift) + noise.sum(0)).tolist()


def test_masks_are_functions_of_secret_and_label():
    ring = np.dtype(np.uint64)
    drawn = Masks(b"secret").draw("one", (50,), ring)
    assert drawn.tolist() == Masks(b"secret").draw("one", (50,), ring).tolist()
    assert drawn[:20].tolist() == Masks(b"secret").draw("one", (20,), ring).tolist()
    others = [Masks(b"secret").draw("two", (50,), ring), Masks(b"other").draw("one", (50,), ring)]
    assert len({tuple(m.tolist()) for m in [drawn, *others]}) == 3


def test_blocks_hold_every_record_once(monkeypatch):
    monkeypatch.setattr(ring_module, "BLOCK_ELEMENTS", 10)
    for n, width in [(0, 3), (1, 100), (7, 3), (30, 10), (31, 1)]:
        blocks = record_blocks(n, width)
        assert [i for block in blocks for i in range(n)[block]] == list(range(n))
        assert len(blocks) >= 1


@pytest.mark.parametrize(
    "sent",
    [
        None,
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(2, 2, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int32),
        torch.zeros(2, dtype=torch.float64),
    ],
)
def test_what_a_message_must_not_hold_is_refused_by_name(sent):
    with pytest.raises(ProtocolError, match=r"party 'a' sent shares: .*expected torch.int64"):
        elements_of(sent, (2,), "party 'a' sent shares")


def test_elements_survive_a_message():
    for ring in [np.dtype(np.uint8), *RINGS]:
        values = np.array([0, 1, np.iinfo(ring).max], ring)
        assert elements_of(tensor_of(values), (3,), "", ring).tolist() == values.tolist()
