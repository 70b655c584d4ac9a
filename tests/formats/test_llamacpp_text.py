"""llama.cpp server logs: the first position is the hit, slots interleave, clocks start again."""

from __future__ import annotations

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.llamacpp_text import FORMATS
from tests.formats.reading import DATA, Reading, confidence, read_bytes

LLAMA = FORMATS[0]
FOLDER = DATA / "llamacpp_text"


def read(name: str) -> Reading:
    return read_bytes(LLAMA, (FOLDER / name).read_bytes())


def facts(row: RequestRow) -> tuple[object, ...]:
    return (row.prompt_tokens, row.cached_tokens, row.computed_tokens, row.output_tokens)


def test_2024_key_values_and_json() -> None:
    reading = read("good_2024.log")
    # 64 + 600 = 664; later positions of a chunk are no hits
    assert [facts(row) for row in reading.requests] == [
        (664, 64, 600, 11),
        (None, 0, None, None),
        (10, 7, 3, None),
    ]
    assert [row.status for row in reading.requests] == ["ok", "open", "open"]
    first = reading.requests[0]
    assert (first.prefill_ns, first.ttft_ns, first.ttft_from) == (10**9, 10**9, "scheduled")
    assert first.tpot_ns == 50_000_000  # 500 ms over the 10 gaps of 11 tokens
    assert [row.arrived_at_ns for row in reading.requests] == [
        1_720_700_000 * 10**9,
        1_720_700_001 * 10**9,
        1_720_700_004 * 10**9,
    ]
    assert reading.context.clock == "utc"
    assert reading.context.clock_resolution_ns == 10**9
    assert reading.context.engine_version == "b3301"
    assert reading.ignored == {"later_chunk": 1, "other_engine_line": 1}


def test_2025_slots_interleave_and_timings_have_no_prefix() -> None:
    reading = read("good_2025.log")
    assert [facts(row) for row in reading.requests] == [
        (3000, 1000, 2000, 10),
        (50, 0, None, None),
        (90, 0, None, None),  # the match of 80 was thrown away
    ]
    assert [row.status for row in reading.requests] == ["ok", "cancelled", "open"]
    assert reading.context.clock == "order"
    assert reading.context.engine_version == "b5001, b5002"
    assert reading.context.evidence_grade == "B"


def test_2026_clock_is_since_the_start_and_only_of_one_run() -> None:
    reading = read("good_2026.log")
    assert [facts(row) for row in reading.requests] == [
        (10000, 9000, 1000, 12),
        (None, None, None, None),
        (20, None, None, None),
    ]
    # 59 min 59.9 s; 60 min 1 s; the second run has another clock
    assert [row.arrived_at_ns for row in reading.requests] == [
        3_599_900_000_000,
        3_601_000_000_000,
        None,
    ]
    assert reading.context.clock == "relative"
    assert reading.note_codes == {"other_clocks"}


def test_a_container_dates_the_rows_of_any_generation() -> None:
    lines = [*(FOLDER / "good_2026.log").read_bytes().splitlines()]
    data = b"".join(
        b"2026-03-01T10:00:%02d.5Z %s\n" % (second, line) for second, line in enumerate(lines)
    )
    reading = read_bytes(LLAMA, data)
    assert reading.context.clock == "utc"
    first = 1_772_359_200_500_000_000  # 2026-03-01T10:00:00.5Z
    starts = [row.arrived_at_ns for row in reading.requests]
    assert starts == [first, first + 5 * 10**9, first + 9 * 10**9]


def test_journald_dates_what_has_no_clock_and_no_other() -> None:
    # Mar 07 14:20:01 of 2025: the file is of 2026-01-01, and its last line is not younger
    written = (DATA / "llamacpp_text" / "good_2025.log").read_text()
    journal = "Mar 07 14:20:01 gpu01 llama-server[77]: "
    reading = read_bytes(
        LLAMA, "".join(journal + line for line in written.splitlines(True)).encode()
    )
    assert {row.arrived_at_ns for row in reading.requests} == {1_741_357_201_000_000_000}
    assert reading.context.clock == "naive"
    uptime = (DATA / "llamacpp_text" / "good_2026.log").read_text()
    reading = read_bytes(
        LLAMA, "".join(journal + line for line in uptime.splitlines(True)).encode()
    )
    assert reading.context.clock == "relative"  # microseconds since the start, not whole seconds


def test_two_clocks_are_never_mixed() -> None:
    data = (FOLDER / "good_2024.log").read_bytes() + (FOLDER / "good_2026.log").read_bytes()
    reading = read_bytes(LLAMA, data)
    assert [row.arrived_at_ns is None for row in reading.requests] == [False] * 3 + [True] * 3
    assert reading.context.clock == "utc"


def test_responses_count_cached_and_processed_tokens() -> None:
    reading = read("responses.jsonl")
    first, second = reading.requests
    assert (first.request_id, first.llm) == ("chatcmpl-r1", "m")
    assert facts(first) == (120, 100, 20, 6)
    assert (first.prefill_ns, first.tpot_ns) == (40_500_000, 20_000_000)
    assert (first.arrived_at_ns, first.flags) == (1_759_486_526 * 10**9, ("dated_by_end",))
    assert facts(second) == (None, None, 33, 1)  # no cache_n before September 2025
    assert second.tpot_ns is None
    assert second.llm == "tiny.gguf"  # the folder may name a person
    assert reading.ignored == {"other_program": 1}


def test_a_streamed_response_is_one_request() -> None:
    def chunk(request_id: str, predicted: int) -> bytes:
        head = b'data: {"object":"chat.completion.chunk","id":"%s"' % request_id.encode()
        return head + b',"timings":{"cache_n":9,"prompt_n":1,"predicted_n":%d}}\n' % predicted

    pieces = [chunk("a", 1), chunk("b", 1), chunk("a", 2), chunk("b", 2), chunk("a", 3)]
    native = b'data: {"stop":false,"timings":{"cache_n":9,"prompt_n":1,"predicted_n":1}}\n'
    reading = read_bytes(LLAMA, b"".join(pieces) + native + native.replace(b"false", b"true"))
    assert [(row.request_id, row.line, row.output_tokens) for row in reading.requests] == [
        ("a", 1, 3),
        ("b", 2, 2),
        (None, 7, 1),
    ]
    assert reading.ignored == {"stream_chunk": 1}


def test_damaged_lines_never_make_a_hit() -> None:
    reading = read("malformed.log")
    (row,) = reading.requests
    assert facts(row) == (3000, None, None, None)  # 2024 is a chunk: the hit was on line 3
    assert row.status == "open"
    assert reading.rejected == [
        (3, "damaged_line"),
        (5, "damaged_line"),
        (7, "damaged_line"),
        (8, "damaged_line"),
        (9, "damaged_line"),
        (10, "damaged_line"),
        (11, "invalid_field"),
        (12, "invalid_field"),
        (13, "damaged_line"),
        (14, "damaged_line"),
    ]


def test_timings_of_an_unknown_task_are_not_given_to_another() -> None:
    lines = (FOLDER / "good_2025.log").read_bytes().splitlines(keepends=True)
    two_headers = [*lines[2:5], lines[11].replace(b"0 | task 5", b"1 | task 6"), *lines[11:15]]
    reading = read_bytes(LLAMA, b"".join(two_headers))
    assert [facts(row) for row in reading.requests] == [
        (3000, None, None, None),
        (None, None, None, None),
    ]
    assert reading.ignored == {"line_of_unknown_task": 3}


def test_sniff() -> None:
    for name in ("good_2024.log", "good_2025.log", "good_2026.log", "responses.jsonl"):
        assert confidence(LLAMA, (FOLDER / name).read_bytes()) > 0.8
    assert confidence(LLAMA, b"slot machine: id\nsrv \neval time\n[1] x\n") == 0.0
