"""How few instances are enough, by replays: of a whole number, the least that is good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Outcome = TypeVar("Outcome")


@dataclass(slots=True)
class Smallest(Generic[Outcome]):
    """What a search found; both sides of the answer were replayed."""

    count: int | None = None
    """The least that is good; null: `most` is not."""
    kept: Outcome | None = None
    """What `count` gave."""
    missed: Outcome | None = None
    """What the count below gave, or `most` where nothing is good; null where the answer is 1."""
    asked: list[int] = field(default_factory=list)
    """Each count that was replayed, once, in the order of the questions."""


def smallest_count(
    replay: Callable[[int], Outcome],
    is_good: Callable[[Outcome], bool],
    *,
    start: int,
    most: int,
    at_least: Callable[[Outcome], int] | None = None,
) -> Smallest[Outcome]:
    """The least count in 1..most that is good.

    Brackets from `start` in steps of 1, 2, 4, …, then halves: about 2 log2 |answer - start| + 2
    replays, each count replayed once. From a good guess the first replay asked is `start` itself.
    `at_least` reads from an outcome that is not good below which count none can be; a step upwards
    is then as long as that.
    Assumes: what is good stays good with more; a replay need not be monotone to the last request,
    so the answer is good, and the count below it was replayed and is not (or is 0).
    """
    search = _Search(replay, is_good)
    start = min(max(1, start), most)
    if search.ask(start):
        search.down()
    else:
        search.up(most, at_least)
    search.halve()
    return search.found


class _Search(Generic[Outcome]):
    """The bracket: `bad` is not good (0: not asked), `found.count` is."""

    def __init__(
        self, replay: Callable[[int], Outcome], is_good: Callable[[Outcome], bool]
    ) -> None:
        self._replay = replay
        self._is_good = is_good
        self.found: Smallest[Outcome] = Smallest()
        self.bad = 0

    def ask(self, count: int) -> bool:
        """Whether so many are good; the bracket follows."""
        found = self.found
        outcome = self._replay(count)
        found.asked.append(count)
        if self._is_good(outcome):
            found.count, found.kept = count, outcome
            return True
        self.bad, found.missed = count, outcome
        return False

    def down(self) -> None:
        """From a good count to one that is not, or to 1."""
        step = 1
        while (least := self.found.count or 1) > 1 and not self.bad:
            self.ask(max(1, least - step))
            step *= 2

    def up(self, most: int, at_least: Callable[[Outcome], int] | None) -> None:
        """From a bad count to a good one, or to `most`."""
        step = 1
        while self.bad < most and self.found.count is None:
            missed = self.found.missed
            least = at_least(missed) if at_least is not None and missed is not None else 0
            self.ask(min(most, max(self.bad + step, least)))
            step *= 2

    def halve(self) -> None:
        """Close the bracket."""
        while self.found.count is not None and self.found.count - self.bad > 1:
            self.ask((self.found.count + self.bad) // 2)
