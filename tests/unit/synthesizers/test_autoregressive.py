"""The split autoregressive synthesizer: many models, resumed runs, what crosses, what is kept."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression
from torch.nn.functional import cross_entropy

from tests.callbacks import StopAfter
from tests.crossing import EVERY_RUN
from tests.distances import total_variation
from tests.later import later
from vflsynth import (
    AutoregressiveSynthesizer,
    IndependentSynthesizer,
    PairwiseTables,
    PartyModel,
    TableTransformer,
)
from vflsynth._random import RandomStreams, repeatable, secret_from
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import (
    ArtefactError,
    ParameterError,
    PartyDataError,
    PrivacyParameterError,
    ProtocolError,
)
from vflsynth.learning.base import AveragingAdam
from vflsynth.methods.autoregressive import server as autoregressive_server
from vflsynth.methods.autoregressive.contexts import into_ball
from vflsynth.methods.autoregressive.method import AutoregressiveMethod
from vflsynth.methods.autoregressive.party import AutoregressiveParty
from vflsynth.methods.autoregressive.server import ContextServer, _confusion, _confusion_gradient
from vflsynth.methods.autoregressive.settings import AutoregressiveSettings
from vflsynth.models.party_model import sample_parties
from vflsynth.protocol.schedule import HeldOutSchedule

KEY = "record_id"
FAST = {"hidden": 8, "n_features": 16, "device": "cpu", "verbose": 0, "random_state": 0}
FAST |= {"structure": "ignore"}  # which nobody asks for here
PROTOCOLS = ["bounded", "trained", "one_message"]
BOUNDED_SOON = ["bounded", *later(*PROTOCOLS[1:])]
"""The default's tests are quick, the others' wait for `make slow`."""

pytestmark = pytest.mark.usefixtures("quick_contexts")


@pytest.fixture(autouse=True, scope="module")
def _few_steps(few_steps):
    """What contexts tell is asked where `SMALL_CRITICS` or more are trained."""


@pytest.fixture(scope="module")
def frames():
    return make_party_frames(60, 3, random_state=2)


MOST_STEPS = autoregressive_server._MAX_STEPS
SMALL_CRITICS = {
    "_BATCH_SIZE": 128,
    "_MAX_STEPS": MOST_STEPS,
    "_CRITIC_HIDDEN": 64,
    "_CRITIC_OUT": 32,
    "_PATIENCE": 500,
}
"""As patient as users' are: contexts that stop sooner may tell of the wrong feature."""


@pytest.fixture
def small_critics(monkeypatch):
    """Contexts that tell what they are to tell: of smaller critics, which takes less time."""
    for name, value in SMALL_CRITICS.items():
        monkeypatch.setattr(autoregressive_server, name, value)


def make(**changes):
    return AutoregressiveSynthesizer(**FAST | {"epochs": 4} | changes)


@pytest.fixture(scope="module")
def fitted(frames, quick_contexts):
    """For tests that read it only."""
    return make().fit(frames, KEY, transcript=True)


def assert_alike(one, other, **tolerance):
    for name, party in one.parties_.items():
        tensors = other.parties_[name].sampler.tensors()
        assert party.sampler.tensors().keys() == tensors.keys()
        for key, value in party.sampler.tensors().items():
            torch.testing.assert_close(value, tensors[key], msg=f"{name} {key}", **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", BOUNDED_SOON)
def test_a_replica_equals_the_same_model_trained_alone(frames, protocol):
    synth = make(protocol=protocol)
    together = synth.fit_replicas(frames, KEY, random_states=[5, 6])
    for state, model in zip((5, 6), together, strict=True):
        alone = make(protocol=protocol, random_state=state).fit(frames, KEY)
        assert_alike(model, alone, rtol=2e-3, atol=2e-4)
        columns = [c for c in alone.history_ if c not in ("seconds", "chosen")]
        pd.testing.assert_frame_equal(
            model.history_[columns], alone.history_[columns], rtol=1e-3, atol=1e-4
        )


def test_replicas_have_rows_of_their_own(frames):
    rows = np.stack([np.arange(40), np.arange(20, 60)])
    models = make().fit_replicas(frames, KEY, random_states=[5, 5], replica_rows=rows)
    first, second = (m.parties_["party_1"].sampler.tensors() for m in models)
    assert not torch.equal(first["network.last_bias"], second["network.last_bias"])
    assert torch.equal(first["features.codes"], second["features.codes"])


@pytest.mark.parametrize("protocol", BOUNDED_SOON)
def test_stopped_and_resumed_equals_unbroken(frames, fitted, tmp_path, protocol):
    """The contexts are the first ones: the bound is for one snapshot, and nobody gets a second."""
    unbroken = fitted if protocol == "bounded" else make(protocol=protocol).fit(frames, KEY)
    stopped = make(protocol=protocol).fit(
        frames, KEY, callbacks=[StopAfter(2)], checkpoint=tmp_path / "run", checkpoint_every=1
    )
    assert len(stopped.history_) == 2
    for _ in "ab":  # the second time there is nothing left to train
        resumed = make(protocol=protocol).fit(frames, KEY, resume=tmp_path / "run", transcript=True)
        crossed = set(resumed.transcript_["message"])
        assert protocol == "trained" or not crossed & {"RecordContexts", "RecordFeatures"}
        assert_alike(resumed, unbroken, rtol=0, atol=0)
        one, other = (s.history_.drop(columns="seconds") for s in (resumed, unbroken))
        pd.testing.assert_frame_equal(one, other)
    assert json.loads((tmp_path / "run" / "progress.json").read_text())["epoch"] == 4


def test_a_run_that_stopped_improving_is_over_also_when_resumed(frames, tmp_path):
    synth = make(epochs=200, patience=1, learning_rate=0.1)
    first = synth.fit(frames, KEY, checkpoint=tmp_path / "run", checkpoint_every=50)
    assert len(first.history_) < 50
    again = make(epochs=200, patience=1, learning_rate=0.1).fit(
        frames, KEY, resume=tmp_path / "run"
    )
    pd.testing.assert_frame_equal(again.history_, first.history_)


# -- what crosses ------------------------------------------------------------------------------


def crossings(synth, kind):
    table = synth.transcript_
    return table[table["message"] == kind].set_index("receiver")


def test_one_noisy_context_per_record_and_its_bound_are_in_the_transcript(frames):
    synth = make(bits_per_record=8.0).fit(frames, KEY, transcript=True)
    contexts = crossings(synth, "RecordContexts")
    assert contexts["messages"].tolist() == [1, 1, 1]
    assert contexts.loc["party_1", "contents"] == "bits_per_record = 0; contexts (1, 60, 0)"
    assert contexts.loc["party_3", "contents"] == "bits_per_record = 8; contexts (1, 60, 6)"
    sent = synth.transcript_[synth.transcript_["receiver"] == "server"]
    made_of_records = sent[sent["message"] == "RecordFeatures"]
    assert made_of_records["messages"].tolist() == [1, 1, 1]
    parts = sent[sent["message"] == "ContextParts"].set_index("sender")["contents"]
    assert parts["party_1"] == "parts (1, 60, 2, 6)"
    assert parts["party_3"] == "parts (1, 60, 0, 6)"
    assert not set(sent["message"]) & {"BatchRows", "ContextGradients"}


def test_the_server_sees_features_of_some_records_only(frames, monkeypatch):
    monkeypatch.setattr("vflsynth.methods.autoregressive.method._MOST_FEATURED", 32)
    synth = make().fit(frames, KEY, transcript=True)
    features = synth.transcript_[synth.transcript_["message"] == "RecordFeatures"]
    assert set(features["contents"]) == {"features (1, 32, 16)"}
    contexts = crossings(synth, "RecordContexts")
    assert contexts.loc["party_2", "contents"] == "bits_per_record = 8; contexts (1, 60, 6)"


def test_records_are_encoded_part_by_part_alike(frames, fitted, monkeypatch):
    whole = fitted.sample(30, random_state=1)
    monkeypatch.setattr("vflsynth.methods.autoregressive.party.ENCODED_AT_ONCE", 60)
    pd.testing.assert_frame_equal(make().fit(frames, KEY).sample(30, random_state=1), whole)


@pytest.mark.parametrize(
    "protocol", ["one_message", pytest.param("trained", marks=pytest.mark.slow)]
)
def test_features_cross_block_by_block(frames, monkeypatch, protocol):
    whole = make(protocol=protocol).fit(frames, KEY)
    monkeypatch.setattr("vflsynth.methods.autoregressive.settings.FEATURE_BLOCK", 25)
    parts = make(protocol=protocol).fit(frames, KEY, transcript=True)
    assert_alike(parts, whole, rtol=0, atol=0)
    sent = parts.transcript_[parts.transcript_["message"] == "RecordFeatures"]
    assert set(sent["messages"]) == {3}
    if protocol == "one_message":
        assert set(crossings(parts, "RelayedFeatures")["messages"]) == {3}


def test_many_records_are_decoded_part_by_part_alike(fitted, monkeypatch):
    synth = fitted
    monkeypatch.setattr("vflsynth.models.party_model.SAMPLE_BLOCK", 16)
    whole = synth.sample(70, random_state=1)
    monkeypatch.setattr("vflsynth.models.party_model._DECODED", 32)
    pd.testing.assert_frame_equal(synth.sample(70, random_state=1), whole)
    assert len(synth.sample(0)) == 0
    parts = [synth.sample(n, random_state=1) for n in (31, 32, 33)]
    assert [len(part) for part in parts] == [31, 32, 33]


def test_drawn_rows_fill_a_column_evenly(fitted):
    """Of 8,192 rows, a number that nothing comes before has the same quantiles."""
    sampler = next(half.sampler for half in fitted.parties_.values() if not half.after)
    none = torch.zeros(1, 8192, 0)
    rows = [sampler.draw_given({}, none, RandomStreams([own]), 0)[:, 0] for own in (b"0", b"1")]
    one, other = (torch.quantile(own, torch.linspace(0.1, 0.9, 9)) for own in rows)
    assert not rows[0].equal(rows[1])
    assert sampler.layout.numeric[0] == 0
    assert (one - other).abs().max() < 0.005  # of independent draws .02 and more


@pytest.mark.slow
def test_columns_of_a_wide_party_see_some_and_stop_and_resume_alike(frames, tmp_path, monkeypatch):
    for module in ("layout", "party", "method"):
        monkeypatch.setattr(f"vflsynth.methods.autoregressive.{module}.MOST_SEEING_ALL", 1)
    monkeypatch.setattr("vflsynth.methods.autoregressive.layout.N_SEEN", 2)
    model = make().fit(frames, KEY)
    assert all(half.sampler.network.sees.shape[1] == 2 for half in model.parties_.values())
    stop = [StopAfter(2)]
    make().fit(frames, KEY, callbacks=stop, checkpoint=tmp_path / "half-way", checkpoint_every=1)
    resumed = make().fit(frames, KEY, resume=tmp_path / "half-way")
    model.save(tmp_path / "model")
    loaded = AutoregressiveSynthesizer.load(tmp_path / "model")
    drawn = [own.sample(30, random_state=1) for own in (model, resumed, loaded)]
    pd.testing.assert_frame_equal(drawn[0], drawn[1])
    pd.testing.assert_frame_equal(drawn[0], drawn[2])


def test_protocols_send_what_they_say(frames):
    relayed = make(protocol="one_message").fit(frames, KEY, transcript=True)
    assert crossings(relayed, "RelayedFeatures").loc["party_3", "contents"] == (
        "features (1, 60, 32)"
    )
    trained = make(protocol="trained").fit(frames, KEY, transcript=True)
    steps = crossings(trained, "BatchContexts")["messages"]
    assert steps.tolist() == [4 * 2] * 3


def test_a_single_party_sends_nothing_of_its_records():
    frames = {"only": make_party_frames(60, 1, random_state=0)["party_1"]}
    synth = make().fit(frames, KEY, transcript=True)
    assert set(synth.transcript_["message"]) == EVERY_RUN | {"LikelihoodReport"}


def test_contexts_of_drawn_rows_lie_in_the_ball_and_have_no_noise(frames):
    """Whatever is passed on, their squares sum to at most their number: drawn rows are nobody's."""
    synth = make(bits_per_record=1e-4).fit(frames, KEY)
    half = synth.parties_["party_2"].sampler
    clean = half._context([torch.full((7, 2), 1e6)]).square().sum(1)
    assert (clean > 1.99).all()
    assert (clean <= 2).all()


@pytest.mark.parametrize(
    ("protocol", "kind", "field"),
    [
        ("bounded", "RecordContexts", "contexts"),
        ("bounded", "SenderWeights", "weights"),
        ("one_message", "RelayedFeatures", "features"),
        ("trained", "BatchContexts", "contexts"),
        ("trained", "HeldOutContexts", "contexts"),
    ],
)
def test_a_server_that_sends_another_shape_is_refused(frames, monkeypatch, protocol, kind, field):
    deliver = AutoregressiveParty.take

    def cut(party, message):
        if type(message).__name__ == kind:
            message = replace(message, **{field: getattr(message, field)[:, 1:]})
        deliver(party, message)

    monkeypatch.setattr(AutoregressiveParty, "take", cut)
    with pytest.raises(ProtocolError, match="of shape"):
        make(protocol=protocol).fit(frames, KEY)


def fewer(numbers):
    return numbers[:, 1:]


def narrower(numbers):
    return numbers[..., 1:]


def spoilt(wrong):
    """One such number would leave the contexts of everybody untrained, in silence."""

    def change(numbers):
        numbers[0, 3] = wrong
        return numbers

    return change


FEATURES, PARTS = ("record_features", "features"), ("context_parts", "parts")
NOT_FINITE = [
    (protocol, *FEATURES, "party 'party_2' sent features that are not finite")
    for protocol in PROTOCOLS
]


@pytest.mark.parametrize(
    ("change", "protocol", "answer", "field", "words"),
    [
        (fewer, "bounded", *FEATURES, "do not go together"),
        (fewer, "bounded", *PARTS, "different records: .*'party_2': 59"),
        (narrower, "bounded", *PARTS, "party 'party_2' sent parts of contexts of shape"),
        (
            narrower,
            "trained",
            "context_gradients",
            "gradients",
            "'party_2' sent gradients of shape",
        ),
        (spoilt(torch.nan), "bounded", *PARTS, "'party_2' sent parts of contexts that are not"),
        *((spoilt(torch.inf), *one) for one in NOT_FINITE),
        *later(*((spoilt(torch.nan), *one) for one in NOT_FINITE)),
    ],
)
def test_a_party_that_answers_otherwise_is_named(
    frames, monkeypatch, change, protocol, answer, field, words
):
    right = getattr(AutoregressiveParty, answer)

    def otherwise(party, step):
        message = right(party, step)
        if party.name == "party_2":
            message = replace(message, **{field: change(getattr(message, field))})
        return message

    monkeypatch.setattr(AutoregressiveParty, answer, otherwise)
    with pytest.raises(ProtocolError, match=words):
        make(protocol=protocol).fit(frames, KEY)


# -- halves --------------------------------------------------------------------------------------


def test_a_later_half_says_what_it_needs(fitted, tmp_path):
    synth = fitted
    for name, half in synth.parties_.items():
        half.save(tmp_path / name)
    first, second, third = (PartyModel.load(tmp_path / name) for name in synth.parties_)
    assert first.after == ()
    assert third.after == ("party_1", "party_2")
    with pytest.raises(ParameterError, match="nothing of 'party_1' was received"):
        second.sample(5, 3)
    passed_on = first.pass_on(5, 3)
    assert {name: rows.shape for name, rows in passed_on.items()} == {
        "party_2": (5, 6),
        "party_3": (5, 6),
    }
    with pytest.raises(ParameterError, match="5 rows of 'party_1' and is to draw 6"):
        second.sample(6, 3, received={"party_1": passed_on["party_2"]})
    table = second.sample(5, 3, received={"party_1": passed_on["party_2"]})
    pd.testing.assert_frame_equal(
        table, sample_parties(synth.parties_, 5, secret_from(3))["party_2"]
    )


def test_halves_that_wait_for_nobody_known_are_refused(fitted):
    halves = fitted.parties_
    with pytest.raises(ParameterError, match="party_2 wait for halves that are not there"):
        sample_parties({"party_2": halves["party_2"]}, 3, b"secret")


def test_a_damaged_half_is_refused(fitted, tmp_path, monkeypatch):
    half = fitted.parties_["party_2"]
    content, tensors = half.sampler.to_dict(), dict(half.sampler.tensors())
    tensors["network.first"] = tensors["network.first"][:, :3]
    with pytest.raises(ValueError, match="too narrow"):
        type(half.sampler).restore(content, tensors, half.transformer.spans_)
    monkeypatch.setattr(half.sampler, "tensors", lambda: tensors)
    half.save(tmp_path / "half")
    with pytest.raises(ArtefactError, match="not"):
        PartyModel.load(tmp_path / "half")


# -- learning ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def related():
    """Relations within and across parties; codes, a spike, missing values, multiples of fifty."""
    rng, n = np.random.default_rng(0), 1500
    group = rng.choice(list("abcd"), n, p=[0.5, 0.3, 0.15, 0.05])
    age = rng.integers(18, 90, n)
    income = 50 * np.round(np.exp(rng.normal(7, 0.5, n) + age / 100) / 50).astype(int)
    gain = np.where(rng.random(n) < 0.8, 0.0, income * rng.random(n))
    one = pd.DataFrame({"group": group, "age": age, "income": income})
    code = pd.Series(group).map({"a": 1, "b": 2, "c": 3, "d": 4}).to_numpy()
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(age * 7, "D")
    two = pd.DataFrame(
        {"gain": gain, "code": code, "when": days, "score": age + rng.normal(size=n)}
    )
    two.loc[rng.random(n) < 0.2, "score"] = np.nan
    return {"one": one, "two": two}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_relations_survive_and_values_stay_possible(related, protocol, small_critics):
    synth = make(
        protocol=protocol, hidden=48, n_features=64, epochs=20, random_state=1, bits_per_record=16.0
    ).fit(related)
    table, real = synth.sample(4000, random_state=2), pd.concat(related.values(), axis=1)
    assert set(table["income"]) <= set(real["income"]) | set(range(0, 20000, 50))
    assert set(table["when"]) <= set(real["when"])
    assert abs(table["score"].isna().mean() - 0.2) < 0.05
    assert abs((table["gain"] == 0).mean() - (real["gain"] == 0).mean()) < 0.05
    agreement = table["code"] == table["group"].map({"a": 1, "b": 2, "c": 3, "d": 4})
    by_chance = (real["code"].value_counts(normalize=True) ** 2).sum()
    assert agreement.mean() > by_chance + 0.3  # across parties
    assert table["age"].corr(table["income"]) > 0.25  # within one
    assert table["age"].corr(table["score"]) > 0.5


@pytest.mark.slow
def test_columns_of_one_party_do_not_depend_on_another(related):
    """Without contexts there is nothing to learn across parties, which the bits would show."""
    synth = make(bits_per_record=1e-6, hidden=32, n_features=64, epochs=8).fit(related)
    table = synth.sample(4000, random_state=2)
    agreement = table["code"] == table["group"].map({"a": 1, "b": 2, "c": 3, "d": 4})
    by_chance = (
        pd.concat(related.values(), axis=1)["code"].value_counts(normalize=True) ** 2
    ).sum()
    assert abs(agreement.mean() - by_chance) < 0.08


@pytest.mark.slow
def test_it_is_better_than_independent_columns_on_held_out_likelihood(related):
    history = make(hidden=32, epochs=8).fit(related).history_["held_out"]
    assert history.max() > history.iloc[0] + 0.5


def test_a_transformer_that_is_given_is_used(related):
    transformer = TableTransformer(continuous="quantile")
    synth = make(transformer=transformer, protocol="one_message").fit(
        {name: frame.head(300) for name, frame in related.items()}
    )
    encoded = synth.parties_["one"].transformer
    assert encoded.continuous == "quantile"
    assert len(synth.sample(10)) == 10


@pytest.mark.parametrize(
    ("n_records", "given", "expected"),
    [(60, None, 0.15), (5_555, None, 0.15), (20_000, None, 750 / 18_000), (20_000, 0.3, 0.3)],
)
def test_dropout_is_for_few_records(n_records, given, expected):
    settings = AutoregressiveMethod(make(dropout=given)).settings(n_records, {"a": 2, "b": 2})
    assert settings.dropout == pytest.approx(expected)


# -- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("protocol", "none"),
        ("bits_per_record", 0.0),
        ("bits_per_record", float("inf")),
        ("dropout", 1.0),
        ("hidden", 0),
        ("patience", 0),
        ("n_features", 2.5),
        ("weight_average", 1.0),
    ],
)
def test_parameters_out_of_range_are_named(frames, name, value):
    with pytest.raises(ParameterError, match=name):
        make(**{name: value}).fit(frames, KEY)


def test_other_mechanisms_are_refused_and_the_reason_says_who_has_them(frames):
    with pytest.raises(PrivacyParameterError, match=r"None for Auto.*is for MixtureSynthesizer"):
        make(privacy=PairwiseTables(epsilon=1.0, delta=1e-5)).fit(frames, KEY)


@pytest.mark.parametrize("n", [1, 2, 21, *later(5, 19)])
def test_few_records_will_do(n):
    frames = make_party_frames(40, 2, random_state=1)
    frames = {name: frame.head(n).assign(record_id=range(n)) for name, frame in frames.items()}
    every_value = TableTransformer(rare_records=0, extreme_records=0)
    assert len(make(transformer=every_value).fit(frames, KEY).sample(6)) == 6


def test_held_out_records_are_in_no_batch():
    schedule = HeldOutSchedule(
        RandomStreams([b"a", b"b"]), n_records=30, n_held_out=3, batch_size=10
    )
    places = torch.stack([schedule.rows(step) for step in range(9)])
    assert places.min() == 3
    assert places.max() == 29
    assert [len(set(places[:, r].flatten().tolist())) for r in (0, 1)] == [27, 27]
    assert sorted(schedule.order[0].tolist()) == list(range(30))


@pytest.mark.parametrize("protocol", BOUNDED_SOON)
def test_an_epoch_of_many_records_is_a_part_of_a_pass(frames, monkeypatch, protocol):
    monkeypatch.setattr("vflsynth.methods.autoregressive.method.MOST_STEPS", 1)
    short = make(protocol=protocol, batch_size=10, epochs=6, patience=9).fit(frames, KEY)
    monkeypatch.setattr("vflsynth.methods.autoregressive.method.MOST_STEPS", 500)
    whole = make(protocol=protocol, batch_size=10, epochs=1).fit(frames, KEY)  # 54 records
    assert len(short.history_) == 6
    # The same six steps.
    assert short.history_["held_out"].iloc[-1] == pytest.approx(whole.history_["held_out"].iloc[0])


def settings_of(context_dim, bits, n_features):
    return AutoregressiveSettings(
        protocol="bounded",
        order=("a", "b"),
        batch_size=64,
        hidden=8,
        dropout=0.0,
        learning_rate=1e-3,
        weight_average=0.99,
        patience=2,
        n_held_out=0,
        n_featured=2000,
        n_features=n_features,
        context_dim=context_dim,
        sender_hidden=32,
        bits_per_record=bits,
        unmatched="ignore",
    )


def test_noise_is_added_to_contexts_exactly_and_rounded_once(monkeypatch):
    """Sums of float32 leave gaps, by which 8 bits were 9: some contexts could not give them."""
    server = ContextServer(settings_of(4, 8.0, 6), RandomStreams([b"x"]))
    drawn = np.random.default_rng(0).normal(size=(500, 4))
    monkeypatch.setattr(autoregressive_server, "hidden_normal", lambda key, shape: drawn)
    parts = torch.randn(1, 500, 1, 4, generator=torch.Generator().manual_seed(0))
    found = server.noisy_contexts({"a": parts}, "b", [repeatable(b"x")])
    clean = into_ball(parts[:, :, 0]).numpy().astype(np.float64)
    expected = (clean + server.settings.noise_std * drawn).astype(np.float32)
    assert found.dtype == torch.float32
    assert (found.numpy() == expected).all()


def test_weights_come_back_where_the_averaged_ones_fail():
    network = torch.nn.Linear(2, 1)
    optimizer = AveragingAdam(network, learning_rate=0.1, decay=0.5)
    optimizer.average.fill_(7.0)
    before = network.weight.detach().clone()
    with pytest.raises(RuntimeError, match="shape"), optimizer.averaged():
        network(torch.zeros(1, 3))
    assert torch.equal(network.weight, before)


def test_an_optimiser_of_nothing_keeps_nothing_on_any_device():
    """A single party has no senders, and what is chosen may be on a GPU: meta is another device."""
    optimizer = AveragingAdam(torch.nn.Identity(), learning_rate=0.1, decay=0.5)
    optimizer.select(torch.ones(2, dtype=torch.bool, device="meta"))
    assert optimizer.selected.shape == (0,)


@pytest.mark.slow
def test_contexts_tell_what_relates_the_parties_and_not_the_rest(small_critics):
    """One of six features of either party is the other's, too: it gets the bits."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(2, 2, 2000, 6))
    own[1, :, :, 0] = own[0, :, :, 0] + 0.3 * rng.normal(size=(2, 2000))
    features = {name: torch.from_numpy(x).float() for name, x in zip("ab", own, strict=True)}
    settings = settings_of(2, 3.0, 6)
    server = ContextServer(settings, RandomStreams([b"x", b"y"]))
    server.learn(features)
    with torch.no_grad():
        parts = {"a": server.sender("a")(features["a"], 0).unsqueeze(2)}
        contexts = server.noisy_contexts(parts, "b", [repeatable(b"x"), repeatable(b"y")]).numpy()
    for replica in range(2):
        x = contexts[replica]
        x = np.c_[x, x**2, x.prod(1)]
        told = [LinearRegression().fit(x, own[0, replica, :, k]).score(x, own[0, replica, :, k])
                for k in range(6)]  # fmt: skip
        assert told[0] > 0.7
        assert max(told[1:]) < 0.05


@pytest.mark.slow
def test_whoever_receives_decides_what_contexts_tell(small_critics, monkeypatch):
    """Made-up features of 200 known records get a column of all others; the threat notes say so."""
    monkeypatch.setattr(autoregressive_server, "_BATCH_SIZE", 256)  # of which 26 are known
    rng = np.random.default_rng(0)
    own = rng.normal(size=(2000, 6))
    wanted, known = own[:, 3], slice(0, 200)
    features = np.zeros((2000, 6))
    features[known] = wanted[known, None] * [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]
    server = ContextServer(settings_of(2, 3.0, 6), RandomStreams([b"x"]))
    given = {
        "a": torch.from_numpy(own[None]).float(),
        "b": torch.from_numpy(features[None]).float(),
    }
    order = torch.from_numpy(rng.permutation(2000))  # who is held out has nothing to do with it
    server.learn({name: values[:, order] for name, values in given.items()})
    with torch.no_grad():
        x = server.contexts(given, "b")[0].numpy()
    x += server.settings.noise_std * rng.normal(size=x.shape)
    fitted = LinearRegression().fit(x[known], wanted[known])
    assert fitted.score(x[200:], wanted[200:]) > 0.5
    others = [LinearRegression().fit(x, own[:, k]).score(x, own[:, k]) for k in (0, 1, 2, 4, 5)]
    assert max(others) < 0.2


def test_contexts_of_few_records_are_not_learned_by_heart(monkeypatch):
    """Independent features: in records that were learned from, contexts tell what chance does."""
    sizes = {"_CRITIC_HIDDEN": 256, "_CRITIC_OUT": 64, "_PATIENCE": 100, "_MAX_STEPS": MOST_STEPS}
    for name, value in sizes.items():
        monkeypatch.setattr(autoregressive_server, name, value)
    own = np.random.default_rng(0).normal(size=(2, 1, 400, 64))
    features = {name: torch.from_numpy(x).float() for name, x in zip("ab", own, strict=True)}
    server = ContextServer(settings_of(2, 8.0, 64), RandomStreams([b"x"]))
    server.learn(features)
    with torch.no_grad():
        contexts = server.contexts(features, "b")[0, 40:].numpy()
    wanted = own[1, 0, 40:]
    told = LinearRegression().fit(contexts, wanted).score(contexts, wanted)
    chance = contexts.shape[1] / len(contexts)
    assert told < 2.0 * chance


def critic_scores(scale):
    return scale * torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0))


def cross_entropies(scores):
    """Of finding every record's own among all, and the reverse, by torch."""
    answers = torch.arange(scores.shape[-1]).expand(scores.shape[:2])
    return sum(
        cross_entropy(own.transpose(1, 2), answers, reduction="none").mean(1) / 2
        for own in (scores, scores.mT)
    )


def test_a_critic_is_judged_by_how_well_it_finds_what_belongs_together():
    scores = critic_scores(1.0)
    torch.testing.assert_close(_confusion(scores), cross_entropies(scores))


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 1000.0])
def test_a_critic_descends_along_the_derivative(scale):
    """Neither place of the record that is there twice is an answer to the other's question."""
    rows = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 3, 3]])
    scores = critic_scores(scale)
    twice = torch.zeros(2, 5, 5, dtype=torch.bool)
    twice[1, 3, 4] = twice[1, 4, 3] = True
    given = scores.clone().requires_grad_()
    loss = cross_entropies(given.masked_fill(twice, -torch.inf)).sum()
    (expected,) = torch.autograd.grad(loss, given)
    found = _confusion_gradient(scores, rows)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-5)
    same = scores.masked_fill(twice, 1e6)
    torch.testing.assert_close(_confusion_gradient(same, rows), found, rtol=0, atol=0)
    shares = found[~torch.eye(5, dtype=torch.bool).expand(2, 5, 5)]
    assert shares.min() > 1e-30  # what processors are fast with


def test_features_of_one_value_teach_nothing_and_break_nothing():
    features = {"a": torch.randn(1, 30, 4), "b": torch.ones(1, 30, 4)}
    server = ContextServer(settings_of(2, 3.0, 4), RandomStreams([b"x"]))
    server.learn(features)
    assert server.weights_of("a").isfinite().all()


def test_independent_halves_pass_nothing_on(frames):
    half = IndependentSynthesizer(random_state=0).fit(frames, KEY).parties_["party_2"]
    assert half.after == ()
    assert half.pass_on(5, 1) == {}


# -- records that are partly known ---------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(wide_blocks):
    """Two parties of labels and few numbers: all records can be listed."""
    rng = np.random.default_rng(0)
    n = 600
    a, b = rng.choice(list("xyz"), n), rng.integers(0, 4, n)
    c = np.where(rng.random(n) < 0.7, a, rng.choice(list("xyz"), n))
    d = 10 * (b + rng.integers(0, 3, n))
    frames = {"one": pd.DataFrame({"a": a, "b": b}), "two": pd.DataFrame({"c": c, "d": d})}
    transformer = TableTransformer({"b": "integer"}, continuous="ranks", spike_share=None)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (SMALL_CRITICS | {"_MAX_STEPS": 200}).items():
            patch.setattr(autoregressive_server, name, value)
        synth = make(epochs=15, bits_per_record=4.0, transformer=transformer).fit(frames)
    drawn = synth.sample(60_000, random_state=1)
    assert (drawn["a"] == drawn["c"]).mean() > 0.5  # contexts tell, or completing were no question
    return synth, frames, drawn


@pytest.mark.slow
def test_probabilities_of_all_records_add_up_to_one(tiny):
    synth, frames, _ = tiny
    values = [sorted(frame[column].unique()) for frame in frames.values() for column in frame]
    table = pd.MultiIndex.from_product(values, names=list("abcd")).to_frame(index=False)
    found = synth.log_prob(table, n_draws=200)
    assert np.exp(found).sum() == pytest.approx(1.0, abs=0.02)
    assert len(found.attrs["effective_sample_size"]) == len(table)
    drawn = synth.sample(40_000, random_state=1)
    shares = drawn.value_counts(normalize=True).reindex(pd.MultiIndex.from_frame(table)).fillna(0)
    assert np.abs(np.exp(found).to_numpy() - shares.to_numpy()).max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("given", [["b", "c"], ["a"], ["d"]])
def test_columns_are_completed_as_the_model_has_them(tiny, given):
    """Against records that were drawn and happen to have the values."""
    synth, _, drawn = tiny
    value = drawn[given].iloc[0]
    chosen = drawn[(drawn[given] == value).all(axis=1)]
    table = pd.DataFrame([value] * 4000).astype(drawn[given].dtypes)
    found = synth.complete(table, n_draws=64, random_state=2)
    assert (found[given] == value).all(axis=None)
    assert found.columns.tolist() == drawn.columns.tolist()
    pd.testing.assert_series_equal(found.dtypes, drawn.dtypes)
    for column in set(drawn) - set(given):
        assert total_variation(found[column], chosen[column]) < 0.05, column
    marginal = synth.log_prob(table.head(1), n_draws=4000).iloc[0]
    assert np.exp(marginal) == pytest.approx(len(chosen) / len(drawn), rel=0.1)


def test_densities_of_numbers_that_may_lie_anywhere_integrate_to_one():
    rng = np.random.default_rng(0)
    frames = {"one": pd.DataFrame({"x": rng.normal(10, 3, 800)})}
    # Without a mass at the ends, of the records beyond them.
    synth = make(epochs=20, transformer=TableTransformer(extreme_records=0)).fit(frames)
    x = np.linspace(frames["one"]["x"].min(), frames["one"]["x"].max(), 2001)
    density = np.exp(synth.log_prob(pd.DataFrame({"x": x}), n_draws=1))
    assert float(((density[1:].array + density[:-1].array) / 2 * np.diff(x)).sum()) == (
        pytest.approx(1.0, abs=0.03)
    )


@pytest.mark.parametrize("unit", [1.0, 1e-318])
def test_numbers_on_the_finest_grids_have_probabilities(unit):
    """Steps that scores cannot tell apart had none, and intervals among the smallest floats."""
    draws = np.random.default_rng(0).random(300)
    x = pd.Series(draws * unit if unit < 1.0 else (draws * 10**17).astype("int64"))
    times = pd.Series(pd.to_datetime((draws * 10**18).astype("int64")))
    frames = {"one": pd.DataFrame({"x": x}), "two": pd.DataFrame({"t": times})}
    synth = make(epochs=1, column_kinds={"x": "continuous" if unit < 1.0 else "integer"})
    drawn = synth.fit(frames).sample(50, random_state=1)
    assert drawn["t"].dtype == times.dtype
    for label, n_values in (("x", 10**17 if unit == 1.0 else 1e-318), ("t", 10**18)):
        own = drawn[[label]]
        assert (synth.log_prob(own) + np.log(n_values)).median() == pytest.approx(0.0, abs=2.0)
        assert synth.complete(own, random_state=2)[label].equals(own[label])


def test_what_is_given_is_checked(tiny):
    synth, *_ = tiny
    with pytest.raises(ParameterError, match=r"no party has columns \['e'\]"):
        synth.complete(pd.DataFrame({"e": [1]}))
    with pytest.raises(ParameterError, match="n_draws"):
        synth.complete(pd.DataFrame({"a": ["x"]}), n_draws=0)
    with pytest.raises(PartyDataError, match="party 'one', column 'a'"):
        synth.complete(pd.DataFrame({"a": ["unheard of"]}))
    assert synth.complete(pd.DataFrame({"a": []}, dtype=object)).shape == (0, 4)
