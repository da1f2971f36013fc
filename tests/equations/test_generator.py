"""The generator's layers, and Adam, against torch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vflsynth._random import RandomStreams
from vflsynth.columns import OutputSpan
from vflsynth.methods.gan.generator import Generator, SpanActivation
from vflsynth.methods.gan.sampler import GeneratorSpec
from vflsynth.methods.gan.sequential import SequentialGenerator, turns_of
from vflsynth.networks.layers import BatchNorm, FlatAdam

BATCH = 16
REPLICAS = 3


def spans_of(*widths: int) -> list[OutputSpan]:
    """One softmax span per width > 1 and an identity column per 1, side by side."""
    spans, start = [], 0
    for width in widths:
        activation = "softmax" if width > 1 else "identity"
        spans.append(OutputSpan(start, width, activation, f"c{start}", "category"))
        start += width
    return spans


def noise_per_column(activation: SpanActivation, gumbel):
    """The noise that is added to each encoded column."""
    filled = activation.filled
    noise = torch.zeros(*gumbel.shape[:-1], activation.width)
    noise[..., activation.columns[filled]] = gumbel[..., filled]
    return noise


@pytest.mark.parametrize("temperature", [0.2, 1.0])
@pytest.mark.parametrize(
    "widths",
    [(3,), (1, 2, 1, 5, 2), (2, 2, 2), (1, 300, 2, 2, 2, 5, 4, 1, 40)],
    ids=["one", "mixed", "equal widths", "very different widths"],
)
def test_gumbel_softmax_per_span(float64, widths, temperature):
    """Section 5.1.1: hard, straight-through, one per categorical attribute."""
    spans = spans_of(*widths)
    activation = SpanActivation(spans, temperature)
    raw = torch.randn(REPLICAS, BATCH, activation.width, requires_grad=True)
    upstream = torch.randn_like(raw)
    gumbel = torch.randn(REPLICAS, BATCH, activation.n_noisy)
    row = activation(raw, gumbel)
    (gradient,) = torch.autograd.grad(row, raw, upstream)

    noise = noise_per_column(activation, gumbel)
    for span in spans:
        place = (..., slice(span.start, span.stop))
        if span.activation == "identity":
            torch.testing.assert_close(row[place], raw[place])
            torch.testing.assert_close(gradient[place], upstream[place])
            continue
        logits = raw.detach()[place].clone().requires_grad_()
        # torch draws its own noise: ours minus torch's goes in with the logits.
        with torch.random.fork_rng():
            torch.manual_seed(1)
            drawn = -torch.empty_like(logits).exponential_().log()
            torch.manual_seed(1)
            expected = F.gumbel_softmax(logits + (noise[place] - drawn), temperature, hard=True)
        torch.testing.assert_close(row[place], expected)
        (slope,) = torch.autograd.grad(expected, logits, upstream[place])
        torch.testing.assert_close(gradient[place], slope)


def test_without_gradients_the_row_is_exactly_one_hot():
    activation = SpanActivation(spans_of(1, 4, 2), 0.2)
    raw, gumbel = torch.randn(2, BATCH, 7), torch.randn(2, BATCH, activation.n_noisy)
    with torch.no_grad():
        row = activation(raw, gumbel)
    assert set(row[..., 1:].unique().tolist()) == {0.0, 1.0}
    assert (row[..., 1:5].sum(-1) == 1).all()
    assert (row[..., 5:].sum(-1) == 1).all()


def test_the_memory_of_the_activation_follows_the_encoded_width_not_the_widest_span():
    """One span of 256 among fifty of 2 does not make fifty of 256."""
    activation = SpanActivation(spans_of(*[2] * 50, 256), 0.2)
    assert len(activation.columns) <= 2 * activation.width + 256


def test_gates_multiply_values_and_pass_both_gradients(float64):
    """A number with missing values: value * present, where present is a straight-through bit."""
    spans = [
        OutputSpan(0, 1, "identity", "age", "value", gate=1),
        OutputSpan(1, 2, "softmax", "age", "state"),
        OutputSpan(3, 1, "identity", "height", "value"),
    ]
    activation = SpanActivation(spans, 0.5)
    raw = torch.randn(2, BATCH, 4, requires_grad=True)
    gumbel, upstream = torch.randn(2, BATCH, activation.n_noisy), torch.randn(2, BATCH, 4)
    row = activation(raw, gumbel)
    (gradient,) = torch.autograd.grad(row, raw, upstream)

    leaf = raw.detach().clone().requires_grad_()
    soft = torch.softmax((leaf[..., 1:3] + gumbel) / 0.5, -1)
    hard = F.one_hot(soft.argmax(-1), 2) + soft - soft.detach()
    expected = torch.cat([leaf[..., :1] * hard[..., :1], hard, leaf[..., 3:]], -1)
    torch.testing.assert_close(row, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, leaf, upstream)[0])
    absent = row[..., 1] == 0
    assert absent.any()
    assert not row[..., 0][absent].any()


def test_no_softmax_span_needs_no_noise():
    activation = SpanActivation(spans_of(1, 1), 0.2)
    raw = torch.randn(1, BATCH, 2)
    assert activation.n_noisy == 0
    assert activation(raw, None) is raw
    nothing = SpanActivation([], 0.2)
    assert nothing(torch.empty(1, BATCH, 0), None).shape == (1, BATCH, 0)


def test_batch_norm_is_torchs_for_every_replica(float64):
    norm = BatchNorm(REPLICAS, 5, eps=0.8, device=torch.device("cpu"))
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    plain = []
    for r in range(REPLICAS):
        plain.append(nn.BatchNorm1d(5, eps=0.8))
        plain[r].load_state_dict(
            {"weight": norm.weight[r, 0], "bias": norm.bias[r, 0]}, strict=False
        )
    for mode in (True, True, False):
        norm.train(mode)
        inputs = 3 * torch.randn(REPLICAS, BATCH, 5) + 1
        mine, theirs = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
        outputs, upstream = norm(mine), torch.randn(REPLICAS, BATCH, 5)
        outputs.backward(upstream)
        for r in range(REPLICAS):
            expected = plain[r].train(mode)(theirs[r])
            torch.testing.assert_close(outputs[r], expected)
            expected.backward(upstream[r])
            torch.testing.assert_close(norm.running_mean[r, 0], plain[r].running_mean)
            torch.testing.assert_close(norm.running_var[r, 0], plain[r].running_var)
            torch.testing.assert_close(norm.weight.grad[r, 0], plain[r].weight.grad)
            torch.testing.assert_close(norm.bias.grad[r, 0], plain[r].bias.grad)
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize(("betas", "decay"), [((0.5, 0.999), 0.0), ((0.0, 0.9), 0.1)])
def test_flat_adam_is_torchs_adam(float64, betas, decay):
    module, copy = nn.Linear(5, 4), nn.Linear(5, 4)
    copy.load_state_dict(module.state_dict())
    mine = FlatAdam(module, learning_rate=0.01, betas=betas, weight_decay=decay)
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    theirs = kind(copy.parameters(), lr=0.01, betas=betas, weight_decay=decay)
    for step in range(30):
        gradients = [torch.randn_like(p) * 10.0 ** (step % 5 - 4) for p in copy.parameters()]
        mine.set_gradient(gradients)
        mine.step()
        for parameter, gradient in zip(copy.parameters(), gradients, strict=True):
            parameter.grad = gradient
        theirs.step()
    for parameter, expected in zip(module.parameters(), copy.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-12, atol=1e-12)


def test_flat_adam_goes_on_from_its_state(float64):
    def make():
        module = nn.Linear(3, 2)
        with torch.no_grad():
            module.weight.fill_(0.5)
            module.bias.zero_()
        return module, FlatAdam(module, learning_rate=0.1, betas=(0.5, 0.9))

    gradients = torch.randn(6, 8)
    module, adam = make()
    other, restored = make()
    for i, gradient in enumerate(gradients):
        if i == 3:
            other.load_state_dict(module.state_dict())
            restored.load_state(adam.state())
        for optimizer in (adam, restored):
            optimizer.set_gradient([gradient[:6].reshape(2, 3), gradient[6:]])
            optimizer.step()
    assert torch.equal(module.weight, other.weight)
    assert restored.flat.data_ptr() == other.weight.data_ptr()  # still one buffer


def test_generator_is_the_reference_architecture(streams, plain):
    """Fig. 10: Linear, LeakyReLU, then Linear, BatchNorm, LeakyReLU; an output with a bias."""
    generator = Generator(
        3,
        (4, 5, 6),
        spans_of(1, 1),
        bias=False,
        temperature=0.2,
        batch_norm_eps=0.8,
        streams=streams(2),
    )
    kinds = [type(layer).__name__ for layer in generator.hidden]
    assert kinds == ["Linear", "LeakyReLU"] + ["Linear", "BatchNorm", "LeakyReLU"] * 2
    latent = torch.randn(2, BATCH, 3)
    for r in range(2):
        first, second, third = (plain([generator.hidden[i]], r, False) for i in (0, 2, 5))
        output = plain([generator.output], r, False)
        assert second[0].bias is None
        assert output[0].bias is not None
        norms = [nn.BatchNorm1d(width, eps=0.8) for width in (5, 6)]
        hidden = F.leaky_relu(first(latent[r]), 0.2)
        hidden = F.leaky_relu(norms[0](second(hidden)), 0.2)
        hidden = F.leaky_relu(norms[1](third(hidden)), 0.2)
        generator.train()
        torch.testing.assert_close(generator(latent, None)[r], output(hidden))


def sequential(spans, replicas, head=3):
    options = {"bias": True, "temperature": 0.2, "batch_norm_eps": None}
    made = SequentialGenerator(4, (5,), spans, head=head, streams=replicas, **options)
    assert not made.added.weight.any()
    nn.init.normal_(made.added.weight)
    return made


MIXED_SPANS = (
    OutputSpan(0, 3, "softmax", "a", "category"),
    OutputSpan(3, 1, "identity", "b", "value", gate=4),
    OutputSpan(4, 2, "softmax", "b", "state"),
    OutputSpan(6, 1, "identity", "c", "value"),
)


def test_columns_are_drawn_one_after_the_other(streams, plain):
    """Every head sees the trunk and the columns before it, a number comes with its state."""
    generator = sequential(MIXED_SPANS, streams(2))
    latent, gumbel = torch.randn(2, BATCH, 4), torch.randn(2, BATCH, 5)
    rows = generator(latent, gumbel)
    for r in range(2):
        trunk = F.leaky_relu(plain([generator.hidden[0]], r, False)(latent[r]), 0.2)
        heads = plain([generator.heads], r, False)(trunk).split(3, 1)
        output, row = plain([generator.output], r, False)(trunk), torch.zeros(BATCH, 0)
        added = generator.added.weight[r]
        for i, (start, stop) in enumerate([(0, 3), (3, 6), (6, 7)]):
            own = heads[i]
            if i:
                own = own + row @ generator.earlier[i - 1].weight[r]
            raw = output[:, start:stop] + F.leaky_relu(own, 0.2) @ added[:, start:stop]
            if i == 0:
                raw = F.one_hot((raw + gumbel[r, :, :3]).argmax(1), 3).to(raw)
            elif i == 1:
                state = F.one_hot((raw[:, 1:] + gumbel[r, :, 3:]).argmax(1), 2).to(raw)
                raw = torch.cat([raw[:, :1] * state[:, :1], state], 1)
            row = torch.cat([row, raw], 1)
        torch.testing.assert_close(rows[r], row)


def test_gradients_of_a_drawn_row_equal_automatic_differentiation(float64, streams):
    """Through choices of two parts, states, bounds and all columns that saw them."""
    spans = (
        OutputSpan(0, 3, "softmax", "a", "category"),
        OutputSpan(3, 1, "identity", "b", "value", gate=5, bound=1.5),
        OutputSpan(4, 3, "softmax", "b", "state"),
        OutputSpan(7, 2, "softmax", "c", "category"),
        OutputSpan(9, 1, "identity", "d", "value", bound=0.5),
        OutputSpan(10, 20, "softmax", "e", "category"),
        OutputSpan(30, 1, "identity", "f", "value"),
    )
    generator = sequential(spans, streams(2)).double()
    latent, gumbel = torch.randn(2, BATCH, 4), torch.randn(2, BATCH, generator.n_noisy)
    upstream, parameters = torch.randn(2, BATCH, 31), list(generator.parameters())
    row = generator(latent, gumbel)
    found = torch.autograd.grad(row, parameters, upstream)

    hidden = F.leaky_relu(generator.hidden[0](latent), 0.2)
    heads, plain = generator.heads(hidden).split(3, -1), generator.output(hidden)
    expected, noise = plain[..., :0], 0
    for i, turn in enumerate(turns_of(spans)):
        place = slice(turn[0].start, turn[-1].stop)
        activation = SpanActivation([s.shifted(-place.start) for s in turn], 0.2)
        own = heads[i] if not i else heads[i] + expected @ generator.earlier[i - 1].weight
        raw = plain[..., place] + F.leaky_relu(own, 0.2) @ generator.added.weight[..., place]
        drawn = gumbel[..., noise : noise + activation.n_noisy] if activation.n_noisy else None
        expected = torch.cat([expected, activation(raw, drawn)], -1)
        noise += activation.n_noisy
    torch.testing.assert_close(row, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, parameters, upstream))
    with torch.no_grad():
        torch.testing.assert_close(generator(latent, gumbel), expected)


def test_a_row_without_columns_can_be_drawn(streams):
    spec = GeneratorSpec(4, (5,), bias=True, temperature=0.2, batch_norm_eps=None, head=3)
    made = spec.build((), streams(2))
    assert made(torch.randn(2, BATCH, 4), None).shape == (2, BATCH, 0)


def test_a_choice_passes_its_gradient_on_to_the_columns_after_it(streams):
    generator = sequential(MIXED_SPANS, streams(1))
    rows = generator(torch.randn(1, BATCH, 4), torch.randn(1, BATCH, 5))
    (bias,) = torch.autograd.grad(rows[..., 6].sum(), generator.output.bias)
    assert bias[0, 0, 6] == BATCH
    assert (bias[0, 0, :3] != 0).all()  # of the category that the number is drawn after
    (bias,) = torch.autograd.grad(
        generator(torch.randn(1, BATCH, 4), torch.randn(1, BATCH, 5))[..., :3].square().sum(),
        generator.output.bias,
    )
    assert not bias[0, 0, 3:].any()


def test_initial_weights_are_torchs_default_and_differ_between_replicas():
    generator = Generator(
        16,
        (400,),
        spans_of(1),
        bias=True,
        temperature=0.2,
        batch_norm_eps=None,
        streams=RandomStreams([b"a", b"b", b"c"]),
    )
    weight = generator.hidden[0].weight.detach()
    assert not torch.equal(weight[0], weight[1])
    for replica in weight:
        assert replica.abs().max() <= 0.25  # 1 / sqrt(16)
        assert abs(replica.mean()) < 0.01
        assert abs(replica.std() - 0.25 / 3**0.5) < 0.01
