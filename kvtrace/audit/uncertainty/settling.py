"""What would settle an open input: a capture or a statement, with the line to paste."""

from __future__ import annotations

from typing import Final

from kvtrace.cost.evidence import Constant
from kvtrace.units import GB, KIB, NS_PER_S, NS_PER_US

_CALIBRATE: Final = "kvtrace cost calibrate DATASET -o fitted.toml"
_HARDWARE: Final = "a measurement on your nodes, in the file of `--hardware`"
_FLEET: Final = "a look at your nodes, in the file of `--fleet`"
_FLEET_KEYS: Final = {
    "fleet.dram_idle_bytes_per_instance": "instances.dram_free",
    "fleet.pool_dram_bytes_per_s": "pool.dram_rate",
}
_HARDWARE_KEYS: Final = {
    "moves.chunk_bytes": "moves.chunk",
    "moves.dram_lookup_s": "moves.dram_lookup",
    "moves.pool_lookup_s": "moves.pool_lookup",
    "moves.handover_s": "moves.handover",
    "moves.load_efficiency": "moves.load_efficiency",
    "moves.load_contention": "moves.load_contention",
    "moves.rdma_setup_s": "rdma.setup",
    "moves.tcp_setup_s": "tcp.setup",
}
_BY_END: Final = (
    ("dram_read_bytes_per_s", "dram.read"),
    ("dram_write_bytes_per_s", "dram.write"),
)
_LINKS: Final = (("rdma", "rdma"), ("roce", "rdma"), ("tcp", "tcp"))
"""Beginnings of links' names, and their table of a hardware file; others join GPU and host."""


def settled_by(constant: Constant) -> tuple[str, str]:
    """What settles it, and the line; both empty where kvtrace knows no way to state it."""
    if constant.id.startswith("model_error."):
        what = "moves" if constant.id.endswith("moves") else "times of requests"
        return f"a log of this service with {what}, calibrated", _CALIBRATE
    if constant.id.startswith("efficiency."):
        return "a log of this service with times of requests, calibrated", _CALIBRATE
    if constant.id in _FLEET_KEYS:
        return _FLEET, f"{_FLEET_KEYS[constant.id]} = {_written(constant)}"
    key = _hardware_key(constant.id)
    return (_HARDWARE, f"{key} = {_written(constant)}") if key else ("", "")


def _hardware_key(ident: str) -> str:
    if ident in _HARDWARE_KEYS:
        return _HARDWARE_KEYS[ident]
    for end, key in _BY_END:
        if ident.endswith(end):
            return key
    if not ident.startswith("links."):
        return ""
    name, _, field = ident.removeprefix("links.").partition(".")
    table = next((table for begin, table in _LINKS if name.startswith(begin)), "host_link")
    return {"max_bytes_per_s": f"{table}.rate", "latency_s": f"{table}.latency"}.get(field, "")


def _written(constant: Constant) -> str:
    """The value as its file takes it."""
    if constant.unit == "B":
        is_round = constant.value < GB and constant.value % KIB == 0
        return f'"{constant.value / KIB:g}KiB"' if is_round else f'"{constant.value / GB:g}GB"'
    if constant.unit == "B/s":
        return f'"{constant.value / GB:g}GB/s"'
    if constant.unit == "s":
        return f'"{constant.value * NS_PER_S / NS_PER_US:g}us"'
    return f"{constant.value:g}"
