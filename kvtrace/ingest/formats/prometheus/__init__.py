"""Prometheus expositions: one or more scrapes of /metrics in text 0.0.4 or OpenMetrics.

Counters become what they gained between two scrapes, restarts included; gauges stand as they are;
nothing becomes a request. Names are those of serving engines (`engines`), KV layers and machines
(`layers`); the names of instances and hosts are replaced by numbers.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format, Guess, Head
from kvtrace.ingest.formats.prometheus.reader import read
from kvtrace.ingest.prometheus.exposition import MetaLine, parse_comment, parse_sample
from kvtrace.ingest.prometheus.series import resolve

_MAX_LINES = 2_000
_MAX_CHARS = 4_000


def _sniff(head: Head) -> Guess | None:
    """Votes of the lines: samples, HELP and TYPE lines, and names that are known."""
    lines = head.lines[:_MAX_LINES]
    samples = known = described = 0
    for text in lines:
        line = text[:_MAX_CHARS].strip()
        if line.startswith("#"):
            described += isinstance(parse_comment(line), MetaLine)
        elif (sample := parse_sample(line)) is not None:
            samples += 1
            known += resolve(sample.name) is not None
    comments = sum(line.lstrip().startswith("#") for line in lines)
    if not samples or 2 * samples < len(lines) - comments or not (known or described):
        return None
    if known:
        confidence = 0.7 + 0.28 * samples / max(len(lines) - comments, 1)
        return Guess(confidence, f"{known} of {samples} samples have names that kvtrace knows")
    return Guess(0.55, f"{samples} samples in Prometheus text, none of a name that kvtrace knows")


FORMATS: tuple[Format, ...] = (
    Format(
        name="prometheus",
        title="Prometheus text and OpenMetrics (one or more scrapes of /metrics)",
        framing="lines",
        best_grade="C",
        supplies=(
            "prefix_hit_ratio",
            "external_prefix_hit_ratio",
            "prompt_hit_ratio",
            "layer_hit_ratio",
            "pool_hit_ratio",
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cached_host_tokens",
            "cached_disk_tokens",
            "cached_remote_tokens",
            "cached_external_tokens",
            "computed_tokens",
            "output_tokens",
            "kv_usage_ratio",
            "kv_capacity_tokens",
            "running_requests",
            "waiting_requests",
            "preemptions",
            "ttft_s",
            "queue_s",
            "prefill_s",
            "e2e_s",
            "tpot_s",
            "request_computed_tokens",
            "kv_block_idle_before_evict_s",
            "kv_loaded_bytes",
            "kv_stored_bytes",
            "kv_load_s",
            "kv_store_s",
            "pool_read_bytes",
            "pool_written_bytes",
            "pool_used_bytes",
            "pcie_tx_bytes_per_s",
            "pcie_rx_bytes_per_s",
            "nvlink_tx_bytes_per_s",
            "nvlink_rx_bytes_per_s",
            "sm_active_ratio",
            "dram_active_ratio",
            "nic_tx_bytes",
            "nic_rx_bytes",
            "rdma_tx_bytes",
            "rdma_rx_bytes",
        ),
        missing={
            "requests": "request logs of the"
            " engine (vLLM: --enable-log-requests; SGLang: --export-metrics-to-file;"
            " Dynamo: DYN_REQUEST_TRACE=1)",
            "reuse": "block hashes: vLLM --kv-events-config, LMCache"
            " --lookup-hash-log-dir, Dynamo DYN_REQUEST_TRACE=1",
            "observation_times": "a line `# scrape_ts EPOCH` before each scrape",
            "block_events": "vLLM --kv-cache-metrics",
            "tier_split": "vLLM 0.33 (`prompt_tokens_cached_by_source`), SGLang 0.5.10 or"
            " newer with --enable-metrics",
            "links": "DCGM exporter with DCGM_FI_PROF_PCIE_TX_BYTES, …_RX_BYTES,"
            " …_NVLINK_TX_BYTES, …_RX_BYTES in its counters file",
        },
        versions="vLLM 0.6 to 0.33, SGLang 0.4 to 0.5.23, TensorRT-LLM 1.x, LMCache 0.3 to 0.5"
        " (in the engine and as a server), Mooncake master and client, Dynamo frontend 1.x,"
        " llama.cpp, TGI; DCGM exporter 3 and 4, node exporter 1.x (names and HELP texts of their"
        " sources and documentation)",
        sniff=_sniff,
        read=read,
        enable_hint='while true; do echo "# scrape_ts $(date +%s)"; curl -s'
        " http://HOST:8000/metrics; sleep 15; done >> metrics.prom"
        " (SGLang: --enable-metrics; llama.cpp: --metrics; one file a target, or labels that tell"
        " targets apart; add the DCGM exporter at :9400 and the node exporter at :9100)",
    ),
)
