"""What a reader of a mapped file must know: clock, blocks, what was assumed, what was not there."""

from __future__ import annotations

from collections.abc import Callable

from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.mapping.rows import MappedRows
from kvtrace.ingest.mapping.spec import FieldRef, SourceSpec

_DOUBTED_FROM = 0.5
"""Share of rows whose first token comes after their end, from which on a unit is doubted."""


def describe(
    source: SourceSpec,
    context: ReadContext,
    rows: MappedRows,
    told: tuple[bool, str] | None,
    *,
    meant: Callable[[str], str],
) -> None:
    """Fill in the context when the file has been read; `meant` finds names like a missing one."""
    if source.time is not None and rows.clock is not None:
        rows.clock.describe(source.time)
    if rows.hashed is not None:
        rows.hashed.describe(context)
    if rows.tokens is not None:
        rows.tokens.describe(context)
    if source.prompt is not None and context.prompt_hasher is not None:
        context.prompt_hasher.describe(context)
    _note_absent(source, context, rows, meant)
    _note_semantics(source, context, rows, told)
    _note_times(context, rows)
    _note_elements(context, rows)
    if rows.unknown_status and source.status is not None:
        context.note(
            "status_unknown",
            f"`{source.status.ref.said}` of {rows.unknown_status:,} records is none of the listed"
            " values and no known word; they are taken as ok (list them under `ok`, `error` or"
            " `cancelled`).",
            severity="warning",
        )


def _note_absent(
    source: SourceSpec, context: ReadContext, rows: MappedRows, meant: Callable[[str], str]
) -> None:
    refs: list[FieldRef] = list(source.refs())
    absent = [ref.said for ref, seen in zip(refs, rows.seen, strict=True) if not seen]
    if not absent or not rows.records:
        return
    named = ", ".join(f"`{said}`{meant(said)}" for said in absent)
    context.note(
        "mapped_field_absent",
        f"None of {rows.records:,} records has a value for {named}.",
        severity="warning",
    )


def _note_semantics(
    source: SourceSpec, context: ReadContext, rows: MappedRows, told: tuple[bool, str] | None
) -> None:
    held = {"cached_tokens", "cache_write_tokens"} & set(source.counts)
    if held and "prompt_tokens" in source.counts and source.prompt_includes_cached is None:
        reading = (
            "includes the cached tokens" if rows.is_inclusive else "leaves the cached tokens out"
        )
        why = "as most producers count" if told is None else told[1]
        context.note(
            "cache_semantics_assumed",
            f"The mapping does not say whether `{source.counts['prompt_tokens'].said}` includes the"
            f" cached tokens: it is read as one that {reading}, {why}"
            " (`[semantics] prompt_includes_cached` says it).",
            severity="warning" if told is None else "info",
        )
    if rows.assumed:
        parts = ", ".join(
            f"{count} rows ({shape}) as {'including' if is_inclusive else 'leaving out'} it"
            for (shape, is_inclusive), count in sorted(rows.assumed.items())
        )
        context.note(
            "cache_semantics_assumed",
            "Nothing in some usage objects settles whether the prompt count includes the cached"
            f" tokens; it is read the usual way of its names: {parts}.",
            severity="warning",
        )
    if rows.cached_above and source.usage is None:
        context.note(
            "mapped_cached_above_prompt",
            f"{rows.cached_above:,} of {rows.rows:,} requests have more cached than prompt tokens;"
            " if the prompt count leaves the cached tokens out, write `prompt_includes_cached ="
            " false` under `[semantics]`.",
            severity="warning",
        )


def _note_times(context: ReadContext, rows: MappedRows) -> None:
    if rows.both_times and rows.slow_first >= _DOUBTED_FROM * rows.both_times:
        context.note(
            "mapped_units_doubted",
            f"The first token comes after the end of {rows.slow_first:,} of {rows.both_times:,}"
            " requests: the unit of one of the two durations is probably another one.",
            severity="warning",
        )
    if rows.no_start:
        context.note(
            "mapped_start_unknown",
            f"{rows.no_start:,} requests have the time of their end but no duration, so their"
            " arrival is unknown.",
            severity="warning",
        )


def _note_elements(context: ReadContext, rows: MappedRows) -> None:
    """What became of the elements of lists that gave no row: their record has one outcome."""
    if rows.refused:
        causes = ", ".join(f"{cause} ({count:,})" for cause, count in _most(rows.refused))
        context.note(
            "mapped_elements_refused",
            f"Elements of the lists of requests that cannot be used: {causes}.",
            severity="warning",
        )
    if rows.left_out:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in _most(rows.left_out))
        context.note(
            "mapped_elements_left_out",
            f"Elements of the lists of requests that are none: {reasons}.",
        )


def _most(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
