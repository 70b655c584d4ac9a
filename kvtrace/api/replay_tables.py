"""The tables of replays: rows of what each did, and their commit to the dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

import numpy as np
import polars as pl

from kvtrace.api.setup import Setup
from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import Catalog, load_catalog
from kvtrace.replay.ledger import LinkStretches
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.window import WindowedTrace
from kvtrace.scenarios.load import Load
from kvtrace.schema.arrays import FloatArray, IntArray
from kvtrace.schema.manifest import DerivedParam
from kvtrace.schema.replayed import (
    REPLAY_HITS,
    REPLAY_LINKS,
    REPLAY_REQUESTS,
    REPLAY_RUNS,
    REPLAY_SWEEP,
)
from kvtrace.store.dataset import Dataset
from kvtrace.store.derived import write_derived, write_derived_tables

TABLES: Final = (REPLAY_RUNS, REPLAY_REQUESTS, REPLAY_HITS, REPLAY_LINKS)
SUMMARY: Final = "replay/summary"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay with what it was made of."""

    scenario: str
    changes: str
    setup: Setup
    load: Load
    windowed: WindowedTrace
    refused_requests: int
    result: ReplayResult
    links: tuple[LinkStretches, ...]
    width_s: float
    """Of the stretches of `links`."""
    wall_s: float
    """Seconds that the engine took; never in a table."""
    arrived_s: FloatArray
    """(replayed requests,) when each came, since the first one."""


def frames_of(runs: Sequence[Replayed]) -> dict[str, pl.DataFrame]:
    """The tables of these replays, numbered in their order."""
    made: Mapping[str, list[pl.DataFrame]] = {table.name: [] for table in TABLES}
    for number, one in enumerate(runs):
        made["replay_runs"].append(pl.DataFrame([_run(number, one)], REPLAY_RUNS.polars_schema()))
        made["replay_requests"].append(_requests(number, one))
        made["replay_hits"].append(_hits(number, one))
        made["replay_links"].append(_links(number, one))
    return {
        table.name: pl.concat([table.empty(), *made[table.name]]).sort(table.order_by)
        for table in TABLES
    }


def write_runs(dataset: Dataset, frames: Mapping[str, pl.DataFrame]) -> Dataset:
    """The dataset with the tables of these replays in place of earlier ones.

    Raises:
        OutputError: the folder cannot be written, or another run holds it.
    """
    runs = frames["replay_runs"]
    params: dict[str, DerivedParam] = {
        "scenarios": runs["scenario"].to_list(),
        "changes": runs["changes"].to_list(),
        "requests": runs["requests"].to_list(),
    }
    return write_derived_tables(dataset, frames, params)


def write_sweep(dataset: Dataset, rows: Sequence[Mapping[str, object]]) -> Dataset:
    """The dataset with the table of this sweep in place of an earlier one.

    Raises:
        OutputError: the folder cannot be written, or another run holds it.
    """
    frame = pl.DataFrame(list(rows), REPLAY_SWEEP.polars_schema())
    params: dict[str, DerivedParam] = {
        "scenarios": frame["scenario"].to_list(),
        "changes": frame["changes"].to_list(),
    }
    return write_derived(dataset, REPLAY_SWEEP.name, frame, params)


def ask(
    frames: Mapping[str, pl.DataFrame], queries: Sequence[str], catalog: Catalog | None = None
) -> dict[str, list[dict[str, object]]]:
    """The rows of queries over these tables alone, without a dataset."""
    catalog = load_catalog() if catalog is None else catalog
    with Session(threads=1) as session:
        for name, frame in frames.items():
            session.create_table(name, frame)
        return {
            name: list(catalog.run(session, name).frame.iter_rows(named=True)) for name in queries
        }


def _run(number: int, one: Replayed) -> dict[str, object]:
    scenario, result = one.result.scenario, one.result
    deployment = one.setup.deployment
    return {
        "run": number,
        "scenario": one.scenario,
        "changes": one.changes,
        "title": scenario.title,
        "load": one.load.words(),
        "llm": deployment.llm.name,
        "hardware": deployment.hardware.name,
        "tp": deployment.tp,
        "instances": scenario.instances,
        "routing": scenario.routing,
        "load_decision": scenario.load_decision,
        "load_mode": scenario.load_mode,
        "seed": scenario.seed,
        "requests": len(result.timeline.ttft_s),
        "warmup_requests": result.warmup_requests,
        "refused_requests": one.refused_requests,
        "oversized_requests": result.oversized_requests,
        "span_s": result.span_s,
        "kv_bytes_per_token": float(scenario.kv_bytes_per_token),
        "prefill_utilisation": result.prefill_utilisation,
        "offered_load": result.offered_load,
        "is_overloaded": result.is_overloaded,
        "hbm_evicted_blocks": result.hbm_evicted_blocks,
    }


def _requests(number: int, one: Replayed) -> pl.DataFrame:
    trace, timeline = one.windowed.window, one.result.timeline
    count = trace.requests
    hits = sum(timeline.hit_tokens.values(), start=np.zeros(count, dtype=np.int64))
    keys = pl.Series(trace.request_key)
    preemptions, preempted_s = _preempted(one.result, count)
    output, unknown = pl.Series(trace.output_tokens), pl.Series([None] * count)
    frame = pl.DataFrame(
        {
            "run": np.full(count, number, dtype=np.int32),
            "request_rank": np.arange(count, dtype=np.int64),
            "request_key": pl.select(pl.when(keys >= 0).then(keys)).to_series(),
            "instance": timeline.instance.astype(np.int32),
            "arrived_s": one.arrived_s,
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": output if trace.output_known else unknown,
            "hit_tokens": hits,
            "loaded_tokens": hits - timeline.hit_tokens["hbm"],
            "computed_tokens": timeline.computed_tokens,
            "moved_bytes": timeline.moved_bytes,
            "queue_s": timeline.queue_s,
            "lookup_s": timeline.lookup_s,
            "pull_s": timeline.pull_s,
            "load_s": timeline.load_s,
            "prefill_s": timeline.prefill_s,
            "stall_s": timeline.stall_s,
            "ttft_s": timeline.ttft_s,
            "handoff_s": timeline.handoff_s if len(timeline.handoff_s) else unknown,
            "preemptions": preemptions,
            "preempted_s": preempted_s,
            "decode_s": pl.Series(timeline.e2e_s - timeline.ttft_s),
            "tpot_s": pl.Series(timeline.tpot_s),
            "e2e_s": pl.Series(timeline.e2e_s),
            "gpu_busy_s": timeline.gpu_busy_s,
            "recompute_s": timeline.recompute_s,
            "recompute_loaded_s": timeline.recompute_hit_s,
            "declined_tokens": timeline.declined_tokens,
            "declined_move_s": timeline.declined_move_s,
            "declined_recompute_s": timeline.declined_recompute_s,
        },
    )
    frame = frame.with_columns(
        pl.col("tpot_s", "e2e_s").fill_nan(None),
        pl.when(pl.col("tpot_s").is_not_nan()).then("decode_s").alias("decode_s"),
    )
    return frame.cast(REPLAY_REQUESTS.polars_schema())  # type: ignore[arg-type]


def _preempted(result: ReplayResult, count: int) -> tuple[IntArray, FloatArray]:
    """(requests,) twice: how often each was preempted, and how long it waited for room again."""
    times = np.zeros(count, dtype=np.int64)
    waits: dict[int, list[float]] = {}
    for request, since_s, until_s in result.preempted:
        times[request] += 1
        waits.setdefault(request, []).append(until_s - since_s)
    waited_s = np.zeros(count)
    for request, seconds in waits.items():
        waited_s[request] = fsum(seconds)
    return times, waited_s


def _hits(number: int, one: Replayed) -> pl.DataFrame:
    rows = []
    for position, (tier, tokens) in enumerate(one.result.timeline.hit_tokens.items()):
        ranks = np.flatnonzero(tokens > 0)
        rows.append(
            pl.DataFrame(
                {
                    "run": np.full(len(ranks), number, dtype=np.int32),
                    "request_rank": ranks.astype(np.int64),
                    "tier": [tier] * len(ranks),
                    "tier_position": np.full(len(ranks), position, dtype=np.int32),
                    "hit_tokens": tokens[ranks].astype(np.int64),
                },
                REPLAY_HITS.polars_schema(),
            )
        )
    return pl.concat([REPLAY_HITS.empty(), *rows])


def _links(number: int, one: Replayed) -> pl.DataFrame:
    rows = []
    for link in one.links:
        count = len(link.read_bytes)
        buckets = np.arange(count, dtype=np.int64)
        rows.append(
            pl.DataFrame(
                {
                    "run": np.full(count, number, dtype=np.int32),
                    "link": [link.link_id] * count,
                    "bucket": buckets,
                    "start_s": buckets * one.width_s,
                    "width_s": np.full(count, one.width_s),
                    "links": np.full(count, link.links, dtype=np.int64),
                    "link_bytes_per_s": np.full(count, link.bytes_per_s),
                    "read_bytes": link.read_bytes,
                    "written_bytes": link.written_bytes,
                },
                REPLAY_LINKS.polars_schema(),
            )
        )
    return pl.concat([REPLAY_LINKS.empty(), *rows])
