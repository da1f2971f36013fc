"""Privacy accounts: files that outlive processes, in one process and between two."""

import copy
import json
import math
import multiprocessing
import os
import re
import signal
import threading
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from tests.callbacks import StopAfter
from vflsynth import (
    DPLTSynthesizer,
    IndependentSynthesizer,
    LatentTree,
    PairwiseTables,
    VFLGANSynthesizer,
)
from vflsynth import _artefacts as artefacts
from vflsynth.cli import main
from vflsynth.exceptions import (
    ArtefactError,
    ParameterError,
    PrivacyBudgetError,
    PrivacyParameterError,
    UnsupportedEventError,
)
from vflsynth.mechanisms import DPSGD, Asked, Discriminators
from vflsynth.methods.latent_tree.party import LatentTreeParty
from vflsynth.privacy import (
    Budget,
    Composition,
    GaussianDPAccountant,
    GaussianRelease,
    LedgerEntry,
    NeighbouringRelation,
    PrivacyAccount,
    PrivacyLedger,
    PublicSchema,
    SampledRelease,
    Sampler,
)
from vflsynth.privacy.account import merged
from vflsynth.privacy.account_file import next_record
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.events import event_to_dict, label_releases
from vflsynth.run.party_run import PartyRun
from vflsynth.run.server_run import of_replicas
from vflsynth.splitdefense import RandomizedResponse, SplitNNClassifier

DELTA = 1e-5
SCHEMA = PublicSchema({"x": (0, 10)}, {"big": (False, True)}, dtypes="given")


def planned(relation="add_or_remove_one", epsilon=1.0):
    privacy = PairwiseTables(
        epsilon=epsilon, delta=DELTA, public_schema=PublicSchema(), neighbouring_relation=relation
    )
    asked = Asked(n_records=40, owners=Discriminators.PRIVATE)
    return privacy.plan({"a": ColumnCounts(1), "b": ColumnCounts(1)}, asked).ledger


PLAN = planned()


@pytest.fixture
def account(tmp_path):
    account = PrivacyAccount.create(tmp_path / "account.json", Budget(2.5, DELTA))
    account.patience = 0.1
    return account


def book(account, plan=PLAN, run="run"):
    opened = account.open(run, plan)
    try:
        opened.check(plan.entries)
        opened.spend(plan.entries)
    finally:
        opened.close()


def head_of(account):
    return account.path.with_name(f".{account.path.name}.head")


def sampled(noise, rate, steps=1):
    release = GaussianRelease("sum", "a", noise, 1.0, NeighbouringRelation.ADD_OR_REMOVE_ONE)
    return LedgerEntry("training", SampledRelease((release,), Sampler.POISSON, rate, steps))


def tree(epsilon=1.0):
    privacy = LatentTree(epsilon=epsilon, delta=DELTA, public_schema=SCHEMA, n_bins=4)
    return DPLTSynthesizer(privacy=privacy, random_state=0)


@pytest.fixture(scope="module")
def frames():
    x = np.arange(60) % 10
    return {"a": pd.DataFrame({"x": x}), "b": pd.DataFrame({"big": x > 4})}


# -- what is in it --------------------------------------------------------------------------------


def test_releases_compose_and_what_is_left_is_room_for_exactly_one_more(account):
    assert (account.epsilon(), account.left()) == (0.0, 2.5)
    book(account)
    book(account, run="another")
    both = replace(PLAN, entries=PLAN.entries * 2)
    assert account.entries == both.entries
    assert account.epsilon() == pytest.approx(both.epsilon(), rel=1e-12)
    left = account.left()
    assert left > 2.5 - both.epsilon()
    with pytest.raises(PrivacyBudgetError):
        book(account, planned(epsilon=left * 1.01))
    book(account, planned(epsilon=left * 0.999))
    assert account.epsilon() <= 2.5
    assert account.left() < 0.3
    assert [attempt.run for attempt in account.attempts] == ["run", "another", "run"]


def test_it_is_written_without_indent_which_json_does_slowly(account):
    book(account)
    assert account.path.read_text(encoding="utf-8").count("\n") == 0


def test_a_refusal_names_what_is_left_and_books_nothing(account):
    book(account)
    before = account.path.read_bytes()
    with pytest.raises(PrivacyBudgetError) as caught:
        book(account, planned(epsilon=2.4))
    for word in ("from epsilon 1 to", "agrees to 2.5", f"epsilon {account.left():.4g}", "Nothing"):
        assert word in str(caught.value)
    assert account.path.read_bytes() == before


def test_sampled_releases_are_composed_by_an_accountant_for_them(account):
    pytest.importorskip("dp_accounting")
    plan = replace(PLAN, entries=(sampled(1.0, 0.01, steps=3),))
    opened = account.open("dpsgd", plan)
    opened.check(plan.entries)
    for _ in range(3):
        opened.spend([sampled(1.0, 0.01)])
    opened.close()
    assert account.entries == plan.entries
    assert account.epsilon() == plan.epsilon(DELTA)
    assert 2.0 < account.left() < 2.5


def test_a_run_that_goes_on_pays_for_what_the_account_does_not_have(account):
    def releases(first, last=4):
        return [] if last < first else [sampled(30.0, 0.1, steps=3 * (last + 1 - first))]

    opened = account.open("run", PLAN)
    assert opened.begin(releases, 2) == 0, "another account has its first two epochs"
    for epoch in (1, 2, 3):
        opened.spend(releases(epoch, epoch))
    opened.close()
    opened = account.open("run", PLAN)
    assert [opened.begin(releases, done) for done in range(5)] == [0, 1, 2, 3, 0]
    opened.close()


def test_steps_of_one_mechanism_are_added_up():
    three, four, others = sampled(1.0, 0.1, 3), sampled(1.0, 0.1, 4), sampled(2.0, 0.1, 4)
    assert merged((three,), four) == (sampled(1.0, 0.1, 7),)
    assert merged((three,), others) == (three, others)
    assert merged((), four) == (four,)


def test_a_missing_file_is_not_an_empty_account(tmp_path):
    with pytest.raises(ArtefactError, match=r"no privacy account.*bring it back"):
        PrivacyAccount(tmp_path / "account.json").epsilon()
    with pytest.raises(ArtefactError, match="no privacy account"):
        book(PrivacyAccount(tmp_path / "account.json"))
    assert not (tmp_path / "account.json").exists()


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"format": "vflsynth privacy account", "version": 2}', "[]", "{", "[" * 100_000],
)
def test_what_is_no_account_is_refused(account, text):
    account.path.write_text(text)
    with pytest.raises(ArtefactError, match="is not a privacy account"):
        book(account)


def test_a_record_that_was_changed_or_taken_out_shows(account):
    book(account)
    content = json.loads(account.path.read_text())
    assert account.path.stat().st_mode & 0o077 == 0

    def refused(records):
        account.path.write_text(json.dumps(content | {"records": records}))
        with pytest.raises(ArtefactError, match="is not what was written"):
            account.epsilon()

    for number in range(len(content["records"])):
        taken = content["records"][:number] + content["records"][number + 1 :]
        if number + 1 < len(content["records"]):
            refused(taken)
        changed = copy.deepcopy(content["records"])
        changed[number]["details"]["purpose"] = "less"
        refused(changed)


def test_a_budget_can_be_changed_and_the_file_says_so(account):
    book(account)
    account.set_budget(Budget(1.0, DELTA))
    assert account.left() < 0.01
    with pytest.raises(PrivacyBudgetError):
        book(account)
    account.set_budget(None)
    assert math.isinf(account.left())
    book(account)
    with pytest.raises(ParameterError, match="needs a delta"):
        account.epsilon()
    assert [r["event"] for r in account.records()].count("budget") == 2


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (-1.0, 0.1), (1.0, 0.0), (1.0, 1.0)])
def test_a_budget_is_one(epsilon, delta):
    with pytest.raises(ParameterError):
        Budget(epsilon, delta)


def test_a_budget_in_small_numbers_of_numpy_is_written_as_others(account):
    account.set_budget(Budget(np.float32(1.0), np.float32(1e-5)))
    assert account.budget == Budget(1.0, float(np.float32(1e-5)))


def test_releases_under_two_neighbouring_relations_are_not_in_one_account(account):
    book(account)
    before = account.path.read_bytes()
    with pytest.raises(ParameterError) as caught:
        account.open("two", planned("replace_one"))
    for word in (str(account.path), "'replace_one'", "'add_or_remove_one'"):
        assert word in str(caught.value)
    assert account.path.read_bytes() == before
    account.open("one", PLAN).close()


def test_batches_that_no_accountant_adds_up_are_not_in_one_account(account):
    """They were, where there is no budget, and no epsilon could be had of the account again."""
    account.set_budget(None)

    def ledger(sampler):
        one = GaussianRelease("gradients", "a", 9.0, 2.0, "replace_one", record_norm=1.0)
        entry = LedgerEntry("training", SampledRelease((one,), sampler, 0.1, 5))
        return replace(PLAN, entries=(entry,))

    book(account, ledger("poisson"))
    before = account.path.read_bytes()
    with pytest.raises(ParameterError, match="drawn in different ways"):
        account.open("two", ledger("without_replacement"))
    assert account.path.read_bytes() == before
    book(account, planned("replace_one"), run="without batches")
    assert account.epsilon(DELTA) > 0.0


def test_a_resumed_run_that_releases_nothing_may_overshoot_nothing(account):
    account.set_budget(Budget(0.1, DELTA))
    for _ in range(3):
        opened = account.open("run", PLAN)
        opened.check(())
        with pytest.raises(PrivacyBudgetError):
            opened.check(PLAN.entries)
        opened.close()
    assert account.attempts == ()


def test_what_another_run_booked_does_not_pay_for_one_that_goes_on(account):
    account.set_budget(None)
    book(account, run="one")
    for run, paid in [("one", 2), ("another", 0)]:
        opened = account.open(run, PLAN)
        found = opened.begin(lambda *epochs: PLAN.entries, 2)
        opened.close()
        assert found == paid


def test_what_was_shown_is_in_every_longer_account_and_in_no_shorter_one(account):
    first = account.show()
    shorter = account.path.read_bytes()
    book(account)
    second = account.show()
    assert second["account"] == first["account"]
    assert second["heads"][:-1] == first["heads"]
    account.path.write_bytes(shorter)
    head_of(account).unlink()  # else its own folder would notice
    assert second["heads"][-1] not in account.show()["heads"]


# -- one file, whatever it is called, and all of it ------------------------------------------------


@pytest.fixture
def link(account, tmp_path):
    """A folder beside that leads to the account by another name."""
    link = tmp_path / "elsewhere" / "link.json"
    link.parent.mkdir()
    link.symlink_to(account.path)
    return link


def test_what_is_booked_by_a_symbolic_link_is_in_the_file_it_leads_to(account, link, frames):
    tree(2.0).fit(frames, account=link)
    assert link.is_symlink()
    assert [path.name for path in link.parent.iterdir()] == ["link.json"]
    assert account.epsilon() == PrivacyAccount(link).epsilon() == pytest.approx(2.0)
    with pytest.raises(PrivacyBudgetError):
        tree(2.0).fit(frames, account=account)


def test_one_run_at_a_time_by_whatever_name(account, link):
    opened = account.open("one", PLAN)
    with pytest.raises(ParameterError, match="another private run"):
        PrivacyAccount(link, patience=0.1).open("two", PLAN)
    opened.close()
    PrivacyAccount(link, patience=0.1).open("two", PLAN).close()


def test_a_link_that_leads_nowhere_yet_is_made_where_it_leads(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "account.json")
    account = PrivacyAccount.create(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert PrivacyAccount(tmp_path / "account.json").records() == account.records()


def test_a_file_that_becomes_a_link_is_not_replaced(account, tmp_path):
    account.path.rename(tmp_path / "moved.json")
    account.path.symlink_to(tmp_path / "moved.json")
    with pytest.raises(ArtefactError, match="a link by now"):
        book(account)
    assert account.path.is_symlink()


def test_a_file_with_two_names_is_refused_by_both(account, frames, tmp_path):
    book(account)
    before = account.path.read_bytes()
    other = tmp_path / "other.json"
    other.hardlink_to(account.path)
    for path in (other, account.path):
        with pytest.raises(
            ArtefactError, match=r"one of 2 names.*hard links.*Nothing was released"
        ):
            tree().fit(frames, account=path)
    assert account.path.read_bytes() == before
    other.unlink()
    book(account)


def in_two_processes(work, what):
    """Do the same in two processes at once; return what both say in all."""
    context = multiprocessing.get_context("fork")
    gate, results = context.Barrier(2), context.SimpleQueue()
    both = [context.Process(target=work, args=(what, gate, results)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    said = []
    while not results.empty():
        said.append(results.get())
    return said


def _create_in_a_process(paths, gate, results):
    for path in paths:
        gate.wait()
        try:
            PrivacyAccount.create(path, Budget(1.0, DELTA))
        except ParameterError:
            results.put((path, "refused"))
        else:
            results.put((path, "created"))


def test_of_two_processes_one_creates(tmp_path):
    paths = [tmp_path / f"{attempt}.json" for attempt in range(15)]
    found = sorted(in_two_processes(_create_in_a_process, paths))
    assert found == sorted((path, what) for path in paths for what in ("created", "refused"))


def test_to_create_what_is_there_does_not_wait_for_a_run(account):
    opened = account.open("one", PLAN)
    with pytest.raises(ParameterError, match="is there already"):
        PrivacyAccount.create(account.path)
    opened.close()


def test_an_older_copy_that_is_put_back_is_refused_until_somebody_insists(account, frames):
    book(account)
    older = account.path.read_bytes()
    book(account, run="later")
    account.path.write_bytes(older)  # valid, and with room for another run
    for read in (account.epsilon, account.show, lambda: tree().fit(frames, account=account)):
        with pytest.raises(ArtefactError) as caught:
            read()
    for words in (str(account.path), "had 7 records", "these 4", str(head_of(account)), "Nothing"):
        assert words in str(caught.value)
    assert account.path.read_bytes() == older
    head_of(account).unlink()
    assert account.epsilon() == pytest.approx(1.0)
    book(account)
    assert head_of(account).stat().st_mode & 0o077 == 0


def test_another_account_in_its_place_is_refused(account, tmp_path):
    other = PrivacyAccount.create(tmp_path / "other.json")
    for _ in range(3):
        book(other)
    other.path.rename(account.path)
    with pytest.raises(ArtefactError, match="another account"):
        account.epsilon()


def test_an_account_that_was_lost_is_not_made_anew_unasked(account):
    book(account)
    account.path.unlink()
    with pytest.raises(ArtefactError, match=r"there was a privacy account of 4 records.*deleted"):
        PrivacyAccount.create(account.path)
    assert not account.path.exists()
    head_of(account).unlink()  # nobody can notice this
    assert PrivacyAccount.create(account.path).epsilon(DELTA) == 0.0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"records": "?", "digest": ""}'])
def test_a_head_that_cannot_be_read_is_an_error(account, text):
    head_of(account).write_text(text)
    with pytest.raises(ArtefactError, match=r"cannot be read.*bring it back, or delete it"):
        account.epsilon()


def test_a_crash_between_account_and_head_is_no_older_copy(account, monkeypatch):
    replace_json = artefacts.replace_json

    def killed(path, content, **rest):
        if path == head_of(account):
            raise KeyboardInterrupt
        replace_json(path, content, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(artefacts, "replace_json", killed)
        with pytest.raises(KeyboardInterrupt):
            book(account)
    assert account.epsilon() == pytest.approx(1.0)
    book(account)
    assert account.epsilon() > 1.0


def test_whoever_reads_while_another_writes_is_not_told_of_an_older_copy(account):
    writer = threading.Thread(target=lambda: [account.show() for _ in range(60)])
    writer.start()
    found = 0
    while writer.is_alive():
        found = len(account.records())
    writer.join()
    assert 1 <= found <= 61


# -- several at once, and crashes -----------------------------------------------------------------


def test_an_account_that_is_moved_while_it_is_open_ends_the_run(account, tmp_path):
    """Its folder takes it along: what is booked under the old name nobody would find."""
    folder = tmp_path / "site"
    own = PrivacyAccount.create(folder / "account.json")
    opened = own.open("run", PLAN)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ArtefactError, match="moved or deleted"):
        opened.spend(PLAN.entries)
    opened.close()
    assert not folder.exists()


def test_what_another_run_wrote_past_the_lock_is_not_written_over(account):
    """Some file systems have no locks, and a lock file can be deleted."""
    one = account.open("one", PLAN)
    account.path.with_name(f".{account.path.name}.lock").unlink()
    other = account.open("other", PLAN)
    other.spend(PLAN.entries)
    booked = account.records()
    with pytest.raises(ArtefactError, match="written by another run while this one had it open"):
        one.spend(PLAN.entries)
    assert account.records() == booked
    one.close()
    other.close()


def test_a_release_of_no_run_makes_no_account(account):
    records = account.records()
    details = {"purpose": "x", "event": event_to_dict(PLAN.entries[0].event)}
    account._file.write([*records, next_record(records, "spent", details)])
    with pytest.raises(ArtefactError, match="not a privacy account"):
        account.epsilon()


def _book_in_a_process(path, gate, results):
    gate.wait()
    account = PrivacyAccount(path)
    try:
        for _ in range(7):
            book(account, PLAN_OF_A_HALF)
            results.put("booked")
    except PrivacyBudgetError:
        results.put("refused")


PLAN_OF_A_HALF = planned(epsilon=0.5)


def test_two_processes_at_once_never_overshoot_and_lose_nothing(account):
    one_more = replace(PLAN_OF_A_HALF, entries=PLAN_OF_A_HALF.entries * 6)
    account.set_budget(Budget(one_more.epsilon() * 1.001, DELTA))
    outcomes = in_two_processes(_book_in_a_process, account.path)
    assert outcomes.count("booked") == len(account.attempts) == 6
    assert outcomes.count("refused") == 2
    assert account.epsilon() <= account.budget.epsilon


def _die_before_the_release(path, frames):
    def killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    PartyRun.encode = killed
    tree().fit(frames, account=path)


def test_what_a_killed_process_booked_stays_booked_and_the_account_is_free(account, frames):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_die_before_the_release, args=(account.path, frames))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(account.attempts) == 1
    assert account.epsilon() == pytest.approx(1.0)
    tree().fit(frames, account=account)
    assert len(account.attempts) == 2


# -- fits -----------------------------------------------------------------------------------------


def test_every_fit_clone_and_candidate_books_what_its_ledger_says(account, frames):
    account.set_budget(None)
    first = tree().fit(frames, account=account)
    second = clone(first).fit(frames, account=str(account.path))
    both = (*first.privacy_ledger_.entries, *second.privacy_ledger_.entries)
    assert account.entries == both
    assert account.attempts[0].run == "fit of DPLTSynthesizer with LatentTree"
    for candidate in ParameterGrid({"group_size": [1, 2], "privacy__epsilon": [0.5, 1.0]}):
        clone(first).set_params(**candidate).fit(frames, account=copy.deepcopy(account))
    assert len(account.attempts) == 6
    tree().fit(frames)  # no account, nothing booked
    assert len(account.attempts) == 6


def test_an_overdrawn_fit_is_refused_before_a_party_draws_noise(account, frames, monkeypatch):
    encoded = []
    monkeypatch.setattr(PartyRun, "encode", lambda self: encoded.append(self.name))
    with pytest.raises(PrivacyBudgetError):
        tree(3.0).fit(frames, account=account)
    assert encoded == []
    assert account.attempts == ()
    account.open("the account is free again", PLAN).close()


def test_a_fit_that_fails_on_the_way_has_paid(account, frames, monkeypatch):
    def fails(self, *arguments):
        raise RuntimeError

    monkeypatch.setattr(LatentTreeParty, "pair_tables", fails)
    with pytest.raises(RuntimeError):
        tree().fit(frames, account=account)
    assert account.epsilon() == pytest.approx(1.0)


def test_training_books_epoch_by_epoch(account, frames):
    pytest.importorskip("dp_accounting")
    privacy = DPSGD(
        noise_multiplier=5.0,
        delta=DELTA,
        n_records=60,
        public_schema=SCHEMA,
        preprocessing_share=0.0,
    )
    synth = VFLGANSynthesizer(privacy=privacy, epochs=4, batch_size=8, random_state=0)
    account.set_budget(None)
    synth.fit(frames, account=account, callbacks=[StopAfter(2)])
    (attempt,) = account.attempts
    (booked,), (whole,) = attempt.entries, synth.privacy_ledger_.entries
    assert booked.event.steps * 4 == whole.event.steps * 3  # the next one is paid for already


def test_replicas_book_the_steps_of_each_and_what_they_share_once(account, frames):
    privacy = DPSGD(
        noise_multiplier=4.0, delta=DELTA, public_schema=SCHEMA, n_records=60, max_grad_norm=1.0
    )
    small = {"epochs": 2, "batch_size": 16, "generator_hidden": (4,), "device": "cpu", "verbose": 0}
    synth = VFLGANSynthesizer(privacy=privacy, discriminator_steps=1, **small)
    models = synth.fit_replicas(frames, random_states=[0, 1, 2], account=account)
    own = {entry.purpose: entry.event for entry in models[0].privacy_ledger_.entries}
    booked = {entry.purpose: entry.event for entry in account.entries}
    assert booked.keys() == own.keys() == {"preprocessing", "training"}
    assert booked["training"].steps == 3 * own["training"].steps
    assert booked["preprocessing"] == own["preprocessing"]
    assert "of 3 that were fitted at once" in " ".join(str(models[2].privacy_ledger_).split())
    account.set_budget(Budget(account.epsilon() * 1.01, DELTA))
    before = account.entries
    with pytest.raises(PrivacyBudgetError, match="Nothing was released"):
        synth.fit_replicas(frames, random_states=[0, 1, 2], account=account)
    assert account.entries == before


def test_steps_of_replicas_are_counted_within_a_composition_too():
    """A mechanism of others may have several kinds of steps in one entry."""
    one = GaussianRelease("gradients", "a", 9.0, 1.0, "add_or_remove_one")
    steps = SampledRelease((one,), "poisson", 0.1, 5)
    of_all = of_replicas(LedgerEntry("training", Composition((one, Composition((steps,))))), 3)
    assert of_all.event == Composition((one, Composition((replace(steps, steps=15),))))


def test_randomised_labels_add_up_in_an_account_of_their_own(account, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    model = SplitNNClassifier(
        label_privacy=RandomizedResponse(1.0), epochs=1, random_state=None, monitor=False
    )
    model.fit(X, y, account=account)
    assert account.epsilon() == model.privacy_ledger_.epsilon() == 1.0
    assert account.left() == 1.5
    text = str(model.privacy_ledger_)
    assert "ε = 1.00 at any δ" in text
    assert "one label; tables that differ in one label look alike" in text
    model.save(tmp_path / "model")
    loaded = SplitNNClassifier.load(tmp_path / "model").privacy_ledger_
    assert loaded == model.privacy_ledger_
    model.set_params(random_state=0)
    model.fit(X, y, account=account, checkpoint=tmp_path / "checkpoint")
    model.fit(X, y, account=account, resume=tmp_path / "checkpoint")
    assert account.left() == 0.5, "who goes on draws no other responses"
    other = PrivacyAccount.create(tmp_path / "other.json", Budget(1.0, DELTA))
    model.fit(X, y, account=other, resume=tmp_path / "checkpoint")
    assert other.left() == 0.0, "and pays where they are not booked"
    other.set_budget(Budget(2.0, DELTA))
    model.fit(X, y, account=other, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(PrivacyBudgetError, match="from epsilon 2 to 3"):  # two equal fits are there
        model.fit(X, y, account=account, resume=tmp_path / "checkpoint")
    model.fit(X, y, resume=tmp_path / "checkpoint")  # without an account, which forgets nothing
    model.fit(X, y, account=other, resume=tmp_path / "checkpoint")
    assert other.left() == 0.0
    before = account.path.read_bytes()
    with pytest.raises(PrivacyBudgetError, match="from epsilon 2 to 4"):
        model.fit_replicas(X, y, random_states=[1, 2], account=account)
    with pytest.raises(ParameterError, match="for labels an account of their own"):
        book(account)
    with pytest.raises(ParameterError, match="has no label_privacy"):
        SplitNNClassifier(epochs=1).fit(X, y, account=account)
    assert account.path.read_bytes() == before
    (release,) = label_releases(account.entries[0].event)
    with pytest.raises(UnsupportedEventError, match="randomised response"):
        GaussianDPAccountant().epsilon(release, DELTA)
    assert not GaussianDPAccountant().supports(release)
    with pytest.raises(PrivacyParameterError):
        Composition((release, PLAN.event))


def test_fits_without_privacy_have_nothing_to_book(account, frames):
    with pytest.raises(ParameterError, match="account is for private fits"):
        IndependentSynthesizer().fit(frames, account=account)


def test_the_command_makes_shows_and_limits(tmp_path, cli):
    path = tmp_path / "account.json"
    assert "there is no privacy account" in cli(["account", str(path)], 3).err
    said = cli(["account", str(path), "--create", "--epsilon", "3", "--delta", "1e-5"]).out
    assert "nothing was released" in said
    assert main(["account", str(path), "--create"]) == 2
    book(PrivacyAccount(path))
    shown = cli(["account", str(path)]).out
    for words in ("ε = 1.0 at δ = 1e-05", "budget: ε = 3", "preprocessing, pairs", "run"):
        assert words in shown
    left = float(re.search("noise with ε = ([0-9.]+)", shown)[1])
    assert left == pytest.approx(PrivacyAccount(path).left(), abs=2e-4)
    assert main(["account", str(path), "--epsilon", "0.5"]) == 2
    assert main(["account", str(path), "--delta", "0"]) == 2
    assert main(["account", str(path), "--epsilon", "0.5", "--delta", "1e-5"]) == 0
    assert PrivacyAccount(path).budget == Budget(0.5, 1e-5)


def test_what_an_epsilon_depends_on_is_said_with_it(account, cli):
    condition = "conditional on a proof with a gap"
    book(account)
    assert "condition" not in cli(["account", str(account.path)]).out
    book(account, replace(PLAN, condition=condition), run="fit with a gap")
    assert account.conditions == (condition,)
    assert [attempt.condition for attempt in account.attempts] == ["", condition]
    first, *rest = cli(["account", str(account.path)]).out.splitlines()
    assert first.endswith("at δ = 1e-05 was spent; CONDITIONAL ON A PROOF WITH A GAP")
    assert [line.endswith(condition) for line in rest[-2:]] == [False, True]
    with pytest.raises(PrivacyBudgetError, match=r"at delta 1e-05; CONDITIONAL .*; .* agrees to"):
        book(account, planned(epsilon=2.4))


def test_epsilons_of_gradients_only_are_marked(account, cli):
    ledger = PrivacyLedger("m", "c", False, DELTA, PLAN.entries)
    book(account, ledger)
    assert "NOT COUNTED" in cli(["account", str(account.path)]).out
