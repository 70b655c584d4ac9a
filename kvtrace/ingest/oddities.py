"""What was odd about rows: what each flag means, what was done, and one note of it a source.

Values that contradict each other are no measurements: the one that is impossible becomes unknown
when the row is taken, and the flag stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import polars as pl

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.values.jsonfields import CACHED_ABOVE_PROMPT_FLAG
from kvtrace.ingest.values.limits import IMPLAUSIBLE_FLAG, PLAUSIBLE_TOKENS
from kvtrace.schema.manifest import Note, NoteSeverity

SLOW_FIRST_FLAG: Final = "ttft_above_e2e"
_TIERS: Final = (
    "cached_device_tokens",
    "cached_host_tokens",
    "cached_disk_tokens",
    "cached_remote_tokens",
)


@dataclass(frozen=True, slots=True)
class Oddity:
    """One flag in words."""

    what: str
    done: str
    severity: NoteSeverity = "info"


_KEPT: Final = "they are kept as they stand"
_UNKNOWN: Final = "such a value is unknown"
ODDITIES: Final[dict[str, Oddity]] = {
    CACHED_ABOVE_PROMPT_FLAG: Oddity(
        "more cached tokens than prompt tokens",
        "the cached tokens are unknown and in no sum or ratio",
        "warning",
    ),
    "usage_contradiction": Oddity(
        "parts of the usage that do not add up to what it says beside them",
        "counts of the cache that contradict each other are unknown, a total that does is not used",
        "warning",
    ),
    "total_mismatch": Oddity(
        "a total that is not the sum of prompt and output tokens",
        "the total is not used; prompt and output are kept",
        "warning",
    ),
    SLOW_FIRST_FLAG: Oddity(
        "a first token after the end of the request",
        "the time to first token is unknown and in no quantile or mean",
        "warning",
    ),
    "time_order": Oddity(
        "instants in an order that cannot be", "the time between them is unknown", "warning"
    ),
    "tiers_above_cached": Oddity(
        "more cached tokens in tiers than in all", "the tiers are unknown", "warning"
    ),
    "part_above_e2e": Oddity(
        "a part (queue, prefill, time per token) that is longer than the whole",
        "that part is unknown",
        "warning",
    ),
    "time_in_another_unit": Oddity(
        "a time in another unit than the rest",
        "it is read in the one unit that gives a date, within a day of the others",
        "warning",
    ),
    "time_not_an_epoch": Oddity("a time that is no epoch in any unit", _UNKNOWN, "warning"),
    "unknown_unit": Oddity("a time in a unit that is not known", _UNKNOWN, "warning"),
    "invalid_attribute": Oddity("an attribute that is no count or time", _UNKNOWN, "warning"),
    "metadata_unreadable": Oddity(
        "metadata that is no JSON object",
        "cached counts and outcomes that stand only there are unknown",
        "warning",
    ),
    "join_conflict": Oddity(
        "other counts in another source of the same request",
        "those of the headline are kept",
        "warning",
    ),
    "id_conflict": Oddity("an id that stands in the log again with other content", _KEPT),
    "more_loaded_than_prompt": Oddity("more tokens loaded than the prompt has", _KEPT, "warning"),
    "zero_prompt": Oddity("a prompt without tokens", "kept, and in no ratio"),
    "zero_token_prompt": Oddity("a prompt without tokens", "kept, and in no ratio"),
    "retried": Oddity("several attempts behind one entry", "the last one counts"),
    "cache_semantics_assumed": Oddity(
        "a prompt count of which nothing tells whether it includes the cached tokens",
        "it is read the usual way of its names",
        "warning",
    ),
    "client_prompt_tokens": Oddity("prompt tokens as the client counts them", _KEPT),
    "client_output_tokens": Oddity("output tokens as the client counts them", _KEPT),
    "dated_by_end": Oddity("the instant of the end in place of the arrival", _KEPT),
    "time_is_end": Oddity("the instant of the end in place of the arrival", _KEPT),
    "start_unknown": Oddity("an end without a duration", "the arrival is unknown"),
    "tokens_estimated": Oddity("a length that was estimated from text", _KEPT),
    "prompt_text_mismatch": Oddity(
        "a prompt text of another length than the log states", "no blocks are made of it"
    ),
    "block_length_mismatch": Oddity(
        "another number of blocks than the length implies", "the blocks are left out"
    ),
    "block_count_mismatch": Oddity(
        "another number of blocks than the length implies", "the blocks are left out"
    ),
    "token_count_mismatch": Oddity(
        "another number of token ids than the length states", "the stated length is kept"
    ),
    "e2e_in_whole_seconds": Oddity("an end that is known to the second only", _KEPT),
}
"""By flag; others are said by their names alone. `negative_…`: `_oddity`."""


def settle_row(row: RequestRow) -> bool:
    """Make impossible values of a row unknown; whether it is longer than anything served."""
    prompt, cached = row.prompt_tokens, row.cached_tokens
    if cached is not None and prompt is not None and cached > prompt:
        row.cached_tokens = None
        for name in _TIERS:
            setattr(row, name, None)
        _flag(row, CACHED_ABOVE_PROMPT_FLAG)
    if row.ttft_ns is not None and row.e2e_ns is not None and row.ttft_ns > row.e2e_ns:
        row.ttft_ns = row.ttft_from = None
        _flag(row, SLOW_FIRST_FLAG)
    if (prompt or 0) <= PLAUSIBLE_TOKENS and (row.output_tokens or 0) <= PLAUSIBLE_TOKENS:
        return False
    row.flags = (*row.flags, IMPLAUSIBLE_FLAG)
    return True


def _flag(row: RequestRow, flag: str) -> None:
    if flag not in row.flags:
        row.flags = (*row.flags, flag)


def flag_notes(requests: pl.DataFrame, places: dict[str, str], told: Iterable[str]) -> list[Note]:
    """One note a flag of these requests; `places` says where the first row of each stands.

    Flags of which a note of the files tells already (`told`) are left to it.
    """
    if requests.is_empty():
        return []
    counts = requests.select(pl.col("flags").explode().drop_nulls()).group_by("flags").len()
    known = set(told)
    return [
        _note(flag, count, places.get(flag))
        for flag, count in counts.sort("flags").iter_rows()
        if flag not in known
    ]


def _note(flag: str, count: int, place: str | None) -> Note:
    found = _oddity(flag)
    first = "" if place is None else f" (first {place})"
    rows = "request has" if count == 1 else "requests have"
    return Note(
        code=flag,
        message=f"{count:,} {rows} {found.what}{first}; {found.done}.",
        severity=found.severity,
    )


def _oddity(flag: str) -> Oddity:
    if flag in ODDITIES:
        return ODDITIES[flag]
    if flag.startswith("negative_"):
        name = flag.removeprefix("negative_").replace("_", " ")
        return Oddity(f"a negative time ({name})", _UNKNOWN, "warning")
    return Oddity(f"the flag `{flag}`", _KEPT)
