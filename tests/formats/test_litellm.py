"""LiteLLM payloads and spend logs: attempts, cache of the gateway, times, where usage stands."""

from __future__ import annotations

import csv
import io
import json

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.litellm import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

PAYLOAD, SPEND = FORMATS
FOLDER = DATA / "litellm"
GOOD = (FOLDER / "good.jsonl").read_bytes()
DAMAGED = (FOLDER / "damaged.jsonl").read_bytes()
CSV = (FOLDER / "spend.csv").read_bytes()
CSV_DAMAGED = (FOLDER / "spend_damaged.csv").read_bytes()
MS = 1_000_000
ANSWERED = json.loads(GOOD.splitlines()[0])


def test_tokens_wherever_the_version_puts_the_usage() -> None:
    rows = read_bytes(PAYLOAD, GOOD).requests
    assert [row.prompt_tokens for row in rows] == [100, None, 100, 900, 100, 50, 50, 70, None]
    assert [row.cached_tokens for row in rows] == [64, None, 0, 300, None, 16, 32, 48, None]
    assert [row.cache_write_tokens for row in rows] == [None] * 3 + [500] + [None] * 5
    assert [row.output_tokens for row in rows] == [10, None, 10, 20, 10, 5, 5, 7, None]
    assert all(row.flags == () for row in rows)


def test_every_attempt_is_a_row_of_its_own() -> None:
    rows = read_bytes(PAYLOAD, GOOD).requests
    assert [row.status for row in rows] == [
        "ok",
        "error",
        "ok",
        "ok",
        "gateway_cache_hit",
        "ok",
        "ok",
        "ok",
        "cancelled",
    ]
    assert [row.request_id for row in rows[1:3]] == ["c-2", "chatcmpl-a3"]  # one trace_id
    assert rows[4].request_id == "chatcmpl-a1_cache_hit1780000006.5"


def test_first_token_is_known_of_streams_only() -> None:
    rows = read_bytes(PAYLOAD, GOOD).requests
    # .75 - .25; failed; no stream; .75 - .25; cache; 8 - 7; first = end; 41 - 40.5; gone
    assert [row.ttft_ns for row in rows] == [
        500 * MS,
        None,
        None,
        500 * MS,
        None,
        1_000 * MS,
        None,
        500 * MS,
        None,
    ]
    assert [row.ttft_from for row in rows[:2]] == ["arrival", None]
    assert [row.e2e_ns for row in rows[:5]] == [
        2_000 * MS,
        500 * MS,
        1_000 * MS,
        2_000 * MS,
        3 * MS,
    ]


def test_ids_of_session_parent_and_tenant() -> None:
    rows = read_bytes(PAYLOAD, GOOD).requests
    assert [row.session_id for row in rows] == ["s-1"] * 5 + [None] * 3 + ["s-1"]
    assert rows[3].parent_id == "chatcmpl-a1"
    assert [row.tenant for row in rows[2:4]] == ["key-hash-1", "team-7"]
    assert (rows[7].request_id, rows[7].tenant) == ("chatcmpl-a8", "k")


def test_the_end_user_stands_before_the_owner_of_the_key() -> None:
    def user_of(**told: object) -> str | None:
        [row] = read_bytes(PAYLOAD, json.dumps({**ANSWERED, **told}).encode()).requests
        return row.user

    owner = {"user_api_key_user_id": "owner"}
    assert user_of() is None
    assert user_of(end_user="end", user="sent", metadata=owner) == "end"
    assert user_of(metadata={**owner, "user_api_key_end_user_id": "end"}) == "end"
    assert user_of(end_user="", metadata=owner) == "owner"
    assert user_of(metadata={"user_api_key_user_id": "default_user_id"}) is None


def test_clock_is_utc() -> None:
    reading = read_bytes(PAYLOAD, GOOD)
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", MS)
    assert reading.requests[0].arrived_at_ns == 1_780_000_000_250 * MS
    assert reading.requests[7].arrived_at_ns == 1_780_000_000_500 * MS  # 2026-05-28T20:26:40.5Z


def test_no_text_host_or_address_is_kept() -> None:
    for entry, data in ((PAYLOAD, GOOD), (SPEND, CSV)):
        assert "secret" not in repr(read_bytes(entry, data).rows)
        assert b"secret" in data


def test_grade_is_of_lengths_where_no_call_says_what_was_cached() -> None:
    assert read_bytes(PAYLOAD, GOOD).context.evidence_grade == "B"
    assert read_bytes(PAYLOAD, GOOD.split(b"\n")[1]).context.evidence_grade == "L"


def test_damaged_payloads() -> None:
    reading = read_bytes(PAYLOAD, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 7)),
        (7, "invalid_json"),
    ]
    assert [row.request_id for row in reading.requests] == ["chatcmpl-a1", "b8", "b9", "b10"]
    assert [row.flags for row in reading.requests[1:]] == [
        ("time_order",),
        (),
        ("cached_above_prompt",),
    ]
    assert reading.requests[2].arrived_at_ns is None
    assert (reading.requests[2].ttft_ns, reading.requests[2].e2e_ns) == (500 * MS, None)


def test_session_ids_that_are_made_up_for_each_call_are_noted() -> None:
    call = json.loads(GOOD.split(b"\n")[0])
    one_each = [json.dumps({**call, "session_id": f"s-{number}"}) for number in range(20)]
    assert "session_ids_unique" in read_bytes(PAYLOAD, "\n".join(one_each).encode()).note_codes
    shared = [json.dumps({**call, "session_id": f"s-{number % 19}"}) for number in range(20)]
    assert "session_ids_unique" not in read_bytes(PAYLOAD, "\n".join(shared).encode()).note_codes


def test_rows_of_the_table() -> None:
    reading = read_bytes(SPEND, CSV)
    rows = reading.requests
    assert [row.line for row in rows] == [2, 4, 6, 8, 10]  # tags hold a line end in four rows
    assert [row.prompt_tokens for row in rows] == [100, 100, None, 100, 7]
    assert [row.cached_tokens for row in rows] == [64, None, None, None, None]
    assert [row.status for row in rows] == ["ok", "ok", "error", "gateway_cache_hit", "ok"]
    assert [row.ttft_ns for row in rows] == [500 * MS, None, None, None, 500 * MS]
    assert [row.e2e_ns for row in rows] == [2_000 * MS, 1_000 * MS, 100 * MS, 4 * MS, 1_000 * MS]
    assert rows[3].request_id == "r1_cache_hit1780000006.1"
    assert reading.ignored == {"header": 1}


def test_times_of_the_table_have_no_zone() -> None:
    reading = read_bytes(SPEND, CSV)
    assert reading.requests[0].arrived_at_ns == 1_780_000_000_250 * MS
    assert reading.context.clock == "naive"
    assert reading.note_codes == {"naive_clock"}
    placed = read_bytes(SPEND, CSV, tz="Europe/Berlin")
    assert placed.requests[0].arrived_at_ns == 1_779_992_800_250 * MS  # two hours earlier
    assert placed.context.clock == "utc"


def test_damaged_rows_of_the_table() -> None:
    reading = read_bytes(SPEND, CSV_DAMAGED)
    assert [reason for _, reason in reading.rejected] == [
        "wrong_cell_count",
        "invalid_field",
        "invalid_field",
        "invalid_csv",
    ]
    assert [row.request_id for row in reading.requests] == ["r1", "r5"]
    assert reading.requests[1].prompt_tokens == 1  # its metadata is no JSON
    assert reading.ignored == {"header": 1, "repeated_header": 1}


CALL: dict[str, object] = {
    "litellm_call_id": "c",
    "id": "i",
    "call_type": "acompletion",
    "status": "success",
    "startTime": 1_780_000_000.25,
    "completionStartTime": 1_780_000_000.75,
    "endTime": 1_780_000_002.25,
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
}


def payload(**changed: object) -> RequestRow:
    """The row of one payload."""
    data = json.dumps(CALL | changed).encode()
    (row,) = read_bytes(PAYLOAD, data).requests
    return row


def spend(**changed: str) -> RequestRow:
    """The row of one record of the table."""
    cells = {"request_id": "r", "startTime": "2026-05-28 20:26:40.25", "spend": "0"}
    cells |= {"prompt_tokens": "100", "completion_tokens": "10", **changed}
    out = io.StringIO()
    csv.writer(out).writerows([cells.keys(), cells.values()])
    (row,) = read_bytes(SPEND, out.getvalue().encode()).requests
    return row


def test_answers_of_the_cache_are_known_by_flag_or_id() -> None:
    for flag in (True, "True", "true", 1, "1", "t"):
        assert payload(cache_hit=flag, usage={"x": 1}).status == "gateway_cache_hit"
    for other in (False, None, 0, "", "False", "None"):
        assert payload(cache_hit=other).status == "ok"
    hit = payload(id="chatcmpl-1_cache_hit1780000001.234")
    assert (hit.status, hit.ttft_ns, hit.cached_tokens) == ("gateway_cache_hit", None, None)
    assert spend(request_id="x_cache_hit1780000001.2", cache_hit="").status == "gateway_cache_hit"
    assert spend(request_id="x_cache_hits_of_mine", cache_hit="").status == "ok"
    assert spend(cache_hit="1").status == "gateway_cache_hit"


def test_a_first_token_at_the_end_is_none_where_the_log_does_not_say_stream() -> None:
    end = 1_780_000_002.25
    assert payload(completionStartTime=end - 0.0001).ttft_ns is None
    assert payload(completionStartTime=end + 0.0001).ttft_ns is None
    assert payload(completionStartTime=end - 0.0001, stream=None).ttft_ns is None
    assert payload(completionStartTime=end - 0.01).ttft_ns == 1_990 * MS
    assert payload(completionStartTime=end - 0.0005, stream=True).ttft_ns == 1_999_500_000
    assert payload(completionStartTime=end, stream=True).ttft_ns is None
    times = {"completionStartTime": "2026-05-28 20:26:41.999", "endTime": "2026-05-28 20:26:42"}
    assert spend(**times).ttft_ns is None


def test_counts_that_stand_in_the_usage_object_alone() -> None:
    nothing = {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}
    openai = {"prompt_tokens": 90, "completion_tokens": 9, "total_tokens": 99}
    row = payload(**nothing, metadata={"usage_object": openai})
    assert (row.prompt_tokens, row.output_tokens) == (90, 9)
    row = payload(**nothing, hidden_params={"usage_object": openai})
    assert (row.prompt_tokens, row.output_tokens) == (90, 9)
    responses = {
        "input_tokens": 80,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 10,
    }
    row = payload(prompt_tokens=None, metadata={"usage_object": responses})
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (80, 64, 10)
    anthropic = {"input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 10}
    row = payload(prompt_tokens=None, total_tokens=None, metadata={"usage_object": anthropic})
    assert (row.prompt_tokens, row.cached_tokens) == (320, 300)
    # the count of the record wins: LiteLLM has added the reads to it
    row = payload(prompt_tokens=320, total_tokens=330, metadata={"usage_object": anthropic})
    assert (row.prompt_tokens, row.cached_tokens, row.flags) == (320, 300, ())
    row = payload(prompt_tokens=0, metadata={"usage_object": openai})
    assert row.prompt_tokens == 90
    assert payload(prompt_tokens=None).prompt_tokens == 100  # 110 - 10
    assert payload(**nothing).prompt_tokens is None


def test_the_end_may_stand_as_a_duration() -> None:
    assert spend(request_duration_ms="1500").e2e_ns == 1_500 * MS
    assert spend(request_duration_ms="1500", endTime="2026-05-28 20:26:41").e2e_ns == 750 * MS
    assert spend(request_duration_ms="").e2e_ns is None
    assert payload(endTime=None, request_duration_ms=1_500).e2e_ns == 1_500 * MS
    # response_time ends at the first token of a stream, at the end of another call
    stream = payload(endTime=None, completionStartTime=None, response_time=0.5, stream=True)
    assert (stream.ttft_ns, stream.e2e_ns) == (500 * MS, None)
    whole = payload(endTime=None, completionStartTime=None, response_time=0.5, stream=False)
    assert (whole.ttft_ns, whole.e2e_ns) == (None, 500 * MS)
    unsaid = payload(endTime=None, completionStartTime=None, response_time=0.5)
    assert (unsaid.ttft_ns, unsaid.e2e_ns) == (None, None)


def test_metadata_that_cannot_be_read_is_flagged() -> None:
    for broken in ('{"usage_object": {', "no json", "[1]"):
        assert payload(metadata=broken).flags == ("metadata_unreadable",)
        assert spend(metadata=broken).flags == ("metadata_unreadable",)
    for fine in ("", "{}", "null", '{"status": 5, "error_information": []}'):
        assert payload(metadata=fine).flags == ()
        assert spend(metadata=fine).flags == ()
    assert payload(metadata=None).flags == ()


def test_usage_of_the_response_column() -> None:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 48}}
    assert spend(response=json.dumps({"usage": usage})).cached_tokens == 48


def test_long_cells_are_read() -> None:
    head, *record = CSV.split(b"\n")[:3]
    long = b"\n".join(record).replace(b"secret-user", b'"' + b"x" * 200_000 + b'"')
    data = head + b"\n" + long + b"\n"
    assert [row.prompt_tokens for row in read_bytes(SPEND, data).requests] == [100]


def test_a_column_that_stands_twice_moves_no_cell() -> None:
    head, row = CSV.split(b"\n")[0], CSV.split(b"\n")[9]
    twice = read_bytes(SPEND, head + b",status\n" + row + b",success\n" + row + b"\n")
    assert [line.prompt_tokens for line in twice.requests] == [7]
    assert twice.rejected == [(3, "wrong_cell_count")]


def test_they_are_recognised() -> None:
    assert {sniffed(all_formats(), data) for data in (GOOD, DAMAGED)} == {"litellm"}
    assert {sniffed(all_formats(), data) for data in (CSV, CSV_DAMAGED)} == {"litellm_spend_logs"}
    assert sniffed(all_formats(), b"[" + GOOD.replace(b"\n", b",\n").rstrip(b",\n") + b"]") == (
        "litellm"
    )
