"""`Req Time Stats(…)` and `ReqTimeStats(…)`: what the scheduler says of one request when it ends.

Lines read from the sources of SGLang 0.5.3 to 0.5.23. With prefill and decode on different servers
each prints its half; both have the same rid and bootstrap room. The prefill half prints how much KV
it sent, and its speed, whose window included decoding in some builds; the time of the move is the
decode half's `transfer_duration`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from kvtrace.ingest.values.limits import MAX_COUNT
from kvtrace.units import MB, NS_PER_MS, NS_PER_S

HalfKind = Literal["unified", "prefill", "decode"]
TIME_STATS_STARTS: Final = ("ReqTimeStats(", "Req Time Stats(")
_HEAD = re.compile(
    r"Req ?Time ?Stats\(rid=([^,()\s]{1,512}), (?:bootstrap_room=([0-9]{1,20}|None), )?"
    r"input[ _]len=([0-9]{1,12}), (?:cached_input_len=([0-9]{1,12}), )?"
    r"output[ _]len=([0-9]{1,12}), "
    r"(?:attempts=([0-9]{1,9}), )?type=(unified|prefill|decode)\): "
)
_BOOTSTRAP_SUM = re.compile(
    r"bootstrap_queue_duration\(([0-9]{1,15}\.[0-9]+)ms\)"
    r"(?: = alloc_wait\(-?[0-9.]{1,20}ms\) \+ bootstrap\(-?[0-9.]{1,20}ms\)"
    r" \+ other\(-?[0-9.]{1,20}ms\);)? "
)
_FIELD = re.compile(r"(#?[a-z_]{1,40})=(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)( ?(?:ms|GB/s|MB))?")
_MAX_CHARS: Final = 4_000
_FIRST_EPOCH_S: Final = 1_000_000_000
_LAST_EPOCH_S: Final = 5_000_000_000
"""Other "entry times" are of a clock that starts with the process, or not set."""
_MAX_DURATION_MS: Final = 1_000_000_000
"""Longer ones (11 days) are a difference to a time that was not set."""


@dataclass(frozen=True, slots=True)
class TimeStats:
    """One line."""

    request_id: str
    room: str | None
    kind: HalfKind
    input_tokens: int
    cached_tokens: int | None
    output_tokens: int
    attempts: int | None
    entered_at_ns: int | None
    durations_ns: dict[str, int]
    """By printed name without `_duration`; absent or senseless ones are left out."""
    transfer_bytes: int | None
    flags: tuple[str, ...]

    def sum_ns(self, *names: str) -> int | None:
        """Sum of the durations; None if one of them is unknown."""
        found = [self.durations_ns.get(name) for name in names]
        return None if None in found else sum(value for value in found if value is not None)

    @property
    def waiting_ns(self) -> int | None:
        """From entry to the first time on the GPU, at this server."""
        if self.kind == "unified":
            return self.sum_ns("queue")
        if self.kind == "decode":
            before = self.reserving_ns
            rest = self.sum_ns("transfer", "queue")
            return None if before is None or rest is None else before + rest
        before = self.sum_ns("bootstrap_queue")
        if before is None:
            before = self.sum_ns("bootstrap", "alloc_wait")
        queue = self.sum_ns("queue")
        return None if before is None or queue is None else before + queue

    @property
    def reserving_ns(self) -> int | None:
        """Of a decode half: from entry to the start of the move."""
        found = self.sum_ns("prealloc_queue")
        return self.sum_ns("bootstrap", "alloc_wait") if found is None else found

    @property
    def ended_at_ns(self) -> int | None:
        """When the request left this server."""
        waiting, forward = self.waiting_ns, self.sum_ns("forward")
        if self.entered_at_ns is None or waiting is None or forward is None:
            return None
        return self.entered_at_ns + waiting + forward


def parse_time_stats(message: str) -> TimeStats | None:
    """The line; None if it is damaged."""
    head = _HEAD.match(message) if len(message) <= _MAX_CHARS else None
    if head is None:
        return None
    fields = _fields(message[head.end() :])
    if fields is None or "forward_duration" not in fields:
        return None
    room = head[2]
    flags: list[str] = []
    durations = {
        name.removesuffix("_duration"): ns
        for name, (number, _unit) in fields.items()
        if name.endswith("_duration") and (ns := _duration_ns(name, number, flags)) is not None
    }
    counts = [int(head[place] or 0) for place in (3, 4, 5)]
    if max(counts) > MAX_COUNT:
        return None
    kind: HalfKind = (
        "unified" if head[7] == "unified" else "prefill" if head[7] == "prefill" else "decode"
    )
    return TimeStats(
        request_id=head[1],
        room=None if room == "None" else room,
        kind=kind,
        input_tokens=counts[0],
        cached_tokens=None if head[4] is None else counts[1],
        output_tokens=counts[2],
        attempts=None if head[6] is None else int(head[6]),
        entered_at_ns=_entry_ns(fields),
        durations_ns=durations,
        transfer_bytes=_transfer_bytes(fields),
        flags=tuple(flags),
    )


def _fields(body: str) -> dict[str, tuple[Decimal, str]] | None:
    """(number, unit) by printed name; None if something else stands there."""
    fields: dict[str, tuple[Decimal, str]] = {}
    opening = _BOOTSTRAP_SUM.match(body)
    if opening is not None:
        fields["bootstrap_queue_duration"] = (Decimal(opening[1]), "ms")
        body = body[opening.end() :]
    for part in body.rstrip().removesuffix(",").split(", "):
        match = _FIELD.fullmatch(part)
        if match is None or match[1] in fields:
            return None
        name, number, unit = match.groups(default="")
        is_whole = unit.strip() == "ms" if name.endswith("_duration") else True
        is_whole &= not (name.startswith("transfer_") and not unit)
        if not is_whole or _is_cut_instant(name, number):
            return None
        fields[name] = (Decimal(number), unit.strip())
    return fields


def _is_cut_instant(name: str, number: str) -> bool:
    """An epoch time is printed with three decimals: with fewer, its end was cut off."""
    return name == "entry_time" and len(number.partition(".")[0]) > 9 and number[-4:-3] != "."


def _duration_ns(name: str, number: Decimal, flags: list[str]) -> int | None:
    if number < 0:
        flags.append(f"negative_{name.removesuffix('_duration')}")
        return None
    return None if number > _MAX_DURATION_MS else int(number * NS_PER_MS)


def _entry_ns(fields: dict[str, tuple[Decimal, str]]) -> int | None:
    for name in ("entry_time", "start_time", "start"):
        found = fields.get(name)
        if found is not None and _FIRST_EPOCH_S <= found[0] < _LAST_EPOCH_S:
            return int(found[0] * NS_PER_S)
    return None


def _transfer_bytes(fields: dict[str, tuple[Decimal, str]]) -> int | None:
    """Bytes of a move printed in MB of 10^6 bytes; 0 is what is printed where it is not known."""
    found = fields.get("transfer_total")
    moved_bytes = 0 if found is None else int(found[0] * MB)
    return moved_bytes if 0 < moved_bytes <= MAX_COUNT else None
