"""Statistics of the transfer engine (`MC_TE_METRIC=1`) and summaries of store clients.

Lines read from the sources of Mooncake v0.3.8 to mid-2026. MB of the engine is 2^20; latency is of
one task; buckets with less than 0.1 % are not printed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.mooncake_store.units import SIZE
from kvtrace.units import MIB, NS_PER_S

ENGINE: Final = "[Metrics] Transfer Engine Stats "
_MAX_CHARS: Final = 4_096
_D = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_US = "(?:\u00b5s|\u03bcs|us)"
_STATS = re.compile(
    rf"\(over last ([0-9]{{1,6}})s\):(?: Throughput: ({_D}) MB/s)?"
    r"(?: \| Latency Distribution \(count=([0-9]{1,15})\): ([^|]{1,3000}))?"
)
_BUCKET = re.compile(rf"(?:([0-9]{{1,12}})-([0-9]{{1,12}})|>([0-9]{{1,12}})){_US}:({_D})%")
_QUANTILES: Final = (50, 90, 99)
_SLACK_PERCENT: Final = Decimal("0.05")
"""Shares are printed with one digit."""


def parse_engine(message: str) -> list[Metric] | None:
    """The metrics of one line of the transfer engine; None if it is not whole."""
    match = _STATS.fullmatch(message, len(ENGINE)) if len(message) < _MAX_CHARS else None
    if match is None:
        return None
    seconds, rate, count, buckets = match.groups()
    window_ns = int(seconds) * NS_PER_S
    values: list[tuple[str, float | None, str]] = []
    if rate is not None:
        values.append(("transfer_bytes_per_s", float(Decimal(rate) * MIB), "bytes_per_s"))
    if count is not None:
        latencies = _latencies(buckets)
        if latencies is None:
            return None
        values.append(("transfer_tasks", float(count), "transfers"))
        values += latencies
    return [
        Metric(metric=name, value=value, unit=unit, window="interval", window_ns=window_ns)
        for name, value, unit in values
    ]


def _latencies(text: str) -> list[tuple[str, float | None, str]] | None:
    """Bounds of the quantiles and the share past the last bound; None if a bucket is damaged."""
    bounds: list[tuple[int, Decimal]] = []
    slow: Decimal | None = None
    for part in text.split(", "):
        match = _BUCKET.fullmatch(part)
        if match is None or slow is not None:
            return None
        share = Decimal(match[4])
        if match[3] is not None:
            slow = share
        else:
            bounds.append((int(match[2]), share))
    if sum((share for _, share in bounds), slow or Decimal(0)) > 100 + len(bounds):
        return None
    values: list[tuple[str, float | None, str]] = [
        (f"transfer_p{quantile}_le_s", _bound_s(bounds, quantile), "s") for quantile in _QUANTILES
    ]
    if slow is not None:
        values.append(("transfer_slow_ratio", float(slow.scaleb(-2)), "ratio"))
    return values


def _bound_s(bounds: list[tuple[int, Decimal]], quantile: int) -> float | None:
    """The upper end of the bucket that a quantile lies in; None past the last bound."""
    total = Decimal(0)
    for upper_us, share in bounds:
        total += share
        if total + _SLACK_PERCENT >= quantile:
            return float(Decimal(upper_us).scaleb(-6))
    return None


SUMMARY_STARTS: Final = ("Client Metrics Report", "=== Transfer Metrics Summary ===")
HEADING: Final = re.compile(
    r"=== (?:[A-Z][A-Za-z]{1,20} ){1,4}Summary(?: \(microseconds\))? ===|Client Metrics Summary"
)
TOTAL: Final = re.compile(rf"Total (Read|Write): ({SIZE})")
RATE: Final = re.compile(
    rf"Average (?:Read|Write) Throughput: {SIZE}/s|Average \w+ Throughput: N/A"
)
LATENCY: Final = re.compile(
    rf"((?:Batch )?(?:Get|Put)): (?:No data|count=([0-9]{{1,15}})(?:, p95<({_D}){_US})?"
    rf"(?:, max<{_D}{_US})?)"
)
CALLS: Final = re.compile(
    rf"[A-Z]\w{{1,40}}: count=[0-9]{{1,15}}(?:, p95<{_D}{_US})?(?:, max<{_D}{_US})?"
    r"|No RPC calls recorded"
)
