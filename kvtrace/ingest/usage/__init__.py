"""Token usage of any provider or gateway: prompt tokens with the cache, cached, written, output."""

from __future__ import annotations

from kvtrace.ingest.usage.readings import (
    ASSUMED_FLAG,
    TokenUsage,
    read_attributes,
    read_buckets,
    read_usage,
)
from kvtrace.ingest.usage.shapes import OTEL_KEYS
from kvtrace.ingest.usage.values import count_at, parsed_count

__all__ = [
    "ASSUMED_FLAG",
    "OTEL_KEYS",
    "TokenUsage",
    "count_at",
    "parsed_count",
    "read_attributes",
    "read_buckets",
    "read_usage",
]
