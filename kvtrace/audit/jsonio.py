"""The Audit record as JSON, and back: sorted keys, no NaN, one newline at the end."""

from __future__ import annotations

from typing import Final

import msgspec

from kvtrace.audit.record import AUDIT_SCHEMA_VERSION, AuditRecord
from kvtrace.errors import Location, OutputError

AUDIT_SCHEMA_TITLE: Final = "kvtrace audit record"


class _Versioned(msgspec.Struct):
    """What is read first: enough to refuse a record from the future."""

    schema_version: int


def dump(record: AuditRecord) -> bytes:
    """The record as UTF-8 JSON: keys sorted, NaN and infinity as null, newline at the end."""
    return msgspec.json.encode(record, order="sorted") + b"\n"


def load(data: bytes, *, path: str = "audit.json") -> AuditRecord:
    """The record that `dump` wrote, by this or an older version.

    Raises:
        OutputError: the text is not an audit record (KVT-A002), or a newer kvtrace wrote it
            (KVT-A001).
    """
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version > AUDIT_SCHEMA_VERSION:
            raise OutputError(
                "KVT-A001",
                f"the audit has schema version {version}; this kvtrace reads up to "
                f"{AUDIT_SCHEMA_VERSION}",
                where=Location(path),
                hint="update kvtrace, or run `kvtrace analyze` again with this version",
            )
        return msgspec.json.decode(data, type=AuditRecord)
    except msgspec.DecodeError as error:
        raise OutputError(
            "KVT-A002",
            "this is not an audit record of kvtrace",
            where=Location(path),
            cause=str(error),
            hint="pass the `audit.json` that `kvtrace analyze` wrote",
        ) from error


def schema() -> dict[str, object]:
    """JSON Schema (2020-12) of the record, as shipped in `audit.schema.json`."""
    return document_schema(AuditRecord, title=AUDIT_SCHEMA_TITLE)


def document_schema(kind: type[msgspec.Struct], *, title: str) -> dict[str, object]:
    """JSON Schema (2020-12) of one document type, generated from its fields and docstrings."""
    (reference,), definitions = msgspec.json.schema_components(
        (kind,), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **reference,
        "$defs": definitions,
    }


def schema_bytes(kind: type[msgspec.Struct], *, title: str) -> bytes:
    """The shipped form of `document_schema`: indented, keys sorted, newline at the end."""
    document = document_schema(kind, title=title)
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"
