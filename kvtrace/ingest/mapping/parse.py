"""Reads a mapping file; what is wrong with it is said with file, key, cause and a line to paste."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping as MappingAbc
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kvtrace.errors import Location, UsageError
from kvtrace.ingest.mapping.contradictions import check_together
from kvtrace.ingest.mapping.spec import (
    POWERS,
    UNIT_WORDS,
    BlocksSpec,
    ClockKind,
    DurationSpec,
    FieldRef,
    FramingChoice,
    InstantSpec,
    Mapping,
    Scope,
    SourceSpec,
    StatusSpec,
    Tail,
    TimeSpec,
    TimeUnit,
    TokensSpec,
    TtftFrom,
    TurnSpec,
)
from kvtrace.ingest.mapping.table import Table, literal_of

TEXT_FIELDS: Final = {
    "request_id": "request_id",
    "session": "session_id",
    "parent": "parent_id",
    "tenant": "tenant",
    "user": "user",
    "model": "llm",
    "adapter": "adapter",
    "request_type": "request_type",
}
"""Key of [fields] → request column."""
COUNT_FIELDS: Final = (
    "prompt_tokens",
    "cached_tokens",
    "cached_device_tokens",
    "cached_host_tokens",
    "cached_disk_tokens",
    "cached_remote_tokens",
    "cache_write_tokens",
    "computed_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
)
DURATION_FIELDS: Final = ("queue", "prefill", "ttft", "tpot", "e2e")
_OTHER_FIELDS: Final = (
    "first_token_at", "finished_at", "turn", "status", "gateway_cache_hit", "failed", "usage",
    "block_hashes", "token_ids", "prompt",
)  # fmt: skip
FIELDS: Final = (*TEXT_FIELDS, *COUNT_FIELDS, *DURATION_FIELDS, *_OTHER_FIELDS)
_SOURCE_KEYS: Final = (
    "name", "match", "framing", "delimiter", "columns", "records", "absent", "where", "benchmark",
    "time", "fields", "semantics",
)  # fmt: skip
_STATUS_LISTS: Final = ("ok", "error", "cancelled", "gateway_cache_hit")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SUFFIX: Final = re.compile(
    r"(?:[_\-. ](?:in_)?(s|secs?|seconds?|ms|msecs?|millis|milliseconds?|us|usecs?|micros"
    r"|microseconds?|ns|nsecs?|nanos|nanoseconds?)|(?<=[a-z])(Ms|Millis|Seconds|Secs|Us|Ns"
    r"|Micros|Nanos))\Z"
)
_DELIMITERS: Final = (",", ";", "\t", "|")


def load_mapping(path: str | Path) -> Mapping:
    """The mapping that a file holds.

    Raises:
        UsageError: it cannot be read, is no TOML, or says something that cannot be.
    """
    place = Location(str(path))
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            "KVT-U030",
            "the mapping file cannot be read",
            where=place,
            cause=error.strerror,
            hint="`kvtrace sniff LOG --suggest-mapping -o map.toml` writes a first one",
        ) from error
    try:
        document = tomllib.loads(data.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        cause = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is not UTF-8 text"
        raise UsageError(
            "KVT-U031",
            "the mapping file is not TOML",
            where=place,
            cause=cause,
            hint='text stands in quotes, as in `session = "user.session"`',
        ) from error
    return parse_mapping(document, str(path))


def parse_mapping(document: MappingAbc[str, object], path: str) -> Mapping:
    """The mapping of a TOML document.

    Raises:
        UsageError: an unknown key, a wrong value, or keys that contradict each other.
    """
    top = Table(document, path)
    if "source" in document:
        top.check(("source",))
        tables = document["source"]
        if not isinstance(tables, list) or not tables:
            raise top.wrong("source", "is not a list of tables", "[[source]]")
        sources = tuple(
            _source(Table(entry if isinstance(entry, MappingAbc) else {}, path, f"source {at}"))
            for at, entry in enumerate(tables, start=1)
        )
    else:
        sources = (_source(top),)
    text = json.dumps(document, sort_keys=True, default=str)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Mapping(path, digest, sources)


def _source(table: Table) -> SourceSpec:
    table.check(_SOURCE_KEYS)
    fields = table.sub("fields", FIELDS)
    semantics = table.sub("semantics", ("prompt_includes_cached", "output_includes_reasoning"))
    framing: FramingChoice = literal_of(table, "framing", FramingChoice, "auto")
    ttft = fields.spec("ttft", ("unit", "from", "force"))
    source = SourceSpec(
        name=_name(table),
        match=table.text("match", "gateway-*.jsonl"),
        framing=framing,
        delimiter=_delimiter(table, framing),
        columns=table.names("columns"),
        records=_optional(table, "records"),
        absent=table.values("absent"),
        where=_where(table),
        is_benchmark=bool(table.switch("benchmark")),
        time=_time(table),
        texts={
            column: fields.ref(key) for key, column in TEXT_FIELDS.items() if key in fields.table
        },
        counts={key: fields.ref(key) for key in COUNT_FIELDS if key in fields.table},
        durations={
            key: spec for key in DURATION_FIELDS if (spec := _duration(fields, key)) is not None
        },
        ttft_from="arrival" if ttft is None else literal_of(ttft, "from", TtftFrom, "arrival"),
        first_token_at=_instant(fields, "first_token_at"),
        finished_at=_instant(fields, "finished_at"),
        turn=_turn(fields),
        status=_status(fields),
        gateway_cache_hit=_optional(fields, "gateway_cache_hit"),
        failed=_optional(fields, "failed"),
        usage=_optional(fields, "usage"),
        block_hashes=_blocks(fields),
        token_ids=_tokens(fields),
        prompt=_optional(fields, "prompt"),
        prompt_includes_cached=semantics.switch("prompt_includes_cached"),
        output_includes_reasoning=semantics.switch("output_includes_reasoning") is not False,
    )
    check_together(source, table)
    return source


def _name(table: Table) -> str | None:
    name = table.text("name", "gateway")
    if name is not None and not _NAME.fullmatch(name):
        raise table.wrong("name", "is no short name in lower case", 'name = "gateway"')
    return name


def _delimiter(table: Table, framing: FramingChoice) -> str | None:
    value = table.text("delimiter", ";")
    if value is None:
        return None
    if value not in _DELIMITERS:
        raise table.wrong("delimiter", 'is none of "," ";" "\\t" "|"', 'delimiter = ";"')
    if framing in ("lines", "json"):
        raise table.fault(
            f"a delimiter is given, but `framing` is `{framing}`", 'write `framing = "csv"`'
        )
    return value


def _where(table: Table) -> tuple[tuple[FieldRef, frozenset[str]], ...]:
    where = table.sub("where")
    return tuple((where.ref(key, key), where.values(key)) for key in where.table)


def _optional(fields: Table, key: str) -> FieldRef | None:
    return fields.ref(key) if key in fields.table else None


def _time(table: Table) -> TimeSpec | None:
    if "time" not in table.table:
        return None
    time = table.sub("time", ("field", "unit", "zone", "meaning", "clock"))
    if "field" not in time.table:
        raise time.fault("`time.field` is missing", 'write `field = "ts"` under `[time]`')
    ref = time.ref("field")
    unit: TimeUnit = literal_of(time, "unit", TimeUnit, "auto")
    clock: ClockKind = literal_of(time, "clock", ClockKind, "auto")
    zone = time.text("zone", "Europe/Berlin")
    if zone is not None:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            cause = "is not an IANA time zone"
            raise time.wrong("zone", cause, 'zone = "Europe/Berlin"') from error
    if unit == "iso" and clock in ("relative", "monotonic"):
        raise time.fault(
            f'`time.unit = "iso"` are dates, and `time.clock = "{clock}"` counts from a start',
            "leave `clock` out",
        )
    is_end = time.choice("meaning", ("start", "end"), "start") == "end"
    return TimeSpec(ref, unit, zone, is_end, clock)


def _instant(fields: Table, key: str) -> InstantSpec | None:
    table = fields.spec(key, ("unit",))
    if table is None:
        return None
    unit: TimeUnit = literal_of(table, "unit", TimeUnit, "auto")
    return InstantSpec(table.ref("field"), unit)


def unit_in_name(name: str) -> str | None:
    """The unit that the name of a field ends in (`ttft_ms`, `latencyMs`); None without one."""
    found = _SUFFIX.search(name)
    if found is None:
        return None
    word = (found[1] or found[2]).lower()
    if word.startswith(("ms", "mil")):
        return "ms"
    if word.startswith(("us", "mic")):
        return "us"
    return "ns" if word.startswith("n") else "s"


def _duration(fields: Table, key: str) -> DurationSpec | None:
    table = fields.spec(key, ("unit", "force", *(("from",) if key == "ttft" else ())))
    if table is None:
        return None
    ref = table.ref("field")
    named = unit_in_name(ref.keys[-1])
    if "unit" not in table.table:
        if named is None:
            raise fields.fault(
                f"`{table.section}` has no unit, and the name of its field ends in none",
                f'write `{key} = {{ field = "{ref.said}", unit = "ms" }}` (s, ms, us, ns, text)',
            )
        return DurationSpec(ref, POWERS[named])
    unit = table.choice("unit", (*POWERS, "text"), "s")
    if named is not None and unit not in (named, "text") and not table.switch("force"):
        raise table.fault(
            f"`{table.section}` is said to be in {UNIT_WORDS[unit]}, but the name of its field ends"
            f" in {UNIT_WORDS[named]}",
            f'write `unit = "{named}"`, or add `force = true` if the name is wrong',
        )
    return DurationSpec(ref, POWERS.get(unit))


def _turn(fields: Table) -> TurnSpec | None:
    table = fields.spec("turn", ("first",))
    return None if table is None else TurnSpec(table.ref("field"), table.whole("first", 0, 1) or 0)


def _status(fields: Table) -> StatusSpec | None:
    table = fields.spec("status", _STATUS_LISTS)
    if table is None:
        return None
    lists = {key: table.values(key) for key in _STATUS_LISTS}
    seen: dict[str, str] = {}
    for key, values in lists.items():
        for value in sorted(values):
            if value in seen:
                raise table.fault(
                    f"`{table.section}` lists `{value}` under `{seen[value]}` and `{key}`",
                    "list each value once",
                )
            seen[value] = key
    return StatusSpec(table.ref("field"), **lists)


def _blocks(fields: Table) -> BlocksSpec | None:
    table = fields.spec("block_hashes", ("block_size", "chained", "scope", "tail"))
    if table is None:
        return None
    scope: Scope = literal_of(table, "scope", Scope, "auto")
    tail: Tail = literal_of(table, "tail", Tail, "auto")
    return BlocksSpec(
        ref=table.ref("field"),
        block_tokens=table.whole("block_size", 1, 1 << 20),
        is_chained=table.switch("chained") is not False,
        scope=scope,
        tail=tail,
    )


def _tokens(fields: Table) -> TokensSpec | None:
    table = fields.spec("token_ids", ("block_size",))
    if table is None:
        return None
    return TokensSpec(table.ref("field"), table.whole("block_size", 1, 1 << 20))
