"""Decode of one instance as processor sharing: every running request gets a token per step.

The state is the tokens generated per sequence since the batch was last empty; a request leaves when
that count passes its mark. A step lasts `step_s(batch, context)`; the context is taken as prompt
plus half the output of each request, its mean over the decode.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Final

from kvtrace.replay.scenario import DecodeTime

_LEAST_STEP_S: Final = 1e-12
"""Keeps the rate finite when a model says that a step takes no time."""


class DecodeBatch:
    """The requests that an instance decodes now."""

    __slots__ = ("_at", "_context", "_made", "_marks", "_model", "_rate", "size", "version")

    def __init__(self, model: DecodeTime) -> None:
        self.size = 0
        self.version = 0
        """Goes up when the next end may have moved; older end events are void."""
        self._model = model
        self._marks: list[tuple[float, int, float]] = []
        self._context = 0.0
        self._made = 0.0
        self._rate = 0.0
        self._at = 0.0

    def step_s(self) -> float:
        """Seconds of one step of the present batch; 0 when it is empty."""
        if not self.size:
            return 0.0
        return max(self._model.step_s(self.size, self._context), _LEAST_STEP_S)

    def join(self, request: int, tokens: int, context: float) -> None:
        """Add a request with `tokens` steps to go; call `serve` first."""
        if not self.size:
            self._made = 0.0
            self._context = 0.0
        heappush(self._marks, (self._made + tokens, request, context))
        self.size += 1
        self._context += context

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
            _, request, context = heappop(marks)
            done.append(request)
            self._context -= context
            self.size -= 1
        return done

    def next_end(self, steps_per_s: float | None) -> float:
        """When the next request ends; `steps_per_s` is set while a prefill dictates the pace."""
        self.version += 1
        if not self.size:
            return inf
        self._rate = 1.0 / self.step_s() if steps_per_s is None else steps_per_s
        if self._rate <= 0.0:
            return inf
        left = self._marks[0][0] - self._made
        return self._at + left / self._rate if left > 0.0 else self._at
