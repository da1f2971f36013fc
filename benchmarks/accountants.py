"""What accounting costs: ε of the paper's settings, and noise for the same ε.

    python -m benchmarks.accountants          # a minute

The settings are those of VFLGAN's scripts and of GS-WGAN, as in ``tests/golden/privacy.json``. Each
is accounted as the paper does (Wang et al., fixed batches), and as Poisson sampling of the same
rate (privacy loss distributions), which DP-SGD has here. Medians of three, seconds of one core.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import _commands, _results
from vflsynth.privacy import (
    Accountant,
    GaussianRelease,
    NeighbouringRelation,
    PLDAccountant,
    SampledRelease,
    Sampler,
    WangAccountant,
    calibrate_noise_multiplier,
)

SETTINGS = Path(__file__).parents[1] / "tests" / "golden" / "privacy.json"
AIM = 1.0
"""Seconds for ε of the paper's settings."""

METHODS: dict[str, tuple[Accountant, Sampler, NeighbouringRelation]] = {
    "Wang": (WangAccountant(), Sampler.WITHOUT_REPLACEMENT, NeighbouringRelation.REPLACE_ONE),
    "PLD": (PLDAccountant(), Sampler.POISSON, NeighbouringRelation.ADD_OR_REMOVE_ONE),
}


def seconds(work: Callable[[], float]) -> tuple[float, float]:
    """Median processor time of three, and the value."""
    times = []
    for _ in range(3):
        started = time.process_time()
        value = work()
        times.append(time.process_time() - started)
    return round(statistics.median(times), 3), value


def measure(setting: dict[str, Any], method: str) -> dict[str, Any]:
    """Account one setting, then look for the noise that gives the same ε."""
    accountant, sampler, relation = METHODS[method]

    def event(noise_multiplier: float) -> SampledRelease:
        release = GaussianRelease(
            released="gradient",
            party="a",
            noise_multiplier=noise_multiplier,
            sensitivity=1.0,
            relation=relation,
        )
        rate = setting["batch_size"] / setting["n_records"]
        return SampledRelease((release,), sampler, rate, setting["steps"])

    delta = setting["delta"]
    of_epsilon, epsilon = seconds(
        lambda: accountant.epsilon(event(setting["noise_multiplier"]), delta)
    )
    of_noise, noise = seconds(
        lambda: calibrate_noise_multiplier(
            event, epsilon=epsilon, delta=delta, accountant=accountant
        )
    )
    return {
        "setting": setting["name"],
        "accountant": method,
        "epsilon": round(epsilon, 3),
        "noise_multiplier": round(noise, 4),
        "seconds of epsilon": of_epsilon,
        "seconds of calibration": of_noise,
    }


def settings() -> list[dict[str, Any]]:
    """Read the settings of the papers."""
    found: list[dict[str, Any]] = json.loads(SETTINGS.read_text(encoding="utf-8"))["wang"]
    return found


def show() -> str:
    """Put the measurements into a table."""
    lines = [f"{'':<16}{'accountant':>11}{'ε':>9}{'s for ε':>9}{'s for the noise':>17}"]
    for setting in settings():
        for method in METHODS:
            for row in _results.rows("accountants", setting=setting["name"], accountant=method):
                lines.append(
                    f"{row['setting']:<16}{row['accountant']:>11}{row['epsilon']:>9.3f}"
                    f"{row['seconds of epsilon']:>9.3f}{row['seconds of calibration']:>17.3f}"
                )
    wang = _results.rows("accountants", accountant="Wang")
    slowest = max(row["seconds of epsilon"] for row in wang)
    verdict = _results.verdict(slowest <= AIM)
    return "\n".join(
        [*lines, f"  the paper's, slowest: {slowest:.3f} s (at most {AIM:g}: {verdict})"]
    )


def main() -> None:
    """Measure and write."""
    _commands.parser(__doc__).parse_args()
    rows = [measure(setting, method) for setting in settings() for method in METHODS]
    _results.put("accountants", *rows)
    print(show())


if __name__ == "__main__":
    main()
