"""For tests and doctests alike."""

import pytest
from hypothesis import HealthCheck, settings

from vflsynth.adversary import DEFAULT_STATISTICS, RandomForest
from vflsynth.audit import audit_synthetic_data
from vflsynth.methods.autoregressive import server as autoregressive_server
from vflsynth.splitdefense.leakage import attacks, columns, labels

# How long an example takes says more about the machine than about the code.
settings.register_profile("vflsynth", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vflsynth")


class _AtOnce:
    """Prints a failure when it happens: with several processes pytest would wait for the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal._tw.line()
            terminal.write_sep("_", f"{report.when} of {report.nodeid}", red=True, bold=True)
            report.toterminal(terminal._tw)
            terminal.flush()


def pytest_configure(config: pytest.Config) -> None:
    """Print failures at once, in the process that prints."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_AtOnce(config))


def quicken(patch: pytest.MonkeyPatch) -> None:
    """Have examples train fewer, smaller attackers, and learn in few steps what contexts tell.

    An audit of the paper's trains twenty forests of 1,000 trees; what they find is not shown.
    """
    patch.setattr(RandomForest.__init__, "__defaults__", (20,))
    patch.setitem(audit_synthetic_data.__kwdefaults__, "statistics", DEFAULT_STATISTICS[:2])
    patch.setattr(autoregressive_server, "_PATIENCE", 10)
    patch.setattr(attacks, "_STEPS", 50)
    patch.setattr(attacks, "_FINE_TUNING_STEPS", 20)
    patch.setattr(labels, "_STARTS", 1)
    patch.setattr(labels, "_MATCHING_STEPS", 30)
    patch.setattr(columns, "_STEPS", 50)
    patch.setattr(columns, "_TREES", 10)


@pytest.fixture
def quick_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run examples quickly."""
    quicken(monkeypatch)


@pytest.fixture(autouse=True)
def _doctests_are_by_themselves(request: pytest.FixtureRequest) -> None:
    """Doctests, of README.md above all, may write files: they run in a folder of their own."""
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("quick_examples")
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
