"""Folders of releases: what is handed out holds no real row, and changes are noticed."""

import dataclasses
import hashlib
import html
import json
import re
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

from tests.unit.release.conftest import DATE, make_contract
from vflsynth._signatures import new_key
from vflsynth.exceptions import ArtefactError, ContractError, ParameterError
from vflsynth.frames import write_table
from vflsynth.release import opens, publishing, release_gate, schema, verify_release, write_release
from vflsynth.release.publishing import croissant, data_type

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

PLANTED = {"income": 987_654_321.125, "age": 117, "sex": "x", "town": "Kleinkleckersdorf"}


@pytest.fixture(scope="module")
def published(real, synthetic, tmp_path_factory):
    """A release of a table; one real record has values that nobody else has."""
    folder = tmp_path_factory.mktemp("release")
    frame = pd.concat([real, pd.DataFrame([PLANTED | {"ill": "yes"}])], ignore_index=True)
    write_table(frame, folder / "real.parquet")
    write_table(synthetic, folder / "synthetic.parquet")
    public = new_key(folder / "publisher.pem")
    dossier = release_gate(frame, synthetic, contract=make_contract(), target="ill", date=DATE)
    assert dossier.passed, str(dossier)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vflsynth.evaluation.pictures.encode_svg", lambda figure: "data:,")
        write_release(
            dossier,
            folder / "release",
            folder / "synthetic.parquet",
            inputs={"real table of office": folder / "real.parquet"},
            settings={"model": {"random_state": 424_242}},
            key=folder / "publisher.pem",
        )
    return folder, public, frame, dossier


def test_the_edition_to_hand_out_holds_no_real_row(published):
    folder, _, frame, _ = published
    handed_out = {
        file.name: file.read_text(encoding="utf-8")
        for file in (folder / "release" / "public").iterdir()
        if file.suffix != ".parquet"
    }
    assert set(handed_out) == {
        "release.html",
        "release.json",
        "croissant.json",
        "health-dcat-ap.json",
        "digests.json",
    }
    secrets = [*map(str, PLANTED.values()), "987654321", "987,654,321", "9.88e+08", "424242"]
    secrets.remove("x")  # a letter of many words; as a value it would be in quotes
    secrets += ['"x"', ">x<", "'x'"]
    secrets.remove("117")  # as a number of its own
    secrets += [str(value) for value in frame["income"]]
    secrets += [f"{value:.2f}" for value in frame["income"]]
    for name, text in handed_out.items():
        text = re.sub("[0-9a-f]{64,}", "", text)  # digests and signatures
        found = [secret for secret in secrets if secret in text]
        found += re.findall(r"(?<![\d.,])117(?![\d.,])", text)
        assert not found, name
        assert "<img" not in text, name


def test_the_internal_edition_would_fail_this(published):
    """The check can fail: the page to keep has pictures, the opening the seed."""
    internal = published[0] / "release" / "internal"
    assert "<img" in (internal / "report.html").read_text(encoding="utf-8")
    assert "424242" in (internal / "opening.json").read_text(encoding="utf-8")
    assert internal.parent.stat().st_mode & 0o077 == 0


def test_the_twin_follows_its_schema(published):
    content = json.loads((published[0] / "release" / "public" / "release.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.Draft202012Validator(schema()).validate(content)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content | {"real_rows": []}, schema())
    assert content["date"] == DATE.isoformat()
    named = {name for item in content["officers"] for name in item["clauses"]}
    assert named <= {clause["name"] for clause in content["clauses"]}


def test_the_page_says_what_the_twin_says(published):
    public = published[0] / "release" / "public"
    page = html.unescape((public / "release.html").read_text(encoding="utf-8"))
    content = json.loads((public / "release.json").read_text())
    for text in (content["date"], content["table"]["sha256"], *content["commitments"].values()):
        assert text in page
    assert all(clause["title"] in page for clause in content["clauses"])


def test_the_health_data_space_s_record_has_what_is_known_here(published, synthetic):
    """Keys that HealthDCAT-AP asks of a dataset and its distribution; others the publisher adds."""
    public = published[0] / "release" / "public"
    content = json.loads((public / "health-dcat-ap.json").read_text())
    asked = "identifier title description issued type accessRights provenance"
    assert {f"dct:{key}" for key in asked.split()} <= content.keys()
    assert {"dcat:theme", "dcat:keyword", "dcatap:applicableLegislation"} <= content.keys()
    assert content["dct:type"]["@id"].endswith("/dataset-type/SYNTHETIC_DATA")
    assert content["healthdcatap:numberOfRecords"]["@value"] == str(len(synthetic))
    one = content["dcat:distribution"]
    digest = hashlib.sha256((public / one["dcat:accessURL"]["@id"]).read_bytes()).hexdigest()
    assert one["spdx:checksum"]["spdx:checksumValue"]["@value"] == digest
    prefixes = {key.partition(":")[0] for own in (content, one) for key in own if key[0] != "@"}
    assert prefixes <= content["@context"].keys()


def test_croissant_describes_every_column(published, synthetic):
    content = json.loads((published[0] / "release" / "public" / "croissant.json").read_text())
    assert content["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    (file,), (records,) = content["distribution"], content["recordSet"]
    assert file["encodingFormat"] == "application/x-parquet"
    assert [f["source"]["extract"]["column"] for f in records["field"]] == list(synthetic.columns)
    assert [f["dataType"] for f in records["field"]] == [
        "sc:Float", "sc:Integer", "sc:Text", "sc:Text", "sc:Text"
    ]  # fmt: skip
    assert all(f["source"]["fileObject"] == {"@id": file["@id"]} for f in records["field"])


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_croissant_is_what_its_own_library_reads(synthetic, tmp_path, ending):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        mlcroissant = pytest.importorskip("mlcroissant", reason="needs the extra 'dev'")
    path = tmp_path / f"table{ending}"
    write_table(synthetic, path)
    table = {
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "columns": [{"name": c, "type": data_type(synthetic[c].dtype)} for c in synthetic],
    }
    content = croissant(table, name="Table", description="Synthetic.", date="2026-03-01")
    (tmp_path / "croissant.json").write_text(json.dumps(content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        found = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
        assert not found.metadata.issues.errors
        first = next(iter(found.records("records")))
    assert first["records/age"] == synthetic["age"].iloc[0]
    assert first["records/town"] == synthetic["town"].iloc[0].encode()


def test_an_untouched_folder_is_verified(published, tmp_path):
    folder, public, *_ = published
    shutil.copytree(folder / "release" / "public", tmp_path / "copy")
    assert verify_release(tmp_path / "copy", public)["verdict"] == "passed"
    with pytest.raises(ArtefactError, match=r"Fix: give .*public"):
        verify_release(folder / "release", public)


def tampered_table(copy):
    frame = pd.read_parquet(copy / "synthetic.parquet")
    frame.iloc[:10].to_parquet(copy / "synthetic.parquet")


def tampered_page(copy):
    page = copy / "release.html"
    page.write_text(page.read_text(encoding="utf-8").replace("passed", "perfect"), "utf-8")


def missing(copy):
    (copy / "croissant.json").unlink()


def extra(copy):
    (copy / "more.csv").write_text("a\n1\n")


def new_digests(copy):
    """Whoever changes a file can compute its digest, but not sign it."""
    tampered_page(copy)
    content = json.loads((copy / "digests.json").read_text())
    digest = hashlib.sha256((copy / "release.html").read_bytes()).hexdigest()
    content["files"]["release.html"] = digest
    (copy / "digests.json").write_text(json.dumps(content))


def forged_above(copy):
    """The signed folder inside another one, with forgeries beside it."""
    signed = copy.parent / "signed"
    copy.rename(signed)
    copy.mkdir()
    signed.rename(copy / "public")
    for name in ("synthetic.csv", "release.json", "index.html"):
        (copy / name).write_text("{}")


def linked_folder(copy):
    (copy.parent / "elsewhere").mkdir()
    (copy / "more").symlink_to(copy.parent / "elsewhere")


def linked_file(copy):
    (copy / "release.html").rename(copy.parent / "page")
    (copy / "release.html").symlink_to(copy.parent / "page")


def shared_file(copy):
    """What has a second name elsewhere changes when that one is written to."""
    (copy.parent / "page").hardlink_to(copy / "release.html")


def empty_folder(copy):
    (copy / "public").mkdir()


def repeated_keys(copy):
    file = copy / "digests.json"
    file.write_text(file.read_text().replace("{", '{"files": {"synthetic.parquet": "0"},', 1))


def said_beside(copy):
    """What stands beside the digests is not signed with them."""
    content = json.loads((copy / "digests.json").read_text())
    (copy / "digests.json").write_text(json.dumps(content | {"epsilon": 0.1}))


def no_digest(copy):
    content = json.loads((copy / "digests.json").read_text())
    content["files"]["release.html"] = "ä"
    (copy / "digests.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (said_beside, "says more than was signed"),
        (no_digest, "release.html was changed"),
        (forged_above, "no release to hand out"),
        (linked_folder, "more is extra"),
        (linked_file, "release.html is extra"),
        (shared_file, "release.html is extra"),
        (empty_folder, "public is extra"),
        (repeated_keys, "'files' is there twice"),
        (tampered_table, "synthetic.parquet was changed"),
        (tampered_page, "release.html was changed"),
        (missing, "croissant.json is missing"),
        (extra, "more.csv is extra"),
        (new_digests, "did not sign"),
    ],
)
def test_changes_are_noticed(published, tmp_path, change, words):
    folder, public, *_ = published
    copy = tmp_path / "copy"
    shutil.copytree(folder / "release" / "public", copy)
    change(copy)
    with pytest.raises(ArtefactError, match=words):
        verify_release(copy, public)


def test_somebody_elses_signature_is_none(published, tmp_path):
    folder, *_ = published
    other = new_key(tmp_path / "other.pem")
    with pytest.raises(ArtefactError, match="did not sign"):
        verify_release(folder / "release" / "public", other)
    with pytest.raises(ArtefactError, match="did not sign"):
        verify_release(folder / "release" / "public", None)
    with pytest.raises(ArtefactError, match="None cannot be read"):
        verify_release(None, other)


def test_commitments_open_to_the_files_they_were_made_of(published):
    folder, *_ = published
    opening = json.loads((folder / "release" / "internal" / "opening.json").read_text())
    content = json.loads((folder / "release" / "public" / "release.json").read_text())
    name = "real table of office"
    commitment = content["commitments"][name]
    assert opens(opening, name, folder / "real.parquet", commitment)
    assert not opens(opening, name, folder / "synthetic.parquet", commitment)
    (folder / "parts").mkdir()
    shutil.copy(folder / "real.parquet", folder / "parts")
    assert not opens(opening, name, folder / "parts", commitment)
    plain = opening["digests"][name]
    assert plain not in json.dumps(content), "who knows all records but one could try the last"


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_another_table_than_was_judged_is_not_published(published, synthetic, tmp_path, ending):
    """Rows as many and of the same columns included: those of the real table are such."""
    shuffled = synthetic.assign(age=synthetic["age"].to_numpy()[::-1])
    for other in (synthetic[1:], synthetic.drop(columns="age"), shuffled):
        write_table(other, tmp_path / f"other.{ending}")
        with pytest.raises(ArtefactError, match="not the table that was judged"):
            write_release(
                published[3], tmp_path / "r", tmp_path / f"other.{ending}", inputs={}, settings={}
            )


@pytest.mark.parametrize("what", ["column", "index"])
def test_what_nobody_judged_is_not_published_unless_it_is_fresh_keys(
    published, synthetic, tmp_path, what
):
    """The verdict is about the columns that were judged: a column beside them has none."""
    secret = pd.Index([f"patient {i}" for i in range(len(synthetic))], name="secret")
    more = synthetic.assign(secret=secret) if what == "column" else synthetic.set_index(secret)
    more.attrs["source"] = "ward 7"
    more.to_parquet(tmp_path / "more.parquet")
    arguments = published[3], tmp_path / "r", tmp_path / "more.parquet"
    with pytest.raises(ArtefactError, match="has 'secret', which nobody judged"):
        write_release(*arguments, inputs={}, settings={})
    write_release(*arguments, inputs={}, settings={}, fresh_keys=["secret"])
    assert b"ward 7" not in (tmp_path / "r/public/synthetic.parquet").read_bytes(), "nor notes"


@pytest.mark.usefixtures("blank_pictures")
def test_a_failed_release_leaves_nothing_to_hand_out(published, tmp_path):
    folder, _, _, passed = published
    clause = dataclasses.replace(passed.clauses[0], verdict="failed")
    dossier = dataclasses.replace(passed, clauses=(clause, *passed.clauses[1:]))
    arguments = {"inputs": {}, "settings": {}}
    write_release(dossier, tmp_path / "out", folder / "synthetic.parquet", **arguments)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "internal",
        "manifest.json",
    ]
    report = (tmp_path / "out" / "internal" / "report.html").read_text(encoding="utf-8")
    assert "Fails 1 of" in report
    with pytest.raises(ArtefactError, match="no release to hand out"):
        verify_release(tmp_path / "out", "0" * 64)


def test_what_is_not_signed_is_not_verified(published, tmp_path):
    folder, public, *_ = published
    shutil.copytree(folder / "release" / "public", tmp_path / "copy")
    content = json.loads((tmp_path / "copy" / "digests.json").read_text())
    unsigned = content | {"public_key": None, "signature": None}
    (tmp_path / "copy" / "digests.json").write_text(json.dumps(unsigned))
    with pytest.raises(ArtefactError, match="not signed"):
        verify_release(tmp_path / "copy", public)


def test_a_bad_key_is_told_before_anything_is_written(published, tmp_path):
    folder, *_, dossier = published
    (tmp_path / "bad.pem").write_text("no key")
    arguments = {"inputs": {}, "settings": {}, "key": tmp_path / "bad.pem"}
    with pytest.raises(ParameterError, match="private key"):
        write_release(dossier, tmp_path / "out", folder / "synthetic.parquet", **arguments)
    assert not (tmp_path / "out").exists()


def test_numbers_are_plain_in_the_twin(published):
    content = published[3].public_content({"rows": 1}, {})
    assert not any(isinstance(clause["value"], np.generic) for clause in content["clauses"])


@pytest.mark.usefixtures("blank_pictures")
def test_reports_are_written_for_those_whom_the_contract_names(published, tmp_path):
    folder, *_, dossier = published
    table, arguments = folder / "synthetic.parquet", {"inputs": {}, "settings": {}}
    readers = {"internal": ["lab", "clinic"], "public": ["the registry"]}
    contract = dataclasses.replace(dossier.contract, readers=readers)
    named = dataclasses.replace(dossier, contract=contract)
    for reader, words in ((None, "nobody says"), ("press", "for 'press'")):
        with pytest.raises(ContractError, match=rf"lets 'lab', 'clinic' see .*{words}.*--reader"):
            write_release(named, tmp_path / "r", table, **arguments, reader=reader)
    assert not (tmp_path / "r").exists()
    write_release(named, tmp_path / "r", table, **arguments, reader="lab")
    page = (tmp_path / "r" / "internal" / "report.html").read_text(encoding="utf-8")
    assert "Written for lab. The contract lets nobody see it but: lab, clinic." in page
    public = tmp_path / "r" / "public"
    assert "for the registry only" in (public / "release.html").read_text(encoding="utf-8")
    content = json.loads((public / "release.json").read_text(encoding="utf-8"))
    jsonschema.validate(content, schema())
    assert content["readers"] == ["the registry"]
    everybody = (folder / "release" / "public" / "release.json").read_text(encoding="utf-8")
    assert json.loads(everybody)["readers"] is None


def test_gaps_in_an_only_column_are_compared_as_well():
    gaps, none = (pd.DataFrame({"a": values}) for values in ([1.5, None, 2.5], [1.5, 2.5]))
    assert publishing._as_written(gaps).equals(publishing._as_written(gaps))
    assert not publishing._as_written(gaps).equals(publishing._as_written(none))
