"""Every synthesizer keeps a contract, private or not; what cannot is refused in one place."""

import numpy as np
import pandas as pd
import pytest

from vflsynth import (
    AutoregressiveSynthesizer,
    ColumnContract,
    Contract,
    DPLTSynthesizer,
    GaussianCopulaSynthesizer,
    IndependentSynthesizer,
    LatentTree,
    MixtureSynthesizer,
    PairwiseTables,
    PartyContract,
    VertiGANSynthesizer,
    VFLGANSynthesizer,
    WGANGPSynthesizer,
)
from vflsynth.contract import FixedCombinations
from vflsynth.exceptions import ContractError
from vflsynth.privacy import PublicSchema

pytestmark = pytest.mark.usefixtures("short_searches")

SMALL = {"epochs": 1, "batch_size": 32, "verbose": 0}
PLAIN = [
    IndependentSynthesizer(),
    GaussianCopulaSynthesizer(),
    VFLGANSynthesizer(**SMALL),
    VertiGANSynthesizer(**SMALL),
    WGANGPSynthesizer(**SMALL),
    AutoregressiveSynthesizer(**SMALL),
]
LEVELS = (("low", 1), ("middle", 2), ("high", 3))


def tables(n: int = 96) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    level, start = rng.integers(0, 3, n), rng.integers(0, 50, n)
    husband = rng.random(n) < 0.5
    first = {
        "level": np.array([name for name, _ in LEVELS])[level],
        "code": level + 1,
        "start": start,
        "end": start + rng.integers(0, 40, n),
        "sex": np.where(husband, "Male", "Female"),
        "mail": [f"a{i}@b.org" for i in range(n)],
    }
    second = {"relation": np.where(husband, "Husband", "none"), "net": rng.normal(size=n).round(1)}
    keys = [f"k{i}" for i in range(n)]
    frames = {"first": pd.DataFrame(first, keys), "second": pd.DataFrame(second, keys)}
    frames["second"]["double"] = 2 * frames["second"]["net"]
    return frames


def contract(*, private: bool = False) -> Contract:
    """The same rules; under privacy with what is public."""
    public = {
        "first": {
            "start": ColumnContract(bounds=(0, 50)),
            "end": ColumnContract(bounds=(0, 100)),
            "sex": ColumnContract(categories=("Female", "Male")),
        },
        "second": {
            "relation": ColumnContract(categories=("Husband", "none")),
            "net": ColumnContract(bounds=(-4, 4)),
            "double": ColumnContract(bounds=(-8, 8)),
        },
    }
    columns = public if private else {"first": {}, "second": {}}
    mail = {"mail": ColumnContract(role="identifier", replacement="pseudonym")}
    return Contract(
        {
            "first": PartyContract(
                columns["first"] | mail,
                ["start <= end", FixedCombinations(("level", "code"), LEVELS)],
            ),
            # A private fit takes noise for missing values unless a rule says that there are none.
            "second": PartyContract(columns["second"], ["double == 2 * net", "not missing(net)"]),
        },
        ['relation == "Husband" => sex == "Male"'],
    )


def broken(table: pd.DataFrame) -> int:
    """Rows that break a rule, counted without this package; as in SQL, missing values do not."""
    pairs = set(LEVELS)
    return sum(
        row["start"] > row["end"]
        or (row["level"], row["code"]) not in pairs
        or abs(row["double"] - 2 * row["net"]) > 1e-6
        or (row["relation"] == "Husband" and row["sex"] == "Female")
        for row in table.to_dict("records")
    )


@pytest.mark.parametrize("estimator", PLAIN, ids=lambda e: type(e).__name__)
def test_zero_violations(estimator):
    frames = tables()
    synth = estimator.set_params(contract=contract(), random_state=0).fit(frames)
    table = synth.sample(150)
    assert broken(table) == 0
    assert len(table) == 150
    assert list(table.columns) == [*frames["first"].columns, *frames["second"].columns]
    if isinstance(synth, AutoregressiveSynthesizer):
        completed = synth.complete(frames["second"][["net"]])
        assert broken(completed) == 0
        assert (completed["net"] == frames["second"]["net"]).all()


@pytest.mark.parametrize(
    "estimator",
    [
        DPLTSynthesizer(privacy=LatentTree(epsilon=20, delta=1e-3)),
        MixtureSynthesizer(privacy=PairwiseTables(epsilon=5, delta=1e-3)),
    ],
    ids=lambda e: type(e).__name__,
)
def test_zero_violations_with_privacy(estimator):
    given = estimator.privacy.set_params(public_schema=PublicSchema(dtypes="given"))
    # Of few records noise may leave a column two bins, all starts above all ends: no row is right.
    frames = tables(960)
    synth = estimator.set_params(contract=contract(private=True), random_state=0).fit(frames)
    table = synth.sample(150)
    assert broken(table) == 0
    assert table["net"].notna().all()
    assert given.public_schema == PublicSchema(dtypes="given")  # the parameter stays what it was
    learned = Contract({"first": PartyContract({}, [FixedCombinations(("level", "code"))])})
    with pytest.raises(ContractError, match="state its combinations"):
        estimator.set_params(contract=learned).fit(tables())
