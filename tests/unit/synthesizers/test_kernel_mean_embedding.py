"""Private fits through the real code: what is released, what it depends on, what crosses."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from tests import planted
from vflsynth import MeanEmbedding, VFLGANSynthesizer
from vflsynth._random import RandomStreams, secret_from
from vflsynth.columns import TableTransformer
from vflsynth.columns.bins import Bins
from vflsynth.columns.histograms import NoisyHistogram, estimate_n_records
from vflsynth.columns.schema import Bounds
from vflsynth.exceptions import ColumnKindError, ParameterError, PartyDataError, ProtocolError
from vflsynth.learning.messages import MaskedFake, MaskedReal, SumShares
from vflsynth.methods.mean_embedding.embedding import (
    feature_moments,
    project_records,
    shrink_mean_embedding,
)
from vflsynth.methods.mean_embedding.messages import (
    DRAWN_RECORDS,
    MaskedPoints,
    NoisyHistograms,
    WindowWidth,
    published_encoding,
    published_histograms,
)
from vflsynth.methods.mean_embedding.party import MeanEmbeddingParty
from vflsynth.privacy import NeighbouringRelation, PublicSchema
from vflsynth.privacy import histograms as decimals_module
from vflsynth.privacy import histograms as histograms_module
from vflsynth.privacy.discovery import PublicEncoding
from vflsynth.privacy.histograms import (
    DECIMALS_SHARE,
    FIRST_ROUND_SHARE,
    exact_histograms,
    first_cells,
    release_divided_histograms,
)
from vflsynth.protocol import Transcript
from vflsynth.protocol.messages import TrainingReport
from vflsynth.run import Options, local, server_run
from vflsynth.secure import (
    Masks,
    RotationServer,
    angles_of,
    bytes_per_angle,
    largest_product,
    points,
    turns_of,
    unit,
)

SCHEMA = PublicSchema(
    dtypes="given",
    bounds={"age": (0, 100), "income": (0.0, 10.0)},
    categories={"smoker": ("no", "yes"), "grade": (1, 2, 3)},
)
PUBLIC = {name: SCHEMA[name] for name in ("smoker", "income", "grade")}
PUBLIC["age"] = Bounds(0, 100, step=1)
PRIVACY = MeanEmbedding(epsilon=5.0, delta=1e-3, public_schema=SCHEMA, n_features=20, n_bins=8)


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


def synthesizer(privacy=PRIVACY, **parameters):
    small = {"epochs": 1, "batch_size": 32, "generator_hidden": (8,), "device": "cpu", "verbose": 0}
    return VFLGANSynthesizer(privacy=privacy, random_state=0, **small | parameters)


def noise(seed=1):
    return torch.Generator().manual_seed(seed)


def fit(frames, privacy=PRIVACY, seed=1, **parameters):
    """Fit with injected noise, as a repeatable test needs it."""
    model = synthesizer(privacy, **parameters)
    model._fit_models([model], frames, None, Options(), noise=noise(seed))
    return model


class AsPublished:
    """Encodes as another run published it."""

    def __init__(self, transformer):
        self.transformer = transformer

    def fitted(self, party, matched):
        return self.transformer


def run_of(frames, histograms_of=(), noise=None):
    """A fit before its parties join."""
    encoders = {party.name: AsPublished(party.transformer) for party in histograms_of}
    return local.LocalRun(
        synthesizer().method(noise),
        frames,
        None,
        secrets=[secret_from(0)],
        device=torch.device("cpu"),
        templates={},
        schema=SCHEMA,
        encoders=encoders,
    )


def without_an_end(make):
    """Make algorithms that send no generator, as nothing has been released when they end."""

    def algorithm(*arguments):
        made = make(*arguments)
        made.end = lambda epoch: None
        return made

    return algorithm


def released(frames, histograms_of=()):
    """Run a fit up to its two releases, and keep what the records are encoded as."""
    run = run_of(frames, histograms_of, noise(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_run, "run", lambda *rest: False)
        patch.setattr(run.method, "algorithm", without_an_end(run.method.algorithm))
        patch.setattr(local, "_entropy", lambda noise: bytes(32))  # the same masks every time
        run.run()
    encoded = {
        name: torch.from_numpy(node.party.encode()).double() for name, node in run.parties.items()
    }
    drawn = noise(2)
    for node in run.parties.values():
        node.party._noise = drawn
    run.algorithm.begin()
    return run, encoded


def released_again(run):
    """Make the release of the joint features once more, with noise of the operating system."""
    for node in run.parties.values():
        node.party._noise = node.party._rotations = None
    algorithm = run.make_algorithm(RandomStreams([b"secret"]))
    algorithm.begin()
    return algorithm.server


def release(frames, histograms_of=()):
    """Make both releases; `histograms_of` are parties whose encoding is reused."""
    run, encoded = released(frames, histograms_of)
    parties = [node.party for node in run.parties.values()]
    return run.algorithm.server, parties, run.method.plan, encoded


def sum_of(server, parties):
    """Undo the division by the published number of records."""
    counts = [h.counts for p in parties for h in p.transformer.histograms_.values()]
    return server.released.double() * estimate_n_records(counts)


def exact_sum(parties, encoded):
    """Slow and obvious: one record at a time over the joined encoding."""
    joint = torch.cat([encoded[p.name] for p in parties], 1)
    frequencies = torch.cat([p.frequencies.double() for p in parties], 0)
    total = torch.zeros(PRIVACY.n_features, dtype=torch.float64)
    for record in joint:
        angles = record @ frequencies
        total += torch.cat([angles.cos(), angles.sin()]) * (2.0 / PRIVACY.n_features) ** 0.5
    return total


def assert_release_is_the_noisy_sum(frames):
    server, parties, _, encoded = release(frames)
    features, drawn = server.features, noise(2)
    added = sum(features.grid.noise((PRIVACY.n_features,), rng=drawn) for _ in parties)
    total = exact_sum(parties, encoded) + features.features(added)
    # Five standard deviations of 60 records' rounding.
    torch.testing.assert_close(sum_of(server, parties), total, atol=0.45, rtol=0.0)
    assert features.features(added).std() > 1.0
    of = [(int(z.real), int(z.imag)) for z in points(2)]
    masks, turns, dither_of = Masks(parties[0]._secret), [], PRIVACY.n_features // 2
    for rank, party in enumerate(sorted(parties, key=lambda party: party.name)):
        angles = angles_of(project_records(encoded[party.name], party.frequencies))
        label = f"{dither_of} of {dither_of} frequencies|dithers"
        dither = masks.zero_share(label, 2, rank, angles.shape, angles.dtype)
        turns.append(turns_of(angles + dither).tolist())
    exact = np.zeros((2, PRIVACY.n_features // 2), dtype=object)
    for rows in zip(*turns, strict=True):
        for k, (one, other) in enumerate(zip(*rows, strict=True)):
            (a, b), (c, d) = of[one], of[other]
            exact[:, k] += a * c - b * d, a * d + b * c
    steps = (exact.ravel().astype(np.int64) << features.arithmetic.shift) + added
    counts = [h.counts for p in parties for h in p.transformer.histograms_.values()]
    expected = features.features(steps) / estimate_n_records(counts)
    assert torch.equal(server.released, expected.float())  # to the bit


def test_the_release_is_the_noisy_sum_over_the_joint_records(frames):
    assert_release_is_the_noisy_sum(frames)


def test_fakes_are_compared_with_the_shrunk_release_which_reads_no_record(frames):
    """The same estimate, to the last digit, comes from what was published alone."""
    server, parties, _, _ = release(frames)
    (rng,) = server.streams.numpy_generators("independent records")
    drawn = sum(
        torch.from_numpy(party.transformer.draw_independent(DRAWN_RECORDS, rng)) @ party.frequencies
        for party in sorted(parties, key=lambda party: party.name)
    )
    counts = [h.counts for p in parties for h in p.transformer.histograms_.values()]
    expected = shrink_mean_embedding(
        server.released,
        *feature_moments(drawn),
        noise_std=server.features.error_std(estimate_n_records(counts)),
        n_records=estimate_n_records(counts),
    )
    torch.testing.assert_close(server.target, expected.float(), atol=1e-6, rtol=0.0)
    assert (server.target - server.released).norm() > 0.01


# -- the noise -------------------------------------------------------------------------------------

N_RELEASES = 100
N_PLANTED = 40  # noise that is missing, shared, or of half the variance is blatant


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
    run = run_of(frames)
    run.join()
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
        patch.setattr(decimals_module, "nearly_all_have", lambda *_: None)
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
    message = published_histograms(party.name, 0, party.transformer, torch.zeros(32))
    published = torch.split(message.counts, message.n_cells.tolist())
    published = [
        counts.numpy() * 2.0**exponent
        for counts, exponent in zip(published, message.exponents.tolist(), strict=True)
    ]
    histograms = party.transformer.histograms_
    matched, known = party.matched(), first_cells(PUBLIC, histograms, 8)
    broad = exact_histograms(matched, known)
    exact = exact_histograms(matched, {name: h.cells for name, h in histograms.items()})
    cells = []
    for name, counts in zip(histograms, published, strict=True):
        numeric = isinstance(known[name], Bins)  # categories are published once
        others = 0.0
        if numeric:
            others = FIRST_ROUND_SHARE + (0.0 if PUBLIC[name].step else DECIMALS_SHARE)
        std = once / (1.0 - others) ** 0.5
        cells.append((counts - exact[name]) / std)
        if numeric:
            cells.append((wide[name].counts - broad[name]) / (once / FIRST_ROUND_SHARE**0.5))
    return np.concatenate(cells)


def noise_of_feature_sums(frames, n_releases=N_RELEASES):
    """What noise adds to every feature's sum, in its claimed standard deviation, over and over."""
    run, encoded = released(frames)
    parties = [node.party for node in run.parties.values()]
    exact, rows = exact_sum(parties, encoded), []
    for _ in range(n_releases):
        server = released_again(run)
        rows.append((sum_of(server, parties) - exact) / server.features.joint_noise_std)
    return {"all parties": torch.stack(rows).numpy()}


def test_every_cell_of_every_party_has_independent_noise(frames):
    """For all parties' columns, whose histograms are one release."""
    assert_noise_is_claimed(noise_of_histograms(frames))


def test_histograms_state_their_noise(frames):
    _, parties, plan, _ = release(frames)
    once = plan.histogram_noise_multiplier * 2.0  # sqrt(4 columns)
    stated = {
        name: h.noise_std for party in parties for name, h in party.transformer.histograms_.items()
    }
    # Income is of floats, whose decimals are paid for as well.
    narrowed = {"age": once / 0.6**0.5, "income": once / 0.56**0.5}
    assert stated == pytest.approx({"smoker": once, "grade": once} | narrowed)


def test_every_feature_has_independent_noise(frames):
    assert_noise_is_claimed(noise_of_feature_sums(frames))


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


def plant_round_without_noise(patch, which):
    honest = histograms_module.release_histograms

    def release_histograms(frame, cells, **rest):
        with pytest.MonkeyPatch.context() as inner:
            if is_first_round(frame, cells) == (which == "first"):
                planted.no_noise(inner)
            return honest(frame, cells, **rest)

    patch.setattr(histograms_module, "release_histograms", release_histograms)


def plant_first_round_without_noise(patch):
    plant_round_without_noise(patch, "first")


def plant_second_round_without_noise(patch):
    plant_round_without_noise(patch, "second")


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
        plant_first_round_without_noise,
        plant_second_round_without_noise,
        plant_noise_of_one_partys_columns,
    ],
)
def test_planted_bugs_in_the_noise_of_histograms_are_noticed(frames, plant, monkeypatch):
    plant(monkeypatch)
    found = noise_of_histograms(frames, N_PLANTED)
    with pytest.raises(AssertionError):
        assert_noise_is_claimed(found)


def plant_cosines_without_noise(patch):
    def changed(draw, shape):
        return np.where(np.arange(*shape) < shape[0] // 2, 0, draw(shape))

    planted.in_noise(patch, changed)


def plant_noise_on_the_mean(patch):
    planted.in_noise(patch, lambda draw, shape: draw(shape, 1.0 / 60.0))


def plant_party_missing_from_the_sum(patch):
    honest = RotationServer.totals
    patch.setattr(
        RotationServer,
        "totals",
        lambda self, shares: honest(self, shares | {"bank": shares["clinic"]}),
    )


def plant_party_without_noise(patch):
    honest = MeanEmbeddingParty.sum_shares

    def sum_shares(self, step):
        with pytest.MonkeyPatch.context() as inner:
            if self.name == "bank":
                planted.no_noise(inner)
            return honest(self, step)

    patch.setattr(MeanEmbeddingParty, "sum_shares", sum_shares)
    patch.setitem(MeanEmbeddingParty._by_question, SumShares, "sum_shares")


def plant_noise_divided_among_parties(patch):
    planted.in_noise(patch, lambda draw, shape: draw(shape, 0.5**0.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        planted.no_noise,
        planted.one_scalar,
        plant_cosines_without_noise,
        plant_noise_on_the_mean,
        plant_party_missing_from_the_sum,
        plant_party_without_noise,
        plant_noise_divided_among_parties,
    ],
)
def test_planted_bugs_in_the_feature_sum_are_noticed(frames, plant, monkeypatch):
    """By the judge of the noise, and by the comparison with one record at a time."""
    plant(monkeypatch)
    found = noise_of_feature_sums(frames, N_PLANTED)
    with pytest.raises(AssertionError):
        assert_noise_is_claimed(found)
    with pytest.raises(AssertionError):
        assert_release_is_the_noisy_sum(frames)


# -- sensitivity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        {"age": 40, "smoker": "no", "income": 2.0, "grade": 1},
        {"age": 10**9, "smoker": "a word that is not public", "income": -1e300, "grade": -7},
        {"age": 0, "smoker": None, "income": float("nan"), "grade": 3},
    ],
)
def test_one_more_record_moves_both_releases_by_at_most_their_sensitivity(frames, record):
    more = {
        name: pd.concat(
            [frame, pd.DataFrame({c: pd.Series([record[c]], dtype=frame[c].dtype) for c in frame})],
            ignore_index=True,
        )
        for name, frame in frames.items()
    }
    server, parties, _, _ = release(frames)
    server_more, parties_more, _, _ = release(more, histograms_of=parties)
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
    moved = sum_of(server_more, parties_more) - sum_of(server, parties)
    # Dithers of records that both tables have are the same, so that only the one more moved.
    assert 0.1 < moved.norm() <= largest_product(2) / unit(2) + 1e-4


# -- no learning without information ---------------------------------------------------------------


@pytest.fixture
def other_frames():
    """A population that differs from `frames` in everything."""
    smoker = pd.Series(["yes"] * 60, dtype=object)
    return {
        "clinic": pd.DataFrame({"age": [99] * 60, "smoker": smoker}),
        "bank": pd.DataFrame({"income": [9.0] * 60, "grade": [3] * 60}),
    }


def samples_with_noise(noise_multiplier, *populations):
    privacy = clone(PRIVACY).set_params(epsilon=None, noise_multiplier=noise_multiplier)
    return [fit(frames, privacy).sample(50, random_state=3) for frames in populations]


def assert_same_model(first, second):
    """The same latents, so record by record; float32 training leaves the last digits open."""
    np.testing.assert_allclose(first["age"], second["age"], atol=1.0)  # years are rounded
    np.testing.assert_allclose(first["income"], second["income"], atol=0.01)
    pd.testing.assert_frame_equal(first[["smoker", "grade"]], second[["smoker", "grade"]])


def test_without_information_only_the_public_schema_is_known(frames, other_frames):
    """With noise to infinity, two populations that differ in everything give the same model."""
    first, second = samples_with_noise(1e12, frames, other_frames)
    assert first["age"].between(0, 100).all()
    # The noise alone now and then looks like missing values, which are not outside the bounds.
    assert first["income"].dropna().between(0.0, 10.0).all()
    assert_same_model(first, second)


def test_with_little_noise_two_populations_give_different_models(frames, other_frames):
    """So the test above could fail, in every party."""
    first, second = samples_with_noise(1.0, frames, other_frames)
    with pytest.raises(AssertionError):
        assert_same_model(first, second)
    assert second["age"].mean() - first["age"].mean() > 20.0  # of 100; the records: 45
    assert second["income"].mean() - first["income"].mean() > 4.0  # of 10; the records: 7


# -- what is read, sent and kept -------------------------------------------------------------------


def test_only_declared_messages_cross_and_no_masked_record_does(frames, monkeypatch):
    kept = Transcript(keep_messages=True)
    monkeypatch.setattr(local, "Transcript", lambda: kept)
    synthesizer(model_selection="best").fit(frames, transcript=True)
    kinds = [type(message).__name__ for message in kept.messages]
    assert set(kinds) == {
        "KeyList",
        "AlignmentNotice",
        "Hello",
        "Terms",
        "EncodedSize",
        "EncodedSizes",
        "NoisyHistograms",
        "WindowWidth",
        "MaskedPoints",
        "SumShares",
        "Presence",
        "GeneratorWeights",
    }
    blocks = {"MaskedPoints": 2}  # one where each party begins
    assert all(kinds.count(kind) == len(frames) * blocks.get(kind, 1) for kind in kinds)


@pytest.mark.parametrize("n_parties", [2, 3])
def test_where_records_are_many_they_count_at_fewer_frequencies(frames, monkeypatch, n_parties):
    """As many as the published number of records leaves bytes for, and of no other number."""
    most, more = 1.5e-3, {"lab": pd.DataFrame({"weight": np.linspace(0.0, 9.0, 60)})}
    schema = replace(SCHEMA, bounds=SCHEMA.bounds | {"weight": (0.0, 10.0)})
    privacy = clone(PRIVACY).set_params(public_schema=schema, most_megabytes=most)
    frames |= more if n_parties == 3 else {}
    kept = Transcript(keep_messages=True)
    monkeypatch.setattr(local, "Transcript", lambda: kept)
    synthesizer(privacy).fit(frames, transcript=True)
    counts = [
        histogram.counts
        for message in kept.messages
        if isinstance(message, NoisyHistograms)
        for histogram in published_encoding(message, math.inf).histograms_.values()
    ]
    per_angle = bytes_per_angle(n_parties, 24)
    expected = int(0.99e6 * most / per_angle / math.ceil(estimate_n_records(counts)))
    assert 1 < expected < PRIVACY.n_features // 2
    told = [m.width for m in kept.messages if isinstance(m, WindowWidth)]
    assert told == [expected] * n_parties
    sizes = dict.fromkeys(frames, 0)
    for message in kept.messages:
        if isinstance(message, MaskedPoints):
            sizes[message.sender] += message.points.nbytes + message.turns.nbytes
    assert set(sizes.values()) == {60 * expected * per_angle}
    (share, *_) = [m.shares for m in kept.messages if isinstance(m, SumShares)]
    assert tuple(share.shape) == (PRIVACY.n_features,)


def test_a_party_that_was_told_no_width_sends_nothing(frames):
    run = released(frames)[0]
    node = run.parties["bank"]
    with pytest.raises(ProtocolError, match="said so twice; expected a number from 1 to 10"):
        node.take(WindowWidth("server", "bank", 0, 10))
    node.party._rotations = None
    for kind in (MaskedPoints, SumShares):
        with pytest.raises(ProtocolError, match="'bank' was asked for its records before"):
            node.answer(kind, 0)


def test_a_party_has_no_encoded_records_and_sends_none(frames):
    for node in released(frames)[0].parties.values():
        assert not hasattr(node.party, "records")
        for kind in (MaskedReal, MaskedFake, TrainingReport):
            with pytest.raises(ProtocolError, match="no entry"):
                node.answer(kind, 0)


def test_the_mean_embedding_is_released_once(frames):
    server = release(frames)[0]
    with pytest.raises(ProtocolError, match="already"):
        server.publish({})


def test_same_noise_and_seed_same_bytes_other_noise_other_bytes(frames):
    first, second, third = fit(frames), fit(frames), fit(frames, seed=9)
    pd.testing.assert_frame_equal(first.sample(30), second.sample(30))
    assert not first.sample(30, random_state=1).equals(third.sample(30, random_state=1))


def test_an_integer_random_state_does_not_fix_the_noise(frames):
    first, second = (synthesizer().fit(frames) for _ in range(2))
    counts = [m.parties_["bank"].transformer.to_dict()["transformers"] for m in (first, second)]
    assert counts[0] != counts[1]


def test_the_ledger_is_within_budget_and_saved(frames, tmp_path):
    model = synthesizer().fit(frames)
    assert 4.99 < model.privacy_ledger_.epsilon() <= 5.0
    assert "ε" in str(model.privacy_ledger_)
    model.save(tmp_path / "model")
    loaded = VFLGANSynthesizer.load(tmp_path / "model")
    assert loaded.privacy_ledger_ == model.privacy_ledger_
    assert loaded.privacy.public_schema == SCHEMA
    pd.testing.assert_frame_equal(loaded.sample(20), model.sample(20))
    table = model.sample(20)
    real = pd.concat(list(frames.values()), axis=1)
    assert table.dtypes.equals(real.dtypes)
    assert set(table["grade"]) <= {1, 2, 3}


def test_generated_columns_get_the_published_shares_of_bins(frames, tmp_path):
    """Of a generator that has learned nothing: with next to no noise, all comes from the map."""
    exact = clone(PRIVACY).set_params(epsilon=None, noise_multiplier=1e-3, delta=1e-5)
    more = {name: pd.concat([frame] * 50, ignore_index=True) for name, frame in frames.items()}
    model = fit(more, exact)
    histogram = model.parties_["bank"].transformer.transformers_["income"].histogram_
    edges = histogram.cells.edges
    sample = model.sample(20_000, random_state=1)
    drawn, real = (np.histogram(table["income"], edges)[0] for table in (sample, more["bank"]))
    # Three standard deviations of 3,000 records' shares are not corrected.
    np.testing.assert_allclose(drawn / 20_000, real / 3000, atol=0.035)
    model.save(tmp_path / "model")
    again = VFLGANSynthesizer.load(tmp_path / "model").sample(50, random_state=1)
    pd.testing.assert_frame_equal(again, model.sample(50, random_state=1))


@pytest.mark.parametrize("bounds", [{}, {"since": ("2019-01-01", "2021-12-31")}])
def test_columns_of_dates_are_learned(frames, bounds):
    days = pd.Timestamp("2020-01-01", tz="Asia/Tokyo") + pd.to_timedelta(np.arange(60), "D")
    frames["bank"]["since"] = days
    schema = replace(SCHEMA, bounds=SCHEMA.bounds | bounds)
    privacy = clone(PRIVACY).set_params(public_schema=schema, epsilon=50.0)
    sampled = fit(frames, privacy, seed=2).sample(50, random_state=0)["since"]
    assert sampled.dtype == days.dtype
    assert sampled.dt.year.between(2019, 2029).all()
    assert not bounds or (sampled == sampled.dt.normalize()).all()


def test_a_column_that_cannot_have_its_bounds_is_named(frames):
    frames["bank"]["income"] = pd.Timestamp("2020-01-01")
    with pytest.raises(ColumnKindError, match=r"'bank', column 'income'.*bounds.*do not fit"):
        synthesizer().fit(frames)


def test_a_column_that_cannot_hold_its_public_categories_is_named(frames):
    frames["bank"]["grade"] = pd.Timestamp("2020-01-01")
    with pytest.raises(ColumnKindError, match="'bank', column 'grade'"):
        synthesizer().fit(frames)


@pytest.mark.parametrize("bounds", [(0, 300), (-1, 100), (0, 2**63)])
def test_integers_that_cannot_hold_their_bounds_are_named(frames, bounds):
    frames["clinic"]["age"] = pd.Series(range(len(frames["clinic"])), dtype="uint8")
    schema = PublicSchema(SCHEMA.bounds | {"age": bounds}, SCHEMA.categories, "given")
    with pytest.raises(ColumnKindError, match="'clinic', column 'age'"):
        fit(frames, clone(PRIVACY).set_params(public_schema=schema))


def test_a_failed_fit_leaves_the_model_and_its_ledger(frames, tmp_path):
    model = synthesizer().fit(frames)
    model.save(tmp_path / "before")
    model.set_params(privacy=None)
    with pytest.raises(PartyDataError):
        model.fit({"bank": frames["bank"].assign(empty=np.nan)})
    model.save(tmp_path / "after")
    for name in ("before", "after"):
        saved = VFLGANSynthesizer.load(tmp_path / name)
        assert saved.privacy_ledger_ is not None
        assert saved.alignment_ is None
    model.fit(frames)
    assert model.privacy_ledger_ is None


def test_what_would_release_twice_is_refused(frames, tmp_path):
    with pytest.raises(ParameterError, match="checkpoint"):
        synthesizer().fit(frames, checkpoint=tmp_path / "c")
    with pytest.raises(ParameterError, match="several models"):
        synthesizer().fit_replicas(frames, random_states=[0, 1])
    with pytest.raises(ParameterError, match="estimate_memory"):
        synthesizer().estimate_memory(frames)


def test_replacing_a_record_makes_their_number_public(frames):
    privacy = clone(PRIVACY).set_params(neighbouring_relation="replace_one")
    assert privacy.relation is NeighbouringRelation.REPLACE_ONE
    model = fit(frames, privacy)
    assert "number of records" in model.privacy_ledger_.public


def test_the_server_knows_spans_and_marginals_of_columns_and_nothing_else_about_them(frames):
    """The same of bounds and labels that are others, record by record, as of the party's own."""
    frames["clinic"].loc[::3, "age"] = np.nan  # a column with a gate
    run, _ = released(frames)
    for node in run.parties.values():
        own, message = node.party.transformer, node.learning.noisy_histograms(0)
        public = published_encoding(message, math.inf)
        assert [replace(span, column="") for span in own.spans_] == [
            replace(span, column="") for span in public.spans_
        ]
        drawn = [t.draw_independent(99, np.random.default_rng(1)) for t in (own, public)]
        np.testing.assert_allclose(*drawn, atol=1e-4)
        assert list(public.transformers_) == list(range(len(own.transformers_)))
    assert any(span.gate is not None for span in run.parties["clinic"].party.transformer.spans_)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": torch.zeros(3, dtype=torch.int64)},
        {"counts": torch.full((11,), 2**63 - 1), "exponents": torch.tensor([511, 511])},
        {"counts": torch.full((11,), -101)},
        {"n_cells": torch.tensor([10, 1])},
        {"n_cells": torch.tensor([2**63 - 1, 2**63 - 1])},
        {"n_cells": torch.tensor([0, 11])},
        {"noise_stds": torch.tensor([1.0, math.nan], dtype=torch.float64)},
        {"noise_stds": torch.tensor([1.0, -1.0], dtype=torch.float64)},
        {"exponents": torch.tensor([2000, 0])},
        {"exponents": torch.tensor([-(2**63), 0])},
        {"lows": torch.zeros(6).double(), "highs": torch.zeros(6).double()},
        {"lows": torch.arange(7).double() / 8 - 0.1},
        {"highs": torch.arange(1, 8).double() / 6},
        {"lows": torch.arange(7).double().flip(0) / 8},
        {"highs": torch.full((7,), torch.nan, dtype=torch.float64)},
    ],
)
def test_histograms_that_are_none_are_refused_by_name(change):
    honest = NoisyHistograms(
        "bank",
        "server",
        0,
        counts=torch.ones(11, dtype=torch.int64),
        n_cells=torch.tensor([8, 3]),
        exponents=torch.tensor([0, 0]),
        noise_stds=torch.tensor([1.0, 1.0], dtype=torch.float64),
        numeric=torch.tensor([True, False]),
        lows=torch.arange(7).double() / 8,
        highs=torch.arange(1, 8).double() / 8,
        seed=torch.zeros(32, dtype=torch.uint8),
    )
    assert published_encoding(honest, 100.0).width_ == 3
    changed = replace(honest, **change)
    assert changed.problem() is None
    with pytest.raises(
        ProtocolError, match=r"party 'bank' sent noisy histograms .* at most 100 rec"
    ):
        published_encoding(changed, 100.0)


@pytest.mark.parametrize(
    ("bounds", "values"),
    [(Bounds(0, 100, 0, 1), [40, 40, 41, 90]), (Bounds(0, 9, 0, 1), [3]), (Bounds(0.0, 1.0), [0.0]),
     (Bounds(1, 1.5, 0, 1), [1]), (Bounds(-5.0, 90.0), [-5.0, 0.0, 1.5, 90.0])],
)  # fmt: skip
def test_the_server_encodes_as_the_party_does(bounds, values):
    """Without the unit: what it draws are the scores that the party's values have."""
    frame = pd.DataFrame({"x": np.repeat(values, 500)})
    rng = torch.Generator().manual_seed(0)
    released = release_divided_histograms(frame, {"x": bounds}, n_bins=8, noise_std=2.0, rng=rng)
    table = TableTransformer.from_histograms(frame, released)
    seed = torch.zeros(32, dtype=torch.uint8)
    message = published_histograms("bank", 0, table, seed)
    (own,), (seen,) = released.values(), published_encoding(message, math.inf).histograms_.values()
    drawn = (h.draw(2_000, np.random.default_rng(1)) for h in (own, seen))
    np.testing.assert_allclose(*drawn, rtol=1e-9, atol=1e-9)
    assert np.isfinite(own.encode(frame["x"])).all()


def test_a_party_refuses_a_generator_that_is_not_its_own(frames):
    run, _ = released(frames)
    run.algorithm.begin()
    del run.algorithm.end
    sent = run.algorithm.server.weights()
    party = run.parties["bank"]
    nan = sent["bank"].weights.clone()
    nan[0, 5] = torch.nan
    for weights in (sent["bank"].weights[:, 1:], nan, sent["bank"].weights.double(), nan[0]):
        with pytest.raises(ProtocolError, match="the server sent party 'bank' a generator with"):
            party.take(replace(sent["bank"], weights=weights))
    party.take(sent["bank"])
