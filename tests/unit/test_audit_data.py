"""Data, validity and tables of the record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.data import build_data, dating_files, grade_of
from kvtrace.audit.inputs import SettingValue
from kvtrace.audit.record import CurvePoint, Data, Validity
from kvtrace.audit.reuse_kv import find_knee
from kvtrace.audit.tables.carried import MAX_ROWS, build_tables
from kvtrace.audit.tables.modelled import build_modelled_tables
from kvtrace.audit.window import deployment_validity
from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.fleet import default_fleet
from kvtrace.query.catalog import QueryResult
from kvtrace.report.view import table_view
from kvtrace.schema.manifest import CacheDomain, Manifest, Note, SourceEntry
from tests.unit.audit_fakes import (
    make_deployment,
    make_input,
    make_manifest,
    make_result,
    make_trace,
    query,
    reuse_queries,
    standard_replays,
)


def data_of(manifest: Manifest, *, span_s: float | None = 90_000.0) -> Data:
    return build_data(manifest, span_s=span_s, unconfirmed=())


def validity(data: Data, code: str) -> list[Validity]:
    return [entry for entry in data.validity if entry.code == code]


def source(grade: Any, role: Any, ident: int = 1) -> SourceEntry:
    return SourceEntry(
        source_id=ident,
        format="azure",
        evidence_grade=grade,
        role=role,
        files=[],
        requests=1,
        samples=0,
        transfers=0,
        clock="utc",
    )


@pytest.mark.parametrize(
    ("sources", "grade"),
    [
        ([], "C"),
        ([source("L", "headline")], "L"),
        ([source("L", "headline"), source("A", "joined", 2)], "A"),
        ([source("L", "headline"), source("A", "beside", 2)], "L"),
        ([source("B", "headline"), source("L", "joined", 2)], "B"),
        ([source("C", "beside")], "C"),
        ([source("L", "joined"), source("C", "headline", 2)], "L"),
    ],
)
def test_the_grade_is_that_of_the_source_used_for_reuse(
    sources: list[SourceEntry], grade: str
) -> None:
    assert grade_of(sources) == grade


def test_rejected_rows_are_stated_with_their_denominator() -> None:
    (entry,) = validity(data_of(make_manifest()), "rejected_rows")
    assert entry.message.startswith("1 of 2,003 rows")
    assert entry.severity == "warning"


def test_no_rejected_row_no_statement() -> None:
    manifest = make_manifest()
    manifest.totals.rejected = 0
    assert validity(data_of(manifest), "rejected_rows") == []


def test_short_and_unknown_windows_are_warnings() -> None:
    assert validity(data_of(make_manifest(), span_s=600.0), "span")[0].severity == "warning"
    assert validity(data_of(make_manifest(), span_s=None), "span")[0].severity == "warning"
    assert validity(data_of(make_manifest()), "span")[0].severity == "info"


def test_few_requests_withhold_p99() -> None:
    (entry,) = validity(data_of(make_manifest(requests=999)), "sample_size")
    assert (entry.severity, "P99 is not given" in entry.message) == ("warning", True)
    assert validity(data_of(make_manifest(requests=1000)), "sample_size")[0].severity == "info"


def test_block_size_inference_is_quoted() -> None:
    (entry,) = validity(data_of(make_manifest()), "block_size")
    assert entry.message == "Block size 100 tokens: inferred: ids = ceil(tokens / 100)"


def test_several_cache_domains_are_a_warning() -> None:
    manifest = make_manifest()
    first = manifest.domains[0]
    other = CacheDomain(
        cache_domain=1,
        source_id=0,
        scope="file",
        block_size_tokens=first.block_size_tokens,
        block_size_reason=first.block_size_reason,
        partial_tail="counted",
        ids="chained",
        block_refs=1,
        distinct_blocks=1,
    )
    manifest.domains.append(other)
    assert "2 cache domains" in validity(data_of(manifest), "cache_domains")[0].message


def test_sources_beside_are_named_and_not_added() -> None:
    manifest = make_manifest()
    manifest.sources.append(source("L", "beside"))
    data = data_of(manifest)
    assert "azure" in validity(data, "sources_beside")[0].message
    assert data.requests == 2000


def test_other_statuses_are_counted_aside() -> None:
    manifest = make_manifest()
    manifest.totals.requests_by_status = {"ok": 1990, "error": 7, "cancelled": 3, "open": 0}
    (entry,) = validity(data_of(manifest), "statuses")
    assert entry.message.endswith("left out: 3 cancelled, 7 error")


@pytest.mark.parametrize(("clock", "severity"), [("order", "warning"), ("relative", "info")])
def test_clock_is_stated(clock: Any, severity: str) -> None:
    manifest = make_manifest()
    manifest.files[0].clock = clock
    assert validity(data_of(manifest), "clock")[0].severity == severity


def dated_by_another() -> Manifest:
    """A headline trace with steps of 60 s, dated by a joined log with steps of 1 us."""
    manifest = make_manifest()
    theirs = source("L", "joined", 7)
    own = next(entry for entry in manifest.sources if entry.role == "headline")
    own.clock = theirs.clock
    own.notes.append(Note(code="clock_from_joined_source", message="arrivals are dated by azure"))
    joined = msgspec.structs.replace(
        manifest.files[0], file_id=9, source_ids=[7], clock="utc", clock_resolution_ns=1_000
    )
    manifest.files[0].clock, manifest.files[0].clock_resolution_ns = "relative", 60 * 10**9
    manifest.sources.append(theirs)
    manifest.files.append(joined)
    return manifest


def test_the_clock_is_that_of_the_source_that_dates_the_arrivals() -> None:
    (entry,) = validity(data_of(dated_by_another()), "clock")
    assert entry.message == "Clock: utc: arrivals are dated by azure"


def test_a_coarse_clock_of_its_own_is_no_matter_where_another_dates_the_arrivals() -> None:
    # 90 000 s over 1 999 gaps is 45 s: shorter than the 60 s of the headline, not than 1 us
    manifest = dated_by_another()
    dating = dating_files(manifest.sources, manifest.files)
    assert [entry.clock_resolution_ns for entry in dating] == [1_000]
    record = build_audit(make_input(manifest=manifest))
    assert "clock_coarse" not in {finding.id for finding in record.findings}


def test_unconfirmed_is_what_the_verdict_calls_so() -> None:
    settings = (
        SettingValue("llm", "x", "default", False),
        SettingValue("tp", 8, "flag", True),
        SettingValue("lang", "en", "default", False),
    )
    inputs = make_input(settings=settings, fleet=default_fleet(make_deployment(), 8))
    record = build_audit(inputs)
    (entry,) = validity(record.data, "assumptions_unconfirmed")
    assert (
        entry.message == "Estimates that nobody confirmed: llm, pool size, idle DRAM, GPU contract"
    )
    assert record.verdict.confidence_reasons[0].endswith("llm, pool size, idle DRAM, GPU contract")
    assert validity(build_audit(make_input()).data, "assumptions_unconfirmed") == []


def test_a_replay_of_a_part_says_so() -> None:
    part = make_input(
        trace=make_trace(requests=1500),
        replays=standard_replays(requests=1500),
        span_s=90_000.0,
    )
    (entry,) = validity(build_audit(part).data, "replayed_part")
    assert entry.message.startswith("Replayed on 1,500 of 2,000 requests: those of the largest")
    assert "--depth full" not in entry.message
    whole = build_audit(make_input())
    assert validity(whole.data, "replayed_part") == []
    assert whole.replay_window is not None
    assert whole.replay_window.is_whole_trace
    assert not whole.replay_window.is_peak_hour


def test_a_replayed_peak_hour_has_its_own_ceiling() -> None:
    hits = {"hbm": 2000, "pool": 4400}
    part = make_input(
        trace=make_trace(requests=100, span_s=3_600.0),
        replays=(make_result("pool_dram_tcp", hits=hits, requests=100, pull_s=300.0),),
        span_s=90_000.0,
    )
    record = build_audit(part)
    window = record.replay_window
    assert window is not None
    # 99 of 100 requests can reuse 7 000 of 10 000 tokens: 69.3 %; 1 999 of 2 000: 69.965 %.
    assert (window.requests, window.of_requests, window.span_s) == (100, 2000, 3_600.0)
    assert (window.reusable_tokens, window.prompt_tokens) == (99 * 7_000, 1_000_000)
    assert window.reusable_ratio_tokens == pytest.approx(0.693)
    assert window.is_peak_hour
    (entry,) = validity(record.data, "replayed_part")
    assert entry.message.startswith("Replayed on the peak hour: 100 of 2,000 requests")
    assert "--depth full" in entry.message
    assert "69.3 % of this window's prompt tokens, 70.0 % of the whole trace's" in entry.message
    slow = next(finding for finding in record.findings if finding.id == "net_negative_hits")
    assert "Replayed on the peak hour: 100 of 2,000 requests" in slow.message


@pytest.mark.parametrize("tp", [1, 8, 16])
def test_tensor_parallelism_that_heads_allow_is_no_warning(tp: int) -> None:
    # The LLM has 8 KV heads; ranks that cannot share them are refused before an audit.
    assert list(deployment_validity(replace(make_deployment(), tp=tp))) == []


def test_tensor_parallelism_beside_powers_of_two_is_unusual() -> None:
    # One latent is copied to any number of ranks; six of them are still odd.
    deployment = build_deployment("DeepSeek-V3", "H200-SXM", tp=6)
    (entry,) = deployment_validity(deployment)
    assert entry.code == "tp_unusual"


MEASURED = query(
    [
        {
            "ttft_known_requests": 2000,
            "ttft_p50_ms": 500.0,
            "ttft_p90_ms": 900.0,
            "queue_p50_ms": 100.0,
        }
    ]
)


def test_replays_stand_beside_what_was_measured() -> None:
    window = query(
        [
            {"third": 0, "engine_combined_hit_ratio": 0.6},
            {"third": 1, "engine_combined_hit_ratio": 0.5},
        ]
    )
    queries = reuse_queries() | {
        "latency/summary": MEASURED,
        "latency/hit_and_ttft_thirds": window,
    }
    record = build_audit(make_input(queries=queries))
    first, second, *_ = record.tables["replay/against_measured"].rows
    assert first[:6] == ["measured", 2000, 0.5, 0.9, 0.1, pytest.approx(0.6)]
    assert second[:2] == ["hbm_only", 2000]
    (entry,) = validity(record.data, "replay_against_measured")
    assert entry.severity == "info"
    assert "Measured TTFT p50 500 ms" in entry.message
    bare = make_input(queries=queries, fleet=default_fleet(make_deployment(), 8))
    (entry,) = validity(build_audit(bare).data, "replay_against_measured")
    assert entry.severity == "warning"
    assert "deployed configuration is unknown" in entry.message
    assert "replay/against_measured" not in build_audit(make_input()).tables


def test_why_no_hits_of_requests_are_known() -> None:
    samples = query(
        [
            {"metric": "prefix_hit_ratio", "value": 0.4},
            {"metric": "external_prefix_hit_ratio", "value": 0.7},
        ]
    )
    with_samples = build_audit(make_input(queries=reuse_queries() | {"samples/over_time": samples}))
    reason = with_samples.reuse.observed_unknown_reason
    assert reason is not None
    assert "HBM hit ratio and hit ratio below HBM" in reason
    assert "no source counts" in (build_audit(make_input()).reuse.observed_unknown_reason or "")


def test_no_replay_and_oversized_requests_are_warnings() -> None:
    bare = build_audit(make_input(replays=(), trace=None))
    assert validity(bare.data, "not_replayed")[0].severity == "warning"
    results = tuple(replace(result, oversized_requests=3) for result in standard_replays())
    large = build_audit(make_input(replays=results))
    assert validity(large.data, "oversized_requests")[0].message.startswith("3 requests need")


def test_long_results_are_cut_and_say_how_long_they_were() -> None:
    frame = pl.DataFrame({"n": range(MAX_ROWS + 5)})
    long = QueryResult(columns=("n",), units=("count",), meanings=("row",), frame=frame)
    short = query([{"a": 1.5, "b": None, "c": float("nan"), "d": [1, 2]}])
    tables = build_tables({"reuse/gaps": long, "own/question": short})
    assert len(tables["reuse/gaps"].rows) == MAX_ROWS
    assert tables["reuse/gaps"].truncated_from == MAX_ROWS + 5
    assert tables["reuse/gaps"].title == "Time between uses of a block"
    assert tables["own/question"].rows == [[1.5, None, None, "[1, 2]"]]
    assert tables["own/question"].truncated_from is None
    assert tables["own/question"].title == "Own: question"
    assert not tables["own/question"].is_modelled


def test_modelled_tables_are_marked_and_square() -> None:
    tables = build_modelled_tables(make_trace(), standard_replays(), make_deployment())
    assert sorted(tables) == [
        "cost/ledger",
        "replay/move_by_kv_bucket",
        "replay/move_by_prompt_bucket",
        "replay/over_time",
    ]
    for table in tables.values():
        assert table.is_modelled
        assert table.query is None
        assert len(table.columns) == len(table.units) == len(table.meanings)
        assert {len(row) for row in table.rows} == {len(table.columns)}
    (row,) = tables["replay/move_by_prompt_bucket"].rows
    cells = dict(zip(tables["replay/move_by_prompt_bucket"].columns, row, strict=True))
    # idle DRAM: 800 tokens loaded in 1 s against 0.04 x 800 = 32 s of recompute
    assert cells["option_id"] == "dram_idle"
    assert cells["prompt_bucket"] == 8192
    assert cells["hits"] == 2000
    assert cells["move_p50_s"] == pytest.approx(1.0)
    assert cells["recompute_p50_s"] == pytest.approx(32.0)
    assert cells["net_negative_ratio"] == 0.0


def test_regret_is_listed_by_rank_and_never_by_key() -> None:
    slow = make_result("dram_idle", hits={"hbm": 2000, "host_dram": 800}, load_s=50.0)
    table = build_modelled_tables(make_trace(), (slow,), make_deployment())["replay/top_regret"]
    assert len(table.rows) == 20
    assert "request_rank" in table.columns
    assert "request_key" not in table.columns


def test_curve_bytes_and_kv_come_from_their_queries() -> None:
    kv = query(
        [{"requests": 2000, "kv_bytes_requested": 4e12, "kv_bytes_p50": 2e9, "kv_bytes_p99": None}]
    )
    record = build_audit(make_input(queries=reuse_queries() | {"kv/summary": kv}))
    assert record.kv.bytes_per_token == 327_680
    assert record.kv.bytes_requested == 4e12
    assert record.kv.bytes_distinct is None
    assert record.kv.distribution.p50 == 2e9
    assert record.kv.distribution.p99 is None
    (point,) = record.reuse.hit_curve
    assert (point.capacity_blocks, point.capacity_bytes) == (1000, 1e9)


def test_a_table_says_what_it_rests_on() -> None:
    rows = query([{"capacity_blocks": 1, "hit_ratio_tokens": 0.1}])
    queries = reuse_queries() | {
        "latency/summary": MEASURED,
        "reuse/capacity_marks": rows,
        "pooling/added": rows,
    }
    tables = build_audit(make_input(queries=queries)).tables
    assert tables["latency/summary"].basis == "measured"
    assert tables["reuse/summary"].basis == "idealised"
    # Sizes of tiers are settings, not logs.
    assert tables["reuse/capacity_marks"].basis == "modelled"
    assert tables["pooling/added"].basis == "modelled"
    assert tables["replay/against_measured"].basis == "modelled"
    assert table_view(tables["reuse/capacity_marks"], origin="computed").origin == "modelled"
    assert table_view(tables["reuse/summary"]).origin == "computed"


def test_the_knee_is_where_more_room_adds_less_than_two_points() -> None:
    curve = [
        CurvePoint(
            capacity_blocks=blocks, capacity_bytes=None, hit_ratio_blocks=None, hit_ratio_tokens=hit
        )
        for blocks, hit in ((10, 0.1), (100, 0.57), (1000, 0.585), (10_000, 0.6))
    ]
    # 57 % is three points below 60 %, 58.5 % less than two.
    knee = find_knee(curve)
    assert knee is not None
    assert knee.capacity_blocks == 1000
    assert find_knee([]) is None
