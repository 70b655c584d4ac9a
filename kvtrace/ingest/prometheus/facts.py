"""What names, HELP texts and info labels say about the engine: version, model, capacity."""

from __future__ import annotations

import re
from typing import Final

from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.prometheus.exposition import Labels
from kvtrace.ingest.prometheus.series import PROGRAMS

Version = tuple[int, int, int]
_VLLM_NAMES: Final[dict[str, tuple[Version | None, Version | None, str]]] = {
    # base name: (at least, below, what was seen)
    "gpu_prefix_cache_queries": ((0, 7, 0), (0, 12, 0), "`gpu_prefix_cache_queries`"),
    "gpu_prefix_cache_hit_rate": (None, (0, 11, 0), "the gauge `gpu_prefix_cache_hit_rate`"),
    "num_requests_swapped": (None, (0, 11, 0), "`num_requests_swapped`"),
    "prefix_cache_queries": ((0, 10, 0), None, "`prefix_cache_queries`"),
    "external_prefix_cache_queries": ((0, 11, 1), None, "`external_prefix_cache_queries`"),
    "kv_block_lifetime_seconds": ((0, 12, 0), None, "`kv_block_lifetime_seconds`"),
    "kv_block_idle_before_evict_seconds": ((0, 12, 0), None, "`kv_block_idle_before_evict…`"),
    "request_prefill_kv_computed_tokens": (
        (0, 13, 0),
        None,
        "`request_prefill_kv_computed_tokens`",
    ),
    "prompt_tokens_cached_by_source": ((0, 30, 0), None, "`prompt_tokens_cached_by_source`"),
}
"""Bounds lie between releases that were read."""
_HIT_UNITS: Final = {
    "blocks": ((0, 7, 0), (0, 9, 0), "HELP says that look-ups count blocks"),
    "tokens": ((0, 9, 0), None, "HELP says that look-ups count tokens"),
}
_SAFE_NAME: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}(?:/[A-Za-z0-9][A-Za-z0-9._+-]{0,99})?"
)
_COUNT: Final = re.compile(r"[1-9][0-9]{0,9}")
_WORD: Final = re.compile(r"[A-Za-z0-9_]{1,20}")
_SWITCH: Final = {"True": "on", "true": "on", "False": "off", "false": "off"}


def config_capacity_tokens(labels: Labels) -> int | None:
    """Tokens that HBM holds by the labels of `cache_config_info`; None if they do not say it."""
    values = dict(labels)
    size = _count(values.get("block_size") or values.get("page_size"))
    blocks = _count(values.get("num_gpu_blocks") or values.get("num_pages"))
    return size * blocks if size is not None and blocks is not None else None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and _COUNT.fullmatch(text) else None


class FactBook:
    """Collects what a file says about its engines."""

    def __init__(self) -> None:
        self.help_units: dict[str, str] = {}
        """Of a base name: what its HELP text says that it counts."""
        self._programs: set[str] = set()
        self._names: dict[str, None] = {}
        self._units: dict[str, None] = {}
        self._found: dict[str, set[str | int]] = {}

    def saw_series(self, program: str, base: str, labels: Labels) -> None:
        """A series of this file is used."""
        self._programs.add(program)
        values = dict(labels)
        if program == "vllm" and base in _VLLM_NAMES:
            self._names[base] = None
        name = values.get("model_name") or values.get("model")
        if name and program != "dcgm":
            self._add("llm", _model(name))
        if program == "dcgm":
            self._add("gpu", _gpu(values.get("modelName")))

    def saw_config(self, labels: Labels) -> None:
        """Labels of `cache_config_info`."""
        values = dict(labels)
        self._add("block_size", _count(values.get("block_size") or values.get("page_size")))
        self._add("kv_capacity_blocks", _count(values.get("num_gpu_blocks")))
        self._add("kv_capacity_tokens", config_capacity_tokens(labels))
        dtype = values.get("cache_dtype")
        self._add("kv_cache_dtype", dtype if dtype and _WORD.fullmatch(dtype) else None)
        self._add("prefix_caching", _SWITCH.get(values.get("enable_prefix_caching", "")))

    def saw_help(self, base: str, text: str) -> None:
        """HELP of a look-up counter of vLLM."""
        lowered = text.lower()
        for unit in ("blocks", "tokens"):
            if unit in lowered:
                self.help_units[base] = unit
                self._units[unit] = None
                return

    def _add(self, fact: str, value: str | int | None) -> None:
        if value is not None:
            self._found.setdefault(fact, set()).add(value)

    def fill(self, context: ReadContext) -> None:
        """Write what all engines of the file agree on into the context."""
        engines = [program.slug for program in PROGRAMS if not program.is_machine]
        context.engine = next((slug for slug in engines if slug in self._programs), None)
        for fact, values in sorted(self._found.items()):
            if len(values) == 1:
                context.engine_facts[fact] = next(iter(values))
        self._fill_version(context)

    def _fill_version(self, context: ReadContext) -> None:
        rows = [_VLLM_NAMES[name] for name in self._names]
        rows += [_HIT_UNITS[unit] for unit in self._units if self._names]
        if context.engine != "vllm" or not rows:
            return
        lowest = max((low for low, _, _ in rows if low is not None), default=None)
        highest = min((high for _, high, _ in rows if high is not None), default=None)
        why = "; ".join(dict.fromkeys(text for _, _, text in rows))
        if lowest is not None and highest is not None and lowest >= highest:
            context.note("engine_version_unclear", f"Metrics of several vLLM versions: {why}.")
            return
        context.engine_version = ",".join(
            f"{sign}{'.'.join(map(str, version))}"
            for sign, version in ((">=", lowest), ("<", highest))
            if version is not None
        )
        context.engine_version_reason = f"not printed; guessed from {why}"


def _model(name: str) -> str | None:
    """A model's name; of a path, its last part (a path may name people and hosts)."""
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        name = name.rstrip("/").rsplit("/", 1)[-1]
    return name if _SAFE_NAME.fullmatch(name) else None


def _gpu(name: str | None) -> str | None:
    return name if name and re.fullmatch(r"[A-Za-z0-9][\w .()-]{0,60}", name, re.ASCII) else None
