"""Ranges and categories that nobody stated: what they cost, what they find, what they keep back."""

import datetime
import decimal
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import norm

from tests.later import later
from tests.unit.privacy.test_events import release
from vflsynth import (
    DPSGDGAN,
    DPLTSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.columns import Bounds, Categories, column_kind
from vflsynth.columns.base import ColumnTransformer
from vflsynth.columns.kinds import TRANSFORMERS, public_columns
from vflsynth.exceptions import (
    ColumnKindError,
    ParameterError,
    PartyDataError,
    PrivacyBudgetError,
)
from vflsynth.mechanisms import DPSGD, Asked, Discriminators
from vflsynth.methods.pairwise.column_codes import Detail
from vflsynth.privacy import PrivacyLedger, PublicSchema
from vflsynth.privacy.accountants import GaussianDPAccountant
from vflsynth.privacy.discovery import (
    ColumnCounts,
    Discovery,
    PublicEncoding,
    category_threshold,
    count_columns,
    discover_column,
    range_cells,
)
from vflsynth.privacy.events import releases_in
from vflsynth.privacy.gaussian_dp import epsilon_of_gaussian

NOBODY = PublicSchema(dtypes="given")
COLUMNS = {"lab": ColumnCounts(5, 2), "clinic": ColumnCounts(4, 1)}
ASKED = Asked(n_records=500, owners=Discriminators.LOCAL_AND_SHARED, batch_size=50, epochs=5)


def discover(column, noise_std=2.0, threshold=9.0, seed=0, kind=None):
    frame = pd.DataFrame({"x": column})
    rng = torch.Generator().manual_seed(seed)
    ((kind, known),) = public_columns(frame, NOBODY, {"x": kind} if kind else {}).values()
    return known or discover_column(frame["x"], kind, Discovery(noise_std, threshold), rng=rng)


# what it costs


def counted(noise_multiplier, failing):
    return release(
        noise_multiplier, sensitivity=1.0, relation="add_or_remove_one", failure_probability=failing
    )


def test_epsilon_with_a_threshold_is_what_the_proof_says():
    failing, delta = 1e-5, 1e-4
    epsilon = GaussianDPAccountant().epsilon(counted(2.0, failing), delta)
    bare = epsilon_of_gaussian(1 / 2.0, delta - failing)
    assert epsilon == pytest.approx(bare - math.log(1 - failing), rel=1e-9)
    assert GaussianDPAccountant().epsilon(counted(2.0, delta), delta) == math.inf


@pytest.mark.parametrize("noise_std", [0.8, 2.0])
@pytest.mark.parametrize("failing", [1e-6, 1e-3, 0.02])
def test_a_table_with_a_value_of_its_own_stays_within_epsilon_and_delta(noise_std, failing):
    # One count that the tables share, 1 and 0, and a value that only the first has, which is shown
    # with probability `failing`: hockey-stick divergences by integration, in both directions.
    delta = failing + 0.01
    epsilon = GaussianDPAccountant().epsilon(counted(noise_std, failing), delta)

    def divergence(one, other):
        low, high = -12 * noise_std, 12 * noise_std + 1
        points = np.linspace(low, high, 200_001)
        return integrate.trapezoid(
            np.maximum(one(points) - math.exp(epsilon) * other(points), 0), points
        )

    def with_it(x):
        return (1 - failing) * norm.pdf(x, 1, noise_std)

    def without(x):
        return norm.pdf(x, 0, noise_std)

    assert failing + divergence(with_it, without) <= delta
    assert divergence(without, with_it) <= delta


def test_a_value_of_one_record_passes_the_threshold_as_seldom_as_stated():
    noise_std, probability, n_values = 3.0, 0.05, 4
    threshold = category_threshold(noise_std, probability, n_values)
    counts = 1 + noise_std * np.random.default_rng(0).standard_normal((200_000, n_values))
    passed = (counts > threshold).any(axis=1).mean()
    assert passed == pytest.approx(probability, rel=0.05)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("mechanism", [PairwiseTables, DPSGD])
def test_everything_together_spends_the_budget_and_no_more(mechanism, relation):
    own = {"n_records": 500} if mechanism is DPSGD else {}
    privacy = mechanism(epsilon=3.0, delta=1e-4, neighbouring_relation=relation, **own)
    plan = privacy.plan(COLUMNS, ASKED)
    assert 2.98 < plan.ledger.epsilon() <= 3.0
    assert "ranges or categories of 2 columns that nobody stated [lab]" in str(plan.ledger)
    again = PrivacyLedger.from_dict(plan.ledger.to_dict())
    assert again.epsilon() == plan.ledger.epsilon()
    assert "9 columns" not in str(plan.ledger)

    # What parties add is what the ledger says.
    encoding = PublicEncoding.of(
        plan.histogram_noise_multiplier, COLUMNS, relation=privacy.relation, delta=1e-4
    )
    stds = {r.released.split(" of ")[0]: r.noise_std for r in releases_in(plan.ledger.event)}
    assert encoding.discovery.noise_std == pytest.approx(stds["ranges or categories"])
    failing = sum(r.failure_probability for r in releases_in(plan.ledger.event))
    n_values = 3 * (2 if relation == "replace_one" else 1)
    assert failing == pytest.approx(0.001 * 1e-4)
    assert encoding.discovery.threshold == pytest.approx(
        category_threshold(encoding.discovery.noise_std, failing, n_values)
    )


def test_a_complete_schema_costs_nothing_more():
    privacy = PairwiseTables(epsilon=3.0, delta=1e-4)
    listed = {name: ColumnCounts(own.total) for name, own in COLUMNS.items()}
    ledger = privacy.plan(listed, ASKED).ledger
    assert "nobody stated" not in str(ledger)
    assert all(r.failure_probability == 0.0 for r in releases_in(ledger.event))


# what it finds


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (np.linspace(3.0, 90.0, 800), 2.0, 128.0),
        (np.linspace(-90.0, 30.0, 800), -128.0, 32.0),
        (np.zeros(500), 0.0, 2.0**-30),
        (np.r_[np.zeros(400), np.full(400, 5.0)], 0.0, 8.0),
        (np.r_[np.zeros(400), np.full(400, -5.0)], -8.0, 0.0),
        (np.r_[np.full(400, 5.0), np.full(100, np.nan), [1e12, -np.inf]], 4.0, 8.0),
        (np.full(500, np.inf), 2.0**63, 2.0**64),
    ],
)
def test_range_goes_to_the_next_powers_of_two(values, low, high):
    assert discover(values) == Bounds(low, high)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "Int8", "int64", "UInt64"])
def test_range_of_integers_fits_their_type(dtype):
    limits = np.iinfo(dtype.lower())
    for values in (np.full(500, limits.max), np.full(500, limits.min), np.arange(500) % 100):
        column = pd.Series(values).astype(dtype)
        found = discover(column)
        low, high = found.origin + found.low, found.origin + found.high
        assert limits.min <= low < high <= limits.max
        assert low <= values.max()
        assert high >= values.min()


def test_nothing_to_be_seen_is_the_likeliest_cell():
    found = discover([1.0, 2.0], noise_std=50.0)
    assert found.low < found.high


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=30))
def test_every_record_has_a_cell_of_its_own(values):
    column = pd.Series(values, dtype=float)
    grid = column_kind("continuous").ranges.grid(column.dtype)
    cells = range_cells(column, *grid)
    alone = [range_cells(column.iloc[[i]], *grid)[0] for i in range(len(column))]
    assert cells.tolist() == alone
    assert ((cells >= 0) == column.notna()).all()


def test_frequent_categories_are_found_and_rare_ones_are_not():
    values = ["b"] * 60 + ["a"] * 40 + ["rare"] + [None] * 50 + [["unhashable"]] * 30
    for seed in range(30):
        assert discover(values, noise_std=1.0, seed=seed) == Categories(("a", "b"))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([True] * 30 + [False] * 30), (False, True)),
        (pd.Series([True] * 30 + [None] * 30, dtype="boolean"), (False, True)),
        (pd.Series([True] * 30 + [None] * 30, dtype=object), (True,)),
        (pd.Series([1, True, 2.0] * 30, dtype=object), (True, 2.0)),
        (pd.Series([(1, 2)] * 30), ((1, 2),)),
        (pd.Series(["lo", "hi"] * 30, dtype=pd.CategoricalDtype(["lo", "mid", "hi"], True)),
         ("lo", "hi")),
    ],
)  # fmt: skip
def test_categories_of_other_types(column, expected):
    assert discover(column) == Categories(expected)


def test_a_column_that_identifies_records_is_refused():
    with pytest.raises(PartyDataError, match=r"column 'x': no value .* frequent enough.*contract"):
        discover([f"name {i}" for i in range(500)], noise_std=1.0)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_range_of_times_goes_to_the_next_decades(unit, zone):
    """In UTC, whatever the zone."""
    days = pd.Series(pd.date_range("1987-05-03", "2004-01-01", periods=500))
    dtype = f"datetime64[{unit}, {zone}]" if zone else f"datetime64[{unit}]"
    found = discover(days.dt.tz_localize(zone).astype(dtype))
    ends = (np.int64(found.origin + end) for end in (found.low, found.high))
    low, high = (end.view(f"M8[{unit}]") for end in ends)
    assert (low, high) == (np.datetime64("1980-01-01"), np.datetime64("2010-01-01"))


def test_range_of_durations_goes_to_the_next_powers_of_two_seconds():
    found = discover(pd.Series(pd.to_timedelta(np.linspace(70.0, 200.0, 500), "s").as_unit("ms")))
    assert (found.origin, found.high) == (64_000, 256_000 - 64_000)


def test_times_beyond_the_calendar_count_as_its_ends():
    found = discover(pd.Series(np.full(500, 2**62), dtype="int64").astype("M8[s]"))
    assert np.int64(found.origin + found.high).view("M8[s]") == np.datetime64("9999-01-01")


def test_labels_do_not_depend_on_the_order_of_records():
    values = pd.Series(["b"] * 9 + ["a"] * 9 + [1] * 9 + [True] * 8 + [2.5] * 9, dtype=object)
    options = {"noise_std": 2.0, "threshold": 8.0, "seed": 1}
    assert discover(values, **options) == discover(values[::-1], **options)


class Shout(str):
    """Text of another type."""


@pytest.mark.parametrize(
    ("often", "once"),
    [
        (0.0, -0.0),
        (1, True),
        (1, np.int8(1)),
        (1.0, 1),
        ("a", Shout("a")),
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        ((1, 2), (True, 2.0)),
        (pd.Timestamp("2020-01-01", tz="UTC"), pd.Timestamp("2020-01-01 01:00", tz="Etc/GMT-1")),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_one_persons_spelling_does_not_decide_which_label_is_published(often, once, first):
    """Of values that are equal; and what is published is no object of the table's."""
    assert often == once
    others = [often] * 40
    values = pd.Series([once, *others] if first else [*others, once], dtype=object)
    (label,) = discover(values, noise_std=1.0, threshold=8.0).values
    assert (repr(label), type(label)) == (repr(often), type(often))


def test_a_declared_kind_is_discovered_as_such():
    """Codes are labels, and an ordered column's labels are in their order."""
    codes = pd.Series([10, 100, 20] * 30)
    assert discover(codes) == Bounds(8, 128, step=1)
    assert discover(codes, kind="categorical") == Categories((10, 20, 100))
    assert discover(codes, kind="ordered") == Categories((10, 20, 100))
    assert discover(codes.astype(float), kind="integer") == Bounds(8, 128, step=1)
    assert discover(codes % 2, kind="boolean") == Categories((0, 1))
    with pytest.raises(ColumnKindError, match=r"'x'.*not numeric"):
        discover(codes.astype(str), kind="continuous")
    with pytest.raises(ColumnKindError, match=r"'x'.*have no order"):
        discover(pd.Series(["a", 1] * 30, dtype=object), kind="ordered")


def test_kinds_say_what_has_to_be_discovered():
    table = {"lab": pd.DataFrame({"id": [1], "code": [10], "flag": [True], "yes": [1]})}
    assert count_columns(table, "id", None)["lab"] == ColumnCounts(3, 2)
    assert count_columns(table, "id", None, {"yes": "boolean"})["lab"] == ColumnCounts(3, 1)
    for kinds, words in [
        ({"cod": "categorical"}, "'cod'.*no such column"),
        ({"id": "integer"}, "'id'.*a key has no kind"),
        ({"code": "number"}, "'code'.*unknown kind 'number'"),
    ]:
        with pytest.raises(ColumnKindError, match=words):
            count_columns(table, "id", None, kinds)
    schema = PublicSchema(dtypes="given", bounds={"code": (0, 99)})
    with pytest.raises(ColumnKindError, match=r"party 'lab', column 'code'.*bounds.*Fix: list"):
        count_columns(table, "id", schema, {"code": "categorical"})


def test_a_kind_that_cannot_be_discovered_is_refused_before_anything_is_released(monkeypatch):
    """Its `public_column` may return None, as that of kinds with labels or ranges may."""

    class Own(ColumnTransformer):
        kind = "own"

        @classmethod
        def public_column(cls, name, dtype, listed):
            return listed

    monkeypatch.setattr("vflsynth.columns.kinds.TRANSFORMERS", {**TRANSFORMERS, "own": Own})
    table = pd.DataFrame({"age": [30.0, 40.0] * 20, "gene": [1.0, 2.0] * 20})
    words = r"party 'lab', column 'gene'.*kind 'own'.*Fix: give it public bounds or categories"
    with pytest.raises(ColumnKindError, match=words):
        count_columns({"lab": table}, None, None, {"gene": "own"})
    encoding = PublicEncoding(NOBODY, 16, 1.0, Discovery(1.0, 5.0), {"gene": "own"})
    released = []
    monkeypatch.setattr("vflsynth.privacy.discovery.discover_column", released.append)
    with pytest.raises(ColumnKindError, match=words):
        encoding.histograms("lab", table)
    assert not released


def test_nothing_is_released_that_the_noise_was_not_calibrated_for():
    """For instance because the kinds were forgotten when columns were counted, or later."""
    privacy = PairwiseTables(epsilon=3.0, delta=1e-4)
    frame = pd.DataFrame({"yes": [0, 1] * 20})
    counts = count_columns({"lab": frame}, None, None, {"yes": "boolean"})
    terms = {"relation": privacy.relation, "delta": privacy.delta}
    paid = PublicEncoding.of(1.0, counts, kinds={"yes": "boolean"}, **terms)
    assert paid.histograms("lab", frame)["yes"].column == Categories((0, 1))
    forgotten = PublicEncoding.of(1.0, counts, **terms)
    with pytest.raises(PrivacyBudgetError, match="'lab' would release 1 columns, 1 of which"):
        forgotten.histograms("lab", frame)
    with pytest.raises(PrivacyBudgetError, match="2 columns"):
        paid.histograms("lab", frame.assign(more=1.5))


# whole fits


def frames(n=600, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n)
    smoker = np.where(rng.random(n) < age / 150, "yes", "no").astype(object)
    smoker[0] = "only one says so"
    lab = pd.DataFrame(
        {"id": range(n), "age": age, "pressure": 80 + 0.5 * age + rng.normal(size=n)}
    )
    return {"lab": lab, "clinic": pd.DataFrame({"id": range(n), "smoker": smoker})}


@pytest.mark.parametrize(
    "make",
    [
        lambda **privacy: MixtureSynthesizer(privacy=PairwiseTables(**privacy), n_components=4),
        *later(
            lambda **privacy: VFLGANSynthesizer(
                privacy=DPSGD(**privacy, n_records=600),
                epochs=1,
                batch_size=200,
            ),
            lambda **privacy: WGANGPSynthesizer(privacy=DPSGDGAN(**privacy), epochs=1),
        ),
        lambda **privacy: DPLTSynthesizer(privacy=LatentTree(**privacy)),
    ],
    ids=["pairwise_tables", "dpsgd", "dpsgd_gan", "latent_tree"],
)
def test_without_a_schema_everything_is_paid_for(make, tmp_path, monkeypatch):
    monkeypatch.setattr(Detail, "n_steps", 30)  # of a search whose outcome is not asked
    pytest.importorskip("dp_accounting")
    synth = make(epsilon=8.0, delta=1e-3, public_schema=NOBODY).fit(frames(), on="id")
    assert synth.privacy_ledger_.epsilon() <= 8.0
    assert "3 columns that nobody stated" in " ".join(str(synth.privacy_ledger_).split()) or (
        "2 columns that nobody stated" in str(synth.privacy_ledger_)
    )
    table = synth.sample(400)
    assert set(table["smoker"].dropna()) <= {"yes", "no"}
    assert table["age"].dtype == np.int64
    assert table["age"].between(16, 128).all()
    synth.save(tmp_path / "model")
    assert "only one says so" not in "".join(
        path.read_text() for path in (tmp_path / "model").rglob("*.json")
    )


@pytest.mark.slow
def test_relations_survive_without_a_schema():
    privacy = PairwiseTables(epsilon=10.0, delta=1e-4, public_schema=NOBODY)
    synth = MixtureSynthesizer(privacy=privacy, random_state=0).fit(frames(3000), on="id")
    table = synth.sample(3000)
    older = table["age"] > 54
    share = (table["smoker"] == "yes").groupby(older).mean()
    assert share[True] - share[False] > 0.1  # 0.24 in the records
    assert table["age"].corr(table["pressure"]) > 0.9


def test_part_of_a_schema_is_taken_as_given(monkeypatch):
    monkeypatch.setattr(Detail, "n_steps", 30)
    schema = PublicSchema(dtypes="given", bounds={"age": (0, 120)})
    counts = count_columns(frames(), "id", schema)
    assert counts == {"lab": ColumnCounts(2, 1), "clinic": ColumnCounts(1, 1)}
    privacy = PairwiseTables(epsilon=8.0, delta=1e-3, public_schema=schema)
    synth = MixtureSynthesizer(privacy=privacy, n_components=4).fit(frames(), on="id")
    histograms = synth.parties_["lab"].transformer.transformers_
    assert histograms["age"].histogram_.column.high == 120
    assert "of 1 columns given by the user" in " ".join(str(synth.privacy_ledger_).split())


def test_neither_a_schema_nor_a_share_is_refused():
    privacy = DPSGD(epsilon=8.0, delta=1e-3, n_records=600, preprocessing_share=0)
    with pytest.raises(ParameterError, match="public_schema"):
        VFLGANSynthesizer(privacy=privacy).fit(frames(), on="id")
    half = privacy.set_params(public_schema=PublicSchema(dtypes="given", bounds={"age": (0, 120)}))
    with pytest.raises(PartyDataError, match="public_schema says nothing about this"):
        VFLGANSynthesizer(privacy=half).fit(frames(), on="id")


@pytest.mark.parametrize(
    "odd",
    [datetime.timedelta.max, decimal.Decimal("sNaN"), 10**5000, np.datetime64(2**62, "Y"), [1]],
    ids=lambda odd: type(odd).__name__,
)
def test_one_value_that_no_label_can_be_ends_no_discovery(odd):
    column = pd.Series(["u", "v"] * 50, dtype=object)
    column[7] = odd
    found = discover_column(column, TRANSFORMERS["categorical"], Discovery(1.0, 5.0))
    assert found == Categories(("u", "v"))
