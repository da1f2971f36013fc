"""The law of non-interference over every synthesizer with every mechanism that protects its data,
and that it finds what it is there for."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.contract.test_combinations import MECHANISMS, SYNTHESIZERS, make
from tests.contract.test_exact_releases import PROTECTING
from vflsynth import IndependentSynthesizer, registry
from vflsynth.mechanisms import Asked, Discriminators, HistogramMechanism, Plan
from vflsynth.mechanisms.planning import histogram_event, ledger_of, split_budget
from vflsynth.methods.marginals.method import IndependentMethod
from vflsynth.methods.pairwise.method import PairwiseMethod
from vflsynth.methods.pairwise.party import affordable_states
from vflsynth.privacy import NeighbouringRelation
from vflsynth.privacy.discovery import ColumnCounts
from vflsynth.privacy.events import Sampler
from vflsynth.privacy.ledger import LedgerEntry
from vflsynth.testing import mechanism_checks
from vflsynth.testing.mechanisms import nothing_but_releases_shows
from vflsynth.testing.noninterference import what_tells_numbers_apart, what_tells_records_apart

pytestmark = pytest.mark.usefixtures("short_searches")

ADD, REPLACE = NeighbouringRelation.ADD_OR_REMOVE_ONE, NeighbouringRelation.REPLACE_ONE
COLUMNS = {"a": ColumnCounts(3), "b": ColumnCounts(3, 1)}
ASKED = Asked(n_records=1000, owners=Discriminators.PRIVATE)
HIDING = [(s, m) for s, m in PROTECTING if MECHANISMS[m].default_relation is ADD]


def made(synthesizer, mechanism, relation):
    found = make(synthesizer, mechanism)
    found.privacy.set_params(neighbouring_relation=str(relation))
    return found


@pytest.mark.parametrize(("synthesizer", "mechanism"), PROTECTING)
def test_nothing_but_releases_shows_of_a_record(synthesizer, mechanism):
    assert what_tells_records_apart(made(synthesizer, mechanism, REPLACE)) == []


@pytest.mark.parametrize(("synthesizer", "mechanism"), HIDING)
def test_nothing_but_releases_shows_of_the_number_of_records(synthesizer, mechanism):
    case = made(synthesizer, mechanism, ADD)
    assert what_tells_records_apart(case) + what_tells_numbers_apart(case, (1, 300)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("synthesizer", "mechanism"), HIDING)
def test_no_step_in_the_number_of_records_shows(synthesizer, mechanism):
    """With every power of two up to 2**14, and sizes of networks as they are by default."""
    case_parameters = SYNTHESIZERS[synthesizer]().get_params()
    case = made(synthesizer, mechanism, ADD).set_params(
        **{name: None for name in ("batch_size", "latent_dim") if name in case_parameters}
    )
    assert what_tells_numbers_apart(case, [2**k for k in range(15)]) == []


# -- the law finds what broke ----------------------------------------------------------------------


def test_states_by_the_true_number_are_found_and_the_step_is_named(monkeypatch):
    """One record more, one state fewer: whoever has the saved model counts them."""

    def n_fine(method):
        return int(min(30, affordable_states(method.n_columns, 1e4 * method.n_records)))

    honest = made("MixtureSynthesizer", "pairwise_tables", ADD)
    honest.privacy.set_params(noise_multiplier=0.01)
    assert what_tells_numbers_apart(honest, (120,)) == []
    monkeypatch.setattr(PairwiseMethod, "n_fine", property(n_fine))
    (found,) = what_tells_numbers_apart(honest, (120,))
    same, differs = map(int, found.split(" records")[0].split(" and "))
    assert differs == same + 1
    columns = {"a": 3, "b": 3}
    states = [min(30, affordable_states(columns, 1e4 * n)) for n in (same, differs)]
    assert states[0] > states[1]


@dataclass(repr=False, eq=False, kw_only=True)
class HistogramsAlone(HistogramMechanism):
    """Somebody's mechanism, whose ledger has noisy histograms and nothing else."""

    name = "histograms_alone"
    sampler = Sampler.NONE
    needs_histograms = True

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


@pytest.fixture
def open_synthesizer(monkeypatch):
    """Registered for a test, as an installed package would have it."""
    for group, kind in {"mechanisms": HistogramsAlone, "synthesizers": OpenSynthesizer}.items():
        registry.Members(group).get("any")  # loads the group's own
        monkeypatch.setitem(registry._classes[group], registry.full_name(kind), kind)
    return OpenSynthesizer(privacy=HistogramsAlone(epsilon=50.0, delta=1e-6))


def test_a_half_that_holds_quantiles_of_records_is_refused(open_synthesizer):
    found = what_tells_records_apart(open_synthesizer)
    assert "without the last record: 'file model/parties/a/" in found[0]
    (mechanism,) = [
        check
        for check in mechanism_checks(
            open_synthesizer.privacy, lambda own: own.plan(COLUMNS, ASKED)
        )
        if check.law is nothing_but_releases_shows
    ]
    with pytest.raises(AssertionError, match="table without the last record"):
        mechanism()
