"""Replays of scenarios, timed and booked, in this process or in several.

A worker process imports the replay and the cost model, nothing of the dataset.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

from kvtrace.replay.engine import simulate
from kvtrace.replay.ledger import LinkLedger, LinkStretches
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import WindowedTrace
from kvtrace.units import NS_PER_S

STRETCHES: Final = 120
"""The arrivals of a replay are cut into so many stretches of time for the books of its links."""
LEAST_WIDTH_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Task:
    """One replay to make."""

    place: int
    """Its number among all that are asked for."""
    load: Hashable
    """Which of the traces."""
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Ran:
    """What one replay gave."""

    result: ReplayResult
    links: tuple[LinkStretches, ...]
    width_s: float
    """Of the stretches."""
    wall_s: float
    """Seconds of the engine."""


def run_tasks(
    traces: Mapping[Hashable, WindowedTrace], tasks: Sequence[Task], *, workers: int
) -> Iterator[tuple[int, Ran]]:
    """(place, what it gave), in the order in which the replays end; workers change only that."""
    if min(workers, len(tasks)) <= 1:
        for task in tasks:
            yield task.place, run_one(traces[task.load], task.scenario)
        return
    pool = ProcessPoolExecutor(
        max_workers=min(workers, len(tasks)),
        mp_context=get_context("spawn"),
        initializer=_start,
        initargs=(dict(traces),),
    )
    try:
        for future in as_completed([pool.submit(_work, task) for task in tasks]):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_one(windowed: WindowedTrace, scenario: Scenario) -> Ran:
    """One replay with its books; the wall time is that of the engine alone."""
    arrived = windowed.trace.arrived_at_ns[windowed.scored]
    span_s = float(arrived[-1] - arrived[0]) / NS_PER_S if len(arrived) else 0.0
    width_s = max(LEAST_WIDTH_S, span_s / STRETCHES)
    ledger = LinkLedger(width_s)
    started_s = time.perf_counter()
    result = simulate(windowed.trace, scenario, warmup_requests=windowed.first, ledger=ledger)
    return Ran(result, ledger.rows(), width_s, time.perf_counter() - started_s)


_traces: dict[Hashable, WindowedTrace] = {}
"""Of a worker process: the traces that it was started with."""


def _start(traces: Mapping[Hashable, WindowedTrace]) -> None:
    """A worker keeps the traces; an interrupt is the business of the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _traces.update(traces)


def _work(task: Task) -> tuple[int, Ran]:
    return task.place, run_one(_traces[task.load], task.scenario)
