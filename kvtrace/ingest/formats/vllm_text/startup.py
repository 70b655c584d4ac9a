"""What vLLM says when it starts: its version, its configuration, and the room for KV cache."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from kvtrace.ingest.contract import Metric, ReadContext
from kvtrace.ingest.modelnames import llm_name
from kvtrace.units import GIB

_WORDS = re.compile(r"vLLM |LLM engine|args: |KV cache |concurrency|blocks|Chunked prefill ")
"""One of these is near the start of every message that is read here."""
_HEAD_CHARS: Final = 140
_BANNER = re.compile(r"vLLM (?:API server|server) version v?(\d[\w.+-]{0,60})", re.ASCII)
_ENGINE = re.compile(
    r"Initializing an? (?:V1 )?LLM engine \(v?(\d[\w.+-]{0,60})\) with config: ", re.ASCII
)
_CAPACITY = re.compile(
    r"(?:[A-Za-z][\w /:()-]{0,60} )?KV cache size: ([\d,]{1,20}) tokens"
    r"(?:, Maximum concurrency for ([\d,]{1,20}) tokens per request: (\d{1,9}\.\d{1,9})x)?\.?",
    re.ASCII,
)
_CONCURRENCY = re.compile(
    r"Maximum concurrency for ([\d,]{1,20}) tokens per request: (\d{1,9}\.\d{1,9})x\.?", re.ASCII
)
_MEMORY = re.compile(r"Available KV cache memory: (\d{1,9}(?:\.\d{1,9})?) GiB\.?", re.ASCII)
_V0_BLOCKS = re.compile(
    r"# (?:GPU|cuda|\w{1,20}) blocks: (\d{1,12}), # CPU blocks: (\d{1,12})\.?", re.ASCII
)
_INIT_BLOCKS = re.compile(
    r"[\w ]{0,60}cache_config_info with initialization after num_gpu_blocks is: (\d{1,12})\.?",
    re.ASCII,
)
_CONFIG: Final[tuple[tuple[str, str, re.Pattern[str]], ...]] = tuple(
    (fact, kind, re.compile(pattern, re.ASCII))
    for fact, kind, pattern in (
        # fact, kind, `name=value` of a config or Namespace, or `'name': value` of the arguments
        ("llm", "name", r"\bmodel'?(?:=|: )'([^'\\]{1,300})'"),
        ("tensor_parallel", "count", r"\btensor_parallel_size'?(?:=|: )(\d{1,6})\b"),
        ("pipeline_parallel", "count", r"\bpipeline_parallel_size'?(?:=|: )(\d{1,6})\b"),
        ("data_parallel", "count", r"\bdata_parallel_size'?(?:=|: )(\d{1,6})\b"),
        ("block_size", "count", r"\bblock_size'?(?:=|: )(\d{1,6})\b"),
        ("prefill_chunk_tokens", "count", r"\bmax_num_batched_tokens'?(?:=|: )(\d{1,9})\b"),
        ("running_requests", "count", r"\bmax_num_seqs'?(?:=|: )(\d{1,9})\b"),
        ("max_model_len", "count", r"\b(?:max_seq_len|max_model_len)'?(?:=|: )(\d{1,9})\b"),
        ("dtype", "text", r"\bdtype=(?:torch\.)?'?(\w{1,20})"),
        ("kv_cache_dtype", "text", r"\bkv_cache_dtype'?(?:=|: )'?(\w{1,20})"),
        ("quantization", "text", r"\bquantization'?(?:=|: )'?(\w{1,40})"),
        ("prefix_caching", "switch", r"\benable_prefix_caching'?(?:=|: )(True|False)\b"),
        (
            "speculative",
            "text",
            r"\bspeculative_config'?(?:=SpeculativeConfig\(|: \{)[^){}]{0,300}?"
            r"\bmethod'?(?:=|: )'(\w{1,20})'",
        ),
    )
)
_CONFIG_HEADS: Final = (
    "non-default args: ",
    "args: Namespace(",
    "Chunked prefill is enabled with ",
)
_BLOCK_SIZES: Final = (8, 16, 32, 64, 128)
_GPU = re.compile(
    r"\s*GPU (\d{1,3}): ((?:NVIDIA|AMD|Intel|Tesla)[\w .-]{1,60}?)(?: \(UUID: [^)]*\))?\s*",
    re.ASCII,
)
_DEFAULT_BLOCK_SIZE: Final = 16
_MAX_CONFIG_CHARS: Final = 40_000


@dataclass(frozen=True, slots=True)
class StartupLine:
    """Metrics of a start-up line, and the version if it names one."""

    metrics: tuple[Metric, ...] = ()
    version: str | None = None
    is_restart: bool = False
    features: tuple[str, ...] = ()


@dataclass(slots=True)
class EngineFacts:
    """What the start-up lines add up to."""

    facts: dict[str, str | int | float] = field(default_factory=dict)
    capacity_blocks: int | None = None
    capacity_tokens: int | None = None
    """Of one engine; where lines of several engines or ranks differ, the smallest."""
    concurrency: tuple[int, float] | None = None
    """(tokens a request, requests of that size that fit)."""

    def read(self, message: str) -> StartupLine | None:
        """Take in a start-up message; None if it is none, or damaged."""
        if _WORDS.search(message, 0, _HEAD_CHARS) is None:
            return None
        for reader in (self._version, self._config, self._capacity, self._blocks):
            line = reader(message)
            if line is not None:
                return line
        return None

    def llm(self) -> str | None:
        """The model, if the log has named one so far."""
        name = self.facts.get("llm")
        return name if isinstance(name, str) else None

    def _restart(self) -> None:
        """A server starts: what an earlier run said of its room is over."""
        self.capacity_blocks = self.capacity_tokens = self.concurrency = None

    def read_gpu(self, text: str) -> bool:
        """Take in a line of `nvidia-smi -L` or vLLM's collect_env, such as `GPU 0: NVIDIA L40S`."""
        match = _GPU.fullmatch(text) if len(text) < 200 else None
        if match is None:
            return False
        self.facts["gpu"] = match[2]
        known = self.facts.get("gpus")
        self.facts["gpus"] = max(known if isinstance(known, int) else 0, int(match[1]) + 1)
        return True

    def _version(self, message: str) -> StartupLine | None:
        banner = _BANNER.fullmatch(message.rstrip())
        if banner is not None:
            self._restart()
            return StartupLine(version=banner[1], is_restart=True)
        engine = _ENGINE.match(message)
        if engine is None:
            return None
        self._take_config(message[engine.end() :])
        return StartupLine(version=engine[1])

    def _config(self, message: str) -> StartupLine | None:
        if not message.startswith(_CONFIG_HEADS):
            return None
        self._take_config(message)
        return StartupLine()

    def _take_config(self, text: str) -> None:
        text = text[:_MAX_CONFIG_CHARS]
        for fact, kind, pattern in _CONFIG:
            match = pattern.search(text)
            if match is None or match[1] == "None":
                continue
            value: str | int = int(match[1]) if kind == "count" else match[1]
            if kind == "name":
                value = llm_name(match[1])
            elif kind == "switch":
                value = "on" if match[1] == "True" else "off"
            self.facts[fact] = value

    def _capacity(self, message: str) -> StartupLine | None:
        if (match := _CAPACITY.fullmatch(message)) is not None:
            tokens = _count(match[1])
            self.capacity_tokens = min(tokens, self.capacity_tokens or tokens)
            metrics = [_instant("kv_capacity_tokens", tokens, "tokens")]
            if match[2] is not None:
                metrics.append(self._concurrency(match[2], match[3]))
            features = ("one_line_capacity",) if match[2] is not None else ()
            return StartupLine(tuple(metrics), features=features)
        if (match := _CONCURRENCY.fullmatch(message)) is not None:
            return StartupLine((self._concurrency(match[1], match[2]),))
        if (match := _MEMORY.fullmatch(message)) is not None:
            return StartupLine(
                (_instant("kv_memory_bytes", round(float(match[1]) * GIB), "bytes"),)
            )
        return None

    def _concurrency(self, length: str, times: str) -> Metric:
        self.concurrency = (_count(length), float(times))
        return _instant("max_concurrency", float(times), "requests")

    def _blocks(self, message: str) -> StartupLine | None:
        match = _V0_BLOCKS.fullmatch(message) or _INIT_BLOCKS.fullmatch(message)
        if match is None:
            return None
        blocks = int(match[1])
        self.capacity_blocks = min(blocks, self.capacity_blocks or blocks)
        features = ("v0_stats",) if message.startswith("#") else ("init_blocks",)
        metrics = (_instant("kv_capacity_blocks", blocks, "blocks"),)
        return StartupLine(metrics, features=features)

    def fill(self, context: ReadContext) -> None:
        """Write the facts into the context, with the block size that capacity implies."""
        facts = dict(self.facts)
        if self.capacity_blocks is not None:
            facts["kv_capacity_blocks"] = self.capacity_blocks
        tokens = self.capacity_tokens
        if tokens is None and self.capacity_blocks is not None:
            size = self._block_size(context)
            facts["block_size"] = size
            tokens = self.capacity_blocks * size
        if tokens is not None:
            facts["kv_capacity_tokens"] = tokens
        context.engine_facts = facts

    def _block_size(self, context: ReadContext) -> int:
        """Tokens a block: configured, or proved by the printed concurrency, or assumed."""
        known = self.facts.get("block_size")
        if isinstance(known, int):
            return known
        for size in _BLOCK_SIZES:
            if self._agrees(size):
                context.note(
                    "block_size_inferred",
                    f"{size} tokens a block: blocks × {size} agrees with the printed concurrency.",
                )
                return size
        context.note(
            "block_size_assumed",
            f"The log does not say the block size; {_DEFAULT_BLOCK_SIZE} tokens, the default of"
            " vLLM, are assumed.",
        )
        return _DEFAULT_BLOCK_SIZE

    def _agrees(self, size: int) -> bool:
        """Whether blocks × size / length rounds to the printed two digits."""
        if self.capacity_blocks is None or self.concurrency is None:
            return False
        length, times = self.concurrency
        return abs(self.capacity_blocks * size / length - times) <= 0.005 + 1e-9


def _count(text: str) -> int:
    return int(text.replace(",", "") or 0)


def _instant(metric: str, value: float, unit: str) -> Metric:
    return Metric(metric=metric, value=float(value), unit=unit, window="instant")
