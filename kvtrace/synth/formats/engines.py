"""The logs of vLLM, SGLang and LMCache, and the KV events of vLLM."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import tee
from typing import Final

import msgspec

from kvtrace.synth.formats.scene import (
    Scene,
    bracket_stamp,
    epoch_s,
    hashed,
    iso_stamp,
    json_line,
    ms_stamp,
    seconds_of,
    session_name,
    steady_s,
)
from kvtrace.synth.statslines import STATS_INTERVAL_NS
from kvtrace.synth.story import Served, StoryEngine, seconds
from kvtrace.synth.ticks import Tick, emitted_tokens, ticks
from kvtrace.synth.writers import (
    Line,
    by_last_token,
    by_lookup,
    in_order,
    metrics_lines,
    server_log_lines,
)
from kvtrace.units import GIB, NS_PER_S

_TOKEN_BITS: Final = 15
_TOKEN_MASK: Final = (1 << _TOKEN_BITS) - 1


def vllm_text(scene: Scene) -> Iterator[str]:
    """The text log of vLLM 0.13 with an LMCache connector, behind `kubectl logs --timestamps`."""
    return server_log_lines(scene.served(), scene.engine, block_size_tokens=scene.block_size_tokens)


def vllm_timing(scene: Scene) -> Iterator[str]:
    """VLLM's time stamps of each request, one JSON object a line."""
    return metrics_lines(scene.served())


def vllm_kv_events(scene: Scene) -> Iterator[str]:
    """A capture of vLLM's KV events: what HBM stored and dropped, prompt by prompt."""
    size = scene.block_size_tokens
    for number, one in enumerate(_by_first_token(scene)):
        request = one.request
        full, held = request.prompt_tokens // size, one.device_tokens // size
        own = set(request.block_ids[:full])
        events: list[list[object]] = []
        dropped = [hashed(block) for block in one.evicted if block not in own]
        if dropped:
            events.append(["BlockRemoved", dropped, "GPU"])
        if full > held:
            events.append(_stored(request.block_ids[:full], held, size))
        dropped = [hashed(block) for block in one.evicted if block in own]
        if dropped:
            events.append(["BlockRemoved", dropped, "GPU"])
        at_s = float(epoch_s(one.first_token_at_ns))
        payload = msgspec.msgpack.encode([at_s, events, 0])
        yield json_line(
            {"topic": "kv-events", "seq": number, "recv_ts": at_s, "payload_hex": payload.hex()}
        )


def _by_first_token(scene: Scene) -> Iterator[Served]:
    """Prompts in the order in which they were computed, one after the other."""
    return by_lookup(scene.served())


def _stored(block_ids: tuple[int, ...], held: int, size: int) -> list[object]:
    parent = hashed(block_ids[held - 1]) if held else None
    new = block_ids[held:]
    tokens = [token for block in new for token in _token_ids(block, size)]
    return ["BlockStored", [hashed(block) for block in new], parent, tokens, size, None, "GPU"]


def _token_ids(block: int, size: int) -> list[int]:
    """Token ids that no other block has: its number, low digits first."""
    digits = (block >> _TOKEN_BITS * place & _TOKEN_MASK for place in range(size))
    return list(digits)


# SGLang


def sglang_requests(scene: Scene) -> Iterator[str]:
    """SGLang's request log in JSON (`--log-requests-format json`): received and finished."""
    for _, _, text in in_order(scene.served(), _sglang_events):
        yield text


def _sglang_events(one: Served, number: int) -> Iterator[Line]:
    rid = one.request.request_id
    received = {
        "timestamp": iso_stamp(one.arrived_at_ns),
        "event": "request.received",
        "rid": rid,
        "obj": {"rid": rid, "stream": True},
    }
    finished = {
        "timestamp": iso_stamp(one.last_token_at_ns),
        "event": "request.finished",
        "rid": rid,
        "obj": {"rid": rid, "stream": True, "session_id": session_name(one)},
        "out": {"meta_info": _sglang_meta(one)},
    }
    yield one.arrived_at_ns, 2 * number, json_line(received)
    yield one.last_token_at_ns, 2 * number + 1, json_line(finished)


def _sglang_meta(one: Served) -> dict[str, object]:
    details = {
        "device": one.device_tokens,
        "host": 0,
        "storage": one.pulled_tokens,
        "storage_backend": "MooncakeStore",
    }
    return {
        "id": one.request.request_id,
        "finish_reason": {"type": "stop"},
        "prompt_tokens": one.request.prompt_tokens,
        "completion_tokens": one.request.output_tokens,
        "cached_tokens": one.cached_tokens,
        "cached_tokens_details": details,
        "e2e_latency": seconds_of(one.last_token_at_ns - one.arrived_at_ns),
        "first_token_latency": seconds_of(one.ttft_ns),
        "queue_time": seconds_of(one.scheduled_at_ns - one.queued_at_ns),
        "request_received_ts": epoch_s(one.arrived_at_ns),
    }


def sglang_request_metrics(scene: Scene) -> Iterator[str]:
    """SGLang's request metrics (`--export-metrics-to-file`), one JSON object a request."""
    for one in by_last_token(scene.served()):
        rid = one.request.request_id
        asked = json_line({"rid": rid, "stream": True, "session_params": {"id": session_name(one)}})
        yield json_line({"request_parameters": asked, **_sglang_meta(one)})


def sglang_batches(scene: Scene) -> Iterator[str]:
    """SGLang's server log: start-up, a line for each prefill batch, decode batches every 10 s."""
    prompts, looks = tee(scene.served(), 2)
    prefills = (
        (one.scheduled_at_ns, 1, _prefill_batch(one, scene.engine)) for one in by_lookup(prompts)
    )
    decodes = (
        (tick.at_ns, 2, _decode_batch(tick, scene.engine))
        for tick in ticks(looks, STATS_INTERVAL_NS)
        if tick.running
    )
    yield from _sglang_start_up(scene)
    for at_ns, _, text in heapq.merge(prefills, decodes, key=lambda line: line[:2]):
        yield f"[{bracket_stamp(at_ns)}] {text}"


def _sglang_start_up(scene: Scene) -> Iterator[str]:
    engine, size = scene.engine, scene.block_size_tokens
    stamp = bracket_stamp(-40 * NS_PER_S)
    half_gb = engine.kv_capacity_tokens * engine.kv_bytes_per_token / GIB / 2
    yield (
        f"[{stamp}] server_args=ServerArgs(model_path='{engine.model}', tokenizer_path=None,"
        f" tp_size=1, dp_size=1, pp_size=1, page_size={size}, dtype='auto', kv_cache_dtype='auto',"
        " disable_radix_cache=False, enable_hierarchical_cache=True,"
        " hicache_storage_backend='mooncake', log_requests_level=1)"
    )
    tokens = engine.kv_capacity_tokens
    yield (
        f"[{stamp}] KV Cache is allocated. #tokens: {tokens}, K size: {half_gb:.2f} GB,"
        f" V size: {half_gb:.2f} GB"
    )
    yield (
        f"[{stamp}] max_total_num_tokens={tokens}, chunked_prefill_size=-1,"
        " max_prefill_tokens=32768, max_running_requests=2048, context_len=32768,"
        " available_gpu_mem=3.10 GB"
    )


def _prefill_batch(one: Served, engine: StoryEngine) -> str:
    usage = one.running_tokens / engine.kv_capacity_tokens
    return (
        f"Prefill batch, #new-seq: 1, #new-token: {one.request.prompt_tokens - one.cached_tokens},"
        f" #cached-token: {one.cached_tokens}, token usage: {usage:.2f},"
        f" #running-req: {one.running}, #queue-req: {one.waiting}, "
    )


def _decode_batch(tick: Tick, engine: StoryEngine) -> str:
    held = sum(
        one.request.prompt_tokens + emitted_tokens(one, tick.at_ns)
        for one in tick.active
        if one.scheduled_at_ns <= tick.at_ns < one.last_token_at_ns
    )
    rate = tick.generated_tokens() / seconds(tick.at_ns - tick.before_ns)
    return (
        f"Decode batch, #running-req: {tick.running}, #token: {held},"
        f" token usage: {held / engine.kv_capacity_tokens:.2f}, cuda graph: True,"
        f" gen throughput (token/s): {rate:.2f}, #queue-req: {tick.waiting}, "
    )


# LMCache

_LOOKUP_SOURCE: Final = "(vllm_v1_adapter.py:1330:lmcache.integration.vllm.vllm_v1_adapter)"
_ENGINE_SOURCE: Final = "(cache_engine.py:586:lmcache.v1.cache_engine)"


def lmcache_text(scene: Scene) -> Iterator[str]:
    """The lines of LMCache inside vLLM: look-ups, loads and stores, with bytes and times."""
    for text in (
        f"Creating LMCacheEngine with config: {{'chunk_size': {scene.engine.pool_chunk_tokens},"
        " 'local_cpu': False, 'remote_url': None} (cache_engine.py:90:lmcache.v1.cache_engine)",
        "Created backend: RemoteBackend (RemoteBackend)"
        " (storage_manager.py:230:lmcache.v1.storage_backend)",
    ):
        yield _lmcache_line(-40 * NS_PER_S, text)
    for at_ns, _, text in in_order(scene.served(), _LmcacheLines(scene).of):
        yield _lmcache_line(at_ns, text)


def _lmcache_line(at_ns: int, text: str) -> str:
    return f"(EngineCore_DP0 pid=272) [{ms_stamp(at_ns)}] LMCache INFO: {text}"


class _LmcacheLines:
    def __init__(self, scene: Scene) -> None:
        self._engine = scene.engine

    def of(self, one: Served, number: int) -> Iterator[Line]:
        """What LMCache says of one request: the look-up, the load, the store."""
        name, prompt, load = one.request.request_id, one.request.prompt_tokens, one.pulled_tokens
        chunk = self._engine.pool_chunk_tokens
        hit = one.cached_tokens if load else one.device_tokens // chunk * chunk
        order = 10 * number
        said = (
            f"Reqid: {name}, Total tokens {prompt}, Inference Engine computed tokens:"
            f" {one.device_tokens}, LMCache hit tokens: {hit}, need to load: {load}"
        )
        yield one.scheduled_at_ns, order, f"{said} {_LOOKUP_SOURCE}"
        if load:
            cost_s = self._engine.pull_s(load)
            loaded_at_ns = one.scheduled_at_ns + round(cost_s * NS_PER_S)
            said = (
                f"[req_id={name}] Retrieved {load} out of {load} required tokens"
                f" (from {hit} total tokens). {self._moved(load, cost_s, 'gb')}"
            )
            yield loaded_at_ns, order + 1, f"{said} {_ENGINE_SOURCE}"
        yield from self._store(one, hit, order)

    def _store(self, one: Served, hit: int, order: int) -> Iterator[Line]:
        name, prompt = one.request.request_id, one.request.prompt_tokens
        kept = prompt - hit
        cost_s = kept * self._engine.kv_bytes_per_token / self._engine.pcie_bytes_per_s
        said = (
            f"Storing KV cache for {kept} out of {prompt} tokens"
            f" (skip_leading_tokens={hit}) for request {name}"
        )
        yield one.first_token_at_ns, order + 2, f"{said} {_LOOKUP_SOURCE}"
        said = (
            f"[req_id={name}] Stored {kept} out of total {kept} tokens."
            f" {self._moved(kept, cost_s, 'GB')} offload_time: {cost_s * 1000:.4f} ms,"
            " put_time: 0.1000 ms"
        )
        yield one.first_token_at_ns, order + 3, f"{said} {_ENGINE_SOURCE}"

    def _moved(self, tokens: int, cost_s: float, unit: str) -> str:
        """Size, time and speed; LMCache's GB are GiB."""
        gib = tokens * self._engine.kv_bytes_per_token / GIB
        return (
            f"size: {gib:.4f} {unit}, cost {cost_s * 1000:.4f} ms,"
            f" throughput: {gib / cost_s:.4f} GB/s;"
        )


# TensorRT-LLM

TRTLLM_BLOCK_TOKENS: Final = 32


def trtllm_request_metrics(one: Served, scene: Scene) -> dict[str, object]:
    """TensorRT-LLM's metrics of a request: a steady clock, reuse in blocks of 32 tokens."""
    blocks = -(-one.request.prompt_tokens // TRTLLM_BLOCK_TOKENS)
    reused = one.cached_tokens // TRTLLM_BLOCK_TOKENS
    times = {
        "arrival_time": steady_s(one.arrived_at_ns),
        "first_scheduled_time": steady_s(one.scheduled_at_ns),
        "first_token_time": steady_s(one.first_token_at_ns),
        "last_token_time": steady_s(one.last_token_at_ns),
    }
    cache = {"num_reused_blocks": reused, "num_missed_blocks": blocks - reused}
    usage = {
        "prompt_tokens": one.request.prompt_tokens,
        "completion_tokens": one.request.output_tokens,
    }
    return {
        "schema_version": 1,
        "request_id": one.request.request_id,
        "status": "complete",
        "model": scene.engine.model,
        "usage": usage,
        "phases": {"server": {"timing_metrics": times, "kv_cache_metrics": cache}},
    }
