"""Data, validity and tables of the record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.data import build_data, grade_of
from kvtrace.audit.inputs import SettingValue
from kvtrace.audit.modelled_tables import build_modelled_tables
from kvtrace.audit.record import Data, Validity
from kvtrace.audit.tables import MAX_ROWS, build_tables
from kvtrace.query.catalog import QueryResult
from kvtrace.schema.manifest import CacheDomain, Manifest, SourceEntry
from tests.unit.audit_fakes import (
    make_deployment,
    make_input,
    make_manifest,
    make_trace,
    query,
    standard_replays,
)


def data_of(manifest: Manifest, *, span_s: float | None = 90_000.0) -> Data:
    return build_data(manifest, span_s=span_s, settings=())


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


def test_unconfirmed_defaults_are_listed() -> None:
    settings = (SettingValue("llm", "x", "default", False), SettingValue("tp", 8, "flag", True))
    data = build_data(make_manifest(), span_s=1.0, settings=settings)
    (entry,) = validity(data, "assumptions_unconfirmed")
    assert "llm" in entry.message
    assert "tp" not in entry.message


def test_a_replay_of_a_part_says_so() -> None:
    part = make_input(
        trace=make_trace(requests=1500),
        replays=standard_replays(requests=1500),
        span_s=90_000.0,
    )
    (entry,) = validity(build_audit(part).data, "replayed_part")
    assert entry.message.startswith("The options were replayed on 1,500 of 2,000 requests")
    assert validity(build_audit(make_input()).data, "replayed_part") == []


def test_no_replay_and_oversized_requests_are_warnings() -> None:
    bare = build_audit(make_input(replays=(), trace=None))
    assert validity(bare.data, "not_replayed")[0].severity == "warning"
    results = tuple(replace(result, oversized_requests=3) for result in standard_replays())
    large = build_audit(make_input(replays=results))
    assert validity(large.data, "oversized_requests")[0].message.startswith("3 requests")


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
    from tests.unit.audit_fakes import make_result

    slow = make_result("dram_idle", hits={"hbm": 2000, "host_dram": 800}, load_s=50.0)
    table = build_modelled_tables(make_trace(), (slow,), make_deployment())["replay/top_regret"]
    assert len(table.rows) == 20
    assert "request_rank" in table.columns
    assert "request_key" not in table.columns


def test_curve_bytes_and_kv_come_from_their_queries() -> None:
    kv = query(
        [{"requests": 2000, "kv_bytes_requested": 4e12, "kv_bytes_p50": 2e9, "kv_bytes_p99": None}]
    )
    from tests.unit.audit_fakes import reuse_queries

    record = build_audit(make_input(queries=reuse_queries() | {"kv/summary": kv}))
    assert record.kv.bytes_per_token == 327_680
    assert record.kv.bytes_requested == 4e12
    assert record.kv.bytes_distinct is None
    assert record.kv.distribution.p50 == 2e9
    assert record.kv.distribution.p99 is None
    (point,) = record.reuse.hit_curve
    assert (point.capacity_blocks, point.capacity_bytes) == (1000, 1e9)
