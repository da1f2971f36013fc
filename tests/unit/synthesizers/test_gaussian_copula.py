import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.crossing import EVERY_RUN
from vflsynth import GaussianCopulaSynthesizer
from vflsynth.learning.messages import MaskedReal
from vflsynth.protocol.channel import Transcript
from vflsynth.run import local

CORRELATION = np.array(
    [
        [1.0, 0.3, -0.6, 0.5],
        [0.3, 1.0, 0.0, 0.4],
        [-0.6, 0.0, 1.0, -0.2],
        [0.5, 0.4, -0.2, 1.0],
    ]
)


@pytest.fixture(scope="module")
def joint():
    rng = np.random.default_rng(0)
    scores = rng.multivariate_normal(np.zeros(4), CORRELATION, size=3000)
    table = pd.DataFrame(scores, columns=["w", "x", "y", "z"])
    return table.assign(x=np.exp(table["x"]), z=table["z"] ** 3)  # margins are not normal


@pytest.fixture(scope="module")
def synth(joint):
    frames = {"one": joint[["w", "x"]], "two": joint[["y", "z"]]}
    return GaussianCopulaSynthesizer(random_state=0).fit(frames, transcript=True)


def test_rank_correlations_survive_within_and_across_parties(joint, synth):
    found = stats.spearmanr(synth.sample(20_000)).statistic
    np.testing.assert_allclose(found, stats.spearmanr(joint).statistic, atol=0.03)


def test_an_index_beside_a_key_column_gives_no_name(joint):
    numbered = joint.assign(id=range(len(joint))).set_index("id", drop=False)
    frames = {"one": numbered[["id", "w", "x"]], "two": numbered[["id", "y", "z"]]}
    table = GaussianCopulaSynthesizer(random_state=0).fit(frames, on="id").sample(9, keys=True)
    assert table.index.name is None
    assert table.sort_values("id")["id"].is_unique  # the name of a level, too, would be ambiguous


def test_loadings_are_a_root_of_the_correlations_of_normal_scores(joint, synth):
    scores = stats.norm.ppf((joint.rank() - 0.5) / len(joint))
    slow = np.corrcoef(scores, rowvar=False)
    loadings = np.concatenate(
        [synth.parties_[name].sampler.loadings.numpy() for name in ("one", "two")], axis=1
    )
    # Knots are a quarter of the records, so scores between them are interpolated.
    np.testing.assert_allclose(loadings.T @ loadings, slow, atol=2e-3)
    np.testing.assert_allclose((loadings**2).sum(0), 1.0, rtol=1e-9)


def test_nothing_is_joined(synth):
    assert set(synth.transcript_["message"]) == EVERY_RUN | {"MaskedReal", "CopulaLoadings"}


def test_masked_scores_are_not_scores(joint, monkeypatch):
    """The largest correlation of a column that is sent with the true scores is that of chance."""
    frames = {"one": joint[["w", "x"]], "two": joint[["y", "z"]]}
    kept = Transcript(keep_messages=True)
    monkeypatch.setattr(local, "Transcript", lambda: kept)
    GaussianCopulaSynthesizer(random_state=0).fit(frames, transcript=True)
    (sent,) = (m for m in kept.messages if isinstance(m, MaskedReal) and m.sender == "one")
    for column in sent.records[0, :, 1:].numpy().T:
        assert abs(np.corrcoef(column, joint["w"])[0, 1]) < 0.1
