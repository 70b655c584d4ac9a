"""The table of requests that were served twice: with a cache off, and with it on."""

from __future__ import annotations

from typing import Final

from kvtrace.schema.table import UNKNOWN, Column, Table

_REST = "its request, or one of the parts that it is made of, is not logged"

REQUEST_PAIRS: Final = Table(
    "request_pairs",
    "one request that was served with the cache off and with it on (times are on less off)",
    (
        Column("request_key", "int64", "key", "the request with the cache on"),
        Column("off_request_key", "int64", "key", "the same one with it off, in its own dataset"),
        Column("paired_by", "text", "name", "request_id | order (equal prompt length, by arrival)"),
        Column("prompt_tokens", "int64", "tokens", "of the request with the cache on", UNKNOWN),
        Column("cached_tokens", "int64", "tokens", "served from the cache, on", UNKNOWN),
        Column("off_ttft_ns", "int64", "ns", "TTFT from arrival, cache off", UNKNOWN),
        Column("on_ttft_ns", "int64", "ns", "TTFT from arrival, cache on", UNKNOWN),
        Column("ttft_change_ns", "int64", "ns", "on_ttft_ns less off_ttft_ns", _REST),
        Column("queue_added_ns", "int64", "ns", "queue on less queue off", _REST),
        Column("prefill_change_ns", "int64", "ns", "first scheduled to first token", _REST),
        Column("move_added_ns", "int64", "ns", "loads of KV on less loads off", _REST),
        Column("compute_saved_ns", "int64", "ns", "prefill without loads, off less on", _REST),
        Column(
            "unexplained_ns",
            "int64",
            "ns",
            "ttft_change - queue_added - move_added + compute_saved; a null part counts as 0",
            _REST,
        ),
        Column("moved_bytes", "int64", "bytes", "loaded for the request, on", UNKNOWN),
    ),
    ("request_key",),
    is_derived=True,
)
