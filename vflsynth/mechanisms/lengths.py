"""How long training is, from public numbers."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_STEPS = 15_000
"""Discriminator steps of a GAN without noise."""


@dataclass(frozen=True)
class Length:
    """Size and number of the batches of a training.

    Parameters
    ----------
    batch_size : int
        Records per batch; of a Poisson sample, the number to be expected.
    epochs : int
    steps_per_epoch : int
        Discriminator steps.
    """

    batch_size: int
    epochs: int
    steps_per_epoch: int

    @classmethod
    def of(cls, n_records: int, batch_size: int, epochs: int) -> Length:
        """Count an epoch's steps: so many that their batches are as many records as there are."""
        return cls(batch_size, epochs, -(-n_records // batch_size))

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return self.epochs * self.steps_per_epoch


def default_epochs(n_records: int, batch_size: int, steps: int = DEFAULT_STEPS) -> int:
    """Return the number of epochs that have about `steps` steps, at least one."""
    return max(1, round(steps * batch_size / n_records))


def power_of_two(value: float, low: int, high: int) -> int:
    """Round down to a power of two, within bounds."""
    return max(low, min(high, 1 << max(0, int(value).bit_length() - 1)))
