"""What a log can be good for, question by question, and how to tell whether a file is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kvtrace.ingest.columns import FileRows
from kvtrace.schema.metrics import HIT_METRICS, LINK_METRICS


class Capability(NamedTuple):
    """A question that an audit asks of its logs."""

    question: str
    columns: tuple[str, ...]
    """Request columns of which one known value answers it."""


CAPABILITIES: Final[dict[str, Capability]] = {
    "requests": Capability("which requests there were, one by one", ("request_key",)),
    "arrivals": Capability("when requests arrived", ("arrived_at_ns",)),
    "prompt_tokens": Capability("prompt lengths", ("prompt_tokens",)),
    "output_tokens": Capability("output lengths", ("output_tokens",)),
    "reuse": Capability("reuse at any cache capacity", ()),
    "cached_tokens": Capability("cached tokens of a request", ("cached_tokens",)),
    "tier_split": Capability(
        "which tier served the cached tokens",
        ("cached_host_tokens", "cached_disk_tokens", "cached_remote_tokens"),
    ),
    "sessions": Capability("which requests are one conversation", ("session_key", "parent_key")),
    "ttft": Capability("time to first token of a request", ("ttft_ns",)),
    "queue": Capability("queueing time of a request", ("queue_ns",)),
    "e2e": Capability("duration of a request", ("e2e_ns",)),
    "moves": Capability("what moving KV cost", ()),
    "hit_ratio": Capability("hit ratio over time", ()),
    "observation_times": Capability("when the observations were made", ()),
    "links": Capability("bytes on PCIe, NVLink and network ports", ()),
    "production": Capability("what production traffic does (this is a benchmark)", ()),
    "block_events": Capability("what the cache stored and removed", ()),
}
"""The keys of `Format.missing`."""


def question(name: str) -> str:
    """The words of a key of `Format.missing`."""
    return CAPABILITIES[name].question if name in CAPABILITIES else name


def answered(rows: Iterable[FileRows]) -> set[str]:
    """The capabilities that these rows have."""
    found: set[str] = set()
    for part in rows:
        frame = part.requests
        for name, capability in CAPABILITIES.items():
            if any(frame[column].null_count() < len(frame) for column in capability.columns):
                found.add(name)
        if len(part.block_counts):
            found.add("reuse")
        if not part.transfers.is_empty():
            found.add("moves")
        if part.samples["metric"].is_in(HIT_METRICS).any():
            found.add("hit_ratio")
        if part.samples["metric"].is_in(LINK_METRICS).any():
            found.add("links")
        observed = (part.samples["observed_at_ns"], part.block_events["observed_at_ns"])
        if any(times.null_count() < len(times) for times in observed):
            found.add("observation_times")
        if not part.block_events.is_empty():
            found.add("block_events")
    return found
