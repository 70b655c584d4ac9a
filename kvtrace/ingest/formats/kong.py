"""Log entries of Kong's AI plugins: the old spelling of their usage and the new one.

Read from the documents of Kong Gateway 3.6 to 3.11 (log serializer, ai-proxy): `started_at` is in
epoch ms, `latencies` in ms. Up to 3.7 the usage stands under the name of its plugin as
`prompt_token` and `completion_token`, later under `ai.proxy` as OpenAI writes it.
`time_per_token` is the whole time over all tokens, which is no TPOT, and not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kvtrace.ingest.contract import (
    Format,
    Guess,
    Head,
    ReadContext,
    Record,
    RequestRow,
    Row,
)
from kvtrace.ingest.families.gateways import GatewayFile, endpoint_of, status_in, status_of_code
from kvtrace.ingest.prompts.rows import Prompted
from kvtrace.ingest.usage import TokenUsage, read_usage
from kvtrace.ingest.values.jsonfields import Ignored, decode_json, elapsed_ns, keys_of
from kvtrace.ingest.values.rawvalues import NO_VALUE, id_of, name_of, nested, raw_decimal, raw_text

NO_CALL: Final = "without_llm_call"
_SINGULAR: Final = {
    "prompt_token": "prompt_tokens",
    "completion_token": "completion_tokens",
    "total_token": "total_tokens",
}
_MS: Final = -3


class _Meta(msgspec.Struct, gc=False):
    request_model: object = None
    response_model: object = None
    request_mode: object = None


class _Cache(msgspec.Struct, gc=False):
    cache_status: object = None


class _Payload(msgspec.Struct, gc=False):
    request: msgspec.Raw = NO_VALUE


class _Plugin(msgspec.Struct, gc=False):
    usage: dict[str, msgspec.Raw] | None = None
    meta: _Meta | None = None
    cache: _Cache | None = None
    payload: msgspec.Raw = NO_VALUE


class _Latencies(msgspec.Struct, gc=False):
    request: msgspec.Raw = NO_VALUE


class _Request(msgspec.Struct, gc=False):
    id: object = None
    uri: object = None


class _Response(msgspec.Struct, gc=False):
    status: msgspec.Raw = NO_VALUE


class _Consumer(msgspec.Struct, gc=False):
    id: object = None
    username: object = None


class _Entry(msgspec.Struct, gc=False):
    started_at: msgspec.Raw = NO_VALUE
    latencies: _Latencies | None = None
    request: _Request | None = None
    response: _Response | None = None
    consumer: _Consumer | None = None
    ai: dict[str, msgspec.Raw] | None = None


_DECODER: Final = msgspec.json.Decoder(_Entry)
_USAGE: Final = msgspec.json.Decoder(dict[str, object])
_PLUGIN: Final = msgspec.json.Decoder(_Plugin | None)
_PAYLOAD: Final = msgspec.json.Decoder(_Payload)
_PAYLOAD_NAME: Final = "payload"


class _KongFile:
    def __init__(self, context: ReadContext) -> None:
        self.gateway = GatewayFile(context)

    def rows(self, record: Record) -> list[Prompted] | Ignored:
        """The request of one entry.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        written = raw.ai or {}
        plugins = {
            name: _PLUGIN.decode(data) for name, data in written.items() if name != _PAYLOAD_NAME
        }
        plugin, is_hit = _plugin(plugins), any(map(_is_hit, plugins.values()))
        if plugin is None and not is_hit:
            return Ignored(NO_CALL)
        plugin = plugin or _Plugin()
        flags: list[str] = []
        latencies, request = raw.latencies or _Latencies(), raw.request or _Request()
        response, consumer = raw.response or _Response(), raw.consumer or _Consumer()
        meta, usage = plugin.meta or _Meta(), plugin.usage or {}
        first = raw_decimal("time_to_first_token", usage.get("time_to_first_token", NO_VALUE))
        path = name_of(request.uri)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(request.id),
            tenant=id_of(consumer.id) or id_of(consumer.username),
            llm=name_of(meta.response_model) or name_of(meta.request_model),
            request_type=None if path is None else endpoint_of(path),
            arrived_at_ns=self.gateway.instants.raw_ns("started_at", raw.started_at, flags),
            ttft_ns=None
            if is_hit or meta.request_mode == "oneshot"
            else elapsed_ns("ttft", first or None, flags, power=_MS),
            e2e_ns=elapsed_ns(
                "latency", raw_decimal("latencies.request", latencies.request), flags, power=_MS
            ),
            status="gateway_cache_hit"
            if is_hit
            else status_of_code(status_in("response.status", response.status)),
        )
        row = self.gateway.fill(row, _usage(usage), flags)
        return [self.gateway.bodies.prompted(row, *self._payloads(plugin, written))]

    def _payloads(
        self, plugin: _Plugin, written: Mapping[str, msgspec.Raw]
    ) -> Iterator[msgspec.Raw]:
        """The request of the plugin, or of `ai.payload` beside the plugins."""
        if not self.gateway.bodies.is_on:
            return
        for place in (plugin.payload, written.get(_PAYLOAD_NAME, NO_VALUE)):
            payload = nested(_PAYLOAD, place)
            if payload is not None:
                yield payload.request


def _is_hit(plugin: _Plugin | None) -> bool:
    """Whether a response came out of the cache of this plugin, such as ai-semantic-cache."""
    if plugin is None or plugin.cache is None:
        return False
    return (name_of(plugin.cache.cache_status) or "").lower() == "hit"


def _plugin(plugins: Mapping[str, _Plugin | None]) -> _Plugin | None:
    """The plugin that called the model: a proxy before those that only rewrite or guard."""
    with_usage = [
        (name, plugin) for name, plugin in plugins.items() if plugin is not None and plugin.usage
    ]
    with_usage.sort(key=lambda pair: "proxy" not in pair[0])
    if with_usage:
        return with_usage[0][1]
    return next((plugin for plugin in plugins.values() if plugin and plugin.meta), None)


def _usage(written: Mapping[str, msgspec.Raw]) -> TokenUsage | None:
    counts: dict[str, object] = {}
    for name, value in written.items():
        is_object = bytes(value)[:1] == b"{"
        counts[_SINGULAR.get(name, name)] = _USAGE.decode(value) if is_object else raw_text(value)
    return read_usage(counts)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _KongFile(context)
    yield from file.gateway.prompted_rows(records, file.rows)
    file.gateway.finish("started_at")


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(item) for item in objects)
    if ours == 0:
        return None
    return Guess(
        0.6 + 0.36 * ours / len(objects),
        f"{ours} of {len(objects)} records are Kong log entries with usage of an AI plugin",
    )


def _is_ours(item: Mapping[str, object]) -> bool:
    plugins = item.get("ai")
    if not isinstance(plugins, dict) or not {"started_at", "latencies"} & set(item):
        return False
    return any({"usage", "meta"} & keys_of(plugin) for plugin in plugins.values())


FORMATS: tuple[Format, ...] = (
    Format(
        name="kong",
        title="Kong AI Gateway log (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "tenant",
            "llm",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "output_tokens",
            "ttft_ns",
            "e2e_ns",
            "status",
            "block_keys",
        ),
        missing={
            "reuse": "log_payloads=true: kvtrace makes block keys of the prompts; or the engines'"
            " KV events (--kv-events-config)",
            "cached_tokens": "Kong 3.8 or newer, and an engine that reports it"
            " (vLLM --enable-prompt-tokens-details)",
            "ttft": "streamed calls through Kong 3.8 or newer",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
            "sessions": "a gateway that logs a session id",
        },
        versions="Kong Gateway 3.6 to 3.11, log serializer and ai-proxy as documented",
        sniff=_sniff,
        read=_read,
        enable_hint="ai-proxy with logging.log_statistics=true (log_payloads=true for reuse), and a"
        " log plugin such as file-log with path=/var/log/kong/ai.log",
    ),
)
