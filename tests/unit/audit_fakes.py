"""A synthetic service for audit tests: round numbers, so that each result is worked out by hand.

2 000 requests of 10 000 tokens in blocks of 100; the first 70 blocks are shared, so all but the
first request could reuse 7 000 tokens. Prefill takes 0.04 s a token: 400 s for a whole prompt.
Eight instances of eight GPUs at $3.00 an hour: $17 520 an instance and month.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from kvtrace.audit.inputs import AuditInput, SettingValue
from kvtrace.audit.slo.check import check_slo
from kvtrace.audit.slo.ends import ENDS, EndFleet, RunKey
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet, default_fleet
from kvtrace.query.catalog import QueryResult
from kvtrace.replay.result import LinkUse, ReplayResult, Timeline
from kvtrace.replay.scenario import LinkSpec, LoadDecision, Scenario, TierSpec
from kvtrace.schema.arrays import FloatArray, RequestTrace
from kvtrace.schema.manifest import CacheDomain, FileEntry, Grade, Manifest, SourceEntry, Totals
from kvtrace.units import NS_PER_S

REQUESTS = 2000
PROMPT = 10_000
BLOCK = 100
SHARED_BLOCKS = 70
SPAN_S = 90_000.0
TOKEN_S = 0.04


@dataclass(frozen=True)
class LinearPrefill:
    """Seconds proportional to the new tokens."""

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        return TOKEN_S * new_tokens


@dataclass(frozen=True)
class FixedDecode:
    """A step takes 20 ms."""

    def step_s(self, batch: float, context_tokens: float) -> float:
        return 0.02


def make_trace(
    *, requests: int = REQUESTS, span_s: float = SPAN_S, shared_blocks: int = SHARED_BLOCKS
) -> RequestTrace:
    """Requests at equal distances; the first `shared_blocks` blocks of each are the same."""
    own = PROMPT // BLOCK - shared_blocks
    starts, blocks, offsets = [], [], [0]
    fresh = 0
    for index in range(requests):
        if index == 0:
            runs = [(0, PROMPT // BLOCK)]
            fresh = PROMPT // BLOCK
        else:
            runs = [(0, shared_blocks)] * (shared_blocks > 0) + [(fresh, own)]
            fresh += own
        starts += [start for start, _ in runs]
        blocks += [count for _, count in runs]
        offsets.append(len(starts))
    arrived = np.linspace(0, span_s * NS_PER_S, requests).astype(np.int64)
    return RequestTrace(
        request_key=np.arange(requests, dtype=np.int64),
        arrived_at_ns=arrived,
        prompt_tokens=np.full(requests, PROMPT, dtype=np.int64),
        output_tokens=np.full(requests, 100, dtype=np.int64),
        session=np.full(requests, -1, dtype=np.int64),
        run_offset=np.array(offsets, dtype=np.int64),
        run_start=np.array(starts, dtype=np.int64),
        run_blocks=np.array(blocks, dtype=np.int64),
        block_size_tokens=BLOCK,
        distinct_blocks=fresh,
        has_clock=True,
        output_known=True,
        clock_resolution_ns=1,
    )


def make_result(
    option_id: str,
    *,
    hits: Mapping[str, int],
    requests: int = REQUESTS,
    span_s: float = SPAN_S,
    queue_s: float = 0.0,
    pull_s: float = 0.0,
    load_s: float = 0.0,
    utilisation: float = 0.8,
    title: str | None = None,
    link_utilisation: float = 0.2,
    instances: int = 8,
    tier: TierSpec | None = None,
    load_decision: LoadDecision = "always",
    is_overloaded: bool = False,
    offered_load: float | None = None,
) -> ReplayResult:
    """Every request is served alike; `hits` are tokens by tier."""

    def each(value: float) -> FloatArray:
        return np.full(requests, value, dtype=np.float64)

    served = sum(hits.values())
    loaded = served - hits.get("hbm", 0)
    prefill_s = TOKEN_S * (PROMPT - served)
    recompute_hit_s = TOKEN_S * loaded
    moved = loaded * 1e6
    timeline = Timeline(
        instance=np.zeros(requests, dtype=np.int32),
        queue_s=each(queue_s),
        lookup_s=each(0.0),
        pull_s=each(pull_s),
        load_s=each(load_s),
        prefill_s=each(prefill_s),
        stall_s=each(0.0),
        ttft_s=each(queue_s + pull_s + load_s + prefill_s),
        tpot_s=each(float("nan")),
        e2e_s=each(queue_s + pull_s + load_s + prefill_s + 2.0),
        gpu_busy_s=each(prefill_s),
        recompute_s=each(TOKEN_S * PROMPT),
        recompute_hit_s=each(recompute_hit_s),
        hit_tokens={tier: np.full(requests, tokens, np.int64) for tier, tokens in hits.items()},
        computed_tokens=np.full(requests, PROMPT - served, dtype=np.int64),
        declined_tokens=np.zeros(requests, dtype=np.int64),
        declined_move_s=each(0.0),
        declined_recompute_s=each(0.0),
        moved_bytes=each(moved),
    )
    return ReplayResult(
        scenario=replace(
            make_scenario(option_id, title or option_id, tier=tier),
            instances=instances,
            load_decision=load_decision,
        ),
        span_s=span_s,
        timeline=timeline,
        link_use=(
            LinkUse("nic", 8, moved * requests, 0.0, span_s * link_utilisation, link_utilisation),
        ),
        prefill_utilisation=utilisation,
        hbm_evicted_blocks=0,
        is_overloaded=is_overloaded,
        offered_load=offered_load,
    )


def make_scenario(option_id: str, title: str, *, tier: TierSpec | None = None) -> Scenario:
    dram = TierSpec("host_dram", "instance", 1e12, 0.0, (), ())
    own = tier or (dram if option_id == "dram_idle" else None)
    return Scenario(
        option_id=option_id,
        title=title,
        instances=8,
        kv_bytes_per_token=1e6,
        hbm_capacity_bytes=1e11,
        tiers=() if own is None else (own,),
        links={"nic": LinkSpec("nic", "instance", 5e10)},
        prefill=LinearPrefill(),
        decode=FixedDecode(),
    )


@cache
def make_deployment() -> Deployment:
    return build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=8)


@cache
def make_fleet() -> Fleet:
    fleet = default_fleet(make_deployment(), 8)

    def stated(constant: Constant, value: float) -> Constant:
        return constant.given(value, source="fleet.toml")

    return replace(
        fleet,
        gpu_usd_per_hour=stated(fleet.gpu_usd_per_hour, 3.0),
        contract=replace(
            fleet.contract,
            kind=fleet.contract.kind.given("elastic", kind="given", source="fleet.toml"),
        ),
        pool_nodes=stated(fleet.pool_nodes, fleet.pool_nodes.value),
        pool_dram_bytes=stated(fleet.pool_dram_bytes, fleet.pool_dram_bytes.value),
        pool_nics_per_node=stated(fleet.pool_nics_per_node, fleet.pool_nics_per_node.value),
        dram_idle_bytes_per_instance=stated(
            fleet.dram_idle_bytes_per_instance, fleet.dram_idle_bytes_per_instance.value
        ),
    )


def make_manifest(
    grade: Grade = "A", *, requests: int = REQUESTS, format_name: str = "mooncake"
) -> Manifest:
    blocks = grade == "A"
    entry = FileEntry(
        file_id=0,
        path="trace.jsonl",
        format=format_name,
        format_reason="its keys",
        source_ids=[0],
        evidence_grade=grade,
        compression="none",
        byte_size=10,
        content_digest="ab" * 16,
        rows_in=requests + 3,
        kept=requests + 1,
        rejected=1,
        blank=1,
        used=requests,
        ignored=1,
        ignored_by_reason={"noise": 1},
        rejected_by_reason={"invalid_json": 1},
        clock="relative",
        clock_resolution_ns=1_000_000,
        clock_reason="starts at 0",
    )
    source = SourceEntry(
        source_id=0,
        format=format_name,
        evidence_grade=grade,
        role="headline" if grade != "C" else "beside",
        files=[0],
        requests=requests,
        samples=0,
        transfers=0,
        clock="relative",
    )
    domain = CacheDomain(
        cache_domain=0,
        source_id=0,
        scope="file",
        block_size_tokens=BLOCK,
        block_size_reason="inferred: ids = ceil(tokens / 100)",
        partial_tail="counted",
        ids="chained",
        block_refs=100 * requests,
        distinct_blocks=30 * requests + 70,
    )
    has_rows = grade != "C"
    return Manifest(
        schema_version=1,
        kvtrace_version="0.1.0",
        settings={},
        inputs_fingerprint="f",
        files=[entry],
        sources=[source],
        domains=[domain] if blocks else [],
        totals=Totals(
            requests=requests if has_rows else 0,
            requests_by_status={"ok": requests} if has_rows else {},
            prompt_tokens=PROMPT * requests if has_rows else None,
            output_tokens=100 * requests if has_rows else None,
            cached_tokens=3_000 * requests if grade == "B" else None,
            cached_known_requests=requests if grade == "B" else 0,
            cache_write_tokens=None,
            cached_tiers={"device": None, "host": None, "disk": None, "remote": None},
            block_refs=100 * requests if blocks else None,
            distinct_blocks=30 * requests + 70 if blocks else None,
            block_size_tokens=BLOCK if blocks else None,
            samples=0 if has_rows else 40,
            transfers=0,
            rejected=1,
        ),
        tables={},
        digest="cd" * 16,
    )


def query(rows: list[dict[str, Any]]) -> QueryResult:
    """A result with these rows; at least one row."""
    names = tuple(rows[0])
    return QueryResult(
        columns=names,
        units=tuple("unit" for _ in names),
        meanings=tuple("meaning" for _ in names),
        frame=pl.DataFrame(rows, infer_schema_length=None),
    )


def reuse_queries(
    *, requests: int = REQUESTS, shared_blocks: int = SHARED_BLOCKS
) -> dict[str, Any]:
    reusable = shared_blocks * (requests - 1)
    ratio = reusable / (100 * requests)
    return {
        "reuse/summary": query(
            [
                {
                    "requests": requests,
                    "block_refs": 100 * requests,
                    "reusable_blocks": reusable,
                    "reusable_tokens": reusable * BLOCK,
                    "prompt_tokens": requests * PROMPT,
                    "reusable_ratio_blocks": ratio,
                    "reusable_ratio_tokens": ratio,
                    "reusable_ratio_requests_mean": ratio,
                    "reusable_ratio_full_blocks": ratio,
                    "requests_with_reuse_ratio": (requests - 1) / requests,
                }
            ]
        ),
        "reuse/capacity_curve": query(
            [
                {
                    "capacity_blocks": 1000,
                    "capacity_bytes": 1e9,
                    "hit_blocks": 10,
                    "hit_tokens": 1000,
                    "hit_ratio_blocks": 0.1,
                    "hit_ratio_tokens": 0.1,
                }
            ]
        ),
    }


def prompt_buckets(*, requests: int = REQUESTS) -> QueryResult:
    return query(
        [{"prompt_bucket": 8192, "requests": requests, "prompt_tokens": requests * PROMPT}]
    )


CONFIRMED = (
    SettingValue("llm", "Meta-Llama-3.1-70B", "flag", True),
    SettingValue("hardware", "H100-SXM5", "flag", True),
    SettingValue("instances", 8, "flag", True),
    SettingValue("salt", "secret", "flag", True),
    SettingValue("lang", "en", "default", False),
)


def standard_replays(**changes: Any) -> tuple[ReplayResult, ...]:
    """HBM serves 2 000 tokens a request, routing 2 400, idle DRAM 2 800, a pool 6 400."""
    return (
        make_result("hbm_only", title="HBM only", hits={"hbm": 2000}, **changes),
        make_result("kv_routing", title="KV-centric routing", hits={"hbm": 2400}, **changes),
        make_result(
            "dram_idle",
            title="Idle DRAM",
            hits={"hbm": 2000, "host_dram": 800},
            load_s=1.0,
            **changes,
        ),
        make_result(
            "pool_dram_rdma_direct",
            title="Pool over RDMA",
            hits={"hbm": 2000, "pool": 4400},
            pull_s=8.0,
            load_s=2.0,
            **changes,
        ),
    )


def both_free(*, queue_s: float = 0.0, instances: int = 8) -> ReplayResult:
    """Idle DRAM and routing together serve a little less than idle DRAM alone."""
    return make_result(
        "dram_idle_kv_routing",
        title="Idle DRAM, routing",
        hits={"hbm": 2000, "host_dram": 790},
        load_s=1.0,
        queue_s=queue_s,
        instances=instances,
    )


def standard_fewer() -> tuple[ReplayResult, ...]:
    """On seven instances all wait 80 s: only the pool (234 s) stays below HBM's 320 s on eight.

    The others miss them by more than a tenth: idle DRAM takes 369 s, routing 384 s, HBM 400 s.
    """
    return tuple(
        make_result(
            result.scenario.option_id,
            title=result.scenario.title,
            hits={tier: int(tokens[0]) for tier, tokens in result.timeline.hit_tokens.items()},
            queue_s=80.0,
            pull_s=float(result.timeline.pull_s[0]),
            load_s=float(result.timeline.load_s[0]),
            instances=7,
        )
        for result in standard_replays()
    )


def standard_ends() -> tuple[EndFleet, ...]:
    """The same at both ends as at the middle: every option on seven instances against HBM on eight.

    Seconds of the model at hand do not change with the end, so its checks are those of the middle.
    """
    trace, today = make_trace(), standard_replays()[0]
    checks = {
        RunKey(one.scenario.option_id, 7, "always"): check_slo(trace, one, today)
        for one in (*standard_fewer(), both_free(queue_s=80.0, instances=7))
    }
    return tuple(EndFleet(end.title, checks) for end in ENDS)


def make_input(**changes: Any) -> AuditInput:
    """A service for which the pool pays; `changes` replace fields.

    Other replays come without replays on fewer instances, unless `changes` has them, and those of
    the ends of the constants come with them.
    """
    values: dict[str, Any] = {
        "manifest": make_manifest(),
        "queries": reuse_queries(),
        "replays": (*standard_replays(), both_free()),
        "fewer": ()
        if "replays" in changes
        else (*standard_fewer(), both_free(queue_s=80.0, instances=7)),
        "ends": () if "replays" in changes and "fewer" not in changes else standard_ends(),
        "trace": make_trace(),
        "deployment": make_deployment(),
        "fleet": make_fleet(),
        "settings": CONFIRMED,
        "seed": 7,
        "command": "kvtrace analyze trace.jsonl",
        "generated_at": None,
    }
    values.update(changes)
    return AuditInput(**values)
