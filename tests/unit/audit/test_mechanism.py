"""Audits of a mechanism by itself; what they find is tested in tests/statistical."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vflsynth.adversary import RandomForest
from vflsynth.audit import Claim, audit_mechanism
from vflsynth.exceptions import ParameterError

QUICK = [RandomForest(n_trees=20)]


def test_the_report_reads_like_one():
    rng = np.random.default_rng(0)
    audit = audit_mechanism(
        lambda inside: rng.normal(size=(2, 3)) + 9 * inside,
        n_runs=20,
        adversaries=QUICK,
        claim=Claim(0.1),
    )
    assert audit.contradicts_claim
    assert "can tell whether the target was used" in str(audit)
    assert (
        "The claimed ε = 0.1 (one record across all parties, added or removed) is contradicted."
        in audit.page().html
    )
    assert audit.to_frame()["target"].isna().all()


@pytest.mark.parametrize(
    "release",
    [lambda inside: np.zeros(2 + inside), lambda inside: np.nan, lambda inside: np.zeros(0)],
)
def test_releases_that_change_their_shape_or_are_not_finite_are_refused(release):
    with pytest.raises(ParameterError, match="always of the same shape"):
        audit_mechanism(release, n_runs=10, adversaries=QUICK)


def test_numbers_of_numpy_are_written_as_others():
    """The page was there, and the file of an audit that may have taken hours was not."""
    numbers = {"n_runs": np.int64(10), "confidence": np.float32(0.9)}
    audit = audit_mechanism(lambda inside: 0.0, adversaries=QUICK, **numbers)
    assert json.loads(audit.to_json())["n_models"] == 10


def test_bad_parameters_are_refused_by_name():
    with pytest.raises(ParameterError, match="n_runs"):
        audit_mechanism(lambda inside: 0.0, n_runs=1)
    with pytest.raises(ParameterError, match="audit_mechanism: adversaries must be one Adversary"):
        audit_mechanism(lambda inside: 0.0, n_runs=10, adversaries=[])
    for epsilon, delta, wrong in (
        (np.nan, 0.0, "epsilon"),
        (-1.0, 0.0, "epsilon"),
        (1.0, 2.0, "delta"),
    ):
        with pytest.raises(ParameterError, match=f"a claim: {wrong} must be a number"):
            Claim(epsilon, delta)
    with pytest.raises(ParameterError, match="relation must be 'add_or_remove_one' or"):
        Claim(1.0, relation="replace")
