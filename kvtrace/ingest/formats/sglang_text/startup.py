"""What SGLang says when it starts: its arguments, and the room for KV cache."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from kvtrace.ingest.contract import Metric, ReadContext
from kvtrace.ingest.formats.sglang_text.ranks import Ranks
from kvtrace.ingest.modelnames import llm_name
from kvtrace.units import GB, GIB

CAPACITY_STARTS: Final = ("KV Cache is allocated. ", "max_total_num_tokens=")
_GB: Final = r"([0-9]{1,9}\.[0-9]{2,12}) GB"
_ALLOCATED = re.compile(
    r"KV Cache is allocated\. (?:dtype: [\w.]{1,40}, )?(?:#tokens: ([0-9]{1,15}), )?"
    rf"(?:K size: {_GB}, V size: {_GB}|KV size: {_GB})[.,]?"
)
_LIMITS = re.compile(
    r"max_total_num_tokens=([0-9]{1,15})((?:, [a-z_]{1,40}=-?[\w.]{1,20}(?: GB)?){1,12})"
)
_RESOLVED: Final = {
    fact: re.compile(rf", {name}=([0-9]{{1,10}})(?=,|\Z)")
    for fact, name in (
        ("max_model_len", "context_len"),
        ("prefill_chunk_tokens", "chunked_prefill_size"),
        ("running_requests", "max_running_requests"),
    )
}
"""Arguments as the engine settled them; a negative chunk size (none) is left out."""
_HOST_POOL = re.compile(
    r"Allocating ([0-9]{1,9}\.[0-9]{2,12}) GB host memory for hierarchical KV cache\."
)
_SERVER_ARGS = re.compile(r"server_args=(?:ServerArgs\(|\{)")
_VERSION = re.compile(r"(?:SGLang|sglang)(?: version)?:? v?([0-9]{1,3}\.[0-9]{1,3}[\w.+-]{0,40})")
_SLOW_LOG = re.compile(
    r"(?:export |declare -x |- )?SGLANG_LOG_REQUEST_EXCEEDED_MS ?[=:] ?[\"']?([0-9]{1,9})[\"']?"
)
_SLOW_LOG_ARGUMENT = re.compile(
    r"\b(?:sglang_)?log_requests?_exceeded_ms'?(?:=|: )'?([0-9]{1,9})\b", re.IGNORECASE
)
_ARGUMENTS: Final[tuple[tuple[str, str, re.Pattern[str]], ...]] = tuple(
    (fact, kind, re.compile(rf"\b{name}'?(?:=|: )'?({_value})"))
    for fact, kind, name, _value in (
        # fact, kind, argument, its value
        ("llm", "name", "model_path", r"[^'\\\",]{1,300}"),
        ("llm", "name", "served_model_name", r"[^'\\\",]{1,300}"),
        ("tensor_parallel", "count", "tp_size", r"[0-9]{1,6}\b"),
        ("data_parallel", "count", "dp_size", r"[0-9]{1,6}\b"),
        ("pipeline_parallel", "count", "pp_size", r"[0-9]{1,6}\b"),
        ("block_size", "count", "page_size", r"[0-9]{1,6}\b"),
        ("max_model_len", "count", "context_length", r"[0-9]{1,10}\b"),
        ("prefill_chunk_tokens", "count", "chunked_prefill_size", r"[0-9]{1,8}\b"),
        ("running_requests", "count", "max_running_requests", r"[0-9]{1,9}\b"),
        ("dtype", "text", "dtype", r"\w{1,20}"),
        ("kv_cache_dtype", "text", "kv_cache_dtype", r"\w{1,20}"),
        ("quantization", "text", "quantization", r"\w{1,40}"),
        ("prefix_caching", "switch_off", "disable_radix_cache", r"(?:True|False)\b"),
        ("hicache", "switch", "enable_hierarchical_cache", r"(?:True|False)\b"),
        ("hicache_ratio", "text", "hicache_ratio", r"[0-9.]{1,12}"),
        ("hicache_size_gb", "count", "hicache_size", r"[0-9]{1,9}\b"),
        ("hicache_write_policy", "text", "hicache_write_policy", r"\w{1,40}"),
        ("hicache_storage_backend", "text", "hicache_storage_backend", r"\w{1,40}"),
        ("disaggregation_mode", "text", "disaggregation_mode", r"\w{1,20}"),
        ("log_requests_level", "count", "log_requests_level", r"[0-9]{1,2}\b"),
    )
)
_MAX_ARGUMENT_CHARS: Final = 60_000
_MAX_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class StartupLine:
    """Metrics of a start-up line, and what it means for the rest of the log."""

    metrics: tuple[Metric, ...] = ()
    version: str | None = None
    is_restart: bool = False


@dataclass(slots=True)
class EngineFacts:
    """What the start-up lines add up to."""

    facts: dict[str, str | int | float] = field(default_factory=dict)
    capacity_tokens: int | None = None
    _rank_bytes: dict[Ranks, float] = field(default_factory=dict)
    """KV bytes a token that each rank holds."""
    _is_split: bool = True
    """Keys and values are separate, so tensor-parallel ranks hold different heads."""

    def read(self, message: str, ranks: Ranks) -> StartupLine | None:
        """Take in a start-up message; None if it is none, or damaged."""
        if message.startswith("KV Cache is allocated. "):
            return self._allocated(message, ranks)
        if message.startswith("max_total_num_tokens="):
            return self._limits(message)
        if _SERVER_ARGS.match(message) is not None:
            self._arguments(message)
            return StartupLine(is_restart=True)
        return self._others(message) if len(message) < _MAX_CHARS else None

    def _allocated(self, message: str, ranks: Ranks) -> StartupLine | None:
        match = _ALLOCATED.fullmatch(message.rstrip()) if len(message) < _MAX_CHARS else None
        if match is None:
            return None
        if match[1] is None or int(match[1]) == 0:
            return StartupLine()
        tokens = int(match[1])
        gib = Decimal(match[4]) if match[4] else Decimal(match[2]) + Decimal(match[3])
        self._is_split = match[4] is None
        self._rank_bytes[ranks] = float(gib * GIB / tokens)
        return StartupLine((self._capacity(tokens),))

    def _limits(self, message: str) -> StartupLine | None:
        match = _LIMITS.fullmatch(message.rstrip()) if len(message) < _MAX_CHARS else None
        if match is None:
            return None
        for fact, pattern in _RESOLVED.items():
            found = pattern.search(match[2])
            if found is not None:
                self.facts[fact] = int(found[1])
        return StartupLine((self._capacity(int(match[1])),))

    def _capacity(self, tokens: int) -> Metric:
        self.capacity_tokens = tokens
        return Metric(
            metric="kv_capacity_tokens", value=float(tokens), unit="tokens", window="instant"
        )

    def _arguments(self, message: str) -> None:
        text = message[:_MAX_ARGUMENT_CHARS]
        for fact, kind, pattern in _ARGUMENTS:
            match = pattern.search(text)
            if match is None or match[1] == "None":
                continue
            value: str | int = match[1]
            if kind == "count":
                value = int(match[1])
            elif kind == "name":
                value = llm_name(match[1])
            elif kind in ("switch", "switch_off"):
                value = "on" if (match[1] == "True") == (kind == "switch") else "off"
            self.facts[fact] = value
        slow = _SLOW_LOG_ARGUMENT.search(text)
        if slow is not None:
            self._slow_log(int(slow[1]))

    def _others(self, message: str) -> StartupLine | None:
        slow = _SLOW_LOG.fullmatch(message)
        if slow is not None:
            self._slow_log(int(slow[1]))
            return StartupLine()
        host = _HOST_POOL.fullmatch(message.rstrip())
        if host is not None:
            self.facts["hicache_host_bytes_per_rank"] = int(Decimal(host[1]) * GB)
            return StartupLine()
        version = _VERSION.fullmatch(message.rstrip())
        return None if version is None else StartupLine(version=version[1])

    def _slow_log(self, threshold_ms: int) -> None:
        if threshold_ms > 0:
            self.facts["slow_log_threshold_ms"] = threshold_ms

    def bytes_per_token(self) -> int | None:
        """KV bytes a token over all ranks of an engine; None where that does not follow.

        The sizes are printed in GB and counted in GiB. Ranks of compressed (MLA) KV hold copies,
        so only a single rank says what a token takes.
        """
        first = min((ranks.engine for ranks in self._rank_bytes), key=str, default=None)
        sizes = [size for ranks, size in self._rank_bytes.items() if ranks.engine == first]
        if len(sizes) > 1:
            return round(sum(sizes)) if self._is_split else None
        width = self._stated("tensor_parallel")
        if not sizes or self._stated("pipeline_parallel") > 1:
            return None
        if width > 1 and (not self._is_split or self._stated("data_parallel") > 1):
            return None
        return round(sizes[0] * width)

    def _stated(self, fact: str) -> int:
        value = self.facts.get(fact)
        return value if isinstance(value, int) else 1

    def fill(self, context: ReadContext) -> None:
        """Write the facts into the context."""
        facts = dict(self.facts)
        if self.capacity_tokens is not None:
            facts["kv_capacity_tokens"] = self.capacity_tokens
        size = self.bytes_per_token()
        if size is not None:
            facts["kv_bytes_per_token"] = size
        context.engine_facts = facts
