"""The check behind the thesis: the hit ratio got better, TTFT got worse, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, in_ms, known_only, measured
from kvtrace.audit.findings.limits import CAUSE_SHARE, ENOUGH_IN_BUCKET, HIT_RATIO_RISE, TTFT_RISE
from kvtrace.audit.thresholds import MIN_REQUESTS
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import WINDOW_QUERY, Row, count, number, rows_of
from kvtrace.units import format_traffic

_EXTERNAL: Final = "engine_external_hit_ratio"
_COMBINED: Final = "engine_combined_hit_ratio"
_RATIOS: Final = (
    ("cached_ratio_tokens", "cached_tokens / prompt_tokens"),
    (_COMBINED, "HBM and below it, as the engine prints them"),
    ("engine_prefix_hit_ratio", "as the engine prints it"),
)
"""Columns that hold a hit ratio, the best evidence first."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure in the first and in the last third of the window."""

    first: float | None
    last: float | None

    @property
    def difference(self) -> float | None:
        """Last - first, null where either is unknown."""
        return None if self.first is None or self.last is None else self.last - self.first

    def rose_by(self, step: float) -> bool:
        """Known on both sides, and higher by at least `step`."""
        return self.difference is not None and self.difference >= step

    @property
    def grew(self) -> bool:
        """Known on both sides, and larger by the factor that counts as growth."""
        growth = ratio(self.last, self.first)
        return growth is not None and growth >= TTFT_RISE.value


@dataclass(frozen=True, slots=True)
class HitRatio:
    """A hit ratio that the deployed cache had, and where it was read."""

    name: str
    change: Change
    external: Change | None = None
    """Of what HBM missed, the share that a tier below it served."""


@dataclass(frozen=True, slots=True)
class Thirds:
    """First and last third of the time in which TTFT is known."""

    first: Row
    last: Row

    def of(self, column: str) -> Change:
        """The figure in both."""
        return Change(number(self.first, column), number(self.last, column))


def high_hit_ratio_slow_ttft(evidence: Evidence) -> Hit | None:
    """Between the first and the last third the hit ratio rose and TTFT rose too."""
    rows = {count(row, "third"): row for row in rows_of(evidence.queries, WINDOW_QUERY)}
    thirds = _thirds(rows)
    hits = next(_hit_ratios(thirds), None) if thirds else None
    if thirds is None or hits is None or not hits.change.rose_by(HIT_RATIO_RISE.value):
        return None
    p50, p90 = thirds.of("ttft_p50_ms"), thirds.of("ttft_p90_ms")
    name, ttft = ("p50", p50) if p50.grew else ("p90", p90)
    if not ttft.grew:
        return None
    queue, length = thirds.of("queue_p50_ms"), thirds.of("mean_prompt_tokens")
    causes = _causes(evidence, ttft, queue, length, hits)
    requests = count(rows[0], "requests") or 0
    return Hit(
        severity="warning",
        confidence="high" if requests >= MIN_REQUESTS.value else "medium",
        message=(
            "A high hit ratio is not a fast service: from the first to the last third of the "
            f"window the hit ratio ({hits.name}) went from {_percent(hits.change.first)} to "
            f"{_percent(hits.change.last)}, and TTFT {name} from {in_ms(ttft.first)} to "
            f"{in_ms(ttft.last)} (measured, of the requests of each). Why: {causes}"
        ),
        evidence=known_only(
            measured("hit_ratio_first_third", hits.change.first, "ratio", WINDOW_QUERY),
            measured("hit_ratio_last_third", hits.change.last, "ratio", WINDOW_QUERY),
            measured(f"ttft_{name}_first_third_ms", ttft.first, "ms", WINDOW_QUERY),
            measured(f"ttft_{name}_last_third_ms", ttft.last, "ms", WINDOW_QUERY),
            measured("queue_p50_first_third_ms", queue.first, "ms", WINDOW_QUERY),
            measured("queue_p50_last_third_ms", queue.last, "ms", WINDOW_QUERY),
            measured("mean_prompt_tokens_first_third", length.first, "tokens", WINDOW_QUERY),
            measured("mean_prompt_tokens_last_third", length.last, "tokens", WINDOW_QUERY),
        ),
    )


def _causes(evidence: Evidence, ttft: Change, queue: Change, length: Change, hits: HitRatio) -> str:
    """The causes that the numbers name; several if they do, none if they do not."""
    named = []
    grown, queued = ttft.difference, queue.difference
    if grown and queued is not None and queued / grown >= CAUSE_SHARE.value:
        named.append(
            f"the queue p50 grew by {in_ms(queued)} of the {in_ms(grown)} ({in_ms(queue.first)} to "
            f"{in_ms(queue.last)})"
        )
    if length.grew:
        named.append(
            f"prompts got longer ({length.first:,.0f} to {length.last:,.0f} tokens on average), so "
            "the same ratio leaves more tokens to compute and more bytes to move"
        )
    moved = _moved(evidence, length, hits)
    if moved is not None:
        named.append(moved)
    if named:
        return "; ".join(named)
    if queued is None:
        return "the queue is not logged, so queue and moved bytes cannot be told apart"
    return (
        "neither the queue nor the prompt length grew that much; what is left is the time to move "
        "hits into HBM, which these logs do not show per request"
    )


def _moved(evidence: Evidence, length: Change, hits: HitRatio) -> str | None:
    """Hits that have to be moved first: tokens a request from below HBM, and their bytes."""
    external = hits.external
    if external is None or not external.rose_by(HIT_RATIO_RISE.value):
        return None
    total, served = hits.change.last, external.last
    if total is None or served is None or length.last is None or served >= 1:
        return None
    missed = (1 - total) / (1 - served)  # of all tokens, what HBM did not hold
    tokens = length.last * missed * served
    return (
        f"hits now come from below HBM ({_percent(external.first)} to {_percent(served)} of what "
        f"HBM misses): about {tokens:,.0f} tokens a request are moved before its first token, "
        f"{format_traffic(tokens * evidence.kv.bytes_per_token)} at "
        f"{evidence.kv.bytes_per_token:,.0f} bytes a token of {evidence.kv.llm}"
    )


def _thirds(rows: Mapping[int | None, Row]) -> Thirds | None:
    """Null where one of them has too few requests with a TTFT for a median."""
    first, last = rows.get(1, {}), rows.get(3, {})
    fewest = min(count(row, "ttft_requests") or 0 for row in (first, last))
    return Thirds(first, last) if fewest >= ENOUGH_IN_BUCKET.value else None


def _hit_ratios(thirds: Thirds) -> Iterator[HitRatio]:
    """What the deployed cache hit: per request, else all tiers of the engine, else HBM alone."""
    for column, name in _RATIOS:
        change = thirds.of(column)
        if change.difference is not None:
            external = thirds.of(_EXTERNAL) if column == _COMBINED else None
            yield HitRatio(name, change, external)


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"
