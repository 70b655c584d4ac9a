"""vLLM text logs: requests once, statistics whole or not at all, prompts never believed."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.vllm_text import FORMATS, iterations
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, Reading, confidence, read_bytes, sniffed

VLLM = FORMATS[0]
GOOD_V0 = (DATA / "vllm_text" / "good_v0.log").read_bytes()
GOOD_V1 = (DATA / "vllm_text" / "good_v1.log").read_bytes()
MALFORMED = (DATA / "vllm_text" / "malformed.log").read_bytes()

STATS = (
    "Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 5.0 tokens/s,"
    " Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
)


def lines(*messages: str, day: str = "06-01", end: str = "\n") -> bytes:
    """A log of INFO lines, one second apart."""
    stamped = [
        f"INFO {day} 12:00:{second:02d} [x.py:1] {message}"
        for second, message in enumerate(messages)
    ]
    return ("\n".join(stamped) + end).encode()


def facts(row: RequestRow) -> tuple[str | None, str, int | None, int | None]:
    return row.request_id, row.status, row.prompt_tokens, row.output_tokens


def arrivals(reading: Reading) -> list[str]:
    return [
        datetime.fromtimestamp((row.arrived_at_ns or 0) / 1e9, UTC).isoformat()
        for row in reading.requests
    ]


def test_v0_requests_are_counted_once_and_end_when_finished_or_aborted() -> None:
    reading = read_bytes(VLLM, GOOD_V0)
    assert [facts(row) for row in reading.requests] == [
        ("cmpl-aa-0", "ok", 5, None),
        ("cmpl-bb-0", "cancelled", 3, None),
        ("cmpl-aa-0", "open", None, None),  # the id again after its end: a new request
    ]
    assert [row.e2e_ns for row in reading.requests] == [2_000_000_000, 5_000_000_000, None]
    assert [row.adapter for row in reading.requests] == [None, "adapter-b", None]
    assert reading.ignored == {"access_line": 1, "health_check": 1}


def test_v0_statistics_take_two_lines() -> None:
    reading = read_bytes(VLLM, GOOD_V0)
    assert reading.metric("waiting_requests") == [2.0]
    assert reading.metric("swapped_requests") == [0.0]
    assert reading.metric("kv_usage_ratio") == [0.003]
    hits = [m for s in reading.samples for m in s.metrics if m.metric == "prefix_hit_ratio"]
    assert [(m.value, m.hit_unit, m.window) for m in hits] == [(0.333, "blocks", "cumulative")]
    assert reading.metric("cpu_prefix_hit_ratio") == []  # −1: off, not zero


def test_v0_start_up_gives_engine_facts() -> None:
    context = read_bytes(VLLM, GOOD_V0).context
    assert context.engine_version == "0.6.3.post1"
    assert context.engine_facts == {
        "llm": "tiny-llama",  # the path in front may name a person
        "tensor_parallel": 2,
        "pipeline_parallel": 1,
        "max_model_len": 1024,
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "prefix_caching": "on",
        "kv_capacity_blocks": 6400,
        "block_size": 32,  # 6 400 × 32 / 1 024 = 200.00, as printed
        "kv_capacity_tokens": 204_800,
        "prefix_hit_ratio_counts": "blocks",
        "prompt_tokens_per_s_counts": "prompt_tokens",
        "preemptions_counted_as_hits": "yes",
        "last_prompt_position_can_hit": "no",
    }


def test_v1_requests_are_ok_only_with_proof() -> None:
    reading = read_bytes(VLLM, GOOD_V1)
    assert [facts(row) for row in reading.requests] == [
        ("chatcmpl-a", "ok", 3, 2),
        ("chatcmpl-open", "open", None, None),
    ]
    assert reading.requests[0].e2e_ns == 3_000_000_000
    assert reading.requests[0].flags == ("e2e_in_whole_seconds",)
    assert reading.requests[0].llm == "acme/tiny-llama"
    assert reading.ignored == {"response_delta": 1, "access_line": 1}
    assert len(reading.transfers) == 1


def test_v1_statistics_keep_engine_unit_and_window() -> None:
    reading = read_bytes(VLLM, GOOD_V1)
    stats = [s for s in reading.samples if any(m.metric == "running_requests" for m in s.metrics)]
    assert [s.engine for s in stats] == ["Engine 000", "Engine 001", "2 Engines Aggregated"]
    hits = [m for s in stats for m in s.metrics if m.metric == "prefix_hit_ratio"]
    assert [(m.value, m.hit_unit, m.window) for m in hits] == [
        (0.4, "tokens", "last_1000_requests"),
        (0.41, "tokens", "last_1000_requests"),
    ]
    assert reading.metric("external_prefix_hit_ratio") == [0.05]


def test_absent_hit_field_is_no_metric() -> None:
    reading = read_bytes(VLLM, lines(f"Engine 000: {STATS}"))
    assert reading.context.evidence_grade == "L"  # no word about reuse
    assert read_bytes(VLLM, GOOD_V1).context.evidence_grade == "C"
    assert reading.metric("kv_usage_ratio") == [0.01]
    assert reading.metric("prefix_hit_ratio") == []


def test_v1_capacity_is_that_of_its_engine() -> None:
    reading = read_bytes(VLLM, GOOD_V1)
    capacity = next(s for s in reading.samples if s.metrics[0].metric == "kv_capacity_tokens")
    assert capacity.engine == "Engine 001"
    assert reading.metric("kv_memory_bytes") == [2 * 2**30]
    assert reading.metric("max_concurrency") == [29.78]
    assert reading.context.engine_facts["kv_capacity_tokens"] == 1_219_632
    assert reading.context.engine_facts["tensor_parallel"] == 4
    assert reading.context.engine_facts["engines"] == 2


def test_damaged_lines_are_rejected_whole() -> None:
    reading = read_bytes(VLLM, MALFORMED)
    assert reading.rejected == [
        (2, "damaged_line"),
        (3, "damaged_line"),
        (4, "damaged_line"),
        (5, "damaged_line"),
        (6, "invalid_time"),
        (9, "damaged_line"),
        *[(line, "damaged_line") for line in range(11, 22)],  # one of every other kind
        (22, "damaged_line"),  # the file ends in a number
    ]
    assert (reading.requests, reading.transfers) == ([], [])
    assert reading.metric("prefix_hit_ratio") == [0.5]
    assert reading.ignored == {"end_without_start": 1, "other_text": 2}


@pytest.mark.parametrize(
    "tail",
    [
        "# GPU blocks: 27949, # CPU blocks: 20",
        "GPU KV cache size: 415,9",
        "vLLM API server version 0.1",
        "Maximum concurrency for 32,768 tokens per request: 12.6",
        "Added request chatcmpl-a",
        f"Engine 000: {STATS[:-3]}",
    ],
)
def test_number_at_the_end_of_a_cut_file_is_damaged(tail: str) -> None:
    reading = read_bytes(VLLM, lines("Added request a.", tail, end=""))
    assert reading.rejected == [(2, "damaged_line")]
    assert "kv_capacity_tokens" not in reading.context.engine_facts


def test_statistics_cut_between_fields_at_the_end_of_the_file_are_damaged() -> None:
    whole = f"Engine 000: {STATS}, Prefix cache hit rate: 50.0%"
    cut = read_bytes(VLLM, lines(whole, f"Engine 000: {STATS}", end=""))
    assert cut.rejected == [(2, "damaged_line")]
    ended = read_bytes(VLLM, lines(whole, f"Engine 000: {STATS}"))
    assert ended.rejected == []


@given(st.text(max_size=60), st.booleans())
def test_no_prompt_passes_for_a_log_line(prompt: str, fake: bool) -> None:
    if fake:
        prompt += "', params: X(), prompt_token_ids: [1], lora_request: None.\nAdded request b."
    message = (
        f"Received request a: prompt: {prompt!r}, params: SamplingParams(n=1),"
        " prompt_token_ids: [1, 2, 3], lora_request: None."
    )
    reading = read_bytes(VLLM, lines(message))
    assert [(row.request_id, row.prompt_tokens) for row in reading.requests] in (
        [("a", 3)],
        [("a", None)],  # three characters beside three ids: cut by --max-log-len
    )
    assert reading.rejected == []


@given(st.integers(min_value=0, max_value=len(GOOD_V1)))
def test_file_cut_anywhere_invents_nothing(length: int) -> None:
    whole, cut = read_bytes(VLLM, GOOD_V1), read_bytes(VLLM, GOOD_V1[:length])
    names = {m.metric for sample in whole.samples for m in sample.metrics}
    assert {row.request_id for row in cut.requests} <= {row.request_id for row in whole.requests}
    for name in names:
        seen = cut.metric(name)
        assert seen == whole.metric(name)[: len(seen)]


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_counted_and_never_raise(parts: list[bytes]) -> None:
    data = b"\n".join(GOOD_V0[at * 90 : at * 90 + 60] + part for at, part in enumerate(parts))
    reading = read_bytes(VLLM, data)  # fails if a record has no outcome
    assert len(reading.requests) <= len(parts)


def test_prompt_cut_by_max_log_len_has_no_token_count() -> None:
    message = (
        "Received request a: prompt: 'abcde', params: SamplingParams(n=1),"
        " prompt_token_ids: [1, 2, 3, 4, 5], lora_request: None."
    )
    row = read_bytes(VLLM, lines(message)).requests[0]
    assert row.prompt_tokens is None
    assert row.flags == ("prompt_truncated",)


def test_details_line_supplies_prompt_tokens() -> None:
    reading = read_bytes(
        VLLM,
        lines(
            "Received request a: params: SamplingParams(n=1), lora_request: None.",
            "Request a details: prompt: 'hello you', prompt_token_ids: [1, 2],"
            " prompt_embeds shape: None.",
            "Request z details: prompt: None, prompt_token_ids: [1], prompt_embeds shape: None.",
        ),
    )
    assert [facts(row) for row in reading.requests] == [("a", "open", 2, None)]
    assert reading.ignored == {"details_without_request": 1}


def test_response_details_supply_output_tokens() -> None:
    reading = read_bytes(
        VLLM,
        lines(
            "Received request a: params: SamplingParams(n=1), lora_request: None.",
            "Generated response a: output: 'y', finish_reason: stop",
            "Generated response a details: output_token_ids: [4, 5, 6]",
        ),
    )
    assert [facts(row) for row in reading.requests] == [("a", "ok", None, 3)]


def test_suffix_of_engine_ids_joins_the_request() -> None:
    reading = read_bytes(
        VLLM,
        lines(
            "Received request chatcmpl-a: params: SamplingParams(n=1), lora_request: None.",
            "Added request chatcmpl-a-1a2b3c4d.",
            "Added request chatcmpl-b-1a2b3c4d.",  # nothing to join: stays as it is
            "Aborted request(s) chatcmpl-a-1a2b3c4d,chatcmpl-b-1a2b3c4d.",
        ),
    )
    assert [facts(row) for row in reading.requests] == [
        ("chatcmpl-a", "cancelled", None, None),
        ("chatcmpl-b-1a2b3c4d", "cancelled", None, None),
    ]


def test_samples_of_one_call_are_engine_requests() -> None:
    reading = read_bytes(
        VLLM,
        lines(
            "Received request a: prompt: 'some text', params: SamplingParams(n=2),"
            " prompt_token_ids: [1, 2], prompt_embeds shape: None, lora_request: None.",
            "Added request 0_a.",
            "Added request 1_a.",
            "Generated response a: output: 'y', output_token_ids: [1], finish_reason: stop",
        ),
    )
    assert [facts(row) for row in reading.requests] == [
        ("0_a", "ok", 2, None),
        ("1_a", "ok", 2, None),
    ]
    assert all("parallel_sample" in row.flags for row in reading.requests)


def test_same_kind_of_event_again_is_a_new_request() -> None:
    reading = read_bytes(VLLM, lines("Added request a.", "Added request a."))
    assert len(reading.requests) == 2


def test_id_after_a_restart_is_a_new_request() -> None:
    received = "Received request a: params: SamplingParams(n=1), lora_request: None."
    reading = read_bytes(
        VLLM, lines(received, "vLLM API server version 0.12.0", "Added request a.")
    )
    assert len(reading.requests) == 2


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("Request a aborted.", "cancelled"),
        ("Request a failed (bad request).", "error"),
        ("Generated response a: output: '', finish_reason: abort", "cancelled"),
        ("Generated response a: output: '', finish_reason: length", "ok"),
    ],
)
def test_ends_have_their_status(message: str, status: str) -> None:
    reading = read_bytes(VLLM, lines("Added request a.", message))
    assert [row.status for row in reading.requests] == [status]


def test_hit_unit_is_open_where_the_version_is() -> None:
    hit = f"Engine 000: {STATS}, Prefix cache hit rate: 50.0%"
    units = {}
    for version in ("0.8.5", "0.9.0", "0.9.1", None):
        banner = [f"vLLM API server version {version}"] if version else []
        reading = read_bytes(VLLM, lines(*banner, hit))
        metric = reading.samples[-1].metrics[-1]
        units[version] = metric.hit_unit
    assert units == {"0.8.5": "blocks", "0.9.0": None, "0.9.1": "tokens", None: None}


def test_prompt_throughput_counts_by_version() -> None:
    counted = {}
    for version in ("0.15.1", "0.16.0", "0.17.1"):
        data = lines(f"vLLM API server version {version}", f"Engine 000: {STATS}")
        facts = read_bytes(VLLM, data).context.engine_facts
        counted[version] = facts.get("prompt_tokens_per_s_counts")
    assert counted == {"0.15.1": "prompt_tokens", "0.16.0": None, "0.17.1": "computed_tokens"}


def test_gpu_lines_are_facts() -> None:
    data = b"GPU 0: NVIDIA L40S (UUID: GPU-0-0)\nGPU 1: NVIDIA L40S\nGPU 2: on fire\n"
    reading = read_bytes(VLLM, data)
    assert reading.context.engine_facts == {"gpu": "NVIDIA L40S", "gpus": 2}
    assert reading.context.tally.used == 2
    assert reading.ignored == {"other_text": 1}


def test_iterations_are_samples_and_dummies_are_not() -> None:
    reading = read_bytes(
        VLLM,
        lines(
            "Iteration(7): 1 context requests, 4096 context tokens, 5 generation requests,"
            " 5 generation tokens, iteration elapsed time: 10.25 ms",
            "Engine 001: Iteration(8): 0 context requests, 0 context tokens,"
            " 1 generation requests, 1 generation tokens, iteration elapsed time: 3.10 ms (dummy),"
            " GPU KV cache usage: 5.1%",
            "Iteration(9): 1 context requests, 40 con",
        ),
    )
    assert reading.metric("iteration_elapsed_s") == [0.01025]
    assert reading.metric("iteration_context_tokens") == [4096.0]
    assert reading.ignored == {"dummy_iteration": 1}
    assert reading.rejected == [(3, "damaged_line")]


def test_unknown_statistics_field_is_noted_and_the_rest_kept() -> None:
    reading = read_bytes(VLLM, lines(f"Engine 000: {STATS}, Moon phase: 3 reqs"))
    assert reading.metric("running_requests") == [1.0]
    assert "unknown_stats_field" in reading.note_codes


def test_year_of_the_last_line_is_that_of_the_file() -> None:
    data = (
        b"INFO 12-31 23:59:58 [x.py:1] Added request old.\n"
        b"INFO 01-01 00:00:10 [x.py:1] Added request new.\n"
    )
    modified = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) * 10**9
    reading = read_bytes(VLLM, data, modified_at_ns=modified)
    assert arrivals(reading) == ["2025-12-31T23:59:58+00:00", "2026-01-01T00:00:10+00:00"]
    assert {"year_assumed", "naive_clock"} <= reading.note_codes
    given_year = read_bytes(VLLM, data, year=2024)
    assert arrivals(given_year) == ["2023-12-31T23:59:58+00:00", "2024-01-01T00:00:10+00:00"]


def test_last_line_is_not_younger_than_the_file() -> None:
    modified = int(datetime(2026, 1, 5, tzinfo=UTC).timestamp()) * 10**9
    reading = read_bytes(VLLM, lines("Added request a.", day="12-30"), modified_at_ns=modified)
    assert arrivals(reading) == ["2025-12-30T12:00:00+00:00"]


def test_leap_day_moves_an_assumed_year_and_refuses_a_given_one() -> None:
    data = lines("Added request a.", day="02-29")
    modified = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * 10**9
    assert arrivals(read_bytes(VLLM, data, modified_at_ns=modified)) == [
        "2024-02-29T12:00:00+00:00"
    ]
    assert read_bytes(VLLM, data, year=2025).requests[0].arrived_at_ns is None


def test_tz_moves_the_clock_to_utc() -> None:
    reading = read_bytes(VLLM, lines("Added request a."), year=2025, tz="Asia/Shanghai")
    assert arrivals(reading) == ["2025-06-01T04:00:00+00:00"]
    assert reading.context.clock == "utc"
    assert reading.context.clock_resolution_ns == 10**9


def test_it_is_recognised_by_votes_of_lines() -> None:
    assert sniffed(all_formats(), GOOD_V0) == "vllm_text"
    assert sniffed(all_formats(), GOOD_V1) == "vllm_text"
    assert sniffed(all_formats(), MALFORMED) == "vllm_text"
    assert sniffed(all_formats(), b"hello\nworld\n") is None
    assert confidence(VLLM, b"[2026-01-01 00:00:00 TP0] Prefill batch, #new-seq: 1\n") == 0


def test_no_field_holds_prompt_text() -> None:
    for row in read_bytes(VLLM, GOOD_V0).requests:
        assert "hi" not in str(row.request_id)
        assert "He said" not in repr(row)


def test_long_line_costs_linear_time() -> None:
    filler = "lorem \\' params: SamplingParams(n=1), prompt_token_ids: [1], Added request f. "
    message = (
        f"Received request big: prompt: '{filler * 130_000}', params: SamplingParams(n=1),"
        " prompt_token_ids: None, lora_request: None."
    )
    data = lines(message)
    assert len(data) > 9_500_000
    started = time.process_time()
    reading = read_bytes(VLLM, data)
    assert time.process_time() - started < 2.0  # 1 s is due; twice that under load
    assert [row.request_id for row in reading.requests] == ["big"]


def _with_ids(request_id: str, ids: list[int]) -> str:
    return (
        f"INFO 05-31 16:44:58 async_llm_engine.py:529] Received request {request_id}: "
        f"prompt: None, sampling_params: SamplingParams(n=1), prompt_token_ids: {ids}, "
        "lora_request: None.\n"
        f"INFO 05-31 16:44:59 async_llm_engine.py:120] Finished request {request_id}.\n"
    )


def test_printed_token_ids_give_block_identity() -> None:
    log = _with_ids("a", list(range(40))) + _with_ids("b", [*range(32), 7])
    reading = read_bytes(VLLM, log.encode(), token_key=b"k" * 32)
    first, second = (row.block_keys for row in reading.requests)
    assert first is not None
    assert second is not None
    assert (len(first), len(second)) == (3, 3)
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert reading.context.evidence_grade == "A"
    assert reading.context.found_block_size_tokens == 16


def test_token_ids_of_few_requests_are_not_taken_for_the_reuse_of_all() -> None:
    chat = (
        "INFO 05-31 16:44:58 async_llm_engine.py:529] Received request {}: prompt: 'x', "
        "sampling_params: SamplingParams(n=1), prompt_token_ids: None, lora_request: None.\n"
    )
    log = _with_ids("a", list(range(40))) + chat.format("b") + chat.format("c")
    reading = read_bytes(VLLM, log.encode(), token_key=b"k" * 32)
    assert reading.context.found_block_size_tokens is None  # nobody reads the blocks then
    assert reading.context.evidence_grade == "L"


@pytest.mark.parametrize("number", ["9" * 400, "\u0663\u0664", "1e5", "0x1", "--1", "1,000"])
def test_what_is_no_number_damages_the_line(number: str) -> None:
    stats = STATS.replace("Running: 1", f"Running: {number}")
    iteration = (
        f"Iteration(7): {number} context requests, 40 context tokens, 5 generation requests,"
        " 5 generation tokens, iteration elapsed time: 1.00 ms"
    )
    reading = read_bytes(VLLM, lines(f"Engine 000: {stats}", iteration))
    assert reading.rejected == [(1, "damaged_line"), (2, "damaged_line")]
    assert reading.samples == []


def test_less_than_nothing_is_unknown() -> None:
    reading = read_bytes(VLLM, lines(f"Engine 000: {STATS.replace('1.0%', '-1.0%')}"))
    assert reading.metric("kv_usage_ratio") == [None]


def test_iterations_past_the_first_are_pooled_by_engine_and_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iterations, "MAX_SINGLE", 1)
    step = (
        "Engine 00{}: Iteration({}): 1 context requests, {} context tokens, 2 generation requests,"
        " 2 generation tokens, iteration elapsed time: {}.50 ms{}"
    )
    usage = ", GPU KV cache usage: 5.0%"
    second = [
        step.format(0, 1, 100, 10, usage),  # alone
        step.format(0, 2, 10, 20, usage),
        step.format(1, 3, 70, 30, ""),
        step.format(0, 4, 30, 40, ""),
    ]
    at = "INFO 06-01 12:00:0{} [x.py:1] "
    log = [at.format(0) + text for text in second] + [at.format(1) + second[1]]
    reading = read_bytes(VLLM, ("\n".join(log) + "\n").encode())
    assert [(s.engine, s.line) for s in reading.samples] == [
        ("Engine 000", 1),
        ("Engine 000", 2),  # and 4
        ("Engine 001", 3),
        ("Engine 000", 5),
    ]
    pooled = {m.metric: m for m in reading.samples[1].metrics}
    elapsed, tokens = pooled["iteration_elapsed_s"], pooled["iteration_context_tokens"]
    # 20.5 ms and 40.5 ms: 61 ms in two steps; 10 and 30 tokens
    assert (elapsed.value, elapsed.numerator, elapsed.denominator) == (0.0305, 0.061, 2.0)
    assert (tokens.value, tokens.numerator, tokens.denominator) == (20.0, 40.0, 2.0)
    assert (tokens.window, tokens.window_ns) == ("interval", 10**9)
    assert pooled["kv_usage_ratio"].denominator == 1.0
    assert reading.context.tally.used == 5
    assert "iterations_pooled" in reading.note_codes


def test_a_list_that_no_server_can_abort_is_damaged() -> None:
    reading = read_bytes(VLLM, lines("Added request a.", f"Aborted request(s) {'a,' * 70_000}a."))
    assert reading.rejected == [(2, "damaged_line")]
    assert [row.status for row in reading.requests] == ["open"]


@pytest.mark.parametrize(
    "message",
    [
        "Finished loading the weights.",
        "Added 3 adapters.",
        "Aborted by the user.",
        "Received signal 15.",
        "Generated by hand.",
        "Request queue is empty.",
    ],
)
def test_messages_that_only_start_alike_are_left_alone(message: str) -> None:
    reading = read_bytes(VLLM, lines(message))
    assert reading.ignored == {"other_engine_line": 1}


@pytest.mark.parametrize(
    "message",
    [
        "Received request a: prompt: 'xy', params: P(), prompt_token_ids, lora_request: None.",
        "Received request a b: params: P(), lora_request: None.",
        "Received request a: temperature: 1, lora_request: None.",
        "Request a details: prompt: 'xy, prompt_token_ids: [1], prompt_embeds shape: None.",
        "Generated response a: output: 'x', finish_reason: stop, really",
        "Generated response : output: 'x', finish_reason: stop",
        f"Engine 000: {STATS}" + "x" * 2_000,
    ],
)
def test_messages_that_do_not_end_as_they_start_are_damaged(message: str) -> None:
    reading = read_bytes(VLLM, lines(message))
    assert reading.rejected == [(1, "damaged_line")]
    assert reading.requests == []


def test_a_prompt_with_escapes_is_measured_before_it_is_called_truncated() -> None:
    received = (
        "Received request a: prompt: {}, params: P(), prompt_token_ids: {}, lora_request: None."
    )
    # four escapes stand for four characters; four ids: both were cut at four
    cut = read_bytes(VLLM, lines(received.format(r"'\n\t\n\u2028'", [1, 2, 3, 4]))).requests[0]
    assert (cut.prompt_tokens, cut.flags) == (None, ("prompt_truncated",))
    whole = read_bytes(VLLM, lines(received.format(r"'\n\t\n\u2028 '", [1, 2, 3, 4]))).requests[0]
    assert (whole.prompt_tokens, whole.flags) == (4, ())
    broken = read_bytes(VLLM, lines(received.format(r"'\U99999999'", [1, 2, 3, 4]))).requests[0]
    assert broken.prompt_tokens == 4  # no repr of Python's: nothing says that it was cut


def test_a_block_size_that_nothing_proves_is_assumed() -> None:
    reading = read_bytes(VLLM, lines("# GPU blocks: 100, # CPU blocks: 10"))
    assert reading.context.engine_facts["kv_capacity_tokens"] == 1_600
    assert "block_size_assumed" in reading.note_codes
    odd = "Maximum concurrency for 7 tokens per request: 1.00x"
    other = read_bytes(VLLM, lines("# GPU blocks: 100, # CPU blocks: 10", odd))
    assert "block_size_assumed" in other.note_codes


def test_prefix_caching_that_is_off_gives_no_sample() -> None:
    reading = read_bytes(VLLM, lines("Prefix cache hit rate: GPU: -1.00%, CPU: -1.00%"))
    assert reading.ignored == {"prefix_caching_off": 1}
    assert reading.samples == []
