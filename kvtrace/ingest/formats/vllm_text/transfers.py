"""`KV Transfer metrics:` lines: what a connector moved in one interval, pooled over all ranks.

Lines read from the sources of vLLM 0.11.0 to 0.33.0 and from pasted logs: NIXL and Mooncake print
counts and means of rank-level transfers, offloading prints sums by direction, and MultiConnector a
dict of each connector. Keys of other connectors are counted and not read.

One request on four tensor-parallel ranks is four transfers, and the times of all of them are
added; the wall time is not in the line. So a row has the bytes of all ranks and the sum of their
seconds, and bytes over seconds is the rate of one rank (so says the query of measured rates).
The number of ranks is not printed: null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from kvtrace.ingest.clocks import seconds_to_ns
from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.vllm_text.messages import DamagedMessage
from kvtrace.ingest.formats.vllm_text.stats import unlabelled
from kvtrace.units import MIB

TRANSFERS_START: Final = "KV Transfer metrics: "
_MAX_CHARS: Final = 20_000
_NUMBER: Final = r"-?\d{1,24}(?:\.\d{1,24})?(?:e[+-]?\d{1,3})?|nan|-?inf"
_FIELD = re.compile(
    rf"([A-Za-z][\w:. ()/-]{{0,80}})=({_NUMBER}|\{{[^{{}}]*+\}})(?:, |\.?$)", re.ASCII
)
_OTHER_FIELD = re.compile(
    r"([A-Za-z][\w:. ()/-]{0,80})=(?:[^,{}\[\]]{0,200}(?:, |$)|[{\[].*[}\]]$)"
)
_NESTED = re.compile(
    rf"'([^'\\{{}}]{{1,80}})': (?:np\.float64\()?({_NUMBER})\)?(?:, |$)",
    re.ASCII,
)
"""One number of a dict repr; numpy 2 prints its type around it."""

Direction = Literal["load", "store", "hand_off"]
Numbers = dict[str, Decimal | None]
"""Printed numbers by key; None where nan or inf stands."""


class _Offload(NamedTuple):
    """Keys of one direction of an offloading connector, and what they are to us."""

    bytes_key: str
    seconds_key: str
    direction: Direction
    path: str
    bytes_metric: str
    seconds_metric: str


_LOADED: Final = ("load", "host>device", "kv_loaded_bytes", "kv_load_s")
_STORED: Final = ("store", "device>host", "kv_stored_bytes", "kv_store_s")
_OFFLOADS: Final = (
    _Offload("vllm:kv_offload_store_bytes", "vllm:kv_offload_store_time", *_STORED),
    _Offload("vllm:kv_offload_load_bytes", "vllm:kv_offload_load_time", *_LOADED),
    _Offload("GPU_to_CPU_total_bytes", "GPU_to_CPU_total_time", *_STORED),
    _Offload("CPU_to_GPU_total_bytes", "CPU_to_GPU_total_time", *_LOADED),
)
_COUNT: Final = "Num successful transfers"
_MEAN_MS: Final = "Avg xfer time (ms)"
_MEAN_MB: Final = "Avg MB per transfer"
_RATE: Final = "Throughput (MB/s)"
_POST: Final = "Avg post time (ms)"
_WHOLE: Final = frozenset((_COUNT, _MEAN_MS, _MEAN_MB, _RATE))
_WHOLE_NIXL: Final = _WHOLE | {
    "P90 xfer time (ms)",
    _POST,
    "P90 post time (ms)",
    "Avg number of descriptors",
}
_FAILURES: Final = (
    # key, metric, unit
    ("Num failed transfers", "failed_kv_transfers", "transfers"),
    ("Num KV expired reqs", "kv_expired_requests", "requests"),
)
_KNOWN_KEYS: Final = _WHOLE_NIXL.union(
    (key for key, _, _ in _FAILURES),
    (offload.bytes_key for offload in _OFFLOADS),
    (offload.seconds_key for offload in _OFFLOADS),
)


@dataclass(frozen=True, slots=True)
class Move:
    """KV bytes of one direction, all ranks together; None where the line does not say."""

    direction: Direction
    path: str | None
    moved_bytes: int | None
    duration_ns: int | None
    """Summed over ranks and transfers."""


@dataclass(frozen=True, slots=True)
class ParsedTransfers:
    """What one line says; both empty if it has none of the known keys."""

    engine: str | None
    moves: tuple[Move, ...]
    metrics: tuple[Metric, ...]
    features: tuple[str, ...] = ("kv_transfer",)


def parse_transfers(message: str) -> ParsedTransfers:
    """The moves and metrics of a line.

    Raises:
        DamagedMessage: it is cut or spliced.
    """
    engine, body = unlabelled(message)
    moves: list[Move] = []
    metrics: list[Metric] = []
    features = ["kv_transfer"]
    numbers, nested = _fields(body[len(TRANSFERS_START) :])
    for connector, keys in [(None, numbers), *nested]:
        _read_peers(keys, moves, metrics, connector=connector)
        _read_offload(keys, moves, metrics, is_nested=connector is not None)
        for key, metric, unit in _FAILURES:
            if key in keys:
                metrics.append(_metric(metric, keys[key], unit))
                features.append("kv_failures")
    return ParsedTransfers(engine, tuple(moves), _added(metrics), tuple(features))


def _fields(body: str) -> tuple[Numbers, list[tuple[str | None, Numbers]]]:
    """(numbers of the line itself, those of each connector); other values are left out."""
    if not body or len(body) > _MAX_CHARS:
        raise DamagedMessage("KV transfer metrics")
    numbers: Numbers = {}
    nested: list[tuple[str | None, Numbers]] = []
    at = 0
    while at < len(body):
        match = _FIELD.match(body, at)
        if match is None:
            match = _OTHER_FIELD.match(body, at)
            if match is None or match[1] in _KNOWN_KEYS:
                raise DamagedMessage("KV transfer metrics")
        elif match[2][0] == "{":
            nested.append((match[1], _nested(match[2])))
        else:
            numbers[match[1]] = _number(match[2])
        at = match.end()
    return numbers, nested


def _nested(text: str) -> Numbers:
    """The numbers of a flat dict repr; empty if it is not one from end to end."""
    numbers: Numbers = {}
    at, end = 1, len(text) - 1
    while at < end:
        match = _NESTED.match(text, at, end)
        if match is None:
            return {}
        numbers[match[1]] = _number(match[2])
        at = match.end()
    return numbers


def _read_peers(
    keys: Numbers, moves: list[Move], metrics: list[Metric], *, connector: str | None
) -> None:
    """Transfers between instances: NIXL reads from the prefill instance; others do not say."""
    if _COUNT not in keys:
        return
    whole = _WHOLE_NIXL if _POST in keys else _WHOLE
    if connector is None and not whole <= keys.keys():
        raise DamagedMessage("KV transfer metrics")
    count = keys[_COUNT]
    moved_bytes = _product(count, keys.get(_MEAN_MB), Decimal(MIB))
    seconds = _product(count, keys.get(_MEAN_MS), Decimal("0.001"))
    metrics.append(_metric("kv_transfers", count, "transfers"))
    if _MEAN_MB in keys:
        metrics.append(_metric("kv_moved_bytes", moved_bytes, "bytes"))
    if _MEAN_MS in keys:
        metrics.append(_metric("kv_move_s", seconds, "s"))
    if count and _RATE in keys:
        rate = _product(keys[_RATE], Decimal(1), Decimal(MIB))
        metrics.append(_metric("transfer_bytes_per_s", rate, "bytes_per_s"))
    if count is None or count > 0:
        is_nixl = _POST in keys or (connector or "").startswith("Nixl")
        path = "remote>device" if is_nixl else None
        moves.append(Move("hand_off", path, _whole(moved_bytes), _ns(seconds)))


def _read_offload(
    keys: Numbers, moves: list[Move], metrics: list[Metric], *, is_nested: bool
) -> None:
    """Sums of an offloading connector, by direction."""
    for offload in _OFFLOADS:
        known = {offload.bytes_key, offload.seconds_key} & keys.keys()
        if not known:
            continue
        if len(known) == 1 and not is_nested:
            raise DamagedMessage("KV transfer metrics")
        moved_bytes, seconds = keys.get(offload.bytes_key), keys.get(offload.seconds_key)
        if offload.bytes_key in known:
            metrics.append(_metric(offload.bytes_metric, moved_bytes, "bytes"))
        if offload.seconds_key in known:
            metrics.append(_metric(offload.seconds_metric, seconds, "s"))
        if moved_bytes is None or moved_bytes > 0:
            bytes_and_ns = _whole(moved_bytes), _ns(seconds)
            moves.append(Move(offload.direction, offload.path, *bytes_and_ns))


def _number(text: str) -> Decimal | None:
    number = Decimal(text)
    return number if number.is_finite() else None


def _product(first: Decimal | None, second: Decimal | None, scale: Decimal) -> Decimal | None:
    """The product; None if one factor is not known."""
    return None if first is None or second is None else first * second * scale


def _whole(value: Decimal | None) -> int | None:
    """Bytes as an integer, nearest to what the printed mean gives; None if it cannot be one."""
    if value is None or not 0 <= value < 1 << 63:
        return None
    return int(value.to_integral_value())


def _ns(seconds: Decimal | None) -> int | None:
    return None if seconds is None or seconds < 0 else seconds_to_ns(seconds)


def _metric(name: str, value: Decimal | None, unit: str) -> Metric:
    number = float(value) if value is not None and value >= 0 else None
    return Metric(metric=name, value=number, unit=unit, window="interval")


def _added(metrics: list[Metric]) -> tuple[Metric, ...]:
    """Each metric once: several connectors of one line add up; their rates do not."""
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        known = by_name.get(metric.metric)
        total = None
        if known is not None and known.value is not None and metric.value is not None:
            total = None if metric.unit == "bytes_per_s" else known.value + metric.value
        by_name[metric.metric] = (
            metric
            if known is None
            else Metric(metric=metric.metric, value=total, unit=metric.unit, window="interval")
        )
    return tuple(by_name.values())
