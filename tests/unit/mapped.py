"""Reading made-up logs through a mapping, for the tests of `kvtrace.ingest.mapping`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable

from kvtrace.ingest.contract import ReadContext, Record, Tally
from kvtrace.ingest.files.frame import FrameCounts, frame
from kvtrace.ingest.mapping import Mapping, recognise_mapped
from kvtrace.ingest.mapping.parse import parse_mapping
from kvtrace.ingest.prompts import PromptHasher
from tests.formats.reading import MODIFIED_AT_NS, Reading

KEY = b"key of the tests"


class MisfitError(Exception):
    """The mapping does not fit the file."""


def mapping(text: str) -> Mapping:
    """The mapping of a TOML text."""
    return parse_mapping(tomllib.loads(text), "map.toml")


def json_lines(records: Iterable[object]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def read(text: str, data: bytes, *, name: str = "log.jsonl", tz: str | None = None) -> Reading:
    """What the mapping makes of these bytes; fails if a record is lost."""
    found = recognise_mapped(mapping(text), data, name)
    if found.format is None:
        raise MisfitError(found.reason)
    counts, tally = FrameCounts(), Tally()
    records: list[Record] = list(frame((data,), found.framing, counts))
    context = ReadContext(
        "sample", tally, MODIFIED_AT_NS, tz=tz, token_key=KEY, prompt_hasher=PromptHasher(KEY)
    )
    rows = list(found.format.read(iter(records), context))
    outcomes = tally.used + sum(tally.ignored.values()) + len(tally.rejects)
    assert outcomes == len(records), (outcomes, len(records))
    return Reading(rows, context, counts.blank)
