"""Parts of a sample belong together, and say so."""

import pandas as pd
import pytest

from vflsynth.cli import main
from vflsynth.exceptions import MisalignedError, SharedColumnError
from vflsynth.federation.job import Job
from vflsynth.federation.sampling import draw_part, join_parts
from vflsynth.federation.site import Site


@pytest.fixture
def trained(make_trial):
    return make_trial().run()


def test_parts_are_rows_of_the_same_records(trained, tmp_path):
    parts = {
        name: draw_part(trained.job, site, 50, "one", keys=name == "party_1")
        for name, site in trained.sites.items()
    }
    table = join_parts(parts)
    assert len(table) == 50
    assert table["record_id"].is_unique
    again = draw_part(trained.job, trained.sites["party_2"], 50, "one")
    pd.testing.assert_frame_equal(again, parts["party_2"])
    other = draw_part(trained.job, trained.sites["party_2"], 50, "two")
    assert not other.equals(again)


def test_parts_of_different_samples_are_refused(trained):
    one = draw_part(trained.job, trained.sites["party_1"], 50, "one")
    for n, request in [(50, "two"), (51, "one")]:
        other = draw_part(trained.job, trained.sites["party_2"], n, request)
        with pytest.raises(MisalignedError, match="not parts of one sample"):
            join_parts({"a": one, "b": other})
    with pytest.raises(MisalignedError):
        join_parts({"a": pd.DataFrame({"x": [1]})})


def test_keys_twice_are_refused(trained):
    parts = {n: draw_part(trained.job, s, 5, "one", keys=True) for n, s in trained.sites.items()}
    with pytest.raises(SharedColumnError, match="record_id"):
        join_parts(parts)


def test_site_files_are_read_as_they_were_written(trained, tmp_path):
    for site in trained.sites.values():
        site.write(tmp_path / "site.toml")
        assert (tmp_path / "site.toml").stat().st_mode & 0o77 == 0
        assert Site.read(tmp_path / "site.toml") == site


def test_the_commands_sample_and_join(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    job = trained.job
    (tmp_path / "job.toml").write_text(
        f'name = "{job.name}"\nparties = ["party_1", "party_2"]\non = "record_id"\n'
    )
    assert Job.from_dict({"name": "trial", "parties": ["a"]}).digest != job.digest
    for name, site in trained.sites.items():
        site.write(tmp_path / f"{name}.toml")
        code = main(
            [
                "parties",
                "sample",
                "job.toml",
                f"{name}.toml",
                "-n",
                "7",
                "--request",
                "one",
                "-o",
                f"{name}-part.parquet",
            ]
        )
        assert code == 0
    parts = ["party_1-part.parquet", "party_2-part.parquet"]
    assert main(["parties", "join", *parts, "-o", "all.parquet"]) == 0
    assert len(pd.read_parquet("all.parquet")) == 7
    assert "all.parquet: 7 rows" in capsys.readouterr().out
