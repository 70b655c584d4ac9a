"""Prompts in the records of gateways: every place that holds one gives the same blocks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kvtrace.ingest.contract import ReadContext, RequestRow, Tally
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.prompts.bodies import BodyReader
from kvtrace.ingest.prompts.rows import filled
from kvtrace.ingest.registry import format_named
from tests.formats.reading import Reading, read_bytes

KEY = b"a run's key of 32 bytes or more.."
SHARED = "You answer questions about the files of one project, briefly and with their names. " * 20
MESSAGES = [
    [{"role": "system", "content": SHARED}, {"role": "user", "content": f"question {n} " * 9}]
    for n in range(4)
]
USAGE = {"prompt_tokens": 480, "completion_tokens": 2, "total_tokens": 482}
# Rendered: 9 + 83 × 20 + 1 + 7 + 11 × 9 + 1 = 1 777 bytes, 445 tokens at 4 bytes each: 28 blocks of
# 16 tokens, and 30 of the stated 480.


def hasher(**given: object) -> PromptHasher:
    return PromptHasher(KEY, **given)  # type: ignore[arg-type]


def litellm(number: int, messages: object) -> dict[str, object]:
    return {
        "id": f"a{number}",
        "litellm_call_id": f"c{number}",
        "call_type": "acompletion",
        "status": "success",
        "startTime": 1_780_000_000.0 + number,
        "endTime": 1_780_000_001.0 + number,
        "completionStartTime": 1_780_000_000.5 + number,
        "model": "tiny-llm",
        "messages": messages,
        **USAGE,
    }


def langfuse(number: int, messages: object) -> dict[str, object]:
    return {
        "id": f"o{number}",
        "traceId": "t1",
        "type": "GENERATION",
        "startTime": "2026-05-28T20:26:40.250Z",
        "endTime": "2026-05-28T20:26:42.250Z",
        "model": "tiny-llm",
        "input": messages,
        "level": "DEFAULT",
        "usageDetails": {"input": 480, "output": 2, "total": 482},
    }


def helicone(number: int, messages: object) -> dict[str, object]:
    return {
        "request_id": f"h{number}",
        "request_created_at": "2026-05-28T20:26:40.250Z",
        "delay_ms": 5,
        "model": "tiny-llm",
        "request_body": {"model": "tiny-llm", "messages": messages},
        **USAGE,
    }


def portkey(number: int, messages: object) -> dict[str, object]:
    return {
        "id": f"p{number}",
        "created_at": "2026-05-28T20:26:40.250Z",
        "request": {"url": "https://x.invalid", "body": {"messages": messages}},
        "ai_model": "tiny-llm",
        "req_units": 480,
        "res_units": 2,
        "response_status_code": 200,
    }


def kong(number: int, messages: object) -> dict[str, object]:
    request = json.dumps({"messages": messages})
    return {
        "started_at": 1_780_000_000_250 + number,
        "latencies": {"request": 9},
        "request": {"id": f"k{number}"},
        "response": {"status": 200},
        "ai": {
            "proxy": {
                "usage": USAGE,
                "meta": {"response_model": "tiny-llm"},
                "payload": {"request": request},
            }
        },
    }


def batch_input(number: int, messages: object) -> dict[str, object]:
    body = {"model": "tiny-llm", "messages": messages}
    return {
        "custom_id": f"b{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
    }


def otlp(number: int, messages: object) -> dict[str, object]:
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "tiny-llm",
        "gen_ai.usage.input_tokens": 480,
        "gen_ai.input.messages": json.dumps(messages),
    }
    span = {
        "name": "chat tiny-llm",
        "traceId": f"{number + 1:032x}",
        "spanId": f"{number + 1:016x}",
        "startTimeUnixNano": "1780000000000000000",
        "endTimeUnixNano": "1780000001000000000",
        "attributes": [
            {"key": key, "value": {"intValue" if isinstance(value, int) else "stringValue": value}}
            for key, value in attributes.items()
        ],
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


Make = Callable[[int, object], dict[str, object]]
STATED: dict[str, Make] = {
    "litellm": litellm,
    "langfuse": langfuse,
    "helicone": helicone,
    "portkey": portkey,
    "kong": kong,
    "otlp_genai": otlp,
}


def read(name: str, make: Make, prompts: Sequence[object], **given: object) -> Reading:
    entry = format_named(name)
    assert entry is not None
    lines = "\n".join(json.dumps(make(number, one)) for number, one in enumerate(prompts))
    given.setdefault("prompt_hasher", hasher())
    return read_bytes(entry, lines.encode(), **given)  # type: ignore[arg-type]


def blocks(reading: Reading) -> list[list[int] | None]:
    return [None if row.block_keys is None else list(row.block_keys) for row in reading.requests]


@pytest.mark.parametrize("name", STATED)
def test_prompts_become_blocks_that_agree_with_the_stated_length(name: str) -> None:
    reading = read(name, STATED[name], [*MESSAGES])
    keys = blocks(reading)
    assert [len(row or ()) for row in keys] == [30] * 4  # 480 / 16
    first, second = keys[0] or [], keys[1] or []
    # 9 bytes of the role and 1 660 of the shared prompt are 26 whole blocks of 64 bytes
    assert first[:26] == second[:26]
    assert not set(first[26:]) & set(second[26:])
    assert [row.prompt_tokens for row in reading.requests] == [480] * 4
    assert all("tokens_estimated" not in row.flags for row in reading.requests)
    context = reading.context
    assert (context.evidence_grade, context.found_block_size_tokens) == ("A", 16)
    assert (context.block_scope, context.partial_tail) == ("global", "counted")
    assert {"block_keys_from_bytes", "chat_template_assumed"} <= reading.note_codes


def test_every_gateway_gives_the_same_blocks() -> None:
    made = [blocks(read(name, make, [*MESSAGES])) for name, make in STATED.items()]
    assert all(one == made[0] for one in made)


@pytest.mark.parametrize("name", STATED)
def test_without_a_hasher_nothing_is_read(name: str) -> None:
    reading = read(name, STATED[name], [*MESSAGES], prompt_hasher=None)
    assert blocks(reading) == [None] * 4
    assert reading.context.found_block_size_tokens is None
    assert reading.context.evidence_grade == "L"


@pytest.mark.parametrize("name", STATED)
def test_few_prompts_prove_nothing(name: str) -> None:
    reading = read(name, STATED[name], [MESSAGES[0], None, None])
    assert reading.context.found_block_size_tokens is None
    assert reading.context.evidence_grade == "L"
    assert "prompts_in_few_rows" in reading.note_codes


@pytest.mark.parametrize("name", STATED)
def test_a_length_of_another_text_gives_no_blocks(name: str) -> None:
    reading = read(name, STATED[name], [[{"role": "user", "content": "x" * 60}]])
    assert blocks(reading) == [None]  # 68 bytes are no 480 tokens
    assert reading.requests[0].flags == ("prompt_text_mismatch",)


def test_many_prompts_measure_the_bytes_of_a_token() -> None:
    reading = read("langfuse", langfuse, [*MESSAGES] * 16)
    notes = {note.code: note.message for note in reading.context.notes}
    # 1 777 / 480 = 3.702 bytes a token; 16 tokens are 59.2 bytes
    assert "blocks are 59 bytes" in notes["block_keys_from_bytes"]
    assert "measured on 64 prompts" in notes["block_keys_from_bytes"]
    assert reading.context.block_scope == "file"


def test_a_batch_to_be_run_has_estimated_lengths() -> None:
    reading = read("openai_batch_input", batch_input, [*MESSAGES])
    keys = blocks(reading)
    assert keys[0] is not None
    assert keys[1] is not None
    assert keys[0][:26] == keys[1][:26]
    assert {row.flags for row in reading.requests} == {("tokens_estimated",)}
    assert [row.request_id for row in reading.requests] == ["b0", "b1", "b2", "b3"]
    assert all(
        len(row or ()) == -(-(request.prompt_tokens or 0) // 16)
        for row, request in zip(keys, reading.requests, strict=True)
    )
    assert (reading.context.evidence_grade, reading.context.clock) == ("A", "order")


def test_prompts_of_other_llms_share_nothing() -> None:
    lines = [batch_input(0, MESSAGES[0]), batch_input(1, MESSAGES[0])]
    lines[1]["body"] = {"model": "other-llm", "messages": MESSAGES[0]}
    entry = format_named("openai_batch_input")
    assert entry is not None
    data = "\n".join(map(json.dumps, lines)).encode()
    first, second = blocks(read_bytes(entry, data, prompt_hasher=hasher()))
    assert not set(first or ()) & set(second or ())


# Bodies


def keys_of(body: object, **given: object) -> list[int] | None:
    context = ReadContext("sample", Tally(), 0, prompt_hasher=hasher(**given))
    made_by = context.prompt_hasher
    assert made_by is not None
    reader = BodyReader(context)
    row, prompt = reader.prompted(RequestRow(offset=0, line=1), json.dumps(body).encode())
    keys = filled(row, prompt, made_by).block_keys
    return None if keys is None else list(keys)


def shared(one: object, other: object) -> int:
    """Leading blocks that two bodies share; of 8 bytes each."""
    left, right = (keys_of(body, block_tokens=2) for body in (one, other))
    assert left is not None
    assert right is not None
    return next(
        (at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )


USER = {"role": "user", "content": "what is in the picture, and who drew it?"}


def test_the_same_request_in_other_shapes() -> None:
    messages = {"messages": [USER]}
    assert keys_of(messages) == keys_of([USER])
    assert keys_of(messages) == keys_of(json.dumps(messages))  # JSON in a text
    assert keys_of(messages) == keys_of(json.dumps(json.dumps([USER])))
    parts = [{"type": "text", "text": USER["content"], "cache_control": {"type": "ephemeral"}}]
    assert keys_of(messages) == keys_of({"messages": [{"role": "user", "content": parts}]})
    assert keys_of(messages) == keys_of({"input": USER["content"]})
    assert keys_of(messages) == keys_of({"input": [USER]})
    gemini = [{"role": "user", "parts": [{"text": USER["content"]}]}]
    assert keys_of(messages) == keys_of({"contents": gemini})
    otel = [{"role": "user", "parts": [{"type": "text", "content": USER["content"]}]}]
    assert keys_of(messages) == keys_of(otel)


def test_tools_and_system_prompts_come_first() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    plain = {"system": "be brief and kind", "messages": [USER]}
    with_tools = {**plain, "tools": tools}
    assert shared(with_tools, {**with_tools, "messages": [{**USER, "content": "no"}]}) >= 8
    assert shared(plain, with_tools) == 0
    # the note of where a cache ends moves from turn to turn, and is no part of the prompt
    marked = [{**tools[0], "cache_control": {"type": "ephemeral"}}]
    assert keys_of({**plain, "system": [{"type": "text", "text": "be brief and kind"}]}) == keys_of(
        plain
    )
    assert keys_of(with_tools) == keys_of({**plain, "tools": marked})


def test_images_keep_a_prefix_if_they_are_equal() -> None:
    def asks(url: str, end: str) -> object:
        image = {"type": "image_url", "image_url": {"url": url}}
        parts = [
            {"type": "text", "text": "look at this picture"},
            image,
            {"type": "text", "text": end},
        ]
        return {"messages": [{"role": "user", "content": parts}]}

    big, other = "data:image/png;base64," + "A" * 9_000, "data:image/png;base64," + "B" * 9_000
    # "<user>\nlook at this picture\n<medium " are 36 bytes: 4 blocks before the image's digest
    assert shared(asks(big, "a first question"), asks(other, "a first question")) == 4
    # and the 32 of the digest, ">\n", 2 of the text: 72 bytes are 9 blocks, and it is no 9 000
    assert shared(asks(big, "a first question"), asks(big, "a second question")) == 9
    assert len(keys_of(asks(big, "a"), block_tokens=2) or ()) == 9


def test_a_note_says_that_images_have_no_known_length() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": SHARED}, image]}]
    assert "media_in_prompts" in read("langfuse", langfuse, [messages]).note_codes


def test_token_ids_are_taken_as_they_are() -> None:
    ids = list(range(40))
    assert keys_of({"prompt": ids}) == keys_of({"prompt": [ids]})
    assert len(keys_of({"prompt": ids}) or ()) == 3  # 40 / 16
    entry = format_named("helicone")
    assert entry is not None
    record = helicone(1, None) | {"request_body": {"prompt": ids}, "prompt_tokens": 40}
    reading = read_bytes(entry, json.dumps(record).encode(), prompt_hasher=hasher())
    assert len(blocks(reading)[0] or ()) == 3
    assert "block_keys_from_bytes" not in reading.note_codes


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ["two prompts", "at once"]},
        {"prompt": [-1, 2]},
        {"prompt": [1 << 70]},
        {"messages": 7},
        {"messages": [7]},
        {"contents": "x"},
        {"input": {"a": 1}},
        {"model": "without a prompt"},
        7,
        [[["deep"]]],
        '{"messages": [',
    ],
)
def test_what_is_no_prompt_gives_no_blocks_and_no_error(body: object) -> None:
    text = isinstance(body, str)
    assert (keys_of(body) is not None) == text  # a text is a prompt, even one that looks like JSON


def test_prompts_that_were_blacked_out_are_none() -> None:
    redacted = [[{"role": "user", "content": "redacted-by-litellm"}]] * 3
    reading = read("litellm", litellm, redacted)
    assert blocks(reading) == [None] * 3
    assert reading.requests[0].flags == ()
    assert "prompts_hidden" in reading.note_codes
    cut = [{"role": "user", "content": "start ... (litellm_truncated skipped 900 chars) ... end"}]
    assert keys_of(cut) is None


def test_a_deep_body_is_none() -> None:
    context = ReadContext("sample", Tally(), 0, prompt_hasher=hasher())
    reader = BodyReader(context)
    for data in (b"[" * 100_000, b'{"messages":' * 50_000, b'[{"role":"user","content":' * 20_000):
        assert reader.prompted(RequestRow(offset=0, line=1), data)[1] is None
    reader.describe()
    assert {note.code for note in context.notes} == {"prompts_not_read"}


def test_anthropic_through_litellm_has_its_system_prompt_among_the_parameters() -> None:
    entry = format_named("litellm")
    assert entry is not None
    records = [litellm(number, [USER]) | {"prompt_tokens": 450} for number in range(2)]
    for record, more in zip(records, ("A", "B"), strict=True):
        record["model_parameters"] = {"system": SHARED + more, "tools": [{"name": "look"}]}
    data = "\n".join(map(json.dumps, records)).encode()
    first, second = blocks(read_bytes(entry, data, prompt_hasher=hasher()))
    # 17 bytes of tools, 9 of "<system>" and 1 660 are 26 blocks; then A and B
    assert first is not None
    assert second is not None
    assert [a == b for a, b in zip(first, second, strict=True)] == [True] * 26 + [False] * 3


def test_spend_logs_have_messages_or_the_request() -> None:
    entry = format_named("litellm_spend_logs")
    assert entry is not None
    header = "request_id,startTime,endTime,spend,model,prompt_tokens,messages,proxy_server_request"
    cells = [json.dumps(MESSAGES[0]), json.dumps({"messages": MESSAGES[0]})]
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
    time = "2026-05-28 20:26:40,2026-05-28 20:26:41"
    rows = [
        f"r1,{time},0,tiny-llm,480,{quoted[0]},{{}}",
        f"r2,{time},0,tiny-llm,480,{{}},{quoted[1]}",
    ]
    data = "\n".join([header, *rows, ""]).encode()
    first, second = blocks(read_bytes(entry, data, prompt_hasher=hasher()))
    assert first == second
    assert len(first or ()) == 30


@pytest.mark.parametrize("attribute", ["gen_ai.prompt", "input.value"])
def test_older_spans(attribute: str) -> None:
    entry = format_named("otlp_genai")
    assert entry is not None
    new = otlp(0, MESSAGES[0])
    text = json.dumps(new).replace("gen_ai.input.messages", attribute)
    want = blocks(read_bytes(entry, json.dumps(new).encode(), prompt_hasher=hasher()))
    assert blocks(read_bytes(entry, text.encode(), prompt_hasher=hasher())) == want


def test_prompts_on_events_and_in_numbered_attributes() -> None:
    entry = format_named("otlp_genai")
    assert entry is not None
    record = otlp(0, MESSAGES[0])
    want = blocks(read_bytes(entry, json.dumps(record).encode(), prompt_hasher=hasher()))
    span = record["resourceSpans"][0]["scopeSpans"][0]["spans"][0]  # type: ignore[index]
    prompt = span["attributes"].pop()
    span["events"] = [{"name": "gen_ai.client.inference.operation.details", "attributes": [prompt]}]
    assert blocks(read_bytes(entry, json.dumps(record).encode(), prompt_hasher=hasher())) == want
    del span["events"]
    for number, message in enumerate(MESSAGES[0]):
        for name, value in message.items():
            key = f"gen_ai.prompt.{number}.{name}"
            span["attributes"].append({"key": key, "value": {"stringValue": value}})
    assert blocks(read_bytes(entry, json.dumps(record).encode(), prompt_hasher=hasher())) == want


def test_the_engines_span_gets_the_blocks_of_the_callers() -> None:
    entry = format_named("otlp_genai")
    assert entry is not None
    record = otlp(0, MESSAGES[0])
    spans = record["resourceSpans"][0]["scopeSpans"][0]["spans"]  # type: ignore[index]
    inner = dict(
        spans[0], name="llm_request", spanId="00000000000000ff", parentSpanId="0" * 15 + "1"
    )
    inner["attributes"] = [{"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": 480}}]
    spans.append(inner)
    reading = read_bytes(entry, json.dumps(record).encode(), prompt_hasher=hasher())
    assert [len(row or ()) for row in blocks(reading)] == [30]
    assert reading.context.evidence_grade == "A"


def test_an_answer_of_an_api_with_prompts() -> None:
    entry = format_named("langfuse")
    assert entry is not None
    document = {"data": [langfuse(number, messages) for number, messages in enumerate(MESSAGES)]}
    whole = dataclasses.replace(entry, framing="json")
    reading = read_bytes(whole, json.dumps(document).encode(), prompt_hasher=hasher())
    assert [len(row or ()) for row in blocks(reading)] == [30] * 4


def test_copies_of_rows_that_were_held_to_be_measured_are_dropped(tmp_path: Path) -> None:
    lines = [json.dumps(litellm(number, MESSAGES[number % 4])) for number in range(100)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines[:90], ""]))
    (tmp_path / "b.jsonl").write_text("\n".join([*lines[40:], ""]))  # 50 of them again
    result = ingest_paths([tmp_path], salt=b"salt")
    assert len(result.frames["requests"]) == 100
    assert not result.frames["requests"]["flags"].list.contains("id_conflict").any()
    assert [entry.ignored_by_reason for entry in result.files] == [{}, {"exact_copy": 50}]
