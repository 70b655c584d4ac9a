"""LMCache's binary traces (`lmcache server --trace-level storage`): calls of the storage manager.

Shapes read from the sources of LMCache 0.5 (`lmcache/v1/mp_observability/trace`).
"""

from __future__ import annotations

import re

from kvtrace.ingest.contract import Format, Guess, Head
from kvtrace.ingest.formats.lmcache_trace.reader import read_trace

_HEADER = re.compile(r"\x00.{2,4}.{1,2}type.{1,2}header.{1,2}magic.{1,2}LMCT", re.DOTALL)
"""Length, map, `type: header`, `magic: LMCT`; bytes that are no UTF-8 are one character each."""


def _sniff(head: Head) -> Guess | None:
    if _HEADER.match(head.text):
        return Guess(0.99, "its first frame is the header of an LMCache trace (LMCT)")
    return None


FORMATS: tuple[Format, ...] = (
    Format(
        name="lmcache_trace",
        title="LMCache storage trace (length-prefixed msgpack, .lct)",
        framing="frames",
        best_grade="A",
        supplies=(
            "request_id",
            "llm",
            "arrived_at_ns",
            "block_keys",
            "change",
            "block_key",
            "medium",
            "moved_bytes",
            "moved_tokens",
        ),
        missing={
            "prompt_tokens": "lmcache server --lookup-hash-log-dir DIR, whose rows have seq_len;"
            " here only whole chunks are known",
            "cached_tokens": "LMCache's log at INFO (`Prefetch request completed (L1+L2): …`)",
            "tier_split": "LMCache's log at INFO (`Prefetch request completed (L1+L2): …`)",
            "output_tokens": "the engine's own log (vLLM: --enable-log-outputs)",
            "ttft": "the engine's spans (vLLM: --otlp-traces-endpoint URL)",
        },
        versions="LMCache 0.5, trace format version 1, level storage",
        sniff=_sniff,
        read=read_trace,
        enable_hint="lmcache server --trace-level storage --trace-output FILE.lct",
    ),
)
