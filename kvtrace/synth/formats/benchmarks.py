"""What load generators write of the same requests, as if they had sent the story's traffic.

Tokens after the first come at even gaps: the story knows the first and the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from kvtrace.synth.formats.gateways import Fields
from kvtrace.synth.formats.scene import (
    START_NS,
    Scene,
    e2e_ns,
    epoch_s,
    gaps_us,
    json_line,
    openai_usage,
    seconds_of,
    session_name,
    steady_s,
    total_tokens,
)
from kvtrace.synth.story import Served
from kvtrace.units import NS_PER_S, NS_PER_US

RUN_REQUESTS: Final = 2_000
"""Requests of one run in files that hold a run as arrays, so that a run fits in memory."""
_TOKENIZER: Final = "synthetic"


def _runs(scene: Scene) -> Iterator[list[Served]]:
    served = scene.served()
    while run := list(islice(served, RUN_REQUESTS)):
        yield run


def _arrays(run: list[Served]) -> Fields:
    return {
        "input_lens": [one.request.prompt_tokens for one in run],
        "output_lens": [one.request.output_tokens for one in run],
        "ttfts": [seconds_of(one.ttft_ns) for one in run],
        "itls": [[seconds_of(gap * NS_PER_US) for gap in gaps_us(one)] for one in run],
        "errors": ["" for _ in run],
    }


def _summary(run: list[Served]) -> Fields:
    duration_ns = max(one.last_token_at_ns for one in run) - run[0].arrived_at_ns
    return {
        "duration": seconds_of(duration_ns),
        "completed": len(run),
        "total_input_tokens": sum(one.request.prompt_tokens for one in run),
        "total_output_tokens": sum(one.request.output_tokens for one in run),
        "request_throughput": round(len(run) * NS_PER_S / duration_ns, 6),
    }


def vllm_bench(scene: Scene) -> Iterator[str]:
    """Results of `vllm bench serve --save-detailed --append-result`, a run a line."""
    for run in _runs(scene):
        head = {
            "endpoint_type": "openai-chat",
            "backend": "openai-chat",
            "model_id": scene.engine.model,
            "tokenizer_id": _TOKENIZER,
            "num_prompts": len(run),
            "request_rate": "inf",
            **_summary(run),
        }
        times = {
            "latencies": [seconds_of(e2e_ns(one)) for one in run],
            "start_times": [steady_s(one.arrived_at_ns) for one in run],
        }
        yield json_line({**head, **_arrays(run), **times})


def sglang_bench(scene: Scene) -> Iterator[str]:
    """Results of SGLang's bench_serving with `--output-details`, a run a line; no arrivals."""
    for run in _runs(scene):
        head = {"tag": None, "backend": "sglang", "dataset_name": "synthetic", **_summary(run)}
        details = [
            {
                "device": one.device_tokens,
                "host": 0,
                "storage": one.pulled_tokens,
                "storage_backend": "MooncakeStore",
            }
            for one in run
        ]
        cached = [one.cached_tokens for one in run]
        tail = {"cached_tokens": cached, "cached_tokens_details": details}
        yield json_line({**head, **_arrays(run), **tail})


def genai_perf_head(_scene: Scene) -> str:
    """What stands in front of the requests of genai-perf's profile export."""
    return (
        '{"service_kind":"openai","endpoint":"v1/chat/completions","experiments":'
        '[{"experiment":{"mode":"concurrency","value":1},"requests":['
    )


GENAI_PERF_TAIL: Final = "]}]}"


def genai_perf(one: Served, scene: Scene) -> Fields:
    """A request of genai-perf: its first chunk and its last one, which has the usage."""
    last = json_line({"choices": [], "usage": openai_usage(one)})
    inputs = {
        "payload": json_line({"model": scene.engine.model}),
        "session_id": session_name(one),
    }
    return {
        "timestamp": START_NS + one.arrived_at_ns,
        "request_inputs": inputs,
        "response_timestamps": [
            START_NS + one.first_token_at_ns,
            START_NS + one.last_token_at_ns,
        ],
        "response_outputs": [
            {"response": 'data: {"choices":[]}\n\n'},
            {"response": f"data: {last}\n\ndata: [DONE]\n\n"},
        ],
    }


def guidellm_head(scene: Scene) -> str:
    """What stands in front of the requests of guidellm's report."""
    worker = json_line({"backend_model": scene.engine.model})
    return (
        '{"metadata":{"version":2,"guidellm_version":"0.8.1"},"config":{},"benchmarks":'
        f'[{{"type_":"generative_benchmark","worker":{worker},"requests":{{"successful":['
    )


GUIDELLM_TAIL: Final = '],"incomplete":[],"errored":[]}}]}'


def guidellm(one: Served, _scene: Scene) -> Fields:
    """A request of guidellm's report: epoch seconds of the client."""
    request = one.request
    timings = {
        "request_start": epoch_s(one.arrived_at_ns),
        "first_token_iteration": epoch_s(one.first_token_at_ns),
        "last_token_iteration": epoch_s(one.last_token_at_ns),
        "request_end": epoch_s(one.last_token_at_ns),
    }
    return {
        "type_": "generative_request_stats",
        "request_id": request.request_id,
        "response_id": request.request_id,
        "info": {
            "request_id": request.request_id,
            "conversation_id": session_name(one),
            "turn_index": request.turn,
            "status": "completed",
            "timings": timings,
        },
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": one.cached_tokens,
        "output_tokens": request.output_tokens,
    }


def list_head(_scene: Scene) -> str:
    """What stands in front of the requests where a file is a list of them."""
    return "["


LIST_TAIL: Final = "]"


def inference_perf(one: Served, scene: Scene) -> Fields:
    """A request of inference-perf: the client's monotonic clock, the server's usage."""
    told = {
        "output_tokens": one.request.output_tokens,
        "server_usage": openai_usage(one),
        "chunk_times": [steady_s(one.first_token_at_ns), steady_s(one.last_token_at_ns)],
        "output_token_times": [],
    }
    asked = {"text": {"input_tokens": one.request.prompt_tokens}}
    return {
        "start_time": steady_s(one.arrived_at_ns),
        "end_time": steady_s(one.last_token_at_ns),
        "request": json_line({"model": scene.engine.model}),
        "info": {"request_metrics": asked, "response_metrics": told},
        "error": None,
    }


def llmperf(one: Served, _scene: Scene) -> Fields:
    """A response of llmperf: lengths and durations, no arrival."""
    mean_ns = e2e_ns(one) // one.request.output_tokens
    return {
        "error_code": None,
        "error_msg": "",
        "inter_token_latency_s": seconds_of(mean_ns),
        "ttft_s": seconds_of(one.ttft_ns),
        "end_to_end_latency_s": seconds_of(e2e_ns(one)),
        "number_total_tokens": total_tokens(one),
        "number_output_tokens": one.request.output_tokens,
        "number_input_tokens": one.request.prompt_tokens,
    }
