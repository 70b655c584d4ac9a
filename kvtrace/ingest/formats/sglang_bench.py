"""Results of sglang's `bench_serving`: JSON lines, one run a line, appended.

Lines read from the sources of SGLang 0.4 to 0.5.23 (bench_serving.py). Per-request arrays are there
with `--output-details` only; newer clients also write what the server reported as cached, by tier.
An infinite request rate is written as bare `Infinity`, which is no JSON. There are no arrival
times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.bench_runs import (
    MAX_RUN_BYTES,
    BenchRun,
    bench_row,
    check_lengths,
    entry,
)
from kvtrace.ingest.families.hicache import CachedDetails, fill_tiers
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    count_of,
    decode_json,
    flag_lengths,
    json_record_rows,
    keys_of,
)

_REQUIRED: Final = ("backend", "dataset_name", "request_throughput", "total_input_tokens")
_HEAD_CHARS: Final = 4096


class _Run(BenchRun, gc=False):
    backend: str | None = None
    total_input_tokens: int | None = None
    cached_tokens: list[int | None] | None = None
    cached_tokens_details: list[CachedDetails | None] | None = None


_DECODER: Final = msgspec.json.Decoder(_Run, strict=False)


class _ResultFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.runs = 0

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The requests of one run.

        Raises:
            msgspec.DecodeError: not JSON, or an array is of the wrong type or length.
        """
        run = decode_json(_DECODER, record.data)
        if run.backend is None and run.total_input_tokens is None:
            raise msgspec.ValidationError("neither `backend` nor `total_input_tokens`")
        if run.input_lens is None:
            return Ignored("summary_only")
        size = check_lengths(
            run, cached_tokens=run.cached_tokens, cached_tokens_details=run.cached_tokens_details
        )
        rows: list[Row] = [self._row(record, run, at) for at in range(size)]
        self.runs += 1
        return rows

    def _row(self, record: Record, run: _Run, at: int) -> RequestRow:
        row = bench_row(record, run, at, latency=None, llm=None)
        if row.status == "ok":
            row.cached_tokens = count_of("cached_tokens", entry(run.cached_tokens, at))
            fill_tiers(row, entry(run.cached_tokens_details, at), self._context)
        flag_lengths(row)
        return row

    def describe(self) -> None:
        """Say what a reader of the rows must know."""
        context = self._context
        context.clock_reason = "bench_serving writes no arrival times: order of requests only"
        if self.runs:
            context.note(
                "client_token_counts",
                "Lengths are counted by the client's tokenizer and may differ from the server's.",
            )
        if context.tally.ignored.get("summary_only"):
            context.note(
                "summary_only",
                "Runs without --output-details hold nothing per request; they are left out.",
            )


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ResultFile(context)
    context.engine = "sglang"
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    ours = sum(_is_ours(keys_of(item)) for item in head.json_objects)
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.95, f"{ours} runs of sglang bench_serving (backend, dataset_name, totals)")
    start = head.text[:_HEAD_CHARS]
    names = frozenset(name for name in (*_REQUIRED, "tokenizer_id") if f'"{name}":' in start)
    if not head.json_objects and start.lstrip().startswith("{") and _is_ours(names):
        return Guess(0.9, "a long run of sglang bench_serving (backend, dataset_name, totals)")
    return None


def _is_ours(keys: frozenset[str]) -> bool:
    return keys.issuperset(_REQUIRED) and "tokenizer_id" not in keys


FORMATS: tuple[Format, ...] = (
    Format(
        name="sglang_bench",
        title="sglang bench_serving result (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cached_host_tokens",
            "cached_disk_tokens",
            "cached_remote_tokens",
            "output_tokens",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            "production": "the engine's own log of real requests"
            " (--export-metrics-to-file --export-metrics-to-file-dir DIR)",
            "cached_tokens": "a newer SGLang, and --enable-cache-report on the server",
            "arrivals": "--log-requests --log-requests-format json on the server",
            "reuse": "--kv-events-config"
            ' \'{"publisher":"zmq","topic":"kv-events"}\' with a subscriber that writes a file',
        },
        versions="SGLang 0.4 to 0.5.23 bench_serving.py",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="python -m sglang.bench_serving … --output-file F.jsonl --output-details",
        max_record_bytes=MAX_RUN_BYTES,
    ),
)
