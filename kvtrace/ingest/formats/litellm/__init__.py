"""LiteLLM: the StandardLoggingPayload of its callbacks, and the spend logs of its database.

Read from the sources of LiteLLM 1.110.2. Its prompt_tokens include cached and written tokens for
every provider. Each retry or fallback is a call of its own (they share trace_id). A call that does
not stream has completionStartTime = endTime: its time to first token is unknown.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format
from kvtrace.ingest.formats.litellm import payload, spend_logs
from kvtrace.units import MIB

_SUPPLIES = (
    "request_id",
    "session_id",
    "tenant",
    "user",
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
)
_MISSING = {
    "reuse": "messages in the log (turn_off_message_logging: false; spend logs:"
    " store_prompts_in_spend_logs: true), of which kvtrace makes block keys; or the engines' KV"
    " events (vLLM, SGLang: --kv-events-config)",
    "cached_tokens": "the engine must report it: vLLM --enable-prompt-tokens-details,"
    " SGLang --enable-cache-report",
    "ttft": "streamed calls only; for the others the engine's spans (vLLM: --otlp-traces-endpoint)",
    "queue": "the engine's spans (vLLM: --otlp-traces-endpoint)",
    "sessions": "clients that send litellm_session_id",
}

FORMATS: tuple[Format, ...] = (
    Format(
        name="litellm",
        title="LiteLLM standard logging payload (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(*_SUPPLIES, "parent_id"),
        missing=_MISSING,
        versions="LiteLLM 1.110.2: StandardLoggingPayload, spend log rows of the API; older ones"
        " without session_id, litellm_call_id and metadata.usage_object",
        sniff=payload.sniff,
        read=payload.read,
        enable_hint='litellm_settings: {callbacks: ["s3_v2"]} (or "gcs_bucket", "generic_api") with'
        " turn_off_message_logging: false for reuse (prompts become keyed hashes), else true",
        max_record_bytes=64 * MIB,
    ),
    Format(
        name="litellm_spend_logs",
        title="LiteLLM spend logs (CSV)",
        framing="csv",
        best_grade="A",
        supplies=_SUPPLIES,
        missing=_MISSING,
        versions='LiteLLM 1.110.2: table "LiteLLM_SpendLogs"',
        sniff=spend_logs.sniff,
        read=spend_logs.read,
        enable_hint="psql -c '\\copy \"LiteLLM_SpendLogs\" to spend.csv csv header'"
        " (general_settings: {disable_spend_logs: false})",
        max_record_bytes=64 * MIB,
    ),
)
