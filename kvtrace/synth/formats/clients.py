"""What gateways, tracing and load generators write of the same requests."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from kvtrace.synth.formats.scene import (
    START_NS,
    Scene,
    e2e_ns,
    epoch_s,
    json_line,
    ms_of,
    seconds_of,
    session_name,
)
from kvtrace.synth.story import Served
from kvtrace.synth.writers import by_last_token
from kvtrace.units import NS_PER_US


def litellm(scene: Scene) -> Iterator[str]:
    """LiteLLM's standard logging payload, one JSON object a request, when it has ended."""
    for one in by_last_token(scene.served()):
        request = one.request
        usage = {
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": request.output_tokens,
            "total_tokens": request.prompt_tokens + request.output_tokens,
            "prompt_tokens_details": {"cached_tokens": one.cached_tokens},
        }
        yield json_line(
            {
                "id": request.request_id,
                "trace_id": request.request_id,
                "session_id": session_name(one),
                "litellm_call_id": request.request_id,
                "call_type": "acompletion",
                "stream": True,
                "status": "success",
                "custom_llm_provider": "hosted_vllm",
                "prompt_tokens": request.prompt_tokens,
                "completion_tokens": request.output_tokens,
                "total_tokens": request.prompt_tokens + request.output_tokens,
                "startTime": epoch_s(one.arrived_at_ns),
                "endTime": epoch_s(one.last_token_at_ns),
                "completionStartTime": epoch_s(one.first_token_at_ns),
                "response_time": seconds_of(one.ttft_ns),
                "model": scene.engine.model,
                "model_group": scene.engine.model,
                "cache_hit": False,
                "metadata": {"usage_object": usage},
                "error_information": None,
                "hidden_params": {"litellm_overhead_time_ms": None, "usage_object": None},
            }
        )


def otlp_genai(scene: Scene) -> Iterator[str]:
    """The spans of vLLM as a collector's file exporter writes them, one export a line."""
    resource = {"attributes": [_attribute("service.name", "vllm")]}
    for one in by_last_token(scene.served()):
        spans = [{"scope": {"name": "vllm.llm_engine"}, "spans": [_span(one, scene)]}]
        yield json_line({"resourceSpans": [{"resource": resource, "scopeSpans": spans}]})


def _span(one: Served, scene: Scene) -> dict[str, object]:
    request = one.request
    digits = request.request_id.removeprefix("chatcmpl-")
    return {
        "traceId": digits,
        "spanId": digits[:16],
        "parentSpanId": "",
        "name": "llm_request",
        "kind": 2,
        "startTimeUnixNano": str(START_NS + one.arrived_at_ns),
        "endTimeUnixNano": str(START_NS + one.last_token_at_ns),
        "attributes": [_attribute(*item) for item in span_values(one, scene).items()],
        "status": {},
    }


def span_values(one: Served, scene: Scene) -> dict[str, str | int | Decimal]:
    """What vLLM writes on the span of a request; times in seconds."""
    request = one.request
    times = {
        "time_in_queue": one.scheduled_at_ns - one.queued_at_ns,
        "time_to_first_token": one.ttft_ns,
        "e2e": one.last_token_at_ns - one.arrived_at_ns,
        "time_in_model_prefill": one.first_token_at_ns - one.scheduled_at_ns,
        "time_in_model_decode": one.last_token_at_ns - one.first_token_at_ns,
        "time_in_model_inference": one.last_token_at_ns - one.scheduled_at_ns,
    }
    return {
        "gen_ai.response.model": scene.engine.model,
        "gen_ai.request.id": request.request_id,
        "gen_ai.request.n": 1,
        "gen_ai.usage.prompt_tokens": request.prompt_tokens,
        "gen_ai.usage.completion_tokens": request.output_tokens,
        **{f"gen_ai.latency.{name}": seconds_of(ns) for name, ns in times.items()},
    }


def _attribute(key: str, value: str | int | Decimal) -> dict[str, object]:
    if isinstance(value, str):
        return {"key": key, "value": {"stringValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"doubleValue": value}}


_JAEGER_TYPES: Final = ((str, "string"), (int, "int64"), (Decimal, "float64"))


JAEGER_TAIL: Final = "]}"


def jaeger_head(_scene: Scene) -> str:
    """What stands in front of the traces of Jaeger's answer."""
    return '{"data":['


def jaeger(one: Served, scene: Scene) -> dict[str, object]:
    """The trace of a request in Jaeger's JSON: one span of vLLM, whole microseconds."""
    digits = one.request.request_id.removeprefix("chatcmpl-")
    tags = [
        {"key": key, "type": kind, "value": value}
        for key, value in span_values(one, scene).items()
        for of, kind in _JAEGER_TYPES
        if isinstance(value, of)
    ]
    span = {
        "traceID": digits,
        "spanID": digits[:16],
        "operationName": "llm_request",
        "references": [],
        "startTime": (START_NS + one.arrived_at_ns) // NS_PER_US,
        "duration": e2e_ns(one) // NS_PER_US,
        "tags": tags,
        "logs": [],
        "processID": "p1",
    }
    processes = {"p1": {"serviceName": "vllm", "tags": []}}
    return {"traceID": digits, "spans": [span], "processes": processes}


def aiperf(scene: Scene) -> Iterator[str]:
    """AIPerf's record of each request (`profile_export.jsonl`), when it has ended."""
    for number, one in enumerate(by_last_token(scene.served())):
        request = one.request
        counts = {
            "input_sequence_length": request.prompt_tokens,
            "output_sequence_length": request.output_tokens,
            "usage_prompt_tokens": request.prompt_tokens,
            "usage_completion_tokens": request.output_tokens,
            "usage_total_tokens": request.prompt_tokens + request.output_tokens,
            "usage_prompt_cache_read_tokens": one.cached_tokens,
        }
        times = {"time_to_first_token": one.ttft_ns, "request_latency": e2e_ns(one)}
        metrics = {tag: {"value": ms_of(ns), "unit": "ms"} for tag, ns in times.items()}
        metrics |= {tag: {"value": count, "unit": "tokens"} for tag, count in counts.items()}
        yield json_line(
            {
                "metadata": {
                    "session_num": number,
                    "x_request_id": request.request_id,
                    "x_correlation_id": session_name(one),
                    "conversation_id": session_name(one),
                    "turn_index": request.turn,
                    "credit_issued_ns": START_NS + one.arrived_at_ns,
                    "request_start_ns": START_NS + one.arrived_at_ns,
                    "request_ack_ns": None,
                    "request_end_ns": START_NS + one.last_token_at_ns,
                    "worker_id": "worker_0",
                    "record_processor_id": "record_processor_0",
                    "benchmark_phase": "profiling",
                    "was_cancelled": False,
                    "cancellation_time_ns": None,
                },
                "metrics": metrics,
                "error": None,
            }
        )
