"""The express lane gives, line by line, what the careful way gives: rows, rejects, counts, notes.

Logs are random mixtures of lines that the lane tells, lines that are nearly such, lines of other
programs and layers, and all of them damaged. Each is read once in blocks and once record by record.
"""

from __future__ import annotations

import random
from dataclasses import fields

import msgspec
import pytest

from kvtrace.ingest.contract import Format, LineTime, ReadContext, Row, Tally
from kvtrace.ingest.files.frame import FrameCounts, frame, line_blocks
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.textlog import ahead
from kvtrace.ingest.textlog.express import ExpressLane
from kvtrace.ingest.textlog.router import LogRouter, RowSink, date_row

DIALECTS = [entry for entry in all_formats() if entry.dialect is not None]
KEY = b"k" * 32
PARAMS = "SamplingParams(n=1, stop=[', lora_request: None.'], max_tokens=16)"
IDS = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]"
API = "(APIServer pid=1) "
TAIL = "prompt_embeds shape: None, lora_request: None."
LORA = "LoRARequest(lora_name='tuned', lora_int_id=1, lora_path='/x')"
HEADS = [
    f"{API}INFO 03-02 08:00:00 [logger.py:39] ",
    f"{API}INFO 03-02 08:00:01 [async_llm.py:271] ",
    "(ApiServer_1 pid=7) DEBUG 12-31 23:59:59 [entrypoints/logger.py:53] ",
    "(EngineCore_DP0 pid=9) INFO 01-01 00:00:00 [core.py:1] ",
    "INFO 02-29 12:00:00 logger.py:37] ",
    "INFO 02-30 25:00:00 logger.py:37] ",
    "(ServeReplica:app:x pid=3) INFO 03-02 08:00:00 [logger.py:39] ",
    "2026-03-02T08:00:00.123456789Z stdout F INFO 03-02 08:00:00 [logger.py:39] ",
    "2026-03-02T08:00:00.123456789Z stdout P INFO 03-02 08:00:00 [logger.py:39] ",
    "site: INFO 03-02 08:00:00 [logger.py:39] ",
    "\x1b[32mINFO\x1b[0m 03-02 08:00:00 [logger.py:39] ",
    "",
]
MESSAGES = [
    "Added request {id}.",
    "Added request {id}-0a1b2c3d.",
    "Added request 0_{id}.",
    "Finished request {id}.",
    "Aborted request(s) {id}.",
    f"Received request {{id}}: params: {PARAMS}, lora_request: None.",
    f"Received request {{id}}: params: {PARAMS}, lora_request: {LORA}.",
    "Received request {id}: params: PoolingParams(dimensions=None), lora_request: None.",
    f"Received request {{id}}: sampling_params: {PARAMS}, lora_request: None.",
    f"Received request {{id}}: prompt: 'a b', params: {PARAMS}, prompt_token_ids: {IDS}, {TAIL}",
    f"Received request {{id}}: prompt: 'it\\'s \\\\', params: {PARAMS}, prompt_token_ids: {IDS},"
    f" {TAIL}",
    f'Received request {{id}}: prompt: "it\'s é", params: {PARAMS}, prompt_token_ids: {IDS},'
    " lora_request: None, prompt_adapter_request: None.",
    f"Received request {{id}}: prompt: 'abcdefghijklmnopq', params: {PARAMS}, prompt_token_ids:"
    f" {IDS}, {TAIL}",
    f"Received request {{id}}: prompt: '\\nbcdefghijklmnopq', params: {PARAMS}, prompt_token_ids:"
    f" {IDS}, {TAIL}",
    f"Received request {{id}}: prompt: 'x', params: {PARAMS}, prompt_token_ids: None, {TAIL}",
    f"Received request {{id}}: prompt: None, params: {PARAMS}, prompt_token_ids: {IDS}, {TAIL}",
    f"Received request {{id}}: prompt: 'x', params: {PARAMS}, prompt_token_ids: [1, -2], {TAIL}",
    f"Received request {{id}}: prompt: 'x', params: {PARAMS}, prompt_token_ids: [5000000000],"
    f" {TAIL}",
    f"Received request {{id}}: prompt: 'x', params: {PARAMS}, prompt_token_ids: {IDS},"
    " prompt_embeds shape: torch.Size([2, 3]), lora_request: None.",
    f"Received request {{id}}: prompt: 'x', params: {PARAMS}, prompt_token_ids: {IDS},"
    f" prompt_embeds shape: None, lora_request: {LORA}.",
    f"Received request {{id}}: prompt: ', params: {PARAMS}, prompt_token_ids: {IDS}, {TAIL}",
    f"Request {{id}} details: prompt: 'a b', prompt_token_ids: {IDS}, prompt_embeds shape: None.",
    f"Request {{id}} details: prompt: None, prompt_token_ids: {IDS}, prompt_embeds shape: None.",
    f"Request {{id}} details: prompt: 'a', prompt_token_ids: {IDS}.",
    f"Request {{id}} details: prompt: 'a', prompt_token_ids: {IDS}, prompt_embeds shape: [3, 4].",
    "Request {id} failed.",
    "Generated response {id}: output: 'x', output_token_ids: [1, 2], finish_reason: stop",
    "vLLM API server version 0.11.0",
    "Starting vLLM API server 0 on http://0.0.0.0:8000",
    "Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 1.0 tokens/s,"
    " Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 5.0%",
    "nothing that anybody knows",
]
OTHERS = [
    '(APIServer pid=1) INFO:     10.0.0.7:51234 - "GET /health HTTP/1.1" 200 OK',
    'INFO:     10.0.0.7:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    'INFO:     10.0.0.7:51234 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
    '(APIServer pid=1) INFO:     é:1 - "GET /metrics HTTP/1.1" 200 OK',
    "2026-03-02T08:00:00.5Z stdout F the end of a line that was cut",
    '{"log":"a piece","stream":"stderr","time":"2026-03-02T08:00:00Z"}',
    '{"timestamp": "2026-03-02T08:00:00.1", "event": "request.received", "rid": "r", "obj": {}}',
    "[2025-01-01 00:00:00,000] LMCache INFO: Reqid: a, Total tokens 9, LMCache hit tokens: 4, need"
    " to load: 4",
    "I0101 00:00:00.000000 1234 file.cc:123] words",
    "Traceback (most recent call last):",
    " ",
    "",
    "\x00\x00",
]


def line(rng: random.Random) -> bytes:
    if rng.random() < 0.15:
        text = rng.choice(OTHERS)
    else:
        usual = rng.random() < 0.7
        head = HEADS[rng.randrange(2)] if usual else rng.choice(HEADS)
        text = head + rng.choice(MESSAGES).replace("{id}", f"chatcmpl-{rng.randrange(12)}")
    data = text.encode()
    if rng.random() < 0.15:
        data = damaged(rng, data)
    return data + (b"\r\n" if rng.random() < 0.02 else b"\n")


def damaged(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    way = rng.randrange(5)
    if way == 0:
        return data[:at]
    if way == 1:
        return data[:at] + rng.choice(OTHERS + HEADS + MESSAGES).encode() + data[at:]
    if way == 2:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if way == 3:
        return (
            data[:at] + rng.choice([b"\r", b"\0", b"\x1b[1m", b"'", b"\\", b".", b": "]) + data[at:]
        )
    return data[at:]


def log(seed: int) -> bytes:
    rng = random.Random(seed)
    lines = [line(rng) for _ in range(rng.randrange(1, 120))]
    if rng.random() < 0.3:
        lines[-1] = lines[-1].rstrip(b"\n")
    return b"".join(lines)


@pytest.fixture(autouse=True)
def lane_for_every_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs with few lines for the lane would be read past it."""
    monkeypatch.setattr(ahead, "_LOW_SHARE", 0.0)


def result(data: bytes, *, chunk_bytes: int | None, max_record_bytes: int) -> list[object]:
    """All that comes out of a log: read in blocks of chunks, or record by record (None)."""
    tally = Tally()
    held: list[tuple[str, Row, LineTime | None, bytes | None]] = []

    def new_context() -> ReadContext:
        return ReadContext("sample", tally, 1_772_500_000 * 10**9, token_key=KEY)

    def new_sink(entry: Format) -> RowSink:
        def sink(row: Row, time: LineTime | None) -> None:
            record = router.record
            is_own = record is not None and record.offset == row.offset
            held.append((entry.name, row, time, record.data if record and is_own else None))

        return sink

    router = LogRouter(DIALECTS, tally, new_context=new_context, new_sink=new_sink)
    counts = FrameCounts(max_record_bytes=max_record_bytes)
    if chunk_bytes is None:
        for record in frame((data,), "lines", counts):
            router.take(record)
    else:
        chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
        router.take_blocks(line_blocks(chunks, counts), counts)
    router.finish()
    clocks = {part.format.name: router.clock_of(part) for part in router.parts}
    rows = []
    for name, row, time, own in held:
        if time is not None:
            date_row(row, clocks[name].resolve(time))
        rows.append((name, type(row).__name__, msgspec.structs.asdict(row), time, own))
    parts = [
        (part.format.name, part.lines, part.used, known(part.context)) for part in router.parts
    ]
    rejects = [(record.offset, record.line, record.data, *why) for record, *why in tally.rejects]
    frames = counts.delivered, counts.blank, [(long.offset, long.line) for long in counts.too_long]
    return [rows, rejects, tally.used, tally.ignored, frames, parts]


def known(context: ReadContext) -> list[object]:
    return [
        getattr(context, place.name)
        for place in fields(context)
        if place.name not in ("tally", "late_arrivals")
    ]


@pytest.mark.parametrize("seed", range(300))
def test_blocks_give_what_records_give(seed: int) -> None:
    data, rng = log(seed), random.Random(-seed)
    limit = rng.choice([300, 1 << 24])
    careful = result(data, chunk_bytes=None, max_record_bytes=limit)
    express = result(data, chunk_bytes=rng.choice([7, 501, 4096, 1 << 20]), max_record_bytes=limit)
    for expected, got in zip(careful, express, strict=True):
        assert got == expected


def test_the_lane_tells_the_shapes_that_it_is_made_for() -> None:
    """Else the comparison above compares the careful way with itself."""
    told = [
        "Added request a.",
        "Finished request a.",
        MESSAGES[5].replace("{id}", "a"),
        *(MESSAGES[number].replace("{id}", "a") for number in (9, 10, 11, 12, 13, 14, 21, 23)),
    ]
    context = ReadContext("sample", Tally(), 0, token_key=KEY)
    dialect = next(entry.dialect for entry in DIALECTS if entry.name == "vllm_text")
    assert dialect is not None
    assert dialect.express is not None
    lane = ExpressLane(dialect.express(context))
    lines = [f"{head}{text}\n" for head in HEADS[:5] for text in told] + [
        f"{text}\n" for text in OTHERS[:3]
    ]
    runs = list(lane.scan("".join(lines).encode(), 0, 0))
    assert [(run.start, run.end) for run in runs] == [(len("".join(lines).encode()),) * 2]
    assert (len(runs[0].told), runs[0].access, runs[0].health) == (5 * len(told), 2, 1)
