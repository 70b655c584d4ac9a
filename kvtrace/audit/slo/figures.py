"""One figure of an option beside its limit, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.audit.thresholds import CLEAR_MISS
from kvtrace.units import format_seconds


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an option beside that of its reference, in seconds."""

    name: str
    """`TTFT p90`, `TPOT mean`, …"""
    mine_s: float
    reference_s: float
    allowed_s: float
    """Tolerance: by so much it may be longer."""
    bucket: int | None = None
    """Lower bound of the prompt bucket; null: over all requests."""
    is_judged: bool = True
    """False where too few requests lie beyond the quantile to tell."""
    is_stated: bool = False
    """`reference_s` is a limit that a team states, and exact; False: today's own figure."""

    @property
    def excess_s(self) -> float:
        """Longer than the reference by; below zero: shorter."""
        return self.mine_s - self.reference_s

    @property
    def is_kept(self) -> bool:
        """Within the tolerance."""
        return self.excess_s <= self.allowed_s * (1 + 1e-9)

    @property
    def times(self) -> float:
        """Mine over the reference's."""
        return self.mine_s / self.reference_s if self.reference_s > 0 else float("inf")

    @property
    def where(self) -> str:
        """`TTFT p99 of prompts of 1,024 to 2,048 tokens`."""
        if self.bucket is None:
            return self.name
        return f"{self.name} of prompts of {self.bucket:,} to {2 * max(self.bucket, 1):,} tokens"

    @property
    def is_missed_narrowly(self) -> bool:
        """Beyond the tolerance, which is a choice, and not by so much that no error explains it."""
        return not self.is_kept and not self.is_stated and self.times < CLEAR_MISS.value

    @property
    def compared(self) -> str:
        """The two numbers."""
        mine, theirs = format_seconds(self.mine_s), format_seconds(self.reference_s)
        return f"{self.where} {mine} against {theirs}"

    @property
    def narrowly(self) -> str:
        """By how much it is missed and what is allowed; empty unless it is missed narrowly."""
        if not self.is_missed_narrowly or not self.reference_s:
            return ""
        allowed = 100 * self.allowed_s / self.reference_s
        return (
            f", {100 * (self.times - 1):.1f} % longer; {allowed:.1f} % count as equal, which "
            "kvtrace chose"
        )

    def __str__(self) -> str:
        """The two numbers; a narrow miss says by how much, and what is allowed."""
        return f"{self.compared}{self.narrowly}"


@dataclass(frozen=True, slots=True)
class SloCheck:
    """One option against the reference."""

    title: str
    reference_title: str
    is_overloaded: bool
    offered_load: float | None
    figures: tuple[Figure, ...]

    @property
    def is_kept(self) -> bool:
        """It carries the load, and every judged figure is within its tolerance."""
        judged = [figure for figure in self.figures if figure.is_judged]
        return not self.is_overloaded and bool(judged) and all(f.is_kept for f in judged)

    @property
    def is_clearly_missed(self) -> bool:
        """So far beyond that no model error keeps it."""
        worst = self.worst
        return self.is_overloaded or (worst is not None and worst.times >= CLEAR_MISS.value)

    @property
    def worst(self) -> Figure | None:
        """Of the judged figures that are too long, the one by the largest factor; null if none."""
        late = [f for f in self.figures if f.is_judged and not f.is_kept]
        return max(late, key=lambda f: (f.times, f.where), default=None)

    @property
    def unjudged(self) -> Figure | None:
        """The figure that got longest and rests on too few requests to be judged."""
        late = [f for f in self.figures if not f.is_judged and not f.is_kept]
        return max(late, key=lambda f: (f.times, f.where), default=None)

    def __str__(self) -> str:
        """The numbers that say it best."""
        if self.is_overloaded:
            return f"{self.title} cannot carry the load: {load_text(self.offered_load)}"
        judged = [f for f in self.figures if f.is_judged and f.name.startswith("TTFT")]
        shown = self.worst or max(judged, key=lambda f: (f.times, f.where), default=None)
        if shown is None:
            return f"{self.title}: TTFT unknown"
        whose = "allowed" if shown.is_stated else f"with {self.reference_title}"
        return f"{self.title}: {shown.compared} {whose}{shown.narrowly}"


def load_text(offered_load: float | None) -> str:
    """`offered load 1.12`; a queue may grow below 1, too, where the work comes unevenly."""
    grows = "its queue grows to the end of the window"
    return grows if offered_load is None else f"{grows} (offered load {offered_load:.2f})"
