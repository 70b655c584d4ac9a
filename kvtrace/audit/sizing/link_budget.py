"""Whether each link carries what an option sends over it: mean, P99 and peak minute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from kvtrace.audit.record import Cell, Table
from kvtrace.audit.sizing.minutes import MINUTE_S, Window, per_minute
from kvtrace.audit.tables.shape import TableShape
from kvtrace.audit.thresholds import LINK_BINDS
from kvtrace.replay.result import LinkUse, ReplayResult
from kvtrace.schema.arrays import FloatArray

BUDGET_TABLE: Final = "sizing/link_budget"
_SHAPE: Final = TableShape(
    BUDGET_TABLE,
    "Link budget of each option (modelled)",
    (
        ("option_id", "name", "the option"),
        ("link_id", "name", "kind of link"),
        ("links", "count", "such links"),
        ("minutes", "count", "of the replayed window"),
        ("usable_bytes_per_s", "bytes/s", "that one of them carries"),
        ("mean_bytes_per_s", "bytes/s", "read and written over one of them, mean of the window"),
        ("p99_bytes_per_s", "bytes/s", "99 % of the minutes have no more"),
        ("peak_bytes_per_s", "bytes/s", "the busiest minute"),
        ("mean_utilisation", "ratio", "mean / usable"),
        ("p99_utilisation", "ratio", "P99 / usable"),
        ("peak_utilisation", "ratio", "peak / usable"),
        ("limit", "ratio", "of the use, above which queues grow fast"),
        ("is_within", "flag", "the P99 minute is within the limit"),
    ),
)


def link_budget(results: Sequence[ReplayResult], window: Window | None) -> Table | None:
    """One row per option and link; null without a clock or without links."""
    rows = [] if window is None else [row for one in results for row in _rows(one, window)]
    return _SHAPE.table(rows) if rows else None


def minute_rates(use: LinkUse, result: ReplayResult, window: Window) -> FloatArray:
    """(minutes,) bytes/s over one link of this kind.

    Formula: the link's bytes of the whole replay, reads spread over the minutes as the requests'
    loads are and writes as their computed tokens; over the links and 60 s.
    Assumes: the links of a kind carry alike, and bytes cross in the minute of the arrival.
    """
    reads = per_minute(window, result.timeline.moved_bytes)
    writes = per_minute(window, result.timeline.computed_tokens.astype(np.float64))
    total = _spread(use.bytes_read, reads) + _spread(use.bytes_written, writes)
    return total / (use.links * MINUTE_S)


def _spread(amount: float, weights: FloatArray) -> FloatArray:
    """`amount` in proportion to the weights; evenly where they are all zero."""
    whole = float(weights.sum())
    if whole <= 0.0:
        return np.full(len(weights), amount / len(weights))
    return weights * (amount / whole)


def _rows(result: ReplayResult, window: Window) -> Iterator[list[Cell]]:
    for use in result.link_use:
        link = result.scenario.links.get(use.link_id)
        if link is None or not use.links or link.bytes_per_s <= 0.0:
            continue
        rates = minute_rates(use, result, window)
        mean = (use.bytes_read + use.bytes_written) / (use.links * window.span_s)
        p99, peak = float(np.quantile(rates, 0.99)), float(rates.max())
        usable = link.bytes_per_s
        yield [
            result.scenario.option_id,
            use.link_id,
            use.links,
            window.minutes,
            usable,
            mean,
            p99,
            peak,
            mean / usable,
            p99 / usable,
            peak / usable,
            LINK_BINDS.value,
            p99 / usable <= LINK_BINDS.value,
        ]
