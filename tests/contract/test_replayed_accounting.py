"""The printed ε against a replay: what one record moved in a whole fit, in units of the noise.

Two neighbouring tables are fitted, and the second fit publishes what the first one did: its sums,
without noise, as noise may leave a column so few states that the record moves less. How far the
record moved each sum, in standard deviations of the noise that belongs there, is added up, step by
step over all owners of networks; ε of that is computed here, by other code than the package's:
privacy losses on a grid, composed by Fourier transforms.
"""

from collections import defaultdict

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from tests.contract.test_exact_releases import ADD, CHANGES, REPLACE, Tape, fitted, tables
from vflsynth.mechanisms import noisy_descent
from vflsynth.mechanisms.noisy_descent import NoisyDescent
from vflsynth.methods.pairwise import mechanism as pairwise
from vflsynth.privacy import releases
from vflsynth.privacy.events import SampledRelease
from vflsynth.testing import noninterference

pytestmark = pytest.mark.usefixtures("short_searches")

N_RECORDS, BATCH, EPOCHS, DELTA = 40, 8, 4, 1e-3
GRADIENTS = {"epochs": EPOCHS, "privacy__max_grad_norm": 0.01}  # shorter than any record's
RUNS = {
    "VFLGAN, dpsgd": ("VFLGANSynthesizer", "dpsgd", GRADIENTS),
    "pairwise tables": ("MixtureSynthesizer", "pairwise_tables", {}),
    "latent tree": ("DPLTSynthesizer", "latent_tree", {}),
}


class Steps(Tape):
    """A tape that knows which releases belong to one step of descent, and of how many records."""

    def __init__(self, played=None):
        super().__init__(played)
        self.step, self.of_step, self.counted = None, [], defaultdict(int)

    def _release(self, grid, total, rng):
        self.of_step.append(self.step)
        return super()._release(grid, total, rng)

    def watch(self, patch):
        def without_noise(shape, sigma, rng):
            return np.zeros(shape, np.int64)

        patch.setattr(noninterference, "discrete_gaussian", without_noise)
        honest, taken = NoisyDescent.means, defaultdict(int)

        def means(owner, terms, counted=None):
            self.step = taken[id(owner)]
            taken[id(owner)] += 1
            self.counted[self.step] = int(counted.sum())
            found = honest(owner, terms, counted)
            self.step = None
            return found

        patch.setattr(NoisyDescent, "means", means)

    def moved(self, other):
        """Squared distance in units of noise: of what is published once, and step by step."""
        found = defaultdict(float)
        made = self.of_step, self.totals, other.totals, self.releases
        for step, a, b, release in zip(*made, strict=True):
            assert a.shape == b.shape
            found[step] += float(np.square((a - b) / release.grid.sigma).sum())
        return found.pop(None, 0.0), found


def replayed(run, relation, folder):
    """Fit twice; return the tapes, and the ledger that is printed."""
    synthesizer, mechanism, parameters = RUNS[run]
    tapes, ledger = [], None
    for number, frames in enumerate((tables(), CHANGES[relation](tables()))):
        tape = Steps(*tapes)
        with pytest.MonkeyPatch.context() as patch:
            tape.watch(patch)
            given = synthesizer, mechanism, frames, relation, tape, folder / str(number)
            found = fitted(*given, **parameters)
        tapes.append(tape)
        ledger = ledger or found.privacy_ledger_
    return *tapes, ledger


# -- another accountant ----------------------------------------------------------------------------

WIDTH, CELL = 1 << 17, 4e-4
LOSSES = (np.arange(WIDTH) - WIDTH // 2) * CELL


def losses(move, rate, removed):
    """Distribution of the privacy loss of a normal number that moves, with a probability."""
    edges = np.linspace(-12.0, 12.0 + move, 100_001)
    without, moved = ndtr(edges), ndtr(edges - move)
    drawn = rate * moved + (1.0 - rate) * without if removed else without
    x = (edges[1:] + edges[:-1]) / 2.0
    loss = np.log1p(rate * np.expm1(move * x - move**2 / 2.0)) * (1.0 if removed else -1.0)
    places = np.rint(loss / CELL).astype(int) + WIDTH // 2
    return np.bincount(places.clip(0, WIDTH - 1), np.diff(drawn), WIDTH)


def another_epsilon(parts, delta):
    """ε of (move, rate, number) of normal numbers, for whichever of two tables is the true one."""
    found = []
    for removed in (True, False):
        whole = np.ones(WIDTH // 2 + 1, complex)
        for move, rate, number in parts:
            one = np.fft.rfft(np.fft.ifftshift(losses(move, rate, removed)))
            whole *= one**number
        chances = np.fft.fftshift(np.fft.irfft(whole, WIDTH)).clip(0.0)

        def spent(epsilon, chances=chances):
            above = epsilon < LOSSES
            return chances[above] @ -np.expm1(epsilon - LOSSES[above])

        low, high = 0.0, LOSSES[-1]
        while high - low > CELL:
            middle = (low + high) / 2.0
            low, high = (middle, high) if spent(middle) > delta else (low, middle)
        found.append(high)
    return max(found)


def test_the_other_accountant_knows_the_normal_distribution():
    def delta(epsilon, move):
        half = move / 2.0
        return norm.cdf(half - epsilon / move) - np.exp(epsilon) * norm.cdf(-half - epsilon / move)

    for move in (0.3, 1.0, 2.5):
        epsilon = another_epsilon([(move / 2.0, 1.0, 4)], 1e-3)
        assert delta(epsilon, move) == pytest.approx(1e-3, rel=0.01)


# -- what is printed -------------------------------------------------------------------------------


def epsilon_of(one, other, ledger):
    """Replay: the most that a step moved is what any step with the record may move."""
    once, steps = one.moved(other)
    parts = [(once**0.5, 1.0, 1)] if once else []
    if steps:
        (sampled,) = (
            e for e in parts_of(ledger.event) if isinstance(e, SampledRelease) and e.steps > 1
        )
        drawn, n = sum(one.counted.values()), len(steps) * N_RECORDS
        rate = BATCH / N_RECORDS
        assert (sampled.sample_rate, sampled.steps) == (rate, len(steps))
        assert abs(drawn - rate * n) < 4.0 * (rate * (1.0 - rate) * n) ** 0.5
        assert 0 < sum(move > 0.0 for move in steps.values()) < len(steps)
        parts.append((max(steps.values()) ** 0.5, rate, len(steps)))
    return another_epsilon(parts, DELTA)


def parts_of(event):
    for part in getattr(event, "events", ()):
        yield from parts_of(part)
    yield event


def spent_and_printed(run, relation, folder):
    one, other, ledger = replayed(run, relation, folder)
    return epsilon_of(one, other, ledger), ledger.epsilon()


AT_ONCE = [run for run, (_, mechanism, _) in RUNS.items() if mechanism != "dpsgd"]


@pytest.mark.parametrize("run", RUNS)
def test_a_record_less_spends_what_is_printed_and_not_much_less(run, tmp_path):
    spent, printed = spent_and_printed(run, ADD, tmp_path)
    assert 0.94 * printed < spent < 1.003 * printed


@pytest.mark.parametrize("run", AT_ONCE)
def test_another_record_spends_no_more_than_is_printed(run, tmp_path):
    spent, printed = spent_and_printed(run, REPLACE, tmp_path)
    assert 0.4 * printed < spent < 1.003 * printed


def half_the_noise(patch):
    honest = releases.Grid.of.__func__
    of = classmethod(lambda cls, noise_std, *rest: honest(cls, noise_std / 2.0, *rest))
    patch.setattr(releases.Grid, "of", of)


def half_the_sensitivity(patch):
    """Of products of pairs, in what is claimed and so in the noise."""
    honest = pairwise.product_sensitivity
    patch.setattr(pairwise, "product_sensitivity", lambda *given: honest(*given) / 2.0)


def twice_the_bound(patch):
    honest = noisy_descent.rounded_gradient_sum
    patch.setattr(
        noisy_descent,
        "rounded_gradient_sum",
        lambda terms, bound, *rest: honest(terms, 2.0 * bound, *rest),
    )


@pytest.mark.parametrize(
    ("run", "bug"),
    [
        ("pairwise tables", half_the_noise),
        ("pairwise tables", half_the_sensitivity),
        pytest.param("VFLGAN, dpsgd", half_the_noise, marks=pytest.mark.slow),
        ("VFLGAN, dpsgd", twice_the_bound),
    ],
)
def test_less_noise_or_longer_records_than_are_claimed_are_noticed(run, bug, monkeypatch, tmp_path):
    bug(monkeypatch)
    spent, printed = spent_and_printed(run, ADD, tmp_path)
    assert spent > 1.4 * printed
