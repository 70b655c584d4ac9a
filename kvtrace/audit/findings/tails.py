"""Checks on tails: long prompts in front of short ones, and P99 made of bytes."""

from __future__ import annotations

from typing import Final

import numpy as np

from kvtrace.audit.findings.check import Evidence, Hit, in_ms, known_only, measured, modelled
from kvtrace.audit.findings.latency import CAUSES_TABLE, bytes_explain_tail, of_one_group
from kvtrace.audit.findings.limits import (
    BYTES_IN_TAIL,
    ENOUGH_IN_BUCKET,
    ISOLATION_HELPS,
    LONG_ADDS,
    MORE_BYTES,
)
from kvtrace.audit.findings.replayed import Tail, quantile_of, tail_of, twins, with_faster_links
from kvtrace.audit.record import Quantity
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import Row, count, number, rows_of
from kvtrace.audit.words import counted
from kvtrace.replay.result import ReplayResult
from kvtrace.units import format_seconds, format_traffic

BEHIND_TABLE: Final = "latency/behind_long_prompts"


def long_prompts_hurt_short(evidence: Evidence) -> Hit | None:
    """Short prompts wait behind long ones: as measured, and as replays with isolation say."""
    row = next(iter(of_one_group(rows_of(evidence.queries, BEHIND_TABLE), by="short_requests")), {})
    seen, cured = _is_seen(row), _cure(evidence)
    if not seen and cured is None:
        return None
    parts = [_measured_words(row)] if seen else []
    parts += [] if cured is None else [cured.words]
    return Hit(
        severity="warning",
        confidence="medium" if seen else evidence.modelled_confidence,
        message=". ".join(parts),
        evidence=(
            *(_measured_evidence(row) if seen else ()),
            *(() if cured is None else cured.evidence),
        ),
        table=BEHIND_TABLE if seen else None,
    )


def _is_seen(row: Row) -> bool:
    low, median = number(row, "added_low_ms"), number(row, "ahead_p50_ms")
    compared = count(row, "compared_requests") or 0
    if low is None or median is None or compared < ENOUGH_IN_BUCKET.value:
        return False
    return low > 0 and low >= LONG_ADDS.value * median


def _measured_words(row: Row) -> str:
    return (
        f"Short prompts that arrive while one of {count(row, 'long_prompt_tokens') or 0:,} tokens "
        f"or more waits for its first token take {in_ms(number(row, 'added_ms'))} longer at equal "
        f"load (95 % {in_ms(number(row, 'added_low_ms'))} to {in_ms(number(row, 'added_high_ms'))}"
        f"; {count(row, 'behind_requests') or 0:,} of "
        f"{counted(count(row, 'short_requests') or 0, 'short request')}, measured)"
    )


def _measured_evidence(row: Row) -> tuple[Quantity, ...]:
    return known_only(
        measured("added_ms", number(row, "added_ms"), "ms", BEHIND_TABLE),
        measured("added_low_ms", number(row, "added_low_ms"), "ms", BEHIND_TABLE),
        measured("behind_requests", count(row, "behind_requests"), "requests", BEHIND_TABLE),
        measured("short_p99_ms", number(row, "short_p99_ms"), "ms", BEHIND_TABLE),
        measured("ahead_p99_ms", number(row, "ahead_p99_ms"), "ms", BEHIND_TABLE),
    )


class _Cure:
    """One option with isolation, against the same without it and the same on faster links."""

    def __init__(self, evidence: Evidence, mixed: ReplayResult, apart: ReplayResult) -> None:
        spec, trace = apart.scenario.isolation, evidence.trace
        assert spec is not None  # noqa: S101  the caller chose it
        assert trace is not None  # noqa: S101
        self._mixed, self._apart = mixed, apart
        self._long = spec.long_prompt_tokens
        self._short = np.flatnonzero(trace.prompt_tokens <= spec.long_prompt_tokens)
        self._fast = with_faster_links(evidence.results, mixed)
        self._before, self._after = self._tail(mixed), self._tail(apart)

    def _tail(self, result: ReplayResult) -> tuple[str, float] | None:
        return quantile_of(result.timeline.ttft_s, self._short)

    @property
    def factor(self) -> float | None:
        """Tail of short prompts beside long ones over that apart from them."""
        if self._before is None or self._after is None:
            return None
        return ratio(self._before[1], self._after[1])

    @property
    def words(self) -> str:
        """What isolation does, and what faster links do not."""
        name, before = self._before or ("", 0.0)
        _, after = self._after or ("", 0.0)
        text = (
            f"{self._mixed.scenario.title}: {name} of TTFT of prompts up to {self._long:,} tokens "
            f"is {format_seconds(before)}, and {format_seconds(after)} where longer ones run apart "
            "(modelled)"
        )
        fast = self._fastest()
        if fast is None:
            return text
        return f"{text}; on faster links ({fast[0]}) it stays at {format_seconds(fast[1])}"

    def _fastest(self) -> tuple[str, float] | None:
        """Title and tail of the fastest links, where isolation does more than they do."""
        tail = self._tail(self._fast[-1]) if self._fast else None
        if tail is None or self._after is None or tail[1] <= self._after[1]:
            return None
        return self._fast[-1].scenario.title, tail[1]

    @property
    def evidence(self) -> tuple[Quantity, ...]:
        """The tails."""
        fast = self._fastest()
        shown = [
            ("mixed", self._before, self._mixed.scenario.option_id),
            ("isolated", self._after, self._apart.scenario.option_id),
            ("faster_links", fast, self._fast[-1].scenario.option_id if self._fast else ""),
        ]
        return tuple(
            modelled(f"short_tail_s_{name}", tail[1], "s", f"replay of {ident}")
            for name, tail, ident in shown
            if tail is not None
        )


def _cure(evidence: Evidence) -> _Cure | None:
    """The option whose short prompts gain most from isolation; null where none gains enough."""
    if evidence.trace is None:
        return None
    found = [
        _Cure(evidence, mixed, apart)
        for mixed, apart in twins(evidence.results, "isolation")
        if apart.scenario.isolation is not None and mixed.scenario.isolation is None
    ]
    enough = [(f, cure) for cure in found if (f := cure.factor or 0.0) >= ISOLATION_HELPS.value]
    return max(enough, key=lambda pair: pair[0])[1] if enough else None


def tail_is_bytes(evidence: Evidence) -> Hit | None:
    """The slowest first tokens take longer because they move more KV: as logged, as replayed."""
    seen, found = bytes_explain_tail(evidence.queries), _tails_of_bytes(evidence)
    if seen is None and not found:
        return None
    parts = [] if seen is None else [f"{seen[1]} (measured)"]
    if found:
        parts.append(_tail_words(*max(found, key=lambda pair: (pair[0].from_s, _id(pair[1])))))
    shares = tuple(
        modelled(f"tail_move_share:{_id(result)}", tail.move_share, "ratio", "replay")
        for tail, result in found
    )
    auc = () if seen is None else (_auc(seen[0]),)
    return Hit(
        severity="warning",
        confidence="medium" if seen is not None else evidence.modelled_confidence,
        message=". ".join(parts),
        evidence=(*auc, *shares),
        table=CAUSES_TABLE if seen is not None else None,
    )


def _tails_of_bytes(evidence: Evidence) -> list[tuple[Tail, ReplayResult]]:
    """Of the options that carry the load."""
    return [
        (tail, evidence.results[option.id])
        for option in evidence.options
        if option.is_feasible
        and option.id in evidence.results
        and (tail := tail_of(evidence.results[option.id])) is not None
        and _is_of_bytes(tail)
    ]


def _tail_words(tail: Tail, result: ReplayResult) -> str:
    return (
        f"{result.scenario.title}: the {counted(tail.requests, 'request')} above {tail.name} of "
        f"TTFT ({format_seconds(tail.from_s)}) take {format_seconds(tail.excess_s)} longer than "
        f"the others, {format_seconds(tail.move_s)} of it ({100 * (tail.move_share or 0.0):.0f} %) "
        f"lookup, pull and load: they load {format_traffic(tail.bytes_in_tail)} each, the others "
        f"{format_traffic(tail.bytes_in_rest)} (modelled)"
    )


def _auc(row: Row) -> Quantity:
    return measured(f"auc:{row.get('cause')}", number(row, "auc"), "ratio", CAUSES_TABLE)


def _id(result: ReplayResult) -> str:
    return result.scenario.option_id


def _is_of_bytes(tail: Tail) -> bool:
    share = tail.move_share
    more = tail.bytes_in_tail >= MORE_BYTES.value * tail.bytes_in_rest
    return share is not None and share >= BYTES_IN_TAIL.value and tail.bytes_in_tail > 0 and more
