"""Prometheus expositions: one or more scrapes of /metrics in text 0.0.4 or OpenMetrics.

Counters become what they gained between two scrapes, restarts included; gauges stand as they are;
nothing becomes a request. Names are those of serving engines (`engines`), KV layers and machines
(`layers`); the names of instances and hosts are replaced by numbers.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format, Guess, Head
from kvtrace.ingest.formats.prometheus.reader import read
from kvtrace.ingest.prometheus import EXPORTERS, SUPPLIED
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
        supplies=SUPPLIED,
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
        versions=EXPORTERS,
        sniff=_sniff,
        read=read,
        enable_hint='while true; do echo "# scrape_ts $(date +%s)"; curl -s'
        " http://HOST:8000/metrics; sleep 15; done >> metrics.prom"
        " (SGLang: --enable-metrics; llama.cpp: --metrics; one file a target, or labels that tell"
        " targets apart; add the DCGM exporter at :9400 and the node exporter at :9100)",
    ),
)
