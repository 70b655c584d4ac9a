"""llama.cpp server logs of three generations, and the `timings` of its responses.

Lines read from the sources and public issues of llama.cpp: 2024 (`INFO [func] msg | k=v`, also as
JSON), 2025 (`slot update_slots: id 0 | task 1 | …` with timing lines of their own), late 2025 on
(`memory_seq_rm`, and a clock since the start in front of each line).
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format
from kvtrace.ingest.formats.llamacpp_text.reader import LlamaCppLog
from kvtrace.ingest.textlog.formats import log_format

FORMATS: tuple[Format, ...] = (
    log_format(
        "llamacpp_text",
        title="llama.cpp server log and response timings",
        best_grade="B",
        supplies=(
            "request_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "computed_tokens",
            "output_tokens",
            "prefill_ns",
            "ttft_ns",
            "tpot_ns",
            "status",
        ),
        missing={
            "reuse": "the prompts' token ids, which the server does not log",
            "queue": "not logged; --metrics has requests_deferred at GET /metrics",
            "arrivals": "--log-timestamps gives time since the start; journald or docker logs -t"
            " give the date",
        },
        versions="llama.cpp server 2024 to 2026 (sources and public issues)",
        prefixes=("none", "tracing", "formatted", "json"),
        open=LlamaCppLog,
        enable_hint="on by default; --log-timestamps --log-prefix add a clock; bodies of responses"
        " carry `timings`, which a gateway can log",
    ),
)
