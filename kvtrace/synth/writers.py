"""The served trace in three literal formats that share request ids.

- `trace_lines`: the hashed trace of a router, Mooncake family with `request_id`; clock: ms from
  the start.
- `metrics_lines`: one JSON object a request with vLLM's own time stamps; clocks: `arrival_time` in
  epoch seconds, the others on the engine's monotonic clock.
- `server_log_lines`: the text log of vLLM 0.13 with `--enable-log-requests --enable-log-outputs`
  and an LMCache connector, as `kubectl logs --timestamps` hands it on: UTC in front of every line.
  Shapes: vLLM 0.11.1 to 0.13 (request lines carry parameters only; external hit rate printed).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import tee
from typing import Final

from kvtrace.synth.statslines import STATS_INTERVAL_NS, stats_lines
from kvtrace.synth.story import Served, StoryEngine, seconds
from kvtrace.units import GIB, NS_PER_MS, NS_PER_S

START: Final = datetime(2026, 3, 10, 8, 0, 0, tzinfo=UTC)
"""Wall clock at the start of the trace."""
MONOTONIC_START_S: Final = 86_421.5
"""Reading of the engine's monotonic clock at the start of the trace."""
_HEALTH_EVERY_NS: Final = 60 * NS_PER_S

Line = tuple[int, int, str]
"""(time from the start in ns, order among equals, text)."""


def trace_lines(served: Iterable[Served]) -> Iterator[str]:
    """One JSON object a request; block ids count up by first appearance in order of arrival."""
    names: dict[int, int] = {}
    for one in served:
        request = one.request
        row = {
            "request_id": request.request_id,
            "timestamp": one.arrived_at_ns // NS_PER_MS,
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
            "hash_ids": [names.setdefault(block, len(names)) for block in request.block_ids],
        }
        yield json.dumps(row)


def metrics_lines(served: Iterable[Served]) -> Iterator[str]:
    """One JSON object a request, written when the request has finished."""
    epoch_s = int(START.timestamp())
    for one in by_last_token(served):
        row = {
            "request_id": one.request.request_id,
            "input_toks": one.request.prompt_tokens,
            "output_toks": one.request.output_tokens,
            "arrival_time": round(epoch_s + seconds(one.arrived_at_ns), 6),
            "queued_ts": _monotonic_s(one.queued_at_ns),
            "scheduled_ts": _monotonic_s(one.scheduled_at_ns),
            "first_token_ts": _monotonic_s(one.first_token_at_ns),
            "last_token_ts": _monotonic_s(one.last_token_at_ns),
        }
        yield json.dumps(row)


def _monotonic_s(at_ns: int) -> float:
    return round(MONOTONIC_START_S + seconds(at_ns), 6)


def server_log_lines(
    served: Iterable[Served], engine: StoryEngine, *, block_size_tokens: int
) -> Iterator[str]:
    """The engine's text log: start-up, requests, responses, statistics every 10 s.

    The requests come in order of arrival.
    """
    requests, looks, clock = tee(served, 3)
    start_up = [
        (at_ns, order, text)
        for order, (at_ns, text) in enumerate(_start_up(engine, block_size_tokens))
    ]
    stats = stats_lines(looks, engine, block_size_tokens=block_size_tokens, stamp=_stamp)
    sources = (start_up, in_order(requests, _request_lines), stats, _health_lines(clock))
    for at_ns, _, text in heapq.merge(*sources, key=lambda line: line[:2]):
        yield f"{_container_stamp(at_ns)} {text}"


def in_order(
    served: Iterable[Served], lines_of: Callable[[Served, int], Iterable[Line]]
) -> Iterator[Line]:
    """The lines of all requests in order of time; none may be earlier than its request's arrival.

    `lines_of` is given each request, in order of arrival, and its number.
    """
    held: list[Line] = []
    for number, one in enumerate(served):
        while held and held[0][0] < one.arrived_at_ns:
            yield heapq.heappop(held)
        for line in lines_of(one, number):
            heapq.heappush(held, line)
    while held:
        yield heapq.heappop(held)


def by_last_token(served: Iterable[Served]) -> Iterator[Served]:
    """Requests that come in order of arrival, in order of their last token."""
    return _by(served, lambda one: one.last_token_at_ns)


def by_lookup(served: Iterable[Served]) -> Iterator[Served]:
    """Requests that come in order of arrival, in order of their look-up in the caches."""
    return _by(served, lambda one: one.scheduled_at_ns)


def _by(served: Iterable[Served], time_of: Callable[[Served], int]) -> Iterator[Served]:
    """Requests in order of a time that none has before its arrival."""
    held: list[tuple[int, int, Served]] = []
    for one in served:
        while held and held[0][0] < one.arrived_at_ns:
            yield heapq.heappop(held)[2]
        heapq.heappush(held, (time_of(one), one.request.session, one))
    while held:
        yield heapq.heappop(held)[2]


def _health_lines(served: Iterable[Served]) -> Iterator[Line]:
    at_ns, last_ns = _HEALTH_EVERY_NS, 0
    for one in served:
        last_ns = max(last_ns, one.last_token_at_ns)
        while at_ns < one.arrived_at_ns:
            yield at_ns, 0, _access(at_ns, "GET /health")
            at_ns += _HEALTH_EVERY_NS
    while last_ns and at_ns < last_ns + STATS_INTERVAL_NS:
        yield at_ns, 0, _access(at_ns, "GET /health")
        at_ns += _HEALTH_EVERY_NS


def _container_stamp(at_ns: int) -> str:
    """Full UTC time as a container runtime writes it, with nine digits."""
    whole_s, rest_ns = divmod(at_ns, NS_PER_S)
    return f"{START + timedelta(seconds=whole_s):%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"


def _stamp(at_ns: int) -> str:
    return (START + timedelta(seconds=at_ns // NS_PER_S)).strftime("%m-%d %H:%M:%S")


def _api(at_ns: int, source: str, text: str) -> str:
    return f"(APIServer pid=1) INFO {_stamp(at_ns)} [{source}] {text}"


def _access(at_ns: int, what: str) -> str:
    port = 32_768 + at_ns // NS_PER_MS % 28_000
    return f'(APIServer pid=1) INFO:     127.0.0.1:{port} - "{what} HTTP/1.1" 200 OK'


def _request_lines(one: Served, number: int) -> Iterator[Line]:
    request = one.request
    parameters = (
        "SamplingParams(n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0,"
        " temperature=0.6, top_p=0.9, top_k=-1, min_p=0.0, seed=None, stop=[], stop_token_ids=[],"
        " bad_words=[], include_stop_str_in_output=False, ignore_eos=False, max_tokens=1024,"
        " min_tokens=0, logprobs=None, prompt_logprobs=None, skip_special_tokens=True,"
        " spaces_between_special_tokens=True, truncate_prompt_tokens=None,"
        " structured_outputs=None, extra_args=None)"
    )
    received = f"Received request {request.request_id}: params: {parameters}, lora_request: None."
    response = (
        f"Generated response {request.request_id} (streaming complete): output:"
        f" '<streaming_complete: {request.output_tokens} tokens>', output_token_ids: None,"
        " finish_reason: streaming_complete"
    )
    order = 10 + 4 * number
    queued_ns, last_ns = one.queued_at_ns, one.last_token_at_ns
    yield one.arrived_at_ns, order, _api(one.arrived_at_ns, "logger.py:63", received)
    added = f"Added request {request.request_id}."
    yield queued_ns, order + 1, _api(queued_ns, "async_llm.py:361", added)
    yield queued_ns, order + 2, _access(queued_ns, "POST /v1/chat/completions")
    yield last_ns, order + 3, _api(last_ns, "logger.py:92", response)


def _start_up(engine: StoryEngine, block_size_tokens: int) -> Iterator[tuple[int, str]]:
    """What a container prints before it serves: the card, the version, the config, the capacity."""
    max_model_len = 32_768
    arguments = (
        f"non-default args: {{'model': '{engine.model}', 'max_model_len': {max_model_len},"
        f" 'enable_prefix_caching': True, 'block_size': {block_size_tokens},"
        " 'gpu_memory_utilization': 0.72, 'enable_log_requests': True, 'enable_log_outputs': True,"
        " 'kv_transfer_config': KVTransferConfig(kv_connector='LMCacheConnectorV1',"
        " kv_role='kv_both')}"
    )
    config = (
        f"Initializing a V1 LLM engine (v0.13.0) with config: model='{engine.model}',"
        f" speculative_config=None, tokenizer='{engine.model}', tokenizer_mode=auto,"
        " revision=None, trust_remote_code=False, dtype=torch.bfloat16,"
        f" max_seq_len={max_model_len}, load_format=auto, tensor_parallel_size=1,"
        " pipeline_parallel_size=1, data_parallel_size=1, quantization=None,"
        " enforce_eager=False, kv_cache_dtype=auto, device_config=cuda, seed=0,"
        f" served_model_name={engine.model}, enable_prefix_caching=True,"
        " enable_chunked_prefill=True"
    )
    tokens = engine.kv_capacity_tokens
    gib = tokens * engine.kv_bytes_per_token / GIB
    concurrency = tokens / max_model_len
    banner = "vLLM API server version 0.13.0"
    yield -80 * NS_PER_S, "GPU 0: NVIDIA L40S"
    yield -78 * NS_PER_S, _api(-78 * NS_PER_S, "api_server.py:1839", banner)
    yield -78 * NS_PER_S, _api(-78 * NS_PER_S, "utils.py:233", arguments)
    for at_s, source, text in (
        (-70, "core.py:93", config),
        (-40, "gpu_worker.py:298", f"Available KV cache memory: {gib:.2f} GiB"),
        (-40, "kv_cache_utils.py:1087", f"GPU KV cache size: {tokens:,} tokens"),
        (
            -40,
            "kv_cache_utils.py:1091",
            f"Maximum concurrency for {max_model_len:,} tokens per request: {concurrency:.2f}x",
        ),
    ):
        stamp = _stamp(at_s * NS_PER_S)
        yield at_s * NS_PER_S, f"(EngineCore_DP0 pid=272) INFO {stamp} [{source}] {text}"
