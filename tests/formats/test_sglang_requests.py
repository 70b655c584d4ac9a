"""Request logs of SGLang, as text and as JSON, and its time stats: one request, one row."""

from __future__ import annotations

import json

import pytest

from kvtrace.ingest.clocks import NO_TIME, FileClock
from kvtrace.ingest.contract import (
    LogContext,
    LogLine,
    ReadContext,
    Record,
    RequestRow,
    Row,
    Tally,
)
from kvtrace.ingest.formats.sglang_text import FORMATS
from kvtrace.ingest.formats.sglang_text.reader import SglangLog
from kvtrace.ingest.registry import all_formats
from kvtrace.units import NS_PER_MS, NS_PER_S
from tests.formats.reading import DATA, Reading, read_bytes, sniffed
from tests.formats.sglang import log

SGLANG = FORMATS[0]
FOLDER = DATA / "sglang_text"
TEXT = (FOLDER / "good_requests.log").read_bytes()
EVENTS = (FOLDER / "good_events.jsonl").read_bytes()
TIMES = (FOLDER / "good_times.log").read_bytes()
META = "'prompt_tokens': 40, 'completion_tokens': 2, 'cached_tokens': 8, 'e2e_latency': 0.5"


def facts(row: RequestRow) -> tuple[str | None, str, int | None, int | None, int | None]:
    return row.request_id, row.status, row.prompt_tokens, row.cached_tokens, row.output_tokens


def named(reading: Reading, request_id: str) -> RequestRow:
    (row,) = [row for row in reading.requests if row.request_id == request_id]
    return row


@pytest.mark.parametrize("data", [TEXT, EVENTS, TIMES])
def test_each_kind_of_lines_is_recognised(data: bytes) -> None:
    assert sniffed(all_formats(), data) == "sglang_text"


def test_text_requests_are_rows_with_their_status() -> None:
    reading = read_bytes(SGLANG, TEXT)
    assert [facts(row) for row in reading.requests] == [
        ("r-open", "open", None, None, None),
        ("r-1", "ok", 4096, 3968, 11),
        ("r-3", "error", None, None, None),  # an abort before prefill writes zeros
        ("b-0", "ok", 10, 4, 1),
        ("r-4", "ok", 7, 0, 2),
    ]
    assert reading.ignored == {"request_body": 1, "health_check": 1, "finish_without_counts": 1}
    assert reading.rejected == []
    assert reading.context.evidence_grade == "B"
    assert reading.context.engine == "sglang"


def test_counts_come_from_the_last_meta_info_outside_quotes() -> None:
    row = named(read_bytes(SGLANG, TEXT), "r-1")
    assert (row.cached_device_tokens, row.cached_host_tokens) == (1000, 2000)
    assert row.cached_disk_tokens == 968  # the backend named `file`
    assert row.flags == ("retracted",)
    assert (row.session_id, row.adapter) == ("user-1", "adapter-a")


def test_times_are_exact_and_ttft_is_the_end_of_prefill_where_nothing_better_is_printed() -> None:
    row = named(read_bytes(SGLANG, TEXT), "r-1")
    assert row.arrived_at_ns == 1_764_640_810_100_000_100  # 1764640810.1000001
    assert row.queue_ns == 250 * NS_PER_MS
    assert row.e2e_ns == 2 * NS_PER_S
    assert (row.ttft_ns, row.ttft_from) == (999_999_900, "arrival")  # 811.1 − 810.1000001
    assert row.tpot_ns == 100_000_010  # (2 s − 0.9999999 s) / 10 = 100 000 010 ns
    event = named(read_bytes(SGLANG, EVENTS), "q-1")
    assert (event.ttft_ns, event.ttft_from) == (310 * NS_PER_MS, "arrival")


def test_the_zone_of_the_stamps_follows_from_epoch_times() -> None:
    reading = read_bytes(SGLANG, TEXT)
    assert reading.context.clock == "utc"
    # 10:00:10 there is 1764640810 = 02:00:10Z: eight hours ahead
    assert named(reading, "r-open").arrived_at_ns == 1_764_640_810 * NS_PER_S
    # end 10:00:37 − 0.05 s
    assert named(reading, "b-0").arrived_at_ns == 1_764_640_836_950_000_000
    assert named(reading, "b-0").flags == ("first_of_batch", "arrival_from_end")


def test_time_to_the_end_falls_back_to_the_stamps_of_both_lines() -> None:
    row = named(read_bytes(SGLANG, TEXT), "r-4")
    assert (row.e2e_ns, row.flags) == (3 * NS_PER_S, ("e2e_in_whole_seconds",))
    assert row.arrived_at_ns == 1_764_640_840 * NS_PER_S


def test_waits_for_storage_are_moves() -> None:
    moves = read_bytes(SGLANG, TEXT).transfers
    assert [(m.path, m.moved_tokens, m.duration_ns, m.moved_bytes) for m in moves] == [
        ("disk>host", 968, 500 * NS_PER_MS, None),
        ("host>device", 2968, 125 * NS_PER_MS, None),
    ]
    capacity = b"[2025-12-01 09:00:01] KV Cache is allocated. #tokens: 1000000,"
    capacity += b" K size: 1.00 GB, V size: 1.00 GB\n"
    reading = read_bytes(SGLANG, capacity + EVENTS)
    # 2 GiB / 10^6 = 2 147.48 bytes a token, rounded; × 2 000 tokens
    assert [move.moved_bytes for move in reading.transfers] == [2_147 * 2_000]
    assert "bytes_from_capacity" in reading.note_codes


def test_json_events_are_rows() -> None:
    reading = read_bytes(SGLANG, EVENTS)
    assert [facts(row) for row in reading.requests] == [
        ("q-open", "open", None, None, None),
        ("b-0", "open", None, None, None),
        ("q-1", "ok", 8192, 8000, 64),
        ("q-2", "ok", 50, 0, 5),
    ]
    row = named(reading, "q-1")
    assert (row.cached_device_tokens, row.cached_host_tokens, row.cached_remote_tokens) == (
        2000,
        4000,
        2000,
    )
    assert (row.session_id, row.adapter) == ("user-9", "adapter-b")  # from the received event
    assert named(reading, "q-2").flags == ("negative_queue", "arrival_from_end")
    assert named(reading, "q-2").queue_ns is None
    assert named(reading, "q-2").session_id == "s-2"
    assert named(reading, "q-open").arrived_at_ns == 1_795_165_200_500_000_000
    assert reading.ignored == {"request_body": 1, "finish_without_counts": 1}
    assert reading.context.engine_version == ">=0.5.10"


def test_damaged_and_impossible_requests_are_rejected() -> None:
    text = read_bytes(SGLANG, (FOLDER / "malformed_requests.log").read_bytes())
    assert text.rejected == [
        *((line, "damaged_line") for line in (1, 2, 3, 4, 5)),
        *((line, "invalid_field") for line in (6, 7, 8)),
        *((line, "damaged_line") for line in (9, 10)),
    ]
    assert text.ignored == {"other_program": 1}
    assert [facts(row) for row in text.requests] == [("r-2", "ok", 41, 3, None)]
    events = read_bytes(SGLANG, (FOLDER / "malformed_events.jsonl").read_bytes())
    assert events.rejected == [
        (1, "damaged_line"),
        (2, "invalid_json"),
        *((line, "invalid_field") for line in (3, 4, 5, 6)),
        (8, "damaged_line"),  # the file ends inside it
    ]
    assert [facts(row) for row in events.requests] == [("q-2", "ok", 40, 3, None)]
    details = [detail for _, _, detail in (*text.context.tally.rejects,)]
    assert not any("many" in (detail or "") for detail in details)  # no value of a record


@pytest.mark.parametrize(
    "prompt",
    [
        "'meta_info': {'id': 'evil', 'prompt_tokens': 1, 'cached_tokens': 99999}}",
        "\"}, 'meta_info': {'id': 'evil', 'prompt_tokens': 1, 'cached_tokens': 99999}}",
        "\\', 'meta_info': {'id': 'evil', 'prompt_tokens': 1}}",
        "\n[2025-12-01 09:00:00] Finish: obj=X(rid='evil'), out={'meta_info': {'id': 'evil'}}",
        "rid='evil', received_time=1.0, lora_path='evil', headers={'x-smg-routing-key': 'evil'}",
        "'\"'\"\\\\'\"",
    ],
)
def test_prompts_are_never_taken_for_fields(prompt: str) -> None:
    line = (
        f"Finish: obj=GenerateReqInput(text={prompt!r}, rid='good', sampling_params={{}}),"
        f" out={{'text': {prompt!r}, 'meta_info': {{'id': 'good', 'finish_reason': {{'type':"
        f" 'stop', 'matched': {prompt!r}}}, {META}}}}}"
    )
    received = f"Receive: obj=GenerateReqInput(text={prompt!r}, rid='good', stream=True)"
    reading = read_bytes(SGLANG, log(received, line))
    assert [facts(row) for row in reading.requests] == [("good", "ok", 40, 8, 2)]
    assert reading.requests[0].session_id is None
    assert reading.requests[0].adapter is None
    assert reading.rejected == []


def test_token_ids_of_full_logs_become_blocks() -> None:
    shared = list(range(100, 132))
    page = b"[2025-12-01 09:00:00] server_args=ServerArgs(model_path='m', page_size=32)\n"

    def text(rid: str, ids: str) -> str:
        return (
            f"Finish: obj=X(rid='{rid}', text='it, (input_ids=[1])', input_ids={ids}, n=1),"
            f" out={{'meta_info': {{'id': '{rid}', {META}}}}}"
        )

    def event(rid: str, ids: list[object]) -> str:
        meta = {"id": rid, "prompt_tokens": 40, "cached_tokens": 8}
        obj = {"rid": rid, "input_ids": ids}
        whole = {"event": "request.finished", "rid": rid, "obj": obj, "out": {"meta_info": meta}}
        return json.dumps(whole) + "\n"

    ids = [*shared, *range(8)]
    data = page + log(text("a", str(ids))) + event("b", [*shared, *range(8, 16)]).encode()
    reading = read_bytes(SGLANG, data, token_key=b"k" * 16)
    first, second = (row.block_keys or [] for row in reading.requests)
    assert (len(first), len(second)) == (2, 2)  # 40 tokens in pages of 32
    assert (first[0] == second[0], first[1] == second[1]) == (True, False)
    context = reading.context
    assert (context.evidence_grade, context.found_block_size_tokens) == ("A", 32)
    # lists that --log-requests-level 2 cuts, that are short, or hold no ids: no blocks
    cut = event("c", [1, "...", 2]) + event("d", [1, 2]) + event("e", [-1] * 40)
    torn = log(text("f", "[1, 2] ... [3]"), text("g", "None"))
    few = read_bytes(SGLANG, data + cut.encode() + torn, token_key=b"k" * 16)
    assert [row.block_keys is None for row in few.requests] == [False, False] + [True] * 5
    assert few.requests[3].flags == ("ids_differ_from_prompt",)
    assert (few.context.evidence_grade, few.context.found_block_size_tokens) == ("B", None)


def test_an_id_that_comes_again_is_another_request() -> None:
    finish = "Finish: obj=X(rid='a'), out={'meta_info': {'id': 'a', " + META + "}}"
    receive = "Receive: obj=X(rid='a')"
    reading = read_bytes(SGLANG, log(receive, finish, receive, receive, finish))
    assert [row.status for row in reading.requests] == ["ok", "open", "ok"]
    restarted = read_bytes(
        SGLANG, log(receive, "server_args=ServerArgs(model_path='a/b', tp_size=1)", finish)
    )
    assert [row.status for row in restarted.requests] == ["open", "ok"]
    assert [row.llm for row in restarted.requests] == [None, "a/b"]


def test_a_log_of_arrivals_alone_holds_only_so_many() -> None:
    lines = (f"[2025-12-01 09:00:00] Receive: obj=X(rid='r-{n}')\n" for n in range(262_146))
    context = ReadContext("sample", Tally(), 0)
    given: list[Row] = []
    log_context = LogContext(context, FileClock(), lambda row, time=None: given.append(row))
    router_line = LogLine(Record(0, 1, b""), "", "", "bracketed", NO_TIME)
    reader = SglangLog(log_context)
    for number, text in enumerate(lines):
        router_line.record = Record(number, number, b"")
        router_line.message = text[22:].rstrip()
        assert reader.take(router_line)
    assert [row.offset for row in given] == [0, 1]  # two more than are held


def test_time_stats_join_their_halves_and_their_finish_line() -> None:
    reading = read_bytes(SGLANG, TIMES)
    assert [facts(row) for row in reading.requests] == [
        ("a1", "ok", 2048, None, 100),
        ("a3", "ok", 10, None, 1),
        ("a2", "ok", 32_768, 30_720, 200),
        ("p1", "ok", 64, None, None),  # the prefill half's one output token is not the answer
        ("f1", "ok", 100, 64, 3),
    ]
    assert named(reading, "p1").flags == ("prefill_half_only",)
    assert named(reading, "f1").arrived_at_ns == 1_777_629_605_505_000_000
    assert named(reading, "f1").queue_ns == 20 * NS_PER_MS
    assert named(reading, "f1").e2e_ns == 500 * NS_PER_MS  # of meta_info, not of the scheduler


def test_times_of_time_stats() -> None:
    reading = read_bytes(SGLANG, TIMES)
    unified, unset = named(reading, "a1"), named(reading, "a3")
    assert unified.arrived_at_ns == 1_759_658_397_488_000_000
    assert unified.queue_ns == 12_500_000
    assert unified.e2e_ns == 2_512_500_000  # 12.5 ms + 2 500 ms
    assert (unset.arrived_at_ns, unset.queue_ns, unset.e2e_ns) == (None, 0, None)
    halves = named(reading, "a2")
    assert halves.arrived_at_ns == 1_777_629_599_845_000_000  # of the prefill half
    assert halves.queue_ns == 4_900_000  # 1.2 + 0.3 + 3.4 ms
    # decode: 599.900 s + 0.8 + 110 + 0.5 + 4 800 ms = 604.8113 s; − 599.845 s
    assert halves.e2e_ns == 4_966_300_000
    assert halves.flags == ("retracted",)  # attempts=2
    assert named(reading, "p1").queue_ns == 7_000_000  # 5 + 2 ms


def test_the_move_between_the_halves() -> None:
    (move,) = read_bytes(SGLANG, TIMES).transfers
    assert (move.direction, move.path) == ("hand_off", "prefill>decode")
    assert move.moved_bytes == 1_280_000_000
    assert move.duration_ns == 110 * NS_PER_MS  # of the decode half: 11.6 GB/s
    assert move.started_at_ns == 1_777_629_599_900_800_000  # entry + 0.8 ms


def test_halves_of_different_rooms_are_different_requests() -> None:
    line = (
        "ReqTimeStats(rid=a, bootstrap_room={}, input_len=10, output_len=1, attempts=1, type={}):"
        " queue_duration=1.00ms, forward_duration=1.00ms, entry_time=1777629599.845"
    )
    text = log(line.format(1, "prefill"), line.format(2, "decode"), line.format(2, "decode"))
    reading = read_bytes(SGLANG, text)
    assert [row.flags for row in reading.requests] == [
        ("prefill_half_only",),
        ("decode_half_only",),
        ("decode_half_only",),
    ]
    same = read_bytes(SGLANG, log(line.format(1, "prefill"), line.format(1, "decode")))
    assert len(same.requests) == 1


def test_damaged_time_stats_are_rejected() -> None:
    reading = read_bytes(SGLANG, (FOLDER / "malformed_times.log").read_bytes())
    assert reading.rejected == [(line, "damaged_line") for line in (1, 2, 3, 4)]
    (row,) = reading.requests
    assert (row.request_id, row.queue_ns, row.flags) == ("a4", None, ("negative_queue",))


def test_torn_ends_of_files_are_damage() -> None:
    for data in (TEXT, TIMES, EVENTS):
        reading = read_bytes(SGLANG, data)
        lines = data.splitlines(keepends=True)
        cut = b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2]
        torn = read_bytes(SGLANG, cut)
        assert [reason for _, reason in torn.rejected] == ["damaged_line"]
        assert len(torn.requests) <= len(reading.requests)


def test_one_huge_line_is_read_and_its_text_forgotten() -> None:
    text = "x\\n'meta_info': {" * 250_000
    line = (
        f"Finish: obj=X(text={text!r}, rid='a'), out={{'text': {text!r}, 'meta_info':"
        f" {{'id': 'a', {META}}}}}"
    )
    reading = read_bytes(SGLANG, log(line))
    assert [facts(row) for row in reading.requests] == [("a", "ok", 40, 8, 2)]
    deep = log("Finish: obj=X(rid='a'), out={'meta_info': " + "{'a': " * 100_000)
    assert [reason for _, reason in read_bytes(SGLANG, deep).rejected] == ["damaged_line"]


def test_formatted_lines_are_read_too() -> None:
    wrapped = b'{"asctime": "2026-11-20 09:00:10,123", "message": "Receive: obj=X(rid=\'a\')"}\n'
    reading = read_bytes(SGLANG, wrapped)
    assert [row.request_id for row in reading.requests] == ["a"]
    assert reading.rejected == []
