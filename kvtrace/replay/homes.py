"""Which instance served each request of a history that is not replayed in time.

Queues are not known there, so instances are taken in turn where the routing would ask for the least
loaded one; sessions and prefixes stay where they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kvtrace.replay.blocks import AtomHistory
from kvtrace.replay.scenario import Routing, Scenario
from kvtrace.schema.arrays import BoolArray, IntArray, RequestTrace

FOLLOWS_CACHES: Final[tuple[Routing, ...]] = ("prefix_affinity", "kv_centric")
"""They look into the caches."""


def groups_of(scenario: Scenario) -> tuple[range, range]:
    """(instances that prompts of any length or short ones go to, those of long prompts alone)."""
    prefilling = scenario.prefill_instances or scenario.instances
    spec = scenario.isolation
    cut = prefilling if spec is None else prefilling - spec.long_instances
    return range(cut), range(cut, prefilling)


def is_apart(scenario: Scenario, prompt_tokens: IntArray) -> BoolArray:
    """(requests,) whether a request goes to the instances of long prompts."""
    spec = scenario.isolation
    if spec is None or not spec.long_instances:
        return np.zeros(len(prompt_tokens), dtype=np.bool_)
    return np.asarray(prompt_tokens > spec.long_prompt_tokens)


def homes_of(scenario: Scenario, trace: RequestTrace, history: AtomHistory) -> IntArray:
    """(requests of the history,) the instance of each."""
    count = len(history.offset) - 1
    homes = np.zeros(count, dtype=np.int64)
    long = is_apart(scenario, trace.prompt_tokens[:count])
    for members, mine in zip(groups_of(scenario), (~long, long), strict=True):
        rows = np.flatnonzero(mine)
        if len(rows):
            homes[rows] = members.start + _places(scenario, trace, history, rows) % len(members)
    return homes


def _places(
    scenario: Scenario, trace: RequestTrace, history: AtomHistory, rows: IntArray
) -> IntArray:
    """(rows,) turns: whoever opens something new takes the next, all others the one they follow."""
    if scenario.routing == "session_sticky":
        return _by_session(trace.session[rows].tolist())
    if scenario.routing in FOLLOWS_CACHES:
        return _by_prefix(history, rows.tolist())
    return np.arange(len(rows), dtype=np.int64)


def _by_session(sessions: Sequence[int]) -> IntArray:
    """Sessions open in turn and stay; a request of no known session takes a turn of its own."""
    home: dict[int, int] = {}
    turns: list[int] = []
    turn = 0
    for session in sessions:
        place = home.get(session)
        if place is None:
            place, turn = turn, turn + 1
            if session >= 0:
                home[session] = place
        turns.append(place)
    return np.asarray(turns, dtype=np.int64)


def _by_prefix(history: AtomHistory, rows: Sequence[int]) -> IntArray:
    """A request follows whoever last used the end of its known prefix, if that is half of it."""
    offset, weight = history.offset, history.weight.tolist()
    last: dict[int, int] = {}
    turns: list[int] = []
    turn = 0
    for row in rows:
        atoms = history.atoms[offset[row] : offset[row + 1]].tolist()
        known, place = 0, -1
        for atom in atoms:
            if atom not in last:
                break
            known += weight[atom]
            place = last[atom]
        if place < 0 or 2 * known < sum(weight[atom] for atom in atoms):
            place, turn = turn, turn + 1
        last.update(dict.fromkeys(atoms, place))
        turns.append(place)
    return np.asarray(turns, dtype=np.int64)
