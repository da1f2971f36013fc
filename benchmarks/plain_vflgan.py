"""VFLGAN as an ordinary PyTorch script: what the package's speed is compared with.

One module and one Adam per network, a DataLoader, one joint autograd graph with double backward for
the penalties: the obvious way to write it. The networks are those of the red-wine preset.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

LATENT, HIDDEN, FIRST_PART, SHARED = 10, (16, 32, 64), (16, 32), 32


def generator(width: int) -> nn.Sequential:
    """Stack Linear, batch normalisation from the second block on, and LeakyReLU."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip((LATENT, *HIDDEN[:-1]), HIDDEN)):
        layers.append(nn.Linear(a, b, bias=False))
        if i:
            layers.append(nn.BatchNorm1d(b, 0.8))
        layers.append(nn.LeakyReLU(0.2))
    return nn.Sequential(*layers, nn.Linear(HIDDEN[-1], width))


def first_part(width: int) -> nn.Sequential:
    """Make the first part of a local discriminator."""
    layers: list[nn.Module] = []
    for a, b in zip((width, *FIRST_PART[:-1]), FIRST_PART):
        layers += [nn.Linear(a, b, bias=False), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers)


def slope_penalty(outputs: Tensor, inputs: Sequence[Tensor], *, one_sided: bool = False) -> Tensor:
    """Gradient penalty by automatic double differentiation; `one_sided`, of slopes above one."""
    slopes = torch.autograd.grad(outputs, inputs, torch.ones_like(outputs), create_graph=True)
    excess = torch.cat(slopes, 1).norm(2, dim=1) - 1
    return (excess.relu() if one_sided else excess).square().mean()


class PlainVFLGAN:
    """Two parties; the second one's last `n_categories` columns are one categorical attribute.

    `first` and `second` are encoded records, (record, width); the penalty is "layerwise" or
    "end_to_end".
    """

    def __init__(
        self,
        first: Tensor,
        second: Tensor,
        n_categories: int,
        batch_size: int = 16,
        penalty: str = "layerwise",
    ) -> None:
        self.n_categories, self.penalty = n_categories, penalty
        self.loader = DataLoader(TensorDataset(first, second), batch_size, shuffle=True)
        self.generators = [generator(first.shape[1]), generator(second.shape[1])]
        self.first_parts = [first_part(first.shape[1]), first_part(second.shape[1])]
        self.heads = [nn.Linear(FIRST_PART[-1], 1, bias=False) for _ in range(2)]
        self.shared = nn.Sequential(
            nn.Linear(2 * FIRST_PART[-1], SHARED, bias=False),
            nn.LeakyReLU(0.2),
            nn.Linear(SHARED, 1, bias=False),
        )
        self.discriminator_optimizers = [
            self._adam(network) for network in (*self.first_parts, *self.heads, self.shared)
        ]
        self.generator_optimizers = [self._adam(network) for network in self.generators]

    def epoch(self) -> int:
        """One pass over the records; returns the number of discriminator steps."""
        for step, real in enumerate(self.loader):
            latent = torch.randn(len(real[0]), LATENT)
            self.discriminator_step(real, latent)
            if step % 5 == 0:
                self.generator_step(latent)
        return len(self.loader)

    def discriminator_step(self, real: Sequence[Tensor], latent: Tensor) -> None:
        """All five discriminator networks from one loss."""
        with torch.no_grad():
            fake = self.fakes(latent)
        for optimizer in self.discriminator_optimizers:
            optimizer.zero_grad()
        loss = self.scores(fake) - self.scores(real)
        weight = torch.rand(len(latent), 1)
        mixed = [(weight * x + (1 - weight) * y).requires_grad_() for x, y in zip(real, fake)]
        features = [part(x) for part, x in zip(self.first_parts, mixed)]
        joint = torch.cat(features, 1)
        if self.penalty == "end_to_end":
            penalty = slope_penalty(self.shared(joint), mixed, one_sided=True)
            for head, x, f in zip(self.heads, mixed, features):
                penalty = penalty + slope_penalty(head(f), [x], one_sided=True)
        else:
            penalty = slope_penalty(self.shared(joint), [joint])
            for head, x, f in zip(self.heads, mixed, features):
                penalty = penalty + slope_penalty(f, [x]) + slope_penalty(head(f), [f])
        (loss + 10.0 * penalty).backward()
        for optimizer in self.discriminator_optimizers:
            optimizer.step()

    def generator_step(self, latent: Tensor) -> None:
        """Both generators from one loss."""
        for optimizer in self.generator_optimizers:
            optimizer.zero_grad()
        (-self.scores(self.fakes(latent))).backward()
        for optimizer in self.generator_optimizers:
            optimizer.step()

    def fakes(self, latent: Tensor) -> list[Tensor]:
        """Fake records of both parties."""
        first, second = (network(latent) for network in self.generators)
        k = self.n_categories
        category = F.gumbel_softmax(second[:, -k:], tau=0.2, hard=True)
        return [first, torch.cat([second[:, :-k], category], 1)]

    def scores(self, records: Sequence[Tensor]) -> Tensor:
        """Sum of the mean scores of the shared and both local discriminators."""
        features = [part(x) for part, x in zip(self.first_parts, records)]
        score = self.shared(torch.cat(features, 1)).mean()
        for head, f in zip(self.heads, features):
            score = score + head(f).mean()
        return score

    @staticmethod
    def _adam(network: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(network.parameters(), lr=5e-4, betas=(0.5, 0.999))
