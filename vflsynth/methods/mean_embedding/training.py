"""Generators of all parties that learn a released mean embedding: no step reads a record."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vflsynth._random import RandomStreams
from vflsynth.columns import TableTransformer
from vflsynth.learning.party import (
    RunningMeans,
    floats,
    labelled,
    load_network_state,
    move_average,
    network_state,
    section,
)
from vflsynth.methods.gan.generator import Generator
from vflsynth.methods.gan.settings import Settings
from vflsynth.methods.mean_embedding.embedding import embedding_distance

FINAL_LEARNING_RATE = 0.02
"""Learning rate at the end of training, as a share of that at the beginning."""


class GeneratorTraining:
    """Generators of all parties, trained side by side.

    `encodings` are what is published about the parties' columns, `frequencies`, (encoded,
    n_features / 2), of all parties in the order of their names, and `target`, (n_features,), the
    mean embedding that fakes are to have. The learning rate falls over `n_steps`. `streams` are the
    server's own: initial weights, latents and Gumbel noise.

    Source: DP-MERF (Harder, Adamczewski and Park 2021), with the parties' generators in place of
    one, an average of their weights, and a learning rate that falls by half a cosine.
    """

    def __init__(
        self,
        settings: Settings,
        encodings: Mapping[str, TableTransformer],
        frequencies: Tensor,
        target: Tensor,
        *,
        n_steps: int,
        streams: RandomStreams,
    ) -> None:
        self.settings, self.n_steps, self._streams = settings, n_steps, streams
        self.names = sorted(encodings)
        self._frequencies, self._target = frequencies, target
        self._gumbel = [streams.child(f"generator of {name}") for name in self.names]
        self._generators = [
            settings.generator.build(encodings[name].spans_, own)
            for name, own in zip(self.names, self._gumbel, strict=True)
        ]
        self.generators = nn.ModuleList(self._generators)
        self.averaged = copy.deepcopy(self.generators)
        self.optimizer = settings.optimizer(self.generators)
        self._averages = floats(self.averaged), floats(self.generators)
        self._losses = RunningMeans()

    def step(self, step: int) -> None:
        """Move all generators by the fakes of one batch of latents."""
        joint = self._fakes(step)
        distance, gradient = embedding_distance(joint.detach() @ self._frequencies, self._target)
        self._losses.add({"squared_distance": distance})
        optimizer = self.optimizer
        decay = 0.5 * (1.0 + math.cos(math.pi * min(1.0, step / self.n_steps)))
        optimizer.learning_rate = self.settings.learning_rate * (
            FINAL_LEARNING_RATE + (1.0 - FINAL_LEARNING_RATE) * decay
        )
        upstream = gradient @ self._frequencies.mT
        optimizer.set_gradient(torch.autograd.grad(joint, optimizer.parameters, upstream))
        optimizer.step()
        move_average(*self._averages, optimizer.steps, self.settings.generator_average)

    def _fakes(self, step: int) -> Tensor:
        """Generate joint fakes, shape (replica, batch, encoded)."""
        settings, parts = self.settings, []
        latent = self._streams.normal("latent", step, (settings.batch_size, settings.latent_dim))
        for generator, own in zip(self._generators, self._gumbel, strict=True):
            gumbel = generator.noise(own, "gumbel", step, settings.batch_size)
            parts.append(generator.forward(latent, gumbel))
        return torch.cat(parts, -1)

    def pop_losses(self) -> dict[str, Tensor]:
        """Return the mean squared distance since the last call, shape (replica,)."""
        return self._losses.pop()

    def weights_of(self, name: str) -> Tensor:
        """Return the averaged weights of a party's generator, shape (replica, weight)."""
        state = self.averaged[self.names.index(name)].state_dict()
        return torch.cat([value.flatten(1) for value in state.values()], 1)

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs; randomness is a function of the step."""
        state = network_state("generators", self.generators, self.optimizer)
        return state | labelled("averaged", self.averaged.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state`."""
        load_network_state(state, "generators", self.generators, self.optimizer)
        self.averaged.load_state_dict(section(state, "averaged"))


def weights_from(flat: Tensor, generator: Generator) -> dict[str, Tensor]:
    """Undo `GeneratorTraining.weights_of`; ValueError if numbers are not as many, or not finite."""
    shapes = {name: value.shape for name, value in generator.state_dict().items()}
    expected = next(iter(shapes.values()))[0], sum(s[1:].numel() for s in shapes.values())
    if flat.dtype != torch.float32 or tuple(flat.shape) != expected:
        raise ValueError(f"{flat.dtype} weights of shape {tuple(flat.shape)}; expected {expected}")
    if not bool(flat.isfinite().all()):
        raise ValueError("weights that are not finite")
    parts = torch.split(flat, [shape[1:].numel() for shape in shapes.values()], 1)
    return {k: part.reshape(shape) for (k, shape), part in zip(shapes.items(), parts, strict=True)}
