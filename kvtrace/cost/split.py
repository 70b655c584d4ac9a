"""A cached run brought from both ends: its head is computed while its tail loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvtrace.errors import UsageError


@dataclass(frozen=True, slots=True)
class Split:
    """Where a cached run is cut, and how long each side of the cut takes."""

    computed_tokens: int
    """The head: tokens [0, computed) of the run. 0: all is loaded."""
    loaded_tokens: int
    """The tail. 0: all is computed."""
    compute_s: float
    load_s: float

    @property
    def seconds(self) -> float:
        """Seconds until the whole run is there."""
        return max(self.compute_s, self.load_s)


def best_split(
    tokens: int,
    *,
    compute_s: Callable[[int], float],
    load_s: Callable[[int], float],
    step_tokens: int = 1,
) -> Split:
    """The cut of a run of `tokens` that has it soonest; all computed and all loaded are cuts too.

    `compute_s(k)` are the seconds to compute its first k tokens, `load_s(k)` those to load its
    last k; neither is asked for 0 tokens, which take 0 s. The cut lies at a multiple of
    `step_tokens` (a block), or at the end of the run. Of equal ones the one that computes least.

    Formula: min over k of max(compute_s(k), load_s(tokens - k)), by bisection for where they cross.
    Assumes: both rise with k, and neither slows the other down.
    Source: the order of Cake (arXiv 2410.03065): a token attends to those before it only, so the
    head needs nothing of the tail; and the head is the part that is cheapest to compute.

    Raises:
        UsageError: a step below one token.
    """
    if step_tokens < 1:
        raise UsageError("KVT-C071", f"steps of {step_tokens} tokens are not above zero")
    tokens = max(tokens, 0)

    def cut(steps: int) -> Split:
        computed = min(steps * step_tokens, tokens)
        return Split(
            computed_tokens=computed,
            loaded_tokens=tokens - computed,
            compute_s=compute_s(computed) if computed else 0.0,
            load_s=load_s(tokens - computed) if computed < tokens else 0.0,
        )

    below, above = 0, -(-tokens // step_tokens)
    best = min(cut(below), cut(above), key=_order)
    while above - below > 1:
        middle = (below + above) // 2
        found = cut(middle)
        best = min(best, found, key=_order)
        below, above = (below, middle) if found.compute_s > found.load_s else (middle, above)
    return best


def _order(split: Split) -> tuple[float, int]:
    return split.seconds, split.computed_tokens
