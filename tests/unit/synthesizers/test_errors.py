"""Every way in which a fit can be refused: the named error, with party, column and fix."""

import numpy as np
import pandas as pd
import pytest

from vflsynth import (
    DPSGD,
    MixtureSynthesizer,
    PairwiseTables,
    TableTransformer,
    VFLGANSynthesizer,
    exceptions,
)
from vflsynth.exceptions import ParameterError, PartyDataError, VFLSynthError
from vflsynth.privacy import PrivacyAccount, PublicSchema

N = 50


def lab(**columns):
    return pd.DataFrame({"id": range(N), "glucose": np.linspace(4, 9, N)} | columns)


def clinic(**columns):
    return pd.DataFrame({"id": range(N), "age": np.arange(N) % 40} | columns)


def fit(frames, on="id", **parameters):
    fast = {"epochs": 1, "batch_size": 16, "generator_hidden": (8,), "first_part": (8,)}
    return VFLGANSynthesizer(
        **{"device": "cpu", "random_state": 0, "verbose": 0} | fast | parameters
    ).fit(frames, on)


NAMES = [f"name {i}" for i in range(N)]
TABLES = {
    "duplicate keys": (
        lambda: {"lab": lab(id=[0, *range(N - 1)]), "clinic": clinic()},
        "DuplicateKeyError",
        ("lab", "id"),
    ),
    "missing keys": (
        lambda: {"lab": lab(), "clinic": clinic(id=[None, *range(N - 1)])},
        "MissingKeyError",
        ("clinic", "id"),
    ),
    "no key column": (
        lambda: {"lab": lab(), "clinic": clinic().drop(columns="id")},
        "MissingKeyError",
        ("clinic", "id"),
    ),
    "keys of different types": (
        lambda: {"lab": lab(), "clinic": clinic(id=[str(i) for i in range(N)])},
        "KeyTypeError",
        ("clinic", "id"),
    ),
    "a column of two parties": (
        lambda: {"lab": lab(), "clinic": clinic(glucose=1.5)},
        "SharedColumnError",
        ("clinic", "glucose"),
    ),
    "no overlap": (
        lambda: {"lab": lab(), "clinic": clinic(id=range(1000, 1000 + N))},
        "NoOverlapError",
        (None, "id"),
    ),
    "too few records": (
        lambda: {"lab": lab(), "clinic": clinic(id=range(N - 9, 2 * N - 9))},
        "TooFewRecordsError",
        (None, None),
    ),
    "an empty column": (
        lambda: {"lab": lab(insulin=[None] * N), "clinic": clinic()},
        "EmptyColumnError",
        ("lab", "insulin"),
    ),
    "empty where matched": (
        lambda: {
            "lab": lab(insulin=[1.0] * 10 + [None] * (N - 10)),
            "clinic": clinic().iloc[10:],
        },
        "EmptyColumnError",
        ("lab", "insulin"),
    ),
    "infinity": (
        lambda: {"lab": lab(), "clinic": clinic(dose=[np.inf, *range(N - 1)])},
        "InfiniteValueError",
        ("clinic", "dose"),
    ),
    "no columns": (
        lambda: {"lab": lab(), "clinic": clinic()[["id"]]},
        "NoColumnsError",
        ("clinic", None),
    ),
    "a column alone": (
        lambda: {"lab": lab(), "clinic": clinic()["age"]},
        "PartyDataError",
        ("clinic", None),
    ),
    "a dtype without a kind": (
        lambda: {"lab": lab(z=np.arange(N) * 1j), "clinic": clinic()},
        "ColumnKindError",
        ("lab", "z"),
    ),
}


@pytest.mark.parametrize("case", list(TABLES))
def test_tables(case):
    make, error, (party, column) = TABLES[case]
    with pytest.raises(getattr(exceptions, error)) as caught:
        fit(make())
    assert type(caught.value).__name__ == error
    assert isinstance(caught.value, PartyDataError)
    assert (caught.value.party, caught.value.column) == (party, column)
    message = str(caught.value)
    for named in (party, column):
        assert named is None or repr(named) in message
    assert f"Fix: {caught.value.fix.rstrip('.')}." in message
    assert len(caught.value.fix) > 10


def test_rows_are_named_by_their_place_in_the_party_s_table():
    frame = clinic(dose=[*range(N - 1), np.inf]).iloc[::-1]
    with pytest.raises(exceptions.InfiniteValueError, match=r"in rows 2\)") as caught:
        fit({"lab": lab(), "clinic": pd.concat([clinic(dose=1.0, id=[N, N + 1] * 25)[:2], frame])})
    assert caught.value.rows == (2,)


def test_cardinality():
    words = pd.DataFrame({"word": [f"word {i}" for i in range(400)]})
    with pytest.raises(exceptions.CardinalityError, match=r"party 'lab', column 'word': 400") as e:
        TableTransformer({"word": "categorical"}).fit(words, party="lab")
    assert e.value.column == "word"


def test_unknown_column_and_unknown_kind():
    frames = {"lab": lab(), "clinic": clinic()}
    with pytest.raises(exceptions.ColumnKindError, match=r"column 'agee': .*no such column"):
        fit(frames, column_kinds={"agee": "integer"})
    with pytest.raises(exceptions.ColumnKindError, match=r"party 'clinic', column 'age': .*'int'"):
        fit(frames, column_kinds={"age": "int"})
    with pytest.raises(exceptions.ColumnKindError, match="column 'id'"):
        fit(frames, column_kinds={"id": "integer"})


def test_what_is_public_of_no_column_is_a_slip_and_costs_nothing(tmp_path):
    """A misspelt name would leave the column to bounds that are bought with noise."""
    account = PrivacyAccount.create(tmp_path / "account.json")
    for said in ({"bounds": {"agee": (0, 90)}}, {"categories": {"agee": ("a", "b")}}):
        given = PublicSchema(**said, dtypes="given")
        privacy = PairwiseTables(epsilon=1.0, delta=1e-3, public_schema=given)
        model = MixtureSynthesizer(privacy=privacy, random_state=0)
        with pytest.raises(exceptions.ColumnKindError, match=r"column 'agee'.*mean 'age'"):
            model.fit({"lab": lab(), "clinic": clinic()}, "id", account=account)
    assert not account.attempts


def test_kinds_may_come_with_the_transformer():
    synth = fit(
        {"lab": lab(), "clinic": clinic()},
        transformer=TableTransformer({"age": "categorical", "glucose": "continuous"}),
        column_kinds={"age": "continuous"},
    )
    assert synth.parties_["clinic"].transformer.kinds_ == {"age": "continuous"}


def test_memory_limit_holds_with_a_mechanism_too():
    given = PublicSchema(dtypes="given")
    privacy = DPSGD(noise_multiplier=5.0, delta=1e-3, public_schema=given, n_records=50)
    model = VFLGANSynthesizer(privacy=privacy, memory_limit=1000, device="cpu", verbose=0)
    with pytest.raises(exceptions.MemoryLimitError, match=r"memory_limit|rare values"):
        model.fit({"lab": lab(), "clinic": clinic()}, "id")


def test_memory_limit_names_the_widest_column():
    frames = {"lab": lab(name=NAMES), "clinic": clinic()}
    with pytest.raises(exceptions.MemoryLimitError, match="50 distinct values") as caught:
        fit(
            frames,
            memory_limit=1000,
            column_kinds={"name": "categorical"},
            transformer=TableTransformer(rare_threshold=0.0, rare_records=0),
        )
    assert (caught.value.party, caught.value.column) == ("lab", "name")
    assert "rare_threshold" in caught.value.fix
    with pytest.raises(exceptions.MemoryLimitError, match="memory_limit"):
        fit({"lab": lab(), "clinic": clinic()}, memory_limit=1000)


PARAMETERS = {
    "latent_dim": (0, 2.5, "4"),
    "generator_hidden": ((), (0,), 8, "8"),
    "first_part": ((), 8),
    "shared_hidden": (8, (-1,)),
    "private_heads": (1, None),
    "shared_weights": (1.0, (1.0,), (0.0, 1.0), (1.0, -1.0)),
    "bias": (0, "yes"),
    "batch_norm_eps": (0, -1, "0.8"),
    "gumbel_temperature": (0, None),
    "generator": ("tree",),
    "gradient_penalty": ("both",),
    "gradient_penalty_weight": (-1, np.nan),
    "discriminator_steps": (0, 1.0),
    "batch_size": (1, 0, 16.0),
    "epochs": (0, -3, 1.5),
    "learning_rate": (0, -1e-3, np.inf),
    "betas": ((0.5,), (0.5, 1.0), 0.5),
    "generator_average": (1, -0.1),
    "model_selection": ("first", None),
    "evaluate_every": (0, 1.5),
    "calibrate_marginals": ("yes", None),
    "residuals": ("yes", 1),
    "calibrate_relations": ("yes", 1),
    "resample": (0, 65, 1.5),
    "memory_limit": (0, "1GB"),
    "verbose": (-1, None),
    "privacy": ("yes", 10.0, "pairwise_tables, epsilo=3"),
    "structure": ("fast", None),
    "random_state": ("zero", 1.5),
    "device": ("gpu", "cuda:99", 3.5),
}


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_parameters(name):
    for value in PARAMETERS[name]:
        with pytest.raises(ParameterError, match=name) as caught:
            fit({"lab": lab(), "clinic": clinic()}, **{name: value})
        assert repr(value) in str(caught.value)


def test_every_parameter_has_a_rule_or_a_check():
    unchecked = set(VFLGANSynthesizer().get_params()) - set(PARAMETERS)
    assert unchecked <= {
        "column_kinds",
        "contract",
        "transformer",
        "privacy",
        "steps_per_exchange",
        "wire_precision",
    }  # checked by their owners


def test_checkpoint_every():
    with pytest.raises(ParameterError, match="checkpoint_every must be a whole number ≥ 1, got 0"):
        VFLGANSynthesizer(verbose=0).fit({"lab": lab()}, "id", checkpoint_every=0)


def test_column_kinds_and_transformer_of_the_wrong_type():
    for wrong in ({"column_kinds": ["age"]}, {"transformer": "quantile"}):
        with pytest.raises(VFLSynthError, match=next(iter(wrong))):
            fit({"lab": lab(), "clinic": clinic()}, **wrong)


def test_errors_are_value_errors_too():
    """What a scikit-learn user catches."""
    with pytest.raises(ValueError, match="lab"):
        fit({"lab": lab(insulin=[None] * N)})


def test_nothing_is_wrong_with_these_tables():
    assert len(fit({"lab": lab(), "clinic": clinic()}).sample(3)) == 3
