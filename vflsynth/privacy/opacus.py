"""DP-SGD for ordinary PyTorch modules: gradients per record by Opacus, and our exact noise.

An extra (``pip install 'vflsynth[opacus]'``). Opacus finds the gradient of every record, by a rule
of its own for the usual layers and by `torch.func` for others, and cuts batches that do not fit
into memory. What it would do in floating point is done here as everywhere in this package: each
clipped gradient is rounded to a public grid before it is added to others, and the sum of whole
numbers gets discrete Gaussian noise (`vflsynth.privacy.releases`).

Wasserstein critics and masked products keep closed forms of their own (`vflsynth.privacy.dpsgd`,
`vflsynth.secure`), for Opacus has no rule for the double backward of a gradient penalty, for many
networks side by side, or for numbers that nobody sees.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

from vflsynth._random import RandomStreams
from vflsynth.exceptions import MissingExtraError, PrivacyParameterError
from vflsynth.privacy.accountants import PLDAccountant
from vflsynth.privacy.calibration import StepBudget, calibrate_noise_multiplier
from vflsynth.privacy.dpsgd import clip_factors, gradient_grid, noisy_mean, scaled
from vflsynth.privacy.events import GaussianRelease, NeighbouringRelation, SampledRelease
from vflsynth.privacy.events import Sampler as Sampling
from vflsynth.privacy.ledger import LedgerEntry, PrivacyLedger
from vflsynth.privacy.noise import DISCRETE_NOISE
from vflsynth.registry import Number, Optional, Rule, check_parameters

try:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
    from opacus.utils.batch_memory_manager import BatchMemoryManager
except ImportError as error:
    raise MissingExtraError("DP-SGD for PyTorch modules", "opacus", "opacus") from error


class PerRecordModule(GradSampleModule):  # type: ignore[misc]
    """A module whose backward pass leaves every record's gradient in ``parameter.grad_sample``.

    Parameters
    ----------
    module : nn.Module
        Whose outputs for a record depend on no other record. Modules with buffers, such as batch
        normalisation, are refused.
    batch_first : bool, default=True
        Whether records are the first dimension of inputs, or the second.
    loss_reduction : {"mean", "sum"}, default="mean"
        Whether the loss is the mean or the sum of the records' losses.

    Raises
    ------
    PrivacyParameterError
        If a part of the module cannot be differentiated record by record.
    """

    def __init__(
        self, module: nn.Module, *, batch_first: bool = True, loss_reduction: str = "mean"
    ) -> None:
        try:
            super().__init__(module, batch_first=batch_first, loss_reduction=loss_reduction)
        except NotImplementedError as error:
            raise PrivacyParameterError(
                "module",
                type(module).__name__,
                f"without buffers, such as batch normalisation has, which join records: {error}",
            ) from error
        self.forbid_grad_accumulation()

    def forward(self, *inputs: Any) -> Any:
        """Compute the module's outputs."""
        # Else torch warns, in every backward pass, that its hooks fire without gradients of inputs.
        return super().forward(
            *(
                part.detach().requires_grad_()
                if isinstance(part, Tensor) and part.is_floating_point() and not part.requires_grad
                else part
                for part in inputs
            )
        )


class ExactDPOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimiser with gradients on a grid and discrete Gaussian noise.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of the parameters of a `PerRecordModule`; takes the step.
    noise_multiplier : float
        Noise standard deviation over `max_grad_norm`.
    max_grad_norm : float
        C: the length to which a record's gradient over all parameters is cut.
    expected_batch_size : float
        Sample rate times a public number of records, by which the noisy sum is divided.
    steps : int
        Steps that are paid for.
    noise : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.

    Attributes
    ----------
    grid : Grid
        Of what is released.
    budget : StepBudget

    Notes
    -----
    Source: Abadi et al. 2016, Algorithm 1. A clipped gradient is at most C long, also after
    rounding, which is towards zero; sums are of 64-bit whole numbers and exact, in whatever parts a
    batch comes.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        expected_batch_size: float,
        steps: int,
        noise: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            expected_batch_size=expected_batch_size,
            generator=noise,
        )
        self.grid = gradient_grid(noise_multiplier * max_grad_norm, max_grad_norm)
        self.budget = StepBudget(steps)

    @torch.no_grad()
    def clip_and_accumulate(self) -> None:
        """Cut every record's gradient to C, round it to the grid, and add it to the sum."""
        for parameter in self.params:
            _check_processed_flag(parameter.grad_sample)
        samples = [sample.double() for sample in self.grad_samples]
        squares = [sample.flatten(1).square().sum(1) for sample in samples]
        factors = clip_factors(torch.stack(squares).sum(0).sqrt(), self.max_grad_norm)
        for parameter, sample in zip(self.params, samples, strict=True):
            clipped = scaled(sample, factors.view(-1, *[1] * (sample.dim() - 1)))
            steps = torch.ldexp(clipped, torch.tensor(-self.grid.exponent)).trunc()
            total = steps.long().sum(0)
            if parameter.summed_grad is not None:
                total += parameter.summed_grad
            parameter.summed_grad = total
            _mark_as_processed(parameter.grad_sample)

    @torch.no_grad()
    def add_noise(self) -> None:
        """Publish the sum with discrete Gaussian noise, and divide by the expected batch size."""
        self.budget.take()
        totals = [parameter.summed_grad for parameter in self.params]
        _check_processed_flag(totals)
        flat = torch.cat([total.flatten() for total in totals])  # one draw of noise for all
        mean = noisy_mean(
            flat, self.grid, expected_batch_size=self.expected_batch_size, rng=self.generator
        )
        parts = torch.split(mean, [total.numel() for total in totals])
        for parameter, total, part in zip(self.params, totals, parts, strict=True):
            parameter.grad = part.view_as(parameter).to(parameter)
            _mark_as_processed(total)

    def scale_grad(self) -> None:
        """Do nothing: `add_noise` divides, by a number that does not depend on the batch."""

    def step_without_records(self) -> None:
        """Take the step of a batch that no record was drawn for: noise alone."""
        for parameter in self.params:
            parameter.summed_grad = torch.zeros_like(parameter, dtype=torch.int64)
        self.add_noise()
        self.original_optimizer.step()
        for parameter in self.params:
            parameter.summed_grad = None


class _PoissonBatches(Sampler[list[int]]):
    """Batches in which every record is with the same probability, independently of all others."""

    def __init__(self, n_records: int, sample_rate: float, steps: int, empty: Callable[[], None]):
        self._n_records, self._sample_rate = n_records, sample_rate
        self._steps, self._empty = steps, empty
        self._streams = RandomStreams([os.urandom(32)])

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._steps):
            [rng] = self._streams.numpy_generators("rows", step)
            rows = (rng.random(self._n_records) < self._sample_rate).nonzero()[0].tolist()
            if rows:
                yield rows
            else:
                self._empty()


class PrivateTraining:
    """DP-SGD of one PyTorch module on one set of records.

    Iterate over it to train: it gives one batch after the other, and its `module` and `optimizer`
    stand in for yours.

    Parameters
    ----------
    module : nn.Module
        Whose outputs for a record depend on no other record; see `PerRecordModule`.
    optimizer : torch.optim.Optimizer
        Of the module's parameters.
    records : Dataset
        With a length, such as a `TensorDataset`: one item per record.
    epsilon : float, optional
        Budget of all steps, which noise is calibrated to. Give this or `noise_multiplier`.
    noise_multiplier : float, optional
        Noise standard deviation over `max_grad_norm`.
    delta : float
        Well below one over the number of records; one over it or more is refused.
    n_records : int
        Public number of records, which may be rough: the sample rate comes from it.
    batch_size : int
        Records of a batch, on average.
    epochs : int, default=10
        How often a record is drawn, on average.
    max_grad_norm : float, default=1.0
        Length to which a record's gradient is cut, in gradient units.
    loss_reduction : {"mean", "sum"}, default="mean"
        Whether your loss is the mean or the sum of the records' losses.
    max_physical_batch_size : int, default=1024
        Records whose gradients are in memory at once: larger batches come in parts, whose last one
        takes the step.
    noise : torch.Generator, optional
        For tests only; see `vflsynth.privacy.noise`.

    Attributes
    ----------
    module : PerRecordModule
    optimizer : ExactDPOptimizer
    ledger : PrivacyLedger
    steps : int
    sample_rate : float

    Raises
    ------
    PrivacyParameterError
        If a number is out of range, or the module has parts that join records.
    PrivacyBudgetError
        While training, if it is iterated over again: its steps are spent.

    Notes
    -----
    Privacy: the unit is one record, the relation "add or remove one", batches are Poisson samples
    drawn from the operating system's entropy. The weights after every step are covered, and all
    that is computed from them; losses that you print or stop by are not, and neither is scaling
    that you learn from the records.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from torch.utils.data import TensorDataset
    >>> from vflsynth.privacy.opacus import PrivateTraining
    >>> x = torch.linspace(-1, 1, 600).unsqueeze(1)
    >>> network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> training = PrivateTraining(
    ...     network,
    ...     torch.optim.Adam(network.parameters(), lr=0.02),
    ...     TensorDataset(x, (x > 0).float()),
    ...     epsilon=4,
    ...     delta=1e-4,
    ...     n_records=600,
    ...     batch_size=60,
    ... )
    >>> for features, labels in training:
    ...     training.optimizer.zero_grad()
    ...     logits = training.module(features)
    ...     nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
    ...     training.optimizer.step()
    >>> training.ledger.epsilon() <= 4
    True
    >>> bool(((network(x) > 0) == (x > 0)).float().mean() > 0.8)
    True
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        records: Any,
        *,
        delta: float,
        n_records: int,
        batch_size: int,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        epochs: int = 10,
        max_grad_norm: float = 1.0,
        loss_reduction: str = "mean",
        max_physical_batch_size: int = 1024,
        noise: torch.Generator | None = None,
    ) -> None:
        positive = Number(0, closed=(False, True))
        numbers: dict[str, tuple[Any, Rule]] = {
            "n_records": (n_records, Number(2, whole=True)),
            "batch_size": (batch_size, Number(1, n_records, whole=True)),
            "epochs": (epochs, Number(1, whole=True)),
            "max_grad_norm": (max_grad_norm, positive),
            "max_physical_batch_size": (max_physical_batch_size, Number(1, whole=True)),
            "epsilon": (epsilon, Optional(positive)),
            "noise_multiplier": (noise_multiplier, Optional(positive)),
            "delta": (delta, Number(0, 1, closed=(False, False))),
        }
        check_parameters(
            type(self).__name__,
            {name: value for name, (value, _) in numbers.items()},
            {name: rule for name, (_, rule) in numbers.items()},
        )
        if (epsilon is None) == (noise_multiplier is None):
            raise PrivacyParameterError("epsilon", epsilon, "given, or else noise_multiplier")
        if float(delta) * int(n_records) >= 1.0:
            raise PrivacyParameterError(
                "delta",
                delta,
                f"below one over the number of records, {n_records}: publishing a record as it is "
                "would satisfy it",
            )
        max_grad_norm = float(max_grad_norm)  # small types of NumPy would round the noise
        _check_owned(module, optimizer)
        self.records, self._most = records, max_physical_batch_size
        self.sample_rate = int(batch_size) / int(n_records)
        self.steps = math.ceil(epochs / self.sample_rate - 1e-9)

        def training(multiplier: float) -> SampledRelease:
            release = GaussianRelease(
                released="clipped per-record gradients of all parameters",
                party="whoever trains",
                noise_multiplier=multiplier,
                sensitivity=max_grad_norm,
                relation=NeighbouringRelation.ADD_OR_REMOVE_ONE,
                record_norm=max_grad_norm,
            )
            return SampledRelease((release,), Sampling.POISSON, self.sample_rate, self.steps)

        if noise_multiplier is None:
            assert epsilon is not None
            noise_multiplier = calibrate_noise_multiplier(
                training, epsilon=float(epsilon), delta=float(delta), accountant=PLDAccountant()
            )
        noise_multiplier = float(noise_multiplier)
        self.ledger = PrivacyLedger(
            mechanism=f"DP-SGD of a {type(module).__name__}",
            claim=(
                "ε bounds what the weights after every step, and everything computed from them, "
                "reveal about one record."
            ),
            covers_synthetic_data=True,
            delta=delta,
            target_epsilon=epsilon,
            entries=(LedgerEntry("training", training(noise_multiplier)),),
            protected_against=("recipients of the module's weights",),
            not_protected_against=("whoever trains: the records are there as they are",),
            not_covered=(
                "losses and scores on the records, and what is stopped or chosen by them",
                "encodings learned from the records",
                "running times, which depend a little on the batches",
            ),
            public=("rough number of records", "sample rate and number of steps"),
            noise=DISCRETE_NOISE,
        )
        self.module = PerRecordModule(module, loss_reduction=loss_reduction)
        self.optimizer = ExactDPOptimizer(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            expected_batch_size=batch_size,
            steps=self.steps,
            noise=noise,
        )

    def __iter__(self) -> Iterator[Any]:
        """Draw the batches of all steps, in parts where they are large."""
        batches = _PoissonBatches(
            len(self.records), self.sample_rate, self.steps, self.optimizer.step_without_records
        )
        loader = DataLoader(self.records, batch_sampler=batches, generator=torch.Generator())
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=self._most, optimizer=self.optimizer
        ) as parts:
            yield from parts


def _check_owned(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimiser of other parameters than those whose gradients are noisy."""
    groups: Sequence[Any] = optimizer.param_groups
    own = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
    if {id(parameter) for group in groups for parameter in group["params"]} != own:
        raise PrivacyParameterError(
            "optimizer", type(optimizer).__name__, "of exactly the module's trainable parameters"
        )
