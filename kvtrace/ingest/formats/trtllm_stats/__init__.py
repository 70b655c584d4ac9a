"""TensorRT-LLM's iteration statistics: one engine-wide observation an iteration.

Records read from the sources of TensorRT-LLM 0.12 to 1.2 and 2026 builds (`GET /metrics` of
trtllm-serve, `get_stats()`): arrays of objects, several after one another where each GET was
appended, or one object a line. `kvCacheStats` counts blocks since the start of the engine, warm-up
included before PR 12132; `kvCacheIterationStats` (2026), by attention window, counts one iteration.
Each GET drains the buffer, so that two scrapers halve the data. Also read: the statistics with
spaced keys of Triton's backend (2023), one object a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, Row
from kvtrace.ingest.formats.trtllm_stats.reader import StatsFile
from kvtrace.ingest.values.jsonfields import json_record_rows, keys_of


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = StatsFile(context)
    context.engine = "tensorrt_llm"
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


_CAMEL: Final = frozenset({"kvCacheStats", "kvCacheIterationStats", "inflightBatchingStats"})
_SPACED: Final = frozenset({"Max KV cache blocks", "Used KV cache blocks"})


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(keys_of(item)) for item in objects)
    if ours == 0 or 2 * ours < len(objects):
        return None
    return Guess(
        0.7 + 0.28 * ours / len(objects),
        f"{ours} of {len(objects)} records have TensorRT-LLM's statistics of an iteration",
    )


def _is_ours(keys: frozenset[str]) -> bool:
    return bool(keys & _CAMEL) or keys >= _SPACED


FORMATS: tuple[Format, ...] = (
    Format(
        name="trtllm_stats",
        title="TensorRT-LLM iteration statistics (JSON)",
        framing="json",
        best_grade="C",
        supplies=(
            "prefix_hit_ratio",
            "kv_usage_ratio",
            "kv_used_tokens",
            "kv_capacity_tokens",
            "cpu_kv_usage_ratio",
            "running_requests",
            "waiting_requests",
            "finished_requests",
            "new_requests",
            "computed_tokens",
            "queue_s",
            "iteration_elapsed_s",
            "kv_loaded_bytes",
            "kv_stored_bytes",
        ),
        missing={
            "requests": "return_perf_metrics: true, and GET /perf_metrics polled into a file",
            "reuse": "block identity: event_buffer_max_size > 0 in"
            " kv_cache_config, and POST /kv_cache_events written to a file",
            "arrivals": "--tz, as the engine's host has it",
        },
        versions="TensorRT-LLM 0.12 to 1.2 IterationStats, 2026 kvCacheIterationStats; Triton's"
        " tensorrtllm_backend of 2023",
        sniff=_sniff,
        read=_read,
        enable_hint="enable_iter_perf_stats: true in the trtllm-serve YAML; poll GET /metrics into"
        " a file from one place only, since each GET empties the buffer",
    ),
)
