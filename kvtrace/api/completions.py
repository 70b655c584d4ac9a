"""Values that a shell completes: read from small files of the package; nothing heavy is loaded."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, Literal

from kvtrace.query.folders import find_queries
from kvtrace.report.explain.names import finding_ids, light_names, query_names

Kind = Literal[
    "export", "finding", "format", "gate", "gpu", "hardware", "llm", "name", "option", "path",
    "policy", "query", "routing", "scenario", "synth",
]  # fmt: skip
_FORMAT_NAME: Final = re.compile(r'\b(?:Format\(\s*name=|log_format\(\s*(?:name=)?)"(\w+)"')
_WRITER_NAME: Final = re.compile(r'\bWriter\(\s*(?:format=)?"(\w+)"')
_EXPORTS: Final = ("aiperf", "csv", "dynamo", "kvcache-simulator", "mooncake", "vidur")
_POLICIES: Final = (
    "arc", "fifo", "flat_fifo", "leaf_lru", "length_aware", "lfu", "lru", "s3_fifo", "ttl",
)  # fmt: skip
_OPTIONS: Final = (
    "dram_idle", "dram_idle_kv_routing", "hbm_only", "kv_routing", "pool_dram_rdma_bounce",
    "pool_dram_rdma_direct", "pool_dram_tcp", "recompute",
)  # fmt: skip
"""Options that `kvtrace replay` takes by name."""
_ROUTINGS: Final = ("kv_centric", "kv_centric_exact", "round_robin", "session_sticky")
_PATHS: Final = (
    "dram_pcie", "file_system", "local_nvme", "object_store", "pool_rdma_bounce",
    "pool_rdma_direct", "pool_ssd", "pool_tcp",
)  # fmt: skip
_GATES: Final = (
    "confidence<", "findings>", "net_negative_share>", "p_pays<", "rejected_share>", "severity>=",
    "unconfirmed_assumptions>", "verdict=cannot_tell", "verdict=does_not_pay",
    "verdict=pays_only_if",
)  # fmt: skip
"""Beginnings of gates that are asked for most; `finding:ID` stands beside them."""


def complete(kind: Kind, start: str = "") -> list[str]:
    """Values of a kind that begin with `start`, sorted; the last of a list with commas."""
    before, comma, last = start.rpartition(",")
    found = light_names(find_queries(), last) if kind == "name" else _VALUES[kind]()
    return [f"{before}{comma}{one}" for one in sorted(set(found)) if one.startswith(last)]


def _ours() -> Traversable:
    """The package's own folder; naming a package below it would import that."""
    return resources.files("kvtrace")


def _data() -> Traversable:
    return _ours() / "cost" / "data"


def _column(file: str, column: str) -> Iterator[str]:
    text = (_data() / file).read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return (row[column] for row in rows)


def _gpus() -> Iterator[str]:
    return _column("gpus.csv", "gpu")


def _hardware() -> Iterator[str]:
    """GPUs, links, stores and `prices`."""
    yield from _gpus()
    yield from tomllib.loads((_data() / "links.toml").read_text(encoding="utf-8"))["links"]
    yield from tomllib.loads((_data() / "storage.toml").read_text(encoding="utf-8"))["tiers"]
    yield "prices"


def _formats() -> Iterator[str]:
    """Names of our formats, as they stand in their source."""
    for text in _sources(_ours() / "ingest" / "formats"):
        yield from _FORMAT_NAME.findall(text)


def _written() -> Iterator[str]:
    yield "all"
    for text in _sources(_ours() / "synth" / "formats"):
        yield from _WRITER_NAME.findall(text)


def _sources(folder: Traversable) -> Iterator[str]:
    for one in folder.iterdir():
        if one.name.endswith(".py"):
            yield one.read_text(encoding="utf-8")
        elif "." not in one.name and one.is_dir() and one.name != "__pycache__":
            yield from _sources(one)


def _scenarios() -> Iterator[str]:
    yield from _OPTIONS
    for one in (_ours() / "scenarios" / "scenarios").iterdir():
        yield one.name.removesuffix(".toml")


def _gates() -> Iterator[str]:
    yield from _GATES
    yield from (f"finding:{one}" for one in finding_ids())


_VALUES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "export": lambda: iter(_EXPORTS),
    "finding": lambda: iter(finding_ids()),
    "format": _formats,
    "gate": _gates,
    "gpu": _gpus,
    "hardware": _hardware,
    "llm": lambda: _column("llms.csv", "llm"),
    "option": lambda: iter(_OPTIONS),
    "path": lambda: iter(_PATHS),
    "policy": lambda: iter(_POLICIES),
    "query": lambda: query_names(find_queries()),
    "routing": lambda: iter(_ROUTINGS),
    "scenario": _scenarios,
    "synth": _written,
}
