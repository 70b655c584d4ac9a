"""Which inputs change the replays enough to be sampled, by the replays at their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kvtrace.audit.thresholds import INPUT_MATTERS
from kvtrace.audit.uncertainty.design import Response
from kvtrace.audit.uncertainty.unknowns import Unknown

Ends = tuple[Response, Response]


@dataclass(frozen=True, slots=True)
class Activity:
    """One input, with what its ends do to what is asked."""

    unknown: Unknown
    ends: Ends
    share: float
    """The largest change: of a latency of the claim over its limit, of the freed time, of the hit
    tokens beyond the rival, of move over recompute; each over its middle."""

    @property
    def is_active(self) -> bool:
        """Worth a dimension of the sampling."""
        return self.share >= INPUT_MATTERS.value

    def __str__(self) -> str:
        """Why it stays at its value, for people."""
        one = self.unknown
        return f"{one.title} ({one.id}): its ends change no figure by more than {_percent(self)}"


def _percent(one: Activity) -> str:
    return f"{100 * one.share:.1f} %"


def activities(
    unknowns: Sequence[Unknown], ends: Iterable[Ends], middle: Response
) -> list[Activity]:
    """Each input with what its ends do."""
    return [
        Activity(one, pair, max(_change(end, middle) for end in pair))
        for one, pair in zip(unknowns, ends, strict=True)
    ]


_FIGURES: tuple[Callable[[Response], float | None], ...] = (
    lambda response: response.freed_s,
    lambda response: response.extra_hit_tokens,
    lambda response: response.move_over_recompute,
)


def _change(end: Response, middle: Response) -> float:
    """Margins are logarithms, so that their difference is the relative change."""
    changes = [abs(a - b) for a, b in zip(end.margins, middle.margins, strict=True)]
    for figure in _FIGURES:
        before, after = figure(middle), figure(end)
        if before and after is not None:
            changes.append(abs(after / before - 1.0))
    return max(changes, default=0.0)
