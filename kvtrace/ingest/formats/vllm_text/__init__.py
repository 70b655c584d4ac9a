"""vLLM text logs, V0 and V1: requests, statistics, start-up and capacity.

Lines read from the sources of vLLM 0.4.2 to 0.33.0. Messages are matched by their text and only at
their start, never by file name or line number (they move with every release).
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format, Guess, Head, Record, Tally
from kvtrace.ingest.formats.vllm_text.reader import PREFIX, read
from kvtrace.ingest.formats.vllm_text.stats import looks_like_stats
from kvtrace.ingest.layers import LinePeeler

_KNOWN_STARTS = (
    "Received request ",
    "Added request ",
    "Finished request ",
    "Aborted request",
    "Generated response ",
    "GPU KV cache size: ",
    "# GPU blocks: ",
    "Prefix cache hit rate: GPU: ",
    "KV Transfer metrics: ",
    "vLLM API server version ",
)
_MAX_LINES = 2_000
_MAX_CHARS = 4_000


def _sniff(head: Head) -> Guess | None:
    """Votes of the lines: how many are vLLM's by their prefix, and how many by their message."""
    lines = head.lines[:_MAX_LINES] or (head.text[:_MAX_CHARS],)
    peeler = LinePeeler(Tally())
    prefixed = known = 0
    for number, text in enumerate(lines, start=1):
        line = peeler.feed(Record(0, number, text[:_MAX_CHARS].encode()))
        if line is None:
            continue
        match = PREFIX.match(line.text)
        message = line.text[match.end() :] if match is not None else line.text
        if match is None and not line.is_formatted:
            continue
        prefixed += match is not None
        known += message.startswith(_KNOWN_STARTS) or looks_like_stats(message)
    if not prefixed and not known:
        return None
    if known:
        confidence = 0.6 + 0.35 * min(1.0, max(prefixed, known) / len(lines))
        return Guess(confidence, f"{known} of {len(lines)} lines are messages of vLLM")
    confidence = 0.35 + 0.3 * prefixed / len(lines)
    return Guess(confidence, f"{prefixed} of {len(lines)} lines have vLLM's prefix")


FORMATS: tuple[Format, ...] = (
    Format(
        name="vllm_text",
        title="vLLM text log (V0 and V1)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "llm",
            "adapter",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "e2e_ns",
            "status",
            "block_keys",
            "prefix_hit_ratio",
            "external_prefix_hit_ratio",
            "kv_usage_ratio",
            "kv_capacity_tokens",
            "prompt_tokens_per_s",
            "running_requests",
            "waiting_requests",
            "iteration_elapsed_s",
        ),
        missing={
            "reuse, and the capacity curve": "token ids of each prompt: VLLM_LOGGING_LEVEL=DEBUG"
            " with --enable-log-requests --enable-log-outputs (kvtrace hashes them while reading)",
            "cached tokens of a request": "--enable-prompt-tokens-details, read at the gateway",
            "TTFT and queue time of a request": "--otlp-traces-endpoint",
            "prompt tokens of chat requests": "--enable-log-requests with the request logger at"
            " level DEBUG",
            "end of a request in V1": "--enable-log-outputs beside --enable-log-requests",
        },
        versions="vLLM 0.4.2 to 0.33.0 (sources), V0 and V1 engines",
        sniff=_sniff,
        read=read,
        enable_hint="statistics are on by default (--disable-log-stats turns them off); requests"
        " need --enable-log-requests from 0.10 on",
    ),
)
