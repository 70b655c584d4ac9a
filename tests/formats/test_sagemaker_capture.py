"""SageMaker data capture: payloads of several encodings and APIs, usage from the output."""

from __future__ import annotations

from kvtrace.ingest.formats.sagemaker_capture import FORMATS
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

SAGEMAKER = FORMATS[0]
GOOD = (DATA / "sagemaker_capture" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "sagemaker_capture" / "damaged.jsonl").read_bytes()
START_NS = 1_772_438_400 * 10**9  # 2026-03-02T08:00:00Z


def test_invocations_have_usage_and_blocks() -> None:
    hasher = PromptHasher(b"key", block_tokens=4)
    reading = read_bytes(SAGEMAKER, GOOD, prompt_hasher=hasher)
    rows = reading.requests
    # chat · the same in base64, streamed · TGI · token ids · (CSV) · input alone
    assert [row.request_id for row in rows] == [f"event-{n}" for n in (0, 1, 2, 3, 5)]
    assert [row.arrived_at_ns for row in rows] == [START_NS + n * 10**9 for n in (0, 1, 2, 3, 5)]
    # TGI: 41 bytes, ceil(41 / 4); alone: "<system>\n…\n<user>\n…\n" has 65 bytes
    assert [row.prompt_tokens for row in rows] == [20, 20, 11, 5, 17]
    assert [row.cached_tokens for row in rows] == [16, None, None, None, None]
    assert [row.output_tokens for row in rows] == [6, 6, 3, 1, None]
    assert [row.llm for row in rows] == ["llm-a", "llm-a", None, "llm-a", "llm-a"]
    assert [len(row.block_keys or []) for row in rows] == [5, 5, 3, 2, 5]
    assert rows[0].block_keys == rows[1].block_keys
    assert list(rows[4].block_keys or [])[:4] == list(rows[0].block_keys or [])[:4]
    assert [row.flags for row in rows][2:] == [("tokens_estimated",), (), ("tokens_estimated",)]
    assert reading.ignored == {"no_llm_payload": 1}
    assert reading.note_codes == {"block_keys_from_bytes", "chat_template_assumed"}
    assert reading.context.evidence_grade is None
    assert reading.context.clock == "utc"


def test_prompts_are_not_read_without_a_key() -> None:
    reading = read_bytes(SAGEMAKER, GOOD)
    assert all(row.block_keys is None for row in reading.requests)
    assert reading.requests[0].cached_tokens == 16


def test_damaged_invocations_are_rejected_or_half_known() -> None:
    reading = read_bytes(SAGEMAKER, DAMAGED, prompt_hasher=PromptHasher(b"key"))
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (5, "invalid_json"),
    ]
    # line 4: the input is no base64, the usage stands
    (row,) = reading.requests
    assert (row.prompt_tokens, row.cached_tokens, row.block_keys) == (20, 16, None)
    assert reading.note_codes == {"payloads_not_read"}


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "sagemaker_capture"
    assert sniffed(all_formats(), DAMAGED) == "sagemaker_capture"
