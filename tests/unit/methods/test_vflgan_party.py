from dataclasses import replace

import pytest
import torch

from vflsynth._random import RandomStreams
from vflsynth.columns import TableTransformer
from vflsynth.exceptions import ProtocolError
from vflsynth.learning.base import FromRecords, RunningLosses
from vflsynth.learning.messages import MaskedFake
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.vflgan.messages import (
    DiscriminatorFeatures,
    DiscriminatorGradients,
    FeatureSlopes,
    GeneratorFeatures,
    GeneratorGradients,
    JointSlopes,
    Shape,
)
from vflsynth.methods.vflgan.party import Cut, VFLGANParty
from vflsynth.methods.vflgan.server import VFLGANServer
from vflsynth.protocol.channel import LocalChannel
from vflsynth.protocol.messages import SelectionNotice, TrainingReport
from vflsynth.protocol.schedule import Schedule
from vflsynth.run.local import match_records
from vflsynth.splitdefense.messages import BottomGradients

ENCODER = FromRecords(TableTransformer())
SETTINGS = Settings(
    batch_size=8,
    latent_dim=3,
    generator_hidden=(6, 5),
    first_part=(4,),
    shared_hidden=(),
    private_heads=True,
    bias=True,
    batch_norm_eps=1e-5,
    gumbel_temperature=0.5,
    gradient_penalty="layerwise",
    gradient_penalty_weight=3.0,
    learning_rate=0.01,
    betas=(0.5, 0.999),
    generator_average=0.9,
    n_evaluation=10,
)


@pytest.fixture
def streams():
    return RandomStreams([b"0", b"1"])


@pytest.fixture
def make_party(party_frames, streams):
    def make(**changes):
        frames = party_frames(1, 30)
        party = VFLGANParty("party_1", frames["party_1"], "record_id")
        match_records(LocalChannel([party]), frames, "record_id")
        party.prepare(ENCODER)
        schedule = Schedule(streams.child("shared"), n_records=30, batch_size=8, latent_dim=3)
        schedule.rotating = b"tests"
        party.build_with(Cut(), replace(SETTINGS, **changes), schedule, streams.child("party"))
        return party

    return make


@pytest.fixture
def party(make_party):
    return make_party()


def cut(step=0, rows=16, feature=4, kind=DiscriminatorGradients):
    return kind("server", "party_1", step, torch.randn(2, rows, feature))


def test_cut_gradients_must_have_been_asked_for(party):
    with pytest.raises(ProtocolError, match=r"party_1.*not ask"):
        party.take(cut())
    party.answer(DiscriminatorFeatures, 0)
    party.take(cut())
    with pytest.raises(ProtocolError, match="not ask"):
        party.take(cut())


def test_cut_gradients_must_be_of_the_step(party):
    party.answer(DiscriminatorFeatures, 3)
    with pytest.raises(ProtocolError, match="step 2"):
        party.take(cut(step=2))
    party.take(cut(step=3))


def test_cut_gradients_must_be_of_the_kind_that_was_asked_for(party):
    party.answer(GeneratorFeatures, 0)
    with pytest.raises(ProtocolError, match="DiscriminatorGradients of step 0 that it did not ask"):
        party.take(cut(rows=8))
    party.take(cut(rows=8, kind=GeneratorGradients))
    party.answer(DiscriminatorFeatures, 0)
    with pytest.raises(ProtocolError, match="GeneratorGradients of step 0 that it did not ask"):
        party.take(cut(rows=8, kind=GeneratorGradients))


@pytest.mark.parametrize("wrong", [{"rows": 8}, {"rows": 24}, {"feature": 5}])
def test_cut_gradients_must_have_the_shape(party, wrong):
    party.answer(DiscriminatorFeatures, 0)
    with pytest.raises(ProtocolError, match=r"shape .*expected \(2, 16, 4\)"):
        party.take(cut(**wrong))
    party.answer(GeneratorFeatures, 0)
    with pytest.raises(ProtocolError, match=r"expected \(2, 8, 4\)"):
        party.take(cut(rows=16, kind=GeneratorGradients))


@pytest.mark.parametrize("wrong", [(2, 1), (2, 7), (1, 8), (2, 8, 1)])
def test_squared_slopes_must_have_the_shape(make_party, wrong):
    """One number for all records would go through as well."""
    party = make_party(gradient_penalty="end_to_end")
    party.answer(DiscriminatorFeatures, 0)
    party.take(cut(rows=24))
    party.answer(FeatureSlopes, 0)
    nothing = torch.zeros(2, 0, 4)
    with pytest.raises(ProtocolError, match=r"squared slopes .*shape .*expected \(2, 8\)"):
        party.take(JointSlopes("server", "party_1", 0, torch.ones(wrong), nothing))


def test_features_wait_for_a_reply_that_is_owed(make_party):
    party = make_party(gradient_penalty="end_to_end")
    party.answer(DiscriminatorFeatures, 0)
    with pytest.raises(ProtocolError, match="step 1 before it got DiscriminatorGradients of step"):
        party.answer(DiscriminatorFeatures, 1)
    party.take(cut(rows=24))
    with pytest.raises(ProtocolError, match="step 0 before it got JointSlopes of step 0"):
        party.answer(GeneratorFeatures, 0)


def test_unknown_requests_are_refused(party):
    with pytest.raises(ProtocolError, match="party 'party_1' cannot answer SelectionNotice"):
        party.answer(SelectionNotice, 0)
    with pytest.raises(ProtocolError, match="party 'party_1' cannot take Shape"):
        party.take(Shape("server", "party_1", 0, 30, 9, 4))
    with pytest.raises(ProtocolError, match="cannot take BottomGradients"):
        party.take(cut(kind=BottomGradients))  # of the same base, but of another method


def test_a_report_needs_a_step(party):
    with pytest.raises(ProtocolError, match="before any training step"):
        party.answer(TrainingReport, 1)


def test_records_must_be_matched_first(party_frames):
    party = VFLGANParty("party_1", party_frames(1)["party_1"], "record_id")
    with pytest.raises(ProtocolError, match="party 'party_1' have not been matched"):
        party.prepare(ENCODER)


def test_selection_is_per_replica(party):
    before = {name: value.clone() for name, value in party.selected.items()}
    with torch.no_grad():
        for value in party.published.state_dict().values():
            value.add_(1.0)
    party.take(SelectionNotice("server", "party_1", 1, torch.tensor([False, True])))
    for name, value in party.selected.items():
        assert torch.equal(value[0], before[name][0])
        assert torch.equal(value[1], before[name][1] + 1.0)
        assert value.data_ptr() != party.published.state_dict()[name].data_ptr()


def test_the_average_forgets_the_start_and_moves_slowly_later(party):
    """Decay min(0.9, (1 + n) / (10 + n)) at the n-th generator step, running statistics too."""
    expected = {k: v.clone() for k, v in party.averaged.state_dict().items()}
    for n in range(1, 4):
        party.answer(GeneratorFeatures, n)
        party.take(cut(step=n, rows=8, kind=GeneratorGradients))
        decay = min(0.9, (1 + n) / (10 + n))
        for name, value in party.generator.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value
    for name, value in party.averaged.state_dict().items():
        torch.testing.assert_close(value, expected[name])


def test_evaluation_leaves_the_generator_as_it_is(party):
    before = {k: v.clone() for k, v in party.published.state_dict().items()}
    first = party.answer(MaskedFake, 1).records
    assert party.published.training
    assert torch.equal(first, party.answer(MaskedFake, 1).records)
    assert not torch.equal(first, party.answer(MaskedFake, 2).records)
    for name, value in party.published.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_server_checks_what_it_is_sent(streams):
    shapes = {name: Shape(name, "server", 0, 30, 9, 4) for name in "ab"}
    server = VFLGANServer(SETTINGS, shapes, streams)

    def features(rows, dim=4, replicas=2):
        return DiscriminatorFeatures("a", "server", 0, torch.randn(replicas, rows, dim))

    for wrong in (features(16), features(24, dim=5), features(24, replicas=1)):
        with pytest.raises(
            ProtocolError, match=r"party 'b', step 0: sent .* expected \(2, 24, 4\)"
        ):
            server.update_discriminator(0, {"a": features(24), "b": wrong})
    replies = server.update_discriminator(0, {"b": features(24), "a": features(24)})
    assert {name: tuple(reply.gradients.shape) for name, reply in replies.items()} == {
        "a": (2, 16, 4),
        "b": (2, 16, 4),
    }


def test_running_losses_are_means_that_start_again():
    losses = RunningLosses()
    for value in (1.0, 3.0):
        losses.add(torch.tensor([value, 0.0]), torch.tensor([0.0, value]))
    wasserstein, penalty = losses.pop()
    assert (wasserstein.tolist(), penalty.tolist()) == ([2.0, 0.0], [0.0, 2.0])
    with pytest.raises(ProtocolError):
        losses.pop()
