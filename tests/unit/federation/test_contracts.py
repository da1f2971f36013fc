"""Contracts between processes: agreed by name, kept by every half, and the bytes of one process."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.later import later
from tests.structured import make_structured_frames
from tests.unit.federation.trial import Trial, assert_same
from vflsynth import (
    AutoregressiveSynthesizer,
    ColumnContract,
    Contract,
    IndependentSynthesizer,
    PartyContract,
)
from vflsynth._random import derive, secret_from
from vflsynth.cli import main
from vflsynth.contract import FixedCombinations, contract_to_toml, write_contract
from vflsynth.exceptions import (
    ColumnMismatchError,
    ContractError,
    MisalignedError,
    ParameterError,
    RuleError,
    SharedColumnError,
)
from vflsynth.federation.contracts import check_agreement
from vflsynth.federation.job import Job
from vflsynth.federation.joining import join_parts
from vflsynth.federation.party_node import PartyNode
from vflsynth.federation.sampling import draw_part
from vflsynth.federation.site import Budget
from vflsynth.methods.gan import resampling
from vflsynth.privacy import PublicSchema

pytestmark = pytest.mark.usefixtures("short_searches")

N = 120
HUSBAND = 'relation == "Husband" => sex == "Male"'
PARTS = {
    "lab": PartyContract(
        {
            "mail": ColumnContract(role="identifier", replacement="surrogate"),
            "low": ColumnContract(bounds=(0, 60)),
        },
        ["low <= high", FixedCombinations(("grade", "score")), "low + high < 60"],
    ),
    "clinic": PartyContract(
        {"pay": ColumnContract(decimals=1)},
        ["double == 2 * total", "double < 50"],  # what a shared rule computes is settled later
    ),
}
SHARED = Contract(rules=[HUSBAND, "total == low + tax"])
WHOLE = replace(SHARED, parties=PARTS)


def tables() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    level, low, tax = rng.integers(0, 3, N), rng.integers(0, 30, N), rng.integers(0, 9, N)
    husband = rng.random(N) < 0.5
    lab = {
        "id": np.arange(N),
        "mail": [f"user{i}@mail.com" for i in range(N)],
        "grade": np.array(["mild", "fair", "bad"])[level],
        "score": level + 1,
        "low": low,
        "high": low + rng.integers(0, 20, N),
        "sex": np.where(husband, "Male", "Female"),
    }
    clinic = {
        "id": np.arange(N),
        "relation": np.where(husband, "Husband", "none"),
        "tax": tax,
        "total": low + tax,
        "double": 2 * (low + tax),
        "pay": rng.exponential(9, N),
    }
    third = {"id": np.arange(N), "other": rng.normal(size=N)}
    return {k: pd.DataFrame(v) for k, v in {"lab": lab, "clinic": clinic, "third": third}.items()}


def broken(table: pd.DataFrame) -> int:
    """Rows that break a rule, counted without this package."""
    pairs = {("mild", 1), ("fair", 2), ("bad", 3)}
    return sum(
        row["low"] > row["high"]
        or (row["grade"], row["score"]) not in pairs
        or row["low"] + row["high"] >= 60
        or row["total"] != row["low"] + row["tax"]
        or row["double"] != 2 * row["total"]
        or row["double"] >= 50
        or (row["relation"] == "Husband" and row["sex"] != "Male")
        for row in table.to_dict("records")
    )


def make(folder, *, parts=PARTS, shared=SHARED, method="IndependentSynthesizer", **parameters):
    frames = tables()
    job = Job.from_dict(
        {
            "name": "trial",
            "parties": list(frames),
            "on": "id",
            "method": method,
            "parameters": parameters,
            "contract": contract_to_toml(shared),
            "exchange_timeout": 600.0,
            "setup_timeout": 600.0,
        }
    )
    folder.mkdir(exist_ok=True)
    trial = Trial(folder, frames, job, secret_from(0))
    for name, part in parts.items():
        write_contract(Contract({name: part}), folder / f"{name}.toml", "what it says of itself")
        text = (folder / f"{name}.toml").read_text()
        (folder / f"{name}.toml").write_text(text.replace("rare_records = 5\n", ""))
        trial.change(name, contract=folder / f"{name}.toml")
    return trial


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return make(tmp_path_factory.mktemp("trial")).finish()


@pytest.fixture(scope="module")
def whole():
    return IndependentSynthesizer(contract=WHOLE, random_state=0).fit(tables(), on="id")


def test_parts_join_to_the_rows_of_a_fit_in_one_process(trained, whole):
    table, cost = join_parts(trained.parts(300, keys="lab", drawn=1500))
    assert broken(table) == 0
    secret = derive(bytes(range(32)), "sample|trial|one")
    expected = whole.draw_rows(300, secret)
    expected["lab"] = whole.parties_["lab"].add_keys(expected["lab"])
    pd.testing.assert_frame_equal(table, pd.concat(list(expected.values()), axis=1))
    assert 300 <= cost.n_accepted < cost.n_drawn
    assert whole.rule_cost().acceptance == pytest.approx(cost.acceptance, abs=0.1)
    assert not set(table["mail"]) & set(trained.frames["lab"]["mail"])
    frames = {n: t.drop(columns="mail", errors="ignore") for n, t in tables().items()}
    loose = IndependentSynthesizer(random_state=0).fit(frames, on="id")
    assert broken(loose.sample(300)) > 250  # the check can fail


def test_how_many_rows_are_drawn_changes_no_row(trained):
    some, _ = join_parts(trained.parts(50, keys="lab", drawn=600))
    uneven = trained.parts(50, keys="lab", drawn=600) | {
        "third": draw_part(trained.job, trained.sites["third"], 50, "one", drawn=2000)
    }
    pd.testing.assert_frame_equal(join_parts(uneven)[0], some)
    with pytest.raises(RuleError, match=r"drawn rows keep all rules.*--drawn \d+"):
        join_parts(trained.parts(50, keys="lab", drawn=50))


def test_halves_say_what_their_rows_need(trained):
    with pytest.raises(RuleError, match="rules of other parties are left out"):
        trained.half("third").sample(3)
    parts = trained.parts(40, keys="lab", drawn=600)
    with pytest.raises(ColumnMismatchError, match="join the parts of all parties"):
        join_parts({"lab": parts["lab"], "third": parts["third"]})
    again = draw_part(trained.job, trained.sites["clinic"], 40, "one", keys=True, drawn=600)
    with pytest.raises(SharedColumnError, match="column of keys"):
        join_parts(parts | {"clinic": again})
    cut = parts["lab"].head(5)
    with pytest.raises(MisalignedError, match="cannot be read, or is of another table"):
        join_parts(parts | {"lab": cut})
    said = parts["lab"].attrs["vflsynth rules"]
    for wrong in (
        {"n": 40},
        said | {"n": 41},
        said | {"n_drawn": 10**15},
        said | {"rows": "no rows"},
        said | {"rules": "[3]"},
        said | {"rules": '{"tuple": [{"object": "vflsynth.contract.contract.Contract"}]}'},
    ):
        cut = parts["lab"].copy()
        cut.attrs["vflsynth rules"] = wrong
        with pytest.raises(MisalignedError, match="cannot be read, or is of another table"):
            join_parts(parts | {"lab": cut})


def test_the_commands_sample_and_join(trained, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared.toml").write_text(trained.job.contract)
    (tmp_path / "job.toml").write_text(
        'name = "trial"\nparties = ["lab", "clinic", "third"]\non = "id"\n'
        'method = "IndependentSynthesizer"\ncontract = "shared.toml"\n'
        "exchange_timeout = 600.0\nsetup_timeout = 600.0\n"
    )
    assert Job.read(tmp_path / "job.toml").digest == trained.job.digest
    for name, site in trained.sites.items():
        site.write(tmp_path / f"{name}.toml")
        command = ["parties", "sample", "job.toml", f"{name}.toml", "-n", "70", "--request", "one"]
        assert main([*command, "--drawn", "600", "-o", f"{name}.parquet"]) == 0
        assert "would be lost" in cli([*command, "-o", str(site.table)], 2).err
    files = [f"{name}.parquet" for name in trained.sites]
    assert "would be lost" in cli(["parties", "join", *files, "-o", files[0]], 2).err
    assert "all.parquet: 70 rows" in cli(["parties", "join", *files, "-o", "all.parquet"]).out
    table = pd.read_parquet("all.parquet")
    assert len(table) == 70
    assert broken(table) == 0
    said = cli(["parties", "approve", "job.toml", "lab.toml", "--show"]).out
    assert 'relation == "Husband" => sex' in said


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("AutoregressiveSynthesizer", {"epochs": 1, "hidden": 8, "n_features": 16}),
        *later(
            (
                "VFLGANSynthesizer",
                {"epochs": 1, "batch_size": 32, "generator_hidden": [8], "resample": 3},
            ),
        ),
    ],
)
def test_other_methods_too(tmp_path, monkeypatch, method, parameters):
    monkeypatch.setattr(resampling, "_MOST_STEPS", 100)
    trial = make(tmp_path / "trial", method=method, **parameters).finish()
    synth = trial.estimator(contract=WHOLE).fit(trial.frames, "id")
    passed = tmp_path / "passed"
    parts = {
        name: draw_part(trial.job, trial.sites[name], 30, "one", passed=passed, drawn=600)
        for name in sorted(trial.sites)
    }
    parts = {name: parts[name] for name in trial.sites}
    secret = derive(bytes(range(32)), "sample|trial|one")
    expected = pd.concat(list(synth.draw_rows(30, secret).values()), axis=1)
    pd.testing.assert_frame_equal(join_parts(parts)[0], expected)
    assert broken(expected) == 0


@pytest.mark.parametrize(("structure", "n_steps"), [("exact", 8), *later(("ignore", 0))])
def test_what_is_exact_is_kept_across_processes_too(tmp_path, structure, n_steps):
    frames = make_structured_frames(200, random_state=0)
    said = {"name": "trial", "parties": list(frames), "on": "record_id"}
    job = {**said, "method": "IndependentSynthesizer", "parameters": {"structure": structure}}
    trial = Trial(tmp_path, frames, Job.from_dict(job), secret_from(0)).finish()
    synth = IndependentSynthesizer(structure=structure, random_state=0)
    assert_same(trial, synth.fit(frames, on="record_id"))
    preparation = trial.half("insurer").preparation
    assert len(() if preparation is None else preparation.steps) == n_steps


def test_copies_are_kept_across_processes_by_the_method_that_learns_them(tmp_path):
    rng = np.random.default_rng(0)
    bill = rng.integers(1, 10_000, 500)
    paid = np.where(rng.random(500) < 0.4, bill, rng.integers(1, 9_000, 500))
    frames = {"shop": {"bill": bill, "paid": paid}, "club": {"visits": rng.integers(0, 90, 500)}}
    frames = {name: pd.DataFrame({"id": np.arange(500), **own}) for name, own in frames.items()}
    parameters = {"epochs": 2, "hidden": 8, "n_features": 16}
    said = {"name": "trial", "parties": ["club", "shop"], "on": "id", "parameters": parameters}
    job = Job.from_dict({**said, "method": "AutoregressiveSynthesizer"})
    trial = Trial(tmp_path, frames, job, secret_from(0)).finish()
    synth = AutoregressiveSynthesizer(**parameters, random_state=0, verbose=0)
    assert_same(trial, synth.fit(frames, on="id"))
    (step,) = trial.half("shop").preparation.steps
    assert (step.column, step.by) == ("paid", ("bill",))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the dropped records of insurer differ")
def test_what_unmatched_records_alone_have_is_no_part_of_it(tmp_path):
    """A site learns what is exact before it matches, to refuse early, and again once it has."""
    frames = make_structured_frames(300, random_state=0)
    lost = frames["insurer"].head(30).assign(points=99, grade="trial", **{"class": "of nobody"})
    lost["record_id"] = np.arange(30) + 9_000_000
    mixed = pd.concat([lost, frames["insurer"]], ignore_index=True)
    job = {
        "name": "trial",
        "parties": list(frames),
        "on": "record_id",
        "method": "IndependentSynthesizer",
    }
    frames = {**frames, "insurer": mixed}
    trial = Trial(tmp_path, frames, Job.from_dict(job), secret_from(0)).finish()
    assert_same(trial, IndependentSynthesizer(random_state=0).fit(frames, on="record_id"))
    (half,) = (trial.kept("insurer") / "half").glob("party.json")
    assert "class" in half.read_text()
    assert not {word for word in ("trial", "of nobody") if word in half.read_text()}


# -- agreement -------------------------------------------------------------------------------------


def refused(trial):
    """Run, and return the errors; nothing about records may have left anybody."""
    trial.run()
    for node in trial.nodes.values():
        assert "BlindedKeys" not in set(node.transcript.to_frame()["message"])
    return {name: str(error) for name, error in trial.outcome.items()}


def test_parties_that_disagree_about_one_of_them_end_the_run_by_name(tmp_path):
    trial = make(tmp_path / "trial")
    other = PartyContract(PARTS["clinic"].columns, ["double < 51"])
    said = Contract({"lab": PARTS["lab"], "clinic": other})
    write_contract(said, tmp_path / "trial" / "lab.toml")
    errors = refused(trial)
    for text in errors.values():
        assert "'lab' and 'clinic' disagree on what the contract says of party 'clinic'" in text
        assert "51" not in text
    same = Contract({"lab": PARTS["lab"], "clinic": PARTS["clinic"]})
    write_contract(same, tmp_path / "trial" / "lab.toml")
    again = make(tmp_path / "again")
    again.change("lab", contract=tmp_path / "trial" / "lab.toml")
    again.finish()


def test_a_shared_rule_about_a_column_that_nobody_has_ends_the_run(tmp_path):
    trial = make(tmp_path / "trial", shared=Contract(rules=['nobody > 3 => sex == "Male"']))
    for text in refused(trial).values():
        assert "names column 'nobody', which no party has" in text


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (Contract({"lab": PARTS["lab"]}, rare_records=7), "disagree on rare_records of all"),
        (Contract({"lab": PARTS["lab"]}, ["low > 3"]), "disagree on rules of all"),
        (Contract({"somebody": PARTS["lab"]}), "speaks of party 'somebody'"),
        (
            Contract({"lab": PartyContract({"lost": ColumnContract()})}),
            "'lab': the contract speaks of column 'lost', and there is none",
        ),
        (
            Contract({"lab": PartyContract({"sex": ColumnContract(role="identifier")})}),
            "names column 'sex', which is not modelled",
        ),
        (
            Contract({"lab": PartyContract({}, ["total < 3"])}),
            "names column 'total', which is not there",
        ),
        (
            Contract({"lab": PartyContract({}, ["low == high", "high == low"])}),
            "compute columns from each other",
        ),
    ],
)
def test_what_a_site_can_see_itself_it_refuses_at_once(tmp_path, said, match):
    trial = make(tmp_path / "trial")
    write_contract(said, tmp_path / "trial" / "lab.toml")
    with pytest.raises(ContractError, match=match):
        PartyNode(trial.job, trial.sites["lab"])


def test_jobs_hold_no_part_of_a_party_and_classifiers_no_contract():
    content = {"name": "trial", "parties": ["lab"]}
    with pytest.raises(ParameterError, match=r"speaks of lab.*contract = \"FILE\""):
        Job.from_dict(content | {"contract": contract_to_toml(WHOLE)})
    with pytest.raises(ParameterError, match=r"job: contract: unknown 'rule'.*mean 'rules'"):
        Job.from_dict(content | {"contract": {"rule": ["a < b"]}})
    job = Job.from_dict(content | {"contract": {"rules": ["a < b"]}, "method": "SplitNNClassifier"})
    with pytest.raises(ParameterError, match="a contract is about synthetic rows"):
        job.method_for_node()


def test_what_is_no_digest_is_refused():
    told = {"own": "0" * 32, "said": {}, "columns": [], "selects": False}
    assert not check_agreement({"lab": told}, Contract())
    for wrong in (None, [], {}, told | {"selects": 1}, told | {"said": {"a": 3}}):
        with pytest.raises(Exception, match="tells something else than digests"):
            check_agreement({"lab": wrong}, Contract())


# -- under privacy ---------------------------------------------------------------------------------

LEVELS = (("mild", 1), ("fair", 2), ("bad", 3))
PUBLIC = {
    "lab": PartyContract(
        {
            "mail": ColumnContract(role="identifier", replacement="pseudonym"),
            "low": ColumnContract(bounds=(0, 30)),
            "high": ColumnContract(bounds=(0, 50)),
            "sex": ColumnContract(categories=("Female", "Male")),
        },
        ["low <= high", FixedCombinations(("grade", "score"), LEVELS)],
    ),
    "clinic": PartyContract({"relation": ColumnContract(categories=("Husband", "none"))}),
}
PRIVATE = {"mechanism": "latent_tree", "epsilon": 3.0, "delta": 1e-3, "n_bins": 8}


def private_trial(folder, parts):
    trial = make(
        folder,
        parts=parts,
        shared=Contract(rules=[HUSBAND]),
        method="DPLTSynthesizer",
        privacy=PRIVATE,
    )
    drop = {"clinic": ["tax", "total", "double", "pay"], "third": []}
    for name, site in trial.sites.items():
        pd.read_parquet(site.table).drop(columns=drop.get(name, [])).to_parquet(site.table)
        trial.change(name, budget=Budget(100.0, 1e-3))
    trial.change("third", schema=PublicSchema({"other": (-4, 4)}))
    return trial


def test_a_private_run_takes_what_is_public_from_the_contract(tmp_path):
    trial = private_trial(tmp_path / "trial", PUBLIC).finish()
    table, _ = join_parts(trial.parts(80, keys="lab", drawn=800))
    assert (table["low"] <= table["high"]).all()
    assert set(table[["grade", "score"]].itertuples(index=False, name=None)) <= set(LEVELS)
    assert ((table["relation"] != "Husband") | (table["sex"] == "Male")).all()
    assert table["low"].between(0, 30).all()
    assert table["mail"].str.fullmatch("[0-9a-f]{16}").all()


def test_a_private_run_learns_nothing_for_a_contract(tmp_path):
    trial = private_trial(tmp_path / "trial", PUBLIC | {"lab": PARTS["lab"]})
    with pytest.raises(ContractError, match="state its combinations"):
        PartyNode(trial.job, trial.sites["lab"])
