"""The replays behind the uncertainty of a verdict: a budgeted number at sampled inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from kvtrace.api.replays import WindowRuns
from kvtrace.api.uncertainty_question import Asked, Question, open_inputs, question_of, respond
from kvtrace.audit.uncertainty.activity import Activity, activities
from kvtrace.audit.uncertainty.design import (
    Bracket,
    ReplayedDesign,
    Response,
    sobol_shares,
    values_at,
)
from kvtrace.audit.uncertainty.responses import response_of, session_shifts
from kvtrace.audit.uncertainty.sessions import resampling_units
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.audit.window import arrival_span_s
from kvtrace.exec.progress import Progress
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.store.dataset import Dataset

BUDGET_REQUESTS: Final = 6_000_000
"""Requests that all replays of a design go through together: about six minutes on one core at
17 000 a second."""
HISTORY_SHARE: Final = 0.1
"""What a request that only warms the caches counts: it takes about a tenth of a replayed one."""
MOST_POINTS: Final = 64
BISECTIONS: Final = 4
"""Steps towards the value at which the claim changes: a sixteenth of half the range is left."""
FEWEST_POINTS: Final = 8
"""Of a design; with fewer, a P10 would be one point."""


def conversations_of(dataset: Dataset, trace: RequestTrace | None) -> IntArray | None:
    """(requests,) conversation of each request, -1 where it is of none; null: none is known."""
    if trace is None:
        return None
    turns = dataset.table("continuations").select("request_key", "conversation")
    if not len(turns):
        return None
    keys = pl.DataFrame({"request_key": trace.request_key})
    found = keys.join(turns, on="request_key", how="left", maintain_order="left")
    return np.asarray(found["conversation"].fill_null(-1).to_numpy(), dtype=np.int64)


def replay_design(
    asked: Asked, run: WindowRuns, seed: int, watch: Progress
) -> ReplayedDesign | None:
    """The weighed pool and its rivals at sampled inputs; null where no pool is weighed."""
    question = question_of(asked)
    if question is None:
        return None
    window = run.windowed.window
    candidates, kept = open_inputs(question)
    candidates, unaffordable = affordable(question, candidates, run.windowed)
    watch.start("uncertainty")
    runs = question.at({}).replayed(run.windowed)
    middle = response_of(window, runs, question.claim)
    made = _sampled(question, candidates, middle, run, seed)
    watch.finish(f"{made.points_asked * len(question.keys)} replays at {made.points_asked} points")
    units = resampling_units(window, asked.conversation)
    return ReplayedDesign(
        option_id=question.option_id,
        rival_id=question.rival_id,
        claim=question.claim,
        instances=question.instances,
        unknowns=tuple(one.unknown for one in made.active),
        values=made.values,
        middle=middle,
        points=made.points,
        ends=tuple(one.ends for one in made.active),
        brackets=made.brackets,
        shifts=session_shifts(window, runs, question.claim, units, seed),
        kept=(*kept, *unaffordable, *made.kept),
        replays=made.points_asked * len(question.keys),
        why_few=made.why_few,
        span_s=arrival_span_s(window) or 0.0,
        where=asked.where,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampled:
    """What was replayed beside the middle."""

    points_asked: int
    """The middle counted."""
    active: tuple[Activity, ...] = ()
    values: FloatArray
    """(points, active inputs)"""
    points: tuple[Response, ...] = ()
    brackets: Mapping[str, Bracket] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    why_few: str = ""


def _sampled(
    question: Question,
    candidates: tuple[Unknown, ...],
    middle: Response,
    run: WindowRuns,
    seed: int,
) -> _Sampled:
    """Each candidate at its ends, then those that matter at drawn points and by bisection."""
    ends = [{one.id: end} for one in candidates for end in (one.low, one.high)]
    room = points_in_budget(question, run.windowed) - 1 - len(ends)
    if room < FEWEST_POINTS or not candidates:
        few = _why_few(question, run.windowed)
        return _Sampled(points_asked=1, values=np.zeros((0, 0)), why_few=few)
    found = _asked(question, ends, run)
    tried = activities(candidates, zip(found[::2], found[1::2], strict=True), middle)
    active = tuple(one for one in tried if one.is_active)
    kept = tuple(str(one) for one in tried if not one.is_active)
    if not active:
        alone = np.zeros((1, 0))
        return _Sampled(points_asked=1 + len(ends), values=alone, points=(middle,), kept=kept)
    unknowns = [one.unknown for one in active]
    values = values_at(unknowns, sobol_shares(len(unknowns), _points(room), seed, 0))
    names = [one.id for one in unknowns]
    points = _asked(question, [dict(zip(names, row, strict=True)) for row in values.tolist()], run)
    brackets = _bisected(question, active, middle, run)
    steps = sum(len(one.probes) for one in brackets.values())
    return _Sampled(
        points_asked=1 + len(ends) + len(points) + steps,
        active=active,
        values=values,
        points=tuple(points),
        brackets=brackets,
        kept=kept,
    )


def _asked(
    question: Question, values: Sequence[Mapping[str, float]], run: WindowRuns
) -> list[Response]:
    return run.each(respond, [question.at(one) for one in values])


def _points(room: int) -> int:
    """A power of two of them, for a Sobol sequence is balanced there."""
    return min(MOST_POINTS, 1 << (room.bit_length() - 1))


def _bisected(
    question: Question, active: Sequence[Activity], middle: Response, run: WindowRuns
) -> dict[str, Bracket]:
    """Where the claim changes along each input whose ends change it; all inputs step by step."""
    looked = {}
    for one in active:
        ends = zip(one.ends, (one.unknown.low, one.unknown.high), strict=True)
        changed = [end for response, end in ends if response.is_claim_held != middle.is_claim_held]
        if changed:
            looked[one.unknown.id] = Bracket(one.unknown.value, changed[0], ())
    for _ in range(BISECTIONS):
        tried = {ident: (one.held + one.lost) / 2 for ident, one in looked.items()}
        found = _asked(question, [{ident: at} for ident, at in tried.items()], run)
        for (ident, at), response in zip(tried.items(), found, strict=True):
            before = looked[ident]
            is_same = response.is_claim_held == middle.is_claim_held
            looked[ident] = Bracket(
                at if is_same else before.held,
                before.lost if is_same else at,
                (*before.probes, (at, response)),
            )
    return looked


def points_in_budget(question: Question, windowed: WindowedTrace) -> int:
    """Points that there is room for: each replays all that is asked."""
    return int(BUDGET_REQUESTS / (len(question.keys) * max(_cost(windowed), 1.0)))


def _cost(windowed: WindowedTrace) -> float:
    """Requests that one replay goes through, those of the history at their share."""
    return windowed.trace.requests - (1 - HISTORY_SHARE) * windowed.first


def affordable(
    question: Question, candidates: tuple[Unknown, ...], windowed: WindowedTrace
) -> tuple[tuple[Unknown, ...], tuple[str, ...]]:
    """As many of the candidates as the budget has room for, and why the others stay."""
    most = max(0, (points_in_budget(question, windowed) - 1 - FEWEST_POINTS) // 2)
    left = candidates[most:]
    return candidates[:most], tuple(
        f"{one.title} ({one.id}): no room in the budget of replays" for one in left
    )


def is_affordable(asked: Asked, windowed: WindowedTrace) -> bool:
    """Whether every candidate can be replayed on this window."""
    question = question_of(asked)
    if question is None:
        return True
    candidates, _ = open_inputs(question)
    return not affordable(question, candidates, windowed)[1]


def _why_few(question: Question, windowed: WindowedTrace) -> str:
    return (
        f"{len(question.keys)} replays of {windowed.window.requests:,} requests (history at "
        f"{100 * HISTORY_SHARE:.0f} %) at {FEWEST_POINTS} points and both ends of an input go "
        f"beyond the budget of {BUDGET_REQUESTS:,} requests: the interval is that of the ends of "
        "each price alone"
    )
