"""Private runs across nodes: what is noised, what it costs, and that a crash is paid for."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from tests import planted
from tests.later import later
from tests.unit.federation.trial import Dead, Opened, assert_same
from vflsynth.columns.schema import Bounds, Categories
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import (
    AccountRewoundError,
    ArtefactError,
    EmptyColumnError,
    NoPrivacyWarning,
    ParameterError,
    PartyDataError,
    PartyStoppedError,
    PrivacyBudgetError,
    ProtocolError,
)
from vflsynth.federation.account import FILE, KNOWN
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.site import Budget, Site, kept_secret
from vflsynth.frames import write_table
from vflsynth.learning.messages import MaskedStates, SumShares
from vflsynth.methods.latent_tree.messages import LatentTables, LatentTree
from vflsynth.methods.pairwise.messages import ColumnTables, Mixture
from vflsynth.methods.vertigan.messages import BackboneGradients
from vflsynth.methods.vflgan.messages import SampledFeatures
from vflsynth.privacy import PrivacyAccount, PrivacyLedger, PublicSchema, SampledRelease
from vflsynth.protocol.messages import CheckpointNotice, EncodedSize
from vflsynth.secure import ring
from vflsynth.secure.products import ProductParty

pytestmark = pytest.mark.usefixtures("short_searches")

NODES = ("server", "party_1", "party_2")


def in_one_process(trial):
    """The estimator of a trial's job, with what its sites say is public."""
    return trial.estimator(privacy__public_schema=trial.schema)


@pytest.mark.parametrize("n_parties", [2, *later(3)])
def test_every_node_knows_what_was_noised_and_what_it_cost(make_private_trial, n_parties):
    trial = make_private_trial(n_parties).finish()
    for node in ("server", *trial.sites):
        found = trial.report(node)
        noised = {row["message"]: row["noised"] for row in found["left"] + found["arrived"]}
        assert noised["ColumnTables"]
        assert noised["Mixture"]
        assert noised["MaskedStates"]  # or masked
        assert noised["SumShares"]
        privacy = found["privacy"]
        ledger = PrivacyLedger.from_dict(privacy["ledger"])
        assert ledger.epsilon() <= 2.0 + 1e-9
        assert ledger.epsilon() > 1.99
        assert privacy["attempts that released something"] == 1
        assert [entry.purpose for entry in ledger.entries] == ["preprocessing", "pairs"]
        assert len(trial.account(node)) == 1
    for name in trial.sites:
        assert len(trial.half(name).sample(20, 3)) == 20


TREE = {"privacy": {"mechanism": "latent_tree"}, "parameters": {}, "method": "DPLTSynthesizer"}
PAIRS = {}
FINE = {"privacy": {"epsilon": 1e6, "n_bins": 16}}
"""With so little noise that numbers have codes of knots."""


@pytest.mark.parametrize(
    ("more", "n_parties", "stated"),
    [
        *((PAIRS, 2, False), (FINE, 2, True)),
        *later((TREE, 2, True), (TREE, 2, False), (PAIRS, 2, True)),  # one hides dummies, too
        *later((FINE, 3, True), (TREE, 3, True), (PAIRS, 3, True)),
    ],
)
def test_it_is_the_run_in_one_process_but_for_noise_and_masks(
    make_private_trial, monkeypatch, more, n_parties, stated
):
    """Without the first and with the same of the others, the two give the same bytes."""
    monkeypatch.setattr(ring, "BLOCK_ELEMENTS", 300)  # several blocks of records
    chosen = more.get("privacy", {}) | ({} if stated else {"epsilon": 500.0})  # to find categories
    more = more | {"privacy": chosen, "budget": Budget(1e30, 1e-3)}
    trial = make_private_trial(n_parties, **more)
    if not stated:
        trial.schema = PublicSchema(dtypes="given")
        for party in trial.sites:
            trial.change(party, schema=trial.schema)
    with monkeypatch.context() as patch:
        planted.no_noise(patch)
        planted.same_masks(patch)
        trial.finish()
        synth = in_one_process(trial)
        synth.fit(trial.frames, "record_id", transcript=True)
    assert_same(trial, synth)
    crossed = synth.transcript_.set_index(["message", "sender", "receiver"])
    for node in ("server", *trial.sites):
        for row in trial.report(node)["left"]:
            key = row["message"], row["sender"], row["receiver"]
            if row["message"] in ("MaskedStates", "SumShares"):
                assert row["messages"] == crossed.loc[key, "messages"]
                assert row["bytes"] == crossed.loc[key, "bytes"]
                assert row["messages"] > 1 or row["message"] == "SumShares"
    with pytest.raises(AssertionError):  # noise is no part of a random state
        assert_same(trial, in_one_process(trial).fit(trial.frames, "record_id"))


def changing(kind, change, of="party_1"):
    """A link on which one party's message, or what is sent to it, is not what it should be."""

    class Changing(Opened):
        def leaves(self, frame):
            if self._name != of:
                return frame
            messages = tuple(change(m) if isinstance(m, kind) else m for m in frame.messages)
            return replace(frame, messages=messages)

        arrives = leaves

    return Changing


def filled(values, number):
    return torch.full_like(values, number)


@pytest.mark.parametrize(
    ("more", "kind", "change", "says"),
    [
        (PAIRS, SumShares, lambda m: {"shares": m.shares[1:]}, "sent shares"),
        (TREE, MaskedStates, lambda m: {"numbers": m.numbers[:, 1:]}, "sent a masked matrix"),
        (TREE, MaskedStates, lambda m: {"tags": m.tags[:, 1:]}, "sent tags"),
        (PAIRS, MaskedStates, lambda m: {"places": m.places + 99}, "sent places"),
        (PAIRS, MaskedStates, lambda m: {"numbers": m.numbers + 1}, "masked numbers that no"),
        (PAIRS, ColumnTables, lambda m: {"codes": m.codes * 99}, "sent codes of columns from"),
        (TREE, LatentTables, lambda m: {"sizes": m.sizes + 99}, "says that its latent"),
        (TREE, LatentTables, lambda m: {"counts": filled(m.counts, -(2**63))}, "counts of up to"),
        (PAIRS, ColumnTables, lambda m: {"counts": filled(m.counts, 2**63 - 1)}, "counts of up to"),
        (PAIRS, ColumnTables, lambda m: {"shares": filled(m.shares, 1e308)}, "a column's states"),
        *later(  # further values of the same check
            (TREE, MaskedStates, lambda m: {"numbers": m.numbers + 1}, "masked numbers that no"),
            (
                PAIRS,
                ColumnTables,
                lambda m: {"counts": filled(m.counts, -(2**63))},
                "counts of up to",
            ),
        ),
    ],
)
@pytest.mark.parametrize("of", ["party_1", *later("party_2")])
def test_what_is_wrong_with_a_message_ends_the_run_by_name(
    make_private_trial, more, kind, change, says, of
):
    trial = make_private_trial(budget=Budget(9.0, 1e-3), **more)
    trial.run(changing(kind, lambda m: replace(m, **change(m)), of))
    assert isinstance(trial.outcome["server"], ProtocolError)
    assert says in str(trial.outcome["server"])
    for node in NODES:
        assert f"party '{of}'" in str(trial.outcome[node])


@pytest.mark.parametrize(
    ("more", "kind", "change", "says"),
    [
        (PAIRS, Mixture, lambda m: {"weights": -m.weights}, "a mixture with weights"),
        (PAIRS, Mixture, lambda m: {"shares": -m.shares}, "a mixture with states of a column"),
        (PAIRS, Mixture, lambda m: {"shares": m.shares[:, 1:]}, "a mixture of shape"),
        (
            PAIRS,
            Mixture,
            lambda m: {"weights": m.weights.repeat(10) / 10.0, "shares": m.shares.repeat(10, 1)},
            "a mixture of shape",
        ),
        (TREE, LatentTree, lambda m: {"parents": m.parents * 0 + 1}, "a tree with parents"),
        (TREE, LatentTree, lambda m: {"shares": m.shares[1:]}, "shares; expected"),
        (TREE, LatentTree, lambda m: {"shares": -m.shares}, "states of a latent attribute"),
        (TREE, LatentTree, lambda m: {"sizes": m.sizes + 1}, "whose latent attributes have"),
        (TREE, LatentTree, lambda m: {"first": m.first + 1}, "a tree of 4 latent attributes"),
        *later(  # further values of the same check
            (
                PAIRS,
                Mixture,
                lambda m: {"shares": m.shares.flip(0, 1)},
                "a mixture with states of a",
            ),
            (
                PAIRS,
                Mixture,
                lambda m: {"weights": m.weights[:0], "shares": m.shares[:0]},
                "a mixture of shape",
            ),
            (TREE, LatentTree, lambda m: {"parents": m.parents - 1}, "a tree with parents"),
            (TREE, LatentTree, lambda m: {"shares": m.shares * 2.0}, "states of a latent attrib"),
            (
                TREE,
                LatentTree,
                lambda m: {"parents": m.parents[1:], "sizes": m.sizes[1:]},
                "a tree of 3 latent attributes",
            ),
            (PAIRS, Mixture, lambda m: {"weights": m.weights * 1e38}, "a mixture with weights"),
            (PAIRS, Mixture, lambda m: {"weights": m.weights * 0.0}, "a mixture with weights"),
            (
                PAIRS,
                Mixture,
                lambda m: {"shares": m.shares * 0.0},
                "a mixture with states of a col",
            ),
            (TREE, LatentTree, lambda m: {"parents": m.parents + 1000}, "a tree with parents"),
            (TREE, LatentTree, lambda m: {"parents": m.parents * 0 - 1}, "a tree with parents"),
            (
                TREE,
                LatentTree,
                lambda m: {"shares": m.shares * 1e300},
                "states of a latent attribute",
            ),
            (TREE, LatentTree, lambda m: {"sizes": m.sizes * 0}, "whose latent attributes have"),
        ),
    ],
)
def test_a_server_that_publishes_no_distribution_is_refused(
    make_private_trial, more, kind, change, says
):
    trial = make_private_trial(budget=Budget(9.0, 1e-3), **more)
    trial.run(changing(kind, lambda m: replace(m, **change(m))))
    assert isinstance(trial.outcome["party_1"], ProtocolError)
    assert "the server" in str(trial.outcome["party_1"])
    assert says in str(trial.outcome["party_1"])
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    assert not (trial.kept("party_1") / "half").exists()


def test_a_half_holds_neither_the_number_of_records_nor_digits_of_keys(make_private_trial):
    trial = make_private_trial().run()
    for name in trial.sites:
        assert trial.half(name).minter.offset == 10**18  # whatever the keys are
        text = "".join(p.read_text() for p in (trial.kept(name) / "half").rglob("*.json"))
        assert "n_records" not in text


# -- crashes --------------------------------------------------------------------------------------


class Watching(Opened):
    """Keeps what leaves, and looks whether it was accounted before; `at` ends party 1."""

    at = None
    how = RuntimeError
    left: ClassVar = {}

    def leaves(self, frame):
        for message in frame.messages:
            if isinstance(message, ColumnTables | MaskedStates | SumShares):
                path = self._node.folder.parents[1] / self._name / FILE
                attempts = len(PrivacyAccount(path).attempts)
                self.left.setdefault((self._name, type(message)), []).append((attempts, message))
            if self._name == "party_1" and (type(message), message.step) == self.at:
                if self.how is Dead:
                    self.outwait()
                raise self.how
        return frame


def contents_of(message):
    """All masked numbers of a message, one after the other."""
    return torch.cat([value.ravel() for _, value in message.contents()])


def ending(at, how=RuntimeError):
    return type("Ending", (Watching,), {"at": at, "how": how, "left": {}})


def test_what_a_crash_repeats_is_accounted_again_before_it_leaves_with_fresh_noise(
    make_private_trial,
):
    trial = make_private_trial(budget=Budget(4.0, 1e-3))
    link = ending((SumShares, 0), Dead)  # the columns' tables are out
    trial.run(link)
    assert isinstance(trial.outcome["party_1"], Dead)
    assert [len(trial.account(node)) for node in NODES] == [1, 1, 1]
    link.at = None
    trial.finish(link)
    for name in trial.sites:
        (one, first), (two, second) = link.left[name, ColumnTables]
        assert (one, two) == (1, 2)
        n = min(len(first.counts), len(second.counts))  # states follow from noise, too
        assert (first.counts[:n] == second.counts[:n]).double().mean() < 0.05
        for kind in (MaskedStates, SumShares):
            sent = [contents_of(m) for _, m in link.left[name, kind]]
            first, second = np.array_split(np.arange(len(sent)), 2)
            for before, after in zip(first, second, strict=True):
                n = min(len(sent[before]), len(sent[after]))
                assert (sent[before][:n] == sent[after][:n]).double().mean() < 0.05  # fresh masks
    for node in NODES:
        privacy = trial.report(node, 2)["privacy"]
        assert privacy["attempts that released something"] == 2
        ledger = PrivacyLedger.from_dict(privacy["ledger"])
        once = PrivacyLedger.from_dict(trial.report("party_2")["privacy"]["ledger"])
        assert len(ledger.entries) == 2 * len(once.entries)
        assert ledger.epsilon() > 1.4 * once.epsilon()
        assert privacy["all runs of this folder"]["epsilon"] == pytest.approx(ledger.epsilon())
        assert privacy["all runs of this folder"]["conditions"] == []


def test_a_party_that_dies_before_its_release_has_paid_for_it(make_private_trial):
    """Too much in the account, never too little."""
    trial = make_private_trial()
    trial.run(ending((ColumnTables, 0)))
    assert len(trial.account("party_1")) == 1


@pytest.mark.parametrize(
    ("more", "change", "says"),
    [
        (PAIRS, lambda m: {"tags": m.tags + 1}, "party 'party_1' sent other tags of the records"),
        (TREE, lambda m: {"seed": m.seed ^ 1}, "as that of 'party_1' does not bear its seal"),
        (TREE, lambda m: {"seal": m.seal ^ 1}, "as that of 'party_1' does not bear its seal"),
    ],
)
def test_wrong_tags_of_a_party_s_records_are_what_that_party_refuses(
    make_private_trial, more, change, says, monkeypatch
):
    """Before it sends shares; and all nodes are told who sent them."""
    trial = make_private_trial(budget=Budget(9.0, 1e-3), **more)
    asked = []
    honest = ProductParty.shares
    monkeypatch.setattr(
        ProductParty, "shares", lambda self, noise: asked.append(self.name) or honest(self, noise)
    )
    trial.run(changing(MaskedStates, lambda m: replace(m, **change(m)), "party_1"))
    for node in ("server", "party_2"):
        assert says in str(trial.outcome[node])
    assert not asked


def test_a_run_that_ends_between_blocks_of_records_is_done_again_with_other_masks(
    make_private_trial, monkeypatch
):
    monkeypatch.setattr(ring, "BLOCK_ELEMENTS", 300)
    trial = make_private_trial(budget=Budget(9.0, 1e-3), **TREE)
    seen = []

    class Link(Opened):
        ends = True

        def leaves(self, frame):
            for message in frame.messages:
                if self._name == "party_2" and isinstance(message, MaskedStates):
                    seen.append((message.step, contents_of(message)))
                    if self.ends and message.step == 1:
                        raise RuntimeError
            return frame

    trial.run(Link)
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    Link.ends = False
    trial.finish(Link)
    assert [step for step, _ in seen[:4]] == [0, 1, 0, 1]
    assert [len(trial.account(node)) for node in NODES] == [2, 2, 2]
    for (_, before), (_, after) in zip(seen[:2], seen[2:4]):
        assert (before == after).double().mean() < 0.05


# -- what a site agrees to ------------------------------------------------------------------------


def test_a_budget_that_is_too_small_stops_the_run_before_anything_is_released(make_private_trial):
    trial = make_private_trial()
    trial.change("party_2", budget=Budget(1.9, 1e-3))
    trial.run()
    error = trial.outcome["party_2"]
    assert isinstance(error, PrivacyBudgetError)
    assert "from epsilon 0 to 2 at delta 0.001" in str(error)
    assert "agrees to 1.9" in str(error)
    assert trial.account("party_2") == ()
    assert isinstance(trial.outcome["server"], PartyStoppedError)
    arrived = {row["message"] for row in trial.report()["arrived"]}
    assert not arrived & {"ColumnTables", "MaskedStates", "SumShares"}


def test_the_budget_is_for_all_runs_of_the_folder(make_private_trial):
    trial = make_private_trial(budget=Budget(2.5, 1e-3)).finish()
    trial.job = replace(trial.job, name="another")
    trial.run()
    assert isinstance(trial.outcome["party_1"], PrivacyBudgetError)
    assert "from epsilon 2 to 3.0" in str(trial.outcome["party_1"])


def test_sites_with_a_budget_take_part_in_private_runs_only(make_trial, make_private_trial):
    trial = make_trial()
    trial.change("party_1", budget=Budget(1.0, 1e-3))
    with pytest.raises(ParameterError, match="takes part in private runs only"):
        PartyNode(trial.job, trial.sites["party_1"])
    trial = make_private_trial(budget=None)
    with pytest.raises(ParameterError, match="does not say how much the site agrees to"):
        PartyNode(trial.job, trial.sites["party_1"])


@pytest.mark.parametrize("name", ["lab.csv", "LAB.CSV", "lab.csv.gz"])
def test_a_csv_file_is_refused_before_it_is_read(make_private_trial, tmp_path, name):
    """One odd value would make a column float64, or text: its type would not be public."""
    trial = make_private_trial()
    trial.change("party_1", table=tmp_path / name)  # it is not even there
    with pytest.raises(ParameterError) as caught:
        PartyNode(trial.job, trial.sites["party_1"])
    for word in ("site 'party_1'", name, "one record can change them", "Fix: ", "write_table"):
        assert word in str(caught.value)


def test_a_csv_file_is_read_where_the_site_file_states_all_types(make_private_trial, tmp_path):
    trial = make_private_trial()
    frame = trial.frames["party_1"]
    write_table(frame, tmp_path / "lab.csv")
    types = {label: str(dtype) for label, dtype in frame.dtypes.items()}
    schema = replace(trial.schema, dtypes=types)
    trial.change("party_1", table=tmp_path / "lab.csv", schema=schema)
    assert PartyNode(trial.job, trial.sites["party_1"]).seat.frame.shape == frame.shape


@pytest.mark.parametrize("mechanism", ["pairwise_tables", *later("dpsgd")])
def test_nobody_is_told_that_a_column_has_no_value(make_private_trial, mechanism):
    privacy = DPSGD if mechanism == "dpsgd" else {}
    trial = make_private_trial(privacy=privacy, budget=Budget(20.0, 1e-3))
    table = trial.sites["party_1"].table
    trial.frames["party_1"].assign(measure_1=np.nan).to_parquet(table)
    trial.finish()
    for name in trial.sites:
        assert list(trial.half(name).sample(20, 3)) == list(trial.frames[name])[1:]


def test_an_empty_column_is_an_error_without_privacy(make_trial):
    trial = make_trial()
    trial.frames["party_1"].assign(measure_1=np.nan).to_parquet(trial.sites["party_1"].table)
    with pytest.raises(EmptyColumnError, match="'measure_1'"):
        PartyNode(trial.job, trial.sites["party_1"])


def test_a_column_that_identifies_records(make_private_trial):
    trial = make_private_trial()
    bounds = {c: b for c, b in trial.schema.bounds.items() if c != "count_1"}
    trial.change("party_1", schema=replace(trial.schema, bounds=bounds))
    table = trial.frames["party_1"]
    table = table.assign(count_1=[f"name {number}" for number in range(len(table))])
    table.to_parquet(trial.sites["party_1"].table)
    trial.run()
    error = trial.outcome["party_1"]
    assert isinstance(error, PartyDataError)
    assert "count_1" in str(error)
    assert "count_1" not in str(trial.outcome["server"])
    assert trial.account("party_1") == ()  # nothing left, so nothing was spent


def test_kinds_of_columns_belong_into_the_site_files(make_trial):
    trial = make_trial(parameters={"transformer": {"kinds": {"measure_1": "numeric"}}})
    with pytest.raises(ParameterError, match="job: kinds of transformer belongs into the site"):
        trial.job.method_for_node()


def test_public_bounds_of_the_sites_are_enough_without_histograms(make_private_trial):
    without = DPSGD | {"preprocessing_share": 0.0}
    make_private_trial(privacy=without, budget=Budget(20.0, 1e-3)).finish()


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"mechanism": "latent_tree"}, "LatentTree is for DPLTSynthesizer"),
        ({"mechanism": "dpsgd_gan"}, "DPSGDGAN is for WGANGPSynthesizer"),
        ({"public_schema": {}}, "site files"),
        ({"sigma": 2}, "privacy: pairwise_tables has no 'sigma'; there are "),
        ({"delta": 2}, "delta"),
    ],
)
def test_a_job_whose_privacy_cannot_be_had(make_private_trial, privacy, words):
    with pytest.raises(ParameterError, match=words):
        make_private_trial(privacy=privacy).job.method_for_node()


def test_the_budget_of_the_documentation_is_one(tmp_path):
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "private-runs.md").read_text()
    (tmp_path / "site.toml").write_text(
        'party = "lab"\nfolder = "lab-folder"\n'
        + re.search(r"```toml\n(# private.toml.*?)```", text, re.S)[1]
    )
    site = Site.read(tmp_path / "site.toml")
    assert site.budget == Budget(2.0, 1e-4)
    assert site.schema["age"] == Bounds(0, 120)
    assert site.schema["smoker"] == Categories(("no", "yes"))


# -- accounts -------------------------------------------------------------------------------------


def test_a_server_refuses_another_relation_before_anybody_spends(make_private_trial):
    trial = make_private_trial().finish()
    first = trial.job
    other = first.parameters["privacy"] | {"neighbouring_relation": "replace_one"}
    trial.job = replace(first, name="another", parameters=first.parameters | {"privacy": other})
    for name, site in list(trial.sites.items()):
        trial.change(name, folder=site.folder.with_name(f"{name}-anew"))
    (trial.folder / "server" / KNOWN).unlink()  # all agree that the parties' accounts start anew
    trial.run()
    assert isinstance(trial.outcome["server"], ParameterError)
    assert "cannot be added up" in str(trial.outcome["server"])
    assert trial.report()["outcome"].startswith("ParameterError")
    assert len(trial.account("server")) == 1
    for name, site in trial.sites.items():
        assert trial.account(site.folder.name) == (), name
    trial.job = replace(first, name="a third")
    trial.finish()


@pytest.mark.parametrize("how", ["last run", *later("gone", "shorter", "anew")])
def test_a_lost_account_is_noticed_at_home_and_by_all_others(make_private_trial, how):
    trial = make_private_trial(budget=Budget(9.0, 1e-3))
    path = trial.folder / "party_1" / FILE
    head = path.with_name(f".{FILE}.head")
    trial.run()
    copy = path.read_bytes()
    trial.job = replace(trial.job, name="second")
    trial.finish()
    head.unlink()  # the account alone remembers nothing
    if how == "shorter":
        path.write_bytes(copy)  # valid, as it was after the first run
    elif how == "last run":  # its bookings alone, back to what it showed when it began
        content = json.loads(path.read_text())
        (*_, run) = [i for i, r in enumerate(content["records"]) if r["event"] == "run"]
        content["records"] = content["records"][:run]
        path.write_text(json.dumps(content))
        assert len(trial.account("party_1")) == 1
    else:
        path.unlink()
    if how == "anew":
        PrivacyAccount.create(path)
    trial.job = replace(trial.job, name="third")
    trial.run()
    assert isinstance(trial.outcome["party_1"], AccountRewoundError)
    words = {"gone": "is gone", "anew": "is another one"}
    assert words.get(how, "lacks what was in it") in str(trial.outcome["party_1"])
    (trial.folder / "party_1" / KNOWN).unlink()  # so that its own site has forgotten, too
    trial.job = replace(trial.job, name="fourth")
    trial.run()
    error = trial.outcome["server"]
    assert isinstance(error, AccountRewoundError)
    assert "party 'party_1': its privacy account" in str(error)
    assert not {r["message"] for r in trial.report()["arrived"]} & {"ColumnTables"}
    (trial.folder / "server" / KNOWN).unlink()
    trial.job = replace(trial.job, name="fifth")
    trial.run()
    assert isinstance(trial.outcome["party_2"], AccountRewoundError)


def test_a_site_is_warned_of_a_delta_of_one_over_n_by_what_it_published(make_private_trial):
    trial = make_private_trial(
        privacy={"mechanism": "latent_tree", "epsilon": 50.0, "delta": 0.01},
        parameters={},
        method="DPLTSynthesizer",
        budget=Budget(100.0, 1e-3),
    )
    for name, table in make_party_frames(400, 2, random_state=2).items():
        table[list(trial.frames[name])].to_parquet(trial.sites[name].table)
    with pytest.warns(NoPrivacyWarning, match=r"delta=0\.01 is one over the number") as told:
        trial.finish()
    assert {str(each.message)[:15] for each in told} == {"party 'party_1'", "party 'party_2'"}


# -- DP-SGD ---------------------------------------------------------------------------------------

DPSGD = {"mechanism": "dpsgd", "n_records": 40, "epsilon": None, "noise_multiplier": 10.0}
GAN = {"epochs": 3, "batch_size": 16, "generator_hidden": [8], "latent_dim": 4}


def steps_of(attempts):
    events = [entry.event for attempt in attempts for entry in attempt.entries]
    return [event.steps for event in events if isinstance(event, SampledRelease)]


@pytest.mark.parametrize(
    ("method", "kind", "noised", "how"),
    [
        ("VFLGANSynthesizer", SampledFeatures, False, RuntimeError),
        *later(("VertiGANSynthesizer", BackboneGradients, True, Dead)),
    ],
)
def test_dpsgd_accounts_every_step_before_it_and_again_with_other_records(
    make_private_trial, method, kind, noised, how
):
    trial = make_private_trial(
        privacy=DPSGD,
        parameters=GAN | {"epochs": 2, "discriminator_steps": 1},
        budget=Budget(20.0, 1e-3),
        method=method,
    )
    seen = {"rows": [], "paid": []}

    class Link(Opened):
        at = (kind, 4)  # in epoch 2 of 2, each of three steps

        def leaves(self, frame):
            for message in frame.messages:
                if self._name == "party_1" and isinstance(message, kind):
                    node = trial.nodes["party_1"]
                    seen["paid"].append((message.step, steps_of(trial.account("party_1"))))
                    seen["rows"].append((message.step, node.party.schedule.rows(message.step)))
                    if (kind, message.step) == self.at:
                        if how is Dead:
                            self.outwait()
                        raise how
            return frame

    trial.run(Link)
    assert isinstance(trial.outcome["party_1"], how)
    for step, paid in seen["paid"]:
        assert sum(paid) >= step + 1
    assert [steps_of(trial.account(node)) for node in NODES] == [[6], [6], [6]]
    Link.at = None
    trial.finish(Link)
    assert [step for step, _ in seen["rows"]] == [0, 1, 2, 3, 4, 3, 4, 5]
    assert [steps_of(trial.account(node)) for node in NODES] == [[6, 3], [6, 3], [6, 3]]
    by_step = [rows.tolist() for _, rows in seen["rows"]]
    assert by_step[3:5] != by_step[5:7]  # the server of the first attempt knows nothing of these
    for node in NODES:
        found = trial.report(node, 2)
        said = {row["message"]: row["noised"] for row in found["left"] + found["arrived"]}
        assert said[kind.__name__] is noised
        if method == "VFLGANSynthesizer":
            assert said["GeneratorFeatures"]
        else:
            assert said["SummedBackboneGradients"]
        ledger = PrivacyLedger.from_dict(found["privacy"]["ledger"])
        once = PrivacyLedger.from_dict(trial.report(node)["privacy"]["ledger"])
        assert ledger.epsilon() > once.epsilon()
    for name in trial.sites:
        half = trial.half(name)
        assert len(half.sample(20, 3)) == 20
        assert half.minter.offset == 10**18


def test_a_server_has_no_step_again_that_a_checkpoint_is_after(make_private_trial):
    """It was paid for once; asked again it has other records, which nothing paid for."""
    trial = make_private_trial(privacy=DPSGD, parameters=GAN, budget=Budget(20.0, 1e-3))
    trial.run(ending((SampledFeatures, 7)))
    asked = []

    class Link(Opened):
        def arrives(self, frame):
            if frame.request is None or frame.request.kind is not SampledFeatures:
                return frame
            asked.append(frame.request.step)
            return replace(frame, request=replace(frame.request, step=5))

    trial.run(Link)
    assert asked[0] == 6, "after two epochs of three steps"
    assert isinstance(trial.outcome["party_1"], ProtocolError)
    assert "SampledFeatures of step 5, which is not part of this run, or was asked" in str(
        trial.outcome["party_1"]
    )


def test_a_checkpoint_before_an_epoch_is_over_is_not_written(make_private_trial):
    """A run that went on from it took the steps that it lacked, with fresh noise, for nothing."""
    trial = make_private_trial(
        privacy=DPSGD, parameters=GAN, budget=Budget(20.0, 1e-3), method="VertiGANSynthesizer"
    )

    class Link(Opened):
        def arrives(self, frame):
            if frame.request is not None and frame.request.kind is BackboneGradients:
                early = CheckpointNotice("server", self._name, 2)
                frame = replace(frame, messages=(*frame.messages, early))
            return frame

    trial.run(Link)
    said = [str(trial.outcome[name]) for name in trial.sites]
    assert any("ordered a checkpoint of epoch 2" in text for text in said)
    assert not [*trial.folder.glob("party_*/trial/checkpoints/*2")]


def test_a_latent_tree_is_paid_for_before_anything_of_it_leaves(make_private_trial):
    """Its encoded sizes follow from noisy histograms too; a crash repeats everything."""
    trial = make_private_trial(budget=Budget(6.0, 1e-3), **TREE)
    paid = []

    class Link(Opened):
        ends = True

        def leaves(self, frame):
            for message in frame.messages:
                if isinstance(message, EncodedSize | LatentTables):
                    purposes = [
                        [entry.purpose for entry in attempt.entries]
                        for attempt in trial.account(self._name)
                    ]
                    paid.append((self._name, type(message), purposes))
                if self._name == "party_1" and isinstance(message, LatentTables) and self.ends:
                    self.outwait()
                    raise Dead
            return frame

    whole = ["preprocessing", "latent attributes", "latent tree"]
    trial.run(Link)
    assert isinstance(trial.outcome["party_1"], Dead)
    assert len(paid) == 4
    assert all(purposes == [whole] for _, _, purposes in paid)
    assert [len(trial.account(node)) for node in NODES] == [1, 1, 1]
    paid.clear()
    Link.ends = False
    trial.finish(Link)
    assert len(paid) == 4
    assert all(purposes == [whole, whole] for _, _, purposes in paid)
    for node in NODES:
        assert [len(attempt.entries) for attempt in trial.account(node)] == [3, 3]
        privacy = trial.report(node, 2)["privacy"]
        once = PrivacyLedger.from_dict(trial.report("party_2")["privacy"]["ledger"])
        ledger = PrivacyLedger.from_dict(privacy["ledger"])
        assert ledger.epsilon() > 1.4 * once.epsilon()


def test_dpsgd_releases_and_sends_what_it_does_in_one_process(make_private_trial):
    trial = make_private_trial(privacy=DPSGD, budget=Budget(20.0, 1e-3)).finish()
    synth = in_one_process(trial)
    synth.fit(trial.frames, "record_id", transcript=True)
    crossed = synth.transcript_.set_index(["message", "sender"])["messages"]
    for node in NODES:
        ledger = PrivacyLedger.from_dict(trial.report(node)["privacy"]["ledger"])
        assert ledger.event == synth.privacy_ledger_.event
        for row in trial.report(node)["left"]:
            if row["message"] in (
                "SampledFeatures",
                "GeneratorFeatures",
                "DiscriminatorGradients",
                "GeneratorGradients",
            ):
                whole = crossed[row["message"], node]
                assert row["messages"] == (whole if node != "server" else whole.iloc[0])


def test_dpsgd_needs_a_public_number_of_records(make_private_trial):
    trial = make_private_trial(privacy=DPSGD | {"n_records": None}).run()
    assert isinstance(trial.outcome["server"], ParameterError)
    assert "n_records" in str(trial.outcome["server"])


def test_own_secrets_are_kept_whole_or_refused(tmp_path):
    path = tmp_path / "run" / "own-secret"
    secret = kept_secret(path)
    assert len(secret) == 32
    assert kept_secret(path) == secret
    assert path.stat().st_mode & 0o077 == 0
    for damaged in ("", "zz" * 32):
        path.write_text(damaged)
        with pytest.raises(ArtefactError, match="holds 0 bytes instead of 32"):
            kept_secret(path)
