"""Reads one vLLM text log: peel, stamp, dispatch, and one outcome for every record."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.clocks import LineTime, LogClock, parse_iso
from kvtrace.ingest.contract import (
    Metric,
    ReadContext,
    Record,
    Row,
    SampleRow,
    Tally,
)
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
from kvtrace.ingest.layers import LinePeeler, PeeledLine, skip_progress_bar
from kvtrace.ingest.tokenblocks import (
    DEFAULT_BLOCK_TOKENS,
    chain_token_blocks,
    parse_token_ids,
)
from kvtrace.units import NS_PER_S

PREFIX: Final = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)"
    r" (?:(\[)[^\]\s]{1,160}:\d{1,6}\] |[\w./-]{1,160}:\d{1,6}\] )"
)
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_CUT_PREFIX = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d[\d :-]{0,20}(?:\[?[\w./-]*)?")
_ACCESS = re.compile(
    r'(?:INFO|WARNING|ERROR): +\S{1,80} (?:\d+ )?- "[A-Z]{3,10} (\S{1,2000}) HTTP/[\d.]+" \d{3}'
)
_WHOLE_ACCESS = re.compile(
    rb"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z (?:std(?:out|err) F )?)?"
    rb"(?:\([A-Za-z][\w.:/-]{0,120} pid=\d+\) )?"
    rb'(?:INFO|WARNING|ERROR): +[!-~]{1,80} (?:\d+ )?- "[A-Z]{3,10} ([!-~]{1,2000}) HTTP/[\d.]+"'
    rb" \d{3}(?: [A-Za-z -]{1,40})?\r?"
)
"""An access line in its plainest layers, told before anything is decoded or peeled."""
_HEALTH_PATHS: Final = ("/health", "/metrics", "/ping", "/version", "/load")
_ISO_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,6})?(?: [A-Z]{2}\d+)*\] ")
_RANK = re.compile(r"EngineCore_DP(\d{1,5})")
_VLLM_PROCESS = re.compile(r"APIServer|EngineCore|Worker")
_SPLICE_AFTER: Final = 20
_ENOUGH_BLOCKS: Final = 0.8
"""Share of requests with token ids from which on their blocks are used."""


@dataclass(slots=True)
class _PendingSample:
    """A sample whose time and hit unit are known only at the end of the file."""

    record_offset: int
    line: int
    time: LineTime
    engine: str | None
    values: ParsedStats | tuple[Metric, ...]


class VllmLog:
    """The state of one log while it is read."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._tally: Tally = context.tally
        self._clock = LogClock()
        self._version = VersionEvidence()
        self._facts = EngineFacts()
        self._block_tokens = context.block_size_tokens or DEFAULT_BLOCK_TOKENS
        self._book = RequestBook(self._hash_blocks if context.token_key else None)
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

    def take(self, line: PeeledLine) -> None:
        """Give one peeled line its outcome."""
        text = line.text
        match = None if line.is_formatted else PREFIX.match(text)
        if match is None and not line.is_formatted:
            behind = skip_progress_bar(text)
            if behind is not text:
                text, match = behind, PREFIX.match(behind)
            if match is None:
                self._other(line, text)
                return
        message = text
        month_day, time_ns = None, 0
        if match is not None:
            message = text[match.end() :]
            stamp = _stamp(match[1])
            if stamp is None:
                self._tally.reject(line.record, "invalid_time", "no such date or time")
                return
            month_day, time_ns = stamp
            self._version.saw("bracket_prefix" if match[2] else "plain_prefix")
        if line.process is not None and _is_vllm_process(line.process):
            self._version.saw("process_prefix")
        time = self._clock.observe(
            month_day=month_day, time_ns=time_ns, instant=line.instant, naive=line.naive
        )
        try:
            self._message(line, message, time)
        except DamagedMessage as damaged:
            self._tally.reject(line.record, "damaged_line", str(damaged))
        except IgnoredMessage as ignored:
            self._tally.ignore(str(ignored))

    def _message(self, line: PeeledLine, message: str, time: LineTime) -> None:
        event = parse_request_message(message)
        if event is not None:
            for feature in event.features:
                self._version.saw(feature)
            reason = self._book.take(event, line.record, time)
            if reason is not None:
                raise IgnoredMessage(reason)
            self._use(line, time)
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
            self._startup(line, message, time)

    def _stats(self, line: PeeledLine, message: str, time: LineTime) -> None:
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

    def _splice(self, line: PeeledLine, message: str) -> None:
        """A statistics line cut by another writer's whole line: read that one, drop the first."""
        matches = list(PREFIX.finditer(message, _SPLICE_AFTER)) if len(message) < 4_000 else []
        if not matches:
            raise DamagedMessage("statistics")
        self._context.note(
            "spliced_lines", "Two processes wrote into each other's lines; the torn ones are lost."
        )
        line.text = message[matches[-1].start() :]
        self.take(line)

    def _iteration(self, line: PeeledLine, message: str, time: LineTime) -> None:
        found = parse_iteration(message)
        if found is None:
            raise DamagedMessage("iteration")
        parsed, is_dummy = found
        for feature in parsed.features:
            self._version.saw(feature)
        if is_dummy:
            raise IgnoredMessage("dummy_iteration")
        self._sample(line, parsed, time)

    def _sample(self, line: PeeledLine, parsed: ParsedStats | None, time: LineTime) -> None:
        if parsed is None:
            raise DamagedMessage("statistics")
        for feature in parsed.features:
            self._version.saw(feature)
        if not parsed.values:
            raise IgnoredMessage("prefix_caching_off")
        self._has_hits |= any(spec.hit != "none" for spec, _ in parsed.values)
        self._keep(line, time, parsed.engine or _engine_of(line), parsed)

    def _startup(self, line: PeeledLine, message: str, time: LineTime) -> None:
        if not line.terminated and message[-1:].isdigit():
            raise DamagedMessage("a number at the end of the file")
        found = self._facts.read(message)
        if found is None:
            if "KV cache size: " in message[:80] or message.startswith("Maximum concurrency for "):
                raise DamagedMessage("capacity")
            raise IgnoredMessage("other_engine_line")
        if found.version is not None:
            self._version.printed(found.version)
        if found.is_restart:
            self._book.restart()
        for feature in found.features:
            self._version.saw(feature)
        if found.metrics:
            self._keep(line, time, _engine_of(line), found.metrics)
        else:
            self._use(line, None)

    def _keep(
        self,
        line: PeeledLine,
        time: LineTime,
        engine: str | None,
        values: ParsedStats | tuple[Metric, ...],
    ) -> None:
        record = line.record
        self._samples.append(_PendingSample(record.offset, record.line, time, engine, values))
        self._use(line, time)

    def _use(self, line: PeeledLine, time: LineTime | None) -> None:
        if time is not None:
            stamp = line.instant or line.naive
            self._clock.count(time, resolution_ns=stamp.resolution_ns if stamp else NS_PER_S)
        self._tally.use()

    def _other(self, line: PeeledLine, text: str) -> None:
        """A line without vLLM's prefix: another program's, or a torn one."""
        access = _ACCESS.match(text[:3_000])
        if access is not None:
            self.skip_access(access[1])
            return
        if self._facts.read_gpu(text):
            self._tally.use()
            return
        if looks_like_stats_rest(text):
            self._tally.reject(line.record, "damaged_line", "statistics without their start")
            return
        if not line.terminated and _CUT_PREFIX.fullmatch(text[:200]):
            self._tally.reject(line.record, "damaged_line", "the file ends inside the line")
            return
        iso = _ISO_LINE.match(text)
        if iso is None:
            self._tally.ignore("other_text")
            return
        self._clock.observe(naive=parse_iso(iso[1]))
        is_lmcache = text.startswith("LMCache ", iso.end())
        self._tally.ignore("lmcache_not_read_yet" if is_lmcache else "other_program")

    def skip_access(self, path: str) -> None:
        """Count a line of the HTTP server's access log."""
        is_health = path.startswith(_HEALTH_PATHS)
        self._tally.ignore("health_check" if is_health else "access_line")

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

    def rows(self) -> Iterator[Row]:
        """All rows in file order; call once, when every line has been taken."""
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
        resolve = self._clock.resolver(context)
        unit = self._version.hit_unit()
        llm = context.engine_facts.get("llm")
        requests = self._book.rows(resolve, llm if isinstance(llm, str) else None)
        request = next(requests, None)
        for sample in sorted(self._samples, key=lambda pending: pending.record_offset):
            while request is not None and request.offset < sample.record_offset:
                yield request
                request = next(requests, None)
            values = sample.values
            yield SampleRow(
                offset=sample.record_offset,
                line=sample.line,
                observed_at_ns=resolve(sample.time),
                engine=sample.engine,
                metrics=(
                    list(values)
                    if isinstance(values, tuple)
                    else to_metrics(values, v1_hit_unit=unit)
                ),
            )
        while request is not None:
            yield request
            request = next(requests, None)


@functools.lru_cache(maxsize=1024)
def _stamp(text: str) -> tuple[int, int] | None:
    """(month × 100 + day, ns since midnight) of `MM-DD HH:MM:SS`; many lines share one."""
    month, day = int(text[0:2]), int(text[3:5])
    hour, minute, second = int(text[6:8]), int(text[9:11]), int(text[12:14])
    is_date = 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]
    if not is_date or hour > 23 or minute > 59 or second > 60:
        return None
    return month * 100 + day, (hour * 3600 + minute * 60 + second) * NS_PER_S


@functools.lru_cache(maxsize=1024)
def _is_vllm_process(name: str) -> bool:
    return _VLLM_PROCESS.match(name) is not None


def _engine_of(line: PeeledLine) -> str | None:
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


def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """Rows of one log, in file order, after its last line (year and version need all of it)."""
    log = VllmLog(context)
    peeler = LinePeeler(context.tally)
    for record in records:
        if b" HTTP/1." in record.data[-40:] and not peeler.is_joining:
            access = _WHOLE_ACCESS.fullmatch(record.data)
            if access is not None:  # most lines of a busy server; they carry nothing wanted
                log.skip_access(access[1].decode("utf-8", "replace"))
                continue
        line = peeler.feed(record)
        if line is not None:
            log.take(line)
    peeler.flush()
    yield from log.rows()


__all__ = ["PREFIX", "VllmLog", "read"]
