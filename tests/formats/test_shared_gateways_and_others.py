"""The excerpts of Dynamo, TensorRT-LLM, gateways, llama.cpp, Ollama, TabbyAPI and TGI."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvtrace.ingest.formats import (
    aibrix_text,
    dynamo_text,
    llamacpp_text,
    llmd_text,
    ollama_text,
    tabbyapi_text,
    tgi_text,
    trtllm_text,
    vllm_text,
)
from tests.formats.reading import Reading, decoded, read_bytes, read_log

pytestmark = pytest.mark.shared


def excerpt(shared_dir: Path, name: str) -> bytes:
    return decoded(shared_dir / "log_excerpts" / name)


def test_dynamo_mixed_text(shared_dir: Path) -> None:
    reading: Reading = read_bytes(
        dynamo_text.FORMATS[0], excerpt(shared_dir, "dynamo-mixed-text.log")
    )
    assert [
        (row.request_id, row.prompt_tokens, row.cached_tokens, row.computed_tokens)
        for row in reading.requests
    ] == [
        ("chatcmpl-69", 200, 0, 200),
        ("chatcmpl-f4", 200, 192, 8),
        ("chatcmpl-39", None, 48, None),
        ("r-9", 512, None, None),
    ]
    split = [
        (row.cached_device_tokens, row.cached_host_tokens, row.cached_disk_tokens)
        for row in reading.requests
    ]
    assert split == [(0, 0, 0), (128, 48, 16), (16, 32, 0), (None, None, None)]
    completed = reading.requests[3]
    assert (completed.output_tokens, completed.ttft_ns) == (20, 41_200_000)
    assert reading.metric("router_overlap_blocks") == [3.0]
    assert reading.ignored == {"router_estimate": 1, "id_map": 1}
    assert reading.rejected == []


def test_trtllm_iterations(shared_dir: Path) -> None:
    reading = read_bytes(trtllm_text.FORMATS[0], excerpt(shared_dir, "trtllm-1.x-iter.log"))
    assert len(reading.samples) == 2
    assert reading.ignored == {"duplicate_rank": 1}
    assert reading.metric("iteration_context_tokens") == [16384.0, 0.0]
    assert reading.metric("kv_used_tokens") == [63821.0]
    assert reading.metric("kv_usage_ratio") == [0.125]
    assert reading.metric("prefix_hit_ratio") == []


def test_gateways(shared_dir: Path) -> None:
    formats = (vllm_text.FORMATS[0], aibrix_text.FORMATS[0], llmd_text.FORMATS[0])
    data = excerpt(shared_dir, "aibrix-llmd-kserve-ray.log")
    readings = read_log(formats, data)
    (gateway,) = readings["aibrix_text"].requests
    assert (gateway.prompt_tokens, gateway.output_tokens) == (1234, 56)
    assert (gateway.e2e_ns, gateway.cached_tokens) == (2_089_722_000, None)
    (kserve,) = readings["vllm_text"].requests
    assert kserve.request_id == "chatcmpl-017"
    when = datetime.fromtimestamp((kserve.arrived_at_ns or 0) / 1e9, UTC)
    assert when.isoformat() == "2025-05-20T07:15:10.500000+00:00"
    assert readings["vllm_text"].metric("prefix_hit_ratio") == [0.667]
    assert "ray_deduplicates" in readings["vllm_text"].note_codes
    assert readings["vllm_text"].rejected == []
    assert readings["vllm_text"].ignored == {
        "gateway_event": 1,
        "routing_event": 1,
        "access_line": 1,
    }


def test_llamacpp_generations(shared_dir: Path) -> None:
    reading = read_bytes(
        llamacpp_text.FORMATS[0], excerpt(shared_dir, "llamacpp-three-generations.log")
    )
    assert [
        (row.prompt_tokens, row.cached_tokens, row.computed_tokens, row.output_tokens)
        for row in reading.requests
    ] == [(300, 100, 200, 20), (2000, 1500, 500, 12), (60000, 59200, 800, 60)]
    assert reading.requests[1].prefill_ns == 1_875_000_000
    assert reading.rejected == []


def test_llamacpp_ollama_tabby(shared_dir: Path) -> None:
    formats = (llamacpp_text.FORMATS[0], ollama_text.FORMATS[0], tabbyapi_text.FORMATS[0])
    readings = read_log(formats, excerpt(shared_dir, "llamacpp-ollama-tabby-api.log"))
    (response,) = readings["llamacpp_text"].requests
    assert (response.prompt_tokens, response.cached_tokens) == (237, 236)
    assert (response.computed_tokens, response.output_tokens) == (1, 35)
    (call,) = readings["ollama_text"].requests
    assert (call.e2e_ns, call.prompt_tokens) == (72_000_000_000, None)
    new, old = readings["tabbyapi_text"].requests
    assert (new.request_id, new.prompt_tokens, new.cached_tokens) == ("c0ff", 6144, 4096)
    assert (new.computed_tokens, new.output_tokens) == (2048, 10)
    assert (new.queue_ns, new.prefill_ns, new.e2e_ns) == (20_000_000, 2 * 10**9, 2_420_000_000)
    assert (old.prompt_tokens, old.cached_tokens) == (300, None)
    assert readings["ollama_text"].rejected == []


def test_tgi_router(shared_dir: Path) -> None:
    first, second = read_bytes(tgi_text.FORMATS[0], excerpt(shared_dir, "tgi-router.log")).requests
    assert (first.e2e_ns, first.queue_ns, first.output_tokens) == (1_211_000_000, 54_810, 20)
    assert (second.e2e_ns, second.queue_ns, second.output_tokens) == (
        123_500_000_000,
        15 * 10**8,
        5,
    )
    assert (first.prompt_tokens, first.cached_tokens) == (None, None)
    end = (first.arrived_at_ns or 0) + (first.e2e_ns or 0)
    assert datetime.fromtimestamp(end / 1e9, UTC).isoformat() == "2025-05-01T01:31:16+00:00"
