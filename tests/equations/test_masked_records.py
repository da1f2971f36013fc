"""Moments of records that nobody sees: masked by secret rotations (model selection, Eq. 23)."""

import itertools

import pytest
import torch

from vflsynth._random import RandomStreams
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.messages import MaskedFake, MaskedReal, moments
from vflsynth.methods.gan.method import GANAlgorithm
from vflsynth.methods.gan.settings import Settings
from vflsynth.networks.layers import frechet_distance_of_moments
from vflsynth.protocol.schedule import ROTATION_SIZE, Schedule

SIZES = [2, 3, ROTATION_SIZE, ROTATION_SIZE + 1, 5 * ROTATION_SIZE + 7]


def schedule_of(secret: bytes, n: int) -> Schedule:
    schedule = Schedule(RandomStreams([b""]), n_records=n, batch_size=2)
    schedule.rotating = secret
    return schedule


def masked(records, secret=b"shared", reuse=False):
    """What two parties, with the first two and the other columns, send."""
    n = records.shape[1]
    parts = {"a": records[..., :2], "b": records[..., 2:]}
    kind = MaskedFake if reuse else MaskedReal
    return {
        name: kind(
            name,
            "server",
            0,
            schedule_of(secret, n).rotate(
                torch.cat([torch.ones(*part.shape[:2], 1), part], -1), reuse=reuse
            ),
        )
        for name, part in parts.items()
    }


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_moments_of_masked_records_are_those_of_the_records(n, reuse):
    records = torch.randn(3, n, 5) * torch.tensor([1.0, 10.0, 0.1, 1.0, 3.0]) + 2.0
    mean, covariance = moments(masked(records, reuse=reuse))
    for r, rows in enumerate(records.double()):
        torch.testing.assert_close(mean[r], rows.mean(0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(covariance[r], torch.cov(rows.T), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_the_mask_is_orthogonal(n, reuse):
    mask = schedule_of(b"x", n).rotate(torch.eye(n).unsqueeze(0), reuse=reuse)[0]
    torch.testing.assert_close(mask.T @ mask, torch.eye(n), rtol=0, atol=2e-6)


@pytest.mark.parametrize("n", SIZES)
def test_no_row_of_a_message_is_a_record(n):
    """Not even the last one, and not up to its sign."""
    records = torch.randn(1, n, 5)
    for message in masked(records).values():
        real = records[0, :, :2] if message.sender == "a" else records[0, :, 2:]
        sent = message.records[0, :, 1:]
        assert sent.shape == real.shape
        distances = torch.cdist(torch.cat([sent, -sent]), real)
        assert distances.min() > 1e-4


def test_a_rotation_mixes_at_least_two_records_however_many_there_are():
    """A remainder of one record would be sent as it is, up to its sign."""
    for n in range(2, 3 * ROTATION_SIZE, 41):
        mask = schedule_of(b"x", n).rotate(torch.eye(n).unsqueeze(0), reuse=True)[0]
        assert (mask.abs() > 1e-12).sum(0).min() >= min(n, ROTATION_SIZE // 2)


def holders_by_block(message_rows):
    """What a curious server can try: in every block, the second moments of column 1 with all."""
    n_blocks = -(-len(message_rows) // ROTATION_SIZE)
    found = []
    for block in torch.tensor_split(message_rows, n_blocks):
        holder = block[:, 1]
        if holder @ holder > 1e-6:
            found.append(holder @ block / (holder @ holder))
    return torch.stack(found)


def test_a_category_alone_in_its_block_does_not_show_its_record():
    """Two holders in 600 records: after one round their blocks' moments are their records."""
    records = torch.randn(1, 600, 6)
    records[..., 0] = 1.0
    records[..., 1] = 0.0
    records[0, [10, 500], 1] = 1.0
    schedule = schedule_of(b"shared", 600)

    def closest(rows):
        return torch.cdist(holders_by_block(rows)[:, 2:], records[0, [10, 500], 2:]).min()

    assert closest(schedule.rotate(records, reuse=True)[0]) < 1e-3
    assert closest(schedule.rotate(records, reuse=False)[0]) > 0.1


def test_different_secrets_give_different_masks_and_the_same_secret_the_same():
    records = torch.randn(1, 300, 4)
    one, same, other = (
        schedule_of(secret, 300).rotate(records, reuse=False) for secret in (b"1", b"1", b"2")
    )
    assert torch.equal(one, same)
    assert (one - other).abs().max() > 0.1
    reused = schedule_of(b"1", 300).rotate(records, reuse=True)
    assert (one - reused).abs().max() > 0.1


def test_parties_with_different_secrets_or_lengths_are_refused():
    records = torch.randn(1, 40, 5)
    mine, theirs = masked(records, b"1"), masked(records, b"2")
    with pytest.raises(ProtocolError, match="party 'b'"):
        moments({"a": mine["a"], "b": theirs["b"]})
    shorter = masked(records[:, :39], b"1")
    with pytest.raises(ProtocolError, match="party 'b'"):
        moments({"a": mine["a"], "b": shorter["b"]})


def server() -> GANAlgorithm:
    settings = Settings(**dict.fromkeys(Settings.__dataclass_fields__))
    return GANAlgorithm(None, settings, RandomStreams([b"0", b"1"]), selects=True)


def test_frechet_distance_from_messages_is_that_of_the_moments():
    real, fake = torch.randn(1, 400, 5), torch.randn(2, 300, 5) * 1.5 + 0.3
    judge = server()
    judge.real_moments = moments(masked(real))
    got = judge.frechet_distance(masked(fake, reuse=True))
    for r, rows in enumerate(fake.double()):
        plain = [m for table in (real[0].double(), rows) for m in (table.mean(0), table.T.cov())]
        expected = frechet_distance_of_moments(*plain)
        torch.testing.assert_close(got[r], expected, rtol=1e-4, atol=1e-4)


def test_frechet_distance_needs_the_real_moments_first():
    with pytest.raises(ProtocolError, match="real records"):
        server().frechet_distance(masked(torch.randn(1, 9, 4)))


def test_order_of_the_parties_does_not_matter():
    messages = masked(torch.randn(1, 20, 5))
    for order in itertools.permutations(messages):
        mean, covariance = moments({name: messages[name] for name in order})
        expected_mean, expected_covariance = moments(messages)
        assert torch.equal(mean, expected_mean)
        assert torch.equal(covariance, expected_covariance)
