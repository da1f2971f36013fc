"""ASSD and ASIF from end to end, on models too small to leak much."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, clone

from tests import planted
from tests.later import later
from tests.unit.audit.conftest import make_tiny
from vflsynth import (
    FirstLayer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    MixtureSynthesizer,
    PairwiseTables,
    VertiGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.adversary import (
    DEFAULT_STATISTICS,
    Correlation,
    LikelihoodRatio,
    Naive,
    RandomForest,
    RegularisedLogistic,
    SharedValues,
)
from vflsynth.audit import (
    Claim,
    JoinedTable,
    audit_disclosure,
    audit_intermediate_features,
    audit_synthetic_data,
    audit_with_canaries,
    shadow,
)
from vflsynth.audit.game import LeaveOneOutGame, columns_left_out
from vflsynth.audit.observers import DensityObserver, FeatureObserver
from vflsynth.contract import ColumnContract, Contract, PartyContract
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ParameterError, PartyDataError, UnseenValueError
from vflsynth.privacy import PublicSchema

QUICK = [RandomForest(n_trees=20)]
FEW = {"n_models": 10, "statistics": [Naive()], "adversaries": QUICK, "verbose": 0}
"""As few models as there may be, judged by one statistic and one quick adversary."""


@pytest.mark.slow
def test_assd_gives_an_answer_per_target_and_attack(small_frames, tiny):
    audit = audit_synthetic_data(
        tiny,
        small_frames,
        "record_id",
        n_models=12,
        categorical=["count_1"],
        adversaries=[*QUICK, RegularisedLogistic(inverse_penalties=(1.0,))],
        verbose=0,
    )
    assert [target.chosen_by for target in audit.targets] == [("farthest",), ("most_outlying",)]
    frame = audit.to_frame()
    assert len(frame) == 2 * (len(DEFAULT_STATISTICS) * 2 + 1)  # and all of them stacked
    assert frame["strongest"].sum() == 2
    assert (frame["n_test"] == 12).all()
    assert (audit.n_models, audit.n_records, audit.n_trained) == (12, 40, 36)
    content = json.loads(audit.to_json())
    assert content["targets"][0]["conclusion"]


def test_a_record_chosen_twice_is_audited_once(number_frames):
    number_frames["left"].loc[9] = [50.0, -50.0]
    number_frames["right"].loc[9] = [-50.0, 1.0]
    targets = ["farthest", "most_outlying", 9]
    audit = audit_synthetic_data(slow, number_frames, targets=targets, **FEW)
    assert [target.target for target in audit.targets] == [9]
    assert set(audit.targets[0].chosen_by) == {"farthest", "most_outlying", "named"}


@pytest.mark.slow
def test_the_papers_protocol_comes_on_top(small_frames, tiny):
    audit = audit_synthetic_data(
        tiny,
        small_frames,
        "record_id",
        targets=["farthest"],
        n_models=20,
        statistics=[Naive(), Correlation()],
        adversaries=QUICK,
        protocol="paper",
        verbose=0,
    )
    table = audit.paper_protocol()
    assert table["statistic"].tolist() == ["naive", "correlation"]
    # Five splits of 6 + 6 test models: accuracies are multiples of 1 / 60.
    np.testing.assert_allclose(table["mean"] * 60, (table["mean"] * 60).round())
    assert len(audit.targets[0].attacks) == 3  # and both together


def test_bounds_are_computed_at_the_claimed_delta(number_frames):
    claim = Claim(3.0, 1e-3)
    audit = audit_synthetic_data(slow, number_frames, targets=["farthest"], claim=claim, **FEW)
    assert audit.delta == 1e-3
    assert not audit.contradicts_claim
    assert (
        "ε = 3 at δ = 0.001 (one record across all parties, added or removed) is not contradicted"
        in str(audit)
    )


@pytest.fixture
def private(number_frames, short_searches):
    """A synthesizer with differential privacy, and frames within its public bounds."""
    frames = {name: frame.clip(-3.0, 3.0) for name, frame in number_frames.items()}
    privacy = PairwiseTables(
        epsilon=2.0,
        delta=1e-3,
        public_schema=PublicSchema(dtypes="given", bounds=dict.fromkeys("abcd", (-3.0, 3.0))),
        n_bins=4,
    )
    return MixtureSynthesizer(privacy=privacy, n_components=2), frames


def test_a_private_model_is_audited_beside_its_own_claim(private, tmp_path):
    synthesizer, frames = private
    options = FEW | {"targets": [3], "cache": tmp_path}
    audit = audit_synthetic_data(synthesizer, frames, **options)
    assert audit.claim.epsilon == pytest.approx(2.0)
    assert (audit.claim.delta, audit.claim.relation) == (1e-3, "add_or_remove_one")
    assert audit.delta == 1e-3
    assert "The claimed ε = 2 at δ = 0.001 (one record across all parties, added" in str(audit)
    again = audit_synthetic_data(synthesizer, frames, **options)
    assert (again.n_trained, again.claim) == (0, audit.claim)
    stated = audit_synthetic_data(synthesizer, frames, claim=Claim(9.0), **options)
    assert stated.claim == Claim(9.0)


@pytest.mark.slow
def test_a_claim_about_replaced_records_is_not_compared_with_worlds_that_lack_one(private):
    synthesizer, frames = private
    synthesizer = clone(synthesizer).set_params(privacy__neighbouring_relation="replace_one")
    audit = audit_synthetic_data(synthesizer, frames, targets=[3], **FEW)
    assert audit.claim.relation == "replace_one"
    assert not audit.contradicts_claim
    assert "neither contradicted nor supported" in str(audit)


def test_canaries_take_the_claim_of_the_model_too(private):
    synthesizer, frames = private
    audit = audit_with_canaries(synthesizer, frames, n_canaries=20)
    assert audit.claim.epsilon == pytest.approx(2.0)
    assert audit.delta == 1e-3


def test_nothing_is_trained_for_intermediate_features_that_nobody_sends(number_frames):
    with pytest.raises(ParameterError, match="local discriminators"):
        audit_intermediate_features(
            GaussianCopulaSynthesizer(), number_frames, targets=[3], n_models=10
        )


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_models": 9}, "n_models"),
        ({"protocol": "other"}, "protocol"),
        ({"confidence": 1.5}, "confidence"),
        ({"targets": []}, "targets"),
        ({"targets": "farthest"}, "targets"),
        ({"statistics": Naive()}, "statistics"),
        ({"adversaries": []}, "adversaries must be one Adversary or more"),
        ({"adversaries": RandomForest()}, "adversaries"),
        ({"adversaries": [RandomForest]}, "Adversary or more, got"),
        ({"random_state": -1}, "random_state"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_parameters_are_refused_by_name(small_frames, tiny, options, match):
    with pytest.raises(ParameterError, match=match):
        audit_synthetic_data(tiny, small_frames, "record_id", **options)


def test_an_unknown_target_is_refused_with_what_there_is(small_frames, tiny):
    with pytest.raises(PartyDataError, match="one of the 40 matched keys, or one of 'farthest'"):
        audit_synthetic_data(tiny, small_frames, "record_id", targets=["nobody"])


def slow(party_frames, random_state):
    """Publishes half-hearted noise after a while."""
    shadow.time.sleep(0.01)
    names = [column for frame in party_frames.values() for column in frame]
    return pd.DataFrame(np.random.default_rng(random_state).normal(size=(20, 4)), columns=names)


def test_an_audit_keeps_to_its_minutes_and_says_what_that_costs(own_time, number_frames, caplog):
    options = FEW | {"targets": [3], "n_models": 5000, "minutes": 0.02}
    with caplog.at_level("INFO", logger="vflsynth"):
        audit = audit_synthetic_data(slow, number_frames, **options)
    assert 10 <= audit.n_models < 60  # of at most 1.2 seconds
    assert audit.n_trained == 2 * audit.n_models
    assert len(audit.targets[0].strongest.scores) == 2 * (audit.n_models - audit.n_models // 2)
    assert f"{audit.n_models} models per world will take about 1 s more" in caplog.text
    assert "is found with probability 80%" in caplog.text
    with pytest.raises(ParameterError, match="do not suffice for 10 models per world"):
        audit_synthetic_data(slow, number_frames, **options | {"n_models": 50, "minutes": 1e-4})


def test_a_pilot_changes_no_result(own_time, number_frames):
    first, second = (
        audit_synthetic_data(slow, number_frames, targets=[3], minutes=minutes, **FEW).to_frame()
        for minutes in (None, 5)
    )
    pd.testing.assert_frame_equal(first, second)


class OneTable:
    """As other packages' models are: one table, no parameters to ask for, a seed of its own."""

    def fit(self, table, discrete_columns=()):
        self.table, self.discrete = table, discrete_columns

    def set_random_state(self, random_state):
        self.seed = random_state

    def sample(self, n):
        rows = np.random.default_rng(self.seed).integers(len(self.table), size=n)
        return self.table.iloc[rows, ::-1].reset_index(drop=True)


def test_models_of_one_table_are_audited_and_cached(number_frames, tmp_path):
    model = JoinedTable(OneTable(), {"discrete_columns": ["a"]})
    options = FEW | {"targets": [3], "n_models": 80, "cache": tmp_path}
    options["statistics"] = [SharedValues()]
    audit = audit_synthetic_data(model, number_frames, **options)
    assert audit.headline == "An attacker beats guessing."
    assert audit_synthetic_data(model, number_frames, **options).n_trained == 0
    options["n_models"] = 10
    read_as_labels = audit_synthetic_data(model, number_frames, categorical=["a"], **options)
    assert read_as_labels.n_trained == 20
    with pytest.raises(ParameterError, match=r"fit\(table\)"):
        JoinedTable("CTGAN").fit(number_frames)


class Kernel(BaseEstimator):
    """Publishes noise about its records, and says how near the nearest is."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, party_frames, on=None):
        self.table_ = pd.concat(list(party_frames.values()), axis=1)
        return self

    def sample(self, n):
        rng = np.random.default_rng(self.random_state)
        return pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))

    def log_prob(self, frame):
        apart = frame.to_numpy()[:, None] - self.table_[frame.columns].to_numpy()
        return pd.Series(-(apart**2).sum(2).min(1), frame.index)


def test_who_holds_the_model_asks_it_and_who_holds_the_table_does_not(number_frames, tmp_path):
    options = FEW | {"targets": [3], "n_models": 20, "cache": tmp_path}
    audit = audit_synthetic_data(Kernel(), number_frames, attacker="model", **options)
    table, model = audit.targets
    assert (table.source, model.source) == ("synthetic data", "model itself")
    assert not audit.beats_guessing(table)
    assert audit.beats_guessing(model)
    assert "for whoever sees the fitted model" in " ".join(audit.conclusion(model))
    assert "they hold it in place of the table" in audit.threat_model
    plain = audit_synthetic_data(Kernel(), number_frames, **options)
    assert len(plain.targets) == 1
    assert "hold it" not in plain.threat_model
    with pytest.raises(ParameterError, match="needs a synthesizer with log_prob"):
        audit_synthetic_data(slow, number_frames, attacker="model", targets=[3], n_models=10)


def test_a_model_is_asked_about_the_record_and_about_each_party_s_half(number_frames):
    game = LeaveOneOutGame(number_frames)
    model = Kernel().fit({name: frame[1:] for name, frame in number_frames.items()})
    parties = [list(frame) for frame in number_frames.values()]
    observer = DensityObserver(game.table, {0: game.table.loc[[0]]}, parties)
    (found,) = observer.observe(model, [0]).values()
    expected = []
    for columns in (list(game.table), *parties):
        own = model.log_prob(game.table[columns])  # all but record 0 are at distance zero
        expected += [own[0], float((own[1:] < own[0]).mean())]
    np.testing.assert_allclose(found, expected)
    assert len(found) == 2 * (1 + len(parties))
    alone = DensityObserver(game.table, {0: game.table.loc[[0]]}).observe(model, [0])
    np.testing.assert_array_equal(*alone.values(), found[:2])


# -- intermediate features -------------------------------------------------------------------------


def test_asif_audits_every_party_by_itself(small_frames, tiny):
    audit = audit_intermediate_features(
        tiny, small_frames, "record_id", targets=["farthest"], **FEW
    )
    assert [target.source for target in audit.targets] == [
        "intermediate features of party_1",
        "intermediate features of party_2",
    ]
    assert audit.scheme == "ASIF"


def test_features_are_those_of_encoded_records_in_the_order_of_keys(small_frames, tiny):
    """What the reference code got wrong: raw values, in the columns' order in the file."""
    shuffled = {
        name: frame.sample(frac=1, random_state=1, ignore_index=True)
        for name, frame in small_frames.items()
    }
    (model,) = tiny.fit_replicas(shuffled, "record_id", random_states=[3], keep_discriminators=True)
    recorded = {}

    class Record(Naive):
        def fit(self, table, categorical=()):
            recorded[len(recorded)] = table
            return super().fit(table, categorical)

    aligned = {name: frame.set_index("record_id").sort_index() for name, frame in shuffled.items()}
    FeatureObserver([Record()], aligned, []).observe(model, [])
    for features, (name, frame) in zip(recorded.values(), aligned.items()):
        transformer = model.parties_[name].transformer
        encoded = torch.from_numpy(transformer.spread(transformer.transform(frame)))
        network = model.local_discriminators_[name].first_part
        expected = network.trace(encoded.unsqueeze(0))[-1][0].detach().numpy()
        np.testing.assert_allclose(features.to_numpy(), expected, rtol=1e-5, atol=1e-6)
        assert features.index.tolist() == sorted(frame.index)
        assert abs(encoded.mean(0)).max() < 1.5  # standardised, whatever the raw units are


def test_features_are_of_each_model_s_own_encoding(tiny, number_frames):
    """Private models buy their ranges with noise, each its own."""
    models = []
    for scale in (1.0, 9.0):
        frames = {name: scale * frame for name, frame in number_frames.items()}
        models += tiny.fit_replicas(frames, random_states=[3], keep_discriminators=True)
    observer = FeatureObserver([Naive()], number_frames, [3])
    together = [observer.observe(model, [3]) for model in models]
    for model, found in zip(models, together):
        alone = FeatureObserver([Naive()], number_frames, [3]).observe(model, [3])
        for label, values in alone.items():
            np.testing.assert_allclose(found[label], values)


def test_features_are_of_what_discriminators_were_trained_on(tiny):
    """A number that another one all but gives is judged by what is left of it, equal ones apart."""
    x = np.random.default_rng(0).normal(size=(2, 200))
    one = x[0].round(1)
    frame = pd.DataFrame({"one": one, "same": (one + 0.03 * x[1]).round(2)}, index=range(200))
    (model,) = tiny.fit_replicas(
        {"a": frame, "b": frame.add_suffix(" b")}, random_states=[3], keep_discriminators=True
    )
    recorded = []

    class Record(Naive):
        def fit(self, table, categorical=()):
            recorded.append(table.to_numpy())
            return super().fit(table, categorical)

    FeatureObserver([Record()], {"a": frame}, []).observe(model, [])
    transformer, left = model.parties_["a"].transformer, model.local_residuals_["a"].take_out
    equal = torch.from_numpy(transformer.transform(frame))
    encoded = torch.from_numpy(transformer.spread(transformer.transform(frame)))
    network = model.local_discriminators_["a"].first_part
    expected, *others = (
        network.trace(x[None])[-1][0].detach().numpy()
        for x in (left(encoded), left(equal), encoded)
    )
    np.testing.assert_allclose(recorded[0], expected, rtol=1e-5, atol=1e-6)
    for other in others:
        assert abs(other - expected).max() > 0.01


@pytest.mark.parametrize("kind", [VertiGANSynthesizer, *later(WGANGPSynthesizer)])
def test_a_synthesizer_without_intermediate_features_is_refused(small_frames, kind):
    synthesizer = kind(generator_hidden=(4,), epochs=1, batch_size=8, device="cpu")
    with pytest.raises(ParameterError, match="sends no intermediate features"):
        audit_intermediate_features(synthesizer, small_frames, "record_id", n_models=10, verbose=0)


def test_a_target_with_a_label_of_its_own_is_refused_with_a_reason(number_frames, tiny):
    frames = dict(number_frames)
    labels = ["common", "usual"] * 20
    labels[5] = "unique"
    frames["left"] = frames["left"].assign(label=labels)
    with pytest.raises(UnseenValueError, match=r"'label'.*occurs in the target only"):
        audit_intermediate_features(tiny, frames, targets=[5], n_models=10, verbose=0)


def test_discriminators_are_kept_in_memory_only(small_frames, tiny, tmp_path):
    (model,) = tiny.fit_replicas(
        small_frames, "record_id", random_states=[0], keep_discriminators=True
    )
    (plain,) = tiny.fit_replicas(small_frames, "record_id", random_states=[0])
    assert not hasattr(plain, "local_discriminators_")
    model.save(tmp_path / "model")
    assert not [file for file in tmp_path.rglob("*") if "discriminator" in file.name]
    assert not hasattr(type(model).load(tmp_path / "model"), "local_discriminators_")


def test_columns_that_a_contract_leaves_out_are_in_no_question():
    frames = make_party_frames(120, 2, random_state=0)
    party, frame = next(iter(frames.items()))
    numbers = range(len(frame))
    noted = frame.assign(note=[f"note {i}" for i in numbers], mail=[f"a{i}@b.c" for i in numbers])
    noted = {**frames, party: noted}
    left_out = {
        "note": ColumnContract(role="free text"),
        "mail": ColumnContract(role="identifier", replacement="surrogate"),  # comes out, made up
    }
    contract = Contract({party: PartyContract(columns=left_out)})
    synth = IndependentSynthesizer(contract=contract, random_state=0)
    assert len(audit_disclosure(synth, noted, "record_id").shown) == 2
    assert audit_with_canaries(synth, noted, "record_id", n_canaries=20).n_canaries == 20
    game = LeaveOneOutGame(noted, "record_id", left_out=columns_left_out(synth))
    assert not {"note", "mail"} & set(game.table)
    assert all("note" in world.party_frames[party] for world in game.worlds([]))


@pytest.mark.slow
@pytest.mark.parametrize("bug", [None, planted.no_noise])
def test_releases_of_a_private_run_are_audited_as_they_were_published(private, monkeypatch, bug):
    """With noise they tell what was claimed at most; without it the record is read off them."""
    synthesizer, frames = private
    if bug is not None:
        bug(monkeypatch)
    audit = audit_intermediate_features(
        clone(synthesizer).set_params(privacy__epsilon=1.0),
        frames,
        targets=["farthest"],
        n_models=24,
        adversaries=[LikelihoodRatio()],
        verbose=0,
    )
    (target,) = audit.targets
    assert target.source == "releases"
    assert audit.claim is not None
    assert "for whoever sees all releases of the run" in str(audit)
    assert audit.contradicts_claim == (bug is not None)
    assert (target.strongest.auc.value > 0.95) == (bug is not None)


@pytest.mark.slow
def test_features_of_a_private_run_are_audited_with_the_mechanism_in_place(number_frames):
    """The first layer's noise is drawn anew in every shadow model."""
    synthesizer = make_tiny().set_params(privacy=FirstLayer(epsilon=10.0, delta=1e-3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = audit_intermediate_features(
            synthesizer, number_frames, targets=[3], n_models=10, adversaries=QUICK, verbose=0
        )
    assert [one.source for one in audit.targets] == [
        f"intermediate features of {party}" for party in number_frames
    ]
    assert audit.claim is None
