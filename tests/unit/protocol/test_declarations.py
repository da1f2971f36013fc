"""What messages say of themselves is so, and privacy accounts can rely on it."""

import ast
import functools
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import vflsynth
import vflsynth.splitdefense
from vflsynth import VertiGANSynthesizer
from vflsynth.exceptions import PrivacyBudgetError, ProtocolError
from vflsynth.learning.messages import MaskedReal
from vflsynth.mechanisms import DPSGD, Cover, FirstLayer
from vflsynth.methods.vertigan.messages import BackboneGradients
from vflsynth.methods.vertigan.method import VertiGANMethod, VertiGANParty
from vflsynth.methods.vflgan import messages as vflgan_messages
from vflsynth.privacy import PublicSchema
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.protocol.channel import MESSAGES, SERVER, MadeOf, Message, When, answers, message
from vflsynth.protocol.messages import EncodedSizes
from vflsynth.registry import Members
from vflsynth.run.joined import JOINED
from vflsynth.run.local import LocalRun, Options
from vflsynth.run.party_run import PartyRun

SCHEMA = PublicSchema(dtypes="given", bounds={"x": (0.0, 1.0), "y": (0.0, 1.0)})
OF_RECORDS = (MadeOf.RECORDS, MadeOf.NETWORKS)

OWN = {name: kind for name, kind in MESSAGES.items() if kind.__module__.startswith("vflsynth.")}

# -- messages ------------------------------------------------------------------------------------


@functools.cache
def decorated():
    """All functions and classes with decorators of the package, by file."""
    return [
        (path, node)
        for path in Path(vflsynth.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if getattr(node, "decorator_list", ())
    ]


def declared():
    """Where the package declares classes as messages: (file, name)."""
    for path, node in decorated():
        if isinstance(node, ast.ClassDef) and any(
            isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "message"
            for mark in node.decorator_list
        ):
            yield path.name, node.name


@functools.cache
def handlers():
    """Where the package's participants answer or take what: (file, "answers" or "takes", name)."""
    return [
        (path.name, mark.func.id, mark.args[0].id)
        for path, node in decorated()
        for mark in node.decorator_list
        if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") in ("answers", "takes")
    ]


def test_every_message_is_declared_once_and_in_one_module():
    places = Counter(declared())
    assert {name for name, _ in places} == {"messages.py"}
    assert set(places.values()) == {1}
    assert set(OWN) == {name for _, name in places}


def test_all_classes_of_messages_are_declared_or_are_bases_of_those_that_are():
    modules = {sys.modules[kind.__module__] for kind in OWN.values()}
    kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    kinds = {kind for kind in kinds if issubclass(kind, Message)}
    declared = {kind for kind in kinds if MESSAGES.get(kind.__name__) is kind}
    for base in kinds - declared - {Message}:
        assert "declared" not in vars(base)
        assert any(issubclass(kind, base) for kind in declared), base


def test_another_message_of_the_same_name_is_refused():
    with pytest.raises(ProtocolError, match=r"messages and .*test_declarations both declare Shape"):

        @message(from_party=True, made_of=MadeOf.PLANS, when=When.ONCE, contents="")
        class Shape(Message):
            pass

    assert MESSAGES["Shape"] is vflgan_messages.Shape


def test_parties_answer_what_is_from_them_and_take_what_is_not():
    found = handlers()
    assert ("base.py", "answers", "KeyList") in found
    for file, way, name in found:
        assert name in MESSAGES, (file, name)
        assert MESSAGES[name].declared.from_party is (way == "answers"), (file, name)


def test_every_message_has_somebody_who_answers_or_takes_it():
    assert set(OWN) == {name for _, _, name in handlers()}


# -- mechanisms ----------------------------------------------------------------------------------


COMBINATIONS = [
    pytest.param(synthesizer, kind, id=f"{synthesizer.__name__}-{kind.__name__}")
    for synthesizer in Members("synthesizers").values()
    for kind in synthesizer.methods
    if kind is not None
]


@pytest.mark.parametrize(("synthesizer", "kind"), COMBINATIONS)
def test_mechanisms_cover_messages_and_all_that_the_server_asks_for(synthesizer, kind):
    known = kind().get_params()
    values = {"noise_multiplier": 2.0, "delta": 1e-4, "n_records": 2_000, "public_schema": SCHEMA}
    model = synthesizer(privacy=kind(**{k: v for k, v in values.items() if k in known}))
    names = (JOINED,) if model.joins else ("a", "b")
    method = model.method()
    method.agree({name: ColumnCounts(3) for name in names}, 2_000)
    covers = method.plan.covers
    assert covers
    assert all(MESSAGES[name].declared.made_of in OF_RECORDS for name in covers)
    if method.is_private:  # whatever the server asks for, and is not covered, would be refused
        asked = {kind.__name__ for kind in method.asks if kind.declared.made_of in OF_RECORDS}
        assert asked <= set(covers)


# -- what no ledger counts, and paying first ------------------------------------------------------


def stub(made_of, when=When.STEP):
    return message(from_party=True, made_of=made_of, when=when, contents="for tests")


@stub(MadeOf.RECORDS)
class StubOfRecords(Message):
    pass


@stub(MadeOf.NETWORKS)
class StubOfNetworks(Message):
    pass


@stub(MadeOf.COLUMNS)
class StubOfColumns(Message):
    pass


@stub(MadeOf.RECORDS, When.EPOCH)
class StubOfEpoch(Message):
    pass


@stub(MadeOf.RECORDS, When.ONCE)
class StubOnce(Message):
    pass


STUBS = (StubOfRecords, StubOfNetworks, StubOfColumns, StubOfEpoch, StubOnce)
for _kind in STUBS:  # other tests go through the package's own messages
    del MESSAGES[_kind.__name__]


class StubParty(VertiGANParty):
    """Answers everything that it is asked, and tells that it did."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.log = []

    def said(self, kind, step):
        self.log.append(f"computed {kind.__name__}")
        return kind(self.name, SERVER, step)

    @answers(StubOfRecords)
    def of_records(self, step):
        return self.said(StubOfRecords, step)

    @answers(StubOfNetworks)
    def of_networks(self, step):
        return self.said(StubOfNetworks, step)

    @answers(StubOfColumns)
    def of_columns(self, step):
        return self.said(StubOfColumns, step)

    @answers(StubOfEpoch)
    def of_epoch(self, step):
        return self.said(StubOfEpoch, step)

    @answers(StubOnce)
    def once(self, step):
        return self.said(StubOnce, step)

    def masked_real(self, step):
        self.log.append("computed MaskedReal")
        return super().masked_real(step)


class StubMethod(VertiGANMethod):
    party = StubParty


class Ledger:
    """Writes down what is paid into a party's own log."""

    def __init__(self, log, fails=False):
        self.log, self.fails = log, fails

    def check(self, entries):
        pass

    def spend(self, entries):
        if self.fails:
            raise PrivacyBudgetError("no more")
        steps = [entry.event.steps for entry in entries if entry.purpose == "training"]
        self.log.append(("paid", *steps, *(["before"] if len(entries) > len(steps) else [])))


PRIVACY = DPSGD(noise_multiplier=2.0, delta=1e-3, public_schema=SCHEMA, n_records=64)
EPOCHS = 4


@pytest.fixture
def node():
    """A party's side of a run whose networks are built, with a mechanism or without."""

    def make(privacy=PRIVACY, covers=(), account=None):
        rng = np.random.default_rng(0)
        frames = {name: pd.DataFrame({c: rng.random(64)}) for name, c in (("a", "x"), ("b", "y"))}
        model = VertiGANSynthesizer(
            privacy=privacy, batch_size=16, epochs=EPOCHS, generator_hidden=(4,)
        )
        run = LocalRun(
            StubMethod(model, privacy, torch.Generator().manual_seed(0)),
            frames,
            None,
            secrets=[b"secret"],
            device=torch.device("cpu"),
            templates={},
            schema=SCHEMA,
            options=Options(),
        )
        party = run.parties["a"]
        if account is not None:
            party.account = Ledger(party.party.log, **account)
        _, widths = run.join()
        party.take(EncodedSizes(SERVER, "a", 0, widths))
        if covers:
            found = {kind.__name__: Cover("training", noised=True) for kind in covers}
            plan = run.method.plan
            run.method.plan = replace(plan, covers={**plan.covers, **found})
        return party

    return make


@pytest.mark.parametrize("kind", [StubOfRecords, StubOfNetworks, StubOfEpoch, StubOnce, MaskedReal])
def test_what_no_entry_covers_is_refused_whatever_its_name(node, kind):
    party = node()
    with pytest.raises(ProtocolError, match=f"party 'a' refuses {kind.__name__}: the privacy led"):
        party.answer(kind, 0)
    assert party.party.log == []


@pytest.mark.parametrize("privacy", [None, FirstLayer(noise_multiplier=2.0, delta=1e-3)])
@pytest.mark.parametrize("kind", [StubOfRecords, StubOfNetworks, StubOfEpoch, StubOnce])
def test_where_nothing_is_promised_everything_is_answered(node, kind, privacy):
    assert type(node(privacy).answer(kind, 0)) is kind


def test_what_is_made_of_no_record_is_answered(node):
    party = node(account={})
    del party.party.log[:]
    assert type(party.answer(StubOfColumns, 0)) is StubOfColumns
    assert party.party.log == ["computed StubOfColumns"]


def test_what_the_node_itself_answers_is_refused_too(node):
    class Leaking(PartyRun):
        @answers(StubOfRecords)
        def leak(self, step):
            raise AssertionError("computed")

    party = node()
    party.__class__ = Leaking
    with pytest.raises(ProtocolError, match="refuses StubOfRecords"):
        party.answer(StubOfRecords, 0)


def test_a_release_under_another_name_is_paid_for_before_it_is_computed(node):
    """Once an epoch, whichever message is the first of it."""
    party = node(covers=STUBS, account={})
    log, each = party.party.log, party.duration.steps_per_epoch
    assert log == [("paid", each, "before")]  # the first epoch, and the histograms before it
    del log[:]
    party.answer(StubOfRecords, each - 1)  # still the first epoch
    party.answer(StubOnce, 0)
    assert log == ["computed StubOfRecords", "computed StubOnce"]
    del log[:]
    party.answer(StubOfNetworks, each)
    assert log == [("paid", each), "computed StubOfNetworks"]
    party.answer(StubOfRecords, 2 * each - 1)
    party.answer(StubOfEpoch, 2)
    assert log.count(("paid", each)) == 1
    party.answer(StubOfEpoch, 3)
    assert log[-2:] == [("paid", each), "computed StubOfEpoch"]


def test_epochs_that_nobody_asked_about_are_paid_for_too(node):
    """A party catches up with all steps before the one that it is asked about."""
    party = node(account={})
    log, each = party.party.log, party.duration.steps_per_epoch
    del log[:]
    party.answer(BackboneGradients, EPOCHS * each - 1)
    assert log == [("paid", (EPOCHS - 1) * each)]
    assert party.party.discriminator_optimizer.steps == EPOCHS * each


@pytest.mark.parametrize("kind", [StubOfRecords, BackboneGradients])
def test_what_cannot_be_paid_is_not_computed(node, kind):
    party = node(covers=STUBS, account={})
    log, each = party.party.log, party.duration.steps_per_epoch
    del log[:]
    party.account.fails = True
    with pytest.raises(PrivacyBudgetError):
        party.answer(kind, each)
    assert log == []
    assert party.party.discriminator_optimizer.steps == 0
    party.account.fails = False  # what failed was not taken for paid
    party.answer(kind, each)
    assert log[0] == ("paid", each)
