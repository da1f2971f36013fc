"""Plans: noise that meets the target, and ledgers that say what it buys."""

import functools
import json
from math import comb, exp, expm1, log

import numpy as np
import pytest

from tests.later import later
from vflsynth import DPSGDGAN, GSWGAN, LatentTree, PairwiseTables
from vflsynth.exceptions import ParameterError, PrivacyBudgetError, TooFewRecordsError
from vflsynth.mechanisms import DPSGD, Asked, Discriminators, FirstLayer
from vflsynth.mechanisms.base import in_full_precision
from vflsynth.privacy import PLDAccountant, PublicSchema, RDPAccountant, WangAccountant
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.dpsgd import joint_sensitivity
from vflsynth.privacy.events import event_to_dict, releases_in
from vflsynth.protocol.schedule import Length

COLUMNS = {"lab": ColumnCounts(6), "taste": ColumnCounts(6)}
JOINED = {"joined": ColumnCounts(12)}
SCHEMA = PublicSchema(dtypes="given", bounds={"a": (0, 1)})
N_RECORDS = 1599
SHARED, PRIVATE, ALONE, SPLIT = Discriminators
PLAIN = Length.of(N_RECORDS, 16, 150)
"""15,000 steps, as the VFLGAN paper's."""

OWN = {
    DPSGD: {"n_records": N_RECORDS},
    DPSGDGAN: {},
    FirstLayer: {"public_schema": None},
    GSWGAN: {"n_shards": 26},
    LatentTree: {},
    PairwiseTables: {},
}
ASKED = {
    DPSGD: {"batch_size": 128, "epochs": 77},
    DPSGDGAN: {"batch_size": 128, "epochs": 77, "owners": ALONE},
    FirstLayer: {"plain": PLAIN},
    GSWGAN: {"batch_size": 32, "epochs": 300, "owners": ALONE},
    LatentTree: {"groups": {"lab": [3, 3], "taste": [3, 3]}},
    PairwiseTables: {},
}


def made(mechanism, **changes):
    values = {"epsilon": 10.0, "delta": 5e-4, "public_schema": SCHEMA} | OWN[mechanism] | changes
    return in_full_precision(mechanism(**{k: v for k, v in values.items() if v is not None}))


def asked(mechanism, **changes):
    return Asked(**{"n_records": N_RECORDS, "owners": SHARED} | ASKED[mechanism] | changes)


@functools.cache
def planned(mechanism, **changes):
    columns = JOINED if ASKED[mechanism].get("owners") is ALONE else COLUMNS
    return made(mechanism, **changes).plan(columns, asked(mechanism))


def planned_for(columns, mechanism, owners=SHARED, **changes):
    return made(mechanism, **changes).plan(columns, asked(mechanism, owners=owners))


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [
        *((name, 10.0) for name in (PairwiseTables, DPSGD, FirstLayer)),
        *later(*((name, 1.0) for name in (PairwiseTables, DPSGD, FirstLayer))),
        (DPSGDGAN, 10.0),
        (GSWGAN, 10.0),
    ],
)
def test_the_target_is_met_and_not_exceeded(mechanism, epsilon):
    ledger = planned(mechanism, epsilon=epsilon).ledger
    spent = ledger.epsilons()
    reference = {
        PairwiseTables: "Gaussian DP, exact",
        DPSGD: PLDAccountant().name,
        FirstLayer: RDPAccountant().name,
        DPSGDGAN: RDPAccountant().name,
        GSWGAN: RDPAccountant().name,
    }[mechanism]
    assert 0.98 * epsilon <= spent[reference] <= epsilon
    assert ledger.target_epsilon == epsilon


@pytest.mark.parametrize("budget", [{}, {"epsilon": None, "noise_multiplier": 2.0}])
def test_gs_wgan_without_a_generator_step_is_refused(budget):
    """It 'released nothing in any step', and by a noise multiplier it learned nothing."""
    few = asked(GSWGAN, epochs=1, discriminator_steps=51)
    with pytest.raises(ParameterError, match=r"discriminator_steps is 51, and .* have 50 steps"):
        made(GSWGAN, **budget).plan(JOINED, few)


@pytest.mark.parametrize("mechanism", [DPSGD, FirstLayer, DPSGDGAN, GSWGAN])
def test_nothing_is_paid_for_after_the_last_epoch(mechanism):
    """A run that went on from its last checkpoint booked an epoch that is never trained."""
    plan = planned(mechanism)
    n_epochs = plan.length.epochs
    assert plan.releases(n_epochs + 1, n_epochs + 1) == ()
    assert plan.releases(1, n_epochs + 1) == plan.releases(1)


def test_an_epsilon_that_no_accountant_reaches_is_named():
    """The error was about a noise multiplier that nobody gave."""
    with pytest.raises(PrivacyBudgetError, match=r"epsilon 1e\+06 leaves so little noise"):
        planned(DPSGD, epsilon=1e6)


@pytest.mark.parametrize("mechanism", [PairwiseTables, LatentTree])
@pytest.mark.parametrize("small", [np.float16(1.0), np.float32(1.0)])
def test_a_budget_in_a_small_type_of_numpy_is_not_exceeded_either(mechanism, small):
    """Rounding to half precision spent 1.001."""
    ledger = planned_for(COLUMNS, mechanism, epsilon=small, delta=1e-3).ledger
    assert min(ledger.epsilons().values()) <= 1.0


@pytest.mark.parametrize("small", [np.float16(0.1), np.float32(0.1)])
@pytest.mark.parametrize("mechanism", [DPSGD, DPSGDGAN, FirstLayer, GSWGAN])
def test_bounds_of_gradients_in_small_types_of_numpy_are_as_fine_as_others(mechanism, small):
    """In half precision noise was NaN or off by 1 in 2,000, and no account could be written."""
    given = {"epsilon": None, "noise_multiplier": 3.0}
    plan = planned(mechanism, max_grad_norm=small, **given)
    assert plan == planned(mechanism, max_grad_norm=float(small), **given)
    json.dumps([event_to_dict(entry.event) for entry in plan.ledger.entries])


@pytest.mark.parametrize("whole", [np.uint8, np.int16, np.int64])
@pytest.mark.parametrize("mechanism", [DPSGD, DPSGDGAN, FirstLayer, GSWGAN])
def test_whole_numbers_of_numpy_neither_wrap_around_nor_fail(mechanism, whole):
    """3,200 steps were 128, and accountants took no count of another type than int."""
    given = {} if mechanism is FirstLayer else {"preprocessing_share": 0.0}
    given |= {"epsilon": None, "noise_multiplier": 3.0}
    columns = JOINED if ASKED[mechanism].get("owners") is ALONE else COLUMNS

    def plan(kind):
        own = {"n_records": kind(200)} if mechanism is DPSGD else {}
        own |= {"n_shards": kind(3)} if mechanism is GSWGAN else {}
        numbers = {"batch_size": kind(16), "epochs": kind(100)}
        plain = Length.of(200, 16, kind(100))
        about = asked(mechanism, **numbers, n_records=200, plain=plain)
        return made(mechanism, **given, **own).plan(columns, about)

    assert plan(whole) == plan(int)
    (steps,) = (type(entry.event.steps) for entry in plan(whole).ledger.entries)
    assert steps is int
    assert plan(whole).ledger.epsilon() == plan(int).ledger.epsilon()


@pytest.mark.parametrize(("epsilon", "times"), [(10.0, 1.0), *later((1.0, 10.0))])
def test_the_papers_bound_takes_more_noise_than_the_gradients_need(epsilon, times):
    paper = planned(FirstLayer, epsilon=epsilon, calibration="paper")
    assert 0.98 * epsilon <= paper.ledger.epsilons()[WangAccountant().name] <= epsilon
    tight = planned(FirstLayer, epsilon=epsilon)
    assert paper.noise_multiplier > times * tight.noise_multiplier


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_shares_of_the_one_shot_release(relation):
    plan = planned(PairwiseTables, neighbouring_relation=relation)
    assert plan.ledger.shares() == pytest.approx({"preprocessing": 0.4, "pairs": 0.6})
    assert plan.ledger.epsilon() <= 10.0


def test_replacing_needs_more_noise_than_adding():
    one, other = (
        [
            release.noise_std
            for release in releases_in(
                planned(PairwiseTables, neighbouring_relation=relation).ledger.event
            )
        ]
        for relation in ("add_or_remove_one", "replace_one")
    )
    assert [b / a for a, b in zip(one, other)] == pytest.approx([2**0.5] * 4 + [2.0] * 3)


def test_unequal_parties_put_the_same_noise_on_every_cell():
    plan = planned_for({"lab": ColumnCounts(1), "taste": ColumnCounts(3)}, PairwiseTables)
    histograms = [r for r in releases_in(plan.ledger.event) if "histogram" in r.released]
    once = plan.histogram_noise_multiplier * 4**0.5
    stds = [release.noise_std for release in histograms]  # two parties, in each of two rounds
    assert stds == pytest.approx([once / 0.4**0.5] * 2 + [once / 0.6**0.5] * 2)


def test_two_rounds_of_histograms_cost_what_one_would():
    plan = planned_for({"lab": ColumnCounts(1), "taste": ColumnCounts(3)}, PairwiseTables)
    histograms = [r for r in releases_in(plan.ledger.event) if "histogram" in r.released]
    squared_mu = sum(release.noise_multiplier**-2 for release in histograms)
    assert squared_mu == pytest.approx(plan.histogram_noise_multiplier**-2)


def test_a_party_without_columns_releases_no_histogram():
    plan = planned_for({"lab": ColumnCounts(2), "keys": ColumnCounts(0)}, PairwiseTables)
    assert plan.ledger.parties == ("lab",)


def test_every_block_of_dpsgd_has_noise_for_the_joint_sensitivity():
    plan = planned(DPSGD, max_grad_norm=2.0, epsilon=None, noise_multiplier=1.3)
    blocks = [r for r in releases_in(plan.ledger.event) if "gradients" in r.released]
    assert [block.party for block in blocks] == ["lab", "taste", "server"]
    for block in blocks:
        assert block.sensitivity == 2.0
        assert block.noise_std == pytest.approx(
            plan.noise_multiplier * joint_sensitivity([2.0] * 3)
        )


def test_dpsgd_under_replace_one():
    plan = planned(DPSGD, neighbouring_relation="replace_one", preprocessing_share=0.0)
    assert plan.histogram_noise_multiplier is None
    spent = plan.ledger.epsilons()
    assert list(spent) == [PLDAccountant().name]
    assert 9.8 <= spent[PLDAccountant().name] <= 10.0


def test_noise_multiplier_given_instead_of_epsilon():
    one = planned(DPSGD, epsilon=None, noise_multiplier=1.3)
    assert one.noise_multiplier == 1.3
    assert one.ledger.target_epsilon is None
    assert one.ledger.shares()["preprocessing"] == pytest.approx(0.2, abs=0.01)
    shot = planned(PairwiseTables, epsilon=None, noise_multiplier=0.5)
    assert shot.ledger.shares()["preprocessing"] == pytest.approx(0.4)
    pairs = [r for r in releases_in(shot.ledger.event) if "pairs" in r.released]
    joint = sum(r.noise_multiplier**-2 for r in pairs) ** -0.5
    assert joint == pytest.approx(0.5 / 0.6**0.5)


def test_the_papers_settings_give_the_papers_budget_per_party_and_more_together():
    plan = planned(FirstLayer, epsilon=None, noise_multiplier=1.39, max_grad_norm=1.5 / 16)
    assert round(plan.ledger.epsilons()[WangAccountant().name], 2) == 16.06
    (first, _) = releases_in(plan.ledger.event)
    assert first.noise_std == pytest.approx(1.39 * 2 * 1.5 / 16)


@pytest.mark.parametrize("discriminators", ["private", "local and shared"])
def test_the_papers_first_layer_budget_by_hand(discriminators):
    """VertiGAN's is VFLGAN's: two parties' first layers; no noise is in the shared discriminator.

    Proposition 4 of the paper, term by term. The Rényi divergence of one noisy gradient is
    a / (2 σ²) at order a; that of two, which the same record moves, is twice as much. Claimed: 10,
    which is what the sum gives for one party.
    """
    sigma, rate, steps, delta = 1.39, 16 / 1599, 15000, 5e-4

    def by_hand(n_parties):
        found = []
        for a in range(2, 20):  # the best is 3
            e = [n_parties * order / (2 * sigma**2) for order in range(a + 1)]
            total = 1 + rate**2 * comb(a, 2) * min(4 * expm1(e[2]), 2 * exp(e[2]))
            total += sum(2 * rate**j * comb(a, j) * exp((j - 1) * e[j]) for j in range(3, a + 1))
            sampled = min(log(total) / (a - 1), e[a])
            found.append(steps * sampled + log(1 / delta) / (a - 1))
        return min(found)

    assert round(by_hand(1), 2) == 9.98
    changes = {"epsilon": None, "noise_multiplier": sigma, "max_grad_norm": 1.5 / 16}
    plan = planned_for(COLUMNS, FirstLayer, Discriminators(discriminators), **changes)
    spent = plan.ledger.epsilons()[WangAccountant().name]
    assert spent == pytest.approx(by_hand(2), rel=1e-6)
    assert round(spent, 2) == 16.06
    assert plan.ledger.parties == ("lab", "taste")


def test_two_parties_need_root_two_times_the_noise():
    both = planned(FirstLayer).noise_multiplier
    one = planned_for({"lab": ColumnCounts(6)}, FirstLayer).noise_multiplier
    assert both == pytest.approx(one * 2**0.5, rel=1e-3)


def test_only_the_papers_mechanism_disclaims_the_synthetic_data():
    for mechanism in (PairwiseTables, DPSGD, DPSGDGAN, GSWGAN):
        assert planned(mechanism).ledger.covers_synthetic_data
    ledger = planned(FirstLayer).ledger
    assert not ledger.covers_synthetic_data
    text = " ".join(str(ledger).split())
    assert "NOT A GUARANTEE FOR THE SYNTHETIC DATA" in text
    assert "all layers above the first" in text


def test_plans_check_their_parameters():
    with pytest.raises(ParameterError, match="delta"):
        planned(PairwiseTables, delta=None)


@pytest.mark.parametrize("n_parties", [5, *later(2)])
@pytest.mark.parametrize(
    ("mechanism", "owners"), [(PairwiseTables, SHARED), *((DPSGD, own) for own in Discriminators)]
)
def test_a_ledger_is_one_screen_however_many_the_parties(mechanism, owners, n_parties):
    columns = {f"party {number}": ColumnCounts(6, 2) for number in range(n_parties)}
    ledger = planned_for(columns, mechanism, owners, epsilon=1.0).ledger  # soonest calibrated
    assert len(str(ledger).splitlines()) <= 48
    for party in columns:
        assert f"{party}: ε = " in " ".join(str(ledger).split())


def test_one_holder_of_everything_releases_everything():
    """A single discriminator has a single bound: one block, and nobody is called a server."""
    given = {"epsilon": None, "noise_multiplier": 4.0, "max_grad_norm": 2.0}
    for plan, block in (
        (planned_for(JOINED, DPSGD, ALONE, **given), 2.0),
        (planned_for(JOINED, FirstLayer, ALONE, **given), 4.0),
        (planned(DPSGDGAN, **given), 4.0),
        (planned(GSWGAN, **given), 4.0 * 32**0.5),
    ):
        ledger = plan.ledger
        assert ledger.parties == ("joined",)
        release = list(releases_in(ledger.event))[-1]
        assert release.sensitivity == pytest.approx(block)
        assert release.noise_std == pytest.approx(plan.noise_multiplier * block)
        assert "server" not in str(ledger)
        assert "whoever joins the tables" in str(ledger)
        assert ledger.epsilon() == ledger.epsilon_of_party("joined")


def test_one_holder_needs_less_noise_than_parties_and_a_server():
    """The same noise over the joint sensitivity, hence the same ε, which three owners share."""
    joined = planned_for(JOINED, DPSGD, ALONE, epsilon=None, noise_multiplier=1.3)
    parties = planned(DPSGD, epsilon=None, noise_multiplier=1.3)
    one, three = (plan.ledger.entries[-1].event for plan in (joined, parties))
    assert one.joint_noise_multiplier == pytest.approx(three.joint_noise_multiplier)
    (alone,), (block, *_) = one.releases, three.releases
    assert block.noise_std == pytest.approx(alone.noise_std * 3**0.5)


@pytest.mark.parametrize("n_parties", [1, 2, 3])
def test_private_discriminators_are_as_many_owners_as_parties(n_parties):
    """Nobody else's discriminator has noise or a bound: with M parties the sensitivity is √M C."""
    columns = {f"party {number}": ColumnCounts(6) for number in range(n_parties)}
    given = {"epsilon": None, "noise_multiplier": 1.3, "max_grad_norm": 2.0}
    private = planned_for(columns, DPSGD, PRIVATE, **given)
    training = private.ledger.entries[-1].event
    assert [release.party for release in training.releases] == list(columns)
    stds = [release.noise_std for release in training.releases]
    assert stds == pytest.approx([1.3 * joint_sensitivity([2.0] * n_parties)] * n_parties)
    assert {release.released for release in training.releases} == {
        "clipped per-record gradients of the private discriminator"
    }
    one = planned_for(JOINED, DPSGD, ALONE, **given)
    alone = one.ledger.entries[-1].event
    assert training.joint_noise_multiplier == pytest.approx(alone.joint_noise_multiplier)


def test_private_discriminators_are_calibrated_to_the_target():
    plan = planned_for(COLUMNS, DPSGD, PRIVATE)
    assert plan.ledger.parties == ("lab", "taste")
    assert 9.8 <= plan.ledger.epsilons()[PLDAccountant().name] <= 10.0
    # One party's part of it, as if the other had released nothing.
    assert plan.ledger.epsilon_of_party("lab") == pytest.approx(
        plan.ledger.epsilon_of_party("taste")
    )
    assert plan.ledger.epsilon_of_party("lab") < 8.0
    shared = planned(DPSGD)
    assert plan.noise_multiplier == pytest.approx(shared.noise_multiplier)  # the same ε for all


@pytest.mark.parametrize("mechanism", [DPSGDGAN, GSWGAN])
def test_published_mechanisms_without_histograms_and_with_noise_given(mechanism):
    plan = planned(mechanism, epsilon=None, noise_multiplier=3.0, preprocessing_share=0.0)
    assert plan.noise_multiplier == 3.0
    assert plan.histogram_noise_multiplier is None
    assert list(plan.ledger.shares()) == ["training"]


# -- lengths, from public numbers -----------------------------------------------------------------

NOISE = {"epsilon": None, "noise_multiplier": 3.0}


@pytest.mark.parametrize("n_records", [40, 1000, 1599, 100_000])
def test_noisy_training_takes_few_steps_with_large_batches(n_records):
    plain = {"n_records": n_records, "batch_size": None, "epochs": None, "learning_rate": 1e-3}
    for mechanism, columns, owners, rate in (
        (DPSGD, COLUMNS, SHARED, 1e-2),
        (DPSGDGAN, JOINED, ALONE, 1e-3),
    ):
        given = made(mechanism, **NOISE, **({"n_records": n_records} if rate == 1e-2 else {}))
        plan = given.plan(columns, asked(mechanism, owners=owners, **plain))
        size = plan.length.batch_size
        assert size in (8, 512) or n_records / 16 < size <= n_records / 8
        assert plan.length.steps == pytest.approx(3000, rel=0.25)
        assert plan.length.steps_per_epoch * size >= n_records
        (training,) = [e.event for e in plan.ledger.entries if e.purpose == "training"]
        assert (training.steps, training.sample_rate) == (plan.length.steps, size / n_records)
        assert plan.sample_rate == (size / n_records if mechanism is DPSGD else None)
        assert plan.learning_rate == pytest.approx(rate)


def test_dpsgd_computes_from_the_public_number_alone():
    """The true number must not move anything where records may be added or removed."""
    changes = {"batch_size": None, "epochs": None}
    one, other = (
        made(DPSGD, **NOISE).plan(COLUMNS, asked(DPSGD, n_records=n, **changes)) for n in (1599, 9)
    )
    assert one == other
    with pytest.raises(ParameterError, match="n_records must be given"):
        planned(DPSGD, n_records=None)
    replaced = planned(DPSGD, n_records=None, neighbouring_relation="replace_one", **NOISE)
    assert replaced.sample_rate == 128 / N_RECORDS


def test_shards_have_about_sixty_records_and_at_least_a_batch():
    plan = made(GSWGAN, **NOISE, n_shards=None).plan(
        JOINED, asked(GSWGAN, batch_size=None, epochs=None)
    )
    assert (plan.n_shards, plan.length.batch_size) == (26, 32)
    assert plan.length.steps == pytest.approx(15_000, rel=0.01)
    assert plan.generator_steps == plan.length.steps // 5
    assert plan.ledger.entries[-1].event.steps == plan.generator_steps
    own = asked(GSWGAN, epochs=None, default_epochs=lambda n_records, batch_size: 7)
    assert made(GSWGAN, **NOISE).plan(JOINED, own).length.epochs == 7
    with pytest.raises(TooFewRecordsError, match="26 shards are fewer than one batch of 62"):
        made(GSWGAN, **NOISE).plan(JOINED, asked(GSWGAN, batch_size=62))


@pytest.mark.parametrize("mechanism", [DPSGD, DPSGDGAN, FirstLayer])
def test_batches_of_more_records_than_there_are_name_both_numbers(mechanism):
    """It said that sample_rate must be a number in (0, 1]; nobody had set one."""
    columns = JOINED if ASKED[mechanism].get("owners") is ALONE else COLUMNS
    own = {"n_records": 100} if mechanism is DPSGD else {}
    plain = Length.of(100, 200, 1)
    large = asked(mechanism, n_records=100, batch_size=200, plain=plain)
    with pytest.raises(TooFewRecordsError, match="100 records are fewer than one batch of 200"):
        made(mechanism, **NOISE, **own).plan(columns, large)


def test_the_papers_mechanism_trains_as_long_as_without_privacy():
    plan = planned(FirstLayer, **NOISE)
    assert plan.length is PLAIN
    assert plan.ledger.entries[0].event.steps == 15_000


def test_nothing_is_trained_on_records_after_a_single_release():
    for mechanism in (PairwiseTables, LatentTree):
        assert planned(mechanism).length is None


# -- what is released when, and which release pays for what ---------------------------------------


@pytest.mark.parametrize("mechanism", OWN)
def test_epochs_together_release_the_whole_ledger(mechanism):
    plan = planned(mechanism, **NOISE)
    assert plan.releases(1) == plan.ledger.entries
    epochs = 5 if plan.length is None else plan.length.epochs
    assert plan.releases(epochs + 1) == plan.releases(1, 0) == ()
    before = [e for e in plan.ledger.entries if plan.length is None or e.purpose != "training"]
    steps = 0
    for epoch in range(1, epochs + 1):
        released = list(plan.releases(epoch, epoch))
        if epoch == 1:
            assert released[: len(before)] == before
            released = released[len(before) :]
        assert {entry.purpose for entry in released} <= {"training"}
        steps += sum(entry.event.steps for entry in released)
    assert steps == (0 if plan.length is None else plan.ledger.entries[-1].event.steps)


def test_generator_steps_fall_into_the_epochs_that_take_them():
    """Seven discriminator steps an epoch, and a release after every five of them."""
    few = asked(GSWGAN, n_records=7 * 8, batch_size=8, epochs=4)
    plan = made(GSWGAN, **NOISE, n_shards=2, preprocessing_share=0.0).plan(JOINED, few)
    steps = [plan.releases(epoch, epoch)[0].event.steps for epoch in range(1, 5)]
    assert steps == [1, 1, 2, 1]
    assert plan.releases(2, 3)[0].event.steps == 3


@pytest.mark.parametrize("mechanism", OWN)
def test_every_message_is_paid_for_by_an_entry_of_the_ledger(mechanism):
    plan = planned(mechanism, **NOISE)
    assert plan.covers
    for cover in plan.covers.values():
        assert cover.purpose in [entry.purpose for entry in plan.ledger.entries]
        assert plan.ledger.covers_synthetic_data or not cover.noised


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_noise_of_the_releases_is_that_of_the_ledger(relation):
    plan = planned(PairwiseTables, neighbouring_relation=relation)
    *_, pairs = releases_in(plan.ledger.event)
    assert plan.pair_std == pytest.approx(pairs.noise_std)
    tree = planned(LatentTree, neighbouring_relation=relation)
    for release in releases_in(tree.ledger.event):
        if "histogram" not in release.released:
            std = tree.tree_std if "latent attribute" in release.released else tree.pair_std
            assert release.noise_std == pytest.approx(std)
    assert tree.ledger.shares() == pytest.approx(
        {"preprocessing": 0.2, "latent attributes": 0.4, "latent tree": 0.4}
    )


def test_a_latent_tree_without_pairs_of_columns_spends_nothing_on_them():
    columns = {"lab": ColumnCounts(1), "taste": ColumnCounts(1)}
    given = asked(LatentTree, groups={"lab": [1], "taste": [1]})
    plan = made(LatentTree).plan(columns, given)
    assert plan.pair_std == 0.0
    assert plan.ledger.shares() == pytest.approx({"preprocessing": 0.2, "latent tree": 0.8})


def test_pairs_of_columns_leave_two_fifths_to_histograms_and_their_noise_is_for_all_pairs():
    plan = planned(PairwiseTables)
    histograms = plan.histogram_noise_multiplier**-2
    pairs = comb(12, 2) / plan.pair_std**2
    assert histograms / (histograms + pairs) == pytest.approx(0.4)
    assert plan.ledger.shares() == pytest.approx({"preprocessing": 0.4, "pairs": 0.6})
