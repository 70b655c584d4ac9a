"""Chat texts: recognised, and read only when somebody says how text becomes tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace.errors import InputError
from kvtrace.ingest.formats.chat_text import FORMATS
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

CHAT = FORMATS[0]
SHAREGPT = (DATA / "chat_text" / "sharegpt.json").read_bytes()
WILDCHAT = (DATA / "chat_text" / "wildchat.jsonl").read_bytes()


@pytest.mark.parametrize("hasher", [None, PromptHasher(b"key")])
def test_texts_are_not_guessed_at(hasher: PromptHasher | None) -> None:
    reading = read_bytes(CHAT, SHAREGPT, prompt_hasher=hasher)
    assert reading.rows == []
    assert reading.ignored == {"needs_tokenizer": 2}
    (note,) = reading.context.notes
    assert (note.code, note.severity) == ("needs_tokenizer", "warning")
    assert "--tokenizer" in note.message


def test_the_error_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_bytes(SHAREGPT)
    with pytest.raises(InputError) as refused:
        ingest_paths([path], salt=b"salt")
    assert "no token counts and no times" in (refused.value.cause or "")


def test_each_reply_is_a_request_when_the_ratio_is_stated() -> None:
    hasher = PromptHasher(b"key", block_tokens=4, bytes_per_token=4.0)
    reading = read_bytes(CHAT, SHAREGPT, prompt_hasher=hasher)
    first, second = reading.requests
    # "<system>\nBe kind to everybody who asks.\n<user>\nhi\n" has 50 bytes: 13 tokens; behind it
    # "<assistant>\nhello there\n<user>\nbye\n" has 35 more: 22 tokens
    assert [row.prompt_tokens for row in (first, second)] == [13, 22]
    assert [row.output_tokens for row in (first, second)] == [3, 2]  # 11 and 8 bytes
    assert [(row.session_id, row.turn) for row in (first, second)] == [("c1", 0), ("c1", 1)]
    # 50 bytes are three whole blocks of 16 and a part, which the second prompt fills
    assert list(first.block_keys or [])[:3] == list(second.block_keys or [])[:3]
    assert list(first.block_keys or [])[3:] != list(second.block_keys or [])[3:4]
    assert reading.ignored == {"no_reply": 1}  # a reply to nothing
    assert reading.note_codes == {"block_keys_from_bytes", "chat_template_assumed"}
    assert reading.context.clock == "order"


def test_wildchat_and_lmsys() -> None:
    hasher = PromptHasher(b"key", bytes_per_token=4.0)
    reading = read_bytes(CHAT, WILDCHAT, prompt_hasher=hasher)
    assert [row.session_id for row in reading.requests] == ["h1", "l1"]
    assert [row.llm for row in reading.requests] == ["gpt-x", "vicuna-x"]
    assert reading.rejected == [(3, "invalid_field"), (4, "invalid_json")]


def test_chat_whose_prompts_would_fill_the_memory_is_rejected() -> None:
    message = {"role": "assistant", "content": "x" * 1000}
    data = json.dumps({"id": 1, "conversation": [message] * 1000}).encode()
    hasher = PromptHasher(b"key", bytes_per_token=4.0)
    assert read_bytes(CHAT, data, prompt_hasher=hasher).rejected == [(1, "invalid_field")]


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), SHAREGPT) == "chat_text"
    assert sniffed(all_formats(), WILDCHAT) == "chat_text"
