"""What holds for every format of JSON files: told apart, and no damage breaks a reader."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from kvtrace.ingest.registry import all_formats, format_named
from kvtrace.ingest.values.jsonfields import decode_json
from tests.formats.reading import DATA, read_bytes, sniffed

NAMES = (
    "dynamo_request_trace",
    "lmcache_hashes",
    "nim_response",
    "sglang_bench",
    "sglang_request_metrics",
    "trtllm_request_metrics",
    "trtllm_stats",
    "vllm_bench",
    "otlp_genai",
)
OURS = [path for name in NAMES for path in sorted((DATA / name).iterdir())]
OTHERS = [
    path for path in sorted(DATA.rglob("*")) if path.is_file() and path.parent.name not in NAMES
]
ROUNDS = 60
HOSTILE = (
    b"NaN",
    b"-Infinity",
    b"1e999999",
    b"-1",
    b"0",
    b"null",
    b"true",
    b"18446744073709551616",
    b"1" * 5_000,
    b'""',
    b"[]",
    b"{}",
    b'"\xd9\xa1\xd9\xa2"',
    b'"sNaN"',
    b'"\\ud800"',
    b"\xff\x00",
)


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def name_of(path: Path) -> str:
    """The format of a fixture."""
    return path.parent.name


@pytest.mark.parametrize("path", OURS, ids=label)
def test_every_fixture_is_taken_for_its_own_format(path: Path) -> None:
    assert sniffed(all_formats(), path.read_bytes()) == name_of(path)


@pytest.mark.parametrize("path", OTHERS, ids=label)
def test_no_fixture_of_another_format_is_taken_for_one_of_these(path: Path) -> None:
    assert sniffed(all_formats(), path.read_bytes()) not in NAMES


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one hurt: cut, spliced, swapped, or a value made hostile."""
    at, to = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    kind = chance.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[to:]
    if kind == 2:
        return data[:to] + data[at:]
    if kind == 3:
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    start = data.find(b": ", at) + 2
    ends = [found for mark in b",}]" if (found := data.find(bytes([mark]), start)) > 0]
    end = min(ends, default=len(data))
    return data[:start] + chance.choice(HOSTILE) + data[end:]


@pytest.mark.parametrize("path", OURS, ids=label)
def test_hurt_files_lose_no_record_and_raise_nothing(path: Path) -> None:
    entry = format_named(name_of(path))
    assert entry is not None
    data = path.read_bytes()
    chance = random.Random(label(path))
    for _ in range(ROUNDS):
        hurt = data
        for _ in range(chance.randrange(1, 4)):
            hurt = mutated(hurt, chance)
        reading = read_bytes(
            entry, hurt, token_key=b"key"
        )  # checks that every record has one outcome
        for row in reading.requests:
            counts = (row.prompt_tokens, row.cached_tokens, row.output_tokens)
            times = (row.queue_ns, row.ttft_ns, row.tpot_ns, row.e2e_ns, row.prefill_ns)
            assert all(value is None or 0 <= value < 2**63 for value in (*counts, *times))
            assert all(0 <= key < 2**64 for key in row.block_keys or ())


@pytest.mark.parametrize("name", NAMES)
def test_deep_and_huge_records_are_rejected(name: str) -> None:
    entry = format_named(name)
    assert entry is not None
    deep = b'{"a": ' * 100_000 + b"1" + b"}" * 100_000
    wide = b'{"a": "' + b"x" * 1_000_000 + b'"}'
    reading = read_bytes(entry, deep + b"\n" + wide + b"\n")
    assert len(reading.rejected) + sum(reading.ignored.values()) == 2
    assert reading.rows == []


def test_bare_names_become_null_and_texts_that_hold_them_stay() -> None:
    decoder = msgspec.json.Decoder()
    data = rb'{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN, \"Infinity\": NaN", "d": 1}'
    assert decode_json(decoder, data) == {
        "a": None,
        "b": [None, None],
        "c": 'NaN, "Infinity": NaN',
        "d": 1,
    }
    with pytest.raises(msgspec.DecodeError):
        decode_json(decoder, b'{"a": NaN, "b": "no end')
