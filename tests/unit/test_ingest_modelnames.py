"""Names of models: a path may name people, an organisation's model stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.modelnames import NameBook, base_name, is_name
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


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-8B",
        "claude-3-5-sonnet@20240620",
        "@cf/meta/llama-3.1-8b-instruct",
        "gpt-4o:2024-08-06",
        "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
        "ft:gpt-4o-mini-2024-07-18:acme::abc12345",
        "skywork-13b-base-8bit-quantised",
        "hf-internal-testing/tiny-random-LlamaForCausalLM",
        "sha256-6a0746a1ec1aef3e7ec53868f220ff6e389f6f8ef87a01d77c96807de94ca2aa",
        "NVIDIA H100 80GB HBM3",
        "Llama 3.1 8B (fp8)",
        "GPT-4",
        "llama-3.3-70b-versatile.gguf",
    ],
)
def test_names_stay(name: str) -> None:
    assert is_name(name)
    assert NameBook().name(name) == name


@pytest.mark.parametrize(
    "text",
    [
        "please write a poem about my neighbour",
        "anna.schmidt@firm.example",
        "sk-proj-abcdefghijklmnop1234",
        "hf_abcdefghijklmnopqrstuv",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6",
        "0123456789abcdef0123456789abcdef",
        "gpu-17.cluster.internal",
        "gpu-17.firm.com:8000",
        "registry.firm.com/team/llama",
        "10.0.0.7",
        "10.0.0.7:8000",
        "fe80::1:2:3",
        "größe",
        "line\nbreak",
        "http://gpu-17",
        "x" * 129,
        "",
    ],
)
def test_what_is_no_name_is_not_shown(text: str) -> None:
    assert not is_name(base_name(text))
    assert NameBook().name(text) in (None, "hidden-1")


def test_hidden_names_are_told_apart_in_the_order_of_their_rows(tmp_path: Path) -> None:
    names = [
        "what is this sentence doing here",
        "m",
        "a@b.example",
        "what is this sentence doing here",
    ]
    rows: list[dict[str, object]] = [
        {"request_id": str(number), "llm": name, "request_type": "chat" if number else "user 17"}
        for number, name in enumerate(names)
    ]
    result = ingest([write_rows(tmp_path / "a", "log", rows)], made_up("log", clock="utc"))
    requests = result.frames["requests"]
    assert requests["llm"].to_list() == ["hidden-1", "m", "hidden-2", "hidden-1"]
    assert requests["request_type"].to_list() == ["hidden-3", "chat", "chat", "chat"]
    (note,) = [note for note in result.notes if note.code == "names_hidden"]
    assert ": 3." in note.message


def test_a_model_of_the_hubs_cache_has_its_own_name() -> None:
    path = f"/home/anna/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/{'a' * 40}/"
    assert base_name(path) == "Qwen/Qwen3-8B"
    assert (
        base_name("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.claude")
        == "us.claude"
    )
