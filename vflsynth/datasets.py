"""Tables to try things on: a real one that comes with scikit-learn, and generated ones.

Both are tables of several parties who know different things about the same records, with the
records in different orders and not all of them known to everybody.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.datasets import load_breast_cancer

from vflsynth.exceptions import ParameterError
from vflsynth.frames import vertical_split

_FloatArray = npt.NDArray[np.float64]


def load_breast_cancer_parties(
    random_state: int | np.random.Generator = 0,
) -> dict[str, pd.DataFrame]:
    """Split scikit-learn's breast cancer table between a laboratory and a clinic.

    The laboratory has the means and standard errors of ten properties of cell nuclei, the clinic
    the worst values and the diagnosis. Rows are in different orders; 24 of the 569 patients are
    unknown to the laboratory and 31 others to the clinic, so that 514 can be matched by
    ``patient_id``.

    Parameters
    ----------
    random_state : int or numpy.random.Generator, default 0
        Decides which patients are unknown to whom, and the row orders.

    Returns
    -------
    dict of str to pandas.DataFrame
        ``"lab"`` (545 rows, 20 measurements) and ``"clinic"`` (538 rows, 10 measurements and the
        category ``diagnosis``), each with the key column ``patient_id``.

    References
    ----------
    Wolberg, Mangasarian, Street and Street: Breast Cancer Wisconsin (Diagnostic). UCI Machine
    Learning Repository, DOI 10.24432/C5DW2B.

    Examples
    --------
    >>> frames = load_breast_cancer_parties()
    >>> {party: frame.shape for party, frame in frames.items()}
    {'lab': (545, 21), 'clinic': (538, 12)}
    >>> frames["clinic"]["diagnosis"].cat.categories.tolist()
    ['benign', 'malignant']
    >>> from vflsynth.frames import align_party_frames
    >>> align_party_frames(frames, on="patient_id")[2].n_matched
    514
    """
    rng = np.random.default_rng(random_state)
    bunch = load_breast_cancer(as_frame=True)
    frame = bunch.data.assign(
        diagnosis=pd.Categorical(np.where(bunch.target == 1, "benign", "malignant")),
        patient_id=[f"P{number:04d}" for number in range(1, len(bunch.data) + 1)],
    )
    worst = [name for name in bunch.feature_names if name.startswith("worst")]
    others = [name for name in bunch.feature_names if name not in worst]
    frames = vertical_split(
        frame, {"lab": others, "clinic": [*worst, "diagnosis"]}, key_name="patient_id"
    )
    patients = rng.permutation(len(frame))
    unknown = {"lab": patients[:24].tolist(), "clinic": patients[24:55].tolist()}
    return {
        party: own.drop(index=unknown[party]).sample(frac=1, random_state=rng, ignore_index=True)
        for party, own in frames.items()
    }


def make_party_frames(
    n_records: int = 1000,
    n_parties: int = 2,
    random_state: int | np.random.Generator | None = None,
    *,
    n_unmatched: int = 0,
) -> dict[str, pd.DataFrame]:
    """Generate tables of mixed columns that are associated within and across parties.

    Every record has two hidden properties, ``u`` and ``v``, independent and standard normal. All
    columns but ``city`` are noisy functions of them, so parties know related things although they
    share no column.

    Parameters
    ----------
    n_records : int, default 1000
        Records that all parties have.
    n_parties : int, default 2
        Parties, named ``"party_1"``, ``"party_2"`` and so on.
    random_state : int, numpy.random.Generator or None
        Where all draws come from. None: fresh entropy.
    n_unmatched : int, default 0
        Rows of each party about records that no other party has.

    Returns
    -------
    dict of str to pandas.DataFrame
        Each of ``n_records + n_unmatched`` rows in an order of its own, with the key column
        ``record_id`` and ten columns whose names end in the party's number:

        ========== ==================== ==========================================================
        column     dtype                what it is
        ========== ==================== ==========================================================
        measure    float64              0.8 u + 0.6 noise: correlation 0.64 between two parties
        amount     float32              log-normal in v, positive, skewed
        count      int64                Poisson, rate rises with u
        score      Int64                0 to 100, falls with v; 15 % missing
        flag       bool                 more often True where u is large
        group      category             north, east, south or west, by v; a fifth, "none", is unused
        grade      category, ordered    low < medium < high, by u
        city       str                  a dozen cities of very unequal size, whatever u and v
        visit      datetime64[us]       date and time, later where v is large; with timezone UTC at
                                        every second party
        result     float64              0.7 u + 0.7 v + noise; missing in 45 % of the records with
                                        flag, in 5 % of the others
        ========== ==================== ==========================================================

    Raises
    ------
    ParameterError
        If there would be no record or no party.

    Examples
    --------
    >>> frames = make_party_frames(500, n_parties=3, random_state=0, n_unmatched=20)
    >>> frames["party_2"].shape
    (520, 11)
    >>> from vflsynth.frames import align_party_frames
    >>> aligned, _, report = align_party_frames(frames, on="record_id")
    >>> report.n_matched
    500
    >>> bool(aligned["party_1"]["measure_1"].corr(aligned["party_3"]["measure_3"]) > 0.5)
    True
    """
    if n_records < 1 or n_parties < 1 or n_unmatched < 0:
        raise ParameterError(
            "n_records and n_parties must be at least 1 and n_unmatched at least 0, got "
            f"{n_records}, {n_parties} and {n_unmatched}"
        )
    rng = np.random.default_rng(random_state)
    n_all = n_records + n_parties * n_unmatched
    record_ids = 100_000 + rng.permutation(n_all)
    u, v = rng.standard_normal((2, n_all))
    frames = {}
    for number in range(1, n_parties + 1):
        own = n_records + (number - 1) * n_unmatched + np.arange(n_unmatched)
        rows = rng.permutation(np.concatenate([np.arange(n_records), own]))
        columns = _columns(rng, u[rows], v[rows], timezone="UTC" if number % 2 == 0 else None)
        frame = pd.DataFrame(columns).add_suffix(f"_{number}")
        frame.insert(0, "record_id", record_ids[rows])
        frames[f"party_{number}"] = frame
    return frames


def _columns(
    rng: np.random.Generator, u: _FloatArray, v: _FloatArray, timezone: str | None
) -> dict[str, Any]:
    """Draw the columns of one party, given its records' hidden properties."""
    n = len(u)

    def noise(scale: float) -> _FloatArray:
        return scale * rng.standard_normal(n)

    score = pd.array(np.clip(50 - 20 * v + noise(10), 0, 100).round().astype("int64"), "Int64")
    score[rng.random(n) < 0.15] = pd.NA
    flag = u + noise(1) > 0.5
    result = 0.7 * u + 0.7 * v + noise(0.3)
    result[rng.random(n) < np.where(flag, 0.45, 0.05)] = np.nan
    group = np.digitize(v + noise(0.5), [-1, 0, 1])
    groups = pd.Index(["north", "east", "south", "west", "none"])
    grade = np.digitize(u + noise(0.5), [-0.5, 0.8])
    grades = pd.Index(["low", "medium", "high"])
    cities = np.array([f"city {letter}" for letter in "abcdefghijkl"])
    shares = 0.5 ** np.arange(1, len(cities) + 1)
    minutes = (300_000 + 100_000 * np.tanh(v + noise(0.5))).astype("int64")
    visit = pd.Series(np.datetime64("2020-01-01", "us") + minutes.astype("timedelta64[m]"))
    return {
        "measure": 0.8 * u + noise(0.6),
        "amount": np.exp(3 + v + noise(0.5)).astype("float32"),
        "count": rng.poisson(np.exp(1 + 0.5 * u)),
        "score": score,
        "flag": flag,
        "group": pd.Categorical.from_codes(group, groups),
        "grade": pd.Categorical.from_codes(grade, grades, ordered=True),
        "city": pd.Series(rng.choice(cities, size=n, p=shares / shares.sum()), dtype="str"),
        "visit": visit.dt.tz_localize(timezone),
        "result": result,
    }
