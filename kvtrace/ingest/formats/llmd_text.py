"""llm-d and Gateway API inference extension: the endpoint picker's JSON lines, routing only.

Lines read from the sources of the endpoint picker (EPP) 0.3 to 1.0, as zap prints them at `-v=4`
and above. They say where a request was sent and why, and nothing of what a cache held: every line
is counted as a routing event.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format, LogContext, LogLine
from kvtrace.ingest.textlog.fields import json_fields
from kvtrace.ingest.textlog.formats import log_format

_ID_KEY = '"x-request-id"'


class LlmdLog:
    """The endpoint picker's lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context

    def take(self, line: LogLine) -> bool:
        """Whether the line is of the endpoint picker; then it is a routing event."""
        if line.document is None or _ID_KEY not in line.document:
            return False
        fields = json_fields(line.document)
        if "x-request-id" not in fields or ".go:" not in fields.get("caller", ""):
            return False
        self._context.tally.ignore("routing_event")
        return True

    def finish(self) -> None:
        """Say what the lines cannot tell."""
        self._context.engine = "llm-d"
        self._context.evidence_grade = "L"


FORMATS: tuple[Format, ...] = (
    log_format(
        "llmd_text",
        title="llm-d endpoint picker log (routing events only)",
        best_grade="L",
        supplies=(),
        missing={
            "requests": "the log of the engines behind it: vLLM --enable-log-requests",
            "reuse": "the KV events that feed its prefix cache scorer: vLLM"
            ' --kv-events-config \'{"enable_kv_cache_events": true, "publisher": "zmq"}\'',
        },
        versions="Gateway API inference extension 0.3 to 1.0, llm-d router (public excerpts)",
        prefixes=("formatted",),
        open=LlmdLog,
        enable_hint="-v=4 on the endpoint picker prints routing scores, no evidence of hits",
    ),
)
