"""A dossier as a folder: one part to keep, one to hand out, with digests and a signature.

::

    DIR/internal/report.html       real rows in pictures: to keep
    DIR/internal/opening.json      what the commitments commit to, and their key
    DIR/public/synthetic.parquet   the published table, and of it:
    DIR/public/release.html        the edition to hand out
    DIR/public/release.json        the same for machines, see `schema`
    DIR/public/croissant.json      metadata for catalogues
    DIR/public/health-dcat-ap.json the same for those of the European health data space
    DIR/public/digests.json        of these files, with the publisher's signature

A release that fails has no public part.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
import tempfile
import warnings
from collections.abc import Hashable, Iterable, Mapping, Set
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsynth import _artefacts as artefacts
from vflsynth._artefacts import file_digest
from vflsynth._random import derive
from vflsynth._signatures import is_signed, public_key, sign
from vflsynth.exceptions import ArtefactError

if TYPE_CHECKING:
    import pandas as pd

    from vflsynth.release.dossier import Dossier


KIND = "vflsynth release"
"""What the manifest of a release's folder says."""

DIGESTS = "digests.json"

_SIGNED_AS = b"vflsynth release 1\n"  # a signature of these bytes means nothing elsewhere


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of ``release.json``."""
    text = resources.files("vflsynth.release").joinpath("release.schema.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def write_release(
    dossier: Dossier,
    folder: str | os.PathLike[str],
    table: str | os.PathLike[str],
    *,
    inputs: Mapping[str, str | os.PathLike[str]],
    settings: Mapping[str, Any],
    seen: Mapping[str, str] | None = None,
    key: str | os.PathLike[str] | None = None,
    fresh_keys: Iterable[Hashable] = (),
    history: pd.DataFrame | None = None,
    title: str = "Synthetic table",
    reader: str | None = None,
) -> Path:
    """Write both editions, whole or not at all; an older release in the folder is replaced.

    Parameters
    ----------
    dossier : Dossier
    folder : path-like
    table : path-like
        The file that was judged. It is written anew: files hold more than their rows show.
    inputs : mapping of name to path
        Files that the release was made of, for their digests.
    settings : mapping
        JSON values: parameters of the model with its seed, options.
    seen : mapping of name to digest, optional
        Of inputs, and of the "table", before they were judged.
    key : path-like, optional
        The publisher's private key, as of ``vflsynth parties key``. Without one nothing is signed.
    fresh_keys : iterable of labels, optional
        Columns of fresh keys, None for the index, that the file may have beside what was judged.
    history : DataFrame, optional
        A section of the internal page.
    title : str, default="Synthetic table"
    reader : str, optional
        Who the internal edition is for, where the contract says who may see it.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ContractError
        If the contract does not let the reader see it.
    ArtefactError
        If the folder holds anything else, or cannot be written, or the table has other rows than
        were judged, or lacks a column, or has one beside them, or a file is not as it was `seen`.
    ParameterError
        If the key cannot be read.
    MissingExtraError
        If matplotlib or jinja2 is not installed.
    """
    dossier.contract.check_reader("internal", reader)
    source = Path(table)
    signer = None if key is None else (Path(key), public_key(Path(key)))  # read before long work
    digests = {name: file_digest(Path(path)) for name, path in inputs.items()}
    secret = secrets.token_bytes(32)
    opened = {**digests, "settings": _digest(_dump(dict(settings)))}
    commitments = {name: _committed(secret, name, digest) for name, digest in opened.items()}
    frame = _as_judged(source, dossier.tables.synthetic, {*fresh_keys})
    for name, digest in {**digests, "table": file_digest(source)}.items():
        if (seen or {}).get(name, digest) != digest:
            path = inputs.get(name, source)
            raise ArtefactError(f"{path} changed while it was judged. Fix: judge again")
    with artefacts.new_directory(folder, KIND, private=True) as root:
        internal, public = root / "internal", root / "public"
        internal.mkdir()
        page = dossier.internal_page(history=history, reader=reader)
        page.save(internal / "report.html")
        opening = {"key": secret.hex(), "digests": opened, "settings": dict(settings)}
        artefacts.write_json(internal / "opening.json", opening)
        if dossier.passed:
            public.mkdir()
            published = _written(frame, public, source.name)
            content = dossier.public_content(published, commitments)
            dossier.public_page(content, title).save(public / "release.html")
            artefacts.write_json(public / "release.json", content)
            for name, describe in (("croissant", croissant), ("health-dcat-ap", health_dcat)):
                described = describe(
                    published, name=title, description=content["headline"], date=dossier.date
                )
                artefacts.write_json(public / f"{name}.json", described)
            _write_digests(public, signer)
    return Path(folder)


def verify_release(folder: str | os.PathLike[str], public: str) -> dict[str, Any]:
    """Check a folder that was handed out: every file in it, and who signed them.

    Parameters
    ----------
    folder : path-like
        The public part of a release, exactly as it is judged: nothing may lie beside what was
        signed, and no other folder is looked for.
    public : str
        The publisher's public key, 64 hexadecimal digits, from a source that one trusts: whoever
        changes the folder can write another key into it.

    Returns
    -------
    dict
        The content of ``release.json``; the published table is there, and has its digest.

    Raises
    ------
    ArtefactError
        If a file is missing, extra, a link or changed, if nothing is signed, or if somebody else
        signed.
    """
    try:
        root = Path(folder)
        names = sorted(os.listdir(root))
    except (OSError, TypeError) as error:
        raise ArtefactError(f"{folder} cannot be read: {error}") from error
    if DIGESTS not in names:
        inner = root / "public"
        fix = f". Fix: give {inner}" if (inner / DIGESTS).is_file() else ""
        raise ArtefactError(f"{root} is no release to hand out: it has no {DIGESTS}{fix}")
    found = {name: _plain_file(root / name) for name in names}
    content = artefacts.parse_json(found[DIGESTS], root / DIGESTS)
    with artefacts.reading(root, "a release"):
        files = {str(name): str(digest) for name, digest in content["files"].items()}
        signature = content["signature"]
    for name in sorted(found.keys() ^ {*files, DIGESTS}):
        raise ArtefactError(f"{root}: {name} is {'extra' if name in found else 'missing'}")
    for name, digest in files.items():
        if _digest(found[name]) != digest:
            raise ArtefactError(f"{root}: {name} was changed after it was released")
    if signature is None:
        raise ArtefactError(f"{root} is not signed. Fix: 'vflsynth release --key FILE'")
    if not is_signed(str(public), _SIGNED_AS + _dump(files), str(signature)):
        raise ArtefactError(f"{root}: the owner of this public key did not sign these files")
    if content != {"files": files, "public_key": public.lower(), "signature": signature}:
        raise ArtefactError(f"{root}: {DIGESTS} says more than was signed")
    with artefacts.reading(root, "a release"):  # what was signed, not what is there by now
        release: dict[str, Any] = artefacts.parse_json(found["release.json"], root / "release.json")
        table = release["table"]
        if files.get(table["file"]) != table["sha256"]:
            raise ArtefactError(f"{root}: release.json is about another table than the one here")
    return release


def _plain_file(path: Path) -> bytes:
    """Read a file that has one name and lies where it seems to."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            there = os.fstat(file.fileno())
            if stat.S_ISREG(there.st_mode) and there.st_nlink == 1:
                return file.read()
    except OSError as error:
        if not (path.is_symlink() or path.is_dir()):
            raise ArtefactError(f"{path} cannot be read: {error}") from error
    raise ArtefactError(
        f"{path} is extra: a folder or a link, which shows what lies elsewhere. Fix: copy the "
        "files of the release, and nothing else, into a folder of their own"
    )


def opens(opening: Mapping[str, Any], name: str, file: str | os.PathLike[str], to: str) -> bool:
    """Whether a published commitment is to this very file: what an auditor asks.

    `opening` is the content of ``internal/opening.json``; the commitment, called `name`, and what
    it is (`to`) are in ``release.json``.
    """
    secret = bytes.fromhex(opening["key"])
    return hmac.compare_digest(_committed(secret, name, file_digest(Path(file))), to)


def _write_digests(public: Path, signer: tuple[Path, str] | None) -> None:
    files = {file.name: file_digest(file) for file in sorted(public.iterdir())}
    content: dict[str, Any] = {"files": files, "public_key": None, "signature": None}
    if signer is not None:
        key, content["public_key"] = signer
        content["signature"] = sign(key, _SIGNED_AS + _dump(files))
    artefacts.write_json(public / DIGESTS, content)


def _as_judged(path: Path, judged: pd.DataFrame, fresh_keys: Set[Hashable]) -> pd.DataFrame:
    """Read the table that is published.

    Raises ArtefactError if it has not the rows that were judged, or more beside them than keys.
    """
    from vflsynth.frames import read_table
    from vflsynth.frames.keys import only_counts_rows

    frame: pd.DataFrame = read_table(path)
    own, other = (t.set_axis([*map(str, t)], axis=1) for t in (judged, frame))
    if not {*own} <= {*other} or not _as_written(own).equals(_as_written(other[[*own]])):
        raise ArtefactError(f"{path} is not the table that was judged")
    beside: list[Hashable] = [label for label in other if label not in own]
    if not only_counts_rows(other.index):
        beside.append(None if None in fresh_keys else other.index.name or "index")
    if unseen := [label for label in beside if label not in fresh_keys]:
        raise ArtefactError(f"{path} has {', '.join(map(repr, unseen))}, which nobody judged")
    return frame


def _written(frame: pd.DataFrame, folder: Path, name: str) -> dict[str, Any]:
    """Write the published table and say of it nothing that its reader could not see."""
    from vflsynth.frames import write_table
    from vflsynth.frames.io import suffix_of

    path = folder / f"synthetic{suffix_of(Path(name))}"
    write_table(frame, path)
    return {
        "file": path.name,
        "sha256": file_digest(path),
        "bytes": path.stat().st_size,
        "rows": len(frame),
        "columns": [{"name": str(c), "type": data_type(frame[c].dtype)} for c in frame.columns],
    }


def _as_written(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as text, which is the same whatever kind of file it was in."""
    from vflsynth.frames import read_table, write_table

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns, which whoever judged them was told
        # A column more, of a name that no other has: csv has no place for gaps in an only one.
        table = table.copy(deep=False)
        table["".join(map(str, table)) + "."] = 0
        write_table(table, written := Path(folder) / "table.csv")
        return read_table(written).astype(str)


def _committed(secret: bytes, name: str, digest: str) -> str:
    return derive(secret, f"{name}\n{digest}").hex()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


CONFORMS_TO = "http://mlcommons.org/croissant/1.0"

_TERMS = (
    "citeAs column conformsTo data dataType equivalentProperty examples extract field fileObject "
    "fileProperty fileSet format includes isLiveDataset jsonPath key md5 parentField path "
    "recordSet references regex repeated replace samplingRate separator source subField transform"
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
    # Four terms say more, each in its place.
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}

_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".csv.gz": "application/gzip",
    ".parquet": "application/x-parquet",
}


def croissant(table: dict[str, Any], *, name: str, description: str, date: str) -> dict[str, Any]:
    """Describe a published table as a Croissant dataset of one file and one record set.

    The table has `file`, `sha256`, `bytes` and `columns`, each of these with `name` and `type`; the
    date is ISO. Returns JSON-LD, strict JSON.
    """
    file = table["file"]
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"records/{column['name']}",
            "name": column["name"],
            "dataType": column["type"],
            "source": {"fileObject": {"@id": file}, "extract": {"column": column["name"]}},
        }
        for column in table["columns"]
    ]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": name,
        "description": description,
        "datePublished": date,
        "isLiveDataset": False,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file,
                "name": file,
                "contentUrl": file,
                "contentSize": f"{table['bytes']} B",
                "encodingFormat": _media(file),
                "sha256": table["sha256"],
            }
        ],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": "records", "name": "records", "field": fields}
        ],
    }


_EU = "http://publications.europa.eu/resource/authority/"


def health_dcat(table: dict[str, Any], *, name: str, description: str, date: str) -> dict[str, Any]:
    """Describe a published table by HealthDCAT-AP (European health data space), as JSON-LD.

    It says what is known here. The publisher adds ``dct:publisher``, ``dcat:contactPoint``,
    ``healthdcatap:healthCategory`` and, unless the table is public, ``healthdcatap:hdab``, the
    health data access body. Returns a ``dcat:Dataset`` with one ``dcat:Distribution``.
    """
    legislation = {"@id": "http://data.europa.eu/eli/reg/2025/327/oj"}  # the EHDS regulation
    distribution = {
        "@type": "dcat:Distribution",
        "dct:title": table["file"],
        "dcat:accessURL": {"@id": table["file"]},
        "dcat:mediaType": {
            "@id": f"https://www.iana.org/assignments/media-types/{_media(table['file'])}"
        },
        "dcat:byteSize": {"@value": str(table["bytes"]), "@type": "xsd:nonNegativeInteger"},
        "dcatap:applicableLegislation": legislation,
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": {"@value": table["sha256"], "@type": "xsd:hexBinary"},
        },
    }
    return {
        "@context": {
            "dcat": "http://www.w3.org/ns/dcat#",
            "dcatap": "http://data.europa.eu/r5r/",
            "dct": "http://purl.org/dc/terms/",
            "healthdcatap": "http://healthdataportal.eu/ns/health#",
            "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
            "spdx": "http://spdx.org/rdf/terms#",
            "xsd": "http://www.w3.org/2001/XMLSchema#",
        },
        "@type": "dcat:Dataset",
        "dct:identifier": f"urn:sha256:{table['sha256']}",
        "dct:title": {"@value": name, "@language": "en"},
        "dct:description": {"@value": description, "@language": "en"},
        "dct:issued": {"@value": date, "@type": "xsd:date"},
        "dct:type": {"@id": f"{_EU}dataset-type/SYNTHETIC_DATA"},
        "dct:accessRights": {"@id": f"{_EU}access-right/RESTRICTED"},
        "dcat:theme": {"@id": f"{_EU}data-theme/HEAL"},
        "dcat:keyword": [{"@value": "synthetic data", "@language": "en"}],
        "dcatap:applicableLegislation": legislation,
        "dct:provenance": {
            "@type": "dct:ProvenanceStatement",
            "rdfs:label": "Drawn by a model of several parties' columns; no row is a real record.",
        },
        "healthdcatap:numberOfRecords": {
            "@value": str(table["rows"]),
            "@type": "xsd:nonNegativeInteger",
        },
        "dcat:distribution": distribution,
    }


def _media(file: str) -> str:
    return next(m for ending, m in reversed(_MEDIA_TYPES.items()) if file.endswith(ending))


def data_type(dtype: Any) -> str:
    """Return the schema.org type of a column's values."""
    from pandas.api import types

    tests = {
        "sc:Boolean": types.is_bool_dtype,
        "sc:Integer": types.is_integer_dtype,
        "sc:Float": types.is_float_dtype,
        "sc:DateTime": types.is_datetime64_any_dtype,
    }
    return next((name for name, is_one in tests.items() if is_one(dtype)), "sc:Text")
