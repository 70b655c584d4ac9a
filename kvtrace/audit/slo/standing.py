"""Where one option stands: on the stated fleet, on one instance less, by search."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.audit.slo.ends import RunKey
from kvtrace.audit.slo.figures import SloCheck
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import LoadDecision


@dataclass(frozen=True, slots=True)
class Standing:
    """One option at the stated fleet, and on one instance less."""

    result: ReplayResult
    """The better of its load decisions."""
    check: SloCheck | None
    """Against today; null where today itself cannot carry the load."""
    fewer: SloCheck | None
    """On one instance less, against today at the stated fleet; null: not replayed."""
    searched: int | None
    searched_least: int | None = None
    """As `searched`, a narrow miss counted as kept."""
    carried: int | None = None
    """The fewest instances that carry the load, however late; null: not searched."""
    as_replayed: SloCheck | None = None
    """`check` of the option with the load decision that all options share."""
    fewer_decision: LoadDecision = "always"
    """Of the replay behind `fewer`, and of a search."""

    @property
    def is_feasible(self) -> bool:
        """It carries the load at the stated fleet."""
        return not self.result.is_overloaded

    @property
    def is_kept(self) -> bool:
        """It keeps the SLO at the stated fleet; without a reference it carries the load."""
        return self.is_feasible and (self.check is None or self.check.is_kept)

    @property
    def is_kept_with_fewer(self) -> bool:
        """A replay on one instance less keeps the SLO."""
        return self.fewer is not None and self.fewer.is_kept

    @property
    def most(self) -> int | None:
        """Instances that are enough for it; null: more than the stated fleet."""
        if self.searched is not None:
            return self.searched
        instances = self.result.scenario.instances
        if self.is_kept_with_fewer:
            return instances - 1
        return instances if self.is_kept else None

    @property
    def least(self) -> int:
        """Instances below which it was clearly seen to fail, plus one; 1 where nobody tried fewer.

        A narrow miss counts as kept: this is the side of the rivals.
        """
        if self.searched_least is not None:
            return self.searched_least
        if self.searched is not None:
            return self.searched
        instances = self.result.scenario.instances
        is_missed = self.check is not None and self.check.is_clearly_missed
        if not self.is_feasible or is_missed:
            return instances + 1
        return instances if self.fewer is not None and self.fewer.is_clearly_missed else 1

    @property
    def fewest_that_carry(self) -> int | None:
        """Instances that are known, by replay, to carry the load; null: more than the stated."""
        if self.carried is not None:
            return self.carried
        instances = self.result.scenario.instances
        if self.fewer is not None and not self.fewer.is_overloaded:
            return instances - 1
        return instances if self.is_feasible else None

    def run(self, instances: int) -> RunKey:
        """The replay of it on so many instances that speaks for it."""
        scenario = self.result.scenario
        is_stated = self.searched is None and instances == scenario.instances
        decision = scenario.load_decision if is_stated else self.fewer_decision
        return RunKey(scenario.option_id, instances, decision)
