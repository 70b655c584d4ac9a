"""Public traces and the handed excerpts in their shape, with the values that their index states."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pytest

from kvtrace.ingest.contract import Format, RequestRow
from kvtrace.ingest.prompts import PromptHasher
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


def total(rows: list[RequestRow], column: str) -> int:
    """Sum of the known values."""
    return sum(getattr(row, column) or 0 for row in rows)


SUMS = {
    # excerpt: format of this project
    "mooncake_conversation_head.jsonl": "mooncake",
    "bailian_traceA_style.jsonl": "bailian",
    "azure2023_code_head.csv": "azure",
    "azure2024_week_style.csv": "azure",
    "azure_lmm_2025_style.csv": "azure",
    "burstgpt_v1_style.csv": "burstgpt",
    "burstgpt_v3_style.csv": "burstgpt",
    "nasty/bom_crlf.csv": "azure",
}


@pytest.mark.parametrize(("name", "format_name"), SUMS.items())
def test_rows_and_sums_of_excerpts(shared_dir: Path, name: str, format_name: str) -> None:
    want = expected(shared_dir, name)
    reading = read_shared(shared_dir, f"trace_excerpts/{name}", format_name)
    rows = reading.requests
    assert len(rows) == want["rows"]
    assert total(rows, "prompt_tokens") == want["sum_prompt_tokens"]
    assert total(rows, "output_tokens") == want["sum_output_tokens"]
    assert all(row.cached_tokens is None and row.ttft_ns is None for row in rows)
    clock = str(want.get("clock", "naive")).split()[0]
    assert reading.context.clock == clock
    if "status" in want:
        assert [row.status for row in rows] == want["status"]
    if "block_size" in want:
        assert reading.context.found_block_size_tokens == want["block_size"]


def test_mooncake_head(shared_dir: Path) -> None:
    name = "trace_excerpts/mooncake_conversation_head.jsonl"
    reading = read_shared(shared_dir, name, "mooncake")
    late = reading.context.late_arrivals
    assert late is not None
    first = reading.requests[0]
    assert (int(late.arrived_at_ns[0]), first.prompt_tokens, first.output_tokens) == (0, 6758, 500)
    assert len(first.block_keys or []) == 14


def test_bailian_style(shared_dir: Path) -> None:
    want = expected(shared_dir, "bailian_traceA_style.jsonl")
    rows = read_shared(shared_dir, "trace_excerpts/bailian_traceA_style.jsonl", "bailian").requests
    assert leading_hits(rows) == want["ideal_prefix_hit_blocks_in_order"]
    sessions: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        sessions.setdefault(row.session_id or "", []).append(number)
    assert sessions == want["sessions"]


def test_azure_times(shared_dir: Path) -> None:
    first = read_shared(shared_dir, "trace_excerpts/azure2023_code_head.csv", "azure")
    assert first.requests[0].arrived_at_ns == 1_700_158_623_979_960_000
    week = read_shared(shared_dir, "trace_excerpts/azure2024_week_style.csv", "azure")
    want = expected(shared_dir, "azure2024_week_style.csv")["ts_us"]
    assert isinstance(want, list)
    assert [row.arrived_at_ns for row in week.requests] == [at * 1000 for at in want]
    images = read_shared(shared_dir, "trace_excerpts/azure_lmm_2025_style.csv", "azure")
    assert images.requests[0].arrived_at_ns == 1_728_993_600_269_000_000
    assert [row.request_type for row in images.requests] == [None, "image", "image", None, "image"]


def test_burstgpt_v3(shared_dir: Path) -> None:
    rows = read_shared(shared_dir, "trace_excerpts/burstgpt_v3_style.csv", "burstgpt").requests
    first_ns = rows[0].arrived_at_ns or 0
    starts = [((row.arrived_at_ns or 0) - first_ns) // 10**9 for row in rows]
    assert starts == [0, 51, 90, 91, 93]
    assert [(row.e2e_ns or 0) // 10**9 for row in rows] == [43, 2, 12, 1, 0]
    sessions = [row.session_id for row in rows]
    assert sessions[0] == sessions[2] != sessions[1]
    assert sessions[3:] == [None, None]


def test_nasty_mooncake_rows(shared_dir: Path) -> None:
    mixed = read_shared(shared_dir, "trace_excerpts/nasty/mixed_schema.jsonl", "mooncake")
    assert [row.prompt_tokens for row in mixed.requests] == [512, 512, None]
    assert [line for line, _ in mixed.rejected] == [3, 5]
    bad = read_shared(shared_dir, "trace_excerpts/nasty/bad_tokens.jsonl", "mooncake")
    want = expected(shared_dir, "nasty/bad_tokens.jsonl")
    accepted = want["accepted"]
    assert isinstance(accepted, list)
    assert [row.line - 1 for row in bad.requests] == accepted
    by_row = {row.line - 1: row for row in bad.requests}
    assert (by_row[4].prompt_tokens, by_row[4].output_tokens) == (700, 12)
    assert list(by_row[4].block_keys or []) == [4, 5]
    assert max(by_row[7].block_keys or []) > 2**63
    assert by_row[10].block_keys is None
    ordered = read_shared(shared_dir, "trace_excerpts/nasty/out_of_order.jsonl", "mooncake")
    late = ordered.context.late_arrivals
    assert late is not None
    order = sorted(range(5), key=lambda row: int(late.arrived_at_ns[row]))
    sorted_want = expected(shared_dir, "nasty/out_of_order.jsonl")
    assert order == sorted_want["sorted_stable_input_order"]
    hits = leading_hits(ordered.requests[row] for row in order)
    assert hits == sorted_want["ideal_hit_blocks_after_sort"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [("one_line.jsonl", 1), ("no_final_newline.jsonl", 2), ("wrong_ext.json", 2)],
)
def test_nasty_frames_of_mooncake_rows(shared_dir: Path, name: str, rows: int) -> None:
    assert len(read_shared(shared_dir, f"trace_excerpts/nasty/{name}", "mooncake").requests) == rows


@pytest.mark.parametrize(("name", "rows"), [("header_only.csv", 0), ("utf16.csv", 1)])
def test_nasty_azure_files(shared_dir: Path, name: str, rows: int) -> None:
    assert len(read_shared(shared_dir, f"trace_excerpts/nasty/{name}", "azure").requests) == rows


def test_array_of_mooncake_rows(shared_dir: Path) -> None:
    data = decoded(shared_dir / "trace_excerpts" / "nasty" / "array.jsonl")
    found = recognise(data, "array.jsonl", formats=all_formats())
    assert found.format is not None
    assert (found.format.name, found.framing) == ("mooncake", "json")


def test_sharegpt_is_recognised_as_text(shared_dir: Path) -> None:
    reading = read_shared(shared_dir, "trace_excerpts/nasty/prompt_only_sharegpt.json", "chat_text")
    assert reading.rows == []
    assert reading.ignored == {"needs_tokenizer": 1}
    assert "tokenizer" in reading.context.notes[0].message


def test_public_mooncake_conversation(shared_dir: Path) -> None:
    rows = read_shared(shared_dir, "traces/mooncake_conversation.jsonl.zst", "mooncake").requests
    assert len(rows) == 12_031
    assert sum(blocks(rows)) == 288_500
    assert len({key for row in rows for key in row.block_keys or []}) == 182_790
    assert total(rows, "prompt_tokens") / len(rows) == pytest.approx(12_035.06, abs=0.005)
    assert total(rows, "output_tokens") / len(rows) == pytest.approx(342.62, abs=0.005)


def test_public_azure_code(shared_dir: Path) -> None:
    rows = read_shared(shared_dir, "traces/azure2023_code.csv.gz", "azure").requests
    assert len(rows) == 8_819
    times = [row.arrived_at_ns or 0 for row in rows]
    assert len(set(times)) == len(times)
    span_s = (times[-1] - times[0]) / 1e9
    assert span_s == pytest.approx(57 * 60 + 15.9, abs=0.05)
    assert all(row.block_keys is None and row.cached_tokens is None for row in rows)


def test_public_vidur_lengths(shared_dir: Path) -> None:
    name = "traces/vidur_arxiv_summarization_lengths.csv.gz"
    reading = read_shared(shared_dir, name, "vidur")
    assert len(reading.requests) == 28_257
    longest = max((row.prompt_tokens or 0) + (row.output_tokens or 0) for row in reading.requests)
    assert longest <= 4_096
    assert reading.context.clock == "order"
    assert not any(row.flags for row in reading.requests)


def test_public_tracelab_example(shared_dir: Path) -> None:
    name = "traces/tracelab_sanitized_example.jsonl.gz"
    reading = read_shared(shared_dir, name, "tracelab")
    rows = reading.requests
    assert len(rows) == 19
    assert [row.request_type for row in rows] == ["claude"] * 10 + ["codex"] * 9
    assert not any(row.flags for row in rows)  # the parts always add up
    first = rows[0]
    assert (first.prompt_tokens, first.cached_tokens, first.cache_write_tokens) == (
        32_272,
        27_217,
        2_163,
    )
    assert first.arrived_at_ns == 1_780_292_420_151_000_000  # 2026-06-01T05:40:20.151Z
    assert len({row.session_id for row in rows}) == 2
    assert all(row.e2e_ns is not None for row in rows)


def prefix_share(texts: list[tuple[int, str, bytes]]) -> float:
    """Share of bytes that a prompt has in common with the start of the one before it."""
    last: dict[str, bytes] = {}
    shared = size = 0
    for _at, session, text in sorted(texts, key=lambda call: call[0]):
        before = last.get(session, b"")
        pairs = enumerate(zip(before, text, strict=False))
        shared += next((at for at, (a, b) in pairs if a != b), min(len(before), len(text)))
        size += len(text)
        last[session] = text
    return shared / size


def test_public_agent_texts_share_prefixes(shared_dir: Path) -> None:
    name = "traces/lmcache_agent_miniswe.jsonl.zst"
    found, data = recognised(shared_dir, name)
    assert found.name == "lmcache_agent"
    calls = [json.loads(line) for line in data.splitlines()]
    texts = [(call["timestamp"], call["session_id"], call["input"].encode()) for call in calls]
    # the index: 0.936 of the characters are the prefix of the call before in the session
    assert prefix_share(texts) == pytest.approx(0.936, abs=0.002)
    reading = read_bytes(found, data, prompt_hasher=PromptHasher(b"key"))
    rows = in_time(reading.requests)
    assert len(rows) == 402
    # by blocks of 64 bytes, over all sessions: prefixes of other sessions come on top
    held = sum(blocks(rows))
    assert 0.93 < sum(leading_hits(rows)) / held < 0.97
    assert total(rows, "prompt_tokens") == sum(-(-len(text) // 4) for _, _, text in texts)
    assert reading.context.clock == "utc"


def test_public_taubench_files(shared_dir: Path) -> None:
    counts = []
    for path in sorted((shared_dir / "traces" / "lmcache_agent_taubench").glob("*.gz")):
        data = decoded(path)
        if data:
            name = str(path.relative_to(shared_dir))
            counts.append(len(read_shared(shared_dir, name, "lmcache_agent").requests))
    assert (len(counts), sum(counts)) == (24, 471)
