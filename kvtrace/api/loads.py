"""The requests of a replay: those of a dataset, cut, thinned, grown or compressed as asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from kvtrace.api.replays import choose_window
from kvtrace.errors import UsageError
from kvtrace.replay.growth import compress_time, grow, thin
from kvtrace.replay.window import WindowedTrace, slice_requests, spread_arrivals, within_limit
from kvtrace.scenarios.load import Load
from kvtrace.schema.arrays import RequestTrace
from kvtrace.store.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is replayed, and how many requests no instance accepts."""

    windowed: WindowedTrace
    refused_requests: int


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


def apply_load(
    whole: RequestTrace, load: Load, *, max_tokens: float, is_full: bool, seed: int
) -> Loaded:
    """The requests of a load, coarse arrivals spread.

    Order: the first requests, without those that no instance holds; thinned, grown, compressed;
    then the busiest hour with what came before it, unless a number of requests or all are asked.

    Raises:
        UsageError: nothing is left.
    """
    first = whole
    if load.requests is not None and load.requests < whole.requests:
        first = slice_requests(whole, 0, load.requests)
    trace, refused = within_limit(first, max_tokens)
    trace = thin(trace, load.thin, seed=seed)
    grown = grow(
        trace, load.growth, seed=seed, spread_s=load.growth_spread_s, root_share=load.root_share
    )
    trace = grown.trace
    if load.compress != 1:
        trace = compress_time(trace, load.compress)
    if not trace.requests:
        raise UsageError(
            "KVT-U024",
            "no request is left to replay",
            cause=load.words() or f"{refused} requests are longer than an instance holds",
        )
    if load.requests is None:
        return Loaded(choose_window(trace, is_full=is_full, seed=seed), refused)
    return Loaded(WindowedTrace(spread_arrivals(trace, seed), 0), refused)
