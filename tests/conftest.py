"""Shared by all tests: repeatable draws, and small party frames."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from vflsynth import registry
from vflsynth.cli import main
from vflsynth.contract import contract
from vflsynth.datasets import make_party_frames
from vflsynth.methods.autoregressive import server as autoregressive_server
from vflsynth.methods.gan import sampler as generator_sampler
from vflsynth.methods.pairwise.column_codes import Detail
from vflsynth.methods.wgan_gp import gs_wgan
from vflsynth.models import party_model
from vflsynth.privacy import accountants

torch.set_num_threads(1)  # tests run in parallel processes, and the networks are small


_LONG = (
    "contract/test_synthesizers",
    "unit/test_cli",
    "extension/test_extension",
    "federation/test_faults_of_processes",
    "synthesizers/test_autoregressive",
    "contract/test_columns",
    "federation/test_private",
    "audit/test_schemes",
    "evaluation/test_report",
    "run/test_resume",
    "contract/test_exact_releases",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files first that take long: one that comes last has a process work alone in the end.

    Tests of public tables are skipped where no folder has them.
    """
    if not os.environ.get("VFLSYNTH_DATA"):
        absent = pytest.mark.skip(reason="VFLSYNTH_DATA is not set")
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(absent)

    def place(item: pytest.Item) -> int:
        file = item.path.with_suffix("").as_posix()
        return next((k for k, name in enumerate(_LONG) if file.endswith(name)), len(_LONG))

    items.sort(key=place)


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    """What a test draws from torch's global generator is the same in every run."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(20240229)  # that of torch has every device keep a traceback
    yield
    torch.set_rng_state(before)


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_interrupts() -> Iterator[None]:
    """Have tests press Ctrl-C: a shell starts jobs in the background with it ignored."""
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, outside)


def _with(values: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Have attributes, by owner and name, other values meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for place, value in values.items():
            patch.setattr(*place, value)
        yield


_SMALL = {(party_model, "SAMPLE_BLOCK"): 256, (generator_sampler, "CALIBRATION_ROWS"): 2048}
_LEAST_RECORDS = contract.LEAST_RECORDS
_FULL = {place: getattr(*place) for place in _SMALL}


@pytest.fixture(autouse=True, scope="session")
def _small_blocks() -> Iterator[None]:
    """Draw and calibrate by fewer rows: whoever asks for 50 pays for a block.

    Processes of their own are not reached: compare their results with each other.
    """
    yield from _with(_SMALL)


@pytest.fixture(scope="module")
def wide_blocks() -> Iterator[None]:
    """Draw by more rows than other tests: whoever asks for thousands pays for every block."""
    yield from _with({(party_model, "SAMPLE_BLOCK"): 2048})


@pytest.fixture(scope="module")
def full_blocks(tight_accountants: None) -> Iterator[None]:
    """Draw, calibrate and account as users do, where a test asks how good that is."""
    yield from _with(_FULL)


@pytest.fixture(scope="module")
def rough_shares() -> Iterator[None]:
    """Calibrate samplers by few rows, where no test asks what shares they give."""
    yield from _with({(generator_sampler, "CALIBRATION_ROWS"): 256})


_PLD = next(a for a in accountants.ACCOUNTANTS if isinstance(a, accountants.PLDAccountant))
_WIDTH = _PLD.value_discretization_interval
_ORDERS = accountants._FRACTIONAL_ORDERS, accountants._INTEGER_ORDERS
_FEW_ORDERS = (), tuple(order for order in _ORDERS[1] if order < 17 or order in (24, 32, 64, 128))
Orders = tuple[float, ...]


def _account(patch: pytest.MonkeyPatch, orders: tuple[Orders, Orders], width: float) -> None:
    patch.setattr(accountants, "_FRACTIONAL_ORDERS", orders[0])
    patch.setattr(accountants, "_INTEGER_ORDERS", orders[1])
    patch.setattr(accountants.PLDAccountant.__init__, "__defaults__", (width,))
    patch.setitem(vars(_PLD), "value_discretization_interval", width)


@pytest.fixture(autouse=True, scope="session")
def _quick_accountants() -> Iterator[None]:
    """Account at few orders and in wide bins: valid bounds that are a little higher.

    Most of what the search for a private fit's noise takes are the others.
    """
    with pytest.MonkeyPatch.context() as patch:
        _account(patch, _FEW_ORDERS, 1e-3)
        yield


@pytest.fixture(scope="module")
def tight_accountants() -> Iterator[None]:
    """Account as users do, where a test asks how tight that is."""
    with pytest.MonkeyPatch.context() as patch:
        _account(patch, _ORDERS, _WIDTH)
        accountants._bound.cache_clear()
        yield
    accountants._bound.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def _few_records_are_enough() -> Iterator[None]:
    """Have tests fit small tables; what is asked of users, `full_least_records` asks."""
    yield from _with({(contract, "LEAST_RECORDS"): 1})


@pytest.fixture
def full_least_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for as many records as users are asked for."""
    monkeypatch.setattr(contract, "LEAST_RECORDS", _LEAST_RECORDS)


@pytest.fixture(scope="module")
def quick_contexts() -> Iterator[None]:
    """Learn what contexts tell in few steps, where no test asks how much: it stops early, too."""
    small = {"_CRITIC_HIDDEN": 32, "_CRITIC_OUT": 16, "_PATIENCE": 10}
    yield from _with({(autoregressive_server, name): value for name, value in small.items()})


@pytest.fixture(scope="module")
def few_steps(quick_contexts: None) -> Iterator[None]:
    """Train in few steps where their number is no parameter."""
    yield from _with({(autoregressive_server, "_MAX_STEPS"): 20})


@pytest.fixture(scope="module")
def short_searches(quick_contexts: None) -> Iterator[None]:
    """Have private methods train and search in few steps too, where no test asks how well."""
    yield from _with({(Detail, "n_steps"): 30, (gs_wgan, "PRETRAINING_STEPS"): 20})


@pytest.fixture
def own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test registers."""
    for group, classes in registry._classes.items():
        monkeypatch.setitem(registry._classes, group, dict(classes))
    monkeypatch.setattr(registry, "_loaded", set(registry._loaded))


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no picture into a report, where a test reads numbers and words only."""
    monkeypatch.setattr("vflsynth.evaluation.pictures.encode_svg", lambda figure: "data:,")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command that ends with a code, 0 unless told: what it prints (`out`) and says (`err`).

    What was printed before is not part of it.
    """

    def run(arguments: list[str], code: int = 0) -> Any:
        capsys.readouterr()
        assert main(arguments) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def rng() -> np.random.Generator:
    """Draws for a test's own data."""
    return np.random.default_rng(20240229)


@pytest.fixture
def party_frames() -> Callable[..., dict[str, pd.DataFrame]]:
    """Make tables of mixed columns, matched by ``record_id``: 60 records unless told."""
    return lambda n_parties=2, n_records=60, **options: make_party_frames(
        n_records, n_parties, random_state=7, **options
    )
