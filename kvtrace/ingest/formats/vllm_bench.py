"""Results of `vllm bench serve --save-result --save-detailed`: one JSON object a run.

Objects read from the sources of vLLM 0.6 to 0.33 (benchmarks/serve.py). `--append-result` writes
several objects into one file. Lengths are counted by the client's tokenizer, TTFT and latency are
seen from the client. `start_times` (0.33) are readings of `perf_counter`: only their differences
mean anything; `date` is a label in local time. `queue_times` is the wait for the client's own
concurrency limit, not the engine's queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, Row
from kvtrace.ingest.families.bench_runs import (
    MAX_RUN_BYTES,
    BenchRun,
    bench_row,
    check_lengths,
    entry,
)
from kvtrace.ingest.values.jsonfields import (
    Ignored,
    decode_json,
    flag_lengths,
    instant_ns,
    json_record_rows,
    keys_of,
)

_HEAD_CHARS: Final = 4096
_REQUIRED: Final = ("tokenizer_id", "request_throughput")
_EITHER: Final = ("endpoint_type", "num_prompts")


class _Run(BenchRun, gc=False):
    model_id: str | None = None
    tokenizer_id: str | None = None
    latencies: list[Decimal | None] | None = None
    start_times: list[Decimal | None] | None = None


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
        if run.tokenizer_id is None and run.model_id is None:
            raise msgspec.ValidationError("neither `tokenizer_id` nor `model_id`")
        if run.input_lens is None:
            return Ignored("summary_only")
        size = check_lengths(run, latencies=run.latencies, start_times=run.start_times)
        rows: list[Row] = []
        for at in range(size):
            row = bench_row(record, run, at, latency=entry(run.latencies, at), llm=run.model_id)
            row.arrived_at_ns = instant_ns("start_times", entry(run.start_times, at), self._context)
            flag_lengths(row)
            rows.append(row)
        self.runs += 1
        return rows

    def describe(self) -> None:
        """Write down the clock, and what a reader of the rows must know."""
        context = self._context
        if context.clock_resolution_ns is not None:
            context.clock = "monotonic"
            context.clock_reason = "start_times are perf_counter readings of the client"
        else:
            context.clock_reason = "no start_times (vLLM 0.33 writes them): order of requests only"
        if self.runs:
            context.note(
                "client_token_counts",
                "Lengths are counted by the client's tokenizer and may differ from the server's.",
            )
        if self.runs > 1:
            context.note(
                "several_runs",
                f"The file holds {self.runs} runs; their start times are comparable only if all"
                " ran on one machine since its start.",
            )
        if context.tally.ignored.get("summary_only"):
            context.note(
                "summary_only",
                "Runs without --save-detailed hold nothing per request; they are left out.",
            )


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _ResultFile(context)
    context.engine = "vllm"
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    ours = sum(_is_ours(keys_of(item)) for item in head.json_objects)
    if ours and 2 * ours >= len(head.json_objects):
        return Guess(0.97, f"{ours} results of vllm bench serve (tokenizer_id, request_throughput)")
    start = head.text[:_HEAD_CHARS]
    names = frozenset(name for name in (*_REQUIRED, *_EITHER) if f'"{name}":' in start)
    if not head.json_objects and start.lstrip().startswith("{") and _is_ours(names):
        return Guess(0.95, "a long result of vllm bench serve (tokenizer_id, request_throughput)")
    return None


def _is_ours(keys: frozenset[str]) -> bool:
    return keys.issuperset(_REQUIRED) and bool(keys.intersection(_EITHER))


FORMATS: tuple[Format, ...] = (
    Format(
        name="vllm_bench",
        title="vllm bench serve result (JSON)",
        framing="json",
        best_grade="L",
        supplies=(
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
        ),
        missing={
            "production": "the engine's own log of real requests",
            "cached_tokens": "vLLM's log or /metrics of the same time"
            " (vllm:prefix_cache_hits_total)",
            "reuse": "vllm serve --kv-events-config"
            ' \'{"enable_kv_cache_events":true,"publisher":"zmq"}\' with a subscriber that writes'
            " a file",
            "arrivals": "a newer client (start_times)",
        },
        versions="vLLM 0.6 to 0.33 benchmarks/serve.py",
        sniff=_sniff,
        read=_read,
        is_benchmark=True,
        enable_hint="vllm bench serve … --save-result --save-detailed",
        max_record_bytes=MAX_RUN_BYTES,
    ),
)
