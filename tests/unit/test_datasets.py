import numpy as np
import pandas as pd
import pytest

from vflsynth.datasets import load_breast_cancer_parties, make_party_frames
from vflsynth.exceptions import ParameterError
from vflsynth.frames import align_party_frames
from vflsynth.testing.laws import global_random_state_left_alone


def assert_same(first, second):
    assert list(first) == list(second)
    for party in first:
        pd.testing.assert_frame_equal(first[party], second[party])


def test_breast_cancer_is_the_real_table_but_for_the_patients_unknown_to_one_party():
    from sklearn.datasets import load_breast_cancer

    whole = load_breast_cancer(as_frame=True)
    frames = load_breast_cancer_parties()
    aligned, keys, report = align_party_frames(frames, on="patient_id")
    assert report.n_dropped == {"lab": 31, "clinic": 24}
    rows = keys.str[1:].astype(int) - 1
    joined = pd.concat(aligned.values(), axis="columns")
    assert set(joined.columns) == {*whole.data.columns, "diagnosis"}
    np.testing.assert_array_equal(joined[whole.data.columns], whole.data.iloc[rows])
    malignant = (whole.target == whole.target_names.tolist().index("malignant")).iloc[rows]
    assert ((joined["diagnosis"] == "malignant").to_numpy() == malignant.to_numpy()).all()


def test_breast_cancer_rows_are_shuffled_and_reproducible():
    frames = load_breast_cancer_parties()
    for frame in frames.values():
        assert not frame["patient_id"].is_monotonic_increasing
        assert frame.index.equals(pd.RangeIndex(len(frame)))
    assert_same(frames, load_breast_cancer_parties(0))
    assert not load_breast_cancer_parties(1)["lab"].equals(frames["lab"])


@pytest.mark.parametrize("n_parties", [1, 2, 3, 5])
def test_generated_parties_share_the_records_asked_for(n_parties):
    frames = make_party_frames(200, n_parties, random_state=0, n_unmatched=7)
    assert list(frames) == [f"party_{i + 1}" for i in range(n_parties)]
    assert {frame.shape for frame in frames.values()} == {(207, 11)}
    _, _, report = align_party_frames(frames, on="record_id")
    assert report.n_matched == (200 if n_parties > 1 else 207)


def test_generated_tables_are_reproducible_and_leave_the_global_generator_alone():
    with global_random_state_left_alone():
        first = make_party_frames(50, random_state=3)
        assert_same(first, make_party_frames(50, random_state=np.random.default_rng(3)))
    assert not first["party_1"].equals(make_party_frames(50, random_state=4)["party_1"])


def test_generated_columns_are_as_documented():
    frames = make_party_frames(20_000, 2, random_state=0)
    aligned, _, _ = align_party_frames(frames, on="record_id")
    joined = pd.concat(aligned.values(), axis="columns")
    dtypes = {
        name.rsplit("_", 1)[0]: str(dtype) for name, dtype in aligned["party_1"].dtypes.items()
    }
    assert dtypes == {
        "measure": "float64", "amount": "float32", "count": "int64", "score": "Int64",
        "flag": "bool", "group": "category", "grade": "category",
        "city": str(pd.Series(["a"]).dtype), "visit": "datetime64[us]", "result": "float64",
    }  # fmt: skip
    assert str(aligned["party_2"]["visit_2"].dtype) == "datetime64[us, UTC]"
    assert aligned["party_1"]["grade_1"].cat.ordered
    assert (aligned["party_1"]["group_1"] == "none").sum() == 0
    # Standard errors here are below 0.01, so 0.03 is a wide margin.
    assert joined["measure_1"].corr(joined["measure_2"]) == pytest.approx(0.64, abs=0.03)
    assert joined["score_1"].isna().mean() == pytest.approx(0.15, abs=0.03)
    missing = joined["result_1"].isna().groupby(joined["flag_1"]).mean()
    assert missing.to_dict() == pytest.approx({False: 0.05, True: 0.45}, abs=0.03)
    # Associated across parties, categories too; the city is not.
    table = pd.crosstab(joined["grade_1"], joined["grade_2"], normalize="index")
    assert table.loc["low", "low"] > table.loc["high", "low"] + 0.3
    table = pd.crosstab(joined["city_1"] == "city a", joined["flag_2"], normalize="index")
    assert table.iloc[0, 0] == pytest.approx(table.iloc[1, 0], abs=0.03)


@pytest.mark.parametrize("arguments", [(0, 2), (10, 0)])
def test_bad_sizes_are_refused(arguments):
    with pytest.raises(ParameterError, match="at least 1"):
        make_party_frames(*arguments)
