"""Reads the vLLM lines of a text log: dispatch by message, and one outcome for every line."""

from __future__ import annotations

import functools
import re
from array import array
from collections.abc import Callable, Sequence
from typing import Final

from kvtrace.ingest.blocks.tokens import DEFAULT_BLOCK_TOKENS, chain_token_blocks
from kvtrace.ingest.contract import (
    LineTime,
    LogContext,
    LogLine,
    Tally,
    ToldLine,
    TransferRow,
)
from kvtrace.ingest.formats.vllm_text.book import MAX_OPEN, BookCounts, RequestBook
from kvtrace.ingest.formats.vllm_text.iterations import (
    ITERATION_START,
    MAX_SINGLE,
    IterationPool,
    parse_iteration,
)
from kvtrace.ingest.formats.vllm_text.messages import (
    DamagedMessage,
    IgnoredMessage,
    parse_request_message,
)
from kvtrace.ingest.formats.vllm_text.samples import SampleBook
from kvtrace.ingest.formats.vllm_text.semantics import describe_meaning
from kvtrace.ingest.formats.vllm_text.servers import ServerBooks
from kvtrace.ingest.formats.vllm_text.startup import EngineFacts
from kvtrace.ingest.formats.vllm_text.stats import (
    STATS_START,
    V0_HITS_START,
    ParsedStats,
    looks_like_stats_rest,
    parse_stats,
    parse_v0_hits,
    unlabelled,
)
from kvtrace.ingest.formats.vllm_text.told import ToldRequests
from kvtrace.ingest.formats.vllm_text.transfers import TRANSFERS_START, parse_transfers
from kvtrace.ingest.formats.vllm_text.version import VersionEvidence
from kvtrace.ingest.textlog.engines import EngineNames
from kvtrace.ingest.textlog.prefixes import VLLM

_CUT_PREFIX = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d[\d :-]{0,20}(?:\[?[\w./-]*)?")
_RANK = re.compile(r"EngineCore_DP(\d{1,5})")
_VLLM_PROCESS = re.compile(r"(?i:APIServer|EngineCore|(?:Vllm)?Worker)")
_SPLICE_AFTER: Final = 20
_MAX_SPLICED_CHARS: Final = 4_000
_MAX_STARTUP_LINES: Final = 4_096
_ENOUGH_BLOCKS: Final = 0.8
"""Share of requests with token ids from which on their blocks are used."""


class VllmLog:
    """The vLLM lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._log = log
        self._tally: Tally = log.context.tally
        self._version = VersionEvidence()
        self._known_evidence = 0
        self._facts = EngineFacts()
        self._block_tokens = log.context.block_size_tokens or DEFAULT_BLOCK_TOKENS
        self._counts = BookCounts()
        self._books = ServerBooks(self._new_book)
        self._told = ToldRequests(self._books, self._tally, self._saw_told)
        self._samples = SampleBook(log.emit, self._version.hit_unit)
        self._iterations = IterationPool(self._samples)
        self._names = EngineNames()
        self._said_at_start: set[tuple[str, str | None, str]] = set()
        self._last_fields: tuple[str, ...] = ()
        self._starts = (
            (STATS_START, self._stats),
            (ITERATION_START, self._iteration),
            (V0_HITS_START, self._v0_hits),
            (TRANSFERS_START, self._transfers),
        )

    def _new_book(self) -> RequestBook:
        hashes = self._hash_blocks if self._context.token_key else None
        return RequestBook(
            self._log.clock, self._log.emit, self._counts, hashes, llm=self._facts.llm
        )

    def _hash_blocks(self, token_ids: list[int], adapter: str | None) -> array[int] | None:
        return chain_token_blocks(
            token_ids,
            key=self._context.token_key or b"",
            block_tokens=self._block_tokens,
            adapter=adapter,
        )

    def take(self, line: LogLine) -> bool:
        """Whether the line is vLLM's; then it has its outcome."""
        if line.prefix == "none":
            return self._bare(line)
        try:
            is_known = self._message(line, line.message)
        except DamagedMessage as damaged:
            self._tally.reject(line.record, "damaged_line", str(damaged))
        except IgnoredMessage as ignored:
            self._tally.ignore(str(ignored))
        else:
            if not is_known:
                if line.prefix != "vllm":
                    return False
                self._tally.ignore("other_engine_line")
        if line.prefix == "vllm":
            self._saw_prefix(line.process, line.label)
        self._weigh_evidence()
        return True

    def take_told(
        self,
        told: Sequence[ToldLine],
        *,
        offset: int,
        line: int,
        time_of: Callable[[bytes], LineTime],
    ) -> None:
        """Take lines of the express lane."""
        self._told.take(told, offset=offset, line=line, time_of=time_of)

    def _saw_told(self, features: tuple[str, ...], process: str | None, label: str) -> None:
        self._saw(features)
        self._saw_prefix(process, label)
        self._weigh_evidence()

    def _saw_prefix(self, process: str | None, label: str | None) -> None:
        self._version.saw("bracket_prefix" if label == "bracket" else "plain_prefix")
        if process is not None and _is_vllm_process(process):
            self._version.saw("process_prefix")

    def _weigh_evidence(self) -> None:
        if self._version.changes != self._known_evidence:
            self._known_evidence = self._version.changes
            self._samples.release_known()

    def _message(self, line: LogLine, message: str) -> bool:
        """Whether the message is a known one; then the record is used."""
        event = parse_request_message(message)
        if event is not None:
            self._saw(event.features)
            reason = self._books.take(event, line.record, line.time, line.process, line.writer)
            if reason is not None:
                raise IgnoredMessage(reason)
            self._tally.use()
            return True
        body = unlabelled(message)[1]
        for start, read in self._starts:
            if body.startswith(start):
                read(line, message)
                return True
        return self._startup(line, message)

    def _saw(self, features: tuple[str, ...]) -> None:
        for feature in features:
            self._version.saw(feature)

    def _stats(self, line: LogLine, message: str) -> None:
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
        self._sample(line, parsed)

    def _splice(self, line: LogLine, message: str) -> None:
        """A statistics line cut by another writer's whole line: read that one, drop the first."""
        is_short = len(message) < _MAX_SPLICED_CHARS
        matches = list(VLLM.finditer(message, _SPLICE_AFTER)) if is_short else []
        if not matches:
            raise DamagedMessage("statistics")
        self._context.note(
            "spliced_lines", "Two processes wrote into each other's lines; the torn ones are lost."
        )
        if not self._message(line, message[matches[-1].end() :]):
            raise DamagedMessage("statistics")

    def _v0_hits(self, line: LogLine, message: str) -> None:
        self._sample(line, parse_v0_hits(message))

    def _iteration(self, line: LogLine, message: str) -> None:
        parsed = parse_iteration(message)
        if parsed is None:
            raise DamagedMessage("iteration")
        self._saw(parsed.features)
        if parsed.is_dummy:
            raise IgnoredMessage("dummy_iteration")
        self._iterations.take(line.record, line.time, self._engine(line, parsed.engine), parsed)
        self._tally.use()

    def _sample(self, line: LogLine, parsed: ParsedStats | None) -> None:
        if parsed is None:
            raise DamagedMessage("statistics")
        self._saw(parsed.features)
        if not parsed.values:
            raise IgnoredMessage("prefix_caching_off")
        engine = self._engine(line, parsed.engine)
        self._samples.take(line.record, line.time, parsed, engine=engine, writer=line.writer)
        self._tally.use()

    def _engine(self, line: LogLine, label: str | None) -> str | None:
        """The engine that a line means: by the label that it prints, else by its process."""
        return self._names.name(label or _engine_of(line), line.process, line.writer)

    def _transfers(self, line: LogLine, message: str) -> None:
        if not line.terminated and message[-1:].isalnum():
            raise DamagedMessage("a number at the end of the file")
        parsed = parse_transfers(message)
        self._saw(parsed.features)
        if not parsed.metrics:
            self._context.note(
                "kv_transfer_keys_unknown",
                "Lines of a KV connector hold keys that are not read yet; they are counted.",
            )
            raise IgnoredMessage("kv_transfer_keys_unknown")
        record = line.record
        for move in parsed.moves:
            row = TransferRow(
                offset=record.offset,
                line=record.line,
                request_id=None,
                started_at_ns=None,
                direction=move.direction,
                path=move.path,
                moved_bytes=move.moved_bytes,
                moved_tokens=None,
                duration_ns=move.duration_ns,
                ranks=None,
            )
            self._log.emit(row, line.time)
        engine = self._engine(line, parsed.engine)
        self._samples.give(record, line.time, engine, list(parsed.metrics))
        self._tally.use()

    def _startup(self, line: LogLine, message: str) -> bool:
        if not line.terminated and message[-1:].isdigit():
            raise DamagedMessage("a number at the end of the file")
        found = self._facts.read(message)
        if found is None:
            if "KV cache size: " in message[:80] or message.startswith("Maximum concurrency for "):
                raise DamagedMessage("capacity")
            return False
        if found.version is not None:
            self._version.printed(found.version, line.writer)
        if found.is_restart:
            self._books.restart(line)
            self._names.restart(line.writer)
            self._said_at_start.clear()
        self._saw(found.features)
        if found.metrics:
            pod = (line.writer or "").partition("@")[2]
            said = (pod, line.process, message[: _SPLICE_AFTER * 10])
            if said in self._said_at_start:
                raise IgnoredMessage("repeated_by_rank")
            if len(self._said_at_start) < _MAX_STARTUP_LINES:
                self._said_at_start.add(said)
            worker = _worker_of(line) if _engine_of(line) is None else None
            engine = self._engine(line, worker)
            self._samples.give(line.record, line.time, engine, list(found.metrics))
        self._tally.use()
        return True

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
        """Grade A if most requests printed their token ids; otherwise their blocks mislead.

        Rows left with their blocks; without a block size nobody reads those.
        """
        context, share = self._context, self._counts.share_with_blocks()
        if share < _ENOUGH_BLOCKS:
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
        """Emit what is left; version, units and block share are known only now."""
        self._books.close()
        self._samples.release()
        self._iterations.flush()
        context, counts = self._context, self._counts
        if counts.saw_suffix:
            self._version.saw("id_suffix")
        context.engine = "vllm"
        self._version.fill(context)
        self._facts.fill(context)
        if self._samples.engines:
            context.engine_facts["engines"] = self._samples.engines
        if self._books.servers > 1:
            context.engine_facts["api_servers"] = self._books.servers
        describe_meaning(self._version, context, has_hits=self._samples.has_hits)
        context.evidence_grade = "C" if self._samples.has_hits else "L"
        self._judge_blocks()
        if self._iterations.has_pooled:
            context.note(
                "iterations_pooled",
                f"Of the iterations, the first {MAX_SINGLE:,} are samples of their own; the others"
                " are means of one engine over one second, with their sums.",
            )
        if counts.left_open and counts.unmatched_ends:
            context.note(
                "late_ends",
                f"Some requests ended when {MAX_OPEN:,} newer ones had come; they count as open.",
            )


@functools.lru_cache(maxsize=1024)
def _is_vllm_process(name: str) -> bool:
    return _VLLM_PROCESS.match(name) is not None


def _engine_of(line: LogLine) -> str | None:
    """The data-parallel rank of the process that wrote the line, as statistics name it."""
    match = _RANK.fullmatch(line.process) if line.process else None
    return f"Engine {int(match[1]):03d}" if match is not None else None


def _worker_of(line: LogLine) -> str | None:
    """The worker that wrote the line: each says its own share of memory."""
    is_worker = line.process is not None and "Worker" in line.process
    return line.process if is_worker else None
