"""Replays of scenarios, timed and booked, in this process or in several.

A worker process imports the replay and the cost model, nothing of the dataset.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.exec.workers import Workers, enough_workers
from kvtrace.replay.closed_loop import ClosedLoop
from kvtrace.replay.engine import simulate
from kvtrace.replay.ledger import LinkLedger, LinkStretches
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import FloatArray
from kvtrace.units import NS_PER_S

STRETCHES: Final = 120
"""The arrivals of a replay are cut into so many stretches of time for the books of its links."""
LEAST_WIDTH_S: Final = 1.0
REQUEST_S: Final = 70e-6
"""Seconds of one request's replay, roughly: what a replay takes before it is made. Measured with
scripts/bench/replay.py."""
REQUEST_BYTES: Final = 1_000
"""Memory of one request while it is replayed, roughly; the same bench."""
PROCESS_BYTES: Final = 100_000_000
"""Memory of a worker process without requests, roughly."""


@dataclass(frozen=True, slots=True)
class Task:
    """One replay to make."""

    place: int
    """Its number among all that are asked for."""
    load: Hashable
    """Which of the traces."""
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The requests of a load, and how they come."""

    windowed: WindowedTrace
    think_s: FloatArray | None = None
    """(requests of the trace,) closed loop: logged think times; null: the open loop."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one replay gave."""

    result: ReplayResult
    links: tuple[LinkStretches, ...]
    width_s: float
    """Of the stretches."""
    wall_s: float
    """Seconds of the engine."""
    arrived_s: FloatArray
    """(replayed requests,) when each came, since the first one."""


def run_tasks(
    loads: Mapping[Hashable, Arrivals], tasks: Sequence[Task], *, workers: int | None
) -> Generator[tuple[int, Ran]]:
    """(place, what it gave), in the order in which the replays end; workers change only that.

    `workers` None: as many processes as are worth their start. Close the generator where it may be
    left early: its workers are stopped then.
    """
    held = sum(load.windowed.trace.requests for load in loads.values())
    replayed = sum(loads[task.load].windowed.trace.requests for task in tasks)
    count = enough_workers(
        workers,
        tasks=len(tasks),
        seconds=replayed * REQUEST_S,
        bytes_each=PROCESS_BYTES + held * REQUEST_BYTES,
    )
    with (
        Workers(dict(loads), count=count) as pool,
        closing(pool.map(_work, tasks)) as outcomes,
    ):
        for number, ran in outcomes:
            yield tasks[number].place, ran


def _work(loads: Mapping[Hashable, Arrivals], task: Task) -> Ran:
    return run_one(loads[task.load], task.scenario)


def run_one(load: Arrivals, scenario: Scenario) -> Ran:
    """One replay with its books; the wall time is that of the engine alone."""
    trace, first = load.windowed.trace, load.windowed.first
    arrived_s = trace.arrived_at_ns[first:] / NS_PER_S
    span_s = float(arrived_s[-1] - arrived_s[0]) if len(arrived_s) else 0.0
    width_s = max(LEAST_WIDTH_S, span_s / STRETCHES)
    ledger = LinkLedger(width_s)
    loop = None if load.think_s is None else ClosedLoop(trace, load.think_s, first=first)
    started_s = time.perf_counter()
    result = simulate(trace, scenario, warmup_requests=first, ledger=ledger, loop=loop)
    wall_s = time.perf_counter() - started_s
    if loop is not None:
        arrived_s = np.asarray(loop.arrived_s, dtype=np.float64)
    links = tuple(row for row in ledger.rows() if row.link_id in scenario.links)
    return Ran(result, links, width_s, wall_s, arrived_s - arrived_s[:1])
