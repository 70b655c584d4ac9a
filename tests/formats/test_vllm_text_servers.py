"""Requests of vLLM logs by server and by run; rows leave while the log is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.contract import LineTime, Record, RequestRow, Row
from kvtrace.ingest.formats.vllm_text import FORMATS
from kvtrace.ingest.formats.vllm_text.book import BookCounts, RequestBook
from kvtrace.ingest.formats.vllm_text.messages import parse_request_message
from kvtrace.ingest.pipeline import ingest_paths
from tests.formats.reading import Reading, read_bytes

VLLM = FORMATS[0]
RECEIVED = "Received request {}: params: SamplingParams(n=1), lora_request: None."


def read(*lines: str, token_key: bytes | None = None) -> Reading:
    """A log of lines `PROCESS| message`, one second apart."""
    stamped = []
    for number, line in enumerate(lines):
        process, _, message = line.rpartition("| ")
        before = f"({process}) " if process else ""
        clock = f"{number // 60 % 60:02d}:{number % 60:02d}"
        stamped.append(f"{before}INFO 10-05 08:{clock} [x.py:1] {message}")
    return read_bytes(VLLM, ("\n".join(stamped) + "\n").encode(), token_key=token_key)


def ends(reading: Reading) -> list[tuple[str | None, str, int | None]]:
    return [(row.request_id, row.status, row.e2e_ns) for row in reading.requests]


def test_two_servers_of_one_log_have_their_own_requests() -> None:
    reading = read(
        f"APIServer pid=10| {RECEIVED.format('same')}",
        f"APIServer pid=20| {RECEIVED.format('same')}",
        "APIServer pid=10| Added request same.",
        "APIServer pid=20| Added request same.",
        "APIServer pid=20| Aborted request(s) same.",  # 4 s after its own arrival at second 1 → 3 s
        "APIServer pid=10| Generated response same: output: 'x', finish_reason: stop",
    )
    assert ends(reading) == [
        ("same", "ok", 5_000_000_000),
        ("same", "cancelled", 3_000_000_000),
    ]
    assert reading.context.engine_facts["api_servers"] == 2


def test_a_banner_ends_the_run_of_its_own_server_only() -> None:
    reading = read(
        "APIServer pid=10| Added request a.",
        "APIServer pid=20| Added request b.",
        "APIServer pid=20| vLLM API server version 0.12.0",
        "APIServer pid=20| Aborted request(s) b.",  # means nothing any more
        "APIServer pid=10| Aborted request(s) a.",
    )
    assert ends(reading) == [("a", "cancelled", 4_000_000_000), ("b", "open", None)]
    assert reading.ignored == {"end_without_start": 1}


def test_a_banner_ends_the_run_of_its_helpers() -> None:
    reading = read(
        "ApiServer_0 pid=11| Added request a.",
        "ApiServer_1 pid=12| Added request a.",
        "APIServer pid=1| vLLM API server version 0.12.0",
        "ApiServer_0 pid=11| Added request a.",
    )
    assert len(reading.requests) == 3


def test_an_id_after_a_restart_is_a_new_request_whatever_its_process() -> None:
    reading = read(
        f"APIServer pid=1| {RECEIVED.format('a')}",
        "APIServer pid=1| vLLM API server version 0.12.0",
        f"APIServer pid=1| {RECEIVED.format('a')}",
        "APIServer pid=1| Generated response a: output: 'x', finish_reason: stop",
    )
    assert ends(reading) == [("a", "open", None), ("a", "ok", 1_000_000_000)]


def test_a_line_of_another_process_belongs_to_the_server_that_knows_the_id() -> None:
    reading = read(
        f"APIServer pid=10| {RECEIVED.format('a')}",
        f"APIServer pid=20| {RECEIVED.format('b')}",
        "Added request a.",  # its process prefix was eaten
        "MQLLMEngine pid=21| Added request b.",
        "Aborted request b.",
    )
    assert ends(reading) == [("a", "open", None), ("b", "cancelled", 3_000_000_000)]


def test_the_model_is_that_of_the_run() -> None:
    reading = read(
        "vLLM API server version 0.12.0",
        "non-default args: {'model': 'acme/small'}",
        "Added request a.",
        "vLLM API server version 0.12.0",
        "non-default args: {'model': 'acme/large'}",
        "Added request b.",
    )
    assert [row.llm for row in reading.requests] == ["acme/small", "acme/large"]


def test_the_scheduler_is_as_it_was_started() -> None:
    # The value that the engine settled on stands in a line of its own; later lines win.
    facts = read(
        "vLLM API server version 0.12.0",
        "non-default args: {'model': 'acme/small', 'max_num_seqs': 128,"
        " 'max_num_batched_tokens': 4096}",
        "Chunked prefill is enabled with max_num_batched_tokens=2048.",
    ).context.engine_facts
    assert (facts["running_requests"], facts["prefill_chunk_tokens"]) == (128, 2048)


def test_the_hit_unit_is_that_of_the_version_in_force() -> None:
    stats = (
        "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 5.0"
        " tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%,"
        " Prefix cache hit rate: 50.0%"
    )
    reading = read(
        "APIServer pid=1| vLLM API server version 0.8.5",
        f"APIServer pid=1| {stats}",
        "APIServer pid=1| vLLM API server version 0.9.1",
        f"APIServer pid=1| {stats}",
        "APIServer pid=2| vLLM API server version 0.8.5",
        f"APIServer pid=2| {stats}",
        f"APIServer pid=1| {stats}",
        f"APIServer pid=3| {stats}",  # who knows
    )
    units = [
        metric.hit_unit
        for sample in reading.samples
        for metric in sample.metrics
        if metric.metric == "prefix_hit_ratio"
    ]
    assert units == ["blocks", "tokens", "blocks", "tokens", None]
    assert reading.context.engine_version == "0.8.5, 0.9.1"
    assert "engine_version_changed" in reading.note_codes


def test_room_for_kv_is_that_of_one_engine_and_ranks_repeat_it() -> None:
    reading = read(
        "EngineCore_DP0 pid=2| GPU KV cache size: 1,000 tokens",
        "EngineCore_DP0 pid=2| GPU KV cache size: 1,000 tokens",  # once a worker
        "EngineCore_DP1 pid=3| GPU KV cache size: 1,000 tokens",
        "Worker_TP0 pid=4| Available KV cache memory: 2.00 GiB",
        "Worker_TP1 pid=5| Available KV cache memory: 2.00 GiB",
    )
    assert reading.context.engine_facts["kv_capacity_tokens"] == 1000
    assert reading.metric("kv_capacity_tokens") == [1000.0, 1000.0]
    assert [sample.engine for sample in reading.samples] == [
        "Engine 000",
        "Engine 001",
        "Worker_TP0",
        "Worker_TP1",
    ]
    assert reading.ignored == {"repeated_by_rank": 1}


def test_the_smallest_of_several_engines_is_the_room_of_one_until_a_restart() -> None:
    lines = [
        "EngineCore_DP0 pid=2| GPU KV cache size: 1,100 tokens",
        "EngineCore_DP1 pid=3| GPU KV cache size: 1,000 tokens",
    ]
    assert read(*lines).context.engine_facts["kv_capacity_tokens"] == 1000
    later = read(*lines, "vLLM server version 0.12.0", "GPU KV cache size: 5,000 tokens")
    assert later.context.engine_facts["kv_capacity_tokens"] == 5000


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (["Added request a."], [("a", "open", None)]),
        ([RECEIVED.format("a")], [("a", "open", None)]),
        (
            ["Added request a.", "Added request b.", "Aborted request(s) a,b,c."],
            [("a", "cancelled", 2_000_000_000), ("b", "cancelled", 1_000_000_000)],
        ),
        (
            # a batch of prompts, and two samples of one of them
            [
                RECEIVED.format("c-0"),
                RECEIVED.format("c-1"),
                "Added request c-0.",
                "Added request 0_c-1.",
                "Added request 1_c-1.",
                "Aborted request c-1.",
            ],
            [
                ("c-0", "open", None),
                ("0_c-1", "cancelled", 4_000_000_000),
                ("1_c-1", "cancelled", 4_000_000_000),
            ],
        ),
        (
            # two requests of one client id at once: the engine's suffix tells them apart
            [
                RECEIVED.format("x"),
                "Added request x-0000000a.",
                RECEIVED.format("x"),
                "Added request x-0000000b.",
                "Aborted request(s) x-0000000a.",
            ],
            [("x", "cancelled", 4_000_000_000), ("x", "open", None)],
        ),
        (
            [
                RECEIVED.format("y"),
                "Generated response y (streaming delta): output: 'o',"
                " output_token_ids: [1], finish_reason: None",
                "Generated response y (streaming complete): output: 'ok', output_token_ids: [1, 2],"
                " finish_reason: streaming_complete",
                "Aborted request(s) y.",
            ],
            [("y", "ok", 2_000_000_000)],  # what comes after the end is said twice
        ),
    ],
)
def test_lines_that_a_flag_leaves_out(
    lines: list[str], rows: list[tuple[str | None, str, int | None]]
) -> None:
    assert ends(read(*lines)) == rows


@pytest.mark.parametrize("key", ["message", "msg", "event", "log"])
@pytest.mark.parametrize("stamp", ["asctime", "timestamp", "time", "ts"])
def test_a_json_formatter_with_other_keys(key: str, stamp: str) -> None:
    lines = [
        f'{{"{stamp}": "2026-11-20 09:00:1{second},500", "processName": "MainProcess",'
        f' "process": {pid}, "{key}": "{message}"}}'
        for second, pid, message in [
            (0, 1, RECEIVED.format("a")),
            (1, 2, RECEIVED.format("a")),
            (2, 1, "Added request a-0000000a."),
            (4, 1, "Aborted request(s) a-0000000a."),
        ]
    ]
    reading = read_bytes(VLLM, ("\n".join(lines) + "\n").encode())
    assert ends(reading) == [("a", "cancelled", 4_000_000_000), ("a", "open", None)]
    assert reading.context.clock_resolution_ns == 1_000_000


def test_the_requests_of_the_first_server_leave_when_too_many_servers_come() -> None:
    lines = [f"APIServer pid={pid}| Added request a." for pid in range(65)]
    reading = read(*lines, "APIServer pid=0| Aborted request(s) a.")
    assert len(reading.requests) == 65
    assert {row.status for row in reading.requests} == {"open"}
    assert reading.ignored == {"end_without_start": 1}
    assert len({row.line for row in reading.requests}) == 65


def test_an_abort_by_the_engines_id_finds_a_request_without_added_line() -> None:
    reading = read(RECEIVED.format("a"), "Aborted request(s) a-0000000a.")
    assert ends(reading) == [("a", "cancelled", 1_000_000_000)]


def test_details_and_lengths_of_several_samples() -> None:
    reading = read(
        RECEIVED.format("a"),
        "Added request 0_a.",
        "Added request 1_a.",
        "Request a details: prompt: 'some text', prompt_token_ids: [7, 8], prompt_embeds shape:"
        " None.",
        "Generated response a details: output_token_ids: [1, 2, 3]",  # of which sample?
    )
    counts = [(row.request_id, row.prompt_tokens, row.output_tokens) for row in reading.requests]
    assert counts == [("0_a", 2, None), ("1_a", 2, None)]


def test_a_call_again_does_not_mean_the_samples_of_the_last_one() -> None:
    reading = read(
        RECEIVED.format("a"),
        "Added request 0_a.",
        "Added request 1_a.",
        RECEIVED.format("a"),
        "Aborted request a.",
    )
    assert [(row.request_id, row.status) for row in reading.requests] == [
        ("0_a", "open"),
        ("1_a", "open"),
        ("a", "cancelled"),
    ]


def test_a_pooling_request_says_so() -> None:
    pooling = RECEIVED.format("a").replace("SamplingParams(n=1)", "PoolingParams(dimensions=None)")
    assert [row.request_type for row in read(pooling, RECEIVED.format("b")).requests] == [
        "pooling",
        None,
    ]


def test_an_end_before_its_start_has_no_duration() -> None:
    log = (
        "INFO 10-05 08:00:09 [x.py:1] Added request a.\n"
        "INFO 10-05 08:00:07 [x.py:1] Aborted request a.\n"
    )
    (row,) = read_bytes(VLLM, log.encode()).requests
    assert (row.e2e_ns, row.status, row.flags) == (None, "cancelled", ("time_order",))


class _Clock:
    def elapsed_ns(self, start: LineTime, end: LineTime) -> int | None:
        return end.time_ns - start.time_ns

    def anchor_zone(self, naive: LineTime, epoch_ns: int) -> None:
        raise AssertionError


class _Book:
    """A book that holds few rows, and the rows that have left it."""

    def __init__(self, max_open: int) -> None:
        self.rows: list[RequestRow] = []
        self.counts = BookCounts()
        self._at = 0
        self._book = RequestBook(_Clock(), self._emit, self.counts, max_open=max_open)

    def _emit(self, row: Row, time: LineTime | None = None) -> None:
        assert isinstance(row, RequestRow)
        assert time is not None
        self.rows.append(row)

    def say(self, message: str) -> str | None:
        self._at += 1
        event = parse_request_message(message)
        assert event is not None
        return self._book.take(
            event, Record(self._at, self._at, b""), LineTime(None, None, 101, self._at, 0)
        )

    def close(self) -> None:
        self._book.close()


def test_rows_leave_when_enough_newer_ones_have_come() -> None:
    book = _Book(max_open=3)
    for number in range(10):
        book.say(f"Added request r{number}.")
    assert [row.request_id for row in book.rows] == [f"r{number}" for number in range(7)]
    assert book.say("Aborted request r6.") == "end_without_start"
    assert book.say("Aborted request r7.") is None
    assert book.say("Added request r6.") is None  # means a new one
    book.close()
    assert [(row.request_id, row.status) for row in book.rows[7:]] == [
        ("r7", "cancelled"),
        ("r8", "open"),
        ("r9", "open"),
        ("r6", "open"),
    ]
    assert book.counts.requests == 11
    assert (book.counts.left_open, book.counts.unmatched_ends) == (7, 1)


def test_a_call_whose_first_sample_left_is_forgotten_whole() -> None:
    book = _Book(max_open=2)
    book.say(RECEIVED.format("p"))
    for number in range(4):
        book.say(f"Added request {number}_p.")
    assert [row.request_id for row in book.rows] == ["0_p", "1_p"]
    assert book.say("Aborted request 3_p.") is None
    book.close()
    assert [(row.request_id, row.status) for row in book.rows[2:]] == [
        ("2_p", "open"),
        ("3_p", "cancelled"),
    ]


def test_late_ends_are_told() -> None:
    lines = [f"Added request r{number}." for number in range(65_538)]
    reading = read(*lines, "Aborted request r0.")
    assert "late_ends" in reading.note_codes
    assert len(reading.requests) == 65_538
    assert "late_ends" not in read("Added request a.", "Aborted request b.").note_codes


def test_blocks_of_few_requests_are_forgotten(tmp_path: Path) -> None:
    ids = ", ".join(map(str, range(40)))
    log = tmp_path / "engine.log"
    with_ids = (
        "INFO 05-31 16:44:58 x.py:1] Received request {}: prompt: None, params: P(), "
        f"prompt_token_ids: [{ids}], lora_request: None.\n"
    )
    without = (
        "INFO 05-31 16:44:59 x.py:1] Received request {}: prompt: None, params: P(), "
        "prompt_token_ids: None, lora_request: None.\n"
    )
    log.write_text(with_ids.format("a") + with_ids.format("b") + without.format("c"))
    few = ingest_paths([log], salt=b"salt")
    assert few.frames["requests"]["prompt_tokens"].to_list() == [40, 40, None]
    assert few.frames["blocks"].is_empty()
    log.write_text("".join(with_ids.format(name) for name in "abcd") + without.format("e"))
    most = ingest_paths([log], salt=b"salt")  # 4 of 5 are the 80 % that are asked for
    assert most.frames["blocks"]["block_count"].to_list() == [3, 3, 3, 3]
