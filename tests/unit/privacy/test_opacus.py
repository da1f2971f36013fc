"""DP-SGD for PyTorch modules: exact gradients per record, exact noise, and Opacus as an oracle."""

import builtins
import importlib
import json
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.later import later
from vflsynth.exceptions import (
    MissingExtraError,
    ParameterError,
    PrivacyBudgetError,
    PrivacyParameterError,
)
from vflsynth.testing.laws import global_random_state_left_alone

pytestmark = pytest.mark.usefixtures("tight_accountants")

C, SIGMA = 0.7, 1.3


def ours():
    """Not imported where tests are collected, by every process that runs some: it takes long."""
    return importlib.import_module("vflsynth.privacy.opacus")


def theirs():
    return importlib.import_module("opacus.accountants")


class Gated(nn.Module):
    """A user's own layer: Opacus has no rule for it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.linspace(-1.0, 1.0, 6).view(2, 3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs @ self.gate.T).tanh() * inputs[:, :2]


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "linear": nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)),
        "normalised": nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)),
        "own layer": nn.Sequential(Gated(), nn.Linear(2, 1)),
    }


def batch(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=rng), torch.randn(n, 1, generator=rng)


def optimizer_of(module: nn.Module, **options: object):
    defaults = {
        "noise_multiplier": SIGMA,
        "max_grad_norm": C,
        "expected_batch_size": 10,
        "steps": 1000,
    }
    plain = torch.optim.SGD(module.parameters(), lr=0.1)
    return ours().ExactDPOptimizer(plain, **(defaults | options))


def backward(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    nn.functional.mse_loss(module(x), y).backward()


def one_by_one(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for row in range(len(x)):
        loss = nn.functional.mse_loss(network(x[row : row + 1]), y[row : row + 1])
        parts = torch.autograd.grad(loss, list(network.parameters()))
        found.append(torch.cat([part.flatten() for part in parts]).double())
    return found


@pytest.mark.parametrize("name", networks())
def test_gradients_of_records_are_those_of_one_record_at_a_time(name):
    network = networks()[name]
    x, y = batch(7)
    expected = torch.stack(one_by_one(network, x, y))
    backward(ours().PerRecordModule(network), x, y)
    found = torch.cat([p.grad_sample.flatten(1) for p in network.parameters()], 1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_every_record_is_at_most_c_long_on_the_grid(name, scale):
    network, plain = networks()[name], networks()[name]
    x, y = batch(9, seed=1)
    module = ours().PerRecordModule(network)
    optimizer = optimizer_of(network)
    for row in range(len(x)):
        expected = one_by_one(plain, x[row : row + 1], scale * y[row : row + 1])[0]
        expected *= (C / expected.norm()).clamp_max(1.0)
        optimizer.zero_grad()
        backward(module, x[row : row + 1], scale * y[row : row + 1])
        optimizer.clip_and_accumulate()
        total = torch.cat([p.summed_grad.flatten() for p in network.parameters()])
        assert total.dtype == torch.int64
        # Whole numbers of Python: no rounding error hides an excess.
        square = sum(int(step) ** 2 for step in total)
        assert square <= (C / optimizer.grid.step) ** 2
        torch.testing.assert_close(
            total.double() * optimizer.grid.step, expected, rtol=1e-4, atol=1e-5
        )


def test_a_record_that_overflows_counts_for_nothing():
    network = networks()["linear"]
    module, optimizer = ours().PerRecordModule(network), optimizer_of(network)
    x, y = batch(4)
    backward(module, x[:3], y[:3])
    optimizer.clip_and_accumulate()
    expected = [p.summed_grad.clone() for p in network.parameters()]
    optimizer.zero_grad()
    backward(module, torch.cat([x[:3], torch.full((1, 3), 1e38)]), y)
    optimizer.clip_and_accumulate()
    for parameter, total in zip(network.parameters(), expected):
        torch.testing.assert_close(parameter.summed_grad, total, rtol=1e-5, atol=4096)


def test_parts_of_a_batch_add_up_to_the_batch():
    x, y = batch(11, seed=2)

    def stepped(parts: list[slice]) -> torch.Tensor:
        network = networks()["own layer"]
        module = ours().PerRecordModule(network)
        optimizer = optimizer_of(network, noise=torch.Generator().manual_seed(5))
        for part in parts:
            optimizer.signal_skip_step(do_skip=part is not parts[-1])
            optimizer.zero_grad()
            backward(module, x[part], y[part])
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in network.parameters()])

    whole = stepped([slice(None)])
    split = stepped([slice(0, 4), slice(4, 8), slice(8, None)])
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-7)


def test_noise_is_discrete_gaussian_of_sigma_times_c():
    network = nn.Linear(200, 100)
    optimizer = optimizer_of(network, noise=torch.Generator().manual_seed(3))
    optimizer.step_without_records()
    # 20,100 coordinates: four standard errors of a standard deviation are 2 %.
    noise = 10 * torch.cat([p.grad.flatten() for p in network.parameters()]).double()
    assert noise.std().item() == pytest.approx(SIGMA * C, rel=0.02)
    assert noise.mean().item() == pytest.approx(0.0, abs=4 * SIGMA * C / len(noise) ** 0.5)
    assert optimizer.grid.noise_std == pytest.approx(SIGMA * C, rel=1e-7)
    assert optimizer.grid.noise_std >= SIGMA * C


def test_what_is_divided_by_does_not_depend_on_the_batch():
    network = networks()["linear"]
    module = ours().PerRecordModule(network)
    optimizer = optimizer_of(network, noise_multiplier=1e-6)
    x, y = batch(3)
    backward(module, x, y)
    optimizer.clip_and_accumulate()
    total = [p.summed_grad.double() * optimizer.grid.step for p in network.parameters()]
    optimizer.add_noise()
    optimizer.scale_grad()
    for parameter, one in zip(network.parameters(), total):
        torch.testing.assert_close(parameter.grad.double(), one / 10, rtol=0, atol=1e-6)


def training(**options: object):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    defaults = {
        "noise_multiplier": 1.1,
        "delta": 1e-5,
        "n_records": 200,
        "batch_size": 20,
        "epochs": 3,
        "noise": torch.Generator().manual_seed(0),
    }
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    records = TensorDataset(*batch(200, seed=4))
    return ours().PrivateTraining(network, optimizer, records, **(defaults | options))


def train(job) -> list[int]:
    sizes = []
    for x, y in job:
        job.optimizer.zero_grad()
        backward(job.module, x, y)
        job.optimizer.step()
        sizes.append(len(x))
    return sizes


@pytest.mark.parametrize("most", [1024, 7])
def test_a_run_takes_the_steps_that_are_paid_for_and_no_more(most):
    job = training(max_physical_batch_size=most)
    sizes = train(job)
    assert job.optimizer.budget.taken == job.steps == 30
    assert max(sizes) <= most
    # Poisson samples: 30 batches of 20 on average, whose sum has a deviation of 23.
    assert 500 < sum(sizes) < 700
    with pytest.raises(PrivacyBudgetError, match="30 private steps"):
        train(job)


def test_batches_without_records_take_noisy_steps():
    job = training(n_records=200, batch_size=1, epochs=1)
    before = [p.detach().clone() for p in job.module.parameters()]
    sizes = train(job)
    assert 0 < len(sizes) < job.steps == 200  # a third of the batches has no record
    assert job.optimizer.budget.taken == 200
    assert not any(map(torch.equal, job.module.parameters(), before))


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.1, 0.1, 30), *later((2.0, 0.02, 400))])
def test_epsilon_agrees_with_the_accountants_of_opacus(sigma, rate, steps):
    job = training(
        noise_multiplier=sigma,
        n_records=1000,
        batch_size=round(1000 * rate),
        epochs=round(steps * rate),
    )
    assert (job.sample_rate, job.steps) == (rate, steps)
    found = job.ledger.epsilons()
    rdp, prv = theirs().RDPAccountant(), theirs().PRVAccountant()
    rdp.history = prv.history = [(sigma, rate, steps)]
    alphas = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 512))
    assert found["RDP, dp-accounting"] == pytest.approx(
        rdp.get_epsilon(1e-5, alphas=alphas), rel=0.01
    )
    # Opacus' PRV is an upper bound within an error of .01 in epsilon.
    assert found["PLD, dp-accounting"] == pytest.approx(prv.get_epsilon(1e-5), abs=0.02)
    assert job.ledger.epsilon() == found["PLD, dp-accounting"]


def test_noise_meets_the_budget():
    job = training(noise_multiplier=None, epsilon=3.0)
    prv = theirs().PRVAccountant()
    prv.history = [(job.optimizer.noise_multiplier, job.sample_rate, job.steps)]
    assert 2.95 < job.ledger.epsilon() <= 3.0
    assert prv.get_epsilon(1e-5) == pytest.approx(3.0, abs=0.05)


def test_modules_that_join_records_are_refused():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with pytest.raises(PrivacyParameterError, match="batch normalisation"):
        ours().PerRecordModule(network)


def test_an_optimizer_of_other_parameters_is_refused():
    network, other = nn.Linear(3, 1), nn.Linear(3, 1)
    with pytest.raises(PrivacyParameterError, match="exactly the module's"):
        ours().PrivateTraining(
            network,
            torch.optim.SGD(other.parameters(), lr=0.1),
            TensorDataset(*batch(20)),
            noise_multiplier=1.0,
            delta=1e-5,
            n_records=20,
            batch_size=5,
        )


@pytest.mark.parametrize(
    "odd",
    [
        {"noise_multiplier": 0},
        {"noise_multiplier": True},
        {"noise_multiplier": None, "epsilon": True},
        {"noise_multiplier": None, "epsilon": "4"},
        {"delta": 1 / 200},
    ],
)
def test_numbers_without_a_guarantee_are_refused_by_name(odd):
    """True was an epsilon of 1, no noise a division by zero, and any delta was taken."""
    with pytest.raises(ParameterError, match=[*odd][-1]):
        training(**odd)


@pytest.mark.parametrize("small", [np.float16(0.1), np.float32(0.1)])
def test_small_numbers_of_numpy_do_not_round_the_noise(small):
    """It was less than the ledger's, by up to 1 in 2,000, and the ledger could not be written."""
    job = training(max_grad_norm=small, noise_multiplier=np.float32(1.3), delta=np.float32(1e-5))
    (release,) = job.ledger.entries[0].event.releases
    assert job.optimizer.grid.noise_std >= release.noise_std
    assert job.optimizer.max_grad_norm == float(small)
    json.dumps(job.ledger.to_dict())


def test_what_is_missing_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name: str, *more: object, **options: object) -> object:
        if name.split(".")[0] == "opacus":
            raise ImportError(name)
        return real(name, *more, **options)

    monkeypatch.delitem(sys.modules, "vflsynth.privacy.opacus", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"vflsynth\[opacus\]"):
        importlib.import_module("vflsynth.privacy.opacus")


def test_sampling_does_not_touch_global_randomness():
    job = training()
    with global_random_state_left_alone():
        train(job)
