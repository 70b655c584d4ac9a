"""vLLM text logs: the excerpts of the shared folder and the values that were worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.vllm_text import FORMATS
from kvtrace.ingest.joining.request_ids import call_id
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import Reading, decoded, read_bytes, read_log, sniffed

VLLM = FORMATS[0]
LOGS = "log_excerpts"


def excerpt(shared_dir: Path, name: str) -> Reading:
    return read_bytes(VLLM, decoded(shared_dir / LOGS / name), token_key=b"k" * 32)


def facts(row: RequestRow) -> tuple[str | None, str, int | None, int | None]:
    return row.request_id, row.status, row.prompt_tokens, row.output_tokens


def arrivals(reading: Reading) -> list[str]:
    return [
        datetime.fromtimestamp((row.arrived_at_ns or 0) / 1e9, UTC).isoformat()
        for row in reading.requests
    ]


def moves(reading: Reading) -> list[tuple[str, str | None, int | None, int | None]]:
    return [
        (row.direction, row.path, row.moved_bytes, row.duration_ns) for row in reading.transfers
    ]


@pytest.mark.shared
def test_excerpt_0_4_2(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.4.2-v0-requests.log")
    first, second = reading.requests
    assert (first.prompt_tokens, first.status, first.e2e_ns) == (20, "ok", 4_000_000_000)
    assert (second.prompt_tokens, second.status, second.adapter) == (36, "cancelled", "adapter-a")
    assert first.cached_tokens is None
    assert reading.metric("prefix_hit_ratio") == []
    assert reading.context.evidence_grade == "A"
    # 20 ids are a whole block and one of four; 36 ids two whole ones and one of four
    first_keys, second_keys = list(first.block_keys or ()), list(second.block_keys or ())
    assert (len(first_keys), len(second_keys)) == (2, 3)
    assert first_keys[0] != second_keys[0]  # the second has an adapter
    assert {"naive_clock", "year_assumed"} <= reading.note_codes


@pytest.mark.shared
def test_excerpt_0_6_6(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.6.6-v0-prefix.log")
    assert [facts(row)[1:] for row in reading.requests] == [("open", None, None)]
    assert reading.metric("prefix_hit_ratio") == [0.4521, 0.4702]
    assert reading.metric("waiting_requests") == [2.0, 0.0]
    assert reading.context.engine_facts["kv_capacity_tokens"] == 447_184
    assert {m.hit_unit for s in reading.samples for m in s.metrics} == {None, "blocks"}
    stats = [s for s in reading.samples if s.metrics[0].metric == "prompt_tokens_per_s"]
    assert (stats[1].observed_at_ns or 0) - (stats[0].observed_at_ns or 0) == 5_000_000_000
    assert reading.context.engine_facts["block_size"] == 16


@pytest.mark.shared
def test_excerpt_0_8_5(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.8.5-v1-requests.log")
    assert [facts(row) for row in reading.requests] == [
        ("chatcmpl-b7", "open", None, None),
        ("cmpl-c8-0", "cancelled", 33, None),
    ]
    assert [row.e2e_ns for row in reading.requests] == [None, 11_000_000_000]
    assert reading.metric("prefix_hit_ratio") == [0.0, 0.314]
    assert {m.hit_unit for s in reading.samples for m in s.metrics} == {None, "blocks"}
    assert reading.context.engine_facts["kv_capacity_tokens"] == 415_904


@pytest.mark.shared
def test_excerpt_0_11_0(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.11.0-v1-procprefix.log")
    assert [facts(row) for row in reading.requests] == [("chatcmpl-d4", "ok", None, 2)]
    assert reading.requests[0].e2e_ns == 3_000_000_000
    assert reading.context.engine_facts["kv_capacity_tokens"] == 1_219_632
    assert reading.context.engine_version == "0.11.0"
    assert reading.metric("prompt_tokens_per_s") == [104.8]  # × 10 s = 1 048 prompt tokens
    assert reading.context.engine_facts["prompt_tokens_per_s_counts"] == "prompt_tokens"
    (memory,) = reading.metric("kv_memory_bytes")
    assert round((memory or 0) / 1_219_632) == 49_152  # a token, on one rank


@pytest.mark.shared
def test_excerpt_0_13_takes_the_year_from_its_neighbours(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.13.0-lmcache-external.log")
    assert arrivals(reading) == ["2025-12-11T03:07:30+00:00"]
    assert reading.metric("prefix_hit_ratio") == [0.455]
    assert reading.metric("external_prefix_hit_ratio") == [0.992]
    assert reading.ignored == {"other_program": 6}


@pytest.mark.shared
def test_excerpt_0_22(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.22-info-and-debug.log")
    assert [facts(row) for row in reading.requests] == [("chatcmpl-5d0c1b2a3f4e5d6c", "ok", 48, 3)]
    assert reading.metric("mm_hit_ratio") == [0.125]
    assert reading.context.evidence_grade == "A"
    assert len(reading.requests[0].block_keys or ()) == 3  # 48 ids
    assert reading.metric("prompt_tokens_per_s") == [1.6]


@pytest.mark.shared
def test_excerpt_0_33(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.33.0-newest.log")
    assert [row.e2e_ns for row in reading.requests] == [3_000_000_000]
    assert reading.metric("prefix_hit_ratio") == [0.182, 0.8, 0.8]  # the first line has none
    assert reading.metric("kv_usage_ratio") == [0.004, 0.051, 0.41, 0.125, 0.01]
    assert reading.metric("deferred_requests") == [3.0]
    assert reading.metric("kv_fetch_running_requests") == [2.0]
    assert reading.ignored["dummy_iteration"] == 1
    assert reading.metric("waiting_requests") == [0.0, 7.0, 0.0, 0.0]
    assert reading.context.engine_facts["waiting_includes_deferred"] == "yes"
    assert reading.metric("kv_fetch_waiting_requests") == [1.0]
    assert reading.metric("kv_fetch_done_requests") == [0.0]
    assert [facts(row) for row in reading.requests] == [("chatcmpl-77aa", "ok", None, None)]
    assert moves(reading) == [("hand_off", "remote>device", 700_448_768, 154_800_000)]
    assert reading.metric("failed_kv_transfers") == [1.0]
    assert reading.samples[-2].engine == "8 Engines Aggregated"
    assert "engines_aggregated" in reading.note_codes


@pytest.mark.shared
def test_excerpt_of_connectors(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-kv-connector-metrics.log")
    assert moves(reading) == [
        ("hand_off", "remote>device", 288 * 2**20, 37_500_000),
        ("store", "device>host", 2**30, 100_000_000),
        ("load", "host>device", 2**29, 25_000_000),  # 20 GiB/s
        ("hand_off", "remote>device", None, 20_000_000),
    ]
    assert reading.metric("kv_transfers") == [3.0, 2.0]
    assert reading.metric("kv_moved_bytes") == [288.0 * 2**20]
    assert reading.metric("kv_move_s") == [0.0375, 0.02]
    assert reading.metric("kv_stored_bytes") == [2.0**30]
    assert reading.metric("kv_store_s") == [0.1]
    assert reading.metric("kv_loaded_bytes") == [2.0**29]
    assert reading.metric("kv_load_s") == [0.025]


@pytest.mark.shared
def test_excerpt_json_formatter(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "vllm-0.33-json-formatter.jsonl")
    assert [row.request_id for row in reading.requests] == ["chatcmpl-j1"]
    assert arrivals(reading) == ["2026-11-20T09:00:11.004000+00:00"]
    assert reading.metric("prefix_hit_ratio") == [0.125]
    assert reading.context.clock_resolution_ns == 1_000_000


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "requests", "hits", "rejected"),
    [
        ("vllm-kv-connector-metrics.log", [], [], 0),
        ("nasty-ansi-tty.log", [], [0.125], 0),
        ("nasty-crlf-multiline.log", [], [0.5], 0),
        ("nasty-docker-jsonfile.log", ["chatcmpl-zz"], [0.314], 0),
        (
            "nasty-duplicate-ids.log",
            ["cmpl-user-7-0", "cmpl-user-7-1", "cmpl-user-7-0", "0_cmpl-par-0", "1_cmpl-par-0"],
            [],
            0,
        ),
        ("nasty-interleaved.log", [], [0.2, 0.3], 1),
        ("nasty-journald-syslog.log", ["chatcmpl-jd", "chatcmpl-5424"], [0.15], 0),
        ("nasty-k8s-cri.log", ["chatcmpl-cri"], [0.1], 0),
        ("nasty-log-injection.log", ["chatcmpl-inj"], [], 0),
        ("nasty-year-wrap.log", ["chatcmpl-old", "chatcmpl-new"], [0.01, 0.02], 0),
        ("nasty-10mb-line.log.zst", ["chatcmpl-big"], [], 0),
        ("aibrix-llmd-kserve-ray.log", ["chatcmpl-017"], [0.667], 0),
    ],
)
def test_other_excerpts(
    shared_dir: Path, name: str, requests: list[str], hits: list[float], rejected: int
) -> None:
    reading = excerpt(shared_dir, name)
    assert [row.request_id for row in reading.requests] == requests
    assert reading.metric("prefix_hit_ratio") == hits
    assert len(reading.rejected) == rejected
    assert sniffed((VLLM,), decoded(shared_dir / LOGS / name)) == "vllm_text"


@pytest.mark.shared
def test_container_time_stamps_make_the_clock(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "nasty-docker-jsonfile.log")
    assert reading.context.clock == "utc"
    assert reading.samples[0].observed_at_ns == 1_746_965_067_123_456_789


@pytest.mark.shared
def test_new_year_is_twelve_seconds_long(shared_dir: Path) -> None:
    old, new = excerpt(shared_dir, "nasty-year-wrap.log").requests
    assert (new.arrived_at_ns or 0) - (old.arrived_at_ns or 0) == 12_000_000_000


@pytest.mark.shared
def test_reused_ids_batches_and_samples_are_engine_requests_of_three_calls(
    shared_dir: Path,
) -> None:
    reading = excerpt(shared_dir, "nasty-duplicate-ids.log")
    assert len(reading.requests) == 5
    calls = {(call_id(row.request_id or ""), row.arrived_at_ns) for row in reading.requests}
    assert len(calls) == 3  # user-7 as a batch of two, user-7 again, par


@pytest.mark.shared
def test_torn_lines_of_two_engines_and_two_programs(shared_dir: Path) -> None:
    dialects = [entry for entry in all_formats() if entry.dialect is not None]
    readings = read_log(dialects, decoded(shared_dir / LOGS / "nasty-interleaved.log"))
    vllm, sglang = readings["vllm_text"], readings["sglang_text"]
    assert [(s.engine, s.metrics[-1].value) for s in vllm.samples] == [
        ("Engine 000", 0.2),
        ("Engine 001", 0.3),
    ]
    assert vllm.rejected == [(3, "damaged_line")]
    assert "spliced_lines" in vllm.note_codes
    assert sum(value or 0 for value in sglang.metric("computed_tokens")) == 321
    assert sum(value or 0 for value in sglang.metric("cached_tokens")) == 15


@pytest.mark.shared
def test_a_prompt_of_ten_megabytes_is_one_request(shared_dir: Path) -> None:
    reading = excerpt(shared_dir, "nasty-10mb-line.log.zst")
    assert [facts(row) for row in reading.requests] == [("chatcmpl-big", "open", None, None)]
    assert (reading.rejected, reading.ignored) == ([], {})
