"""Measured bytes of links beside those of the replays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kvtrace.audit.findings.check import LinkRow
from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Cell, Table
from kvtrace.audit.tables.shape import TableShape
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import Row, count, number, rows_of
from kvtrace.cost.deployment import Deployment
from kvtrace.replay.result import LinkUse, ReplayResult
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import Clock

LINKS_TABLE: Final = "links/modelled_and_measured"
SUMMARY_QUERY: Final = "links/measured_summary"
_SLICES: Final = "links/measured_bytes"
_TODAY: Final = "hbm_only"
_STANDS_FOR: Final[Mapping[str, str]] = {"pcie": "pcie", "nic_tcp": "nic", "nic_rdma": "rdma"}
"""Links of the model, and the measured kind that is the same link. A pool's own ports and host DRAM
are not among what GPU nodes report."""
_SHAPE: Final = TableShape(
    LINKS_TABLE,
    "Bytes over links: replays (modelled) beside counters (measured)",
    (
        ("option_id", "name", "the option"),
        ("link_id", "name", "link of the model; null: the option moves nothing there"),
        ("measured_link", "name", "pcie | nvlink | nic | rdma as measured; null: not measured"),
        ("modelled_read_bytes", "bytes", "modelled: KV towards HBM, all links"),
        ("modelled_written_bytes", "bytes", "modelled: KV away from HBM, all links"),
        ("modelled_read_bytes_per_s", "bytes/s", "modelled: mean over the replay, one link"),
        ("modelled_written_bytes_per_s", "bytes/s", "modelled: the same, away from HBM"),
        ("usable_bytes_per_s", "bytes/s", "modelled: what one link can carry"),
        ("measured_links", "count", "GPUs or ports with counters; null: none"),
        ("measured_rx_bytes", "bytes", "measured: all traffic towards HBM or the node"),
        ("measured_tx_bytes", "bytes", "measured: all traffic away from it"),
        ("measured_rx_bytes_per_s", "bytes/s", "measured: mean, scaled to one modelled link"),
        ("measured_tx_bytes_per_s", "bytes/s", "measured: the same, away from it"),
        ("left_read_bytes_per_s", "bytes/s", "usable less measured, towards HBM"),
        ("left_written_bytes_per_s", "bytes/s", "usable less measured, away from it"),
        (
            "is_same_window",
            "flag",
            "true: measured in the replayed window; false: over another time; null: not measured, "
            "or the clocks do not compare",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class LinkSources:
    """What the rows are made of."""

    queries: Mapping[str, ResultOfQuery]
    replays: Sequence[ReplayResult]
    deployment: Deployment
    trace: RequestTrace | None
    """The replayed requests."""
    whole_trace: RequestTrace | None
    clock: Clock | None
    """Of the requests."""


@dataclass(frozen=True, slots=True)
class _Load:
    """What one kind of link carried."""

    kind: str
    links: int
    hosts: int
    rx_bytes: float | None
    tx_bytes: float | None
    rx_bytes_per_s: float | None
    """Mean of one measured link."""
    tx_bytes_per_s: float | None
    is_same_window: bool | None


def link_rows(sources: LinkSources) -> list[LinkRow]:
    """Links of the options beside measured ones; empty where no link was measured."""
    loads = {load.kind: load for load in _loads(sources)}
    if not loads:
        return []
    rows: list[LinkRow] = []
    for result in sources.replays:
        used = [_row(sources, result, use, loads) for use in result.link_use]
        if not used and result.scenario.option_id == _TODAY:
            used = [_idle_row(sources, result, load) for load in loads.values()]
        rows += used
    return rows


def _loads(sources: LinkSources) -> Iterator[_Load]:
    window = _window_ns(sources)
    slices = rows_of(sources.queries, _SLICES)
    for row in rows_of(sources.queries, SUMMARY_QUERY):
        kind = str(row.get("link"))
        inside = None
        if window is not None and row.get("clock") == sources.clock:
            inside = _inside(slices, kind, window)
        yield _Load(
            kind=kind,
            links=count(row, "links") or 0,
            hosts=count(row, "hosts") or 1,
            rx_bytes=number(row, "rx_bytes") if inside is None else inside.rx_bytes,
            tx_bytes=number(row, "tx_bytes") if inside is None else inside.tx_bytes,
            rx_bytes_per_s=number(row, "rx_bytes_per_s") if inside is None else inside.rx_per_s,
            tx_bytes_per_s=number(row, "tx_bytes_per_s") if inside is None else inside.tx_per_s,
            is_same_window=_is_same(row, sources, window, inside),
        )


def _is_same(
    row: Row, sources: LinkSources, window: tuple[int, int] | None, inside: _Inside | None
) -> bool | None:
    if window is None or row.get("clock") != sources.clock:
        return None
    return inside is not None


@dataclass(frozen=True, slots=True)
class _Inside:
    """Sums and means over the slices in the replayed window."""

    rx_bytes: float | None
    tx_bytes: float | None
    rx_per_s: float | None
    tx_per_s: float | None


def _inside(slices: Sequence[Row], kind: str, window: tuple[int, int]) -> _Inside | None:
    """What the slices that start in the window hold; None where there are none."""
    mine = [
        row
        for row in slices
        if row.get("link") == kind and window[0] <= (count(row, "slice_start_ns") or 0) <= window[1]
    ]
    if not mine:
        return None
    return _Inside(
        rx_bytes=_sum(mine, "rx_bytes"),
        tx_bytes=_sum(mine, "tx_bytes"),
        rx_per_s=_mean(mine, "rx_bytes_per_s"),
        tx_per_s=_mean(mine, "tx_bytes_per_s"),
    )


def _sum(rows: Sequence[Row], column: str) -> float | None:
    known = [value for row in rows if (value := number(row, column)) is not None]
    return math.fsum(known) if known else None


def _mean(rows: Sequence[Row], column: str) -> float | None:
    known = [value for row in rows if (value := number(row, column)) is not None]
    return math.fsum(known) / len(known) if known else None


def _window_ns(sources: LinkSources) -> tuple[int, int] | None:
    """First and last replayed arrival as instants; None where the clock is no wall clock.

    The replayed requests count from the first of them; the whole trace has their own times.
    """
    trace, whole = sources.trace, sources.whole_trace
    if sources.clock != "utc" or trace is None or whole is None or not whole.has_clock:
        return None
    arrived = whole.arrived_at_ns[np.isin(whole.request_key, trace.request_key)]
    return (int(arrived.min()), int(arrived.max())) if len(arrived) else None


def _row(
    sources: LinkSources, result: ReplayResult, use: LinkUse, loads: Mapping[str, _Load]
) -> LinkRow:
    spec = result.scenario.links.get(use.link_id)
    load = loads.get(_STANDS_FOR.get(use.link_id, ""))
    per_link_s = result.span_s * use.links
    factor = 1.0
    if load is not None:
        factor = _measured_per_link(
            load, sources.deployment, 1 if spec is None else spec.instances_per_link
        )
    row = LinkRow(
        option_id=result.scenario.option_id,
        title=result.scenario.title,
        link_id=use.link_id,
        read_bytes=use.bytes_read,
        written_bytes=use.bytes_written,
        read_bytes_per_s=ratio(use.bytes_read, per_link_s),
        written_bytes_per_s=ratio(use.bytes_written, per_link_s),
        usable_bytes_per_s=None if spec is None else spec.bytes_per_s,
    )
    return row if load is None else _with_measured(row, load, factor)


def _idle_row(sources: LinkSources, result: ReplayResult, load: _Load) -> LinkRow:
    """A link over which an option without tiers moves no KV."""
    row = LinkRow(
        option_id=result.scenario.option_id,
        title=result.scenario.title,
        link_id=None,
        read_bytes=0.0,
        written_bytes=0.0,
        read_bytes_per_s=0.0,
        written_bytes_per_s=0.0,
        usable_bytes_per_s=None,
    )
    return _with_measured(row, load, _measured_per_link(load, sources.deployment, 1))


def _with_measured(row: LinkRow, load: _Load, factor: float) -> LinkRow:
    """The row with what was measured, its rates times `factor`."""

    def scaled(rate: float | None) -> float | None:
        return None if rate is None else rate * factor

    return replace(
        row,
        measured_link=load.kind,
        measured_links=load.links,
        rx_bytes=load.rx_bytes,
        tx_bytes=load.tx_bytes,
        rx_bytes_per_s=scaled(load.rx_bytes_per_s),
        tx_bytes_per_s=scaled(load.tx_bytes_per_s),
        is_same_window=load.is_same_window,
    )


def _measured_per_link(load: _Load, deployment: Deployment, instances_per_link: int) -> float:
    """How many measured links one modelled link is, on the mean.

    PCIe and NVLink: the GPUs of an instance. Ports: those of a node, over the modelled links that a
    node has; an instance of several nodes has the ports of all of them.
    """
    if load.kind in ("pcie", "nvlink"):
        return float(deployment.gpus)
    gpus_per_node = deployment.hardware.gpus_per_node
    instances = max(1.0, gpus_per_node / deployment.gpus)
    nodes = max(1, -(-deployment.gpus // gpus_per_node))
    links_per_node = max(1.0, instances / max(1, instances_per_link))
    return load.links / max(1, load.hosts) * nodes / links_per_node


def links_table(rows: Sequence[LinkRow]) -> dict[str, Table]:
    """The table, if any link was measured."""
    if not rows:
        return {}
    cells: list[list[Cell]] = [
        [
            row.option_id,
            row.link_id,
            row.measured_link,
            row.read_bytes,
            row.written_bytes,
            row.read_bytes_per_s,
            row.written_bytes_per_s,
            row.usable_bytes_per_s,
            row.measured_links,
            row.rx_bytes,
            row.tx_bytes,
            row.rx_bytes_per_s,
            row.tx_bytes_per_s,
            row.left_read_bytes_per_s,
            row.left_written_bytes_per_s,
            row.is_same_window,
        ]
        for row in rows
    ]
    return {LINKS_TABLE: _SHAPE.table(cells)}
