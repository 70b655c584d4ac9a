"""Decode of one instance as processor sharing: every running request gets a token per step.

The state is the tokens generated per sequence since the batch was last empty; a request leaves when
that count passes its mark. A step lasts `step_s(batch, context)`. Where the context does not grow,
each request counts with the mean over its decode (prompt plus half the output, as its `join` says);
where it grows, with what it holds now, and the pace up to the next end is that of the middle.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from kvtrace.replay.scenario import DecodeTime

_LEAST_STEP_S: Final = 1e-12
"""Keeps the rate finite when a model says that a step takes no time."""
_ROUNDING: Final = 1e-6
"""A token that lacks no more than this is made."""


class DecodeBatch:
    """The requests that an instance decodes now."""

    __slots__ = (
        "_at",
        "_context",
        "_grows",
        "_joined",
        "_made",
        "_marks",
        "_model",
        "_rate",
        "size",
        "version",
    )

    def __init__(self, model: DecodeTime, *, grows: bool = False) -> None:
        self.size = 0
        self.version = 0
        """Goes up when the next end may have moved; older end events are void."""
        self._model = model
        self._grows = grows
        self._marks: list[tuple[float, int, float, float]] = []
        """(count at its end, request, context at its start, count at its start)"""
        self._context = 0.0
        self._joined = 0.0
        """Sum of the counts at which the requests joined."""
        self._made = 0.0
        self._rate = 0.0
        self._at = 0.0

    @property
    def grown_tokens(self) -> float:
        """Tokens that the requests of the batch have generated since they joined."""
        return self.size * self._made - self._joined

    def step_s(self) -> float:
        """Seconds of one step of the present batch; 0 when it is empty."""
        if not self.size:
            return 0.0
        context = self._context + self.grown_tokens if self._grows else self._context
        seconds = self._model.step_s(self.size, context)
        return seconds if seconds > _LEAST_STEP_S else _LEAST_STEP_S

    def join(self, request: int, tokens: int, context: float) -> None:
        """Add a request with `tokens` steps to go; call `serve` first."""
        if not self.size:
            self._made = 0.0
            self._context = 0.0
            self._joined = 0.0
        heappush(self._marks, (self._made + tokens, request, context, self._made))
        self.size += 1
        self._context += context
        self._joined += self._made

    def serve(self, now: float) -> None:
        """Bring the count of generated tokens up to `now`."""
        if self.size:
            self._made += self._rate * (now - self._at)
        self._at = now

    def pop_first(self) -> list[int]:
        """End the requests whose mark is the next one (all that end together)."""
        marks = self._marks
        mark = marks[0][0]
        self._made = mark
        done: list[int] = []
        while marks and marks[0][0] <= mark:
            done.append(self._leave(heappop(marks)))
        return done

    def drop(self, request: int) -> tuple[int, int]:
        """Take a request out before its end: (tokens made since it joined, tokens to go)."""
        entry = next(one for one in self._marks if one[1] == request)
        self._marks.remove(entry)
        heapify(self._marks)
        self._leave(entry)
        steps = round(entry[0] - entry[3])
        made = min(steps - 1, int(self._made - entry[3] + _ROUNDING))
        return made, steps - made

    def members(self) -> list[int]:
        """The requests of the batch, in no particular order."""
        return [request for _, request, _, _ in self._marks]

    def next_end(self, steps_per_s: float | None) -> float:
        """When the next request ends; `steps_per_s` is set while a prefill dictates the pace."""
        self.version += 1
        if not self.size:
            return inf
        left = self._marks[0][0] - self._made
        if left < 0.0:
            left = 0.0
        rate = self._rate = self._pace(left) if steps_per_s is None else steps_per_s
        if rate <= 0.0:
            return inf
        return self._at + left / rate if left > 0.0 else self._at

    def time_of(self, tokens: float) -> float:
        """When the batch will have generated so many tokens more at its present pace."""
        speed = self.size * self._rate
        if speed <= 0.0:
            return inf
        return self._at + max(0.0, tokens) / speed

    def _pace(self, left: float) -> float:
        """Steps per second up to the next end, `left` steps away."""
        if not self._grows:
            return 1.0 / self.step_s()
        context = self._context + self.grown_tokens + self.size * left / 2
        return 1.0 / max(self._model.step_s(self.size, context), _LEAST_STEP_S)

    def _leave(self, entry: tuple[float, int, float, float]) -> int:
        _, request, context, joined = entry
        self._context -= context
        self._joined -= joined
        self.size -= 1
        return request
