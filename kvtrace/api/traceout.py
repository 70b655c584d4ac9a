"""Timelines of a replay for a trace viewer (Chrome's trace event format, which Perfetto reads).

An instance is a process, a request a slice on a track of its own, its stages slices inside. A load
is drawn from the arrival on and the queue after it, since the queue counts what no move hid. The
bytes of each link are counters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

import polars as pl

from kvtrace.errors import UsageError
from kvtrace.store.files import write_atomically
from kvtrace.store.lock import unwritable
from kvtrace.units import NS_PER_S, parse_duration_ns

_US_PER_S: Final = 1e6
_STAGES: Final = ("lookup", "pull", "load", "queue", "prefill", "handoff", "decode")
_LINKS: Final = "links"
_MOST_INSTANCES: Final = 100_000
"""Process ids of one run are apart from those of the next by so many."""


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """Requests that were there at some time of [start, end), since the first replayed arrival."""

    start_s: float = 0.0
    end_s: float = 60.0


def parse_window(text: str) -> TraceWindow:
    """A window of a text such as `0s..60s`.

    Raises:
        UsageError: it is no window, or ends before it begins.
    """
    start, dots, end = text.partition("..")
    if not dots:
        raise UsageError("KVT-U026", f"`{text}` is no window", hint="`--window 0s..60s`")
    window = TraceWindow(parse_duration_ns(start) / NS_PER_S, parse_duration_ns(end) / NS_PER_S)
    if window.end_s <= window.start_s:
        raise UsageError("KVT-U027", f"`{text}` ends before it begins", hint="`--window 0s..60s`")
    return window


def write_trace(path: Path, frames: Mapping[str, pl.DataFrame], window: TraceWindow) -> None:
    """Write the window of all runs as one JSON document.

    Raises:
        OutputError: the file cannot be written.
    """
    document = {"displayTimeUnit": "ms", "traceEvents": list(trace_events(frames, window))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(document, allow_nan=False).encode())
    except OSError as error:
        raise unwritable(path, error) from error


def trace_events(
    frames: Mapping[str, pl.DataFrame], window: TraceWindow
) -> Iterator[dict[str, object]]:
    """The events of the window, run after run; times in microseconds."""
    for run in frames["replay_runs"].iter_rows(named=True):
        label = f"{run['scenario']} {run['changes']}".strip()
        number = int(run["run"])
        inside = frames["replay_requests"].filter(
            (pl.col("run") == number)
            & (pl.col("arrived_s") < window.end_s)
            & (pl.col("arrived_s") + pl.coalesce("e2e_s", "ttft_s") >= window.start_s)
        )
        yield from _requests(inside, number, label)
        links = frames["replay_links"].filter(
            (pl.col("run") == number)
            & (pl.col("start_s") < window.end_s)
            & (pl.col("start_s") + pl.col("width_s") > window.start_s)
        )
        yield from _counters(links, number, label)


def _process(number: int, instance: int) -> int:
    return number * _MOST_INSTANCES + instance + 1


def _requests(requests: pl.DataFrame, number: int, label: str) -> Iterator[dict[str, object]]:
    named: set[int] = set()
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[float, int]]] = {}
    for row in requests.sort("request_rank").iter_rows(named=True):
        process = _process(number, row["instance"])
        if process not in named:
            named.add(process)
            yield _name(process, f"{label}: instance {row['instance']}")
        start_s = row["arrived_s"]
        end_s = start_s + (row["ttft_s"] if row["e2e_s"] is None else row["e2e_s"])
        ends, idle = busy.setdefault(process, []), free.setdefault(process, [])
        while ends and ends[0][0] <= start_s:
            heappush(idle, heappop(ends)[1])
        track = heappop(idle) if idle else len(ends) + 1
        heappush(ends, (end_s, track))
        yield from _slices(row, process, track, end_s)


def _slices(
    row: Mapping[str, float | int | None], process: int, track: int, end_s: float
) -> Iterator[dict[str, object]]:
    start_s = float(row["arrived_s"] or 0.0)
    counts = ("prompt_tokens", "output_tokens", "hit_tokens", "loaded_tokens", "moved_bytes")
    about = {name: row[name] for name in counts}
    about["recompute_s"] = row["recompute_s"]
    yield _slice(f"request {row['request_rank']}", process, track, start_s, end_s, about)
    at_s = start_s
    for stage in _STAGES:
        spent_s = row[f"{stage}_s"] or 0.0
        if stage == "decode":
            spent_s -= row["handoff_s"] or 0.0
        if spent_s > 0:
            yield _slice(stage, process, track, at_s, at_s + spent_s, {})
            at_s += spent_s


def _slice(
    name: str, process: int, track: int, start_s: float, end_s: float, about: Mapping[str, object]
) -> dict[str, object]:
    start = round(start_s * _US_PER_S, 3)
    return {
        "name": name,
        "cat": "replay",
        "ph": "X",
        "pid": process,
        "tid": track,
        "ts": start,
        "dur": round(round(end_s * _US_PER_S, 3) - start, 3),
        "args": dict(about),
    }


def _name(process: int, name: str) -> dict[str, object]:
    return {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}}


def _counters(links: pl.DataFrame, number: int, label: str) -> Iterator[dict[str, object]]:
    process = _process(number, -1)
    if not links.is_empty():
        yield _name(process, f"{label}: {_LINKS}, bytes/s")
    for row in links.sort("link", "bucket").iter_rows(named=True):
        yield {
            "name": row["link"],
            "ph": "C",
            "pid": process,
            "ts": round(row["start_s"] * _US_PER_S, 3),
            "args": {
                "read": row["read_bytes"] / row["width_s"],
                "written": row["written_bytes"] / row["width_s"],
            },
        }
