"""Sites whose key columns have other names, and whose keys are written otherwise."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pytest

from tests.unit.federation.trial import Trial
from vflsynth.exceptions import ParameterError
from vflsynth.federation.job import Job
from vflsynth.federation.matching import Matching
from vflsynth.federation.psi import key_text
from vflsynth.federation.site import Bounds


def tables(n=120):
    rng = np.random.default_rng(0)
    keys = [f"zoe{i:03d}" for i in range(n)]
    lab = pd.DataFrame({"patient_id": keys, "a": rng.normal(size=n)})
    clinic = pd.DataFrame({"PatientNo": [f" {k.upper()}" for k in keys], "b": rng.normal(size=n)})
    lab.loc[:39, "a"] += 3.0
    return {"lab": lab, "clinic": clinic.iloc[40:]}


def job(**keys):
    content = {"name": "keys", "parties": ["lab", "clinic"], "method": "IndependentSynthesizer"}
    return Job.from_dict(content | keys)


@pytest.mark.parametrize("of_site", [False, True])
def test_sites_match_by_columns_of_their_own_in_an_agreed_form(of_site, tmp_path):
    on = "patient_id" if of_site else {"lab": "patient_id", "clinic": "PatientNo"}
    trial = Trial(tmp_path, tables(), job(on=on, key_form="strip casefold"))
    if of_site:
        trial.change("clinic", key="PatientNo")
    trial.run()
    assert trial.outcome == dict.fromkeys(["lab", "clinic", "server"])
    assert trial.server.alignment.n_matched == 80
    # Each party is told of its own unmatched records, and nobody else of them.
    report = json.loads(next((tmp_path / "lab" / "keys").glob("report-*.json")).read_text())
    assert [found["column"] for found in report["unmatched_differ"]] == ["a"]
    assert not trial.server.alignment.lost


DAY = datetime.date(2020, 1, 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pd.Index([DAY], dtype=object), pd.DatetimeIndex(["2020-01-01"])),
        (pd.CategoricalIndex([DAY]), pd.DatetimeIndex(["2020-01-01"]).as_unit("s")),
        (pd.Index([decimal.Decimal(7)], dtype=object), pd.Index([7], dtype="int8")),
        (pd.Index([-0.0]), pd.Index([0.0])),
    ],
)
def test_keys_that_are_equal_in_one_process_are_blinded_alike(one, other):
    texts = [
        [key_text(key) for key in Matching("lab", keys, [], bytes(32), Bounds()).keys]
        for keys in (one, other)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("wrong", [{"on": {"lab": "id"}}, {"on": 7}, {"key_form": "trim"}])
def test_jobs_that_name_keys_wrongly_are_refused(wrong):
    with pytest.raises(ParameterError, match=r"on must|form of keys"):
        job(**wrong)
