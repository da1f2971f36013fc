"""Eq. 22 and the paper's encoding, against the obvious pandas expression."""

import numpy as np
import pandas as pd

from vflsynth.columns import TableTransformer


def test_the_papers_encoding_is_z_scores_and_dummies() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "alcohol": rng.normal(10, 1, 500).round(1),
            "quality": rng.choice([3, 4, 5, 6, 7, 8], 500),
            "gain": np.where(rng.random(500) < 0.9, 0.0, rng.lognormal(8, 1, 500)),
            "colour": rng.choice(["red", "white"], 500),
        }
    )
    paper = {"continuous": "standard", "spike_share": None, "rare_threshold": 0.0}
    table = TableTransformer(**paper).fit(frame)

    def z_score(column: pd.Series) -> pd.Series:
        return (column - column.mean()) / np.sqrt(((column - column.mean()) ** 2).sum() / 499)

    expected = pd.concat(
        [
            z_score(frame["alcohol"]),
            pd.get_dummies(frame["quality"]),
            z_score(frame["gain"]),
            pd.get_dummies(frame["colour"]),
        ],
        axis=1,
    ).to_numpy(dtype=float)
    np.testing.assert_allclose(table.transform(frame), expected, rtol=2e-7, atol=1e-7)
    # The divisor is the standard deviation, so each z-score has variance one; Eq. 22's word
    # "variance" would leave another.
    np.testing.assert_allclose(table.transform(frame)[:, [0, 7]].var(axis=0, ddof=1), 1, rtol=1e-5)
