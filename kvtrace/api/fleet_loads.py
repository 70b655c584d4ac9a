"""The peak hour that fleets are sized by, as it is and at other loads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

import numpy as np

from kvtrace.api.loads import by_conversation
from kvtrace.api.replays import choose_window
from kvtrace.api.uncached import uncached_prefill_tokens
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.growth import grow, thin
from kvtrace.replay.window import WindowedTrace
from kvtrace.scenarios.load import GROWTH_SPREAD_S, ROOT_SHARE
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.store.dataset import Dataset

LOADS: Final = (1.0, 2.0, 4.0)
"""The trace's own load, and growth."""


@dataclass
class LoadedWindows:
    """A window under any load; those of `LOADS` are made once."""

    windowed: WindowedTrace
    sessions: IntArray
    """(requests,) the conversation of each request of `windowed.trace`: they grow and thin as a
    whole."""
    seed: int
    _made: dict[float, WindowedTrace] = field(default_factory=dict)

    def at(self, load: float) -> WindowedTrace:
        """The window with `load` times its sessions.

        Whole copies of all sessions, at other instants and with private blocks of their own, then
        thinned to the fraction. The window begins when it did; sessions that were moved out of its
        end are not replaced by such as were moved in, so its last minutes are a little lighter.
        """
        if load == 1:
            return self.windowed
        if load not in self._made:
            for other in [one for one in self._made if one not in LOADS]:
                del self._made[other]
            self._made[load] = self._make(load)
        return self._made[load]

    def _make(self, load: float) -> WindowedTrace:
        whole = self.windowed.trace
        places = np.arange(whole.requests, dtype=np.int64)
        base = replace(whole, session=self.sessions, request_key=places)
        copies = max(1, ceil(load - 1e-9))
        grown = grow(
            base, copies, seed=self.seed, spread_s=GROWTH_SPREAD_S, root_share=ROOT_SHARE
        ).trace
        trace = thin(grown, load / copies, seed=self.seed)
        if not self.windowed.first:
            return WindowedTrace(trace, 0)
        begin_ns = int(base.arrived_at_ns[self.windowed.first]) - _lost_ns(grown, trace)
        return WindowedTrace(trace, int(np.searchsorted(trace.arrived_at_ns, begin_ns)))


def _lost_ns(grown: RequestTrace, thinned: RequestTrace) -> int:
    """By how much the thinned trace, which counts from its own first request, begins later."""
    if not thinned.requests:
        return 0
    at = int(np.flatnonzero(grown.request_key == thinned.request_key[0])[0])
    return int(grown.arrived_at_ns[at])


@dataclass(frozen=True, slots=True)
class PeakHour:
    """What fleets are sized by."""

    loads: LoadedWindows
    uncached_tokens: int
    """Prompt tokens of the window, as it was logged, that no cache served."""

    @property
    def windowed(self) -> WindowedTrace:
        """The hour with what came before it."""
        return self.loads.windowed


def replayed_windows(
    whole: RequestTrace,
    dataset: Dataset,
    stated: tuple[Deployment, Fleet],
    *,
    is_full: bool,
    seed: int,
) -> tuple[WindowedTrace, PeakHour]:
    """(what the options are replayed on, the peak hour that sizes their fleets).

    Both are the busiest hour by uncached prefill, with what came before it; at depth full the
    options are replayed on everything. A stated peak factor raises the load of both.
    """
    deployment, fleet = stated
    work = uncached_prefill_tokens(whole, dataset, deployment, fleet.instances)
    factor = 1.0 if fleet.peak_factor is None else fleet.peak_factor.value
    logged = choose_window(whole, is_full=False, seed=seed, work_tokens=work)
    inside = np.isin(whole.request_key, logged.trace.request_key[logged.first :])
    loads = _raised(logged, dataset, factor, seed)
    peak = PeakHour(loads, int(work[inside].sum()))
    if not is_full or logged.trace.requests - logged.first == whole.requests:
        return loads.windowed, peak
    everything = choose_window(whole, is_full=True, seed=seed)
    return _raised(everything, dataset, factor, seed).windowed, peak


def _raised(windowed: WindowedTrace, dataset: Dataset, factor: float, seed: int) -> LoadedWindows:
    """The window with `factor` times its sessions as load 1."""
    sessions = by_conversation(windowed.trace, dataset).session
    loads = LoadedWindows(windowed, sessions, seed)
    if factor == 1:
        return loads
    raised = loads.at(factor)
    return LoadedWindows(raised, raised.trace.session, seed)
