"""Keys of two systems: their columns' names, how they are written, and who is lost."""

import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from vflsynth import IndependentSynthesizer, MatchOn
from vflsynth.codec import from_json, to_json
from vflsynth.exceptions import (
    DuplicateKeyError,
    KeyTypeError,
    MissingKeyError,
    ParameterError,
    PublishingWarning,
    SharedColumnError,
)
from vflsynth.frames import align_party_frames
from vflsynth.frames.keys import in_form, warn_of_keys
from vflsynth.frames.party_frames import check_party_frames


@pytest.mark.parametrize(
    ("form", "key", "written"),
    [
        ("nfc", "Mu\u0308ller", "Müller"),
        ("strip", " a\u200bb\u00a0\ufeff", "ab"),
        ("casefold", "STRASSE Ä", "strasse ä"),
        ("casefold", "straße ä", "strasse ä"),
        ("digits", "007", "7"),
        ("digits", "000", "0"),
        ("digits", "A007", "A007"),
        ("digits", 7, "7"),
        ("strip", 7, 7),
        ("", " a ", " a "),
        ("nfc strip casefold digits", " MU\u0308LLER ", "müller"),
    ],
)
def test_every_word_of_a_form_does_one_thing(form, key, written):
    found = in_form(pd.Index([key, key]), form)
    assert found.tolist() == [written] * 2
    assert in_form(found, form).tolist() == found.tolist()  # once is enough


@pytest.mark.parametrize("dtype", ["category", "object", "Int64", pd.ArrowDtype(pa.int32())])
def test_whole_numbers_of_any_type_are_text_without_zeros(dtype):
    assert in_form(pd.Index(pd.Series([7, 0], dtype=dtype)), "digits").tolist() == ["7", "0"]


def test_a_key_of_characters_without_width_names_nobody():
    frame = pd.DataFrame({"id": ["\u200b", " ", "b"], "x": 1.0})
    with pytest.raises(MissingKeyError, match=r"2 of 3 keys .* \[0, 1\]"):
        check_party_frames({"a": frame}, "id")


def test_a_form_of_other_words_is_refused():
    with pytest.raises(ParameterError, match="'trim'"):
        MatchOn("id", form="nfc trim")
    on = MatchOn({"lab": "id", "clinic": 7}, form="nfc")
    assert from_json(to_json(on)) == on


def parties(n=200):
    """A quarter of the keys has an accent, which the second party writes in three other ways."""
    rng = np.random.default_rng(0)
    accent = np.arange(n) % 4 == 0
    names = [f"Müller-{i:03d}" if odd else f"Smith-{i:03d}" for i, odd in enumerate(accent)]
    ways = [lambda k: unicodedata.normalize("NFD", k), lambda k: k + " ", str.upper]
    other = [ways[i % 3](k) if odd else k for i, (k, odd) in enumerate(zip(names, accent))]
    group = np.where(accent, "umlaut", "plain")
    lab = pd.DataFrame({"key": names, "age": rng.normal(40, 9, n), "group": group})
    clinic = pd.DataFrame({"no": other, "cost": rng.normal(size=n) + 2.0 * accent})
    return {"lab": lab, "clinic": clinic}, {"lab": "key", "clinic": "no"}


def test_who_is_lost_is_said_and_how_to_keep_them():
    frames, on = parties()
    with pytest.warns(PublishingWarning, match=r"party 'clinic': keys may be written") as said:
        _, _, report = align_party_frames(frames, on)
    assert "'nfc strip casefold'" in str(said[0].message)
    assert report.n_matched == 150
    assert report.better == ("nfc strip casefold", 200)
    lost = {party: [own.column for own in found] for party, found in report.lost.items()}
    assert set(lost["lab"]) == {"group", "how keys are written"}
    assert set(lost["clinic"]) == {"cost", "how keys are written"}
    assert report.lost["lab"][0].distance == pytest.approx(1.0)
    assert "dropped records of lab differ from its matched ones in " in str(report)
    assert not {"lost", "better"} & set(report.to_dict())  # never saved


def test_fit_warns_of_the_lost_and_a_form_keeps_them():
    frames, on = parties()
    synth = IndependentSynthesizer(random_state=0)
    with pytest.warns(PublishingWarning) as said:
        synth.fit(frames, on=on)
    texts = " ".join(str(one.message) for one in said)
    assert "150 records are matched, and 200 would be" in texts
    assert "a group may be missing" in texts
    synth.fit(frames, on=MatchOn(on, form="nfc strip casefold"))
    assert synth.alignment_.n_matched == 200
    assert set(synth.sample(300)["group"]) == {"umlaut", "plain"}
    parts = synth.sample(3, by_party=True, keys=True)
    assert [next(iter(part)) for part in parts.values()] == ["key", "no"]


def test_records_that_are_lost_by_chance_are_not_said_to_differ():
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(20):
        lab = pd.DataFrame({"id": range(200), "a": rng.normal(size=200), "g": list("abcd") * 50})
        clinic = pd.DataFrame({"id": rng.permutation(200)[:150], "b": rng.normal(size=150)})
        report = align_party_frames({"lab": lab, "clinic": clinic}, "id")[2]
        wrong += bool(report.differences)
    assert wrong <= 1


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        (["Mu\u0308ller", "Smith"], "nfc"),
        (["Zoe ", "Max"], "strip"),
        (["Zoe\u200b", "Max"], "strip"),
        (["ANNA", "Bert", "Carl"], "casefold"),
        (["007", "12", "9"], "digits"),
        ([1.0, 2.0], "floating-point"),
    ],
)
def test_a_party_is_warned_of_its_own_keys(keys, word):
    with pytest.warns(PublishingWarning, match=f"party 'lab'.*{word}") as said:
        warn_of_keys(pd.Index(keys), "lab")
    assert not any(str(key) in str(said[0].message) for key in keys if isinstance(key, str))


@pytest.mark.parametrize(
    "keys",
    [
        ["P001", "P002"],
        ["0007", "0012"],
        ["aB3xQ", "Zz9pp", "QQ1aa", "abcde", "ABCDE"],
        ["Anna Bach", "Carl Doe"],
        [1, 2],
        ["7", "12"],
        pd.date_range("2020", periods=2),
    ],
)
def test_a_party_is_not_warned_of_usual_keys(keys):
    warn_of_keys(pd.Index(keys), "lab")  # warnings are errors


@pytest.mark.parametrize("blank", ["", "  ", "\u00a0", None])
def test_an_empty_key_is_nobody(blank):
    frame = pd.DataFrame({"id": ["a", blank], "x": [1, 2]})
    with pytest.raises(MissingKeyError, match=r"1 of 2 keys are missing or blank.*\[1\]"):
        check_party_frames({"lab": frame}, "id")


def test_numbers_match_their_text_in_a_form():
    lab = pd.DataFrame({"id": [7, 12], "a": [1, 2]})
    clinic = pd.DataFrame({"id": ["0012", "0007"], "b": [3, 4]})
    with pytest.raises(KeyTypeError, match="form 'digits'"):
        align_party_frames({"lab": lab, "clinic": clinic}, "id")
    frames = {"lab": lab, "clinic": clinic}
    aligned, _, report = align_party_frames(frames, MatchOn("id", form="digits"))
    assert report.n_matched == 2
    assert dict(zip(aligned["lab"]["a"], aligned["clinic"]["b"], strict=True)) == {1: 4, 2: 3}


def test_two_keys_that_a_form_makes_one_are_refused():
    frame = pd.DataFrame({"id": ["a", "A"], "x": [1, 2]})
    with pytest.raises(DuplicateKeyError):
        align_party_frames({"lab": frame}, MatchOn("id", form="casefold"))


def test_names_of_keys_are_those_of_parties():
    frames, on = parties(40)
    with pytest.raises(MissingKeyError, match=r"party 'clinic'.*one column for each table"):
        check_party_frames(frames, {"lab": "key"})
    frames["clinic"]["key"] = 1.0
    with pytest.raises(
        SharedColumnError, match=r"party 'clinic', column 'key'.*another party's key"
    ):
        check_party_frames(frames, on)


@pytest.mark.parametrize("unit", ["s", "ns", "us, UTC"])
def test_days_match_times_of_any_unit(unit):
    days = pd.array(["2020-01-01", "2024-02-29"], dtype=pd.ArrowDtype(pa.date32()))
    times = pd.to_datetime(["2024-02-29", "2020-01-01"]).astype("datetime64[s]")
    zone = "UTC" in unit
    times = times.tz_localize("UTC") if zone else times.astype(f"datetime64[{unit}]")
    frames = {
        "lab": pd.DataFrame({"day": days, "a": [1, 2]}),
        "clinic": pd.DataFrame({"day": times, "b": [2, 1]}),
    }
    if zone:
        with pytest.raises(KeyTypeError, match="timezone"):
            align_party_frames(frames, "day")
        return
    aligned, _, _ = align_party_frames(frames, "day")
    assert aligned["lab"]["a"].tolist() == aligned["clinic"]["b"].tolist()
