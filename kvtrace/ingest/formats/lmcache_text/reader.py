"""Reads the LMCache lines of a text log: dispatch by message, and one outcome for every line."""

from __future__ import annotations

from collections import Counter
from typing import Final, assert_never

from kvtrace.ingest.contract import LogContext, LogLine, SampleRow, Tally
from kvtrace.ingest.formats.lmcache_text.book import RequestBook, Seen
from kvtrace.ingest.formats.lmcache_text.messages import (
    DamagedMessage,
    Fetch,
    Found,
    ImpossibleMessage,
    Lookup,
    Message,
    Move,
    ServerMove,
    StartUp,
    Statistics,
    StoreIntent,
    is_candidate,
    parse_message,
    without_source,
)
from kvtrace.ingest.formats.lmcache_text.moves import PooledMove
from kvtrace.ingest.formats.lmcache_text.rows import (
    BACKEND_TIERS,
    Layout,
    load_tier,
    request_row,
)
from kvtrace.ingest.formats.lmcache_text.version import VersionEvidence
from kvtrace.ingest.textlog.engines import EngineNames
from kvtrace.ingest.textlog.fields import earlier

DEFAULT_CHUNK_TOKENS: Final = 256
_MAX_VOTES: Final = 64
_MAX_STARTED: Final = 1_024


class LmcacheLog:
    """The LMCache lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._emit = log.emit
        self._tally: Tally = log.context.tally
        self._version = VersionEvidence()
        self._book = RequestBook(self._give_out)
        self._names = EngineNames()
        self._has_source = False
        self._started: set[str] = set()
        self._backends: dict[str, None] = {}
        self._chunk_tokens: int | None = None
        self._key_votes: Counter[int] = Counter()
        self._key_tokens: int | None = None
        self._token_bytes: Counter[int] = Counter()
        self._ranks = 1
        self._known_hits = self._requests = self._unconfirmed = self._server_hits = 0
        self._unsized_ranks = False

    def take(self, line: LogLine) -> bool:
        """Whether the line is LMCache's; then it has its outcome."""
        is_ours = line.prefix == "lmcache"
        if not is_candidate(line.message):
            if is_ours:
                self._tally.ignore("other_engine_line")
            return is_ours
        text, has_source = without_source(line.message)
        if not is_ours and not (has_source or line.prefix == "formatted"):
            return False
        try:
            if not has_source and (self._has_source or not line.terminated):
                raise DamagedMessage("its end is missing")
            message = parse_message(text)
        except (DamagedMessage, ImpossibleMessage) as bad:
            if is_ours:
                is_cut = isinstance(bad, DamagedMessage)
                self._tally.reject(
                    line.record, "damaged_line" if is_cut else "invalid_field", str(bad)
                )
            return is_ours
        self._has_source |= has_source
        if message is None:
            if is_ours:
                self._tally.ignore("other_engine_line")
            return is_ours
        reason = self._message(message, line)
        if reason is None:
            self._tally.use()
        else:
            self._tally.ignore(reason)
        return True

    def _message(self, message: Message, line: LogLine) -> str | None:
        """Enter the message; None if it contributed, else the reason why it did not."""
        if isinstance(message, Lookup):
            self._version.saw(*message.features)
            return self._book.take_lookup(message, line)
        if isinstance(message, Move):
            self._version.saw(*message.features)
            self._learn_bytes(message)
            self._book.take_move(message, line)
        elif isinstance(message, StoreIntent):
            self._book.take_intent(message, line)
        elif isinstance(message, Fetch):
            self._book.take_fetch(message, line)
        elif isinstance(message, Found):
            self._version.saw("mp_server")
            return self._book.take_found(message, line)
        elif isinstance(message, ServerMove):
            self._version.saw("mp_server")
            proof = self._book.take_server_move(message, line, key_tokens=self._key_guess())
            if proof and len(self._key_votes) < _MAX_VOTES:
                self._key_votes[proof] += 1
        elif isinstance(message, Statistics):
            return self._statistics(message, line)
        elif isinstance(message, StartUp):
            self._start(message, line)
        else:
            assert_never(message)
        return None

    def _statistics(self, message: Statistics, line: LogLine) -> str | None:
        if message.device is not None:
            self._version.saw("copy_stats")
        if message.is_cumulative:
            return "cumulative_statistics"
        row = SampleRow(
            offset=line.record.offset,
            line=line.record.line,
            observed_at_ns=None,
            engine=self._names.name(message.device, line.process, line.writer),
            metrics=list(message.metrics),
        )
        self._emit(row, line.time)
        return None

    def _start(self, message: StartUp, line: LogLine) -> None:
        self._chunk_tokens = message.chunk_tokens or self._chunk_tokens
        if message.backend is not None and len(self._backends) < _MAX_VOTES:
            self._backends[message.backend] = None
        if message.is_restart and len(self._started) < _MAX_STARTED:
            name, _, number = (line.writer or "").partition(" pid=")
            name += number.partition("@")[2]  # another pod is another process
            if name in self._started:
                self._book.restart()
                self._names.restart(line.writer)
            self._started.add(name)

    def _learn_bytes(self, move: Move) -> None:
        found = None if move.size is None else move.size.token
        if found is not None and (
            found in self._token_bytes or len(self._token_bytes) < _MAX_VOTES
        ):
            self._token_bytes[found] += 1

    def _key_guess(self) -> int:
        """Tokens that a key of the server stands for: as loads prove it, else a whole chunk."""
        if self._key_tokens is not None:
            return self._key_tokens
        if self._key_votes:
            return max(self._key_votes, key=lambda tokens: (self._key_votes[tokens], tokens))
        return self._chunk_guess()

    def _chunk_guess(self) -> int:
        return self._context.block_size_tokens or self._chunk_tokens or DEFAULT_CHUNK_TOKENS

    def _layout(self) -> Layout:
        tiers = [BACKEND_TIERS.get(name) for name in self._backends]
        return Layout(
            key_tokens=self._key_guess(),
            chunk_tokens=self._chunk_guess(),
            only_tier=tiers[0] if len(tiers) == 1 else None,
        )

    def _give_out(self, seen: Seen) -> None:
        """Emit the rows of a request that is complete."""
        if seen.found is not None and self._key_tokens is None:
            self._key_tokens = self._key_guess()
        layout = self._layout()
        row = request_row(seen, layout)
        if row is not None:
            self._requests += 1
            self._known_hits += row.cached_tokens is not None
            self._unconfirmed += "load_not_confirmed" in row.flags
            self._server_hits += seen.found is not None and seen.found.found_keys > 0
            self._emit(row, seen.time)
        if seen.load is not None:
            is_server = seen.found is not None or not seen.load.is_of_worker
            tier = "host" if is_server else load_tier(seen.load, layout)
            self._give_move(seen, seen.load, None if tier is None else f"{tier}>device")
        if seen.store is not None:
            path = None if "GdsBackend" in self._backends else "device>host"
            self._give_move(seen, seen.store, path)

    def _give_move(self, seen: Seen, move: PooledMove, path: str | None) -> None:
        self._ranks = max(self._ranks, move.ranks)
        if move.tokens == 0:
            return
        row = move.row(seen.request_id, path)
        self._unsized_ranks |= row.moved_bytes is not None and row.ranks != move.ranks
        self._emit(row, earlier(move.time, move.first_ns))

    def finish(self) -> None:
        """Emit what is still open, then say what the file is."""
        self._book.finish()
        context = self._context
        context.engine = "lmcache"
        context.layer = "server" if 0 < self._server_hits == self._requests else "engine"
        context.evidence_grade = "B" if self._known_hits else "C"
        if self._requests and not self._known_hits:
            context.evidence_grade = "L"
        self._version.fill(context)
        self._facts()
        self._notes()

    def _facts(self) -> None:
        facts = self._context.engine_facts
        if self._chunk_tokens is not None:
            facts["chunk_tokens"] = self._chunk_tokens
        if self._key_tokens is not None:
            facts["key_tokens"] = self._key_tokens
        if self._token_bytes:
            found, votes = self._token_bytes.most_common(1)[0]
            if 2 * votes > sum(self._token_bytes.values()):
                facts["kv_bytes_per_token"] = found * self._ranks
                if self._ranks > 1:
                    facts["kv_bytes_per_token_of_a_rank"] = found

    def _notes(self) -> None:
        note = self._context.note
        if self._requests:
            note(
                "arrival_is_lookup",
                "Requests are dated by their look-up, which the engine makes when it admits them:"
                " time in its queue lies before it.",
            )
        if self._unconfirmed:
            note(
                "loads_not_confirmed",
                f"{self._unconfirmed:,} of {self._requests:,} requests have no line that says that"
                " the load ended; what was to be loaded is taken as loaded.",
            )
        if self._unsized_ranks:
            note(
                "ranks_without_size",
                "Some ranks print a move without its size; bytes are those of the others.",
            )
        if self._key_tokens is not None:
            self._note_keys(self._key_tokens)
        if self._server_hits:
            note(
                "misses_not_logged",
                "The multiprocess server logs a look-up only if it found something (at INFO), so"
                " hit ratios of its requests are upper bounds (LMCACHE_LOG_LEVEL=DEBUG).",
                severity="warning",
            )

    def _note_keys(self, key_tokens: int) -> None:
        chunk = self._chunk_guess()
        if self._key_votes:
            why = "as the loads that followed show"
        elif self._chunk_tokens is not None or self._context.block_size_tokens is not None:
            why = "the chunk size"
        else:
            why = "LMCache's default chunk size; no line states it (--block-size)"
        self._context.note(
            "chunk_size",
            f"A key of the multiprocess server is counted as {key_tokens} tokens, {why}.",
        )
        if key_tokens != chunk and chunk % key_tokens == 0 and key_tokens:
            self._context.note(
                "keys_of_ranks",
                f"A chunk of {chunk} tokens has {chunk // key_tokens} keys: ranks or layer groups.",
            )
