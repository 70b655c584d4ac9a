"""Prometheus expositions: counters become gains, gauges stay, nothing becomes a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.prometheus import FORMATS
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.prometheus.exposition import parse_labels, parse_sample, stamp_ns
from kvtrace.ingest.prometheus.observe import QUANTILES
from kvtrace.ingest.prometheus.series import PROGRAMS, resolve
from kvtrace.ingest.registry import all_formats
from kvtrace.schema.metrics import METRICS
from kvtrace.units import NS_PER_S
from tests.formats.reading import DATA, Reading, read_bytes, sniffed

PROMETHEUS = FORMATS[0]
FILES = DATA / "prometheus"
START_NS = 1_767_225_600 * NS_PER_S


def reading(name: str) -> Reading:
    return read_bytes(PROMETHEUS, (FILES / name).read_bytes())


def metrics(read: Reading, row: int) -> dict[str, Metric]:
    return {metric.metric: metric for metric in read.samples[row].metrics}


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


# One scrape after another


def test_counters_are_differenced_between_marked_scrapes() -> None:
    read = reading("vllm.prom")
    assert read.requests == []
    assert [row.observed_at_ns for row in read.samples] == [
        START_NS,
        START_NS,  # cache_config_info does not say the model
        START_NS + 15 * NS_PER_S,
        START_NS + 30 * NS_PER_S,
    ]
    second = metrics(read, 2)
    # prompt 3000 − 1000; computed 980 − 480; local hits 1400 − 400; of 2000 looked up
    assert second["prompt_tokens"].value == 2000
    assert second["computed_tokens"].value == 500
    assert second["prefix_hit_ratio"] == Metric(
        metric="prefix_hit_ratio",
        value=0.5,
        unit="ratio",
        hit_unit="tokens",
        window="interval",
        window_ns=15 * NS_PER_S,
        numerator=1000,
        denominator=2000,
    )
    # external: (620 − 120) of (1600 − 600); both: (1000 + 500) of 2000
    assert second["external_prefix_hit_ratio"].value == 0.5
    assert second["prompt_hit_ratio"].value == 0.75
    assert second["request_computed_tokens"].value == 50  # (980 − 480) / (15 − 5)


def test_the_first_scrape_is_cumulative_and_gauges_are_instants() -> None:
    first = metrics(reading("vllm.prom"), 0)
    assert first["prompt_tokens"].window == "cumulative"
    assert first["prompt_tokens"].window_ns is None
    assert first["prompt_hit_ratio"].value == 0.52  # (400 + 120) / 1000
    assert first["kv_usage_ratio"].value == 0.25
    assert first["kv_usage_ratio"].window == "instant"
    assert first["waiting_requests"].value == 0


def test_tier_split_replaces_what_is_only_external() -> None:
    second = metrics(reading("vllm.prom"), 2)
    assert second["cached_device_tokens"].value == 1000
    assert second["cached_host_tokens"].value == 400
    assert second["cached_disk_tokens"].value == 70  # came up only now: from 0
    assert second["cached_external_tokens"].value == 30  # not the 500 of external_kv_transfer


def test_a_label_value_that_comes_up_later_began_at_zero() -> None:
    # stop 10 − 4, length 1 − 1, abort 2 − 0
    assert metrics(reading("vllm.prom"), 2)["finished_requests"].value == 8


def test_a_missing_series_after_damage_is_not_taken_for_a_new_one() -> None:
    read = read_bytes(
        PROMETHEUS,
        text(
            "# scrape_ts 1767225600",
            'vllm:request_success_total{finished_reason="stop"} 4',
            'vllm:request_success_total{finished_reason="length"} 5 0 0',
            "# scrape_ts 1767225610",
            'vllm:request_success_total{finished_reason="stop"} 6',
            'vllm:request_success_total{finished_reason="length"} 900',
        ),
    )
    assert read.rejected == [(3, "damaged_line")]
    assert read.metric("finished_requests") == [4, None]  # never 2 + 900


def test_a_restart_counts_from_zero_for_every_counter_of_the_engine() -> None:
    read = reading("vllm.prom")
    third = metrics(read, 3)
    # queries fell from 3000 to 500; hits 100 of 500; stop rose from 10 to 12, but from 0 again
    assert third["prefix_hit_ratio"].numerator == 100
    assert third["prefix_hit_ratio"].denominator == 500
    assert third["finished_requests"].value == 12
    assert "counters_restarted" in read.note_codes


def test_another_creation_time_is_a_restart() -> None:
    read = reading("openmetrics.prom")
    assert read.metric("prompt_tokens") == [100, 150]  # not 50: created at …611, not at …000
    assert [row.observed_at_ns for row in read.samples] == [
        START_NS + NS_PER_S // 2,
        START_NS + 30 * NS_PER_S + NS_PER_S // 2,
    ]


def test_upper_bounds_come_from_the_buckets_of_the_window() -> None:
    second = metrics(reading("vllm.prom"), 2)
    # of 10 in the window: 6 up to 0.1 s, 9 up to 0.5 s, 1 above
    assert second["ttft_s"].value == pytest.approx(0.3)  # (3.4 − 0.4) / 10
    assert second["ttft_p50_le_s"].value == 0.1
    assert second["ttft_p90_le_s"].value == 0.5
    assert second["ttft_p99_le_s"].value is None
    assert second["ttft_p50_le_s"].window_ns == 15 * NS_PER_S


def test_scrapes_without_time_are_told_by_repetition() -> None:
    read = reading("unmarked.prom")
    assert read.context.clock == "order"
    assert [row.engine for row in read.samples] == [
        "instance 1 engine 0",
        "instance 2 engine 0",
    ] * 2
    assert read.metric("prompt_tokens") == [100, 900, 50, 100]
    assert metrics(read, 2)["prompt_tokens"].window == "interval"
    assert metrics(read, 2)["prompt_tokens"].window_ns is None
    assert "scrape_time_unknown" in read.note_codes


def test_points_of_one_series_after_the_other_are_put_together_by_their_stamps() -> None:
    read = read_bytes(
        PROMETHEUS,
        text(
            "vllm:prefix_cache_queries_total 100 1767225600",
            "vllm:prefix_cache_queries_total 300 1767225660",
            "vllm:prefix_cache_hits_total 10 1767225600",
            "vllm:prefix_cache_hits_total 60 1767225660",
            "# EOF",
        ),
    )
    assert read.metric("prefix_hit_ratio") == [0.1, 0.25]  # 50 of 200


def test_equal_markers_are_one_scrape_and_a_series_counts_once_in_it() -> None:
    read = read_bytes(
        PROMETHEUS,
        text(
            "# scrape_ts 1767225600",
            'vllm:prompt_tokens_total{engine="0"} 5',
            "# scrape_ts 1767225600",
            'vllm:prompt_tokens_total{engine="1"} 6',
            'vllm:prompt_tokens_total{engine="1"} 7',
        ),
    )
    assert [(row.engine, row.metrics[0].value) for row in read.samples] == [("0", 5), ("1", 6)]
    assert read.ignored == {"repeated_sample": 1}
    assert "repeated_samples" in read.note_codes


def test_alternating_targets_without_a_label_are_told() -> None:
    lines: list[str] = []
    for number in range(10):
        lines.append(f"# scrape_ts {1_767_225_600 + number}")
        lines.append(f"vllm:prompt_tokens_total {(1000 if number % 2 else 10) + number}")
    assert "scrapes_interleaved" in read_bytes(PROMETHEUS, text(*lines)).note_codes


# What names mean


def test_old_names_count_what_help_says() -> None:
    read = reading("vllm_08.prom")
    ratio = metrics(read, 0)["prefix_hit_ratio"]
    assert (ratio.value, ratio.hit_unit) == (0.25, "blocks")
    assert read.context.engine_version == ">=0.7.0,<0.9.0"
    later = (FILES / "vllm_08.prom").read_bytes().replace(b"blocks", b"tokens")
    assert metrics(read_bytes(PROMETHEUS, later), 0)["prefix_hit_ratio"].hit_unit == "tokens"
    silent = text("vllm:gpu_prefix_cache_queries 4", "vllm:gpu_prefix_cache_hits 1")
    assert metrics(read_bytes(PROMETHEUS, silent), 0)["prefix_hit_ratio"].hit_unit is None


def test_sglang_ranks_stay_apart_and_the_gauge_is_of_the_last_batch() -> None:
    read = reading("sglang.prom")
    assert [row.engine for row in read.samples] == ["dp 0", "dp 1", "dp 0"]
    first, last = metrics(read, 0), metrics(read, 2)
    assert first["prefix_hit_ratio"].window == "last_batch"
    # device 500 − 300, host 200 − 100, storage 150 − 50, of 2000 − 1000
    assert last["prompt_hit_ratio"].numerator == 400
    assert last["prompt_hit_ratio"].value == 0.4
    assert last["cached_remote_tokens"].value == 100
    assert last["kv_loaded_bytes"].value == 4_000_000


def test_sglang_total_counts_only_where_no_tier_is_named() -> None:
    both = text(
        "sglang:prompt_tokens_total 100",
        'sglang:cached_tokens_total{cache_source="device"} 20',
        'sglang:cached_tokens_total{cache_source="total"} 25',
    )
    assert read_bytes(PROMETHEUS, both).metric("cached_tokens") == [20]
    alone = text("sglang:prompt_tokens_total 100", "sglang:cached_tokens_total 25")
    read = read_bytes(PROMETHEUS, alone)
    assert read.metric("cached_tokens") == [25]
    assert read.metric("prompt_hit_ratio") == [0.25]


def test_tensor_parallel_ranks_repeat_tokens_but_share_bytes() -> None:
    read = read_bytes(
        PROMETHEUS,
        text(
            'sglang:prompt_tokens_total{tp_rank="0"} 100',
            'sglang:prompt_tokens_total{tp_rank="1"} 100',
            'sglang:load_back_bytes_total{tp_rank="0"} 5',
            'sglang:load_back_bytes_total{tp_rank="1"} 5',
        ),
    )
    assert read.metric("prompt_tokens") == [100]
    assert read.metric("kv_loaded_bytes") == [5, 5]
    assert read.ignored == {"rank_copy": 1}


def test_layers_and_other_engines() -> None:
    read = reading("layers.prom")
    rows = {row.engine: {m.metric: m for m in row.metrics} for row in read.samples}
    assert set(rows) == {"lmcache", "lmcache_mp", "mooncake", "llamacpp", "dynamo", "trtllm", "tgi"}
    assert rows["lmcache"]["layer_hit_ratio"].value == 0.25
    assert rows["lmcache"]["kv_load_s"].value == 2.5
    assert rows["lmcache_mp"]["layer_hit_ratio"].denominator == 1024  # both tenants, unnamed
    assert rows["mooncake"]["pool_hit_ratio"].value == 0.75
    assert rows["mooncake"]["pool_hit_ratio"].hit_unit == "objects"
    assert rows["mooncake"]["pool_used_bytes"].value == 1000
    assert rows["llamacpp"]["computed_tokens"].value == 70
    assert rows["dynamo"]["prompt_hit_ratio"].value == 0.25  # 200 / 800
    assert rows["trtllm"]["prefix_hit_ratio"].hit_unit == "blocks"
    assert rows["tgi"]["waiting_requests"].value == 3


def test_dcgm_values_are_rates_though_typed_counter_and_hosts_are_numbers() -> None:
    read = reading("machines.prom")
    tx = [
        (row.engine, m.value, m.window)
        for row in read.samples
        for m in row.metrics
        if m.metric == "pcie_tx_bytes_per_s"
    ]
    # the second is lower: not a restart, and not a difference
    assert tx == [("host 2 gpu 0", 2e9, "instant"), ("host 2 gpu 0", 1e9, "instant")]
    assert read.context.engine_facts["gpu"] == "NVIDIA H100 80GB HBM3"
    assert "invalid" not in repr(read.rows)
    assert "counters_restarted" not in read.note_codes


def test_node_exporter_counts_bytes_and_raw_ports_count_words() -> None:
    read = reading("machines.prom")
    last = {row.engine: row.metrics[0] for row in read.samples[-3:]}
    assert last["host 1 eth0"].value == 5000
    assert last["host 1 mlx5_0 port 1"].value == 6000  # already bytes
    assert last["host 1 mlx5_1 port 1"].value == 6000  # (2500 − 1000) × 4
    assert read.ignored["virtual_device"] == 2


def test_capacity_and_version_come_from_labels_and_names() -> None:
    context = reading("vllm.prom").context
    assert context.engine == "vllm"
    assert context.engine_version == ">=0.30.0"
    assert context.engine_facts == {
        "block_size": 16,
        "kv_cache_dtype": "auto",
        "kv_capacity_blocks": 1024,
        "kv_capacity_tokens": 16_384,
        "llm": "acme/tiny-1b",
        "prefix_caching": "on",
    }
    assert reading("vllm.prom").metric("kv_capacity_tokens") == [16_384]


def test_nothing_looked_up_is_no_ratio() -> None:
    read = read_bytes(
        PROMETHEUS, text("vllm:prefix_cache_queries_total 0", "vllm:prefix_cache_hits_total 0")
    )
    ratio = metrics(read, 0)["prefix_hit_ratio"]
    assert (ratio.value, ratio.numerator, ratio.denominator) == (None, 0, 0)


def test_switched_off_hit_rate_is_no_value() -> None:
    read = read_bytes(PROMETHEUS, text("vllm:gpu_prefix_cache_hit_rate -1.0"))
    assert read.metric("prefix_hit_ratio") == [None]


def test_a_path_as_model_name_keeps_its_last_part() -> None:
    line = 'vllm:prompt_tokens_total{model_name="/home/someone/models/tiny-1b/"} 1'
    assert read_bytes(PROMETHEUS, text(line)).context.engine_facts == {"llm": "tiny-1b"}


def test_every_row_of_the_tables_is_in_the_vocabulary() -> None:
    for program in PROGRAMS:
        for family in program.families.values():
            for use in family.uses:
                names = (
                    [f"{use.metric}_p{quantile}_le_s" for quantile in QUANTILES]
                    if use.part == "bucket"
                    else [use.metric]
                )
                assert all(name in METRICS for name in names), (program.slug, use)


def test_a_value_past_any_count_is_rejected() -> None:
    read = read_bytes(PROMETHEUS, text("vllm:prompt_tokens_total 1e300"))
    assert read.rejected == [(1, "invalid_field")]


# Lines


@pytest.mark.parametrize(
    "line",
    [
        "a1",
        "a",
        "a 1.2.3",
        "a 1 2 3",
        'a{x="y" 1',
        'a{x="y"} 1x',
        "a ١",
        "a 1e999",
        "1a 1",
        'a{x="y"} 1 # {',
        "",
    ],
)
def test_a_damaged_line_is_no_sample(line: str) -> None:
    assert parse_sample(line) is None


def test_labels_with_escapes_and_braces() -> None:
    sample = parse_sample('a:b_total{x="q\\"}, y=\\\\",z="\\n" , } +Inf 1700000000 # {t="}"} 1 2')
    assert sample is not None
    assert parse_labels(sample.labels_text) == (("x", 'q"}, y=\\'), ("z", "\n"))
    assert sample.value == float("inf")


@pytest.mark.parametrize("labels", ["{x=y}", "{,}", '{x="1",x="2"}', '{x="1"y="2"}', '{1="x"}'])
def test_malformed_labels_are_damage(labels: str) -> None:
    assert parse_labels(labels) is None


def test_stamps_are_seconds_or_milliseconds_by_size() -> None:
    assert stamp_ns("1767225600") == START_NS
    assert stamp_ns("1767225600000") == START_NS
    assert stamp_ns("1767225600.123456789") == START_NS + 123_456_789
    assert stamp_ns("12") is None
    assert stamp_ns("1e300") is None


def test_damaged_twin_keeps_nothing_of_a_broken_line() -> None:
    read = reading("vllm_damaged.prom")
    assert read.rejected == [
        (1, "invalid_field"),  # the marker says no instant
        (3, "damaged_line"),  # spliced
        (4, "damaged_line"),  # brace lost
        (5, "damaged_line"),  # a label twice
        (6, "invalid_field"),  # negative counter
        (7, "damaged_line"),  # digits of another script
        (9, "invalid_field"),  # stamp of 1970
        (10, "damaged_line"),  # past any number
        (11, "damaged_line"),  # a proxy's answer
        (14, "damaged_line"),  # the file ends in it
    ]
    assert read.ignored == {"no_value": 1, "repeated_sample": 1}
    assert [metric.metric for row in read.samples for metric in row.metrics] == ["preemptions"]


def test_names_with_underscores_and_other_endings_are_the_same() -> None:
    for name in ("vllm:prompt_tokens_total", "vllm_prompt_tokens_total", "vllm:prompt_tokens"):
        known = resolve(name)
        assert known is not None
        assert known.base == "prompt_tokens"
    assert resolve("vllm:prompt_tokens_sum") is None
    assert resolve("go_goroutines") is None


def test_it_is_recognised_among_all_formats() -> None:
    for path in sorted(FILES.iterdir()):
        assert sniffed(all_formats(), path.read_bytes()) == "prometheus", path.name
    assert sniffed(FORMATS, b"a 1\nb 2\n") is None
    assert sniffed(FORMATS, b"# HELP up x\n# TYPE up gauge\nup 1\n") == "prometheus"


def test_nul_runs_of_a_truncated_file_are_stepped_over() -> None:
    read = read_bytes(PROMETHEUS, b"\0" * 100 + b"# scrape_ts 1767225600\nvllm:prompt_tokens 5\n")
    assert read.rejected == []
    assert read.samples[0].observed_at_ns == START_NS


def test_hosts_never_reach_the_dataset_and_the_salt_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "metrics.prom"
    source.write_bytes((FILES / "machines.prom").read_bytes())
    first = ingest_paths([source], salt=b"a" * 16, formats=FORMATS)
    second = ingest_paths([source], salt=b"b" * 16, formats=FORMATS)
    assert first.digest == second.digest
    assert first.totals.requests == 0
    assert "invalid" not in str(first.frames["samples"].rows())
    assert "invalid" not in str(first.sources)
