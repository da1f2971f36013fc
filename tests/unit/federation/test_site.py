"""Site files: they are read as they were written, and their mistakes are named."""

import math
from dataclasses import replace

import pytest

from tests.unit.federation.conftest import SITE_TEXT
from vflsynth.exceptions import ParameterError
from vflsynth.federation.site import Bounds, Budget, Site, Telling
from vflsynth.privacy import PublicSchema

PUBLIC = PublicSchema({"age": [0, 120]}, {"smoker": ["no", "yes"]}, {"age": "Int64"})


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"jobs": "approved"},
        {"jobs": "signed", "proposers": {"ann": "ab" * 32}},
        {"bounds": Bounds(most_rows=500)},
        {"telling": Telling(12.5, 90)},
        {"telling": Telling(math.inf)},
        {"budget": Budget(3.0, 1e-3), "schema": PUBLIC},
    ],
)
def test_a_site_file_is_read_as_it_was_written(make_trial, tmp_path, said):
    site, path = replace(make_trial().sites["party_1"], **said), tmp_path / "site.toml"
    site.write(path)
    assert path.stat().st_mode & 0o77 == 0
    assert Site.read(path) == site


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('jobs = "some"', "jobs must be 'any' or 'approved'"),
        ('jobs = "signed"', "needs the public keys"),
        ('[proposers]\nann = "ab"', "64 hexadecimal digits"),
        ("[matching]\nmost_rows = 0", "most_rows must be a whole number ≥ 1"),
        ('[telling]\nbits = "many"', "telling.bits must be"),
        ("[telling]\nbits = -1", "telling.bits must be"),
        ("[telling]\ndays = 0", "telling.days must be"),
        ("[telling]\nbit = 3", "telling: unknown 'bit'"),
        ("[privacy]\nepsilon = 1", "privacy: a budget needs both"),
        ("[privacy]\nepsilon = -1\ndelta = 0.1", "privacy"),
        ("[privacy]\neps = 1", "privacy: unknown 'eps'"),
    ],
)
def test_a_mistake_in_a_site_file_is_named(tmp_path, text, words):
    (tmp_path / "site.toml").write_text(f"{SITE_TEXT}{text}\n")
    with pytest.raises(ParameterError, match=words):
        Site.read(tmp_path / "site.toml")
