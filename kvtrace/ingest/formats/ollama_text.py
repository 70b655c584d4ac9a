"""Ollama logs: access lines with the time of each call; its own lines carry no tokens.

Lines read from public issues of Ollama 0.1 to 0.12: GIN access lines (Go durations, whole seconds
past a minute) and slog. The lines of the llama.cpp server inside are `llamacpp_text`'s. Client
addresses are not stored.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.ingest.contract import Format, LogContext, LogLine, RequestRow, Tally
from kvtrace.ingest.textlog.fields import BadField, earlier, printed_duration_ns
from kvtrace.ingest.textlog.formats import log_format
from kvtrace.schema.manifest import Status

_ACCESS = re.compile(
    r"\[GIN\] [0-9/]{10} - [0-9:]{8} \| {1,3}([0-9]{3}) \| {1,20}([0-9hmsnuµμ.]{1,40}) \|"
    r' {1,40}[0-9A-Za-z.:%]{1,64} \| ([A-Z]{1,10}) {1,10}"([^"\s]{1,2000})"(?: .{0,400})?'
)
_SLOG = re.compile(r"time=\S{10,40} level=[A-Z]{1,8} source=[\w./-]{1,120}\.go:[0-9]{1,6} msg=")
_VERSION = re.compile(r'msg="Listening on \S{1,120} \(version ([0-9][\w.+-]{0,40})\)"')
_TYPES: Final = {
    "/api/chat": "chat",
    "/api/generate": "generate",
    "/api/embed": "embed",
    "/api/embeddings": "embed",
    "/v1/chat/completions": "chat",
    "/v1/completions": "generate",
    "/v1/embeddings": "embed",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
}
_CLIENT_CLOSED: Final = 499
_MAX_LINE: Final = 4_096


class OllamaLog:
    """Ollama's own lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally: Tally = log.context.tally
        self._emit = log.emit
        self._versions: dict[str, None] = {}

    def take(self, line: LogLine) -> bool:
        """Whether the line is Ollama's own; then it has its outcome."""
        text = line.text
        if text.startswith("[GIN] "):
            self._access(line, text)
            return True
        if not text.startswith("time=") or _SLOG.match(text) is None:
            return False
        version = _VERSION.search(text[:400])
        if version is None:
            self._tally.ignore("other_engine_line")
        else:
            self._versions[version[1]] = None
            self._tally.use()
        return True

    def _access(self, line: LogLine, text: str) -> None:
        if not text.startswith("[GIN] 2"):
            self._tally.ignore("other_engine_line")  # a message of the framework itself
            return
        match = _ACCESS.fullmatch(text) if len(text) < _MAX_LINE else None
        if match is None or line.time.naive_ns is None:
            self._tally.reject(line.record, "damaged_line", "access line")
            return
        code, latency, method, target = match.groups()
        kind = _TYPES.get(target.partition("?")[0])
        if kind is None or method != "POST":
            self._tally.ignore("access_line")
            return
        try:
            e2e_ns = printed_duration_ns("latency", latency)
        except BadField as bad:
            self._tally.reject(line.record, "damaged_line", str(bad))
            return
        row = RequestRow(
            offset=line.record.offset,
            line=line.record.line,
            request_type=kind,
            e2e_ns=e2e_ns,
            status=_status(int(code)),
        )
        self._tally.use()
        self._emit(row, earlier(line.time, e2e_ns))

    def finish(self) -> None:
        """Say which version it was, where it is printed."""
        context = self._context
        context.engine = "ollama"
        context.evidence_grade = "L"
        if self._versions:
            context.engine_version = ", ".join(self._versions)
            context.engine_version_reason = "printed in the log"


def _status(code: int) -> Status:
    if code == _CLIENT_CLOSED:
        return "cancelled"
    return "ok" if 200 <= code < 300 else "error"


FORMATS: tuple[Format, ...] = (
    log_format(
        "ollama_text",
        title="Ollama log (access lines)",
        best_grade="L",
        supplies=("arrived_at_ns", "request_type", "e2e_ns", "status"),
        missing={
            "cached_tokens": "OLLAMA_DEBUG=1 prints the lines of the llama.cpp server"
            " inside (format llamacpp_text)",
            "ttft": "prompt_eval_duration of each /api response, kept by the client",
        },
        versions="Ollama 0.1 to 0.12 (public issues)",
        prefixes=("none",),
        open=OllamaLog,
        enable_hint="on by default: journalctl -u ollama -o short-iso, or docker logs ollama",
    ),
)
