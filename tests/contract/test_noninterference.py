"""The law of non-interference over every synthesizer with every mechanism that protects its data,
and that it finds what it is there for."""

import json
import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from tests.contract.test_combinations import (
    ACROSS,
    MECHANISMS,
    NOISE,
    OF_MECHANISM,
    SYNTHESIZERS,
    job_of,
    make,
    parameters,
)
from tests.contract.test_exact_releases import PROTECTING
from tests.unit.federation.trial import Direct, Trial
from vflsynth import IndependentSynthesizer, registry
from vflsynth.cli import main
from vflsynth.exceptions import ParameterError, ProtocolError
from vflsynth.federation.site import Budget
from vflsynth.learning import Learning, Releasing
from vflsynth.mechanisms import DPSGD, Asked, Cover, Discriminators, HistogramMechanism, Plan
from vflsynth.mechanisms.planning import histogram_event, ledger_of, split_budget
from vflsynth.methods.marginals.method import IndependentMethod, MarginalParty, MarginalSampler
from vflsynth.methods.pairwise.method import PairwiseMethod
from vflsynth.methods.pairwise.party import affordable_states
from vflsynth.privacy import NeighbouringRelation, histograms
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.events import Sampler
from vflsynth.privacy.ledger import LedgerEntry
from vflsynth.privacy.releases import Grid
from vflsynth.protocol.channel import MESSAGES, SERVER, MadeOf, Message, holds, message
from vflsynth.run.local import Options
from vflsynth.splitdefense import MarvellClassifier, RandomizedResponse, SplitNNClassifier
from vflsynth.splitdefense.targets import Classes
from vflsynth.testing import mechanism_checks, noninterference
from vflsynth.testing.laws import KEY, private_tables, replaced
from vflsynth.testing.mechanisms import nothing_but_releases_shows
from vflsynth.testing.noninterference import (
    USUAL,
    Tape,
    difference,
    files_within,
    observe,
    ready,
    records_within,
    what_tells_numbers_apart,
    what_tells_records_apart,
)

pytestmark = pytest.mark.usefixtures("short_searches")

ADD, REPLACE = NeighbouringRelation.ADD_OR_REMOVE_ONE, NeighbouringRelation.REPLACE_ONE
COLUMNS = {"a": ColumnCounts(3), "b": ColumnCounts(3, 1)}
ASKED = Asked(n_records=1000, owners=Discriminators.PRIVATE)
# The law of every synthesizer, in `test_synthesizers`, asks these the same.
OF_THE_LAW = {"VFLGANSynthesizer", "DPLTSynthesizer", "MixtureSynthesizer"}
HIDING = [(s, m) for s, m in PROTECTING if MECHANISMS[m].default_relation is ADD]


def made(synthesizer, mechanism, relation):
    found = make(synthesizer, mechanism)
    found.privacy.set_params(neighbouring_relation=str(relation))
    return found


@pytest.mark.parametrize(
    ("synthesizer", "mechanism"),
    [pytest.param(*case, marks=pytest.mark.slow if case in HIDING else ()) for case in PROTECTING],
)
def test_nothing_but_releases_shows_of_a_record(synthesizer, mechanism):
    assert what_tells_records_apart(made(synthesizer, mechanism, REPLACE)) == []


@pytest.mark.parametrize(
    ("synthesizer", "mechanism"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case[0] in OF_THE_LAW else ())
        for case in HIDING
    ],
)
def test_nothing_but_releases_shows_of_the_number_of_records(synthesizer, mechanism):
    case = made(synthesizer, mechanism, ADD)
    assert what_tells_records_apart(case) + what_tells_numbers_apart(case, (40, 300)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("synthesizer", "mechanism"), HIDING)
def test_no_step_in_the_number_of_records_shows(synthesizer, mechanism):
    """With every power of two up to 2**14, and sizes of networks as they are by default."""
    case_parameters = SYNTHESIZERS[synthesizer]().get_params()
    case = made(synthesizer, mechanism, ADD).set_params(
        **{name: None for name in ("batch_size", "latent_dim") if name in case_parameters}
    )
    assert what_tells_numbers_apart(case, [2**k for k in range(15)]) == []


# -- split classifiers -----------------------------------------------------------------------------

SMALL = {
    "epochs": 2,
    "batch_size": 8,
    "bottom_hidden": (4,),
    "intermediate_dim": 3,
    "top_hidden": (4,),
    "device": "cpu",
}
RESPONSES = RandomizedResponse(1.0)


def private_classifier(relation=ADD, **parameters):
    noise = {"noise_multiplier": 2.0, "delta": 1e-3, "neighbouring_relation": str(relation)}
    return SplitNNClassifier(privacy=DPSGD(**noise), **SMALL, **parameters)


@pytest.mark.parametrize(
    "classifier",
    [
        SplitNNClassifier(label_privacy=RESPONSES, **SMALL),
        private_classifier(),
        pytest.param(private_classifier(REPLACE), marks=pytest.mark.slow),
        pytest.param(private_classifier(active="a"), marks=pytest.mark.slow),
        pytest.param(MarvellClassifier(label_privacy=RESPONSES, **SMALL), marks=pytest.mark.slow),
    ],
    ids=["labels", "records", "another record", "columns of the active party", "protected"],
)
def test_nothing_but_releases_shows_of_a_classifier_s_records_and_labels(classifier):
    assert what_tells_records_apart(classifier) == []


def test_nothing_but_releases_shows_of_the_number_of_a_classifier_s_records():
    assert what_tells_numbers_apart(private_classifier(), (40, 300)) == []


@pytest.mark.parametrize(
    "classifier",
    [SplitNNClassifier(label_privacy=RESPONSES, **SMALL), private_classifier()],
    ids=["labels", "records"],
)
def test_classes_that_are_learned_from_labels_are_found(classifier, monkeypatch):
    """One record more with a class of its own: whoever has the top model counts its outputs."""
    honest = Classes.of.__func__
    learned = classmethod(lambda cls, labels, parts, *stated, **how: honest(cls, labels, parts))
    monkeypatch.setattr(Classes, "of", learned)
    found = what_tells_records_apart(classifier)
    assert any("values are far away" in said for said in found)


# -- across processes ------------------------------------------------------------------------------


class Weighed(Direct):
    """A link that keeps all frames, in both directions."""

    frames: ClassVar = {}

    def exchange(self, frame, timeout):
        reply = super().exchange(frame, timeout)
        self.frames.setdefault(self._name, []).extend((frame, reply))
        return reply


def seen_at_sites(folder, job, tables, tape):
    """Run with every node in a thread; return what each ends with, its half, and sizes of frames.

    Of as many frames as there are: the last one of the party that comes last may not be answered.
    """
    folder.mkdir()
    own, schema = private_tables(1)
    trial = Trial(folder, own, job, root=bytes(32))
    for name, table in tables.items():
        table.to_csv(path := folder / f"{name}.csv", index=False)
        trial.change(name, table=path, budget=Budget(1e3, 1e-3), schema=schema)
    Weighed.frames.clear()
    with tape.running():
        trial.run(Weighed)
    seen = {f"how {name} ends": repr(error) for name, error in trial.outcome.items()}
    for name, frames in Weighed.frames.items():
        assert not any(b"Nobody else is told" in frame for frame in frames)
        seen[f"sizes of frames of {name}"] = [len(frame) for frame in frames]
    return seen | {
        f"{name}/{file}": content
        for name in job.parties
        for file, content in files_within(folder / name / "trial" / "half").items()
    }


AT_SITES = [(s, m) for s, m in PROTECTING if m in ACROSS.get(s, ())]
QUICK_AT_SITES = {"DPLTSynthesizer"}


@pytest.mark.filterwarnings("default::vflsynth.exceptions.OwnTableWarning")
@pytest.mark.parametrize(
    ("synthesizer", "mechanism"),
    [
        pytest.param(*case, marks=() if case[0] in QUICK_AT_SITES else pytest.mark.slow)
        for case in AT_SITES
    ],
)
def test_nothing_but_releases_shows_at_sites(synthesizer, mechanism, tmp_path):
    job, tables = job_of(synthesizer, mechanism, ["a", "b"]), private_tables(40)[0]
    one = seen_at_sites(tmp_path / "one", job, tables, tape := Tape())
    assert set(one) > {"how a ends", "how server ends", "a/file party.json"}
    assert {one[f"how {name} ends"] for name in ("a", "b", "server")} == {"None"}
    alike = replaced(tables)["whose values are of other types"]
    fewer = {name: table.iloc[:-1] for name, table in tables.items()}
    others = alike, fewer, private_tables(300)[0]
    for number, other in enumerate(
        others[: 3 if MECHANISMS[mechanism].default_relation is ADD else 1]
    ):
        found = seen_at_sites(tmp_path / str(number), job, other, Tape(tape))
        if number:  # sizes tell numbers of records, as the ledger says
            found |= {place: one[place] for place in one if place.startswith("sizes")}
        assert difference(one, found) == ""


# -- commands --------------------------------------------------------------------------------------


def config_of(synthesizer, mechanism, relation):
    """A file of a private fit, in TOML."""
    _, schema = private_tables(1)
    given = parameters(synthesizer) | {"random_state": 0}
    given.pop("device", None)
    privacy = {"mechanism": mechanism, **NOISE, **OF_MECHANISM.get(mechanism, {})}
    tables = {
        "parameters": given,
        "parameters.privacy": privacy | {"neighbouring_relation": str(relation)},
        "privacy.bounds": dict(schema.bounds),
        "privacy.categories": dict(schema.categories),
        "privacy.dtypes": dict(schema.dtypes),
    }
    return f'method = "{synthesizer}"\non = "{KEY}"\n' + "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in own.items())
        for name, own in tables.items()
    )


def seen_of_commands(folder, config, tables, tape, capsys):
    """Fit, and look at the model: exit codes, all that is printed but times, and all files."""
    folder.mkdir()
    (folder / "run.toml").write_text(config)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    files = [f"{name}={folder / name}.csv" for name in tables]
    model, seen = str(folder / "model"), {}
    commands = {
        "fit": ["--config", str(folder / "run.toml"), *files, "--output", model, "--transcript"],
        "inspect": [model],
        "sample": [model, "-n", "3", "--seed", "1"],
    }
    for name, options in commands.items():
        with tape.running():
            seen[f"exit status of {name}"] = main([name, *options])
        for stream, text in zip(("stdout", "stderr"), capsys.readouterr(), strict=True):
            lines = text.replace(str(folder), "").splitlines()
            said = [line for line in lines if "Nobody else is told" not in line]
            seen[f"{stream} of {name}"] = re.sub(r"\d[\d.]* (?=s\b)", "", "\n".join(said))
    return seen | files_within(folder / "model")


@pytest.mark.filterwarnings("default::vflsynth.exceptions.OwnTableWarning")
@pytest.mark.parametrize(
    ("synthesizer", "mechanism"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case[1] != "latent_tree" else ())
        for case in PROTECTING
    ],
)
def test_commands_end_and_say_the_same(synthesizer, mechanism, tmp_path, capsys):
    config, tables = config_of(synthesizer, mechanism, REPLACE), private_tables(40)[0]
    one = seen_of_commands(tmp_path / "one", config, tables, tape := Tape(), capsys)
    assert {one[f"exit status of {name}"] for name in ("fit", "inspect", "sample")} == {0}
    assert "matched" in one["stderr of fit"]
    for number, other in enumerate(replaced(tables).values()):
        found = seen_of_commands(tmp_path / str(number), config, other, Tape(tape), capsys)
        assert difference(one, found) == ""


# -- the law finds what broke ----------------------------------------------------------------------


def test_states_by_the_true_number_are_found_and_the_step_is_named(monkeypatch):
    """One record more, one state fewer: whoever has the saved model counts them."""

    def n_fine(method):
        return int(min(30, affordable_states(method.n_columns, 1e4 * method.n_records)))

    honest = made("MixtureSynthesizer", "pairwise_tables", ADD)
    honest.privacy.set_params(noise_multiplier=0.01)
    assert what_tells_numbers_apart(honest, (40, 120)) == []
    monkeypatch.setattr(PairwiseMethod, "n_fine", property(n_fine))
    (found,) = what_tells_numbers_apart(honest, (40, 120))
    same, differs = map(int, found.split(" records")[0].split(" and "))
    assert differs == same + 1
    columns = {"a": 3, "b": 3}
    states = [min(30, affordable_states(columns, 1e4 * n)) for n in (same, differs)]
    assert states[0] > states[1]


def test_a_leak_beside_the_releases_is_found(monkeypatch):
    """Of how many values a column has, in the last digits of what a model says about its noise."""
    honest = histograms.release_histograms

    def leak(frame, *args, **rest):
        return {
            name: replace(found, noise_std=found.noise_std + 1e-12 * float(frame[name].count()))
            for name, found in honest(frame, *args, **rest).items()
        }

    monkeypatch.setattr(histograms, "release_histograms", leak)
    found = what_tells_records_apart(made("DPLTSynthesizer", "latent_tree", REPLACE))
    assert any("values are missing" in said and "noise_std" in said for said in found), found


@dataclass(repr=False, eq=False, kw_only=True)
class HistogramsAlone(HistogramMechanism):
    """Somebody's mechanism, whose ledger has noisy histograms and nothing else."""

    name = "histograms_alone"
    sampler = Sampler.NONE
    one_release = True

    def plan(self, columns, asked):
        self.check()
        noise = split_budget(self, columns, {"preprocessing": 1.0})["preprocessing"]
        entries = [LedgerEntry("preprocessing", histogram_event(self, columns, noise))]
        nobody = {"not_protected_against": (), "public": ()}
        ledger = ledger_of(self, columns, entries, words="noisy histograms", **nobody)
        return Plan(ledger=ledger, histogram_noise_multiplier=noise)


class OpenSynthesizer(IndependentSynthesizer):
    """Carries the mechanism to a method whose half holds quantiles of the encoded records."""

    methods: ClassVar = {None: IndependentMethod, HistogramsAlone: IndependentMethod}


class Smuggling(Learning):
    """Makes a half of quantiles, and asks for them as if they were released."""

    def learn(self, records):
        self.marginals = records.release("quantiles")

    def samplers(self):
        return [MarginalSampler(self.marginals, None, width=self.transformer.width_)]


class SmugglingParty(MarginalParty):
    def build(self, settings, schedule, streams):
        pass

    def quantiles(self):
        return np.quantile(self.encode(), np.linspace(0.0, 1.0, 77), axis=0)


class SmugglingMethod(IndependentMethod):
    party: ClassVar = SmugglingParty

    learner = Smuggling


class Around(Smuggling):
    """Takes them from a place that both objects know."""

    def learn(self, records):
        pass

    @property
    def marginals(self):
        return self.kept[self.name].marginals


class AroundMethod(SmugglingMethod):
    party = MarginalParty

    def learning(self, known):
        made = Around(known)
        made.kept = self.kept
        return made

    def build(self, party, settings, schedule, streams):
        super().build(party, settings, schedule, streams)
        self.kept[party.name] = SimpleNamespace(marginals=party.marginals)


@pytest.fixture
def carried_to(monkeypatch):
    """Carry the mechanism to a method, registered as an installed package would have it."""

    def carry(method, **budget):
        monkeypatch.setattr(OpenSynthesizer, "methods", {None: method, HistogramsAlone: method})
        return OpenSynthesizer(privacy=HistogramsAlone(**budget, delta=1e-6))

    for group, kind in {"mechanisms": HistogramsAlone, "synthesizers": OpenSynthesizer}.items():
        registry.Members(group).get("any")  # loads the group's own
        monkeypatch.setitem(registry._classes[group], registry.full_name(kind), kind)
    monkeypatch.setattr(AroundMethod, "kept", {}, raising=False)
    return carry


def the_law(mechanism):
    checks = mechanism_checks(mechanism, lambda own: own.plan(COLUMNS, ASKED))
    return next(check for check in checks if check.law is nothing_but_releases_shows)


def test_a_half_of_records_cannot_be_made_under_a_mechanism(carried_to):
    """With a ledger of histograms at ε .01, the half held 77 quantiles of the encoded records."""
    tables, schema = private_tables(100)
    synth = carried_to(IndependentMethod, epsilon=0.01)
    synth.privacy.set_params(public_schema=schema)
    with pytest.raises(ParameterError, match="IndependentMethod makes its halves of records"):
        synth.fit(tables, KEY)
    with pytest.raises(AssertionError, match="to IndependentMethod, which makes halves of records"):
        the_law(synth.privacy)()


def test_records_pass_as_releases_and_weights_of_networks_alone(carried_to):
    synth = ready(carried_to(SmugglingMethod, epsilon=0.01))
    with pytest.raises(ProtocolError, match=r"SmugglingParty.quantiles gives a .*Grid\.release"):
        synth.fit(private_tables(100)[0], KEY)
    party = SmugglingParty("a", pd.DataFrame({"x": [1.0]}), None)
    with pytest.raises(ProtocolError, match="no networks that are trained"):
        Releasing(party).weights()


def test_quantiles_that_come_another_way_are_found_by_the_law(carried_to):
    synth = carried_to(AroundMethod, noise_multiplier=0.01)
    found = what_tells_records_apart(synth)
    assert "with one record more: 'file model/parties/a/" in found[0]
    with pytest.raises(AssertionError, match="table with one record more"):
        the_law(synth.privacy)()


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        (lambda party: party, "a SmugglingParty"),
        (lambda party: {"deep": [lambda: None, party._frame]}, "a DataFrame of 41 rows"),
        (lambda party: [party._frame.to_numpy()], "a ndarray of shape (41, 4)"),
        (lambda party: Releasing(party), "a SmugglingParty"),
        (lambda party: SmugglingMethod(OpenSynthesizer()), "a SmugglingMethod"),
    ],
    ids=["party", "table", "array", "releasing", "method"],
)
def test_what_makes_a_half_reaches_no_records(kept, found):
    tables, _ = private_tables(USUAL)
    learning = Smuggling(SimpleNamespace(name="a", transformer=None))
    assert records_within(learning) == []
    learning.somewhere = kept(SmugglingParty("a", tables["a"], KEY))
    assert found in records_within(learning)


@pytest.mark.parametrize(
    ("fits", "ends"),
    [(2, nullcontext()), (3, pytest.raises(AssertionError, match=r"'\w+' reaches a ndarray"))],
)
def test_an_array_is_of_records_if_it_is_as_long_whatever_the_noise(monkeypatch, fits, ends):
    looks = iter(["a ndarray of shape (41,)"] * fits)
    monkeypatch.setattr(noninterference, "records_within", lambda _: [*islice(looks, 1)])
    synth = ready(made("DPLTSynthesizer", "latent_tree", ADD))
    with ends:
        observe(synth, private_tables(USUAL)[0], KEY, Tape())


class Telling(SmugglingParty):
    """Publishes sums over its records that no entry is of, or tells them as they are."""

    kind: ClassVar[type[Message] | None] = None

    def quantiles(self):
        grid = Grid.of(0.1)
        return [] if self.kind else [grid.release(grid.truncate(self.encode()).sum(0))]

    def answer(self, kind, step):
        if kind is not self.kind:
            return super().answer(kind, step)
        return kind(self.name, SERVER, step, torch.tensor(self.encode().sum(0)))


class Publishing(Smuggling):
    def samplers(self):
        return [MarginalSampler((), None, width=self.transformer.width_)]


class TellingMethod(SmugglingMethod):
    party, learner = Telling, Publishing

    def algorithm(self, channel, settings, streams):
        made = super().algorithm(channel, settings, streams)
        if Telling.kind is not None:
            made.begin = lambda: channel.gather(Telling.kind, 0)
        return made


@pytest.fixture
def planned(monkeypatch):
    """Have plans of histograms say something else."""
    honest = HistogramsAlone.plan
    return lambda **other: monkeypatch.setattr(
        HistogramsAlone, "plan", lambda own, *asked: replace(honest(own, *asked), **other)
    )


@pytest.mark.parametrize("cheat", ["a sum without an entry", "less noise than is booked"])
def test_noise_that_is_not_paid_for_is_found(carried_to, planned, monkeypatch, cheat):
    if cheat == "less noise than is booked":
        monkeypatch.setattr(Telling, "quantiles", lambda party: [])
        planned(histogram_noise_multiplier=0.2)
    with pytest.raises(AssertionError, match=r"moves what is released by .* ledger pays for 0\.25"):
        the_law(carried_to(TellingMethod, noise_multiplier=2.0).privacy)()


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"made_of": MadeOf.KEYS}, "refuses Sums: the privacy ledger has no entry for it"),
        ({"masked": True}, "Sums.sums of 'a', masked, is the same with another secret"),
        ({}, r"lacks 'the server: ...', which gets \['Sums'\]"),
    ],
    ids=["keys", "masked", "bare"],
)
def test_what_a_message_says_of_itself_is_tried(carried_to, planned, monkeypatch, declared, says):
    class Sums(Message):
        sums: torch.Tensor = holds(torch.float32, "column")

    declared = {"from_party": True, "made_of": MadeOf.RECORDS, "contents": "sums"} | declared
    monkeypatch.setitem(MESSAGES, "Sums", None)
    monkeypatch.setattr(Telling, "kind", kind := message(**declared)(Sums))
    if kind.declared.made_of is MadeOf.RECORDS:
        planned(covers={"Sums": Cover("preprocessing", noised=False)})
    with pytest.raises(AssertionError, match=says):
        the_law(carried_to(TellingMethod, noise_multiplier=2.0).privacy)()


class Keeping(Smuggling):
    """Keeps what it may ask for releases, and asks again when it makes its half."""

    def learn(self, records):
        self.records = records

    def samplers(self):
        return self.records.release("quantiles")


class KeepingMethod(SmugglingMethod):
    learner = Keeping


def test_no_record_is_within_reach_once_releases_are_given(carried_to):
    synth = ready(carried_to(KeepingMethod, epsilon=0.01))
    with pytest.raises(ProtocolError, match="asked for more after it had given its releases"):
        synth.fit(private_tables(100)[0], KEY)
    case = ready(made("DPLTSynthesizer", "latent_tree", ADD))
    run = case._fit_models([case], private_tables(USUAL)[0], KEY, Options())
    for node in run.parties.values():
        assert records_within(node.learning) == []
        assert len(node.seat.frame) == 0
        with pytest.raises(ProtocolError, match="has given its releases: no record is left"):
            node.party.encode()
