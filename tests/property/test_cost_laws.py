"""Laws that every deployment keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.cost import PATH_IDS, build_deployment, list_gpus, load_hardware, load_llm
from kvtrace.cost.transfer import Direction, build_path
from tests.hardware import with_link_speed

LLMS = ("Llama-3.1-8B", "Llama-3.1-70B", "gpt-oss-120b", "DeepSeek-V3", "Qwen3-30B-A3B")
GPUS = ("A100-SXM4-80GB", "H100-SXM5", "H20", "B200-SXM", "L40S", "MI300X")
gpus = st.sampled_from(list_gpus())
paths = st.sampled_from(PATH_IDS)
ranks = st.sampled_from((1, 2, 4, 8, 16))
directions: st.SearchStrategy[Direction] = st.sampled_from(("read", "write"))
sizes = st.floats(min_value=0.0, max_value=1e13)


@given(gpu=gpus, path_id=paths, tp=ranks, kv_bytes=sizes, factor=st.floats(0.01, 100.0))
def test_scaling_all_links_scales_all_byte_times(
    gpu: str, path_id: str, tp: int, kv_bytes: float, factor: float
) -> None:
    hardware = load_hardware(gpu)
    path = build_path(path_id, hardware, tp=tp)
    faster = build_path(path_id, with_link_speed(hardware, factor), tp=tp)
    assert faster.fixed_s == path.fixed_s
    byte_s, faster_byte_s = (p.move_s(kv_bytes) - p.fixed_s for p in (path, faster))
    assert faster_byte_s * factor == pytest.approx(byte_s, rel=1e-6, abs=1e-9)


@given(gpu=gpus, path_id=paths, kv_bytes=sizes, tp=st.integers(1, 31))
def test_more_ranks_never_slow_a_move(gpu: str, path_id: str, kv_bytes: float, tp: int) -> None:
    hardware = load_hardware(gpu)
    fewer = build_path(path_id, hardware, tp=tp).move_s(kv_bytes)
    more = build_path(path_id, hardware, tp=tp + 1).move_s(kv_bytes)
    assert more <= fewer * (1 + 1e-12)


@given(gpu=gpus, path_id=paths, tp=ranks, direction=directions)
def test_zero_bytes_cost_only_latency(
    gpu: str, path_id: str, tp: int, direction: Direction
) -> None:
    path = build_path(path_id, load_hardware(gpu), tp=tp, direction=direction)
    assert path.move_s(0) == pytest.approx(path.fixed_s)
    assert path.fixed_s > 0
    assert all(
        link.bytes_per_s > 0 and link.shared_by >= 1 for h in path.stages for link in h.links
    )


@given(gpu=gpus, path_id=paths, tp=ranks, small=sizes, large=sizes)
def test_more_bytes_never_move_sooner(
    gpu: str, path_id: str, tp: int, small: float, large: float
) -> None:
    path = build_path(path_id, load_hardware(gpu), tp=tp)
    small, large = sorted((small, large))
    assert path.move_s(small) <= path.move_s(large)


@given(
    llm=st.sampled_from(LLMS),
    gpu=st.sampled_from(GPUS),
    tp=st.sampled_from((1, 2, 8)),
    new=st.integers(0, 200_000),
    more_new=st.integers(0, 10_000),
    cached=st.integers(0, 200_000),
    more_cached=st.integers(0, 10_000),
)
def test_prefill_never_falls_with_tokens(
    llm: str, gpu: str, tp: int, new: int, more_new: int, cached: int, more_cached: int
) -> None:
    model = build_deployment(llm, gpu, tp=tp).prefill
    base = model.prefill_s(new, cached)
    slack = 1 + 1e-12
    assert base <= model.prefill_s(new + more_new, cached) * slack
    assert base <= model.prefill_s(new, cached + more_cached) * slack


@given(
    llm=st.sampled_from(LLMS),
    gpu=st.sampled_from(GPUS),
    batch=st.integers(1, 256),
    context=st.integers(0, 1_000_000),
    more=st.integers(0, 100_000),
)
def test_decode_never_falls_with_context(
    llm: str, gpu: str, batch: int, context: int, more: int
) -> None:
    model = build_deployment(llm, gpu, tp=8).decode
    assert model.step_s(batch, context) <= model.step_s(batch, context + more)
    assert model.step_s(batch, context) <= model.step_s(batch + 1, context) * (1 + 1e-12)


@given(
    llm=st.sampled_from(("Llama-3.1-8B", "Llama-3.1-70B", "DeepSeek-V3", "Falcon-7B")),
    first=st.integers(0, 10**6),
    second=st.integers(0, 10**6),
    tp=ranks,
    block=st.sampled_from((1, 16, 64, 256, 512)),
)
def test_kv_bytes_add_up_and_round_up_to_blocks(
    llm: str, first: int, second: int, tp: int, block: int
) -> None:
    shape = load_llm(llm)
    together = shape.kv_bytes(first + second, tp=tp)
    assert together == shape.kv_bytes(first, tp=tp) + shape.kv_bytes(second, tp=tp)
    rounded = shape.kv_bytes(first, tp=tp, block_size_tokens=block)
    assert rounded % shape.kv_bytes(block, tp=tp) == 0
    assert 0 <= rounded - shape.kv_bytes(first, tp=tp) < shape.kv_bytes(block, tp=tp)
