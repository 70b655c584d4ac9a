"""Whole instances that replays give back, asked again at the ends of the cost model's constants.

One replay at middle constants is a point. The claim "this option keeps the SLO on so many
instances, no rival does" is therefore replayed at both ends that are worst for a pool: slow moves
with fast prefill (a hit spares little), and slow moves with slow prefill (queues grow).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from kvtrace.audit.slo.figures import SloCheck
from kvtrace.replay.scenario import LoadDecision

Speed = Literal["slow", "fast"]


class End(NamedTuple):
    """One end of the constants."""

    title: str
    moves: Speed
    prefill: Speed


ENDS: Final = (
    End("slow moves and fast prefill", "slow", "fast"),
    End("slow moves and slow prefill", "slow", "slow"),
)
"""Both with what is bad for a pool beside them: the most idle DRAM for its rivals."""


class RunKey(NamedTuple):
    """One replay of an end."""

    option_id: str
    instances: int
    load_decision: LoadDecision


class Claim(NamedTuple):
    """What has to hold for saved instances."""

    option: RunKey
    """It keeps the SLO there."""
    rivals: tuple[RunKey, ...]
    """Each clearly misses it there."""
    reserve: RunKey | None = None
    """It carries the load there, however late: the option while its pool is down. Null: no pool."""

    @property
    def runs(self) -> tuple[RunKey, ...]:
        """All replays that it takes."""
        keys = (self.option, *self.rivals, *(() if self.reserve is None else (self.reserve,)))
        return tuple(dict.fromkeys(keys))


@dataclass(frozen=True, slots=True)
class EndFleet:
    """The replays of one end, each against today's option at that end."""

    title: str
    """For people: `slow moves and fast prefill`."""
    checks: Mapping[RunKey, SloCheck]
    has_reference: bool = True
    """False: no option without a pool carries the load, so carrying it is all that is asked."""

    def fault(self, claim: Claim) -> str:
        """Why the claim does not hold at this end, for people; empty where it holds."""
        mine = self.checks.get(claim.option)
        rivals = [self.checks.get(key) for key in claim.rivals]
        reserve = None if claim.reserve is None else self.checks.get(claim.reserve)
        if mine is None or any(rival is None for rival in rivals):
            return f"the options were not all replayed with {self.title}"
        if not self._is_kept(mine):
            return f"with {self.title} it does not hold: {mine} (replayed)"
        if claim.reserve is not None and (reserve is None or reserve.is_overloaded):
            return f"with {self.title} the load is not carried while the pool is down (replayed)"
        able = [check for check in rivals if check is not None and not check.is_clearly_missed]
        if able:
            return (
                f"with {self.title} {able[0].title} does as well, or misses it narrowly (replayed)"
            )
        return ""

    def _is_kept(self, check: SloCheck) -> bool:
        return check.is_kept if self.has_reference else not check.is_overloaded
