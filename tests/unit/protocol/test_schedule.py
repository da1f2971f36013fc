import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vflsynth._random import HiddenStreams, RandomStreams
from vflsynth.protocol.schedule import PoissonSchedule, Schedule, SubsetSchedule, places_of_batches


def schedule_of(n_records, batch_size, replicas=1, replica_rows=None):
    return Schedule(
        RandomStreams([bytes([replica]) for replica in range(replicas)]),
        n_records=n_records,
        batch_size=batch_size,
        latent_dim=3,
        replica_rows=replica_rows,
    )


@given(n_records=st.integers(2, 60), share=st.floats(0.01, 1), n_passes=st.integers(1, 3))
def test_batches_are_full_and_records_used_equally_often(n_records, share, n_passes):
    batch_size = max(1, int(share * n_records))
    schedule = schedule_of(n_records, batch_size)
    # After lcm(n, B) / B steps, everything was used equally often; before, at most one more often.
    n_steps = n_passes * n_records
    rows = torch.cat([schedule.rows(step) for step in range(n_steps)], 1)
    assert rows.shape == (1, n_steps * batch_size)
    counts = torch.bincount(rows[0], minlength=n_records)
    assert counts.tolist() == [n_passes * batch_size] * n_records
    for end in range(0, rows.shape[1], 7):
        so_far = torch.bincount(rows[0, :end], minlength=n_records)
        assert so_far.max() - so_far.min() <= 1


def test_batches_straddle_permutations():
    schedule = schedule_of(5, 3)
    stream = torch.cat([schedule.rows(step) for step in range(5)], 1)[0]
    assert sorted(stream[:5].tolist()) == sorted(stream[5:10].tolist()) == list(range(5))
    permutations = [schedule.streams.permutation("rows", epoch, 5)[0] for epoch in range(3)]
    assert torch.equal(stream, torch.cat(permutations))


@pytest.mark.parametrize(("n", "batch", "steps"), [(10, 5, 2), (11, 5, 3), (5, 5, 1), (7, 2, 4)])
def test_steps_per_epoch_visit_every_record(n, batch, steps):
    schedule = schedule_of(n, batch)
    assert schedule.steps_per_epoch == steps
    rows = torch.cat([schedule.rows(step) for step in range(steps)], 1)
    assert set(rows[0].tolist()) == set(range(n))


def test_parties_of_one_process_make_every_rotation_once(monkeypatch):
    schedule, made = schedule_of(300, 3), []
    schedule.rotating = b"key"
    make = schedule._rotation
    monkeypatch.setattr(schedule, "_rotation", lambda *key: made.append(key) or make(*key))
    one, other = (schedule.rotate(torch.ones(1, 300, 2), reuse=False) for _ in "ab")
    assert torch.equal(one, other)
    assert len(made) == len(set(made)) == 6


def test_steps_can_be_asked_for_in_any_order():
    one, other = schedule_of(17, 4), schedule_of(17, 4)
    forwards = [one.rows(step) for step in range(12)]
    backwards = [other.rows(step) for step in reversed(range(12))]
    assert all(torch.equal(a, b) for a, b in zip(forwards, reversed(backwards), strict=True))


def test_every_replica_has_its_own_draws():
    schedule = schedule_of(20, 8, replicas=2)
    alone = schedule_of(20, 8)
    for draw in ("rows", "latent", "interpolation"):
        drawn = getattr(schedule, draw)(4)
        assert not torch.equal(drawn[0], drawn[1])
        assert torch.equal(drawn[:1], getattr(alone, draw)(4))
    assert schedule.latent(0).shape == (2, 8, 3)
    assert schedule.interpolation(0).shape == (2, 8, 1)
    assert schedule.evaluation_latent(1, 5).shape == (2, 5, 3)


def test_every_replica_trains_on_its_own_rows():
    replica_rows = torch.tensor([[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]])
    schedule = schedule_of(6, 4, replicas=2, replica_rows=replica_rows)
    rows = torch.cat([schedule.rows(step) for step in range(3)], 1)
    for replica in range(2):
        assert sorted(rows[replica].tolist()) == sorted(replica_rows[replica].tolist() * 2)


def test_a_records_place_in_a_subset_does_not_follow_from_its_number():
    """Another key renumbers the records after it: if places moved, they would meet other fakes."""
    streams = RandomStreams([b"public"])
    sampling = HiddenStreams([bytes(32)])
    schedule = SubsetSchedule(streams, sampling=sampling, n_records=40, batch_size=4)
    rows = torch.cat([schedule.rows(step) for step in range(4000)])  # (step, place)
    for record in (0, 1, 38, 39):
        places = (rows == record).sum(0)
        assert places.sum() == pytest.approx(400, abs=80)
        assert (places - 100).abs().max() <= 50  # five standard deviations


def poisson_of(n_records, batch_size, n_public, secret=b"sampling", replicas=1):
    return PoissonSchedule(
        RandomStreams([bytes([replica]) for replica in range(replicas)]),
        sampling=HiddenStreams([secret + bytes([replica]) for replica in range(replicas)]),
        sample_rate=batch_size / n_public,
        n_records=n_records,
        batch_size=batch_size,
    )


@given(n_public=st.integers(2, 5000), share=st.floats(0.01, 1))
def test_an_epoch_of_poisson_batches_is_as_long_as_the_public_number_says(n_public, share):
    batch_size = max(1, int(share * n_public))
    assert poisson_of(7, batch_size, n_public).steps_per_epoch == -(-n_public // batch_size)


@given(expected=st.integers(1, 5000))
def test_batches_have_a_public_number_of_places(expected):
    """What networks compute may depend on it in the last bits: it must not tell who was drawn."""
    places = places_of_batches(expected)
    assert places % 64 == 0
    assert stats.poisson(expected).sf(places) < 1e-13
    assert places <= 2 * expected + 176


def test_the_number_of_places_does_not_follow_the_draw():
    schedule = poisson_of(400, 16, 400)
    drawn = {int(schedule.n_real(step)[0]) for step in range(50)}
    assert len(drawn) > 5
    assert {schedule.rows(step).shape for step in range(50)} == {(1, 64)}
    crowded = poisson_of(4000, 16, 400)  # ten times as many records as somebody said
    assert {crowded.rows(step).shape[1] % 64 for step in range(5)} == {0}
    assert all(crowded.rows(step).shape[1] >= crowded.n_real(step)[0] for step in range(5))
