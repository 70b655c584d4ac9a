"""Names of models: a path may name people, an organisation's model stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.modelnames import base_name
from tests.unit.ingest_formats import ingest, made_up, write_rows


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("/home/anna/models/llama", "llama"),
        ("~/models/llama/", "llama"),
        ("../llama.gguf", "llama.gguf"),
        ("C:\\Users\\anna\\llama", "llama"),
        ("s3://anna/models/llama", "llama"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("accounts/fireworks/models/llama-v3", "accounts/fireworks/models/llama-v3"),
        ("gpt-4o:2024-08-06", "gpt-4o:2024-08-06"),
        ("/", ""),
    ],
)
def test_a_path_is_cut_to_its_last_part(name: str, base: str) -> None:
    assert base_name(name) == base


def test_no_format_brings_a_path_into_the_dataset(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"request_id": "a", "llm": "/home/anna/m", "adapter": "/home/anna/l"},
        {"request_id": "b", "llm": "org/m"},
        {"request_id": "c", "llm": "/"},
    ]
    result = ingest([write_rows(tmp_path / "a", "log", rows)], made_up("log", clock="utc"))
    requests = result.frames["requests"]
    assert requests["llm"].to_list() == ["m", "org/m", None]
    assert requests["adapter"].to_list() == ["l", None, None]
