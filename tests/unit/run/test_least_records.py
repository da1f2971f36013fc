"""A model without a guarantee hands out what single records hold if it is fitted on a few."""

import pytest

from vflsynth import AutoregressiveSynthesizer, IndependentSynthesizer
from vflsynth.contract import Contract, contract_from, contract_to_toml
from vflsynth.datasets import make_party_frames
from vflsynth.exceptions import ContractError, TooFewRecordsError

pytestmark = [
    pytest.mark.usefixtures("full_least_records"),
    pytest.mark.filterwarnings("ignore::vflsynth.exceptions.PublishingWarning"),
]
KEY = "record_id"


def few(n, **options):
    return make_party_frames(n, 2, random_state=1, **options)


@pytest.mark.parametrize("n", [1, 5, 49])
def test_few_matched_records_are_refused_before_anything_is_learned(n):
    """However many the parties have: what counts is what they have in common."""
    synth = AutoregressiveSynthesizer(epochs=1, hidden=8, n_features=16, random_state=0)
    said = rf"{n} records are common .* fewer than 50.*least_records in the contract"
    with pytest.raises(TooFewRecordsError, match=said):
        synth.fit(few(n, n_unmatched=200), KEY)
    assert not hasattr(synth, "parties_")


def test_the_number_is_the_contracts():
    IndependentSynthesizer(random_state=0).fit(few(50), KEY)
    IndependentSynthesizer(contract=Contract(least_records=20), random_state=0).fit(few(20), KEY)
    strict = IndependentSynthesizer(contract=Contract(least_records=100), random_state=0)
    with pytest.raises(TooFewRecordsError, match="fewer than 100"):
        strict.fit(few(99), KEY)
    contract = Contract(least_records=7)
    assert contract_from(contract_to_toml(contract)) == contract
    with pytest.raises(ContractError, match="disagree on least_records"):
        Contract.agreed({"a": contract, "b": Contract()})


def test_inspect_says_so_before(tmp_path, cli):
    files = []
    for name, frame in few(30).items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
        files.append(f"{name}={tmp_path / name}.parquet")
    said = cli(["inspect", *files, "--on", KEY]).out
    assert "too few to fit without privacy: fewer than 50" in said
