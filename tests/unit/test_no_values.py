"""No error, warning, log or file holds a value of a record: each fault has a marked one."""

import logging
import warnings

import numpy as np
import pandas as pd
import pytest

from tests.unit.federation.trial import Trial
from vflsynth import (
    ColumnContract,
    Contract,
    DPLTSynthesizer,
    IndependentSynthesizer,
    LatentTree,
    PartyContract,
)
from vflsynth.cli import main
from vflsynth.columns import PublicSchema, TableTransformer
from vflsynth.contract import Determines, FixedCombinations, propose
from vflsynth.evaluation import evaluate, rule_violations
from vflsynth.exceptions import VFLSynthError
from vflsynth.federation.job import Job
from vflsynth.frames import read_table, write_table
from vflsynth.splitdefense import SplitNNClassifier

N = 60
TEXT, NUMBER = "Zq7Secret", 918273645
MARKS = (TEXT, str(NUMBER))
IDS = list(range(N))


def lab(**columns):
    rng = np.random.default_rng(0)
    table = {"id": IDS, "a": rng.normal(size=N), "g": rng.choice(list("xyz"), N)}
    return pd.DataFrame(table | columns)


def clinic(**columns):
    return pd.DataFrame({"id": IDS, "b": np.random.default_rng(1).normal(size=N)} | columns)


def put(usual, marked):
    return [marked if i == 7 else usual for i in IDS]


def mixed(usual, marked):
    return pd.Series(put(usual, marked), dtype=object)


def fit(first, second=None, **parameters):
    synth = IndependentSynthesizer(random_state=0, **parameters)
    return synth.fit({"lab": first, "clinic": clinic() if second is None else second}, on="id")


def ruled(first, *rules, **columns):
    contract = Contract({"lab": PartyContract(columns, rules)})
    return fit(first, contract=contract).sample(20)


def private(first, dtype, bounds):
    schema = PublicSchema(
        bounds={"a": bounds, "b": (-5, 5)},
        categories={"g": ("x", "y", "z")},
        dtypes={"id": "int64", "a": dtype, "g": "str", "b": "float64"},
    )
    synth = DPLTSynthesizer(privacy=LatentTree(epsilon=3, delta=1e-3, public_schema=schema))
    return synth.fit({"lab": first, "clinic": clinic()}, on="id").sample(99).to_csv()


def encode(fitted, table, **options):
    kinds = {"g": "categorical"}
    made = TableTransformer(kinds).fit(fitted.drop(columns="id"))
    return made.transform(table.drop(columns="id"), **options)


def classify(labels):
    frames = {"lab": lab(), "clinic": clinic()}
    SplitNNClassifier(epochs=1, monitor=False).fit(frames, labels, on="id")


def file(folder, text, name="t.csv"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(folder / name, party="lab")


names = [f"{TEXT}{i}" for i in IDS]
FAULTS = {
    "a key twice": lambda _: fit(lab(id=[TEXT, TEXT, *names[2:]]), clinic(id=names)),
    "a number as key twice": lambda _: fit(lab(id=[NUMBER, NUMBER, *IDS[2:]])),
    "no common key": lambda _: fit(lab(id=names), clinic(id=[f"k{i}" for i in IDS])),
    "keys of two types": lambda _: fit(lab(id=mixed(3, TEXT))),
    "a word among numbers": lambda _: fit(
        lab(t=mixed(1.5, TEXT)), column_kinds={"t": "continuous"}
    ),
    "a word among booleans": lambda _: fit(lab(t=put("yes", TEXT)), column_kinds={"t": "boolean"}),
    "no date": lambda _: fit(lab(t=put("2020-01-01", TEXT)), column_kinds={"t": "datetime"}),
    "no order": lambda _: fit(lab(t=mixed(1, TEXT)), column_kinds={"t": "ordered"}),
    "lists": lambda _: fit(lab(t=pd.Series([[TEXT]] * N, dtype=object))),
    "identifiers": lambda _: fit(lab(t=names)),
    "an unseen label": lambda _: encode(lab(), lab(g=put("x", TEXT))),
    "an unseen code": lambda _: encode(lab(g=[1, 2] * 30), lab(g=put(1, NUMBER))),
    "beyond bounds": lambda _: ruled(lab(t=put(0.5, NUMBER)), t=ColumnContract(bounds=(0, 1))),
    "not listed": lambda _: ruled(lab(t=put("u", TEXT)), t=ColumnContract(categories=("u",))),
    "rare combinations": lambda _: ruled(
        lab(t=names), FixedCombinations(("t", "g")), t=ColumnContract(role="ordinary")
    ),
    "a sum of text": lambda _: ruled(lab(t=[TEXT] * N), "t + 1 > a"),
    "text as a number": lambda _: ruled(lab(t=[TEXT] * N, i=IDS), "i == t"),
    "text as a year": lambda _: ruled(lab(t=[TEXT] * N), "year(t) > 3"),
    "a value of another type": lambda _: ruled(
        lab(i=IDS), Determines(("g",), "i", ((("x",), TEXT),))
    ),
    "no class": lambda _: classify(pd.Series([TEXT] * N, index=pd.Index(IDS, name="id"))),
    "labels of others": lambda _: classify(pd.Series([0, 1] * 30, index=names)),
    "a draw like this": lambda _: fit(lab()).complete(pd.DataFrame({"g": [TEXT]})),
    "other types": lambda _: evaluate(lab(t=1.0), lab(t=TEXT)),
    "text and numbers": lambda _: rule_violations(lab(t=TEXT), lab(t=TEXT), ["t > a"]),
    "a line too long": lambda folder: file(folder, f"id,a\n1,2\n3,{TEXT},5,6\n"),
    "a line that is no text": lambda folder: file(folder, f"id,a\n1,{TEXT}é\n".encode("latin-1")),
    "no table": lambda folder: file(folder, TEXT, "t.parquet"),
    "what no file holds": lambda folder: write_table(
        lab(t=pd.Series([{1, TEXT}] * N, dtype=object)), folder / "t.parquet"
    ),
    "no sheet": lambda folder: file(folder, TEXT, "t.xlsx"),
}
SILENT = {
    "not of the type that is stated": lambda _: private(lab(a=put("1", TEXT)), "Int64", (0, 9)),
    "no date where one is stated": lambda _: private(
        lab(a=put("2020-01-01", TEXT)), "datetime64[s]", ("2020-01-01", "2020-12-31")
    ),
    "rare values": lambda _: fit(lab(t=put("u", TEXT), n=put(1.0, NUMBER))).sample(99).to_csv(),
    "unseen values": lambda _: str(encode(lab(), lab(g=put("x", TEXT)), unseen="neutral")),
    "a proposal": lambda _: str(propose({"lab": lab(t=names)}, on="id")),
}


def everything_said(error):
    """What a traceback would print, without lines of code."""
    texts, seen = [], set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        texts.append(str(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)


def clean(*texts):
    for text in texts:
        for mark in MARKS:
            assert mark not in text


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_have_no_value(fault, tmp_path, caplog):
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(VFLSynthError) as caught:
            FAULTS[fault](tmp_path)
    clean(everything_said(caught.value), caplog.text, *(str(each.message) for each in said))


@pytest.mark.parametrize("case", SILENT)
def test_what_goes_well_says_no_value_either(case, tmp_path, caplog):
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        clean(SILENT[case](tmp_path))
    clean(caplog.text, *(str(each.message) for each in said))


def test_the_mark_would_be_seen():
    with pytest.raises(AssertionError):
        clean(everything_said(ValueError(f"could not convert string to float: '{TEXT}'")))


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (lab(t=put("u", TEXT), n=put(1.0, float(NUMBER))), []),
        (lab(t=put("1", TEXT)), ["--kind", "t=continuous"]),
        (lab(id=[*names[:-1], names[0]]), []),
        (lab(t=names), []),
    ],
    ids=["fitted", "a word among numbers", "a key twice", "identifiers"],
)
def test_commands_and_what_they_write(table, options, tmp_path, capsys):
    table.to_csv(tmp_path / "lab.csv", index=False)
    clinic().to_csv(tmp_path / "clinic.csv", index=False)
    files = [f"{name}={tmp_path / name}.csv" for name in ("lab", "clinic")]
    model, method = tmp_path / "out" / "model", "IndependentSynthesizer"
    main(["fit", *files, "--on", "id", "--method", method, "-o", str(model), *options, "--debug"])
    contract = str(tmp_path / "out" / "contract.toml")
    main(["inspect", *files, "--on", "id", "--write-contract", contract])
    said = capsys.readouterr()
    clean(said.out, said.err)
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            clean(path.read_bytes().decode(errors="replace"))


def test_reports_of_a_node(tmp_path):
    """A table that the run finds fault with only once records are matched."""
    table = lab(t=put(None, TEXT)).astype({"t": object})
    table.loc[7, "id"] = N + 3  # the only value is of a record that nobody else has
    table["n"] = put(1.0, float(NUMBER))
    pytest.importorskip("nacl.bindings", reason="needs the extra 'flare'")
    job = Job.from_dict(
        {
            "name": "trial",
            "parties": ["lab", "clinic"],
            "on": "id",
            "method": "IndependentSynthesizer",
            "exchange_timeout": 600.0,
        }
    )
    trial = Trial(tmp_path, {"lab": table, "clinic": clinic()}, job).run()
    assert "EmptyColumnError" in type(trial.outcome["lab"]).__name__
    clean(*(everything_said(error) for error in trial.outcome.values()))
    written = [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".parquet"]
    assert len(written) >= 3
    clean(*(path.read_bytes().decode(errors="replace") for path in written))
