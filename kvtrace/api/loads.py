"""The requests of a replay: those of a dataset, cut, thinned, grown or compressed as asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from kvtrace.api.replays import choose_window
from kvtrace.errors import UsageError
from kvtrace.replay.closed_loop import think_seconds, turns_before
from kvtrace.replay.growth import compress_time, grow, logged_index, thin
from kvtrace.replay.window import WindowedTrace, slice_requests, spread_arrivals, within_limit
from kvtrace.scenarios.load import Load
from kvtrace.scenarios.running import Arrivals
from kvtrace.schema.arrays import FloatArray, RequestTrace
from kvtrace.store.dataset import Dataset
from kvtrace.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is replayed, and how many requests no instance accepts."""

    arrivals: Arrivals
    refused_requests: int
    requests: int
    """Of the load, before a busiest hour is cut out of it."""


def by_conversation(trace: RequestTrace, dataset: Dataset) -> RequestTrace:
    """The trace with the conversations of the dataset as its sessions.

    Conversations follow what the logs name, else the full-block rule (docs/sharing.md), so that
    also requests of logs without sessions grow and thin as a whole.
    """
    turns = dataset.table("continuations")
    if turns.is_empty():
        return trace
    places = pl.DataFrame({"request_key": trace.request_key}).join(
        turns.select("request_key", "conversation"),
        on="request_key",
        how="left",
        maintain_order="left",
    )
    return replace(trace, session=places["conversation"].fill_null(-1).to_numpy().astype(np.int64))


def logged_e2e_s(trace: RequestTrace, dataset: Dataset) -> FloatArray:
    """(requests,) seconds from arrival to the last token as logged; NaN where nobody says."""
    rows = dataset.table("requests").select("request_key", "e2e_ns")
    found = pl.DataFrame({"request_key": trace.request_key}).join(
        rows, on="request_key", how="left", maintain_order="left"
    )
    logged = found["e2e_ns"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return np.asarray(logged / NS_PER_S, dtype=np.float64)


def apply_load(
    whole: RequestTrace,
    load: Load,
    *,
    max_tokens: float,
    is_full: bool,
    seed: int,
    e2e_s: FloatArray | None = None,
) -> Loaded:
    """The requests of a load, coarse arrivals spread.

    Order: the first requests, without those that no instance holds; thinned, grown, compressed;
    then the busiest hour with what came before it, unless a number of requests or all are asked.
    `e2e_s` is of the whole trace; a closed loop needs it.

    Raises:
        UsageError: nothing is left.
    """
    first = whole
    if load.requests is not None and load.requests < whole.requests:
        first = slice_requests(whole, 0, load.requests)
    trace, refused = within_limit(first, max_tokens)
    logged = thin(trace, load.thin, seed=seed)
    grown = grow(
        logged, load.growth, seed=seed, spread_s=load.growth_spread_s, root_share=load.root_share
    )
    trace = grown.trace if load.compress == 1 else compress_time(grown.trace, load.compress)
    if not trace.requests:
        raise UsageError(
            "KVT-U024",
            "no request is left to replay",
            cause=load.words() or f"{refused} requests are longer than an instance holds",
        )
    if load.requests is None:
        windowed = choose_window(trace, is_full=is_full, seed=seed)
    else:
        windowed = WindowedTrace(spread_arrivals(trace, seed), 0)
    if not load.closed_loop:
        return Loaded(Arrivals(windowed), refused, trace.requests)
    known = None if e2e_s is None else dict(zip(whole.request_key.tolist(), e2e_s, strict=True))
    thinking = Arrivals(windowed, _think_s(windowed.trace, logged, load, known))
    return Loaded(thinking, refused, trace.requests)


def _think_s(
    trace: RequestTrace, logged: RequestTrace, load: Load, e2e_s: Mapping[int, float] | None
) -> FloatArray:
    """(requests,) think time before each: as stated, else as logged; NaN: nothing came before.

    A copy that growth added thinks like the logged turn; compression shortens thinking too.
    """
    before = turns_before(trace)
    if load.think_s is not None:
        return np.where(before >= 0, load.think_s / load.compress, np.nan)
    keys = logged.request_key.tolist()
    known = np.array([np.nan if e2e_s is None else e2e_s[key] for key in keys])
    thinks = dict(zip(keys, think_seconds(logged, known).tolist(), strict=True))
    origin = (keys[logged_index(key, logged.requests)] if key < 0 else key
              for key in trace.request_key.tolist())  # fmt: skip
    return np.array([thinks[key] for key in origin]) / load.compress
