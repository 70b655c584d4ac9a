"""Text logs of small servers and of AIBrix's gateway: a line at the end of each request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from kvtrace.synth.formats.scene import (
    Scene,
    bracket_stamp,
    e2e_ns,
    iso_stamp,
    ms_of,
    ms_stamp,
    seconds_of,
    total_tokens,
    wall,
)
from kvtrace.synth.story import Served
from kvtrace.synth.writers import Line, by_last_token, in_order
from kvtrace.units import NS_PER_S

MINUTE_NS: Final = 60 * NS_PER_S


def _ends(line_of: Callable[[Served], str]) -> Callable[[Scene], Iterator[str]]:
    def lines(scene: Scene) -> Iterator[str]:
        for one in by_last_token(scene.served()):
            yield line_of(one)

    return lines


def _tabbyapi(one: Served) -> str:
    request = one.request
    new = request.prompt_tokens - one.cached_tokens
    prefill = _rate(new, one.first_token_at_ns - one.scheduled_at_ns)
    decode = _rate(request.output_tokens, one.last_token_at_ns - one.first_token_at_ns)
    return (
        f"{ms_stamp(one.last_token_at_ns).replace(',', '.')} INFO:     Metrics"
        f" (ID: {request.request_id}): {request.output_tokens} tokens generated in"
        f" {_hundredths(e2e_ns(one))} seconds (Queue:"
        f" {_hundredths(one.scheduled_at_ns - one.arrived_at_ns)} s, Process:"
        f" {one.cached_tokens} cached tokens and {new} new tokens at {prefill} T/s,"
        f" Generate: {decode} T/s, Context: {request.prompt_tokens} tokens)"
    )


def _hundredths(duration_ns: int) -> Decimal:
    """Seconds as TabbyAPI prints them, cut to 10 ms."""
    return Decimal(duration_ns * 100 // NS_PER_S).scaleb(-2)


def _rate(tokens: int, duration_ns: int) -> str:
    return f"{tokens * NS_PER_S / duration_ns:.2f}" if duration_ns else "Indeterminate"


def _tgi(one: Served) -> str:
    inference_ns = one.last_token_at_ns - one.scheduled_at_ns
    return (
        f"{iso_stamp(one.last_token_at_ns)}Z  INFO generate_stream{{parameters="
        f"GenerateParameters {{ max_new_tokens: Some(1024) }}"
        f' total_time="{seconds_of(e2e_ns(one))}s"'
        f' validation_time="{ms_of(one.queued_at_ns - one.arrived_at_ns)}ms"'
        f' queue_time="{ms_of(one.scheduled_at_ns - one.queued_at_ns)}ms"'
        f' inference_time="{seconds_of(inference_ns)}s"'
        f' time_per_token="{ms_of(inference_ns // one.request.output_tokens)}ms"'
        ' seed="None"}: text_generation_router::server: router/src/server.rs:637: Success'
    )


def _ollama(one: Served) -> str:
    at_ns, took_ns = one.last_token_at_ns, e2e_ns(one)
    took = f"{seconds_of(took_ns)}s"
    if took_ns >= MINUTE_NS:
        minutes, rest_ns = divmod(took_ns, MINUTE_NS)
        took = f"{minutes}m{rest_ns // NS_PER_S}s"
    stamp = bracket_stamp(at_ns).replace("-", "/").replace(" ", " - ")
    return f'[GIN] {stamp} | 200 | {took:>13} |       127.0.0.1 | POST     "/v1/chat/completions"'


tabbyapi_text = _ends(_tabbyapi)
"""TabbyAPI's metrics line: durations cut to 10 ms, rates to hundredths."""
tgi_text = _ends(_tgi)
"""The router's line of Text Generation Inference."""
ollama_text = _ends(_ollama)
"""Ollama's access line: the second of the end, past a minute whole seconds of duration."""


def aibrix_text(scene: Scene) -> Iterator[str]:
    """The log of AIBrix's gateway: start and end of each request, without a year."""
    model = scene.engine.model

    def lines_of(one: Served, number: int) -> Iterator[Line]:
        request = one.request
        yield (
            one.arrived_at_ns,
            2 * number,
            f'gateway_req_body.go:71] "request start" requestID="{request.request_id}"'
            f' requestPath="/v1/chat/completions" model="{model}" stream=true',
        )
        yield (
            one.last_token_at_ns,
            2 * number + 1,
            f'gateway_rsp_body.go:250] "request_end" request_id="{request.request_id}"'
            f' model_name="{model}" prompt_tokens={request.prompt_tokens}'
            f" completion_tokens={request.output_tokens} total_tokens={total_tokens(one)}",
        )

    for at_ns, _, text in in_order(scene.served(), lines_of):
        yield f"I{wall(at_ns):%m%d %H:%M:%S.%f}       1 {text}"
