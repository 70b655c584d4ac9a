"""LLMServingSim: workloads of requests and sessions, results of simulations."""

from __future__ import annotations

from kvtrace.ingest.formats.llmservingsim import FORMATS
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

LINES, RESULTS = FORMATS
FOLDER = DATA / "llmservingsim"
WORKLOAD = (FOLDER / "workload.jsonl").read_bytes()
DAMAGED = (FOLDER / "damaged.jsonl").read_bytes()
RESULT_ROWS = (FOLDER / "results.csv").read_bytes()


def test_workload_has_requests_sessions_and_blocks() -> None:
    hasher = PromptHasher(b"key", block_tokens=2)
    reading = read_bytes(LINES, WORKLOAD, prompt_hasher=hasher)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [5, 6, 10, 12, 4]
    assert [row.output_tokens for row in rows] == [3, 2, 1, 4, 1]
    # the second call of a session starts when the first has ended: nobody knows when
    assert [row.arrived_at_ns for row in rows] == [4_059_740, 5_000_000, 7_000_001, None, 8_000_000]
    assert [row.session_id for row in rows] == [None, None, "session_0", "session_0", None]
    assert [row.turn for row in rows] == [None, None, 0, 1, None]
    first, second = rows[0].block_keys or [], rows[1].block_keys or []
    # 1 2 | 3 4 | 5 and 1 2 | 3 4 | 9 9
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, True, False]
    assert [row.block_keys is None for row in rows] == [False, False, True, True, True]
    assert rows[4].flags == ("token_count_mismatch",)  # 4 tokens, 2 ids
    assert (reading.context.clock, reading.context.found_block_size_tokens) == ("relative", 2)
    assert reading.note_codes == {"arrival_unknown"}


def test_ids_are_only_counted_without_a_key() -> None:
    assert all(row.block_keys is None for row in read_bytes(LINES, WORKLOAD).requests)


def test_damaged_lines_are_rejected() -> None:
    reading = read_bytes(LINES, DAMAGED)
    # line 5 has no time on this clock; 6 and 7 have no usable call
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_field"),
        (8, "invalid_field"),
        (9, "invalid_json"),
    ]
    assert [row.arrived_at_ns for row in reading.requests] == [10, None]


def test_results_are_simulated_times_in_ns() -> None:
    reading = read_bytes(RESULTS, RESULT_ROWS)
    first, second = reading.requests
    assert (first.request_id, first.llm) == ("0", "org/llm-30b")
    assert (first.prompt_tokens, first.output_tokens) == (1472, 133)
    assert (first.arrived_at_ns, first.e2e_ns, first.queue_ns) == (4_059_740, 1_078_776_464, 0)
    assert (first.ttft_ns, first.tpot_ns) == (51_162_321, 7_784_955)
    assert second.tpot_ns is None  # one token: the 0 is no measurement
    assert reading.rejected == [(4, "negative_number")]
    assert reading.note_codes == {"simulated"}


def test_each_shape_is_recognised() -> None:
    assert sniffed(all_formats(), WORKLOAD) == "llmservingsim"
    assert sniffed(all_formats(), RESULT_ROWS) == "llmservingsim_results"


def test_it_is_benchmark_traffic() -> None:
    assert all(entry.is_benchmark for entry in FORMATS)
