"""What the keys of one mapped source cannot say together."""

from __future__ import annotations

from kvtrace.ingest.mapping.spec import SourceSpec
from kvtrace.ingest.mapping.table import Table


def check_together(source: SourceSpec, table: Table) -> None:
    """Refuse what contradicts itself."""
    if source.records is not None and (source.framing == "csv" or source.delimiter):
        raise table.fault(
            "`records` names a list inside JSON, and the file is said to be CSV",
            "leave `records` out",
        )
    if not any(True for _ref in source.refs()):
        raise table.fault(
            "the mapping names no field",
            'write `prompt_tokens = "usage.prompt_tokens"` under `[fields]`',
        )
    if source.usage is not None:
        both = [key for key in ("prompt_tokens", "cached_tokens", "cache_write_tokens",
                                "output_tokens", "reasoning_tokens", "total_tokens")
                if key in source.counts]  # fmt: skip
        if both:
            raise table.fault(
                f"`fields.usage` and `fields.{both[0]}` both say how many tokens there are",
                f"leave one of them out: `usage` already gives `{both[0]}`",
            )
        if source.prompt_includes_cached is not None:
            raise table.fault(
                "`semantics.prompt_includes_cached` is about `fields.prompt_tokens`; what a usage"
                " object counts is told from the object",
                "leave `prompt_includes_cached` out, or name the counts one by one",
            )
    blocks = source.block_hashes
    has_lengths = source.usage is not None or "prompt_tokens" in source.counts
    if blocks is not None and blocks.block_tokens is None and not has_lengths:
        raise table.fault(
            "`fields.block_hashes` has no `block_size`, and no prompt length tells it",
            f'write `block_hashes = {{ field = "{blocks.ref.said}", block_size = 16 }}`',
        )
    ways = [
        key
        for key, spec in (
            ("block_hashes", source.block_hashes),
            ("token_ids", source.token_ids),
            ("prompt", source.prompt),
        )
        if spec is not None
    ]
    if len(ways) > 1:
        raise table.fault(
            f"`fields.{ways[0]}` and `fields.{ways[1]}` both give the blocks of a prompt",
            f"keep `{ways[0]}`",
        )
    _check_times(source, table)


def _check_times(source: SourceSpec, table: Table) -> None:
    instants = [
        key
        for key, spec in (
            ("first_token_at", source.first_token_at),
            ("finished_at", source.finished_at),
        )
        if spec is not None
    ]
    if instants and source.time is None:
        raise table.fault(
            f"`fields.{instants[0]}` needs the time of the start", "add a `[time]` table"
        )
    if source.time is not None and source.time.is_end:
        if source.finished_at is not None:
            raise table.fault(
                '`time.meaning = "end"` and `fields.finished_at` both are the end',
                'name the time of the start under `[time]`, with `meaning = "start"`',
            )
        if "e2e" not in source.durations:
            raise table.fault(
                '`time.meaning = "end"` needs the duration, to find the start',
                'add `e2e = { field = "latency", unit = "s" }` under `[fields]`',
            )
    if "e2e" in source.durations and source.finished_at is not None:
        raise table.fault(
            "`fields.e2e` and `fields.finished_at` both say how long a request took",
            "leave one of them out",
        )
    if "ttft" in source.durations and source.first_token_at is not None:
        raise table.fault(
            "`fields.ttft` and `fields.first_token_at` both say when the first token came",
            "leave one of them out",
        )
