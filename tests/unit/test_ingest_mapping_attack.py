"""Odd values and damaged bytes through mappings and the suggester: no exception, no lost record."""

from __future__ import annotations

import csv
import io
import json
import random
import tomllib

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.columns import RowCollector
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.mapping.parse import parse_mapping
from kvtrace.ingest.mapping.suggest import suggest
from kvtrace.ingest.mapping.writing import render_suggestion
from tests.unit.mapped import KEY, MisfitError, read

ROUNDS = 60
EVERYTHING = """
absent = ["n/a"]
where = { kind = "done" }
[time]
field = "ts"
clock = "utc"
unit = "UNIT"
[fields]
request_id = "id"
session = "u.s"
turn = "turn"
model = "m"
prompt_tokens = "p"
cached_tokens = "c"
cache_write_tokens = "w"
output_tokens = "o"
total_tokens = "t"
ttft = { field = "f", unit = "ms" }
e2e = { field = "e", unit = "text" }
queue = { field = "q", unit = "ns" }
status = "code"
failed = "err"
block_hashes = { field = "h", block_size = 16 }
"""
INSTANTS = """
[time]
field = "ts"
unit = "UNIT"
[fields]
usage = "usage"
first_token_at = "ft"
finished_at = "et"
token_ids = "ids"
"""
IN_A_LIST = """
records = "u.list"
[fields]
prompt_tokens = "p"
cached_tokens = "c"
prompt = "pr"
"""
ODD: list[object] = [
    None, 0, -1, 1e308, -1e308, 1e-308, 10**30, -(10**30), 2**63, 2**64, 2**64 - 1, "", "-", "null",
    "NaN", "٣", "1_000", "1e400", "0x10", " 5 ", "true", True, False, [], {}, [[]], ["a"], [1, 2],
    [-1], [2**70], [1.5], {"a": 1}, "[", "{", "[1", '{"a":', "\ud800", "\u0000",
    "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
    "a" * 5_000, [None], [{"role": "user", "content": None}], [{"role": 1}], float("nan"),
    float("inf"), 1_767_225_600, 1_767_225_600_123, "1767225600", "350ms", "1h" * 20,
    "9" * 40 + "s",
]  # fmt: skip
DEEP = b'{"p": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n"


def _record(chance: random.Random, at: int) -> dict[str, object]:
    record: dict[str, object] = {
        "kind": "done", "ts": 1_767_225_600 + at, "id": f"r{at}",
        "u": {"s": "x", "list": [{"p": 1, "pr": "hello", "c": 0}]}, "turn": 1, "m": "m", "p": 40,
        "c": 3, "w": 1, "o": 2, "t": 42, "f": 1.5, "e": "35ms", "q": 100, "code": 200, "err": None,
        "h": [1, 2, 3], "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        "ft": 1_767_225_601 + at, "et": 1_767_225_602 + at, "ids": [1, 2, 3],
    }  # fmt: skip
    for _ in range(chance.randrange(4)):
        key, value = chance.choice(list(record)), chance.choice(ODD)
        if key == "u":
            value = {
                "s": value,
                "list": chance.choice([value, [value], [{"p": value, "pr": value}]]),
            }
        elif key == "usage":
            value = {"prompt_tokens": value, "prompt_tokens_details": chance.choice(ODD)}
        record[key] = value
    return record


def _written(chance: random.Random, records: list[dict[str, object]]) -> bytes:
    shape = chance.randrange(4)
    if shape == 0:
        text = io.StringIO()
        table = csv.writer(text, delimiter=chance.choice(",;"))
        table.writerow(records[0])
        for record in records:
            cells = [json.dumps(v) if isinstance(v, list | dict) else v for v in record.values()]
            table.writerow(cells)
        return text.getvalue().encode("utf-8", "surrogatepass")
    if shape == 1:
        return json.dumps(records, indent=1).encode()
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _damaged(chance: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    at, way = chance.randrange(len(made)), chance.randrange(5)
    if way == 0:
        del made[at : at + chance.randrange(1, 40)]
    elif way == 1:
        made[at] = chance.randrange(256)
    elif way == 2:
        start = chance.randrange(len(made))
        made[at:at] = made[start : start + 30]
    elif way == 3:
        del made[at:]
    else:
        made += DEEP
    return bytes(made) or b"\n"


@pytest.mark.parametrize("seed", range(4))
def test_no_exception_and_no_lost_record(seed: int) -> None:
    chance = random.Random(seed)
    readings = 0
    for _ in range(ROUNDS):
        data = _written(chance, [_record(chance, at) for at in range(chance.randrange(1, 12))])
        for _ in range(chance.choice([0, 0, 1, 3])):
            data = _damaged(chance, data)
        text = chance.choice([EVERYTHING, INSTANTS, IN_A_LIST])
        text = text.replace("UNIT", chance.choice(["s", "s", "auto", "ms"]))
        try:
            reading = read(text, data)
        except (UsageError, MisfitError):
            pass  # contradicts the data or does not fit: said before a record is read
        else:
            readings += 1
            collector = RowCollector(0, KeyedHasher(KEY))
            for row in reading.rows:
                collector.add(row, None)
            collector.finish(reading.context.clock)
        made = suggest(data, "log.jsonl")
        if made is not None and made.chosen:
            parse_mapping(tomllib.loads(render_suggestion([made])), "map.toml")
    assert readings > ROUNDS // 3
