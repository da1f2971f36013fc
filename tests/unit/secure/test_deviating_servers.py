"""What a server gains by deviating from secure sums: nothing about records; so says the page."""

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.later import later
from tests.unit.secure.test_products import drawn, masked
from tests.unit.secure.test_products import made as made_products
from vflsynth.exceptions import ProtocolError
from vflsynth.secure.membership import Codebook
from vflsynth.secure.products import ProductParty
from vflsynth.secure.ring import Arithmetic, column_products

N, LEAST_P = 30, 1e-6


def test_products_take_codes_and_seeds_from_the_server_and_answer_once():
    """What else it could tell changes nothing that they send: see `test_membership`."""
    codebook = Codebook({name: [np.eye(3, dtype=np.int64)] for name in "ab"})
    states = drawn(np.random.default_rng(2), codebook, N)
    parties, server = made_products(states, codebook, Arithmetic.of(1000.0, 0))
    masked(parties, server)
    zero = np.zeros(9, np.int64)
    for party in parties.values():
        party.shares(zero)
        with pytest.raises(ProtocolError, match="twice"):
            party.shares(zero)
        with pytest.raises(ProtocolError, match="was asked for block 0"):
            party.mask(0)
        assert {name for name in dir(party) if not name.startswith("_")} == {
            "arithmetic",
            "check",
            "codebook",
            "mask",
            "matrix",
            "n_shares",
            "name",
            "pairs",
            "shares",
        }


def products_of_disagreeing_parties(state):
    """A server that tells b that codes of a are a hundred times as large, and multiplies."""
    codes, totals = {name: [np.eye(3, dtype=np.int64)] for name in "ab"}, []
    states = {name: np.full((N, 1), state) for name in "ab"}
    for run in range(200):
        asked = states, Codebook(codes), Arithmetic(32, 0), b"run %d" % run
        told = states, Codebook(codes | {"a": [100 * codes["a"][0]]}), *asked[2:]
        (parties, server), (deceived, other) = made_products(*asked), made_products(*told)
        masked(parties, server)
        masked(deceived, other)
        numbers = [
            np.concatenate(of.sent, 0).view(np.uint32) for of in (parties["a"], deceived["b"])
        ]
        shares = [of.shares(np.zeros(9, np.int64)) for of in (parties["a"], deceived["b"])]
        products = column_products(*numbers).ravel().astype(np.int64)
        totals.append((products + sum(share.numpy() for share in shares)) % 2**32)
    return np.stack(totals)


def is_uniform(totals):
    eights = totals & 255, totals >> 24
    counts = [np.bincount(eight.ravel(), minlength=256) for eight in eights]
    return all(chisquare(count).pvalue > LEAST_P for count in counts)


@pytest.fixture
def keeping(monkeypatch):
    """Parties that remember what they sent."""
    honest = ProductParty.mask

    def mask(self, block):
        found = honest(self, block)
        self.sent = [*getattr(self, "sent", []), found.numbers.numpy()]
        return found

    monkeypatch.setattr(ProductParty, "mask", mask)


@pytest.mark.parametrize("state", [0, *later(2)])
def test_parties_that_are_told_different_codes_have_no_mask_in_common(state, keeping):
    assert is_uniform(products_of_disagreeing_parties(state))


@pytest.mark.slow  # that the check above can fail
def test_the_same_masks_for_different_codes_would_tell(keeping, monkeypatch):
    monkeypatch.setattr(Codebook, "digest", "the same")
    assert not is_uniform(products_of_disagreeing_parties(2))
