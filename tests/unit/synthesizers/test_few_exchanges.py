"""Several steps with one exchange, and fewer bits: how many messages and steps, which bytes."""

import pytest
import torch

from tests.callbacks import StopAfter
from tests.later import later
from vflsynth import (
    GaussianCopulaSynthesizer,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
)
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.federation.limits import MAX_BYTES
from vflsynth.learning import messages as shared
from vflsynth.mechanisms import DPSGD, FirstLayer
from vflsynth.methods.gan.settings import Settings
from vflsynth.networks.layers import FlatAdam

KEY = "record_id"
SMALL = {
    "epochs": 2,
    "batch_size": 8,
    "latent_dim": 4,
    "generator_hidden": (8,),
    "random_state": 0,
    "verbose": 0,
    "structure": "ignore",  # which nobody asks for here
    "device": "cpu",
}
STEPS = 2 * 9  # of 70 records


@pytest.fixture(scope="module")
def frames():
    return make_party_frames(70, 2, random_state=1)


def fit(frames, kind=VFLGANSynthesizer, fit=None, **parameters):
    return kind(**SMALL | parameters).fit(frames, KEY, transcript=True, **fit or {})


def sent(synth):
    return dict(synth.transcript_.groupby("message")["messages"].sum())


def same(one, other):
    ours, theirs = (
        {(n, k): v for n, half in s.parties_.items() for k, v in half.sampler.tensors().items()}
        for s in (one, other)
    )
    return ours.keys() == theirs.keys() and all(torch.equal(v, theirs[k]) for k, v in ours.items())


@pytest.mark.parametrize(
    ("steps", "exchanges", "generator_exchanges"),
    [(1, 18, 9), (4, 6, 0), *later((2, 10, 0), (100, 2, 0))],
)
def test_every_step_is_taken_whatever_is_exchanged(
    frames, monkeypatch, steps, exchanges, generator_exchanges
):
    taken = []
    step = FlatAdam.step
    monkeypatch.setattr(FlatAdam, "step", lambda self: (taken.append(self), step(self))[1])
    messages = sent(fit(frames, steps_per_exchange=steps, discriminator_steps=2))
    for kind in (
        "DiscriminatorFeatures",
        "DiscriminatorGradients",
        "FeatureSlopes",
        "JointSlopes",
    ):
        assert messages[kind] == 2 * exchanges
    assert messages.get("GeneratorFeatures", 0) == 2 * generator_exchanges
    counts = sorted(taken.count(optimizer) for optimizer in dict.fromkeys(taken))
    assert counts == [STEPS // 2] * 2 + [STEPS] * 3  # two generators; two local critics, a shared


def test_windows_end_where_epochs_do():
    names = dict.fromkeys(Settings.__dataclass_fields__)
    settings = Settings(**names | {"steps_per_exchange": 4, "discriminator_steps": 5})
    windows = {settings.window(step, 9) for step in range(18)}
    assert windows == {
        range(0, 4),
        range(4, 8),
        range(8, 9),
        range(9, 13),
        range(13, 17),
        range(17, 18),
    }
    assert all(step in settings.window(step, 9) for step in range(18))
    assert [settings.replies_for_generators(w) for w in sorted(windows, key=lambda w: w[0])] == [
        False, True, False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("penalty", ["end_to_end", *later("layerwise", "paper")])
def test_a_window_takes_the_steps_that_slow_code_takes(frames, monkeypatch, penalty):
    """Cut gradients of the beginning, everything else anew: as a loop over copies has it."""
    from vflsynth.methods.vflgan.party import LocalDiscriminator, VFLGANParty

    seen = []

    def judge(self, trace, cut, *options, **more):
        assert all(
            torch.equal(a, b) for a, b in zip(trace, self.first_part.trace(trace[0]))
        )  # with the weights of now
        seen.append((self, trace[0].clone(), cut.clone()))
        return original(self, trace, cut, *options, **more)

    original = LocalDiscriminator.judge
    monkeypatch.setattr(LocalDiscriminator, "judge", judge)
    moved = []
    move = VFLGANParty._move_generator

    def checked(self, fakes, trace, cut):
        assert torch.equal(trace[0], fakes)
        real, batch = seen[-1][1], SMALL["batch_size"]
        if not moved:  # before any generator moved, the fakes are those of the exchange
            assert torch.equal(fakes.detach(), real[:, batch : 2 * batch])
        moved.append(self.name)
        return move(self, fakes, trace, cut)

    monkeypatch.setattr(VFLGANParty, "_move_generator", checked)
    fit(frames, epochs=1, steps_per_exchange=4, discriminator_steps=4, gradient_penalty=penalty)
    one = [(rows, cut) for critic, rows, cut in seen if critic is seen[0][0]]
    assert len(one) == 9
    for first in (0, 4):
        for rows, cut in one[first + 1 : first + 4]:
            assert torch.equal(rows, one[first][0])
            assert torch.equal(cut, one[first][1])
    assert not torch.equal(one[4][0], one[0][0])
    assert moved == ["party_1", "party_2"] * 2


@pytest.mark.parametrize("kind", [VFLGANSynthesizer, *later(VertiGANSynthesizer)])
def test_fewer_bits_are_fewer_bytes_and_a_model_close_by(frames, kind):
    short = {"model_selection": "last", "epochs": 1 if kind is VFLGANSynthesizer else 2}
    found = {
        precision: fit(frames, kind, wire_precision=precision, **short)
        for precision in ("float32", "float16", "int8")
    }
    told = {
        p: s.transcript_.query("message.str.contains('Feature|Gradients')")
        for p, s in found.items()
    }
    total = {precision: told[precision]["bytes"].sum() for precision in told}
    assert total["float16"] * 2 == total["float32"]
    assert total["int8"] < total["float32"] * 0.3
    assert same(found["float32"], fit(frames, kind, **short))
    for precision in ("float16", "int8"):
        assert not same(found["float32"], found[precision])
        assert same(found[precision], fit(frames, kind, wire_precision=precision, **short))


def test_a_run_that_is_resumed_has_the_bytes_of_one_that_was_not(frames, tmp_path):
    few = {"steps_per_exchange": 4, "wire_precision": "int8"}
    whole = fit(frames, **few, epochs=3)
    first = VFLGANSynthesizer(**SMALL | few | {"epochs": 3})

    first.fit(frames, KEY, checkpoint=tmp_path / "d", checkpoint_every=2, callbacks=[StopAfter(2)])
    again = fit(frames, **few, epochs=3, fit={"resume": tmp_path / "d"})
    assert same(again, whole)


MECHANISMS = [
    DPSGD(noise_multiplier=1.0, delta=1e-3, n_records=70),
    FirstLayer(noise_multiplier=1.0, delta=1e-3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_mechanisms_keep_a_published_penalty_and_refuse_the_other(frames, mechanism):
    with pytest.raises(ParameterError, match='gradient_penalty="layerwise" or "paper"'):
        fit(frames, privacy=mechanism, gradient_penalty="end_to_end")
    for privacy, penalty, head, betas, steps in (
        (mechanism, "layerwise", None, (0.5, 0.999), 2),
        (None, "end_to_end", 64, (0.0, 0.9), 1),
    ):
        method = VFLGANSynthesizer(privacy=privacy).method()
        settings = method.plain_settings(200, [9, 9])
        assert (settings.gradient_penalty, settings.generator_head) == (penalty, head)
        assert (settings.betas, settings.discriminator_steps) == (betas, steps)
        assert method.default_steps == 3600 * steps


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_generators_grow_with_the_records_but_not_with_a_mechanism(mechanism):
    def sizes(**parameters):
        method = VFLGANSynthesizer(**parameters).method()
        return [method.plain_settings(n, [9, 9]).generator_hidden for n in (1_000, 2_048, 10**6)]

    assert sizes() == [(32, 32), (64, 64), (128, 128)]
    assert sizes(privacy=mechanism) == [(32, 32)] * 3
    assert sizes(generator_hidden=(7,)) == [(7,)] * 3


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_large_batches_take_half_as_many_steps_that_go_twice_as_far(mechanism):
    def lengths(**parameters):
        method, found = VFLGANSynthesizer(**parameters).method(), []
        for n in (1_000, 8_191, 8_192, 10**6):
            settings = method.plain_settings(n, [9, 9])
            steps = method.default_epochs(n, settings.batch_size) * n / settings.batch_size
            found.append((settings.batch_size, settings.learning_rate, round(steps, -2)))
        return found

    assert lengths() == [
        (32, 5e-4, 7_200), (256, 5e-4, 3_600), (512, 1e-3, 1_800), (512, 1e-3, 2_000)
    ]  # fmt: skip
    for others in ({"privacy": mechanism}, {"steps_per_exchange": 2}):
        assert [found[:2] for found in lengths(**others)[1:]] == [(256, 5e-4)] * 3
    assert lengths(learning_rate=3e-4, batch_size=512)[0][1] == 3e-4


@pytest.mark.parametrize(("widest", "head"), [(256, 64), (257, None)])
def test_wide_tables_are_drawn_at_once_unless_asked_otherwise(widest, head):
    for asked, expected in ((None, head), ("sequential", 64), ("parallel", None)):
        method = VFLGANSynthesizer(generator=asked).method()
        assert method.plain_settings(200, [9, widest]).generator_head == expected


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("few", "reason"),
    [({"steps_per_exchange": 2}, "counts one noisy step"), ({"wire_precision": "int8"}, "exact")],
)
def test_mechanisms_that_count_steps_refuse_both(frames, mechanism, few, reason):
    with pytest.raises(ParameterError, match=reason):
        fit(frames, privacy=mechanism, **few)


@pytest.mark.parametrize("kind", [GaussianCopulaSynthesizer, *later(VFLGANSynthesizer)])
def test_masked_records_in_blocks_are_the_same_records(frames, monkeypatch, kind):
    parameters = (
        {} if kind is GaussianCopulaSynthesizer else {"epochs": 1, "model_selection": "best"}
    )

    def made():
        if kind is GaussianCopulaSynthesizer:
            return kind(random_state=0).fit(frames, KEY, transcript=True)
        return fit(frames, kind, **parameters)

    whole = made()
    monkeypatch.setattr(shared, "MOST_NUMBERS", 300)
    blocks = made()
    widths = [half.transformer.width_ + 1 for half in whole.parties_.values()]
    assert sent(whole)["MaskedReal"] == 2
    assert sent(blocks)["MaskedReal"] == 2 * -(-70 * max(widths) // 300) > 10
    assert same(blocks, whole)
    sizes = blocks.transcript_.query("message == 'MaskedReal'")["bytes"]
    assert sizes.sum() == whole.transcript_.query("message == 'MaskedReal'")["bytes"].sum()


def test_a_million_wide_records_are_sent_in_messages_that_any_node_takes():
    blocks = shared.n_masked_blocks(10**6, {"a": 67, "b": 12})
    assert blocks == 9
    assert 4 * -(-(10**6) // blocks) * 68 <= 32 * 2**20 < MAX_BYTES


def test_blocks_that_are_asked_for_out_of_turn_are_refused():
    blocks = shared.MaskedBlocks(lambda: torch.ones(1, 10, 2), 3)
    with pytest.raises(ProtocolError, match="out of turn"):
        blocks[1]
    assert [blocks[i].shape[1] for i in range(3)] == [4, 3, 3]
    with pytest.raises(ProtocolError, match="out of turn"):
        blocks[2]
