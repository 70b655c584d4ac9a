"""The arrays that replay walks: order, clock, sessions, lengths."""

from __future__ import annotations

from kvtrace.reuse.trace import KEYS_PER_FILE, build_trace
from kvtrace.schema.arrays import RequestTrace
from tests.traces import Traced, Value, blocks_frame, domain, requests_frame


def trace_of(requests: list[Traced], *, cache_domain: int = 0) -> RequestTrace:
    """The trace of one domain; columns come from each request, keys count from 0."""
    frame = requests_frame([request.columns for request in requests])
    blocks = blocks_frame(requests, frame["request_key"].to_list())
    return build_trace(frame, blocks, domain(cache_domain))


def timed(blocks: list[int], arrived_at_ns: int | None, **columns: Value) -> Traced:
    """A request at an instant."""
    return Traced(blocks, columns={"arrived_at_ns": arrived_at_ns, **columns})


def test_arrivals_start_at_zero_and_ties_go_by_key() -> None:
    trace = trace_of([timed([1], 50), timed([2], 20), timed([3], 50)])
    assert trace.request_key.tolist() == [1, 0, 2]
    assert trace.arrived_at_ns.tolist() == [0, 30, 30]
    assert trace.has_clock


def test_ids_are_dense_in_arrival_order_and_chains_are_one_run() -> None:
    # Arrival order: [7 8 9], then [7 8 5 6]: ids 0 1 2 and 0 1 3 4, in 1 and 2 runs.
    trace = trace_of([timed([7, 8, 5, 6], 9), timed([7, 8, 9], 1)])
    assert trace.run_offset.tolist() == [0, 1, 3]
    assert trace.run_start.tolist() == [0, 0, 3]
    assert trace.run_blocks.tolist() == [3, 2, 2]
    assert trace.distinct_blocks == 5
    assert trace.blocks_per_request().tolist() == [3, 4]


def test_missing_arrival_stands_after_its_predecessor_in_the_file() -> None:
    trace = trace_of([timed([1], None), timed([2], 30), timed([3], None), timed([4], 10)])
    assert trace.request_key.tolist() == [3, 0, 1, 2]
    assert trace.arrived_at_ns.tolist() == [0, 20, 20, 20]


def test_without_a_clock_rows_keep_file_order() -> None:
    trace = trace_of([timed([1], None, clock="order"), timed([2], None, clock="order")])
    assert trace.request_key.tolist() == [0, 1]
    assert trace.arrived_at_ns.tolist() == [0, 0]
    assert not trace.has_clock
    assert trace.clock_resolution_ns == 1


def test_clock_resolution_is_the_common_step() -> None:
    trace = trace_of([timed([1], 1_000), timed([2], 7_000), timed([3], 10_000)])
    assert trace.clock_resolution_ns == 3_000


def test_jitter_does_not_hide_a_coarse_clock() -> None:
    # Instants 0, 2999 and 6000, two requests each: a common divisor of 1, a step of at least 2999.
    trace = trace_of([timed([1], at) for at in (0, 0, 2_999, 2_999, 6_000, 6_000)])
    assert trace.clock_resolution_ns == 2_999


def test_one_instant_has_no_resolution() -> None:
    assert trace_of([timed([1], 5), timed([2], 5)]).clock_resolution_ns == 1


def test_sessions_are_numbered_by_appearance_and_unknown_is_minus_one() -> None:
    trace = trace_of(
        [
            timed([1], 0, session_key=77),
            timed([2], 1),
            timed([3], 2, session_key=5),
            timed([4], 3, session_key=77),
        ]
    )
    assert trace.session.tolist() == [0, -1, 1, 0]


def test_unknown_prompt_is_taken_from_the_blocks() -> None:
    trace = trace_of([Traced([1, 2], tail_tokens=3), Traced([1], columns={"prompt_tokens": 2})])
    assert trace.prompt_tokens.tolist() == [7, 2]


def test_request_without_blocks_or_length_is_left_out() -> None:
    trace = trace_of([Traced([1]), Traced([])])
    assert trace.request_key.tolist() == [0]


def test_short_request_without_blocks_belongs_to_the_domain_of_its_file() -> None:
    elsewhere = 5 * KEYS_PER_FILE
    requests = [
        Traced([1], columns={"request_key": 1}),
        Traced([], columns={"request_key": 2, "prompt_tokens": 3}),
        Traced([2], cache_domain=1, columns={"request_key": elsewhere}),
        Traced([], columns={"request_key": elsewhere + 1, "prompt_tokens": 3}),
    ]
    assert trace_of(requests).request_key.tolist() == [1, 2]
    assert trace_of(requests, cache_domain=1).request_key.tolist() == [elsewhere, elsewhere + 1]


def trace_keys(requests: list[Traced]) -> list[int]:
    """Keys that are in the trace."""
    return [int(key) for key in trace_of(requests).request_key]


def test_source_without_any_blocks_still_makes_a_trace() -> None:
    trace = trace_of([timed([], 5, prompt_tokens=9), timed([], 3, prompt_tokens=2)])
    assert trace.prompt_tokens.tolist() == [2, 9]
    assert trace.run_offset.tolist() == [0, 0, 0]
    assert trace.distinct_blocks == 0


def test_other_sources_and_statuses_stay_out() -> None:
    requests = [
        Traced([1]),
        Traced([1], columns={"source_id": 4}),
        Traced([1], columns={"status": "cancelled"}),
        Traced([1], columns={"is_headline": False}),
    ]
    assert trace_keys(requests) == [0]


def test_empty_input_gives_an_empty_trace() -> None:
    trace = trace_of([])
    assert trace.requests == 0
    assert trace.run_offset.tolist() == [0]
    assert not trace.has_clock
    assert not trace.output_known


def test_outputs_are_known_when_any_is() -> None:
    trace = trace_of([Traced([1], columns={"output_tokens": 8}), Traced([2])])
    assert trace.output_known
    assert trace.output_tokens.tolist() == [8, 0]
