"""Dynamo's text and JSONL logs: KVBM lines with the tiers of each request, completions, router.

Lines read from the sources of Dynamo 0.4 to 1.6 and public issues: KVBM of July 2025 (`request
complete isl: …`) and of late 2025 (`request set to finish: cached_gpu_tokens: …`), completions of
the frontend from 1.1 on (`DYN_LOGGING_JSONL=true` or text), decisions of the KV router. The router
estimates what a worker holds: its numbers are never hits of a request.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.ingest.contract import (
    Format,
    LineTime,
    LogContext,
    LogLine,
    Metric,
    RequestRow,
    SampleRow,
    Tally,
)
from kvtrace.ingest.textlog.fields import (
    BadField,
    count_of,
    earlier,
    elapsed_ns,
    json_fields,
    key_values,
    llm_of,
    split_spans,
)
from kvtrace.ingest.textlog.formats import log_format
from kvtrace.ingest.values.jsonfields import flag_lengths
from kvtrace.schema.manifest import Status

_KVBM_2025_07: Final = "request complete isl: "
_KVBM_2025_11: Final = "request set to finish: "
_COMPLETED: Final = "request completed"
_ID_MAP: Final = "Engine ID map: "
_STARTS: Final = (
    _KVBM_2025_07,
    _KVBM_2025_11,
    _COMPLETED,
    _ID_MAP,
    "Formula for worker_id=",
    "Selected worker: ",
    "[ROUTING] Best: ",
)
_COUNT = r"([0-9]{1,15})"
_TIERS = re.compile(
    rf"request complete isl: {_COUNT} - cache hits: device: {_COUNT}, host: {_COUNT},"
    rf" disk: {_COUNT} - prefilled: {_COUNT}(?=\s|\Z)"
)
_FINISHED = re.compile(
    rf"request set to finish: cached_gpu_tokens: {_COUNT}; cached_host_tokens: {_COUNT};"
    rf" cached_disk_tokens: {_COUNT}(?=\s|\Z)"
)
_SELECTED = re.compile(
    rf"Selected worker: (?:worker_id=)?([0-9]{{1,20}})(?: dp_rank=([0-9]{{1,5}}))?,"
    rf" logit: [\w.+-]{{1,40}}, cached blocks: {_COUNT}(?:, [\w =:.,-]{{1,200}})?"
)
_BEST = re.compile(
    rf"\[ROUTING\] Best: (worker_[\w.-]{{1,64}}(?: [\w=]{{1,40}})?) with {_COUNT}/{_COUNT}"
    r" blocks overlap.{0,400}",
    re.DOTALL,
)
_MAX_MESSAGE: Final = 8_192
_MAX_WAITING: Final = 4_096
"""Rows that wait for what another line says of their request."""
_STATUS: Final[dict[str, Status]] = {
    "success": "ok",
    "ok": "ok",
    "error": "error",
    "failed": "error",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "disconnect": "cancelled",
}
_DATED_BY_END: Final = "dated_by_end"
_COMPLETIONS: Final = "completions of 1.1 or later"


class _Waiting:
    """A row that a line of the other kind may still complete."""

    __slots__ = ("ids", "is_kvbm", "row", "time")

    def __init__(
        self, row: RequestRow, time: LineTime, ids: tuple[str, ...], *, is_kvbm: bool
    ) -> None:
        self.row = row
        self.time = time
        self.ids = ids
        self.is_kvbm = is_kvbm


class DynamoLog:
    """The Dynamo lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally: Tally = log.context.tally
        self._emit = log.emit
        self._waiting: dict[int, _Waiting] = {}
        self._by_id: dict[str, int] = {}
        self._aliases: dict[str, str] = {}  # the engine's id of a request → Dynamo's
        self._engine_ids: dict[str, str] = {}  # the other way round
        self._rows = 0
        self._has_hits = self._has_estimates = False
        self._wordings: dict[str, None] = {}

    def take(self, line: LogLine) -> bool:
        """Whether the line is Dynamo's; then it has its outcome."""
        message = line.message
        if line.prefix == "tracing" and line.label is None and "{" in message[:200]:
            message = split_spans(message)[1].partition(": ")[2]  # behind spans and the target
        if not message.startswith(_STARTS):
            return False
        if len(message) > _MAX_MESSAGE:
            self._tally.reject(line.record, "damaged_line", "longer than any line of its kind")
            return True
        try:
            self._message(line, message)
        except BadField as bad:
            self._tally.reject(line.record, "damaged_line", str(bad))
        return True

    def _message(self, line: LogLine, message: str) -> None:
        if message.startswith((_KVBM_2025_07, _KVBM_2025_11)):
            self._kvbm(line, message)
        elif message.startswith(_COMPLETED):
            self._completed(line, message)
        elif message.startswith(_ID_MAP):
            self._id_map(line, message)
        elif message.startswith("Formula for "):
            self._tally.ignore("router_estimate")
        else:
            self._decision(line, message)

    def _fields(self, line: LogLine, tail: str) -> dict[str, str]:
        """What stands behind the message, and beside it in a JSON line.

        Raises:
            BadField: the tail is no list of pairs, or the file ends in a value that may be cut.
        """
        pairs = key_values(tail)
        if pairs is None:
            raise BadField("pairs behind the message")
        if line.document is not None:
            return {**json_fields(line.document), **pairs}
        if not line.terminated and not tail.endswith('"'):
            raise BadField("the file ends inside the line")
        return pairs

    def _kvbm(self, line: LogLine, message: str) -> None:
        full = _TIERS.match(message)
        match = full or _FINISHED.match(message)
        if match is None:
            raise BadField("KVBM counts")
        fields = self._fields(line, message[match.end() :])
        request_id = fields.get("request_id") or None
        if request_id is None and line.document is None:
            raise BadField("`request_id` is missing")
        counts = [int(text) for text in match.groups()]
        device, host, disk = counts[1:4] if full is not None else counts
        row = RequestRow(
            offset=line.record.offset,
            line=line.record.line,
            request_id=request_id,
            prompt_tokens=counts[0] if full is not None else None,
            cached_tokens=device + host + disk,
            cached_device_tokens=device,
            cached_host_tokens=host,
            cached_disk_tokens=disk,
            computed_tokens=counts[4] if full is not None else None,
            flags=(_DATED_BY_END,),
        )
        if full is not None and sum(counts[1:]) != counts[0]:
            row.flags = (*row.flags, "total_mismatch")
        self._has_hits = True
        self._wordings["KVBM of July 2025" if full is not None else "KVBM of late 2025"] = None
        self._tally.use()
        self._enter(row, line.time, () if request_id is None else (request_id,), is_kvbm=True)

    def _completed(self, line: LogLine, message: str) -> None:
        tail = message[len(_COMPLETED) :]
        if tail and not tail[0].isspace():
            raise BadField("completion")
        fields = self._fields(line, tail)
        row = _completion(line, fields)
        if row is None:
            self._tally.ignore("completion_without_counts")
            return
        self._has_hits |= row.cached_tokens is not None
        self._wordings[_COMPLETIONS] = None
        self._tally.use()
        time = line.time
        if row.e2e_ns is None:
            row.flags = (*row.flags, _DATED_BY_END)
        else:
            time = earlier(time, row.e2e_ns)
        named = (fields.get("request_id"), fields.get("x_request_id"))
        self._enter(row, time, tuple(name for name in named if name), is_kvbm=False)

    def _id_map(self, line: LogLine, message: str) -> None:
        fields = self._fields(line, message[len(_ID_MAP) :])
        ours, theirs = fields.get("request_id"), fields.get("trtllm_client_id")
        if ours and theirs and theirs != "None":
            if len(self._aliases) >= _MAX_WAITING:
                self._drop_alias(next(iter(self._aliases)))
            self._drop_alias(theirs)
            self._aliases[theirs], self._engine_ids[ours] = ours, theirs
        self._tally.ignore("id_map")

    def _drop_alias(self, theirs: str) -> None:
        ours = self._aliases.pop(theirs, None)
        if ours is not None and self._engine_ids.get(ours) == theirs:
            del self._engine_ids[ours]

    def _decision(self, line: LogLine, message: str) -> None:
        selected = _SELECTED.fullmatch(message)
        best = None if selected is not None else _BEST.fullmatch(message)
        match = selected or best
        if match is None or (not line.terminated and message[-1:].isdigit()):
            raise BadField("decision of the router")
        engine = match[1]
        if selected is not None:
            rank = f" dp_rank={match[2]}" if match[2] is not None else ""
            engine = f"worker_{engine}{rank}"
        overlap = float(match[3] if selected is not None else match[2])
        metric = Metric(
            metric="router_overlap_blocks", value=overlap, unit="blocks", window="instant"
        )
        sample = SampleRow(
            offset=line.record.offset,
            line=line.record.line,
            observed_at_ns=None,
            engine=engine,
            metrics=[metric],
        )
        self._has_estimates = True
        self._tally.use()
        self._emit(sample, line.time)

    def _enter(
        self, row: RequestRow, time: LineTime, ids: tuple[str, ...], *, is_kvbm: bool
    ) -> None:
        """Merge the row with one that waits for it, or let it wait; nameless rows go at once."""
        self._rows += 1
        if not ids:
            self._emit(row, time)
            return
        partner = self._partner(ids, is_kvbm=is_kvbm)
        if partner is None:
            entry = _Waiting(row, time, ids, is_kvbm=is_kvbm)
            for name in ids:
                earlier_offset = self._by_id.get(name)
                if earlier_offset is not None:  # the same kind again: the id was used again
                    self._release(earlier_offset)
                self._by_id[name] = row.offset
            self._waiting[row.offset] = entry
            if len(self._waiting) > _MAX_WAITING:
                self._release(next(iter(self._waiting)))
            return
        self._forget(partner)
        self._rows -= 1
        if is_kvbm:
            _take_tiers(partner.row, row)
            self._emit(partner.row, partner.time)
        else:
            row.offset, row.line = partner.row.offset, partner.row.line
            _take_tiers(row, partner.row)
            self._emit(row, time)

    def _partner(self, ids: tuple[str, ...], *, is_kvbm: bool) -> _Waiting | None:
        """The waiting row of the other kind that one of the ids, or its engine's id, means."""
        mapped = self._aliases if is_kvbm else self._engine_ids
        names = [*ids, *(mapped[name] for name in ids if name in mapped)]
        for name in names:
            found = self._waiting.get(self._by_id.get(name, -1))
            if found is not None and found.is_kvbm != is_kvbm:
                return found
        return None

    def _forget(self, entry: _Waiting) -> None:
        self._waiting.pop(entry.row.offset, None)
        for name in entry.ids:
            if self._by_id.get(name) == entry.row.offset:
                del self._by_id[name]

    def _release(self, offset: int) -> None:
        entry = self._waiting.get(offset)
        if entry is not None:
            self._forget(entry)
            self._emit(entry.row, entry.time)

    def finish(self) -> None:
        """Emit the rows that wait; say what the log holds."""
        for offset in list(self._waiting):
            self._release(offset)
        context = self._context
        context.engine = "dynamo"
        context.evidence_grade = "B" if self._has_hits else "L"
        if self._wordings:
            context.engine_version_reason = f"lines of {', '.join(self._wordings)}"
            has_completions = _COMPLETIONS in self._wordings
            context.layer = "frontend" if has_completions else "kvbm"
        if self._has_estimates:
            context.note(
                "router_estimates",
                "Decisions of the KV router are estimates of what a worker holds, not hits.",
            )


def _completion(line: LogLine, fields: dict[str, str]) -> RequestRow | None:
    """The row of a completed request; None if the line says neither a length nor a time.

    Raises:
        BadField: a field holds something else than it must.
    """
    flags: list[str] = []
    ttft_ns = elapsed_ns("ttft_ms", fields.get("ttft_ms"), flags, power=-3)
    row = RequestRow(
        offset=line.record.offset,
        line=line.record.line,
        request_id=fields.get("request_id") or fields.get("x_request_id") or None,
        llm=llm_of(fields.get("model")),
        prompt_tokens=count_of("input_tokens", fields.get("input_tokens")),
        cached_tokens=count_of("cached_tokens", fields.get("cached_tokens")),
        output_tokens=count_of("output_tokens", fields.get("output_tokens")),
        ttft_ns=ttft_ns,
        ttft_from=None if ttft_ns is None else "arrival",
        tpot_ns=elapsed_ns("avg_itl_ms", fields.get("avg_itl_ms"), flags, power=-3),
        e2e_ns=elapsed_ns("elapsed_ms", fields.get("elapsed_ms"), flags, power=-3),
        status=_STATUS.get(fields.get("status", "success").lower(), "open"),
        flags=tuple(flags),
    )
    known = (row.prompt_tokens, row.output_tokens, row.ttft_ns, row.e2e_ns)
    if all(value is None for value in known):
        return None
    flag_lengths(row)
    return row


def _take_tiers(completion: RequestRow, kvbm: RequestRow) -> None:
    """Fill the row of the frontend with what KVBM knows of the same request."""
    completion.cached_tokens = kvbm.cached_tokens
    completion.cached_device_tokens = kvbm.cached_device_tokens
    completion.cached_host_tokens = kvbm.cached_host_tokens
    completion.cached_disk_tokens = kvbm.cached_disk_tokens
    completion.computed_tokens = kvbm.computed_tokens
    if completion.prompt_tokens is None:
        completion.prompt_tokens = kvbm.prompt_tokens
    mismatch = kvbm.prompt_tokens not in (None, completion.prompt_tokens)
    flags = [flag for flag in kvbm.flags if flag != _DATED_BY_END]
    if mismatch and "total_mismatch" not in flags:
        flags.append("total_mismatch")
    completion.flags = (*completion.flags, *flags)
    flag_lengths(completion)


FORMATS: tuple[Format, ...] = (
    log_format(
        "dynamo_text",
        title="NVIDIA Dynamo text and JSONL log (KVBM, completions, router)",
        best_grade="B",
        supplies=(
            "request_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cached_host_tokens",
            "cached_disk_tokens",
            "computed_tokens",
            "output_tokens",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
            "router_overlap_blocks",
        ),
        missing={
            "reuse": "block hashes: DYN_REQUEST_TRACE=1 (format dynamo_request_trace)",
            "queue": "DYN_REQUEST_TRACE=1",
            "output_tokens": "DYN_LOGGING_JSONL=true on the frontend (1.1 on)",
            "moves": "KVBM metrics: DYN_KVBM_METRICS=true, scraped by Prometheus",
        },
        versions="Dynamo 0.4 to 1.6 (sources and public issues); completion fields approximate",
        prefixes=("tracing", "formatted"),
        open=DynamoLog,
        enable_hint="KVBM lines are on at level INFO (DYN_LOG=info); DYN_LOGGING_JSONL=true gives"
        " completions as JSON",
    ),
)
