"""DPLT through the real code: what is released, what it depends on, what crosses, what is kept."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from tests import planted
from tests.crossing import EVERY_RUN
from vflsynth import DPLTSynthesizer, LatentTree
from vflsynth._random import RandomStreams
from vflsynth.exceptions import ColumnKindError, ParameterError, PartyDataError, ProtocolError
from vflsynth.learning.messages import MaskedReal
from vflsynth.learning.products import ProductTerms, unit_grid
from vflsynth.mechanisms import DPSGD
from vflsynth.methods.latent_tree import method as server_module
from vflsynth.methods.latent_tree import party as party_module
from vflsynth.methods.latent_tree.messages import LatentTables
from vflsynth.methods.latent_tree.method import PublishTree
from vflsynth.methods.latent_tree.party import LatentTreeParty
from vflsynth.privacy import PublicSchema
from vflsynth.privacy.discovery import PublicEncoding
from vflsynth.privacy.events import releases_in
from vflsynth.privacy.histograms import exact_tables
from vflsynth.protocol.channel import Transcript
from vflsynth.run import local
from vflsynth.run.local import Options
from vflsynth.secure.products import ProductServer

pytestmark = pytest.mark.usefixtures("wide_blocks")

SCHEMA = PublicSchema(
    dtypes="given",
    bounds={"age": (0, 100), "income": (0.0, 40.0), "debt": (0.0, 400.0)},
    categories={"smoker": ("no", "yes"), "grade": (1, 2, 3), "ill": (False, True)},
)
PRIVACY = LatentTree(epsilon=20.0, delta=1e-3, public_schema=SCHEMA, n_bins=16)


@pytest.fixture
def frames():
    """Illness ties a column of one party to two of the other."""
    rng = np.random.default_rng(5)
    n = 800
    ill = rng.random(n) < 0.4
    smoker = pd.Series(np.where(ill ^ (rng.random(n) < 0.1), "yes", "no"), dtype=object)
    smoker[rng.random(n) < 0.2] = None
    income = np.where(ill, rng.normal(10, 2, n), rng.normal(20, 3, n)).clip(0, 40)
    return {
        "clinic": pd.DataFrame({"age": rng.integers(18, 90, n), "smoker": smoker, "ill": ill}),
        "bank": pd.DataFrame(
            {
                "income": income.astype("float32"),
                "grade": pd.Categorical(rng.integers(1, 4, n), [1, 2, 3], ordered=True),
                "debt": rng.gamma(2.0, 10.0, n),
            }
        ),
    }


def noise(seed=1):
    return torch.Generator().manual_seed(seed)


def fit(frames, privacy=PRIVACY, seed=1, **parameters):
    """Fit with injected noise, as a repeatable test needs it."""
    return refit(DPLTSynthesizer(privacy=privacy, random_state=0, **parameters), frames, seed)


def refit(model, frames, seed=1):
    model._fit_models([model], frames, None, Options(), noise=noise(seed))
    return model


def joined(frames):
    return pd.concat(list(frames.values()), axis=1)


# -- the estimator --------------------------------------------------------------------------------


def test_relations_within_and_across_parties_survive_within_the_public_bounds(frames):
    table = fit(frames).sample(3_000, random_state=0)
    real = joined(frames)
    # A latent attribute of eight states cannot tell all about three columns: weaker, but there.
    for data, most in ((table, -0.1), (real, -0.8)):
        assert data["ill"].astype(float).corr(data["income"].astype(float)) < most
    ill = table[table["ill"]]["smoker"].value_counts(normalize=True)["yes"]
    well = table[~table["ill"]]["smoker"].value_counts(normalize=True)["yes"]
    assert ill - well > 0.3
    assert table["smoker"].isna().mean() == pytest.approx(0.2, abs=0.05)
    assert table["debt"].mean() == pytest.approx(real["debt"].mean(), rel=0.2)
    assert table["age"].between(0, 100).all()
    assert table["income"].between(0, 40).all()


def test_what_is_saved_tells_neither_the_number_of_records_nor_any_of_them(frames, tmp_path):
    frames["bank"].loc[0, "debt"] = 123.456789
    synth = fit(frames, clone(PRIVACY).set_params(epsilon=1.0))
    synth.save(tmp_path / "model")
    loaded = DPLTSynthesizer.load(tmp_path / "model", device="cpu")
    assert loaded.alignment_ is None
    texts = [path.read_text() for path in (tmp_path / "model").rglob("*.json")]
    assert not any("123.456" in text or " 800," in text for text in texts)


def test_copies_and_pickles_tell_no_more_than_what_is_saved(frames):
    model = DPLTSynthesizer(privacy=PRIVACY, random_state=0).fit(frames, transcript=True)
    assert model.alignment_.n_matched == 800
    copied = copy.deepcopy(model)  # by what pickles hold
    assert copied.alignment_ is None
    assert copied.transcript_ is None
    pd.testing.assert_frame_equal(copied.sample(9), model.sample(9))
    assert model.alignment_.n_matched == 800


def test_the_order_of_parties_changes_no_table(frames):
    """Noise is drawn in another order, but who sends what does not change."""
    one, other = fit(frames), fit(dict(reversed(frames.items())))
    groups = [
        {name: len(set(half.sampler.latent_of)) for name, half in synth.parties_.items()}
        for synth in (one, other)
    ]
    assert groups[0] == groups[1] == {"clinic": 1, "bank": 1}
    ledgers = [synth.privacy_ledger_.epsilon() for synth in (one, other)]
    assert ledgers[0] == pytest.approx(ledgers[1])


# -- the guarantee --------------------------------------------------------------------------------


def run(frames, privacy=PRIVACY, seed=1):
    """Run a fit: parties, plan, latent attributes by party, and the tables that were published."""
    model = DPLTSynthesizer(privacy=privacy, random_state=0)
    parties, published, codes = [], [], {}
    honest_pairs, honest_tree = LatentTreeParty.attribute_tables, server_module.publish_tree
    honest_tables = party_module.release_tables

    def tables_of_a_party(codes, pairs, sizes, **options):
        index = list(pairs)
        tables = honest_tables(codes, index, sizes, **options)
        stds = [options["noise_std"]] * len(tables)
        values = [release.values for release in tables]
        published.append((exact_tables(codes, index, sizes), values, stds))
        return tables

    def attribute_tables(self, latents):
        parties.append(self)
        sizes = [latent.size for latent in latents]
        codes[self.name] = [*zip([states.copy() for states in self._latents], sizes, strict=True)]
        return honest_pairs(self, latents)

    def publish_tree(sizes, pairs, compared):
        joined = [(name, *latent) for name in sizes for latent in codes[name]]
        _, states, numbers = zip(*joined, strict=True)
        exact = exact_tables(states, pairs, numbers)
        noises = [1 if joined[a][0] == joined[b][0] else 2 for a, b in pairs]
        published.append((exact, list(pairs.values()), noises))
        return honest_tree(sizes, pairs, compared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(party_module, "release_tables", tables_of_a_party)
        patch.setattr(LatentTreeParty, "attribute_tables", attribute_tables)
        patch.setattr(server_module, "publish_tree", publish_tree)
        options = Options(transcript=True)
        found = model._fit_models([model], frames, None, options, noise=noise(seed))
    plan = found.method.plan
    exact, noisy, noises = published.pop()
    published.append((exact, noisy, [plan.tree_std * n**0.5 for n in noises]))
    return parties, plan, codes, published


def assert_published_as_the_ledger_says(frames):
    """Count tables and measure their noise, against the ledger's entries."""
    _, plan, _, published = run(frames)
    releases = {}
    for release in releases_in(plan.ledger.event):
        if "tables" in release.released:
            kind = "latent" in release.released
            releases.setdefault(kind, []).append(release)
    n_tables = {True: 0, False: 0}
    for exact, noisy, stds in published:
        for clear, table, std in zip(exact, noisy, stds, strict=True):
            assert std >= min(plan.tree_std, plan.pair_std)
            residuals = (table - clear).ravel()
            assert residuals.std() == pytest.approx(std, rel=5 / np.sqrt(2 * len(residuals)))
        n_tables[stds[0] in (plan.tree_std, plan.tree_std * 2**0.5)] += len(stds)
    for is_tree, entries in releases.items():
        std = plan.tree_std if is_tree else plan.pair_std
        assert n_tables[is_tree] == pytest.approx(sum(e.sensitivity**2 for e in entries))
        assert all(entry.noise_std == pytest.approx(std) for entry in entries)
    assert sum(len(exact) for exact, _, _ in published) == 3 + 3 + 6 + 1


def test_tables_and_noise_are_those_of_the_ledger(frames):
    assert_published_as_the_ledger_says(frames)


def plant_in(patch, name, party, plant):
    """Plant a bug in the noise that one method of one party, or of all, draws."""
    honest = getattr(LatentTreeParty, name)

    def changed(self, *rest):
        with pytest.MonkeyPatch.context() as inner:
            if party in (None, self.name):
                plant(inner)
            return honest(self, *rest)

    patch.setattr(LatentTreeParty, name, changed)


@pytest.mark.parametrize(
    ("name", "party"),
    [("pair_tables", None), ("latent_tables", "bank"), ("sum_shares", None)],
)
def test_tables_without_noise_are_noticed(frames, monkeypatch, name, party):
    plant_in(monkeypatch, name, party, planted.no_noise)
    with pytest.raises(AssertionError):
        assert_published_as_the_ledger_says(frames)


def assert_tables_across_parties_have_the_noise_of_both(frames):
    found = []
    for seed in range(5):
        exact, noisy, stds = run(frames, seed=seed)[3][-1]
        found += [((n - e) / std).ravel() for e, n, std in zip(exact, noisy, stds, strict=True)]
    noise = np.concatenate(found)
    assert abs(noise.std() - 1.0) < 5 / np.sqrt(2 * len(noise))


def test_each_party_adds_its_noise_in_full(frames):
    assert_tables_across_parties_have_the_noise_of_both(frames)


@pytest.mark.slow
@pytest.mark.parametrize("party", ["bank", "clinic"])
def test_a_party_that_adds_none_is_noticed(frames, monkeypatch, party):
    plant_in(monkeypatch, "sum_shares", party, planted.no_noise)
    with pytest.raises(AssertionError):
        assert_tables_across_parties_have_the_noise_of_both(frames)


def test_a_forgotten_party_is_noticed(frames, monkeypatch):
    honest = ProductServer.totals
    monkeypatch.setattr(
        ProductServer, "totals", lambda self, shares: honest(self, {"bank": shares["bank"]})
    )
    with pytest.raises(ProtocolError, match="party 'clinic' sent shares: nothing"):
        fit(frames)


def test_the_ledger_adds_up_to_the_budget(frames):
    synth = fit(frames)
    ledger = synth.privacy_ledger_
    assert 19.99 < ledger.epsilon() <= 20.0
    assert ledger.shares() == pytest.approx(
        {"preprocessing": 0.2, "latent attributes": 0.4, "latent tree": 0.4}
    )
    against = " ".join(str(ledger).split())
    assert "NOT protected against a party and the server together" in against
    assert "Protected against recipients" in against
    assert "the server and the other parties: they see uniformly random numbers" in against
    squared_mu = sum(r.noise_multiplier**-2 for r in releases_in(ledger.event))
    single = fit(frames, clone(PRIVACY).set_params(epsilon=None, noise_multiplier=2.0))
    given = sum(r.noise_multiplier**-2 for r in releases_in(single.privacy_ledger_.event))
    assert given == pytest.approx(0.25)
    assert squared_mu > given
    assert json.loads(json.dumps(ledger.to_dict()))["covers_synthetic_data"] is True


def test_replacing_a_record_needs_more_noise(frames):
    replaced = clone(PRIVACY).set_params(neighbouring_relation="replace_one")
    plans = [run(frames, privacy)[1] for privacy in (PRIVACY, replaced)]
    assert plans[1].tree_std == pytest.approx(plans[0].tree_std * 2**0.5)
    assert plans[1].pair_std == pytest.approx(plans[0].pair_std * 2**0.5)


def test_a_latent_attribute_is_a_function_of_one_record(frames, monkeypatch):
    """Given what was published, the other records do not matter."""
    released = []
    honest_tables = party_module.release_tables
    honest_histograms = PublicEncoding.histograms

    def keep(honest):
        def call(*arguments, **options):
            released.append(honest(*arguments, **options))
            return released[-1]

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(party_module, "release_tables", keep(honest_tables))
        patch.setattr(PublicEncoding, "histograms", keep(honest_histograms))
        codes = run(frames)[2]
    assert len(released) == 2 * 3  # two parties; histograms, pairs, and latents with columns
    monkeypatch.setattr(party_module, "release_tables", lambda *a, **k: released.pop(0))
    monkeypatch.setattr(PublicEncoding, "histograms", lambda *a, **k: released.pop(0))
    few = {name: frame.iloc[:40] for name, frame in frames.items()}
    for name, latents in run(few)[2].items():
        for (latent, size), (before, size_before) in zip(latents, codes[name], strict=True):
            assert size == size_before
            assert latent.tolist() == before[:40].tolist()


def test_without_information_only_the_public_schema_is_known(frames):
    """With noise to infinity, two populations that differ in everything give the same model."""
    other = {
        "clinic": pd.DataFrame({"age": [99] * 800, "smoker": ["yes"] * 800, "ill": [True] * 800}),
        "bank": pd.DataFrame(
            {
                "income": np.full(800, 39.0, "float32"),
                "grade": pd.Categorical([3] * 800, [1, 2, 3], ordered=True),
                "debt": 399.0,
            }
        ),
    }
    other["clinic"] = other["clinic"].astype({"smoker": object})
    drowned = clone(PRIVACY).set_params(epsilon=None, noise_multiplier=1e12)
    one, two = (fit(data, drowned).sample(50, random_state=3) for data in (frames, other))
    pd.testing.assert_frame_equal(one, two, atol=1e-3)


# -- boundaries and refusals ----------------------------------------------------------------------


def test_only_declared_messages_cross(frames, monkeypatch):
    kept = Transcript(keep_messages=True)
    monkeypatch.setattr(local, "Transcript", lambda: kept)
    synth = DPLTSynthesizer(privacy=PRIVACY).fit(frames, transcript=True)
    kinds = [type(message).__name__ for message in kept.messages]
    assert set(kinds) == EVERY_RUN | {
        "LatentTables",
        "MaskedStates",
        "VerifierSeeds",
        "TagsAgreed",
        "SumShares",
        "LatentTree",
    }
    for once in ("LatentTables", "MaskedStates", "VerifierSeeds", "SumShares", "LatentTree"):
        assert kinds.count(once) == 2
    assert synth.transcript_ is not None


def test_after_the_release_a_party_has_no_codes(frames):
    parties = run(frames)[0]
    for party in parties:
        assert not hasattr(party, "latents")
        with pytest.raises(ProtocolError, match="cannot answer"):
            party.answer(MaskedReal, 0)


def publish(told):
    terms = ProductTerms.of(10, {"a": 2, "b": 1}, 4, unit_grid(2.0), 1)
    return PublishTree(None, terms, 10, RandomStreams([b""])).put_together({"a": told}, {})


@pytest.mark.parametrize("sizes", [[3], [3, 5], [0, 3], [2, 2, 2]])
def test_numbers_of_states_that_there_is_no_room_for_are_refused_by_name(sizes):
    told = LatentTables("a", "server", 0, torch.zeros(0, dtype=torch.int64), torch.tensor(sizes))
    with pytest.raises(ProtocolError, match="party 'a' says that its latent attributes have"):
        publish(told)


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        (torch.zeros(5, dtype=torch.int64), "5 counts of .*expected 6"),
        (torch.full((6,), 2**63 - 1), "6 counts of up to .*at most 50, noise included"),
        (torch.full((6,), -(2**63)), "6 counts of up to .*at most 50, noise included"),
    ],
)
def test_tables_that_cannot_be_are_refused_by_name(counts, says):
    told = LatentTables("a", "server", 0, counts, torch.tensor([3, 2]))
    with pytest.raises(ProtocolError, match=f"party 'a' sent {says}"):
        publish(told)


@pytest.mark.parametrize(
    "privacy", [None, 3.0, DPSGD(epsilon=1.0, delta=1e-3, public_schema=SCHEMA)]
)
def test_another_privacy_is_refused(frames, privacy):
    with pytest.raises(ParameterError, match="LatentTree"):
        DPLTSynthesizer(privacy=privacy).fit(frames)


@pytest.mark.parametrize(
    "parameters",
    [
        {"group_size": 5},
        {"group_size": 0},
        {"n_states": 1},
        {"n_latent_states": 1},
        {"n_states": 65_534},
    ],
)
def test_parameters_out_of_range_are_named(frames, parameters):
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        DPLTSynthesizer(privacy=PRIVACY, **parameters).fit(frames)


def test_a_column_that_identifies_records_is_named(frames):
    frames["bank"]["account"] = [f"account {i}" for i in range(len(frames["bank"]))]
    with pytest.raises(PartyDataError, match=r"'bank', column 'account': no value .* frequent"):
        DPLTSynthesizer(privacy=PRIVACY).fit(frames)


def test_dates_are_refused_by_name(frames):
    frames["bank"]["debt"] = pd.Timestamp("2020-01-01")
    with pytest.raises(ColumnKindError, match="'bank', column 'debt'"):
        DPLTSynthesizer(privacy=PRIVACY).fit(frames)
