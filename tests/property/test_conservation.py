"""Laws of ingest: nothing is lost uncounted, and how a stream was cut or split changes nothing."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.errors import InputError
from kvtrace.ingest.contract import Framing, Record
from kvtrace.ingest.files.frame import FrameCounts, frame
from kvtrace.ingest.pipeline import Ingested, ingest_paths
from tests.unit.ingest_formats import ingest, made_up

VALID = st.builds(
    lambda tokens, at: json.dumps(
        {"timestamp": at, "input_length": tokens, "output_length": 1, "hash_ids": [at]}
    ).encode(),
    st.integers(0, 5000),
    st.integers(0, 10**6),
)
BLANK = st.sampled_from([b"", b" ", b"\t\t", b"\r"])
BROKEN = st.one_of(
    st.sampled_from([b"{", b"null", b"[]", b'{"a": 1}', b'{"input_length": -1}', b"\xff\xfe{"]),
    st.binary(min_size=1, max_size=30).map(lambda data: b"{" + data.replace(b"\n", b"")),
)
LINES = st.lists(st.one_of(VALID, VALID, BLANK, BROKEN), max_size=30)
ENDS = st.sampled_from([b"\n", b"\r\n"])


def _kinds(lines: list[bytes]) -> tuple[int, int]:
    """(valid, blank) lines."""
    valid = sum(line.startswith(b'{"timestamp"') for line in lines)
    return valid, sum(not line.strip(b" \t\r\n\x0b\x0c") for line in lines)


@settings(max_examples=60, deadline=None)
@given(lines=LINES, end=ENDS, is_ended=st.booleans())
def test_every_line_is_used_ignored_rejected_or_blank(
    lines: list[bytes], end: bytes, is_ended: bool
) -> None:
    first = b'{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}'
    lines = [first] * (len(lines) + 1) + lines  # most lines are valid, so that it is recognised
    data = end.join(lines) + (end if is_ended else b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_bytes(data)
        result = ingest_paths([path], salt=b"s")
    entry = result.files[0]
    physical = len(lines) if is_ended or lines[-1] else len(lines) - 1
    assert entry.rows_in == physical
    assert entry.rows_in == entry.kept + entry.rejected + entry.blank
    assert entry.kept == entry.used + entry.ignored
    valid, blank = _kinds(lines)
    assert entry.used == valid
    assert entry.blank == blank - (len(lines) - physical)
    assert result.totals.rejected == entry.rejected == len(result.frames["rejects"])
    assert result.totals.requests == entry.used


@settings(deadline=None)
@given(
    data=st.one_of(
        st.text('ab",\n\r\\[]{} 1', max_size=80).map(str.encode),
        st.lists(st.recursive(st.none() | st.text('a"\\[]{}', max_size=4), st.lists)).map(
            lambda values: json.dumps(values).encode()
        ),
        st.binary(max_size=80),
    ),
    framing=st.sampled_from(["lines", "csv", "json"]),
    cuts=st.lists(st.integers(0, 80), max_size=8),
    limit=st.sampled_from([6, 1 << 20]),
)
def test_chunks_change_no_record(
    data: bytes, framing: Framing, cuts: list[int], limit: int
) -> None:
    def framed(chunks: list[bytes]) -> tuple[list[Record], int, int, list[tuple[int, int]]]:
        counts = FrameCounts(max_record_bytes=limit)
        records = list(frame(chunks, framing, counts))
        long = [(entry.offset, entry.byte_length) for entry in counts.too_long]
        assert len(records) == counts.delivered
        return records, counts.blank, counts.rows_in, long

    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(edges)]
    assert framed(pieces) == framed([data])


@given(data=st.binary(max_size=200))
def test_records_lie_where_they_say(data: bytes) -> None:
    counts = FrameCounts()
    for record in frame([data], "lines", counts):
        assert data[record.offset : record.offset + len(record.data)] == record.data
        assert data[: record.offset].count(b"\n") + 1 == record.line


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=12
    ),
    cut=st.integers(0, 12),
)
def test_splitting_a_log_into_files_changes_nothing(
    rows: list[tuple[int, int, int]], cut: int
) -> None:
    lines = [
        json.dumps(
            {
                "arrived_at_ns": at,
                "session_id": str(session),
                "prompt_tokens": 10 * blocks,
                "block_keys": list(range(session, session + blocks)),
                "turn": number,
            }
        )
        for number, (at, session, blocks) in enumerate(rows)
    ]

    def read(*parts: list[str]) -> Ingested:
        with tempfile.TemporaryDirectory() as folder:
            for number, part in enumerate(parts):
                text = "\n".join(['{"format": "f"}', *part])
                (Path(folder) / f"log.{number}").write_text(text)
            return ingest([Path(folder)], made_up("f", block_size=10, scope="global"))

    whole, split = read(lines), read(lines[:cut], lines[cut:])
    assert split.digest == whole.digest
    assert split.totals.prompt_tokens == whole.totals.prompt_tokens
    assert split.totals.distinct_blocks == whole.totals.distinct_blocks


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(data)
        try:
            result = ingest_paths([path], salt=b"s")
        except InputError as error:
            code = error.code
        else:
            code = "read" if result.files[0].format else ""
    assert code in {"KVT-I002", "KVT-I003", "read"}
