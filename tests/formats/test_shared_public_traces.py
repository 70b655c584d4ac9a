"""Public traces and the handed excerpts in their shape, with the values that their index states."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pytest

from kvtrace.ingest.contract import Format, RequestRow
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import Reading, decoded, read_bytes

pytestmark = pytest.mark.shared


def recognised(shared_dir: Path, name: str) -> tuple[Format, bytes]:
    """The format that a file is taken for, and its bytes."""
    data = decoded(shared_dir / name)
    found = recognise(data[: 4 << 20], name, formats=all_formats()).format
    assert found is not None, name
    return found, data


def read_shared(shared_dir: Path, name: str, format_name: str) -> Reading:
    """The file read through the format that it must be taken for, among all formats."""
    found, data = recognised(shared_dir, name)
    assert found.name == format_name
    return read_bytes(found, data, token_key=b"key")


def expected(shared_dir: Path, name: str) -> dict[str, object]:
    """What the index says of an excerpt."""
    text = (shared_dir / "trace_excerpts" / "expected.json").read_text()
    found: dict[str, object] = json.loads(text, parse_float=Decimal)[name]
    return found


def leading_hits(rows: Iterable[RequestRow]) -> list[int]:
    """Blocks of each request's leading run that an earlier request held."""
    seen: set[int] = set()
    hits: list[int] = []
    for row in rows:
        keys = row.block_keys or []
        hits.append(next((at for at, key in enumerate(keys) if key not in seen), len(keys)))
        seen.update(keys)
    return hits


def in_time(rows: list[RequestRow]) -> list[RequestRow]:
    """Rows by arrival, ties in file order."""
    return sorted(rows, key=lambda row: row.arrived_at_ns or 0)


def blocks(rows: list[RequestRow]) -> list[int]:
    """Block ids of each row."""
    return [len(row.block_keys or []) for row in rows]


def test_weka_excerpts(shared_dir: Path) -> None:
    want = expected(shared_dir, "weka_dir/")
    readings = [
        read_shared(shared_dir, f"trace_excerpts/weka_dir/trace_{number}.json", "weka")
        for number in (9001, 9002)
    ]
    assert [len(reading.requests) for reading in readings] == want["requests_per_file"]
    assert [leading_hits(in_time(reading.requests)) for reading in readings] == want[
        "hit_blocks_by_file"
    ]
    assert [blocks(in_time(reading.requests)) for reading in readings] == want[
        "total_blocks_by_file"
    ]
    for reading in readings:
        context = reading.context
        assert (context.clock, context.block_scope) == ("relative", "file")
        assert (context.found_block_size_tokens, context.partial_tail) == (64, "dropped")
        assert all(row.e2e_ns is not None for row in reading.requests)
    assert [row.ttft_ns for row in readings[0].requests] == [
        None,
        1_250_000_000,
        None,
        1_250_000_000,
    ]


def test_public_weka_conversations(shared_dir: Path) -> None:
    paths = sorted((shared_dir / "traces" / "weka_agentic").glob("*.zst"))
    readings = [
        read_shared(shared_dir, str(path.relative_to(shared_dir)), "weka") for path in paths
    ]
    assert [len(reading.requests) for reading in readings] == [41, 33, 7, 22, 53, 32]
    rows = [row for reading in readings for row in reading.requests]
    assert all(len(row.block_keys or []) == (row.prompt_tokens or 0) // 64 for row in rows)
    held = sum(blocks(rows))
    # ids restart in each file: 0.9056 of the block references are hits, 0.978 if they are mixed up
    apart = sum(sum(leading_hits(in_time(reading.requests))) for reading in readings)
    assert apart / held == pytest.approx(0.9056, abs=5e-5)
    assert sum(leading_hits(rows)) / held > 0.95
    assert all(reading.context.tally.used == 1 for reading in readings)
