"""Parts of a sample belong together, and say so."""

import json
import re
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from tests.unit.federation.conftest import trial_in
from vflsynth.exceptions import (
    ArtefactError,
    MisalignedError,
    ParameterError,
    PublishingWarning,
    SharedColumnError,
    TableFileError,
)
from vflsynth.federation.joining import KEYS, MARK, PARTIES, join_parts
from vflsynth.federation.sampling import draw_part

pytestmark = pytest.mark.usefixtures("short_searches")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trial_in(tmp_path_factory.mktemp("trained"), parameters={"epochs": 2}).run()


def test_before_a_run_there_is_nothing_to_draw_from(tmp_path):
    trial = trial_in(tmp_path)
    with pytest.raises(ArtefactError, match=r"site 'party_1' has no half of job .*run the job"):
        draw_part(trial.job, trial.sites["party_1"], 50, "one")


def test_a_half_whose_saving_was_cut_off_is_pointed_to(trained, tmp_path):
    site = replace(trained.sites["party_1"], folder=tmp_path)
    job = tmp_path / trained.job.name
    left = job / ".half.old.1" / "half"
    shutil.copytree(trained.sites["party_1"].folder / trained.job.name / "half", left)
    with pytest.raises(ArtefactError, match=rf"has no half.*back from {re.escape(str(left))}"):
        draw_part(trained.job, site, 50, "one")


def test_parts_are_rows_of_the_same_records(trained):
    parts = trained.parts(50, keys="party_1")
    table, cost = join_parts(parts)
    assert cost is None
    assert len(table) == 50
    assert table["record_id"].is_unique
    with pytest.warns(PublishingWarning, match="1 of 2 parties' parts"):
        join_parts({"party_1": parts["party_1"]})
    again = draw_part(trained.job, trained.sites["party_2"], 50, "one")
    pd.testing.assert_frame_equal(again, parts["party_2"])
    other = draw_part(trained.job, trained.sites["party_2"], 50, "two")
    assert not other.equals(again)


def test_parts_of_different_samples_are_refused(trained):
    one = draw_part(trained.job, trained.sites["party_1"], 50, "one")
    for n, request in [(50, "two"), (51, "one")]:
        other = draw_part(trained.job, trained.sites["party_2"], n, request)
        with pytest.raises(MisalignedError, match="not parts of one sample"):
            join_parts({"a": one, "b": other})
    with pytest.raises(MisalignedError):
        join_parts({"a": pd.DataFrame({"x": [1]})})


def test_halves_of_two_attempts_are_not_joined(trained, tmp_path):
    """A party that is killed while it saves its half keeps the one of the attempt before."""
    one = draw_part(trained.job, trained.sites["party_1"], 50, "one")
    site = replace(trained.sites["party_2"], folder=tmp_path)
    own = tmp_path / trained.job.name
    shutil.copytree(trained.sites["party_2"].folder / trained.job.name, own)
    join_parts({"a": one, "b": draw_part(trained.job, site, 50, "one")})
    said = json.loads((own / "half-of.json").read_text())
    for other in (said | {"attempt": "of another"}, said | {"half": "another"}):
        (own / "half-of.json").write_text(json.dumps(other))
        part = draw_part(trained.job, site, 50, "one")
        with pytest.raises(MisalignedError, match="run the job again first"):
            join_parts({"a": one, "b": part})


def test_keys_twice_are_refused(trained):
    parts = {n: draw_part(trained.job, s, 5, "one", keys=True) for n, s in trained.sites.items()}
    with pytest.raises(SharedColumnError, match="record_id"):
        join_parts(parts)


def test_keys_of_an_index_come_with_all_parts(make_trial):
    trial = make_trial(on=None)
    for name, frame in trial.frames.items():
        frame.set_index("record_id").to_parquet(trial.folder / f"{name}.parquet")
    trial.run()
    parts = trial.parts(5, keys="party_1")
    table, _ = join_parts(parts)
    assert table.index.name == "record_id"
    assert table.index.is_unique
    other = parts["party_2"]
    pd.testing.assert_frame_equal(table[other.columns], other.set_axis(table.index))


def test_a_part_with_other_rows_than_were_drawn_is_refused(trained):
    parts = trained.parts(5)
    for changed in (parts["party_2"].iloc[:4], parts["party_2"].iloc[::-1]):
        with pytest.raises(MisalignedError, match="leave the file as it is"):
            join_parts(parts | {"party_2": changed})


@pytest.mark.parametrize(
    ("name", "said"), [(MARK, ["x"]), (PARTIES, "two"), (KEYS, {"on": None}), (KEYS, [])]
)
def test_a_part_that_says_what_nobody_can_read_is_refused(trained, name, said):
    parts = trained.parts(5)
    parts["party_1"].attrs[name] = said
    with pytest.raises(MisalignedError, match=r"draw .* anew|same job"):
        join_parts(parts)


AUTOREGRESSIVE = {
    "method": "AutoregressiveSynthesizer",
    "fast": {"epochs": 2, "hidden": 8, "n_features": 16},
}


def test_parties_that_draw_one_after_the_other_pass_on_files(make_trial, tmp_path):
    trained = make_trial(3, **AUTOREGRESSIVE).run()
    folder = tmp_path / "passed"
    with pytest.raises(ParameterError, match="--passed"):
        draw_part(trained.job, trained.sites["party_2"], 50, "one")
    with pytest.raises(TableFileError, match=r"party_1-to-party_2\.parquet is not there"):
        draw_part(trained.job, trained.sites["party_2"], 50, "one", passed=folder)
    parts = trained.parts(50, passed=folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "party_1-to-party_2.parquet",
        "party_1-to-party_3.parquet",
        "party_2-to-party_3.parquet",
    ]
    assert join_parts(parts)[0].shape == (50, 9)
    again = draw_part(trained.job, trained.sites["party_3"], 50, "one", passed=folder)
    pd.testing.assert_frame_equal(again, parts["party_3"])
    for n, request in [(50, "two"), (49, "one")]:
        with pytest.raises(MisalignedError, match="is of another sample"):
            draw_part(trained.job, trained.sites["party_3"], n, request, passed=folder)


def test_a_run_over_frames_has_one_snapshot_of_contexts(make_trial):
    trained = make_trial(2, **AUTOREGRESSIVE).run()
    table = trained.nodes["party_2"].transcript.to_frame().set_index("message")
    assert table.loc["RecordContexts", "messages"] == 1
    assert table.loc["RecordContexts", "contents"] == "bits_per_record = 8; contexts (1, 40, 6)"
