"""Metadata of the published table for catalogues: Croissant (MLCommons), HealthDCAT-AP."""

from __future__ import annotations

from typing import Any

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
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
    issued = {"@value": date, "@type": "xsd:date"}
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
        "dct:issued": issued,
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

    if types.is_bool_dtype(dtype):
        return "sc:Boolean"
    if types.is_integer_dtype(dtype):
        return "sc:Integer"
    if types.is_float_dtype(dtype):
        return "sc:Float"
    if types.is_datetime64_any_dtype(dtype):
        return "sc:DateTime"
    return "sc:Text"
