"""Reads the vLLM lines of a text log: dispatch by message, and one outcome for every line."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.contract import LineTime, LogContext, LogLine, Metric, SampleRow, Tally
from kvtrace.ingest.formats.vllm_text.book import RequestBook
from kvtrace.ingest.formats.vllm_text.messages import (
    DamagedMessage,
    IgnoredMessage,
    parse_request_message,
)
from kvtrace.ingest.formats.vllm_text.startup import EngineFacts
from kvtrace.ingest.formats.vllm_text.stats import (
    ParsedStats,
    looks_like_iteration,
    looks_like_stats,
    looks_like_stats_rest,
    parse_iteration,
    parse_stats,
    parse_v0_hits,
    to_metrics,
)
from kvtrace.ingest.formats.vllm_text.version import VersionEvidence
from kvtrace.ingest.textlog.prefixes import VLLM
from kvtrace.ingest.tokenblocks import (
    DEFAULT_BLOCK_TOKENS,
    chain_token_blocks,
    parse_token_ids,
)

_CUT_PREFIX = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d[\d :-]{0,20}(?:\[?[\w./-]*)?")
_RANK = re.compile(r"EngineCore_DP(\d{1,5})")
_VLLM_PROCESS = re.compile(r"APIServer|EngineCore|Worker")
_SPLICE_AFTER: Final = 20
_ENOUGH_BLOCKS: Final = 0.8
"""Share of requests with token ids from which on their blocks are used."""


@dataclass(slots=True)
class _PendingSample:
    """A sample whose hit unit is known only at the end of the file."""

    record_offset: int
    line: int
    time: LineTime
    engine: str | None
    values: ParsedStats | tuple[Metric, ...]


class VllmLog:
    """The vLLM lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._emit = log.emit
        self._tally: Tally = log.context.tally
        self._version = VersionEvidence()
        self._facts = EngineFacts()
        self._block_tokens = log.context.block_size_tokens or DEFAULT_BLOCK_TOKENS
        hashes = self._hash_blocks if log.context.token_key else None
        self._book = RequestBook(log.clock, hashes)
        self._samples: list[_PendingSample] = []
        self._last_fields: tuple[str, ...] = ()
        self._has_hits = False

    def _hash_blocks(self, listed: str, adapter: str | None) -> list[int]:
        return chain_token_blocks(
            parse_token_ids(listed),
            key=self._context.token_key or b"",
            block_tokens=self._block_tokens,
            adapter=adapter,
        )

    def take(self, line: LogLine) -> bool:
        """Whether the line is vLLM's; then it has its outcome."""
        if line.prefix == "none":
            return self._bare(line)
        try:
            is_known = self._message(line, line.message, line.time)
        except DamagedMessage as damaged:
            self._tally.reject(line.record, "damaged_line", str(damaged))
        except IgnoredMessage as ignored:
            self._tally.ignore(str(ignored))
        else:
            if not is_known:
                if line.prefix == "formatted":
                    return False
                self._tally.ignore("other_engine_line")
        if line.prefix == "vllm":
            self._version.saw("bracket_prefix" if line.label == "bracket" else "plain_prefix")
        if line.process is not None and _is_vllm_process(line.process):
            self._version.saw("process_prefix")
        return True

    def _message(self, line: LogLine, message: str, time: LineTime) -> bool:
        """Whether the message is a known one; then the record is used."""
        event = parse_request_message(message)
        if event is not None:
            for feature in event.features:
                self._version.saw(feature)
            reason = self._book.take(event, line.record, time)
            if reason is not None:
                raise IgnoredMessage(reason)
            self._tally.use()
        elif looks_like_stats(message):
            self._stats(line, message, time)
        elif looks_like_iteration(message):
            self._iteration(line, message, time)
        elif message.startswith("Prefix cache hit rate: GPU: "):
            self._sample(line, parse_v0_hits(message), time)
        elif message.startswith("KV Transfer metrics: "):
            self._version.saw("kv_transfer")
            raise IgnoredMessage("kv_transfer_not_read_yet")
        else:
            return self._startup(line, message, time)
        return True

    def _stats(self, line: LogLine, message: str, time: LineTime) -> None:
        parsed = parse_stats(message)
        if parsed is None:
            self._splice(line, message)
            return
        if not line.terminated and len(parsed.field_names) < len(self._last_fields):
            raise DamagedMessage("the file ends inside the line")
        self._last_fields = parsed.field_names
        if parsed.has_unknown_field:
            self._context.note(
                "unknown_stats_field", "Statistics lines have a field that is not read yet."
            )
        if line.through_ray:
            self._context.note(
                "ray_deduplicates",
                "Ray drops repeated lines, so counts from this file are lower bounds"
                " (RAY_DEDUP_LOGS=0).",
            )
        self._sample(line, parsed, time)

    def _splice(self, line: LogLine, message: str) -> None:
        """A statistics line cut by another writer's whole line: read that one, drop the first."""
        matches = list(VLLM.finditer(message, _SPLICE_AFTER)) if len(message) < 4_000 else []
        if not matches:
            raise DamagedMessage("statistics")
        self._context.note(
            "spliced_lines", "Two processes wrote into each other's lines; the torn ones are lost."
        )
        behind = message[matches[-1].end() :]
        if not self._message(line, behind, line.time):
            raise DamagedMessage("statistics")

    def _iteration(self, line: LogLine, message: str, time: LineTime) -> None:
        found = parse_iteration(message)
        if found is None:
            raise DamagedMessage("iteration")
        parsed, is_dummy = found
        for feature in parsed.features:
            self._version.saw(feature)
        if is_dummy:
            raise IgnoredMessage("dummy_iteration")
        self._sample(line, parsed, time)

    def _sample(self, line: LogLine, parsed: ParsedStats | None, time: LineTime) -> None:
        if parsed is None:
            raise DamagedMessage("statistics")
        for feature in parsed.features:
            self._version.saw(feature)
        if not parsed.values:
            raise IgnoredMessage("prefix_caching_off")
        self._has_hits |= any(spec.hit != "none" for spec, _ in parsed.values)
        self._keep(line, time, parsed.engine or _engine_of(line), parsed)

    def _startup(self, line: LogLine, message: str, time: LineTime) -> bool:
        if not line.terminated and message[-1:].isdigit():
            raise DamagedMessage("a number at the end of the file")
        found = self._facts.read(message)
        if found is None:
            if "KV cache size: " in message[:80] or message.startswith("Maximum concurrency for "):
                raise DamagedMessage("capacity")
            return False
        if found.version is not None:
            self._version.printed(found.version)
        if found.is_restart:
            self._book.restart()
        for feature in found.features:
            self._version.saw(feature)
        if found.metrics:
            self._keep(line, time, _engine_of(line), found.metrics)
        else:
            self._tally.use()
        return True

    def _keep(
        self,
        line: LogLine,
        time: LineTime,
        engine: str | None,
        values: ParsedStats | tuple[Metric, ...],
    ) -> None:
        record = line.record
        self._samples.append(_PendingSample(record.offset, record.line, time, engine, values))
        self._tally.use()

    def _bare(self, line: LogLine) -> bool:
        """A line without vLLM's prefix: what other programs print of the GPU, or a torn line."""
        if self._facts.read_gpu(line.text):
            self._tally.use()
        elif looks_like_stats_rest(line.text):
            self._tally.reject(line.record, "damaged_line", "statistics without their start")
        elif not line.terminated and _CUT_PREFIX.fullmatch(line.text[:200]):
            self._tally.reject(line.record, "damaged_line", "the file ends inside the line")
        else:
            return False
        return True

    def _judge_blocks(self) -> None:
        """Grade A if most requests printed their token ids; otherwise their blocks mislead."""
        context, share = self._context, self._book.share_with_blocks()
        if share < _ENOUGH_BLOCKS:
            self._book.forget_blocks()
            return
        context.evidence_grade = "A"
        context.found_block_size_tokens = self._block_tokens
        context.block_size_reason = (
            "stated by --block-size"
            if context.block_size_tokens
            else f"token ids hashed in blocks of {DEFAULT_BLOCK_TOKENS}, vLLM's default"
        )
        context.block_scope = "global"
        if share < 1:
            context.note(
                "blocks_of_some_requests",
                f"{share:.1%} of the requests print their token ids; reuse is a lower bound.",
            )

    def finish(self) -> None:
        """Emit everything: version, unit and block share are known only now."""
        if self._book.saw_suffix:
            self._version.saw("id_suffix")
        context = self._context
        context.engine = "vllm"
        self._version.fill(context)
        self._facts.fill(context)
        counted = self._version.prompt_rate_counts()
        if counted is not None:
            context.engine_facts["prompt_tokens_per_s_counts"] = counted
        engines = _engine_count(sample.engine for sample in self._samples)
        if engines:
            context.engine_facts["engines"] = engines
        context.evidence_grade = "C" if self._has_hits else "L"
        self._judge_blocks()
        llm = context.engine_facts.get("llm")
        for row, time in self._book.rows(llm if isinstance(llm, str) else None):
            self._emit(row, time)
        unit = self._version.hit_unit()
        for sample in self._samples:
            values = sample.values
            metrics = (
                list(values) if isinstance(values, tuple) else to_metrics(values, v1_hit_unit=unit)
            )
            observed = SampleRow(
                offset=sample.record_offset,
                line=sample.line,
                observed_at_ns=None,
                engine=sample.engine,
                metrics=metrics,
            )
            self._emit(observed, sample.time)


@functools.lru_cache(maxsize=1024)
def _is_vllm_process(name: str) -> bool:
    return _VLLM_PROCESS.match(name) is not None


def _engine_of(line: LogLine) -> str | None:
    """The data-parallel rank of the process that wrote the line, as statistics name it."""
    match = _RANK.fullmatch(line.process or "")
    return f"Engine {int(match[1]):03d}" if match is not None else None


def _engine_count(labels: Iterable[str | None]) -> int:
    """Data-parallel engines that the labels name (`Engine 003`, `8 Engines Aggregated`)."""
    ranks: set[str] = set()
    aggregated = 0
    for label in labels:
        if label is not None and label.startswith("Engine "):
            ranks.add(label)
        elif label is not None:
            aggregated = max(aggregated, int(label.partition(" ")[0]))
    return max(aggregated, len(ranks))
