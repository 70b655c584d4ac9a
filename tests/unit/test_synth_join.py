"""The three sample files, read by the product: one set of requests, joined and never added up."""

from __future__ import annotations

import polars as pl
import pytest

from kvtrace.ingest.pipeline import Ingested, ingest_paths
from kvtrace.reuse.facts import build_reuse
from kvtrace.synth.samples import LOG_NAME, METRICS_NAME, TRACE_NAME
from tests.conftest import REPO


@pytest.fixture(scope="module")
def ingested() -> Ingested:
    return ingest_paths([REPO / "sample_traces"], salt=b"s" * 32)


def headline(ingested: Ingested) -> pl.DataFrame:
    return ingested.frames["requests"].filter(pl.col("is_headline"))


def test_totals_count_every_request_once(ingested: Ingested) -> None:
    totals = ingested.totals
    assert totals.requests == 1448
    assert totals.requests_by_status == {"ok": 1448}
    assert (totals.prompt_tokens, totals.output_tokens) == (15_696_386, 242_317)
    assert (totals.block_refs, totals.distinct_blocks) == (245_964, 49_176)
    assert totals.block_size_tokens == 64
    assert totals.rejected == 0


def test_the_hashed_trace_leads_and_the_others_are_joined(ingested: Ingested) -> None:
    paths = {entry.file_id: entry.path for entry in ingested.files}
    roles = {
        tuple(paths[file] for file in source.files): (source.format, source.role, source.requests)
        for source in ingested.sources
    }
    assert roles == {
        (TRACE_NAME,): ("mooncake", "headline", 1448),
        (METRICS_NAME,): ("vllm_timing", "joined", 1448),
        (LOG_NAME,): ("vllm_text", "joined", 1448),
    }


def test_joined_times_are_known_for_every_request(ingested: Ingested) -> None:
    rows = headline(ingested)
    assert rows.height == 1448
    for column in ("arrived_at_ns", "queue_ns", "prefill_ns", "ttft_ns", "e2e_ns"):
        assert rows[column].null_count() == 0, column
    # The queue and the prefill make the TTFT: all three are of one simulated engine.
    assert (rows["queue_ns"] + rows["prefill_ns"] == rows["ttft_ns"]).all()


def test_cached_tokens_stay_unknown(ingested: Ingested) -> None:
    # No file says what was cached per request; the log's ratios are aggregates.
    assert ingested.totals.cached_tokens is None
    assert ingested.totals.cached_known_requests == 0


def test_the_log_gives_engine_facts_and_hit_ratios(ingested: Ingested) -> None:
    (log,) = [source for source in ingested.sources if source.format == "vllm_text"]
    assert log.engine_version == "0.13.0"
    assert log.engine_facts["llm"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert log.engine_facts["gpu"] == "NVIDIA L40S"
    assert log.engine_facts["kv_capacity_tokens"] == 131_072
    samples = ingested.frames["samples"].sort("observed_at_ns", "metric")
    last = {
        name: samples.filter(pl.col("metric") == name)["value"][-1]
        for name in ("prefix_hit_ratio", "external_prefix_hit_ratio")
    }
    assert last == {
        "prefix_hit_ratio": pytest.approx(0.379),
        "external_prefix_hit_ratio": pytest.approx(0.762),
    }


def test_reuse_of_an_unlimited_cache_is_a_little_above_what_the_engine_got(
    ingested: Ingested,
) -> None:
    reuse = build_reuse(headline(ingested), ingested.frames["blocks"], ingested.domains)
    reusable = reuse.filter(pl.col("is_reusable"))
    # Walked step by step with a set of seen blocks: 12 594 432 of 15 696 386 tokens.
    # The engine got 12 526 592: it never forgets a block in the pool, but finds whole chunks only.
    assert reusable["token_count"].sum() == 12_594_432
    assert reuse["token_count"].sum() == 15_696_386


def test_nothing_is_lost(ingested: Ingested) -> None:
    for entry in ingested.files:
        assert entry.rows_in == entry.kept + entry.rejected + entry.blank
        assert entry.rejected == entry.blank == 0
    ignored = {entry.path: entry.ignored_by_reason for entry in ingested.files}
    assert ignored[LOG_NAME] == {"access_line": 1448, "health_check": 71}
