"""SGLang's log excerpts beside the checkout, with the values of their index."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.formats.sglang_dump import FORMATS as DUMP_FORMATS
from kvtrace.ingest.formats.sglang_text import FORMATS
from kvtrace.ingest.formats.vllm_text import FORMATS as VLLM_FORMATS
from kvtrace.units import NS_PER_MS
from tests.formats.reading import Reading, decoded, read_bytes, read_log, sniffed

pytestmark = pytest.mark.shared
SGLANG = FORMATS[0]


def excerpt(shared_dir: Path, name: str) -> bytes:
    return decoded(shared_dir / "log_excerpts" / name)


def sums(reading: Reading) -> tuple[float, float, float]:
    """(new sequences, new tokens, cached tokens) of all prefill lines."""
    names = ("new_requests", "computed_tokens", "cached_tokens")
    new, computed, cached = (sum(v or 0 for v in reading.metric(name)) for name in names)
    return new, computed, cached


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sglang-0.2.15-prefill.log", (4, 350, 150)),
        ("sglang-0.3.6-prefill.log", (3, 200, 200)),
        ("sglang-0.4.9-pd.log", (3, 4608, 1024)),
        ("sglang-0.5.6-batch.log", (3, 10_304, 10_239)),
        ("sglang-0.5.23-batch.log", (8, 15_232, 4480)),
        ("nasty-terminal-cut-lines.log", (1, 896, 128)),
        ("nasty-truncated-last-line.log", (1, 100, 900)),
        ("nasty-latin1.log", (1, 1, 2)),
        ("nasty-utf16-bom.log", (1, 3, 4)),
        ("nasty-nul-bytes.log", (2, 2, 4)),
        ("nasty-interleaved.log", (2, 321, 15)),
        ("nasty-journald-syslog.log", (1, 10, 30)),
    ],
)
def test_sums_of_batch_lines(
    shared_dir: Path, name: str, expected: tuple[float, float, float]
) -> None:
    assert sums(read_bytes(SGLANG, excerpt(shared_dir, name))) == expected


def test_cumulative_rates_and_no_time(shared_dir: Path) -> None:
    reading = read_bytes(SGLANG, excerpt(shared_dir, "sglang-0.2.15-prefill.log"))
    assert reading.metric("prefix_hit_ratio") == [0.25, 0.3]
    assert {row.observed_at_ns for row in reading.samples} == {None}
    later = read_bytes(SGLANG, excerpt(shared_dir, "sglang-0.3.6-prefill.log"))
    assert later.metric("prefix_hit_ratio") == [0.0, 0.5]
    assert later.metric("kv_capacity_tokens") == [443_912.0]


def test_ranks_and_damage(shared_dir: Path) -> None:
    pd = read_bytes(SGLANG, excerpt(shared_dir, "sglang-0.4.9-pd.log"))
    assert pd.ignored == {"duplicate_rank": 1}
    cut = read_bytes(SGLANG, excerpt(shared_dir, "nasty-terminal-cut-lines.log"))
    assert cut.rejected == [(1, "damaged_line"), (2, "damaged_line")]
    torn = read_bytes(SGLANG, excerpt(shared_dir, "nasty-truncated-last-line.log"))
    assert torn.rejected == [(2, "damaged_line")]


def test_chunks_and_bytes_a_token(shared_dir: Path) -> None:
    context = read_bytes(SGLANG, excerpt(shared_dir, "sglang-0.5.6-batch.log")).context
    assert context.engine_facts["chunk_continuation_lines"] == 1  # 3 sequences − 1: 2 requests
    assert context.engine_facts["kv_bytes_per_token"] == 40_962  # 46.04 × 2^30 / 1 206 848
    assert context.engine_facts["kv_capacity_tokens"] == 1_206_848


def test_text_requests(shared_dir: Path) -> None:
    reading = read_bytes(SGLANG, excerpt(shared_dir, "sglang-0.5.6-requests-level1.log"))
    rows = {row.request_id: row for row in reading.requests}
    assert list(rows) == ["r-1", "r-2", "r-3", "b-0"]
    first = rows["r-1"]
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (4096, 3968, 100)
    assert (first.e2e_ns, first.arrived_at_ns) == (25_400_300_000, 1_764_640_810_100_000_000)
    assert rows["r-2"].e2e_ns == 812 * NS_PER_MS
    assert (rows["r-3"].status, rows["r-3"].prompt_tokens) == ("cancelled", None)
    finished = [row for row in rows.values() if row.status == "ok"]
    assert sum(row.cached_tokens or 0 for row in finished) == 3972
    assert sum(row.prompt_tokens or 0 for row in finished) == 4226


def test_json_requests(shared_dir: Path) -> None:
    data = excerpt(shared_dir, "sglang-0.5.23-requests.jsonl")
    assert sniffed(FORMATS, data) == "sglang_text"
    reading = read_bytes(SGLANG, data)
    first, second = reading.requests
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (8192, 8000, 64)
    tiers = (first.cached_device_tokens, first.cached_host_tokens, first.cached_remote_tokens)
    assert tiers == (2000, 4000, 2000)
    assert (first.ttft_ns, first.queue_ns) == (310 * NS_PER_MS, 20 * NS_PER_MS)
    assert first.session_id == "user-9"
    (wait,) = reading.transfers
    assert (wait.duration_ns, wait.moved_tokens) == (150 * NS_PER_MS, 2000)
    assert (second.prompt_tokens, second.cached_tokens, second.output_tokens) == (50, 0, 5)
    assert second.queue_ns is None


def test_time_stats(shared_dir: Path) -> None:
    reading = read_bytes(SGLANG, excerpt(shared_dir, "sglang-reqtimestats.log"))
    one, two = reading.requests
    assert (one.prompt_tokens, one.output_tokens, one.queue_ns) == (2048, 100, 12_500_000)
    assert (two.prompt_tokens, two.cached_tokens, two.output_tokens) == (32_768, 30_720, 200)
    (move,) = reading.transfers
    assert move.moved_bytes == 1_280_000_000
    assert move.duration_ns == 110 * NS_PER_MS  # 11.6 GB/s


def test_mixed_logs_give_each_program_its_lines(shared_dir: Path) -> None:
    formats = (*VLLM_FORMATS, *FORMATS)
    injected = read_log(formats, excerpt(shared_dir, "nasty-log-injection.log"))
    (request,) = injected["sglang_text"].requests
    assert (request.request_id, request.prompt_tokens) == ("inj", 40)
    assert (request.cached_tokens, request.output_tokens) == (8, 2)
    assert [row.request_id for row in injected["vllm_text"].requests] == ["chatcmpl-inj"]
    glued = read_log(formats, excerpt(shared_dir, "nasty-interleaved.log"))
    assert sums(glued["sglang_text"])[1:] == (321, 15)
    assert glued["vllm_text"].metric("prefix_hit_ratio") == [0.2, 0.3]
    assert len(glued["sglang_text"].rejected) == 1  # one tally for both


def test_a_dump_that_is_read_inert(shared_dir: Path) -> None:
    data = (shared_dir / "log_excerpts" / "sglang-2025-10-05_10-00-00.pkl").read_bytes()
    reading = read_bytes(DUMP_FORMATS[0], data, token_key=b"k" * 16)
    first, second = reading.requests
    assert (first.request_id, first.prompt_tokens, first.cached_tokens) == ("d-1", 128, 64)
    assert (first.e2e_ns, first.status) == (500 * NS_PER_MS, "ok")
    assert (second.request_id, second.status) == ("d-2", "open")
    assert reading.context.found_block_size_tokens == 64
    keys, others = first.block_keys or [], second.block_keys or []
    assert (len(keys), len(others)) == (2, 2)
    assert (keys[0] == others[0], keys[1] == others[1]) == (True, False)  # 64 tokens shared
    assert sniffed((*FORMATS, *DUMP_FORMATS), data) is None  # refused unless allowed
