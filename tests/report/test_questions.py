"""The questions of the reuse and latency sections: which numbers they say, draw and fold."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from kvtrace.audit.record import AuditRecord, Cell
from kvtrace.report.figures import all_charts
from kvtrace.report.format import NBSP
from kvtrace.report.html import render_html
from kvtrace.report.questions import SHORT_ROWS, Part, latency_parts, reuse_parts, still_climbing
from kvtrace.report.questions.facts import Row
from kvtrace.report.questions.latency import in_one_unit
from kvtrace.report.texts import load_texts
from tests.report.records import make_bare_record, make_record, make_table

EN = load_texts("en")
PREFIXES: list[list[Cell]] = [
    [1, None, 512, 512, 100, 40, 9_000, 0.09],
    [2, None, 300, 300, 30, 20, 5_000, 0.05],
    [3, 1, 900, 388, 12, 6, 4_000, 0.04],
    [4, 3, 1_000, 100, 5, 3, 400, 0.004],
]
"""Two roots; 3 goes on from 1, and 4 from 3."""


def add(
    record: AuditRecord, id: str, columns: dict[str, str], rows: list[list[Cell]]
) -> AuditRecord:
    """The record with one table more, as a query of this name gives it."""
    record.tables[id] = make_table(id, id, columns, rows, query=id)
    return record


def parts_of(record: AuditRecord, lang: Literal["en", "zh"] = "en") -> dict[str, Part]:
    """Every question by id."""
    texts = load_texts(lang)
    drawn = all_charts(record, texts)
    every = (*reuse_parts(record, texts, drawn), *latency_parts(record, texts))
    return {part.id: part for part in every}


def kinds(record: AuditRecord) -> AuditRecord:
    """Who shares: three quarters go on, the rest is shared."""
    return add(
        record,
        "sharing/continuation_and_sharing",
        {"kind": "name", "reusable_tokens": "tokens", "reusable_tokens_share": "ratio"},
        [["continuation", 75, 0.75], ["sharing", 25, 0.25]],
    )


def prefixes(record: AuditRecord, rows: list[list[Cell]]) -> AuditRecord:
    """The top prefixes."""
    columns = {
        "node": "rank",
        "parent_node": "rank",
        "depth_tokens": "tokens",
        "segment_tokens": "tokens",
        "requests": "requests",
        "conversations": "conversations",
        "saved_tokens": "tokens",
        "saved_ratio_tokens": "ratio",
    }
    return add(record, "sharing/top_prefixes", columns, rows)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_sentences_hold_the_numbers_of_their_query(lang: Literal["en", "zh"]) -> None:
    [sentence, *_] = parts_of(kinds(make_record()), lang)["sharing"].sentences
    assert "75\u00a0%" in sentence
    assert "25\u00a0%" in sentence


def test_prefixes_stand_below_the_one_that_they_go_on_from() -> None:
    record = prefixes(kinds(make_record()), PREFIXES)
    [tree] = parts_of(record)["sharing"].open_tables
    assert [(row[0].text, row[0].indent) for row in tree.rows] == [
        ("1", 0),
        ("3", 1),
        ("4", 2),
        ("2", 0),
    ]
    assert tree.source == "sharing/top_prefixes"
    assert 'class="num in-2" data-exact="4"' in render_html(record, lang="en")


def test_a_prefix_whose_parent_is_not_listed_is_a_root() -> None:
    record = prefixes(kinds(make_record()), [[7, 99, 10, 10, 2, 2, 10, 0.1]])
    [tree] = parts_of(record)["sharing"].open_tables
    assert [cells[0].indent for cells in tree.rows] == [0]


def test_long_tables_are_folded() -> None:
    columns = {
        "label": "name",
        "is_rest": "flag",
        "prompt_tokens": "tokens",
        "reusable_ratio_tokens": "ratio",
    }
    rows: list[list[Cell]] = [[f"t{i:02}", False, 10, i / 100] for i in range(SHORT_ROWS + 1)]
    short = parts_of(add(make_record(), "reuse/by_tenant", columns, rows[:-1]))["groups"]
    long = parts_of(add(make_record(), "reuse/by_tenant", columns, rows))["groups"]
    assert [len(short.open_tables), len(short.folded_tables)] == [1, 0]
    assert [len(long.open_tables), len(long.folded_tables)] == [0, 1]
    assert "t00" in short.sentences[0]
    assert "t11" in short.sentences[0]


def test_one_group_is_no_comparison() -> None:
    columns = {"label": "name", "is_rest": "flag", "reusable_ratio_tokens": "ratio"}
    groups = parts_of(add(make_record(), "reuse/by_llm", columns, [["one", False, 0.5]]))["groups"]
    assert groups.missing is not None
    assert "--mapping" in groups.missing


def test_block_sizes_are_ranges() -> None:
    columns = {
        "trace_block_tokens": "tokens",
        "block_tokens": "tokens",
        "certainty": "name",
        "reusable_ratio_tokens_low": "ratio",
        "reusable_ratio_tokens_high": "ratio",
    }
    rows: list[list[Cell]] = [[512, 16, "range", 0.37, 0.41], [512, 512, "exact", 0.37, 0.37]]
    part = parts_of(add(make_record(), "block_size/what_if", columns, rows))["block_size"]
    [chart] = part.charts
    assert chart.figure is not None
    most, least = json.loads(chart.figure)["data"]
    assert most["x"] == [0.41, 0.37]
    assert least["x"] == [0.37, 0.37]
    assert "37\u00a0% – 41\u00a0%" in part.sentences[0]


def test_a_pool_is_counted_over_hbm_and_dram() -> None:
    columns = {
        "routing": "name",
        "instances": "count",
        "dram_blocks": "blocks",
        "hbm_hit_ratio_tokens": "ratio",
        "dram_hit_ratio_tokens": "ratio",
        "over_hbm_hit_ratio_tokens": "ratio",
        "over_hbm_and_dram_hit_ratio_tokens": "ratio",
    }
    rows: list[list[Cell]] = [
        ["round_robin", 4, 0, 0.05, 0.0, 0.26, 0.26],
        ["round_robin", 4, 100, 0.05, 0.06, 0.26, 0.2],
    ]
    [chart] = parts_of(add(make_record(), "pooling/added", columns, rows))["pooling"].charts
    assert chart.figure is not None
    drawn = [trace["x"] for trace in json.loads(chart.figure)["data"]]
    assert drawn == [[0.05], [0.06], [0.2]]


def test_policies_that_were_not_simulated_name_their_command() -> None:
    missing = parts_of(make_record())["policies"].missing
    assert missing is not None
    assert "kvtrace policies" in missing


@pytest.mark.parametrize(("trend", "severity"), [("climbing", "warning"), ("falling", "info")])
def test_reuse_that_has_not_settled_is_said(trend: str, severity: str) -> None:
    columns = {
        "before_reusable_ratio_tokens": "ratio",
        "last_reusable_ratio_tokens": "ratio",
        "change_low_ratio": "ratio",
        "change_high_ratio": "ratio",
        "trend": "name",
    }
    record = add(make_record(), "reuse/still_climbing", columns, [[0.7, 0.8, 0.05, 0.15, trend]])
    notice = still_climbing(record, EN)
    assert notice is not None
    assert notice.severity == severity
    assert "70\u00a0%" in notice.text
    assert "80\u00a0%" in notice.text
    assert f'class="notice {severity}"' in render_html(record, lang="en")
    level = add(make_record(), "reuse/still_climbing", columns, [[0.7, 0.7, -0.1, 0.1, "level"]])
    assert still_climbing(level, EN) is None


def quantiles(record: AuditRecord) -> AuditRecord:
    """TTFT of two buckets, the second without P90."""
    key = {"traffic": "name", "metric": "name"}
    times = {
        f"{quantile}{end}_ms": "ms"
        for quantile in ("p50", "p90", "p95", "p99")
        for end in ("", "_low", "_high")
    }
    p90: list[Cell] = [900.0, 700.0, 1_200.0]
    none: list[Cell] = [None] * 3
    p50: list[Cell] = [200.0, 150.0, 260.0]
    add(
        record,
        "latency/quantiles",
        key | {"requests": "requests"} | times,
        [["production", "ttft", 50, *p50, *p90, *none, *none]],
    )
    return add(
        record,
        "latency/quantiles_by_prompt",
        key | {"prompt_bucket": "tokens", "requests": "requests"} | times,
        [
            ["benchmark", "ttft", 512, 40, 1.0, 1.0, 1.0, *p90, *none, *none],
            ["production", "ttft", 512, 40, *p50, *p90, *none, *none],
            ["production", "ttft", 1_024, 10, *p50, *none, *none, *none],
        ],
    )


def test_quantiles_have_the_ends_of_their_intervals() -> None:
    part = parts_of(quantiles(make_record()))["quantiles"]
    [chart] = part.small
    assert chart.figure is not None
    p50, p90 = json.loads(chart.figure)["data"]
    assert p50["y"] == [0.2, 0.2]  # of production alone
    assert p50["error_y"]["array"] == pytest.approx([0.06, 0.06])
    assert p50["error_y"]["arrayminus"] == pytest.approx([0.05, 0.05])
    assert p90["y"] == [0.9, None]
    assert p90["error_y"]["array"] == pytest.approx([0.3, 0.0])
    assert "P90" in part.sentences[0]  # the highest that is not withheld


def test_the_tail_is_split() -> None:
    columns = {
        "traffic": "name",
        "requests": "requests",
        "tail_requests": "requests",
        "tail_from_ms": "ms",
        "tail_ttft_mean_ms": "ms",
        "rest_ttft_mean_ms": "ms",
        "excess_ms": "ms",
        "excess_queue_ms": "ms",
        "excess_prefill_ms": "ms",
        "excess_other_ms": "ms",
        "queue_share": "ratio",
        "queue_share_low": "ratio",
        "queue_share_high": "ratio",
    }
    row: list[Cell] = ["production", 100, 10, 500.0, 900.0, 100.0, 800.0, 600.0, 200.0, 0.0]
    record = add(make_record(), "latency/tail_split", columns, [[*row, 0.75, 0.7, 0.8]])
    part = parts_of(record)["tail"]
    assert "75\u00a0%" in part.sentences[0]
    [chart] = part.charts
    assert chart.figure is not None
    assert [trace["x"] for trace in json.loads(chart.figure)["data"]] == [[0.6], [0.2], [0.0]]


def test_what_needs_blocks_is_said_once_where_there_are_none() -> None:
    parts = parts_of(make_bare_record())
    assert set(parts) == {"unanswered", "quantiles", "tail", "hits_help"}
    assert all(part.missing for part in parts.values())
    assert "--kv-events-config" in (parts["unanswered"].missing or "")


def test_no_part_is_empty() -> None:
    for part in parts_of(make_record()).values():
        says = part.sentences or part.charts or part.small or part.open_tables
        assert bool(says) != (part.missing is not None), part.id


def test_a_sentence_of_latencies_keeps_to_one_unit() -> None:
    # 8 621 ms beside 35.9 s reads as 8.62 s.
    table = quantiles(make_record()).tables["latency/quantiles"]
    values: dict[str, Cell] = {"p50": 8621.0, "p99": 35_931.0}
    cells: dict[str, Cell] = {f"{name}_ms": value for name, value in values.items()}
    for name, value in values.items():
        cells |= {f"{name}_low_ms": value, f"{name}_high_ms": value}
    row = Row(table, [cells.get(column) for column in table.columns])
    shown = in_one_unit(row, "p99", EN)
    assert [shown["p50"], shown["value"]] == [f"8.62{NBSP}s", f"35.9{NBSP}s"]
