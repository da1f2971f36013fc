"""Slow, obvious counterparts of the replicated networks: torch modules, one per replica."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.methods.gan.discriminator import critic_upstream


class WideStreams(RandomStreams):
    """The package's random numbers in float64, so that comparisons are not about rounding."""

    def _draw(self, name, index, shape, draw):
        return super()._draw(name, index, shape, draw).double()

    def child(self, label: str) -> RandomStreams:
        return WideStreams(super().child(label).secrets, self.device)


@pytest.fixture
def float64() -> Iterator[None]:
    """Make float64 torch's default for one test."""
    torch.set_default_dtype(torch.float64)
    critic_upstream.cache_clear()  # what it keeps is of the default dtype
    yield
    torch.set_default_dtype(torch.float32)
    critic_upstream.cache_clear()


@pytest.fixture
def streams(float64: None) -> Callable[[int], RandomStreams]:
    """Make streams of float64 draws for a number of replicas."""
    return lambda replicas: WideStreams([bytes([17, replica]) for replica in range(replicas)])


@pytest.fixture
def plain() -> Callable[..., nn.Sequential]:
    """Copy one replica of a stack of layers into ordinary torch layers."""

    def copy_of(linears: Sequence[nn.Module], replica: int, activate_last: bool) -> nn.Sequential:
        layers: list[nn.Module] = []
        for layer in linears:
            inputs, outputs = layer.weight.shape[1:]
            copied = nn.Linear(inputs, outputs, bias=layer.bias is not None)
            with torch.no_grad():
                copied.weight.copy_(layer.weight[replica].T)
                if layer.bias is not None:
                    copied.bias.copy_(layer.bias[replica, 0])
            layers += [copied, nn.LeakyReLU(0.2)]
        return nn.Sequential(*layers if activate_last else layers[:-1])

    return copy_of


@pytest.fixture
def squared_slope_excess() -> Callable[..., Tensor]:
    """Gradient penalty of WGAN-GP by double backward, for the sum of a network's outputs."""

    def penalty(network: nn.Module, inputs: Tensor, *, one_sided: bool = False) -> Tensor:
        inputs = inputs.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(network(inputs).sum(), inputs, create_graph=True)
        excess = slopes.norm(dim=1) - 1
        if one_sided:
            assert excess.min() < 0 < excess.max()
            excess = excess.clamp(min=0)
        return (excess**2).mean()

    return penalty
