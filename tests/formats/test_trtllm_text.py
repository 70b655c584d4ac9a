"""TensorRT-LLM iteration lines: one rank, unknown as null, device time on the step it is of."""

from __future__ import annotations

from datetime import UTC, datetime

from kvtrace.ingest.formats.trtllm_text import FORMATS
from tests.formats.reading import DATA, confidence, read_bytes

TRTLLM = FORMATS[0]
GOOD = (DATA / "trtllm_text" / "good.log").read_bytes()
MALFORMED = (DATA / "trtllm_text" / "malformed.log").read_bytes()


def test_one_rank_is_counted_and_every_field_is_found_by_name() -> None:
    reading = read_bytes(TRTLLM, GOOD)
    assert len(reading.samples) == 5
    assert reading.metric("iteration_context_tokens") == [16384.0, 0.0, 0.0, 0.0]
    assert reading.metric("iteration_generation_tokens") == [1.0, 0.0, 1.0, 768.0]
    assert reading.metric("iteration_elapsed_s") == [0.0505, 0.007, 0.009, 0.0792, None]
    assert reading.metric("running_requests") == [3.0, 0.0, 1.0, 244.0, 2.0]
    assert reading.metric("kv_usage_ratio") == [0.125, None]  # N/A is unknown
    assert reading.ignored == {"duplicate_rank": 1, "other_engine_line": 1}
    assert reading.context.engine_facts == {"kv_capacity_tokens": 655_360, "ranks": 2}


def test_held_tokens_are_no_hits() -> None:
    reading = read_bytes(TRTLLM, GOOD)
    assert reading.metric("kv_used_tokens") == [63821.0]
    assert all(m.hit_unit is None for sample in reading.samples for m in sample.metrics)
    assert reading.context.evidence_grade == "C"  # aggregates, without a hit ratio


def test_device_time_is_of_the_step_before_unless_that_was_empty_or_is_missing() -> None:
    samples = read_bytes(TRTLLM, GOOD).samples
    device = [
        [m.value for m in sample.metrics if m.metric == "iteration_device_s"] for sample in samples
    ]
    # 49.1 ms on line 11 is of step 10; 12 s on line 12 is idle time after the empty step 11;
    # line 14 does not follow 12; line 15 prints none
    assert device == [[0.0491], [], [], [], []]


def test_time_is_that_of_the_line_or_of_the_message() -> None:
    def seconds(data: bytes) -> list[str]:
        return [
            datetime.fromtimestamp((row.observed_at_ns or 0) / 1e9, UTC).isoformat()
            for row in read_bytes(TRTLLM, data).samples
        ]

    assert seconds(GOOD)[0] == "2026-01-16T06:20:17+00:00"
    bare = b"\n".join(line.rpartition(b"] iter")[2] for line in GOOD.splitlines()[5:7])
    bare = b"iter" + bare.replace(b"\n", b"\niter") + b"\n"
    assert seconds(bare) == ["2026-01-16T06:20:30+00:00", "2026-08-04T19:08:13+00:00"]


def test_version_is_printed_or_told_by_the_spelling() -> None:
    context = read_bytes(TRTLLM, GOOD).context
    assert (context.engine, context.engine_version) == ("tensorrt_llm", "1.2.0")
    unnamed = read_bytes(TRTLLM, b"\n".join(GOOD.splitlines()[3:6]) + b"\n").context
    assert unnamed.engine_version is None
    assert "1.0 or 1.1" in (unnamed.engine_version_reason or "")


def test_damaged_lines_are_never_half_read() -> None:
    reading = read_bytes(TRTLLM, MALFORMED)
    assert reading.rows == []
    reasons = [reason for _line, reason in reading.rejected]
    assert reasons == ["damaged_line"] * 7 + ["invalid_time"] + ["damaged_line"] * 2
    assert reading.context.engine_facts == {}


def test_sniff_knows_its_lines() -> None:
    assert confidence(TRTLLM, GOOD) > 0.9
    assert confidence(TRTLLM, b"iter = 5 of 10 done\n") == 0.0
