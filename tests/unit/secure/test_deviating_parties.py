"""What a party gains by deviating from secure sums: the end of the run; so say ledgers."""

import numpy as np
import pytest

from tests.unit.secure import test_products as products
from vflsynth import LatentTree, PairwiseTables
from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms.base import Asked
from vflsynth.mechanisms.discriminators import Discriminators
from vflsynth.mechanisms.planning import PROVED
from vflsynth.privacy import PublicSchema
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.secure.membership import Verification
from vflsynth.secure.ring import Arithmetic

N, VICTIM, NOISE_STD = 400, 123, 30.0


def table_of_enlarged_codes(weight, *, ends):
    """What is published where a party counts the victim alone, so many times."""
    rng = np.random.default_rng(0)
    codebook = products.Codebook(
        {"evil": products.one_hot([2]), "honest": products.one_hot([8] * 4)}
    )
    states = products.drawn(rng, codebook, N)
    parties, server = products.made(states, codebook, Arithmetic.of(1e6, 0))
    matrix = parties["evil"].matrix
    if weight > 1:
        matrix[:] = weight * matrix[VICTIM] * (np.arange(N) == VICTIM)[:, None]
    noise = {
        name: rng.normal(0, NOISE_STD, own.n_shares).astype(np.int64)
        for name, own in parties.items()
    }
    if ends:
        with pytest.raises(ProtocolError, match="party 'evil' masked numbers that no record"):
            products.ran(parties, server, noise)
        return None
    (table,) = products.ran(parties, server, noise).values()
    read = table[states["evil"][VICTIM, 0]].reshape(4, 8).argmax(1)
    return bool((read == states["honest"][VICTIM]).all())


def test_a_party_that_enlarges_a_record_s_codes_ends_the_run():
    table_of_enlarged_codes(2**16, ends=True)


def test_without_proofs_it_reads_the_other_s_values(monkeypatch):
    monkeypatch.setattr(Verification, "conclude", lambda self: None)
    assert not table_of_enlarged_codes(1, ends=False)
    assert table_of_enlarged_codes(2**16, ends=False)


def ledger(mechanism, parties):
    columns = dict.fromkeys(parties, ColumnCounts(2))
    asked = Asked(1000, Discriminators.PRIVATE, groups={name: [2] for name in parties})
    made = mechanism(epsilon=1.0, delta=1e-5, public_schema=PublicSchema())
    return made.plan(columns, asked).ledger


@pytest.mark.parametrize("mechanism", [PairwiseTables, LatentTree])
def test_ledgers_of_products_promise_it(mechanism):
    found = ledger(mechanism, ["a", "b"])
    assert PROVED in found.protected_against
