import sys

import numpy as np
import pandas as pd
import pytest

from tests.later import later
from vflsynth import (
    AutoregressiveSynthesizer,
    DPLTSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.evaluation import (
    SDMetricsReports,
    Tables,
    average_variation_distance,
    evaluate,
    marginal_distance,
)
from vflsynth.exceptions import MissingExtraError
from vflsynth.privacy import PublicSchema


def reports(real, synthetic):
    return SDMetricsReports().compute(Tables(real, synthetic))


def test_without_the_extra_the_error_says_what_to_install(mixed, monkeypatch):
    for module in ("sdmetrics", "sdmetrics.reports"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vflsynth\[sdmetrics\]'"):
        reports(mixed, mixed)


@pytest.fixture
def whole(make):
    """Two tables without missing values: SDMetrics drops those, and we do not."""
    columns = ["age", "smoker", "count", "grade"]
    return tuple(make(rows, seed=seed)[columns] for rows, seed in ((600, 0), (450, 1)))


def test_marginal_distances_agree(whole):
    theirs = reports(*whole)["sdmetrics_quality"].parts
    theirs = theirs[theirs["property"] == "Column Shapes"].set_index("column")
    ours = marginal_distance(*whole).parts.set_index("column")
    assert set(theirs["metric"]) == {"KSComplement", "TVComplement"}
    for name in ours.index:
        assert theirs.loc[name, "metric"][:2].lower() == ours.loc[name, "measure"]
        assert 1 - theirs.loc[name, "value"] == pytest.approx(ours.loc[name, "value"])


def test_contingency_similarity_agrees(whole):
    from sdmetrics.column_pairs import ContingencySimilarity

    real, synthetic = (frame[["smoker", "grade"]].astype(object) for frame in whole)
    theirs = ContingencySimilarity.compute(real, synthetic)
    assert 1 - theirs == pytest.approx(average_variation_distance(real, synthetic).value)


def test_reports_have_a_baseline_and_leave_the_tables_alone(mixed, make):
    synthetic = make(300, seed=1)
    copies = mixed.copy(deep=True), synthetic.copy(deep=True)
    for result in reports(mixed, synthetic).values():
        assert 0.8 < result.value <= 1.0
        assert 0.8 < result.baseline <= 1.0
        assert not result.parts["value"].isna().any()
    pd.testing.assert_frame_equal(mixed, copies[0])
    pd.testing.assert_frame_equal(synthetic, copies[1])


def test_a_bad_table_scores_lower(whole):
    real, synthetic = whole
    bad = synthetic.assign(age=synthetic["age"] + 1000, grade="low")
    found, good = reports(real, bad), reports(real, synthetic)
    assert found["sdmetrics_quality"].value < good["sdmetrics_quality"].value - 0.2
    assert found["sdmetrics_diagnostic"].value < 1.0


def test_names_may_be_anything():
    real = pd.DataFrame({1: np.arange(20.0), ("a", 2): ["x", "y"] * 10})
    assert reports(real, real)["sdmetrics_quality"].value == pytest.approx(1.0)


SHORT = {"epochs": 1, "batch_size": 64, "verbose": 0}
BUDGET = {
    "epsilon": 5.0,
    "delta": 1e-4,
    "public_schema": PublicSchema(
        bounds={"age": (15, 95), "hours": (0, 80)},
        dtypes="given",
        categories={"country": ("France", "Spain", "Italy", "Malta"), "sex": ("f", "m")},
    ),
}
SYNTHESIZERS = {
    "independent": IndependentSynthesizer(),
    "copula": GaussianCopulaSynthesizer(),
    "VFLGAN": VFLGANSynthesizer(**SHORT),
    "VertiGAN": VertiGANSynthesizer(**SHORT),
    "WGAN-GP": WGANGPSynthesizer(**SHORT),
    "autoregressive": AutoregressiveSynthesizer(**SHORT),
    "latent tree": DPLTSynthesizer(privacy=LatentTree(**BUDGET)),
    "mixture": MixtureSynthesizer(privacy=PairwiseTables(**BUDGET)),
}


def with_rare_labels() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    country = rng.choice(["France", "Spain", "Italy"], 400, p=[0.6, 0.3, 0.1])
    country[7] = "Malta"  # of one person
    age = rng.integers(18, 90, 400)
    hours = (age / 3 + rng.normal(size=400)).clip(0, 80)
    return pd.DataFrame(
        {"country": country, "sex": rng.choice(["f", "m"], 400), "age": age, "hours": hours}
    )


SOON = ["independent"]


@pytest.mark.parametrize("name", [*SOON, *later(*(n for n in SYNTHESIZERS if n not in SOON))])
@pytest.mark.usefixtures("short_searches", "quick_contexts")
def test_detection_and_reports_run_on_the_default_output_of_every_synthesizer(name):
    from sdmetrics.single_table import LogisticDetection

    table = with_rare_labels().set_axis([f"k{i}" for i in range(400)], axis=0)
    frames = {"town": table[["country", "age"]], "office": table[["sex", "hours"]]}
    synth = SYNTHESIZERS[name].set_params(random_state=0).fit(frames)
    sample = synth.sample(400)[list(table.columns)]
    kinds = {"country": "categorical", "sex": "categorical", "age": "numerical"}
    metadata = {"columns": {c: {"sdtype": kinds.get(c, "numerical")} for c in table}}
    assert 0.0 <= LogisticDetection.compute(table, sample, metadata) <= 1.0
    assert set(sample["country"]) <= set(table["country"])
    results = evaluate(table, sample, metrics=[SDMetricsReports()])
    assert 0.4 < results["sdmetrics_quality"].value <= 1.0
    assert results["sdmetrics_diagnostic"].value > 0.9


def test_a_rare_label_is_other_by_choice_and_stops_the_detection():
    from sdmetrics.single_table import LogisticDetection

    from vflsynth.columns import TableTransformer

    table = with_rare_labels().set_axis([f"k{i}" for i in range(400)], axis=0)
    pooling = TableTransformer(rare="pool", rare_threshold=0.0)
    synth = IndependentSynthesizer(transformer=pooling, random_state=0).fit({"town": table})
    sample = synth.sample(4000)
    assert set(sample["country"]) == {"France", "Spain", "Italy", "other"}
    metadata = {"columns": {c: {"sdtype": "categorical"} for c in ("country", "sex")}}
    with pytest.raises(ValueError, match="unknown categories"):
        LogisticDetection.compute(table[["country", "sex"]], sample[["country", "sex"]], metadata)
