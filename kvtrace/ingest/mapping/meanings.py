"""What values of mapped records mean: outcomes, durations with their unit, what a prompt counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from kvtrace.ingest.families.gateways import status_of_code
from kvtrace.ingest.mapping.spec import StatusSpec
from kvtrace.schema.manifest import Status

_WORDS: Final[dict[str, Status]] = {
    **dict.fromkeys(
        ("ok", "success", "succeeded", "successful", "completed", "complete", "done", "finished",
         "stop", "length", "end_turn", "eos", "max_tokens", "tool_calls", "tool_use", "true"),
        "ok",
    ),
    **dict.fromkeys(
        ("error", "err", "fail", "failed", "failure", "timeout", "timed_out", "rejected", "false",
         "exception", "internal_error", "rate_limited"),
        "error",
    ),
    **dict.fromkeys(
        ("cancelled", "canceled", "cancel", "abort", "aborted", "disconnected", "client_closed",
         "client_disconnected"),
        "cancelled",
    ),
    **dict.fromkeys(("cache_hit", "gateway_cache_hit", "cached"), "gateway_cache_hit"),
}  # fmt: skip
_HTTP_CODE: Final = re.compile(r"\d{1,3}")
_NO: Final = frozenset({"", "0", "false", "no", "off", "null", "none", "miss", "{}", "[]"})
_PART: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) ?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_PARTS: Final = 8
_SCALES: Final = {"ns": "1e-9", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ms": "1e-3", "s": "1",
                  "m": "60", "h": "3600"}  # fmt: skip


def status_of(spec: StatusSpec, text: str) -> Status | None:
    """The outcome behind a value; None if nothing says what it is.

    Lists of the mapping come first. Where it lists what is ok, anything unlisted is an error.
    """
    value = text.lower()
    lists: tuple[tuple[frozenset[str], Status], ...] = (
        (spec.ok, "ok"),
        (spec.error, "error"),
        (spec.cancelled, "cancelled"),
        (spec.gateway_cache_hit, "gateway_cache_hit"),
    )
    for values, status in lists:
        if value in values:
            return status
    if spec.ok:
        return "error"
    if _HTTP_CODE.fullmatch(value) and value.isascii():
        return status_of_code(int(value))
    return _WORDS.get(value)


def is_yes(text: str | None) -> bool:
    """Whether a value says yes: anything but absent, false, 0, empty and their kin."""
    return text is not None and text.strip().lower() not in _NO


def text_seconds(name: str, text: str) -> Decimal:
    """Seconds of a duration with its own unit: `350ms`, `1.5s`, `1m3.5s`.

    Raises:
        msgspec.ValidationError: it is none.
    """
    at, parts, total = 0, 0, Decimal(0)
    while at < len(text) and parts < _PARTS:
        found = _PART.match(text, at)
        if found is None:
            break
        total += Decimal(found[1]) * Decimal(_SCALES[found[2]])
        at, parts = found.end(), parts + 1
    if at < len(text) or not parts:
        raise msgspec.ValidationError(f"`{name}` is not a duration with its unit")
    return total


class Counted(NamedTuple):
    """The token counts of one record as they stand."""

    prompt: int | None
    cached: int | None
    written: int | None
    output: int | None
    total: int | None

    @property
    def held(self) -> int:
        """Tokens read from a cache or written to it."""
        return (self.cached or 0) + (self.written or 0)


def told_inclusive(records: Iterable[Counted]) -> tuple[bool, str] | None:
    """(whether prompt counts include the cached tokens, why); None if no record tells.

    More cached than prompt tokens cannot be inside them; a total fits one of the two sums.
    """
    inside = outside = beyond = 0
    for one in records:
        if one.prompt is None or one.held == 0:
            continue
        beyond += one.held > one.prompt
        if one.total is not None and one.output is not None:
            rest = one.total - one.output
            inside += rest == one.prompt
            outside += rest == one.prompt + one.held
    if inside + outside and inside != outside:
        return inside > outside, "by the total"
    if beyond:
        return False, "more cached than prompt tokens occur"
    return None
