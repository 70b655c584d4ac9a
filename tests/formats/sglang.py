"""Lines of SGLang's logs for tests."""

from __future__ import annotations

from kvtrace.ingest.contract import Metric, SampleRow


def log(*messages: str, label: str = "") -> bytes:
    """Messages behind SGLang's prefix, one second apart."""
    blank = f" {label}" if label else ""
    stamped = [
        f"[2025-12-01 09:00:{second:02d}{blank}] {message}\n"
        for second, message in enumerate(messages)
    ]
    return "".join(stamped).encode()


def metric_of(sample: SampleRow, name: str) -> Metric:
    """The sample's metric of this name."""
    (found,) = [metric for metric in sample.metrics if metric.metric == name]
    return found
