"""What a party gains by deviating from secure sums: of products the end of the run, of points a
record of its choice; so say ledgers and page.

The attack on points succeeds: nothing keeps it off. Should it fail, the ledger may promise more.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.unit.secure import test_products as products
from tests.unit.secure import test_rotations as rotations
from vflsynth import LatentTree, MeanEmbedding, PairwiseTables
from vflsynth.exceptions import ProtocolError
from vflsynth.mechanisms.base import Asked
from vflsynth.mechanisms.discriminators import Discriminators
from vflsynth.mechanisms.planning import DEVIATES, PROVED
from vflsynth.privacy import PublicSchema
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.secure import BITS, Arithmetic
from vflsynth.secure.membership import Verification
from vflsynth.secure.ring import bytes_of
from vflsynth.secure.rotations import turns_of

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


@pytest.mark.parametrize(("weight", "is_read"), [(1, False), (2**10, True)])
def test_a_party_that_enlarges_a_record_s_point_reads_its_joint_angles(weight, is_read):
    rng, n_angles = np.random.default_rng(0), 50
    angles = {
        name: rng.integers(0, 2**16, (N, n_angles)).astype(rotations.ANGLES)
        for name in ("evil", "honest")
    }
    parties, server = rotations.made(angles, Arithmetic.of(4e6, 0, BITS))
    evil, rows = parties["evil"], server.blocks[0]  # in which it is first
    honest_mask = evil.mask

    def mask(block):
        sent = honest_mask(block)
        if block == 0:
            points = evil._mask(0, 0, evil.angles[rows].shape)
            own = evil._points[:, turns_of(evil.angles[rows.start])]
            points[:, 0] += np.asarray(weight, points.dtype) * own
            sent.points[:, 0] = bytes_of(points, evil.arithmetic.bits)[:, 0]
        return sent

    evil.mask = mask
    noise = {name: rng.normal(0, 40 * NOISE_STD, 2 * n_angles).astype(np.int64) for name in parties}
    total = rotations.ran(parties, server, noise)
    seen = np.angle(total[:n_angles] + 1j * total[n_angles:])
    joint = sum(own[rows.start].astype(float) for own in angles.values()) / 2**16 * 2 * np.pi
    errors = np.abs(np.angle(np.exp(1j * (seen - joint))))
    assert (errors.mean() < 0.1) == is_read


def ledger(mechanism, parties):
    columns = dict.fromkeys(parties, ColumnCounts(2))
    asked = Asked(1000, Discriminators.PRIVATE, groups={name: [2] for name in parties})
    made = mechanism(epsilon=1.0, delta=1e-5, public_schema=PublicSchema())
    return made.plan(columns, asked).ledger


def test_the_ledger_of_sums_of_points_says_so():
    assert DEVIATES in ledger(MeanEmbedding, ["a", "b"]).not_protected_against
    assert DEVIATES not in ledger(MeanEmbedding, ["a"]).not_protected_against


@pytest.mark.parametrize("mechanism", [PairwiseTables, LatentTree])
def test_ledgers_of_products_promise_it(mechanism):
    found = ledger(mechanism, ["a", "b"])
    assert DEVIATES not in found.not_protected_against
    assert PROVED in found.protected_against


def test_so_does_the_threat_model():
    page = Path(__file__).parents[3] / "docs" / "explanation" / "threat-model.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert "`MeanEmbedding` protects parties from each other only as long as" in text
