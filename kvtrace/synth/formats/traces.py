"""Public traces and traces of routers: lengths, arrivals, and the blocks of prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvtrace.synth.formats.scene import (
    START_NS,
    Scene,
    epoch_s,
    hashed,
    json_line,
    ms_of,
    seconds_of,
    session_name,
    wall,
)
from kvtrace.synth.writers import by_last_token, by_lookup
from kvtrace.units import NS_PER_MS

BAILIAN_BLOCK_TOKENS: Final = 16
_TURNS: Final = 1 << 12
"""More turns than a session has."""


def mooncake(scene: Scene) -> Iterator[str]:
    """A Mooncake trace with request ids: ms from the start, block ids of this file."""
    for one in scene.served():
        yield json_line(
            {
                "request_id": one.request.request_id,
                "timestamp": one.arrived_at_ns // NS_PER_MS,
                "input_length": one.request.prompt_tokens,
                "output_length": one.request.output_tokens,
                "hash_ids": one.request.block_ids,
            }
        )


def bailian(scene: Scene) -> Iterator[str]:
    """A Qwen-Bailian trace: seconds from the start, 16-token blocks named by content."""
    parts = scene.block_size_tokens // BAILIAN_BLOCK_TOKENS
    for one in scene.served():
        request = one.request
        blocks = -(-request.prompt_tokens // BAILIAN_BLOCK_TOKENS)
        ids = [block * parts + part for block in request.block_ids for part in range(parts)]
        chat = request.session * _TURNS + request.turn
        yield json_line(
            {
                "chat_id": chat,
                "parent_chat_id": chat - 1 if request.turn else -1,
                "timestamp": seconds_of(one.arrived_at_ns),
                "input_length": request.prompt_tokens,
                "output_length": request.output_tokens,
                "type": "text",
                "turn": request.turn + 1,
                "hash_ids": ids[:blocks],
            }
        )


def azure(scene: Scene) -> Iterator[str]:
    """An Azure LLM inference trace as of 2024: arrival in UTC, lengths."""
    yield "TIMESTAMP,ContextTokens,GeneratedTokens"
    for one in scene.served():
        stamp = wall(one.arrived_at_ns).isoformat(sep=" ", timespec="microseconds")
        yield f"{stamp},{one.request.prompt_tokens},{one.request.output_tokens}"


def burstgpt(scene: Scene) -> Iterator[str]:
    """A BurstGPT trace as of v1.2: seconds, session, duration, lengths."""
    model = scene.engine.model.rpartition("/")[2]
    yield (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type"
    )
    for one in scene.served():
        request = one.request
        elapsed = seconds_of(one.last_token_at_ns - one.arrived_at_ns)
        total = request.prompt_tokens + request.output_tokens
        yield (
            f"{seconds_of(one.arrived_at_ns)},{session_name(one)},{elapsed},{model},"
            f"{request.prompt_tokens},{request.output_tokens},{total},Conversation log"
        )


def dynamo_request_trace(scene: Scene) -> Iterator[str]:
    """The request trace of NVIDIA Dynamo's frontend, one record at the end of each request."""
    for one in by_last_token(scene.served()):
        request = one.request
        outputs = request.output_tokens
        decode_ns = one.last_token_at_ns - one.first_token_at_ns
        fields = {
            "request_id": request.request_id,
            "model": scene.engine.model,
            "input_tokens": request.prompt_tokens,
            "output_tokens": outputs,
            "cached_tokens": one.cached_tokens,
            "request_received_ms": ms_of(START_NS + one.arrived_at_ns),
            "prefill_wait_time_ms": ms_of(one.scheduled_at_ns - one.arrived_at_ns),
            "prefill_time_ms": ms_of(one.first_token_at_ns - one.scheduled_at_ns),
            "ttft_ms": ms_of(one.ttft_ns),
            "total_time_ms": ms_of(one.last_token_at_ns - one.arrived_at_ns),
            "replay": {
                "trace_block_size": scene.block_size_tokens,
                "input_length": request.prompt_tokens,
                "input_sequence_hashes": [hashed(block) for block in request.block_ids],
            },
        }
        if outputs > 1:
            fields["avg_itl_ms"] = ms_of(decode_ns // (outputs - 1))
        yield json_line(
            {
                "schema": "dynamo.request.trace.v1",
                "event_type": "request_end",
                "event_time_unix_ms": (START_NS + one.last_token_at_ns) // NS_PER_MS,
                "event_source": "dynamo",
                "agent_context": {"session_id": session_name(one)},
                "request": fields,
            }
        )


def lmcache_hashes(scene: Scene) -> Iterator[str]:
    """LMCache's trace of look-ups: the hashes of whole chunks, when the pool is asked."""
    chunk, blocks = scene.engine.pool_chunk_tokens, scene.chunk_blocks()
    for one in by_lookup(scene.served()):
        request = one.request
        whole = request.prompt_tokens // chunk
        ends = range(blocks - 1, whole * blocks, blocks)
        yield json_line(
            {
                "timestamp": epoch_s(one.scheduled_at_ns),
                "request_id": request.request_id,
                "model_name": scene.engine.model,
                "chunk_size": chunk,
                "seq_len": request.prompt_tokens,
                "dtypes": ["bfloat16"],
                "shapes": [[2, scene.engine.kv_bytes_per_token // 4, chunk]],
                "chunk_hashes": [f"0x{hashed(request.block_ids[end]):016x}" for end in ends],
            }
        )
