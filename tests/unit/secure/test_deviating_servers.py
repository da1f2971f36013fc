"""What a server gains by deviating from secure sums; the threat model says the same."""

import numpy as np
import pytest

from tests.unit.secure.test_phases import ANGLES, made
from vflsynth.exceptions import ProtocolError
from vflsynth.secure import (
    RADIUS,
    Arithmetic,
    ProductParty,
    ProductServer,
    circle,
)
from vflsynth.secure.phases import PhaseServer

N, K, VICTIM = 30, 8, 17


class Enlarging(PhaseServer):
    """Shares one record's points, a thousand times as large as the noise, and zeros otherwise."""

    def __init__(self, *arguments, factor):
        super().__init__(*arguments)
        honest = self._table
        self.joint = None

        class Table:
            def __getitem__(table, places):
                joint = places[1]
                self.joint = joint.copy()
                left = np.zeros((2, *joint.shape), honest.dtype)
                left[:, VICTIM] = honest[:, joint[VICTIM]] * honest.dtype.type(factor)
                return left

        self._table = Table()


@pytest.mark.parametrize("n_parties", [2, 3])
def test_a_server_that_enlarges_points_reads_a_records_joint_angles(n_parties):
    """The limit of `phases` that ledger and threat model name: integrity is not checked."""
    rng = np.random.default_rng(0)
    names = "abc"[:n_parties]
    angles = {name: rng.integers(0, 2**16, (N, K)).astype(ANGLES) for name in names}
    noise = {name: rng.normal(0, 20 * RADIUS**2, 2 * K).astype(np.int64) for name in names}
    arithmetic = Arithmetic.of(2.0**60, 0)
    parties, _ = made(angles, arithmetic)

    def run(server):
        openings = server.open(0, {name: p.mask(0) for name, p in parties.items()})
        for name, party in parties.items():
            party.take(0, openings[name])
        return server.totals({name: party.shares(noise[name]) for name, party in parties.items()})

    server = Enlarging(list(names), N, K, arithmetic, factor=10_000)
    total = run(server)
    seen = total[:K] + 1j * total[K:]
    joint = sum(own[VICTIM].astype(int) for own in angles.values()) % 2**16
    found = np.round(np.angle(seen) / (2 * np.pi) * 2**16).astype(int) % 2**16
    wrong = np.minimum((found - joint) % 2**16, (joint - found) % 2**16)
    assert wrong.max() < 2**16 / 60  # to six degrees, where honest sums tell nothing of a record
    parties, server = made(angles, arithmetic)
    honest = run(server)
    found = np.round(np.angle(honest[:K] + 1j * honest[K:]) / (2 * np.pi) * 2**16) % 2**16
    assert np.minimum((found - joint) % 2**16, (joint - found) % 2**16).max() > 2**16 / 60


def test_a_server_that_deals_the_same_points_twice_or_others_spoils_the_sum_and_gains_no_more():
    """Points that do not depend on what parties sent tell nothing: what comes of them is masks."""
    rng = np.random.default_rng(1)
    arithmetic = Arithmetic.of(2.0**60, 0)
    constant = rng.integers(0, 2**16, (N, K))
    totals = []
    for population in (0, 1):
        angles = {n: np.full((N, K), 9_000 * population, ANGLES) for n in "ab"}
        parties, server = made(angles, arithmetic)
        masked = {name: p.mask(0) for name, p in parties.items()}
        points = circle()[constant]
        honest, server._table = server._table, None
        left = np.stack([points.real, points.imag]).astype(np.int64).astype(honest.dtype)

        class Same:
            def __getitem__(table, places, left=left):
                return left.copy()

        server._table = Same()
        for name, opening in server.open(0, masked).items():
            parties[name].take(0, opening)
        zero = np.zeros(2 * K, np.int64)
        totals.append(server.totals({n: p.shares(zero) for n, p in parties.items()}).tolist())
    assert totals[0] == totals[1]


def test_products_take_nothing_from_the_server_and_answer_once():
    rng = np.random.default_rng(2)
    matrices = {name: rng.integers(0, 2, (N, 3)) for name in "ab"}
    widths, arithmetic = dict.fromkeys(matrices, 3), Arithmetic.of(1000.0, 0)
    parties = {n: ProductParty(n, m, widths, b"secret", arithmetic) for n, m in matrices.items()}
    server = ProductServer(widths, N, arithmetic)
    for block in range(len(server.blocks)):
        for party in parties.values():
            party.mask(block)
    zero = np.zeros(9, np.int64)
    for party in parties.values():
        party.shares(zero)
        with pytest.raises(ProtocolError, match="twice"):
            party.shares(zero)
        with pytest.raises(ProtocolError, match="was asked for block 0"):
            party.mask(0)
        assert not hasattr(party, "take")
