"""LMCache's binary traces: look-ups as chunk chains, writes as stored blocks, ranks once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.contract import ReadContext, Record, Row, Tally
from kvtrace.ingest.formats.lmcache_hashes import FORMATS as HASH_FORMATS
from kvtrace.ingest.formats.lmcache_trace import FORMATS
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, MODIFIED_AT_NS, Reading, confidence, read_bytes, sniffed

TRACE = FORMATS[0]
FOLDER = DATA / "lmcache_trace"
KEY = b"k" * 32
START = 1_772_359_200.0  # 2026-03-01T10:00:00Z
OWNER = "lmcache.v1.distributed.storage_manager.StorageManager."
A, B, C = (bytes([byte]) * 32 for byte in b"ABC")
LAYOUT = {"shapes": [[2, 4, 256, 16]], "dtypes": ["torch.bfloat16"]}
OBJECT_BYTES = 2 * 4 * 256 * 16 * 2


def header(version: int = 1, magic: object = b"LMCT") -> dict[str, object]:
    return {
        "type": "header",
        "magic": magic,
        "format_version": version,
        "level": "storage",
        "lmcache_version": "0.5.6",
        "t_mono_start": 5.0,
        "t_wall_start": START,
        "sm_config_json": '{"host": "node7"}',
        "sm_config_digest": "00",
    }


def key(chunk: bytes, rank: int = 0, group: int = 0) -> dict[str, object]:
    value = {
        "chunk_hash": chunk,
        "model_name": "acme/llm",
        "kv_rank": rank << 16,
        "object_group_id": group,
    }
    return {"__t__": "ObjectKey", "v": value}


def call(name: str, at_s: float, **arguments: object) -> dict[str, object]:
    return {
        "type": "record",
        "t_mono": at_s,
        "t_wall": START + at_s,
        "qualname": OWNER + name,
        "args": arguments,
    }


def keys(*chunks: bytes, ranks: int = 1) -> list[dict[str, object]]:
    return [key(chunk, rank) for chunk in chunks for rank in range(ranks)]


def policy(name: str) -> dict[str, object]:
    return {"__t__": "TrimPolicy", "v": name}


GOOD = [
    header(),
    call(
        "submit_prefetch_task",
        1.0,
        keys=keys(A, B, C, ranks=2),
        policy=policy("PREFIX"),
        external_request_id="cmpl-a-0",
    ),
    call(
        "reserve_write", 1.5, keys=keys(A, B), layout_desc={"__t__": "L", "v": LAYOUT}, mode="new"
    ),
    call("finish_write", 1.6, keys=keys(A, B)),
    call("finish_write", 1.7, keys=[key(A, 1), key(B, 1)]),
    call("submit_prefetch_task", 2.0, keys=keys(A, B), external_request_id="cmpl-b-0"),
    call("submit_prefetch_task", 2.1, keys=keys(A, B), external_request_id="cmpl-b-0"),
    call("read_prefetched_results.__enter__", 2.2, keys=keys(A, B)),
    call("read_prefetched_results.__exit__", 2.3, keys=keys(A, B)),
    call("finish_read_prefetched", 2.4, keys=keys(A, B), extra_count=0),
    call(
        "submit_prefetch_task",
        3.0,
        spec={
            "__t__": "PrefetchRequestSpec",
            "v": {"keys": keys(B), "policy": policy("SPARSE"), "num_kv_readers": 1},
        },
        external_request_id="cmpl-c-0",
    ),
    call(
        "submit_prefetch_task",
        3.1,
        spec={"__t__": "PrefetchRequestSpec", "v": {"keys": keys(C), "policy": policy("PREFIX")}},
        external_request_id="cmpl-d-0",
    ),
    call("clear", 4.0, force=True),
]
BAD: list[dict[str, object]] = [
    header(),
    call("finish_write", 1.0, keys=[{"__t__": "ObjectKey", "v": {"chunk_hash": "text"}}]),
    call("finish_write", 1.0, keys=[key(b"")]),
    call("finish_write", float("nan"), keys=keys(A)),
    call("submit_prefetch_task", 1.0),
    {"type": "record", "t_wall": START},
    {"type": "other"},
    header(magic=b"LMCX"),
]


def read(frames: Sequence[object], *, block_size_tokens: int | None = None) -> Reading:
    """What the reader makes of these frames (objects or bytes), one record each."""
    tally = Tally()
    context = ReadContext(
        "sample",
        tally,
        MODIFIED_AT_NS,
        token_key=KEY,
        block_size_tokens=block_size_tokens,
    )
    parts = [f if isinstance(f, bytes) else msgspec.msgpack.encode(f) for f in frames]
    records = [Record(100 * at, at + 1, part) for at, part in enumerate(parts)]
    rows: list[Row] = list(TRACE.read(records, context))
    assert tally.used + sum(tally.ignored.values()) + len(tally.rejects) == len(records)
    return Reading(rows, context, 0)


def as_file(frames: list[dict[str, object]]) -> bytes:
    """The frames as LMCache writes them."""
    parts = [msgspec.msgpack.encode(frame) for frame in frames]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def test_lookup_is_a_request_with_the_chain_of_its_chunks() -> None:
    reading = read(GOOD)
    first, second, third = reading.requests
    assert [row.request_id for row in reading.requests] == ["cmpl-a-0", "cmpl-b-0", "cmpl-d-0"]
    assert first.arrived_at_ns == 1_772_359_201_000_000_000
    assert first.llm == "acme/llm"
    assert len(first.block_keys or ()) == 3  # of one rank; the other holds the same chunks
    assert second.block_keys == (first.block_keys or [])[:2]
    assert third.block_keys == (first.block_keys or [])[2:]
    assert first.prompt_tokens is None  # the rest behind the last whole chunk is not said
    assert reading.context.evidence_grade == "A"
    assert reading.ignored["repeated_lookup"] == 1
    assert reading.ignored["lookup_of_pieces"] == 1  # a sparse look-up is no prefix


def test_chunks_are_those_of_the_lookup_hash_files() -> None:
    line = msgspec.json.encode(
        {
            "timestamp": START,
            "request_id": "cmpl-a-0",
            "chunk_size": 256,
            "seq_len": 800,
            "chunk_hashes": [f"0x{chunk.hex()}" for chunk in (A, B, C)],
        }
    )
    other = read_bytes(HASH_FORMATS[0], line + b"\n", token_key=KEY)
    assert other.requests[0].block_keys == read(GOOD).requests[0].block_keys


def test_finished_writes_store_chunks_in_host_memory_once() -> None:
    reading = read(GOOD)
    stored = reading.block_events
    assert [event.block_key for event in stored] == (reading.requests[0].block_keys or [])[:2]
    assert {(event.change, event.medium, event.block_tokens) for event in stored} == {
        ("stored", "host", 256)
    }
    assert stored[0].observed_at_ns == 1_772_359_201_600_000_000
    assert "other_parts_left_out" in reading.note_codes  # rank 1 stored the same chunks


def test_moves_add_up_to_the_bytes_of_all_ranks_and_the_tokens_of_one() -> None:
    moves = read(GOOD).transfers
    assert [
        (row.direction, row.moved_bytes, row.moved_tokens, row.duration_ns) for row in moves
    ] == [
        ("store", 2 * OBJECT_BYTES, 512, None),
        ("store", 2 * OBJECT_BYTES, None, None),  # rank 1
        ("load", 2 * OBJECT_BYTES, 512, None),
    ]


def test_other_calls_are_ignored_by_kind() -> None:
    assert read(GOOD).ignored == {
        "header": 1,
        "reserved_write": 1,
        "repeated_lookup": 1,
        "end_of_read": 2,
        "lookup_of_pieces": 1,
        "other_call": 1,
    }


def test_chunk_size_is_assumed_or_stated() -> None:
    assumed = read(GOOD)
    assert assumed.context.found_block_size_tokens == 256
    assert "block_size_assumed" in assumed.note_codes
    stated = read(GOOD, block_size_tokens=64)
    assert stated.context.found_block_size_tokens == 64
    assert "block_size_assumed" not in stated.note_codes


def test_header_tells_the_version_and_its_configuration_is_not_read() -> None:
    context = read(GOOD).context
    assert context.engine_version == "0.5.6"
    assert "node7" not in repr((context.notes, context.engine_facts))


def test_unknown_format_version_is_rejected_frame_by_frame() -> None:
    reading = read([header(version=2), *GOOD[1:3]])
    assert reading.rejected == [(at, "unknown_version") for at in (1, 2, 3)]


def test_damaged_frames_are_rejected_whole() -> None:
    reading = read(BAD)
    assert reading.rows == []
    assert reading.rejected == [(at, "invalid_field") for at in range(2, 9)]


def test_bytes_that_are_no_frame_are_damaged() -> None:
    cut = msgspec.msgpack.encode(GOOD[1])[:-3]
    flat = msgspec.msgpack.encode(call("finish_write", 1.0, keys=0))
    deep = flat[:-1] + b"\x91" * 100_000 + b"\xc0"
    assert read([cut, deep, b"\xc1"]).rejected == [(at, "damaged_line") for at in (1, 2, 3)]


def test_sniffed_by_its_first_frame() -> None:
    assert confidence(TRACE, as_file(GOOD)) > 0.9
    assert confidence(TRACE, as_file([header() | {"sm_config_json": "x" * 40_000}])) > 0.9
    assert confidence(TRACE, as_file(GOOD[1:])) == 0
    assert confidence(TRACE, b'{"type": "header", "magic": "LMCT"}\n') == 0


@given(st.lists(st.tuples(st.integers(0, 3_000), st.binary(max_size=5)), max_size=5))
def test_any_bytes_are_counted_and_never_raise(edits: list[tuple[int, bytes]]) -> None:
    whole = b"\0\0split\0\0".join(msgspec.msgpack.encode(frame) for frame in GOOD)
    for at, patch in edits:
        whole = whole[:at] + patch + whole[at + len(patch) :]
    read(list(whole.split(b"\0\0split\0\0")))


def test_files_are_framed_by_their_lengths() -> None:
    data = (FOLDER / "good.lct").read_bytes()
    assert data == as_file(GOOD)
    reading = read_bytes(TRACE, data, token_key=KEY)
    assert [row.block_keys for row in reading.requests] == [
        row.block_keys for row in read(GOOD).requests
    ]
    assert sniffed(all_formats(), data) == "lmcache_trace"


def test_malformed_file_gives_no_rows() -> None:
    data = (FOLDER / "malformed.lct").read_bytes()
    assert data == as_file(BAD) + b"\0\0\1\0cut"
    reading = read_bytes(TRACE, data, token_key=KEY)
    assert reading.rows == []
    assert len(reading.rejected) == len(BAD)  # all but the header, and the frame that is cut
    assert reading.rejected[-1][1] == "damaged_line"


def test_trace_as_a_dataset_has_blocks_of_each_request(tmp_path: Path) -> None:
    (tmp_path / "run.lct").write_bytes(as_file(GOOD))
    found = ingest_paths([tmp_path], salt=b"salt")
    assert found.frames["requests"].height == 3
    assert found.frames["blocks"]["block_count"].sum() == 3 + 2 + 1
    assert found.frames["block_events"].height == 2
    assert found.frames["transfers"]["moved_bytes"].sum() == 6 * OBJECT_BYTES
