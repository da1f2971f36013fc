"""Gradients written out by hand equal automatic differentiation, double backward included.

Inputs are Gaussian: no record lies on a kink of a LeakyReLU, where the derivative is a convention.
"""

import itertools

import pytest
import torch
from torch import nn

from vflsynth.methods.gan.discriminator import (
    Discriminator,
    LocalDiscriminator,
    directional_penalty,
    steepest,
)
from vflsynth.networks import MLP
from vflsynth.networks.layers import FlatAdam

BATCH = 6
REPLICAS = 3
WEIGHT = 7.0
STEEPER = 2.5
BOTH = list(itertools.product([True, False], repeat=2))


def with_gradients(network):
    FlatAdam(network, learning_rate=0.0, betas=(0.0, 0.0))
    return network


def gaussian(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def assert_gradients_equal(linears, replica, copied: nn.Sequential):
    for layer, plain in zip(
        linears, [layer for layer in copied if isinstance(layer, nn.Linear)], strict=True
    ):
        torch.testing.assert_close(layer.weight.grad[replica], plain.weight.grad.T)
        if layer.bias is not None:
            got = layer.bias.grad[replica, 0]
            # A bias that cannot matter has no gradient in torch and a zero one here.
            expected = torch.zeros_like(got) if plain.bias.grad is None else plain.bias.grad
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("bias", "activate_last"), BOTH)
def test_mlp_gradients_of_outputs_and_of_input_gradients(streams, plain, bias, activate_last):
    mlp = with_gradients(
        MLP(
            [4, 6, 5, 3],
            bias=bias,
            activate_last=activate_last,
            streams=streams(REPLICAS),
            name="mlp",
        )
    )
    inputs, upstream = gaussian(REPLICAS, BATCH, 4), gaussian(REPLICAS, BATCH, 3)
    change = gaussian(REPLICAS, BATCH, 4)

    with torch.no_grad():
        trace = mlp.trace(inputs)
        cotangents = mlp.cotangents(trace, upstream)
        slopes = mlp.input_gradient(cotangents)
        changes = mlp.push(trace, change)
        twice = [[torch.cat([one, one], 1) for one in values] for values in (trace, cotangents)]
        mlp.write_gradient(*twice, changes)

    for r in range(REPLICAS):
        network = plain(mlp.linears, r, activate_last)
        leaf, weights = inputs[r].clone().requires_grad_(), upstream[r].clone().requires_grad_()
        outputs = network(leaf)
        torch.testing.assert_close(trace[-1][r], outputs)
        objective = (weights * outputs).sum()
        (expected,) = torch.autograd.grad(objective, leaf, create_graph=True)
        torch.testing.assert_close(slopes[r], expected)
        # The first half's term once, that of the changes through the double backward.
        (weights.detach() * outputs).sum().backward(retain_graph=True)
        (change[r] * expected).sum().backward()
        assert_gradients_equal(mlp.linears, r, network)
        torch.testing.assert_close(changes[-1][r], weights.grad)


@pytest.mark.parametrize("penalty", ["layerwise", "paper"])
@pytest.mark.parametrize(("bias", "head"), BOTH)
def test_local_discriminator(streams, plain, squared_slope_excess, penalty, bias, head):
    """Eqs. 8 and 14: own Wasserstein loss and penalty, plus what the server sends back."""
    local = with_gradients(
        LocalDiscriminator(
            4, (6, 5), bias=bias, second_part=head, penalty=penalty, streams=streams(REPLICAS)
        )
    )
    records = gaussian(REPLICAS, 3 * BATCH, 4)
    cut_gradients = gaussian(REPLICAS, 2 * BATCH, 5)
    with torch.no_grad():
        trace = local.first_part.trace(records)
        wasserstein, penalties = local.settle(local.judge(trace, cut_gradients, WEIGHT))

    for r in range(REPLICAS):
        first = plain(local.first_part.linears, r, True)
        real, fake, mixed = records[r].split(BATCH)
        features = first(torch.cat([real, fake]))
        loss = (cut_gradients[r] * features).sum()  # d/df of this is what the server sent
        expected = torch.zeros(())
        if head:
            second = plain([local.second_part], r, False)
            scores = second(features)
            expected = scores[:BATCH].mean() - scores[BATCH:].mean()
            loss = loss - expected
        torch.testing.assert_close(wasserstein[r], expected)

        if penalty == "layerwise":  # reference code, terms 1-2 and 3-4
            excess = squared_slope_excess(first, mixed)
            if head:
                excess = excess + squared_slope_excess(second, first(mixed))
        elif head:  # Eq. 8: the whole D_i
            excess = squared_slope_excess(nn.Sequential(*first, *second), mixed)
        else:
            excess = torch.zeros(())
        torch.testing.assert_close(penalties[r], excess)
        (loss + WEIGHT * excess).backward()
        assert_gradients_equal(local.first_part.linears, r, first)
        if head:
            assert_gradients_equal([local.second_part], r, second)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("hidden", [(6, 4), (6,), ()])
def test_whole_discriminator(streams, plain, squared_slope_excess, hidden, bias):
    """Eqs. 3 and 13, and the gradients that the features' owners get."""
    shared = with_gradients(Discriminator(5, hidden, bias=bias, streams=streams(REPLICAS)))
    features = gaussian(REPLICAS, 3 * BATCH, 5)
    with torch.no_grad():
        wasserstein, penalties, cut_gradients = shared.critic_gradient(features, WEIGHT)

    for r in range(REPLICAS):
        network = plain(shared.linears, r, False)
        judged = features[r, : 2 * BATCH].clone().requires_grad_()
        scores = network(judged)
        estimate = scores[:BATCH].mean() - scores[BATCH:].mean()
        penalty = squared_slope_excess(network, features[r, 2 * BATCH :])
        torch.testing.assert_close(wasserstein[r], estimate)
        torch.testing.assert_close(penalties[r], penalty)
        (-estimate + WEIGHT * penalty).backward()
        torch.testing.assert_close(cut_gradients[r], judged.grad)
        assert_gradients_equal(shared.linears, r, network)


@pytest.mark.parametrize("head", [True, False])
def test_generator_loss_gradient_of_fakes(streams, plain, head):
    """Eq. 17: minus the shared score and, if there is one, minus the private score."""
    replicas = streams(REPLICAS)
    local = LocalDiscriminator(
        4, (6, 5), bias=True, second_part=head, penalty="paper", streams=replicas
    )
    shared = Discriminator(5, (3,), bias=True, streams=replicas)
    fakes = gaussian(REPLICAS, BATCH, 4)
    with torch.no_grad():
        trace = local.first_part.trace(fakes)
        got = local.fake_gradient(trace, shared.fake_gradient(trace[-1]))

    for r in range(REPLICAS):
        fake = fakes[r].clone().requires_grad_()
        features = plain(local.first_part.linears, r, True)(fake)
        loss = -plain(shared.linears, r, False)(features).mean()
        if head:
            loss = loss - plain([local.second_part], r, False)(features).mean()
        loss.backward()
        torch.testing.assert_close(got[r], fake.grad)


def local_of(streams, **changes):
    options = {"bias": True, "second_part": True, "penalty": "end_to_end"} | changes
    local = with_gradients(LocalDiscriminator(4, (6, 5), **options, streams=streams(REPLICAS)))
    for weights in local.parameters():  # slopes on both sides of one
        weights.data.mul_(STEEPER)
    return local


def test_what_a_step_along_the_shared_slope_makes_of_features(streams, plain):
    """J J^T c and ||J^T c||^2, J by automatic differentiation."""
    local = local_of(streams)
    records, upstream = gaussian(REPLICAS, BATCH, 4), gaussian(REPLICAS, BATCH, 5)
    with torch.no_grad():
        trace, nothing = local.first_part.trace(records), gaussian(REPLICAS, 0, 5)
        judged = local.judge(trace, nothing, WEIGHT, nothing[..., :1], shared=upstream)
    for r in range(REPLICAS):
        first = plain(local.first_part.linears, r, True)
        for b in range(BATCH):
            jacobian = torch.autograd.functional.jacobian(first, records[r, b])
            slope = jacobian.T @ upstream[r, b]
            torch.testing.assert_close(judged.changes[-1][r, BATCH + b], jacobian @ slope)
            torch.testing.assert_close(judged.squared[r, b, 0], slope @ slope)


@pytest.mark.parametrize("head", [True, False])
def test_a_partys_part_of_the_joint_slope(streams, plain, squared_slope_excess, head):
    """The norm over all parties' records, of which the others' part stays as it is."""
    local = local_of(streams, second_part=head)
    records, cut_gradients = gaussian(REPLICAS, 3 * BATCH, 4), gaussian(REPLICAS, 2 * BATCH, 5)
    upstream, others = 0.2 * gaussian(REPLICAS, BATCH, 5), gaussian(REPLICAS, BATCH, 1).square()
    with torch.no_grad():
        trace = local.first_part.trace(records)
        judged = local.judge(trace, cut_gradients, WEIGHT, shared=upstream)
        wasserstein, penalties = local.settle(judged, others, STEEPER * WEIGHT)
    for r in range(REPLICAS):
        first = plain(local.first_part.linears, r, True)
        real, fake, mixed = records[r].split(BATCH)
        features = first(torch.cat([real, fake]))
        loss = (cut_gradients[r] * features).sum()
        estimate = excess = torch.zeros(())
        if head:
            second = plain([local.second_part], r, False)
            estimate = second(features[:BATCH]).mean() - second(features[BATCH:]).mean()
            whole = nn.Sequential(*first, *second)
            excess = squared_slope_excess(whole, mixed, one_sided=True)
        torch.testing.assert_close(wasserstein[r], estimate)
        torch.testing.assert_close(penalties[r], excess)
        loss = loss - estimate + WEIGHT * excess
        leaf = mixed.clone().requires_grad_()
        (slopes,) = torch.autograd.grad((upstream[r] * first(leaf)).sum(), leaf, create_graph=True)
        norms = (slopes.square().sum(1) + others[r, :, 0]).sqrt()
        assert norms.min() < 1.0 < norms.max()
        (loss + STEEPER * WEIGHT * (norms - 1).relu().square().mean()).backward()
        assert_gradients_equal(local.first_part.linears, r, first)
        if head:
            assert_gradients_equal([local.second_part], r, second)


def test_the_shared_critics_slope_along_a_direction(streams, plain):
    """At the critic that the directions were found with, it is the whole slope at records."""
    shared = with_gradients(Discriminator(5, (6, 4), bias=True, streams=streams(REPLICAS)))
    features, jacobians = gaussian(REPLICAS, 3 * BATCH, 5), gaussian(REPLICAS, BATCH, 5, 4)
    jacobians *= torch.linspace(0.2, 20.0, BATCH)[:, None, None]  # slopes on both sides of one
    with torch.no_grad():
        judged, rows = shared.judge(features)
        upstream = judged.gradient[:, rows:]
        slopes = (jacobians @ jacobians.mT @ upstream.unsqueeze(-1)).squeeze(-1)
        squared, directions = steepest(slopes, upstream)
        penalties, change = directional_penalty(upstream, directions, WEIGHT)
        wasserstein = shared.settle(judged, rows, change)
    for r in range(REPLICAS):
        network = plain(shared.linears, r, False)
        real, fake, mixed = features[r].split(BATCH)
        estimate = network(real).mean() - network(fake).mean()
        leaf = mixed.clone().requires_grad_()
        (found,) = torch.autograd.grad(network(leaf).sum(), leaf, create_graph=True)
        norms = (jacobians[r].mT @ found.unsqueeze(-1)).squeeze(-1).norm(dim=1)
        assert norms.min() < 1.0 < norms.max()
        penalty = (norms - 1).relu().square().mean()
        torch.testing.assert_close(squared[r, :, 0], norms.square())
        torch.testing.assert_close(wasserstein[r], estimate)
        torch.testing.assert_close(penalties[r], penalty)
        (-estimate + WEIGHT * penalty).backward()
        assert_gradients_equal(shared.linears, r, network)


def test_a_vanishing_joint_slope_has_no_direction():
    nothing = torch.zeros(1, 2, 3)
    squared, directions = steepest(nothing, gaussian(1, 2, 3))
    assert not squared.any()
    assert not directions.any()


def test_penalty_of_a_linear_critic_is_its_excess_norm(streams):
    critic = with_gradients(Discriminator(4, (), bias=True, streams=streams(1)))
    with torch.no_grad():
        _, penalty, _ = critic.critic_gradient(gaussian(1, 3 * BATCH, 4), WEIGHT)
    (linear,) = critic.linears
    torch.testing.assert_close(penalty[0], (linear.weight.norm() - 1) ** 2)


def test_a_vanishing_slope_has_a_finite_gradient(streams):
    """The norm has a kink at zero; torch takes 0 there, and so does the written-out gradient."""
    critic = Discriminator(4, (3,), bias=True, streams=streams(2))
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.zero_()
        _, penalty, cut_gradients = with_gradients(critic).critic_gradient(
            gaussian(2, 3 * BATCH, 4), WEIGHT
        )
    assert penalty.tolist() == [1.0, 1.0]
    assert not cut_gradients.any()
    for parameter in critic.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_a_party_without_encoded_columns_can_be_judged(streams):
    """All columns constant: width 0, features are biases, and nothing is NaN."""
    local = with_gradients(
        LocalDiscriminator(
            0, (3, 2), bias=True, second_part=True, penalty="layerwise", streams=streams(2)
        )
    )
    with torch.no_grad():
        trace = local.first_part.trace(torch.zeros(2, 3 * BATCH, 0))
        wasserstein, penalty = local.settle(local.judge(trace, gaussian(2, 2 * BATCH, 2), WEIGHT))
    assert torch.isfinite(torch.stack([wasserstein, penalty])).all()
    for parameter in local.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_a_critic_that_takes_fakes_for_real_can_turn(streams):
    """With a price on small slopes it could not, and parties' critics worked against the server's.

    One number, in which no slope can turn without becoming zero on the way.
    """
    options = {"bias": True, "second_part": True, "penalty": "end_to_end"}
    local = LocalDiscriminator(1, (16, 8), **options, streams=streams(1))
    optimizer = FlatAdam(local, learning_rate=2e-3, betas=(0.5, 0.9))
    high, low = 1.0 + 0.1 * gaussian(1, BATCH, 1), -1.0 + 0.1 * gaussian(1, BATCH, 1)
    nothing = torch.zeros(1, 2 * BATCH, 8)
    with torch.no_grad():
        for real, fake in ((low, high), (high, low)):
            for step in range(400):
                mixed = torch.lerp(real, fake, (step % 10) / 9)
                trace = local.first_part.trace(torch.cat([real, fake, mixed], 1))
                wasserstein, _ = local.settle(local.judge(trace, nothing, 10.0))
                optimizer.step()
            assert wasserstein.item() == pytest.approx(2.0, abs=0.5)
