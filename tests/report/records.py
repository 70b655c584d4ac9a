"""Hand-made audit records: a full one of grade A and a bare one of grade L."""

from __future__ import annotations

from kvtrace.audit import record as r
from kvtrace.audit.options.frontier import build_frontier
from kvtrace.schema.manifest import FileEntry, Note, SourceEntry
from tests.report.drilled import make_drilldown, make_fit
from tests.report.fleet_records import make_fleets

BUCKETS = (0, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


def make_file(path: str = "conversation.jsonl.zst", **changes: object) -> FileEntry:
    """One file of 12 033 rows: 12 031 used, 1 rejected, 1 blank."""
    values: dict[str, object] = {
        "file_id": 0,
        "path": path,
        "format": "mooncake",
        "format_reason": "keys timestamp, input_length, output_length, hash_ids",
        "source_ids": [0],
        "evidence_grade": "A",
        "compression": "zstd",
        "byte_size": 1_234_567,
        "content_digest": "9f3c" * 8,
        "rows_in": 12_033,
        "kept": 12_031,
        "rejected": 1,
        "blank": 1,
        "used": 12_031,
        "ignored": 0,
        "rejected_by_reason": {"invalid_json": 1},
        "clock": "relative",
        "clock_resolution_ns": 3_000_000_000,
        "clock_reason": "timestamps start at 0",
        "notes": [Note(code="clock_coarse", message="arrivals come in steps of 3 s", path=path)],
    }
    values.update(changes)
    return FileEntry(**values)  # type: ignore[arg-type]


def quantity(id: str, value: float | int | str | None, unit: str, **changes: object) -> r.Quantity:
    """A quantity with a source."""
    values: dict[str, object] = {"source": "this trace", "title": id.replace("_", " ")}
    values.update(changes)
    return r.Quantity(id=id, value=value, unit=unit, **values)  # type: ignore[arg-type]


def percentiles(mean: float, *, p99: bool = True) -> r.Percentiles:
    """A spread around `mean` seconds."""
    return r.Percentiles(mean=mean, p50=mean * 0.7, p90=mean * 2.0, p99=mean * 4.5 if p99 else None)


def make_option(
    id: str,
    title: str,
    *,
    queue: float,
    move: float,
    prefill: float,
    hit: float,
    links: list[r.LinkLedger] | None = None,
    negative: int = 0,
    usd: float | None = 0.0,
    binds: str | None = "prefill",
) -> r.Option:
    """One replayed option of four instances."""
    return r.Option(
        id=id,
        title=title,
        instances=4,
        hit_ratio_tokens=hit,
        hit_tokens_by_tier={"hbm": int(9e6), "pool": int(hit * 1e8)},
        ttft_s=percentiles(queue + move + prefill),
        queue_s=percentiles(queue),
        move_s=percentiles(move),
        prefill_s=percentiles(prefill),
        tpot_s=percentiles(0.031),
        prefill_utilisation=min(0.97, prefill * 0.5),
        gpu_seconds_prefill=prefill * 12_031 * 8,
        gpu_seconds_saved=(1.9 - prefill) * 12_031 * 8,
        hit_cost=r.HitCost(
            hits=8_211 if links else 0,
            net_negative_hits=negative,
            net_negative_bytes=negative * 1.2e9,
            ttft_lost_s=negative * 0.4,
            ttft_gained_s=5_120.0,
            gpu_seconds_freed=11_240.0,
            moved_bytes=1.71e13 if links else 0.0,
        ),
        links=links or [],
        usd_per_month=usd,
        usd_saved_per_month=None if usd is None else 4_310.0,
        is_dominated=id == "pool_dram_tcp",
        binds=binds,
        offered_load=prefill * 0.4,
        slo=f"{title}: TTFT p99 {prefill:.2f} s against 1.62 s with HBM only",
        keeps_slo=prefill <= 1.62,
        instances_at_slo=3 if prefill < 1.3 else 4,
    )


def link(id: str, read: float, written: float, use: float, rate: float) -> r.LinkLedger:
    """One row of the ledger."""
    return r.LinkLedger(
        link_id=id,
        links=4,
        bytes_read=read,
        bytes_written=written,
        utilisation=use,
        usable_bytes_per_s=rate,
    )


def make_options() -> list[r.Option]:
    """Five options of the same trace."""
    pcie = link("pcie", 1.6e13, 2.2e13, 0.03, 5.0e10)
    return [
        make_option("hbm_only", "HBM only", queue=0.95, move=0.0, prefill=1.62, hit=0.09),
        make_option(
            "dram_idle",
            "HBM + idle host DRAM",
            queue=0.61,
            move=0.03,
            prefill=1.38,
            hit=0.28,
            links=[pcie],
            negative=12,
        ),
        make_option(
            "pool_dram_tcp",
            "Pool in DRAM over TCP",
            queue=1.9,
            move=2.4,
            prefill=1.21,
            hit=0.371,
            links=[pcie, link("nic_tcp", 1.71e13, 2.3e13, 0.88, 2.9e9)],
            negative=5_930,
            usd=9_800.0,
            binds="link:nic_tcp",
        ),
        make_option(
            "pool_dram_rdma_bounce",
            "Pool in DRAM over RDMA, host bounce",
            queue=0.58,
            move=0.21,
            prefill=1.21,
            hit=0.371,
            links=[pcie, link("nic_rdma", 1.71e13, 2.3e13, 0.22, 2.2e10)],
            negative=640,
            usd=11_200.0,
        ),
        make_option(
            "pool_dram_rdma_direct",
            "Pool in DRAM over RDMA, GPU-direct",
            queue=0.52,
            move=0.09,
            prefill=1.21,
            hit=0.371,
            links=[link("nic_rdma", 1.71e13, 2.3e13, 0.11, 4.5e10)],
            negative=38,
            usd=14_700.0,
        ),
    ]


def make_table(
    id: str,
    title: str,
    columns: dict[str, str],
    rows: list[list[r.Cell]],
    *,
    query: str | None,
    is_modelled: bool = False,
    truncated_from: int | None = None,
) -> r.Table:
    """A table; `columns` maps names to units."""
    return r.Table(
        id=id,
        title=title,
        query=query,
        columns=list(columns),
        units=list(columns.values()),
        meanings=[f"meaning of {name}" for name in columns],
        rows=rows,
        is_modelled=is_modelled,
        truncated_from=truncated_from,
    )


def make_tables() -> dict[str, r.Table]:
    """One table for each figure, and one that no section claims."""
    tables = [
        *_bucket_tables(),
        *_time_tables(),
        make_table(
            "reuse/definitions",
            "One hit rate, several definitions",
            {
                "definition": "name",
                "numerator": "`unit`",
                "denominator": "`unit`",
                "ratio": "ratio",
                "unit": "name",
                "printed_by": "text",
            },
            [
                ["cached_tokens_observed", None, None, None, "tokens", "the engine"],
                ["reusable_blocks", 105_710.0, 288_500.0, 0.366412, "blocks", "simulators"],
            ],
            query="reuse/definitions",
        ),
        make_table(
            "kv/bytes_distribution",
            "KV bytes per request",
            {
                "kv_bytes_bucket": "bytes",
                "requests": "requests",
                "kv_bytes": "bytes",
                "kv_bytes_share": "ratio",
            },
            [
                [2**i * 2**20, n, n * 2.0**i * 1.5e6, 0.09]
                for i, n in enumerate([4, 40, 320, 900, 1_800, 2_600, 3_000, 2_100, 900, 300, 67])
            ],
            query="kv/bytes_distribution",
        ),
        make_table(
            "coverage/fields",
            "Which fields the sources supply",
            {
                "field": "name",
                "known_requests": "requests",
                "requests": "requests",
                "known_ratio": "ratio",
            },
            [["prompt_tokens", 12_031, 12_031, 1.0], ["queue_ns", 0, 12_031, 0.0]],
            query="coverage/fields",
        ),
        make_table(
            "quality/ttft_above_e2e",
            "Quality: ttft above e2e",
            {"request_key": "key"},
            [],
            query="quality/ttft_above_e2e",
        ),
        make_table(
            "extra/unclaimed",
            "A table that no section claims",
            {"name": "name", "value": "bytes"},
            [["a", 1], ["b", None]],
            query="extra/unclaimed",
            truncated_from=9_000,
        ),
    ]
    return {table.id: table for table in tables}


def _bucket_tables() -> list[r.Table]:
    moves: list[list[r.Cell]] = [
        [
            option,
            bucket,
            900,
            base + step * i,
            base * 2 + step * i,
            0.02 + 0.11 * i**1.4,
            0.03 + 0.2 * i**1.4,
            negative,
            negative / 900,
        ]
        for option, base, step, negative in (
            ("dram_idle", 0.004, 0.01, 3),
            ("pool_dram_tcp", 0.2, 0.33, 650),
            ("pool_dram_rdma_direct", 0.02, 0.02, 12),
        )
        for i, bucket in enumerate(BUCKETS[:-1])
    ]
    latencies: list[list[r.Cell]] = [
        [
            bucket,
            1_400,
            60e3 - i * 1e3,
            82e3,
            50.0 + 60.0 * i,
            100.0 + 100.0 * i,
            (60.2 - i) * 1e3,
            99e3 if i < 6 else None,
        ]
        for i, bucket in enumerate(BUCKETS[:-1])
    ]
    reuse: list[list[r.Cell]] = [
        [bucket, 1_500, 1_500 * bucket + 9, 500 * bucket, 0.2 + 0.03 * i, 400 * bucket]
        for i, bucket in enumerate(BUCKETS[:-1])
    ]
    return [
        make_table(
            "replay/move_by_prompt_bucket",
            "Move against recompute by prompt length",
            {
                "option_id": "name",
                "prompt_bucket": "tokens",
                "hits": "requests",
                "move_p50_s": "s",
                "move_p90_s": "s",
                "recompute_p50_s": "s",
                "recompute_p90_s": "s",
                "net_negative_hits": "requests",
                "net_negative_ratio": "ratio",
            },
            moves,
            query=None,
            is_modelled=True,
        ),
        make_table(
            "latency/by_prompt_bucket",
            "Latency by prompt length (measured)",
            {
                "prompt_bucket": "tokens",
                "requests": "requests",
                "queue_p50_ms": "ms",
                "queue_p90_ms": "ms",
                "prefill_p50_ms": "ms",
                "prefill_p90_ms": "ms",
                "ttft_p50_ms": "ms",
                "ttft_p99_ms": "ms",
            },
            latencies,
            query="latency/by_prompt_bucket",
        ),
        make_table(
            "reuse/by_prompt_bucket",
            "Reuse by prompt length (unlimited cache)",
            {
                "prompt_bucket": "tokens",
                "requests": "requests",
                "prompt_tokens": "tokens",
                "reusable_tokens": "tokens",
                "reusable_ratio_tokens": "ratio",
                "cached_tokens": "tokens",
            },
            reuse,
            query="reuse/by_prompt_bucket",
        ),
    ]


EPOCH_NS = 1_748_772_000 * 10**9
"""2025-06-01 10:00:00 UTC."""


def _time_tables() -> list[r.Table]:
    slices: list[list[r.Cell]] = [
        [
            EPOCH_NS + i * 150 * 10**9,
            200,
            900.0 + 400.0 * i,
            1_900.0 + 900.0 * i,
            500.0 + 390.0 * i,
            0.42 + 0.02 * i if i != 7 else None,
            0.4 + 0.021 * i,
            0.5 + 0.018 * i,
        ]
        for i in range(24)
    ]
    samples: list[list[r.Cell]] = [
        [EPOCH_NS + i * 10**10, None, metric, value + i * step, unit, None, "instant"]
        for metric, value, step, unit in (
            ("prefix_hit_ratio", 0.4, 0.001, "ratio"),
            ("kv_usage_ratio", 0.7, 0.0005, "ratio"),
            ("waiting_requests", 0.0, 1.0, "requests"),
        )
        for i in range(300)
    ]
    hits: list[list[r.Cell]] = [
        [metric, 0, "tokens", window, EPOCH_NS + i * 60 * 10**9, ratio + 0.005 * i]
        for metric, window, ratio in (
            ("prefix_hit_ratio", "interval", 0.4),
            ("prompt_hit_ratio", "interval", 0.6),
            ("prefix_hit_ratio", "last_1000_requests", 0.5),
        )
        for i in range(48)
    ]
    links: list[list[r.Cell]] = [
        [link, 0, device, EPOCH_NS + i * 60 * 10**9, rate * 0.5, rate + 1e8 * i]
        for link, device, rate in (
            ("pcie", "host 1 gpu 0", 9e9),
            ("pcie", "host 1 gpu 1", 4e9),
            ("rdma", "host 1 mlx5_0 port 1", 2e10),
        )
        for i in range(20)
    ]
    replayed: list[list[r.Cell]] = [
        [option, 300.0 * i, 900, hit, hit * 1e12, 0.5 + 0.1 * i]
        for option, hit in (("hbm_only", 0.09), ("pool_dram_tcp", 0.37))
        for i in range(12)
    ]
    return [
        make_table(
            "replay/over_time",
            "Hit ratio, moved bytes and TTFT over time (modelled)",
            {
                "option_id": "name",
                "slice_start_s": "s",
                "requests": "requests",
                "hit_ratio_tokens": "ratio",
                "moved_bytes": "bytes",
                "ttft_p50_s": "s",
            },
            replayed,
            query=None,
            is_modelled=True,
        ),
        make_table(
            "latency/hit_and_ttft_over_time",
            "Hit ratio and TTFT over time (measured)",
            {
                "slice_start_ns": "ns",
                "requests": "requests",
                "ttft_p50_ms": "ms",
                "ttft_p90_ms": "ms",
                "queue_p50_ms": "ms",
                "cached_ratio_tokens": "ratio",
                "reusable_ratio_tokens": "ratio",
                "engine_prefix_hit_ratio": "ratio",
            },
            slices,
            query="latency/hit_and_ttft_over_time",
        ),
        make_table(
            "samples/over_time",
            "Engine-wide observations over time",
            {
                "observed_at_ns": "ns",
                "engine": "name",
                "metric": "name",
                "value": "`unit`",
                "unit": "name",
                "hit_unit": "name",
                "window": "name",
            },
            samples,
            query="samples/over_time",
        ),
        make_table(
            "samples/hit_ratio_over_time",
            "Hit ratios that engines report, over time (measured)",
            {
                "metric": "name",
                "source_id": "key",
                "hit_unit": "name",
                "window": "name",
                "slice_start_ns": "ns",
                "hit_ratio": "ratio",
            },
            hits,
            query="samples/hit_ratio_over_time",
        ),
        make_table(
            "links/measured_bytes",
            "Bytes over each link, over time (measured)",
            {
                "link": "name",
                "file_id": "key",
                "device": "name",
                "slice_start_ns": "ns",
                "tx_bytes_per_s": "bytes/s",
                "rx_bytes_per_s": "bytes/s",
            },
            links,
            query="links/measured_bytes",
        ),
    ]


def make_findings() -> list[r.Finding]:
    """One finding of each severity."""
    return [
        r.Finding(
            id="queueing_dominates",
            title="Queueing dominates TTFT",
            severity="critical",
            confidence="high",
            message="Of the median TTFT of 60.2 s, 60.0 s is queue and 0.22 s is prefill.",
            evidence=[
                quantity("queue_p50", 60.0, "s", low=58.1, high=61.7),
                quantity("prefill_p50", 0.22, "s", interval_reason="exact over this trace"),
            ],
            table="latency/by_prompt_bucket",
            threshold=quantity(
                "queue_share", 0.5, "ratio", source="kvtrace default", kind="assumed"
            ),
            action="Add instances or shed load first: a hit waits in the same queue",
            action_kind="other",
            production_check="rate(vllm:request_queue_time_seconds_sum[5m])",
        ),
        r.Finding(
            id="net_negative_hits",
            title="Over TCP, most hits cost more than they save",
            severity="warning",
            confidence="medium",
            message="5,930 of 8,211 loaded hits take longer to move than to recompute.",
            evidence=[quantity("net_negative_share", 0.7222, "ratio", low=0.69, high=0.75)],
            table="replay/move_by_prompt_bucket",
            threshold=quantity("limit", 0.1, "ratio", source="kvtrace default", kind="assumed"),
            action="Load only prefixes longer than the break-even length",
            action_kind="move_less",
            production_check="lmcache:time_to_retrieve against vllm:request_prefill_time_seconds",
        ),
        r.Finding(
            id="short_reuse_gap",
            title="Reuse comes soon",
            severity="info",
            confidence="medium",
            message="Half of all reuse comes within 40 s of the previous touch.",
            evidence=[quantity("reuse_gap_p50", 40.0, "s")],
            table=None,
            threshold=quantity("gap", 300, "s", source="kvtrace default", kind="assumed"),
            action="Keep the last minutes in local DRAM first",
            action_kind="nearer",
            production_check="vllm:kv_block_reuse_gap_seconds",
        ),
    ]


def make_record() -> r.AuditRecord:
    """Grade A: everything that a record can hold."""
    entry = make_file()
    return r.AuditRecord(
        schema_version=r.AUDIT_SCHEMA_VERSION,
        drilldown=make_drilldown(),
        fits=[make_fit(), make_fit(what="prefill", says="close", ratio_p50=1.0)],
        generated_at=None,
        data=r.Data(
            requests=12_031,
            requests_by_status={"ok": 12_031},
            prompt_tokens=144_793_823,
            output_tokens=4_122_048,
            cached_tokens=None,
            cached_known_requests=0,
            cache_write_tokens=None,
            cached_tiers={"device": None, "host": None, "disk": None, "remote": None},
            block_refs=288_500,
            distinct_blocks=182_790,
            block_size_tokens=512,
            samples=0,
            transfers=0,
            block_events=0,
            rejected=1,
            notes=[Note(code="block_size_inferred", message="512 tokens fit every row", path=None)],
            evidence_grade="A",
            validity=[
                r.Validity(
                    code="clock_coarse", severity="warning", message="Arrivals are 3 s apart"
                ),
                r.Validity(code="no_latency", severity="info", message="No measured latency"),
            ],
            files=[entry],
            sources=[
                SourceEntry(
                    source_id=0,
                    format="mooncake",
                    evidence_grade="A",
                    role="headline",
                    files=[0],
                    requests=12_031,
                    samples=0,
                    transfers=0,
                    clock="relative",
                )
            ],
            span_s=3_536.0,
            dataset_digest="ab12" * 8,
        ),
        reuse=r.Reuse(
            reusable_ratio_blocks=0.366412,
            reusable_ratio_tokens=0.373624,
            reusable_ratio_requests_mean=0.40938,
            reusable_ratio_full_blocks=0.3819,
            requests_with_reuse_ratio=0.99992,
            reusable_blocks=105_710,
            reusable_tokens=54_098_411,
            observed_hit_ratio_tokens=None,
            hit_curve=[
                r.CurvePoint(
                    capacity_blocks=blocks,
                    capacity_bytes=blocks * 512 * 327_680.0,
                    hit_ratio_blocks=hit,
                    hit_ratio_tokens=hit * 1.02,
                )
                for blocks, hit in (
                    (1_000, 0.0445),
                    (3_000, 0.103),
                    (10_000, 0.2116),
                    (30_000, 0.3257),
                    (50_000, 0.3546),
                    (100_000, 0.3637),
                    (182_790, 0.3664),
                )
            ],
        ),
        kv=r.Kv(
            llm="Meta-Llama-3.1-70B",
            kv_dtype="bf16",
            bytes_per_token=327_680.0,
            bytes_requested=4.745e13,
            bytes_requested_block_rounded=4.84e13,
            bytes_distinct=3.07e13,
            distribution=r.BytesDistribution(
                mean=3.94e9, p50=2.3e9, p90=9.1e9, p99=2.6e10, maximum=4.1e10
            ),
        ),
        options=(options := make_options()),
        frontier=build_frontier(options),
        verdict=r.Verdict(
            outcome="pays_only_if",
            confidence="low",
            headline="A pool pays here only over RDMA, and only if host DRAM alone is not enough.",
            reasons=[
                "37.36 % of prompt tokens are reusable; idle local DRAM already catches 28 %.",
                "Over TCP 5,930 of 8,211 loaded hits are slower than recomputing them.",
                "GPU-direct RDMA frees up to 66,411 GPU-seconds in this trace.",
            ],
            conditions=[
                "NIC at 200 Gb/s or more per instance",
                "Prefill stays the binding resource",
            ],
            carrying_numbers=[
                quantity(
                    "reusable_ratio_tokens",
                    0.373624,
                    "ratio",
                    title="Reusable prompt tokens",
                    interval_reason="exact over this trace, unlimited cache",
                ),
                quantity(
                    "net_saving",
                    -1_200.0,
                    "USD/month",
                    low=-6_100.0,
                    high=5_300.0,
                    title="Net saving of the best pool",
                    kind="modelled",
                    source="replay",
                ),
                quantity(
                    "break_even_rate",
                    1.9e10,
                    "bytes/s",
                    low=1.4e10,
                    high=2.7e10,
                    title="Break-even bandwidth per instance",
                    kind="modelled",
                    source="cost model",
                ),
            ],
            next_measurement=r.NextMeasurement(
                question="How much HBM is left for KV in production?",
                flag="vllm serve … --disable-log-stats=false",
                hours=48.0,
                settles="whether HBM alone already holds the working set",
            ),
        ),
        findings=make_findings(),
        assumptions=[
            quantity(
                "llm",
                "Meta-Llama-3.1-70B",
                "name",
                title="Model",
                kind="given",
                origin="default",
                is_confirmed=False,
                source="kvtrace default",
            ),
            quantity(
                "gpu_usd_per_hour",
                2.4,
                "USD/h",
                low=1.9,
                high=3.9,
                title="GPU price",
                kind="assumed",
                origin="default",
                is_confirmed=False,
                source="price list",
            ),
            quantity(
                "pcie_bytes_per_s",
                5.0e10,
                "bytes/s",
                low=4.2e10,
                high=5.6e10,
                title="PCIe 5.0 x16, usable",
                kind="spec",
                origin="hardware",
                source="data sheet",
            ),
        ],
        tables=make_tables(),
        reproduce=r.Reproduce(
            command="kvtrace analyze conversation.jsonl.zst -o reports/conversation",
            kvtrace_version="0.1.0",
            settings={"llm": "Meta-Llama-3.1-70B", "block_size": None, "json": False},
            seed=0,
            inputs={entry.path: entry.content_digest},
            dataset_digest="ab12" * 8,
        ),
        fleets=make_fleets(),
    )


def make_bare_record() -> r.AuditRecord:
    """Grade L: lengths only; reuse unknown, no curve, no options, no tables, no clock."""
    record = make_record()
    data = record.data
    data.evidence_grade = "L"
    data.block_refs = data.distinct_blocks = data.block_size_tokens = None
    data.span_s = None
    data.notes = []
    data.files = [make_file("AzureLLM.csv", format="azure_csv", compression="none", notes=[])]
    data.sources[0].evidence_grade = "L"
    record.reuse = r.Reuse(
        reusable_ratio_blocks=None,
        reusable_ratio_tokens=None,
        reusable_ratio_requests_mean=None,
        reusable_ratio_full_blocks=None,
        requests_with_reuse_ratio=None,
        reusable_blocks=None,
        reusable_tokens=None,
        observed_hit_ratio_tokens=None,
        hit_curve=[],
        unknown_reason="the source has token counts but no block identity",
    )
    record.kv.distribution = r.BytesDistribution(
        mean=None, p50=None, p90=None, p99=None, maximum=None
    )
    record.kv.bytes_requested_block_rounded = record.kv.bytes_distinct = None
    record.options = []
    record.frontier = record.fleets = record.drilldown = None
    record.fits = []
    record.findings = []
    record.tables = {}
    record.assumptions = []
    record.verdict = r.Verdict(
        outcome="cannot_tell",
        confidence="low",
        headline="This data cannot tell: it has lengths, but nothing that identifies a prefix.",
        reasons=["Bounds: between 0 and all of 144,793,823 prompt tokens could be reusable."],
        conditions=[],
        carrying_numbers=[
            quantity(
                "reusable_ratio_tokens",
                None,
                "ratio",
                interval_reason="no block identity in this source",
            )
        ],
        next_measurement=record.verdict.next_measurement,
    )
    return record
