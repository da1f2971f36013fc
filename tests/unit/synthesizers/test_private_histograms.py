"""Histograms that private fits publish: noise, what a record moves, columns that do not fit."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from tests import planted
from tests.unit.synthesizers.private_steps import RECORDS, SCHEMA, with_one_more
from vflsynth import MixtureSynthesizer, PairwiseTables
from vflsynth._random import secret_from
from vflsynth.columns.bins import Bins
from vflsynth.columns.histograms import NoisyHistogram
from vflsynth.columns.schema import Bounds
from vflsynth.exceptions import ColumnKindError
from vflsynth.privacy import PublicSchema
from vflsynth.privacy import histograms as histograms_module
from vflsynth.privacy.discovery import PublicEncoding
from vflsynth.privacy.histograms import (
    DECIMALS_SHARE,
    FIRST_ROUND_SHARE,
    exact_histograms,
    first_cells,
)
from vflsynth.run import local
from vflsynth.testing import noninterference

pytestmark = pytest.mark.usefixtures("short_searches")

PUBLIC = {name: SCHEMA[name] for name in ("smoker", "income", "grade")}
PUBLIC["age"] = Bounds(0, 100, step=1)
PRIVACY = PairwiseTables(epsilon=5.0, delta=1e-3, public_schema=SCHEMA, n_bins=8)


@pytest.fixture
def frames():
    rng = np.random.default_rng(5)
    n = 60
    smoker = pd.Series(rng.choice(["no", "yes"], n), dtype=object)
    smoker[:20] = None
    return {
        "clinic": pd.DataFrame({"age": rng.integers(18, 90, n), "smoker": smoker}),
        "bank": pd.DataFrame({"income": rng.gamma(2.0, 1.0, n), "grade": rng.integers(1, 4, n)}),
    }


def synthesizer(privacy=PRIVACY):
    return MixtureSynthesizer(privacy=privacy, n_components=4, random_state=0)


class AsPublished:
    """Encodes as another run published it."""

    def __init__(self, transformer):
        self.transformer = transformer

    def fitted(self, party, matched):
        return self.transformer


def joined(frames, histograms_of=()):
    """A fit whose parties have joined, and have published nothing but histograms."""
    encoders = {party.name: AsPublished(party.transformer) for party in histograms_of}
    run = local.LocalRun(
        synthesizer().method(),
        frames,
        None,
        secrets=[secret_from(0)],
        device=torch.device("cpu"),
        templates={},
        schema=SCHEMA,
        encoders=encoders,
    )
    run.join()
    for node in run.parties.values():
        node.encode()
    return run, [node.party for node in run.parties.values()]


N_RELEASES = 40  # noise that is missing, shared, or of half the variance is blatant


def assert_noise_is_claimed(found):
    """Judge noise in its claimed standard deviation, by owner, each (release, coordinate)."""
    for owner, noise in found.items():
        n_releases, n = len(noise), noise.size
        assert abs(noise.std() - 1.0) < 5.0 / np.sqrt(2 * n), owner
        assert abs(noise.std(axis=0) - 1.0).max() < 5.5 / np.sqrt(2 * n_releases), owner
        assert abs(noise.mean(axis=0)).max() < 5.5 / np.sqrt(n_releases), owner
    together = np.concatenate(list(found.values()), axis=1)
    correlation = np.corrcoef(together, rowvar=False) - np.eye(together.shape[1])
    assert abs(correlation).max() < 5.5 / np.sqrt(len(together))


def noise_of_histograms(frames, n_releases=N_RELEASES):
    """What noise adds, in its claimed standard deviation, to every cell that a party publishes.

    Also to those of the first round. Nothing but the histograms is made, and those of the second
    round have the same bins whatever the first one says.
    """
    run, _ = joined(frames)
    once = run.method.plan.histogram_noise_multiplier * 2.0  # sqrt(4 columns, of both parties)
    first_round, honest = [], histograms_module.release_histograms

    def kept(frame, cells, **rest):
        made = honest(frame, cells, **rest)
        if is_first_round(frame, cells):
            first_round.append(made)
        return made

    found = {name: [] for name in frames}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histograms_module, "release_histograms", kept)
        patch.setattr(NoisyHistogram, "divided", lambda own: Bins.even(own.column, 5))
        patch.setattr(histograms_module, "nearly_all_have", lambda *_: None)
        for _ in range(n_releases):
            for name, node in run.parties.items():
                node.encode()
                found[name].append(noise_of_one_release(node.party, first_round.pop(), once))
    return {name: np.stack(rows) for name, rows in found.items()}


def is_first_round(frame, cells):
    """Whether cells are those of columns of numbers whose bounds are all that is known."""
    numeric = [name for name in frame if isinstance(cells[name], Bins)]
    known = first_cells(PUBLIC, numeric, 8)
    return bool(numeric) and all(np.array_equal(cells[n].lows, known[n].lows) for n in numeric)


def noise_of_one_release(party, wide, once):
    histograms = party.transformer.histograms_
    matched, known = party.matched(), first_cells(PUBLIC, histograms, 8)
    broad = exact_histograms(matched, known)
    exact = exact_histograms(matched, {name: h.cells for name, h in histograms.items()})
    cells = []
    for name, published in histograms.items():
        numeric = isinstance(known[name], Bins)  # categories are published once
        others = 0.0
        if numeric:
            others = FIRST_ROUND_SHARE + (0.0 if PUBLIC[name].step else DECIMALS_SHARE)
        std = once / (1.0 - others) ** 0.5
        cells.append((published.counts - exact[name]) / std)
        if numeric:
            cells.append((wide[name].counts - broad[name]) / (once / FIRST_ROUND_SHARE**0.5))
    return np.concatenate(cells)


def test_every_cell_of_every_party_has_independent_noise(frames):
    """For all parties' columns, whose histograms are one release."""
    assert_noise_is_claimed(noise_of_histograms(frames))


def test_histograms_state_their_noise(frames):
    run, parties = joined(frames)
    once = run.method.plan.histogram_noise_multiplier * 2.0  # sqrt(4 columns)
    stated = {
        name: h.noise_std for party in parties for name, h in party.transformer.histograms_.items()
    }
    # Income is of floats, whose decimals are paid for as well.
    narrowed = {"age": once / 0.6**0.5, "income": once / 0.56**0.5}
    assert stated == pytest.approx({"smoker": once, "grade": once} | narrowed)


def plant_scalar_per_column(patch):
    planted.in_noise(patch, lambda draw, shape: draw((1,)))


def plant_forgotten_party(patch):
    honest = PublicEncoding.histograms

    def histograms(self, party, *rest):
        with pytest.MonkeyPatch.context() as inner:
            if party == "bank":
                planted.no_noise(inner)
            return honest(self, party, *rest)

    patch.setattr(PublicEncoding, "histograms", histograms)


def plant_forgotten_column(patch):
    def changed(draw, shape):
        return draw(shape, 0.0 if shape == (4,) else 1.0)  # grade

    planted.in_noise(patch, changed)


def plant_round_without_noise(patch, *, first):
    honest = histograms_module.release_histograms

    def release_histograms(frame, cells, **rest):
        with pytest.MonkeyPatch.context() as inner:
            if is_first_round(frame, cells) == first:
                planted.no_noise(inner)
            return honest(frame, cells, **rest)

    patch.setattr(histograms_module, "release_histograms", release_histograms)


def plant_noise_of_one_partys_columns(patch):
    honest = PublicEncoding.histograms

    def histograms(self, party, *rest):
        fewer = replace(self, noise_std=self.noise_std * 0.5**0.5)  # sqrt(2 columns of 4)
        return honest(fewer, party, *rest)

    patch.setattr(PublicEncoding, "histograms", histograms)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        planted.no_noise,
        plant_scalar_per_column,
        plant_forgotten_party,
        plant_forgotten_column,
        partial(plant_round_without_noise, first=True),
        partial(plant_round_without_noise, first=False),
        plant_noise_of_one_partys_columns,
    ],
)
def test_planted_bugs_in_the_noise_of_histograms_are_noticed(frames, plant, monkeypatch):
    plant(monkeypatch)
    found = noise_of_histograms(frames)
    with pytest.raises(AssertionError):
        assert_noise_is_claimed(found)


@pytest.mark.parametrize("record", RECORDS)
def test_one_more_record_moves_histograms_by_at_most_their_sensitivity(frames, record):
    _, parties = joined(frames)
    _, parties_more = joined(with_one_more(frames, record), histograms_of=parties)
    divided = {n: h.cells for p in parties for n, h in p.transformer.histograms_.items()}
    for cells in (first_cells(PUBLIC, divided, 8), divided):  # the second is made given the first
        exact = [
            exact_histograms(party.matched(), cells)
            for own in (parties, parties_more)
            for party in own
        ]
        before, after = ({**a, **b} for a, b in (exact[:2], exact[2:]))
        moved = sum(np.sum((after[name] - before[name]) ** 2) for name in before)
        assert moved**0.5 <= 2.0 + 1e-9  # sqrt(4 columns)


@pytest.mark.parametrize("bounds", [{}, {"since": ("2019-01-01", "2021-12-31")}])
def test_columns_of_dates_are_learned(frames, bounds, monkeypatch):
    """Without noise, which may publish a missing date now and then."""
    no_noise = lambda shape, sigma, rng: np.zeros(shape, np.int64)  # noqa: E731
    monkeypatch.setattr(noninterference, "discrete_gaussian", no_noise)
    days = pd.Timestamp("2020-01-01", tz="Asia/Tokyo") + pd.to_timedelta(np.arange(60), "D")
    frames["bank"]["since"] = days
    schema = replace(SCHEMA, bounds=SCHEMA.bounds | bounds)
    privacy = clone(PRIVACY).set_params(public_schema=schema, epsilon=50.0)
    with noninterference.Tape().running():
        model = synthesizer(privacy).fit(frames)
    sampled = model.sample(50, random_state=0)["since"]
    assert sampled.dtype == days.dtype
    assert sampled.dt.year.between(2019, 2029).all()
    assert not bounds or (sampled == sampled.dt.normalize()).all()


@pytest.mark.parametrize(
    ("column", "words"), [("income", r"'income'.*bounds.*do not fit"), ("grade", "'grade'")]
)
def test_a_column_that_cannot_have_its_public_bounds_or_categories_is_named(frames, column, words):
    frames["bank"][column] = pd.Timestamp("2020-01-01")
    with pytest.raises(ColumnKindError, match=f"'bank', column {words}"):
        synthesizer().fit(frames)


@pytest.mark.parametrize("bounds", [(0, 300), (-1, 100), (0, 2**63)])
def test_integers_that_cannot_hold_their_bounds_are_named(frames, bounds):
    frames["clinic"]["age"] = pd.Series(range(len(frames["clinic"])), dtype="uint8")
    schema = PublicSchema(SCHEMA.bounds | {"age": bounds}, SCHEMA.categories, "given")
    with pytest.raises(ColumnKindError, match="'clinic', column 'age'"):
        synthesizer(clone(PRIVACY).set_params(public_schema=schema)).fit(frames)


def test_a_failed_fit_leaves_the_model_and_its_ledger(frames, tmp_path):
    model = synthesizer().fit(frames)
    model.save(tmp_path / "before")
    with pytest.raises(ColumnKindError):
        model.fit({"bank": frames["bank"].assign(income=pd.Timestamp("2020-01-01"))})
    model.save(tmp_path / "after")
    for name in ("before", "after"):
        saved = MixtureSynthesizer.load(tmp_path / name)
        assert saved.privacy_ledger_ is not None
        assert saved.alignment_ is None
