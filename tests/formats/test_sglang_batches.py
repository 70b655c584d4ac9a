"""Batch and start-up lines of SGLang: fields by name, whole lines only, one rank an engine."""

from __future__ import annotations

import pytest

from kvtrace.ingest.formats.sglang_text import FORMATS
from kvtrace.ingest.formats.sglang_text.batches import looks_spliced
from kvtrace.ingest.registry import all_formats
from kvtrace.schema.metrics import METRICS
from tests.formats.reading import DATA, confidence, read_bytes, sniffed
from tests.formats.sglang import log, metric_of

SGLANG = FORMATS[0]
GOOD = (DATA / "sglang_text" / "good_batches.log").read_bytes()
MALFORMED = (DATA / "sglang_text" / "malformed_batches.log").read_bytes()


def test_the_log_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "sglang_text"
    assert confidence(SGLANG, GOOD) > 0.8
    assert confidence(SGLANG, b"INFO 05-11 12:04:17 [x.py:39] Added request a.\n") == 0.0


def test_prefill_lines_give_their_sums_and_the_share_of_the_batch() -> None:
    reading = read_bytes(SGLANG, GOOD)
    assert reading.metric("new_requests") == [1.0, 2.0, 1.0, 0.0]
    assert reading.metric("computed_tokens") == [4096.0, 512.0, 64.0, 0.0]
    assert reading.metric("cached_tokens") == [1024.0, 0.0, 64.0, 0.0]
    hits = [m for s in reading.samples for m in s.metrics if m.metric == "prompt_hit_ratio"]
    # 1 024 / 5 120; 0 / 512; 64 / 128; 0 / 0 is unknown
    assert [m.value for m in hits] == [0.2, 0.0, 0.5, None]
    assert [(m.numerator, m.denominator) for m in hits[:2]] == [(1024.0, 5120.0), (0.0, 512.0)]
    assert {(m.hit_unit, m.window) for m in hits} == {("tokens", "last_batch")}
    assert "new_tokens_page_rounded" in reading.note_codes
    assert reading.context.evidence_grade == "C"


def test_gauges_are_those_of_the_vocabulary_and_nan_is_unknown() -> None:
    reading = read_bytes(SGLANG, GOOD)
    assert reading.metric("kv_usage_ratio") == [0.01, 0.02, 0.01, 0.02, None]
    assert reading.metric("waiting_requests") == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert reading.metric("kv_used_tokens") == [5632.0]
    assert reading.metric("generation_tokens_per_s") == [87.95]
    metrics = [m for sample in reading.samples for m in sample.metrics]
    assert all(METRICS[m.metric].unit == m.unit for m in metrics)


def test_one_rank_of_an_engine_speaks_for_it() -> None:
    reading = read_bytes(SGLANG, GOOD)
    assert reading.ignored == {"health_check": 1, "duplicate_rank": 1, "other_program": 1}
    assert reading.metric("kv_capacity_tokens") == [1_000_000.0, 1_000_000.0]  # TP0's two lines


def test_with_data_parallel_attention_the_speaking_rank_is_not_number_0() -> None:
    line = "#new-seq: 1, #new-token: 5, #cached-token: 5, token usage: 0.00, #queue-req: 0"
    text = "".join(
        f"[2025-12-01 09:00:00 {label}] Prefill batch. {line}\n"
        for label in ("DP0 TP0", "DP1 TP1", "DP1 TP1", "DP1 PP1 TP1", "PP1", "PP0")
    )
    reading = read_bytes(SGLANG, text.encode())
    assert [sample.engine for sample in reading.samples] == ["DP0", "DP1", "DP1", None]
    assert reading.ignored == {"duplicate_rank": 2}
    assert reading.context.engine_facts["engines"] == 2


def test_servers_that_share_a_file_are_told_apart_by_their_process() -> None:
    line = (
        "[2025-12-01 09:00:00 TP{}] Prefill batch. #new-seq: 1, #new-token: 5, #cached-token: 5,"
        " token usage: 0.00, #queue-req: 0\n"
    )
    text = "".join(
        f"(ServeReplica:app:Dep pid={pid}, ip=192.0.2.4) {line.format(rank)}"
        for pid, rank in ((1, 0), (2, 1), (1, 1), (2, 0))
    )
    reading = read_bytes(SGLANG, text.encode())
    assert len(reading.samples) == 2
    assert reading.ignored == {"duplicate_rank": 2}
    assert "192.0.2.4" not in str(reading.samples)


def test_chunks_that_go_on_are_no_requests() -> None:
    context = read_bytes(SGLANG, GOOD).context  # 4 096 = 4 × 1 024 new, then nothing cached
    assert context.engine_facts["chunk_continuation_lines"] == 1
    pending = log(
        *(
            "Prefill batch, #new-seq: 1, #new-token: 100, #cached-token: 7, token usage: 0.00,"
            f" #running-req: 0, #queue-req: 0, #pending-token: {tokens}"
            for tokens in (500, 400, 0, 0)
        )
    )
    facts = read_bytes(SGLANG, pending).context.engine_facts
    assert facts["chunk_continuation_lines"] == 2


def test_start_up_lines_give_facts_and_nothing_private() -> None:
    context = read_bytes(SGLANG, GOOD).context
    facts = dict(context.engine_facts)
    assert facts.pop("kv_bytes_per_token") == 8590  # 2 ranks × 4.00 GiB / 1 000 000 tokens
    assert facts["llm"] == "tiny-llama"  # the path in front may name a person
    assert facts["tensor_parallel"] == 2
    assert facts["block_size"] == 64
    assert facts["max_model_len"] == 32_768
    assert facts["kv_capacity_tokens"] == 1_000_000
    assert (facts["prefill_chunk_tokens"], facts["running_requests"]) == (4096, 2048)
    assert (facts["hicache"], facts["hicache_storage_backend"]) == ("on", "mooncake")
    assert facts["prefix_caching"] == "on"
    assert facts["slow_log_threshold_ms"] == 2_000
    assert "never-kept" not in str(context)
    assert "somebody" not in str(context)


def test_the_host_pool_of_hicache_is_a_fact() -> None:
    text = log("Allocating 64.50 GB host memory for hierarchical KV cache.", label="TP0")
    facts = read_bytes(SGLANG, text).context.engine_facts
    assert facts == {"hicache_host_bytes_per_rank": 64_500_000_000}


@pytest.mark.parametrize(
    ("start", "capacity", "expected"),
    [
        ("", "K size: 23.02 GB, V size: 23.02 GB", 49_435),  # 46.04 × 2^30 / 10^6
        ("tp_size=1", "KV size: 1.00 GB", 1_074),
        ("tp_size=8", "KV size: 1.00 GB", None),  # copies, or not: not said
        ("tp_size=8, dp_size=8", "K size: 1.00 GB, V size: 1.00 GB", None),
        ("tp_size=4", "K size: 1.00 GB, V size: 1.00 GB", 8_590),  # 4 × 2 GiB / 10^6
    ],
)
def test_bytes_a_token(start: str, capacity: str, expected: int | None) -> None:
    text = log(
        f"server_args=ServerArgs(model_path='a/b', {start})",
        f"KV Cache is allocated. #tokens: 1000000, {capacity}",
    )
    facts = read_bytes(SGLANG, text).context.engine_facts
    assert facts.get("kv_bytes_per_token") == expected


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("Prefill batch. #new-seq: 3, #new-token: 300, #cached-token: 100,"
         " cache hit rate: 25.00%, #running-req: 0, #queue-req: 2", "<0.3.0"),
        ("Prefill batch. #new-seq: 3, #new-token: 300, #cached-token: 100,"
         " cache hit rate: 25.00%, token usage: 0.00, #running-req: 0, #queue-req: 2",
         ">=0.3.0,<0.4.3"),
        ("Prefill batch. #new-seq: 2, #new-token: 300, #cached-token: 100, token usage: 0.12,"
         " #unbootstrapped-req: 1, #queue-req: 4, #transferring-req: 3,"
         " input throughput (token/s): 20480.00 ", ">=0.4.6,<0.5.3"),
        ("Prefill batch, #new-seq: 2, #new-token: 300, #cached-token: 100, token usage: 0.12,"
         " #running-req: 0, #queue-req: 4, ", ">=0.5.6,<0.5.10"),
        ("Prefill batch [7], #new-seq: 2, #new-token: 300, #cached-token: 100,"
         " full token usage: 0.03, swa token usage: 0.01, mamba usage: 0.30, #running-req: 0,"
         " #queue-req: 4, #pending-token: 0, #bootstrap-req: 1, #inflight-req: 2,"
         " npu graph: False, input throughput (token/s): 1.00", ">=0.5.11"),
    ],
)  # fmt: skip
def test_shapes_of_all_versions_are_read_and_tell_the_version(line: str, version: str) -> None:
    reading = read_bytes(SGLANG, log(line))
    assert reading.metric("cached_tokens") == [100.0]
    assert reading.context.engine_version == version
    assert reading.context.engine_version_reason is not None


def test_printed_hit_rate_is_since_the_start() -> None:
    text = log(
        "Prefill batch(mixed #running-req: 4). #new-seq: 1, #new-token: 50, #cached-token: 50,"
        " cache hit rate: 30.00%, #queue-req: 0"
    )
    (sample,) = read_bytes(SGLANG, text).samples
    printed = metric_of(sample, "prefix_hit_ratio")
    assert (printed.value, printed.window, printed.hit_unit) == (0.3, "cumulative", "tokens")
    assert metric_of(sample, "running_requests").value == 4.0


def test_damaged_lines_are_rejected_whole() -> None:
    reading = read_bytes(SGLANG, MALFORMED)
    assert [line for line, _ in reading.rejected] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15]
    assert {reason for _, reason in reading.rejected} == {"damaged_line"}
    # line 11 holds another writer's whole line behind a torn one: that one is read, with its rank
    assert reading.metric("computed_tokens") == [10.0, 7.0]
    assert [sample.engine for sample in reading.samples] == [None, "DP1"]
    assert "spliced_lines" in reading.note_codes


def test_a_number_that_the_file_ends_in_is_damaged() -> None:
    whole = log(
        "Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 30, token usage: 0.10,"
        " #running-req: 0, #queue-req: 0"
    )
    assert read_bytes(SGLANG, whole).rejected == []
    for end in (-1, -2, -20, -60, -110, -125):
        reading = read_bytes(SGLANG, whole + whole[:end])
        assert [reason for _, reason in reading.rejected] == ["damaged_line"], end
        assert reading.metric("new_requests") == [1.0]


def test_a_new_field_is_learned_but_not_at_first_if_it_may_be_two_torn_names() -> None:
    assert looks_spliced("token us graph")
    assert not looks_spliced("#brand-new-req-x")
    line = (
        "Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 30, token us graph: True,"
        " #running-req: 0, #queue-req: 0"
    )
    reading = read_bytes(SGLANG, log(line, line))
    assert [number for number, _ in reading.rejected] == [1]
    assert len(reading.samples) == 1


def test_lines_without_a_time_keep_their_order() -> None:
    line = b"Decode batch. #running-req: 5, #token: 700, token usage: 0.01,"
    line += b" gen throughput (token/s): 85.30, #queue-req: 0\n"
    reading = read_bytes(SGLANG, b"[gpu=0] " + line + line)
    assert [(row.observed_at_ns, row.engine) for row in reading.samples] == [
        (None, "gpu=0"),
        (None, None),
    ]
    assert reading.context.clock == "order"


def test_a_long_line_costs_little() -> None:
    huge = log("Prefill batch, " + "#new-seq: 1, " * 800_000)
    assert [reason for _, reason in read_bytes(SGLANG, huge).rejected] == ["damaged_line"]


def test_no_metric_comes_twice_in_a_sample() -> None:
    text = log(
        "Decode batch, #running-req: 2, #token: 5632, token usage: 0.01, full token usage: 0.02,"
        " gen throughput (token/s): 87.95, #queue-req: 0"
    )
    (sample,) = read_bytes(SGLANG, text).samples
    assert len({metric.metric for metric in sample.metrics}) == len(sample.metrics)
