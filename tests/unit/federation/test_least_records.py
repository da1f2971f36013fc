"""Every site refuses to train on few records, whatever the server says."""

import pytest

from vflsynth.exceptions import TooFewRecordsError

pytestmark = pytest.mark.usefixtures("full_least_records")


def test_a_party_refuses_a_run_about_few_records(make_trial):
    trial = make_trial(n_records=20, method="IndependentSynthesizer", fast={}).run()
    assert isinstance(trial.outcome["party_1"], TooFewRecordsError)
    make_trial(
        n_records=20, method="IndependentSynthesizer", fast={}, contract={"least_records": 20},
        name="allowed",
    ).finish()  # fmt: skip
