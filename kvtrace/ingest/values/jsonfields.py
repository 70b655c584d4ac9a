"""Fields of JSON records: counts, durations and instants, exact, and what is odd about them.

What a record cannot mean raises msgspec's ValidationError, with the name of the field and never its
value; `json_record_rows` turns that into the record's outcome.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeVar

import msgspec

from kvtrace.ingest.clocks import INT64_MAX, seconds_resolution_ns, seconds_to_ns
from kvtrace.ingest.contract import ReadContext, Record, RequestRow, Tally
from kvtrace.ingest.values.limits import MAX_COUNT

MAX_UINT64: Final = (1 << 64) - 1
CACHED_ABOVE_PROMPT_FLAG: Final = "cached_above_prompt"
_MAX_ADJUSTED: Final = 20
"""Decimal exponent past which a number is no time in any unit; arithmetic on it could overflow."""
_BARE_NAME: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|-Infinity|Infinity|NaN', re.DOTALL)
"""A text, to step over it (its end may be missing), or a number that only Python writes."""
_BARE_NAMES: Final = (b"Infinity", b"NaN")

ShapeT = TypeVar("ShapeT")
RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Ignored:
    """A record that was understood and carries no row."""

    reason: str


def json_record_rows(
    records: Iterable[Record],
    tally: Tally,
    parse: Callable[[Record], Sequence[RowT] | Ignored],
) -> Iterator[RowT]:
    """The rows of all records, any number a record. `parse` raises msgspec's errors."""
    for record in records:
        try:
            parsed = parse(record)
        except msgspec.ValidationError as bad:
            tally.reject(record, "invalid_field", str(bad))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            tally.reject(record, "invalid_json", None)
        else:
            if isinstance(parsed, Ignored):
                tally.ignore(parsed.reason)
            else:
                tally.use()
                yield from parsed


def decode_json(decoder: msgspec.json.Decoder[ShapeT], data: bytes) -> ShapeT:
    """The decoded record; bare `NaN` and `Infinity`, which Python writes, become null.

    Raises:
        msgspec.DecodeError: not JSON, or not of the decoder's shape.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if not any(name in data for name in _BARE_NAMES):
            raise
    return decoder.decode(_BARE_NAME.sub(_null_for_name, data))


def _null_for_name(match: re.Match[bytes]) -> bytes:
    found = match.group()
    return found if found.startswith(b'"') else b"null"


def count_of(name: str, value: int | None) -> int | None:
    """The count, if it is one.

    Raises:
        msgspec.ValidationError: negative, or larger than any count.
    """
    if value is not None and not 0 <= value <= MAX_COUNT:
        raise msgspec.ValidationError(f"`{name}` is negative or larger than any count")
    return value


def elapsed_ns(name: str, value: Decimal | None, flags: list[str], *, power: int = 0) -> int | None:
    """Nanoseconds of a duration; a negative one is unknown and flagged `negative_` + name.

    `power` is that of ten from the unit of the value to seconds: -3 for milliseconds.

    Raises:
        msgspec.ValidationError: not a finite number, or longer than 64 bits of nanoseconds.
    """
    if value is None:
        return None
    ns = _scaled_ns(value, power)
    if ns is None:
        raise msgspec.ValidationError(f"`{name}` is not a duration")
    if ns < 0:
        flags.append(f"negative_{name}")
        return None
    return ns


def between_ns(start_ns: int | None, end_ns: int | None, flags: list[str]) -> int | None:
    """Nanoseconds from one instant to another; unknown and flagged `time_order` if reversed.

    Instants that are centuries apart are no times of one request, and flagged the same.
    """
    if start_ns is None or end_ns is None:
        return None
    if not 0 <= end_ns - start_ns <= INT64_MAX:
        if "time_order" not in flags:
            flags.append("time_order")
        return None
    return end_ns - start_ns


def instant_ns(
    name: str, value: Decimal | None, context: ReadContext, *, power: int = 0
) -> int | None:
    """Nanoseconds of an instant; notes the finest digit written as the clock's resolution.

    `power` is that of ten from the unit of the value to seconds: -3 for milliseconds.

    Raises:
        msgspec.ValidationError: not a finite number, or outside 64 bits of nanoseconds.
    """
    if value is None:
        return None
    ns = _scaled_ns(value, power)
    if ns is None:
        raise msgspec.ValidationError(f"`{name}` is not a time")
    resolution = seconds_resolution_ns(value.scaleb(power))
    context.clock_resolution_ns = min(context.clock_resolution_ns or resolution, resolution)
    return ns


def _scaled_ns(value: Decimal, power: int) -> int | None:
    if not value.is_finite() or value.adjusted() > _MAX_ADJUSTED:
        return None
    return seconds_to_ns(value.scaleb(power))


def mean_per_token_ns(total_ns: int | None, output_tokens: int | None) -> int | None:
    """Mean time per output token after the first; None if either is unknown or there is one token.

    Formula: total / (output - 1), rounded to even.
    """
    if total_ns is None or output_tokens is None or output_tokens < 2:
        return None
    gaps = output_tokens - 1
    mean, rest = divmod(total_ns, gaps)
    return mean + (2 * rest + (mean & 1) > gaps)


def flag_lengths(row: RequestRow) -> None:
    """Flag an empty prompt, and more cached tokens than the prompt has."""
    if row.prompt_tokens == 0:
        row.flags = (*row.flags, "zero_prompt")
    if (row.cached_tokens or 0) > (MAX_COUNT if row.prompt_tokens is None else row.prompt_tokens):
        row.flags = (*row.flags, CACHED_ABOVE_PROMPT_FLAG)


def keys_of(item: object) -> frozenset[str]:
    """The keys of a JSON object; none of anything else."""
    return frozenset(item) if isinstance(item, dict) else frozenset()
