"""What gateways in front of the engine log of each request, when it has ended.

They see the times of the story and the counts in the engine's usage; none of them adds a delay.
"""

from __future__ import annotations

from typing import Final

from kvtrace.synth.formats.scene import (
    START_NS,
    Scene,
    cut_seconds,
    e2e_ns,
    json_line,
    openai_usage,
    session_name,
    total_tokens,
    wall,
    whole_ms,
    zulu_stamp,
)
from kvtrace.synth.story import Served
from kvtrace.units import NS_PER_S

Fields = dict[str, object]

_PATH: Final = "/v1/chat/completions"
_HOST: Final = "synthetic.invalid"


def envoy_ai_gateway(one: Served, scene: Scene) -> Fields:
    """A line of Envoy AI Gateway's access log: whole ms."""
    return {
        "start_time": zulu_stamp(one.arrived_at_ns),
        "method": "POST",
        "request.path": _PATH,
        "response_code": 200,
        "duration": whole_ms(e2e_ns(one)),
        "x-request-id": one.request.request_id,
        "session.id": session_name(one),
        "gen_ai.request.model": scene.engine.model,
        "gen_ai.response.model": scene.engine.model,
        "gen_ai.usage.input_tokens": one.request.prompt_tokens,
        "gen_ai.usage.output_tokens": one.request.output_tokens,
        "gen_ai.usage.cached_input_tokens": one.cached_tokens,
    }


def kong(one: Served, scene: Scene) -> Fields:
    """An entry of Kong's logs with the AI proxy of 3.8 and later: whole ms."""
    took_ms = whole_ms(e2e_ns(one))
    model = scene.engine.model
    proxy = {
        "usage": {**openai_usage(one), "time_to_first_token": whole_ms(one.ttft_ns)},
        "meta": {"request_model": model, "response_model": model, "llm_latency": took_ms},
    }
    return {
        "started_at": whole_ms(START_NS + one.arrived_at_ns),
        "latencies": {"request": took_ms, "kong": 0, "proxy": took_ms},
        "request": {"id": one.request.request_id, "uri": _PATH},
        "response": {"status": 200},
        "ai": {"proxy": proxy},
    }


def nginx_access(one: Served, _scene: Scene) -> Fields:
    """A line of nginx's access log in JSON: times and outcome, no tokens."""
    took = f"{cut_seconds(e2e_ns(one)):.3f}"
    return {
        "msec": f"{cut_seconds(START_NS + one.last_token_at_ns):.3f}",
        "request": f"POST {_PATH} HTTP/1.1",
        "status": "200",
        "request_time": took,
        "upstream_response_time": took,
        "upstream_addr": f"{_HOST}:8000",
        "request_id": one.request.request_id,
    }


def higress(one: Served, scene: Scene) -> Fields:
    """A line of Higress's access log, with the counts as JSON in a string: whole ms."""
    told = {
        "model": scene.engine.model,
        "input_token": one.request.prompt_tokens,
        "output_token": one.request.output_tokens,
        "total_token": total_tokens(one),
        "input_token_details": {"cached_tokens": one.cached_tokens},
        "llm_first_token_duration": whole_ms(one.ttft_ns),
        "llm_service_duration": whole_ms(e2e_ns(one)),
        "session_id": session_name(one),
    }
    return {
        "authority": _HOST,
        "start_time": zulu_stamp(one.arrived_at_ns),
        "duration": str(whole_ms(e2e_ns(one))),
        "response_code": "200",
        "path": _PATH,
        "request_id": one.request.request_id,
        "ai_log": json_line(told),
    }


def apisix(one: Served, scene: Scene) -> Fields:
    """A line of APISIX's access log with the variables of its AI plugins: whole ms."""
    return {
        "msec": f"{cut_seconds(START_NS + one.last_token_at_ns):.3f}",
        "request_time": f"{cut_seconds(e2e_ns(one)):.3f}",
        "status": "200",
        "uri": _PATH,
        "request_id": one.request.request_id,
        "request_type": "ai_stream",
        "llm_model": scene.engine.model,
        "llm_prompt_tokens": str(one.request.prompt_tokens),
        "llm_completion_tokens": str(one.request.output_tokens),
        "llm_total_tokens": str(total_tokens(one)),
        "llm_cache_read_input_tokens": str(one.cached_tokens),
        "llm_time_to_first_token": str(whole_ms(one.ttft_ns)),
    }


def cloudflare_ai_gateway(one: Served, scene: Scene) -> Fields:
    """An entry of Cloudflare AI Gateway: the second of arrival, the duration in ms."""
    return {
        "id": one.request.request_id,
        "provider": "custom-synthetic",
        "model": scene.engine.model,
        "path": _PATH.removeprefix("/"),
        "status_code": 200,
        "success": True,
        "cached": False,
        "tokens_in": one.request.prompt_tokens,
        "tokens_out": one.request.output_tokens,
        "duration": whole_ms(e2e_ns(one)),
        "created_at": f"{wall(one.arrived_at_ns):%Y-%m-%dT%H:%M:%SZ}",
        "metadata": json_line({"session_id": session_name(one)}),
    }


def portkey(one: Served, scene: Scene) -> Fields:
    """An entry of Portkey's log export: whole ms, no cached tokens."""
    return {
        "id": one.request.request_id,
        "trace_id": session_name(one),
        "created_at": zulu_stamp(one.arrived_at_ns),
        "is_success": True,
        "ai_org": "custom-synthetic",
        "ai_model": scene.engine.model,
        "req_units": one.request.prompt_tokens,
        "res_units": one.request.output_tokens,
        "total_units": total_tokens(one),
        "response_time": whole_ms(e2e_ns(one)),
        "response_status_code": 200,
        "metadata": {"session_id": session_name(one)},
    }


def openrouter(one: Served, scene: Scene) -> Fields:
    """A generation of OpenRouter; its latency has no stated meaning and is left out."""
    return {
        "id": one.request.request_id,
        "model": scene.engine.model,
        "provider_name": "Synthetic",
        "created_at": zulu_stamp(one.arrived_at_ns),
        "streamed": True,
        "cancelled": False,
        "native_tokens_prompt": one.request.prompt_tokens,
        "native_tokens_completion": one.request.output_tokens,
        "native_tokens_cached": one.cached_tokens,
        "finish_reason": "stop",
        "session_id": session_name(one),
    }


def langfuse(one: Served, scene: Scene) -> Fields:
    """An observation of Langfuse: whole ms, the cached tokens beside the others."""
    return {
        "id": one.request.request_id,
        "traceId": session_name(one),
        "type": "GENERATION",
        "name": "synthetic",
        "startTime": zulu_stamp(one.arrived_at_ns),
        "endTime": zulu_stamp(one.last_token_at_ns),
        "completionStartTime": zulu_stamp(one.first_token_at_ns),
        "model": scene.engine.model,
        "level": "DEFAULT",
        "sessionId": session_name(one),
        "usageDetails": {
            "input": one.request.prompt_tokens - one.cached_tokens,
            "input_cached_tokens": one.cached_tokens,
            "output": one.request.output_tokens,
            "total": total_tokens(one),
        },
    }


def helicone(one: Served, scene: Scene) -> Fields:
    """A request of Helicone's export: whole ms."""
    return {
        "request_id": one.request.request_id,
        "request_created_at": zulu_stamp(one.arrived_at_ns),
        "response_created_at": zulu_stamp(one.last_token_at_ns),
        "delay_ms": whole_ms(e2e_ns(one)),
        "time_to_first_token": whole_ms(one.ttft_ns),
        "model": scene.engine.model,
        "request_path": f"https://{_HOST}{_PATH}",
        "response_status": 200,
        "prompt_tokens": one.request.prompt_tokens,
        "completion_tokens": one.request.output_tokens,
        "total_tokens": total_tokens(one),
        "prompt_cache_read_tokens": one.cached_tokens,
        "prompt_cache_write_tokens": 0,
        "request_properties": {"Helicone-Session-Id": session_name(one)},
    }


HELICONE_CSV: Final = (
    "request_created_at,request_id,delay_ms,time_to_first_token,model,status,prompt_tokens,"
    "completion_tokens,total_tokens,prompt_cache_read_tokens"
)


def helicone_cells(one: Served, scene: Scene) -> tuple[object, ...]:
    """A request of Helicone's export in CSV: whole ms, no session."""
    return (
        zulu_stamp(one.arrived_at_ns),
        one.request.request_id,
        whole_ms(e2e_ns(one)),
        whole_ms(one.ttft_ns),
        scene.engine.model,
        200,
        one.request.prompt_tokens,
        one.request.output_tokens,
        total_tokens(one),
        one.cached_tokens,
    )


LITELLM_SPEND_LOGS: Final = (
    "request_id,call_type,spend,total_tokens,prompt_tokens,completion_tokens,startTime,endTime,"
    "completionStartTime,model,metadata,cache_hit,session_id,status"
)


def litellm_spend_cells(one: Served, scene: Scene) -> tuple[object, ...]:
    """A row of LiteLLM_SpendLogs as CSV: UTC without a zone, the usage as JSON in quotes."""
    details = {"prompt_tokens_details": {"cached_tokens": one.cached_tokens}}
    metadata = json_line({"additional_usage_values": details}).replace('"', '""')
    times = (one.arrived_at_ns, one.last_token_at_ns, one.first_token_at_ns)
    return (
        one.request.request_id,
        "acompletion",
        0,
        total_tokens(one),
        one.request.prompt_tokens,
        one.request.output_tokens,
        *(f"{wall(at_ns):%Y-%m-%d %H:%M:%S.%f}"[:-3] for at_ns in times),
        scene.engine.model,
        f'"{metadata}"',
        False,
        session_name(one),
        "success",
    )


def created_s(one: Served) -> int:
    """The epoch second of arrival, as servers write `created`."""
    return (START_NS + one.arrived_at_ns) // NS_PER_S
