"""The requests of one log as LMCache sees them: look-ups, loads and stores go in, rows come out.

A request is kept until its id means another one, or until too many are open; then it is given out
with its movements. A look-up that comes again before anything was moved is the same request: the
engine asks until it has room, or until an asynchronous look-up is done, and the last answer counts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kvtrace.ingest.contract import LineTime, LogLine
from kvtrace.ingest.formats.lmcache_text.messages import (
    Fetch,
    Found,
    Lookup,
    Move,
    ServerMove,
    StoreIntent,
)
from kvtrace.ingest.formats.lmcache_text.moves import PooledMove, Step
from kvtrace.ingest.joining.request_ids import without_suffix

MAX_OPEN: Final = 4_096
_MAX_WAITING: Final = 512
_MAX_RECENT: Final = 32
_MAX_INTENTS: Final = 64
_MAX_WRITERS: Final = 1_024
_ENGINE = re.compile(r"DP(\d{1,5})")


@dataclass(slots=True)
class Seen:
    """One request so far; without look-up it is only the owner of movements."""

    request_id: str | None
    offset: int
    line: int
    time: LineTime
    lookup: Lookup | None = None
    found: Found | None = None
    load: PooledMove | None = None
    store: PooledMove | None = None
    is_out: bool = False
    """Its rows were given out: nothing may be added any more."""

    @property
    def wants_load(self) -> bool:
        """Whether the engine was told to load something and nothing came so far."""
        return self.load is None and self.lookup is not None and self.lookup.load_tokens > 0


@dataclass(slots=True)
class _Engine:
    """Loads without id go to the request of their engine that waits for one like it.

    All ranks load in the same order, so that each has a place in the order of the loads.
    """

    waiting: dict[int, Seen] = field(default_factory=dict)
    recent: deque[tuple[int, Seen]] = field(default_factory=lambda: deque(maxlen=_MAX_RECENT))
    """The loads that came last, numbered, the newest at the end."""
    begun: int = 0
    places: dict[str | None, int] = field(default_factory=dict)
    """Number of the load that each process told of last."""

    def wait(self, seen: Seen) -> None:
        """A load of this request may come."""
        self.waiting[seen.offset] = seen
        if len(self.waiting) > _MAX_WAITING:
            del self.waiting[next(iter(self.waiting))]

    def begin(self, seen: Seen, writer: str | None) -> None:
        """Its load has come, from the first rank."""
        self.waiting.pop(seen.offset, None)
        self.begun += 1
        self.recent.append((self.begun, seen))
        self._place(writer, self.begun)

    def _place(self, writer: str | None, number: int) -> None:
        if len(self.places) >= _MAX_WRITERS and writer not in self.places:
            self.places.clear()
        self.places[writer] = number

    def rank_of(self, move: Move, step: Step, writer: str | None) -> Seen | None:
        """The request whose load another rank told of with the same numbers."""
        if writer is None:
            return None
        place = self.places.get(writer, 0)
        found: tuple[int, Seen] | None = None
        for number, seen in reversed(self.recent):
            if number < place:
                break
            load = seen.load
            if seen.is_out or load is None or not load.begins_with(step):
                continue
            if number > place or (move.size is not None and load.lacks_size(writer, step)):
                found = number, seen
        if found is None:
            return None
        self._place(writer, found[0])
        return found[1]

    def same_as(self, step: Step) -> Seen | None:
        """The last request whose load had the same numbers."""
        for _, seen in reversed(self.recent):
            if not seen.is_out and seen.load is not None and seen.load.begins_with(step):
                return seen
        return None

    def waiting_for(self, move: Move) -> Seen | None:
        """The request that has waited longest for such a load."""
        for seen in self.waiting.values():
            if not seen.is_out and seen.lookup is not None and _fits(move, seen.lookup):
                return seen
        return None


@dataclass(slots=True)
class _Writer:
    """What one process said that its next line belongs to."""

    intents: deque[StoreIntent] = field(default_factory=lambda: deque(maxlen=_MAX_INTENTS))
    fetch: Fetch | None = None


class RequestBook:
    """Requests that are still open, the oldest use first."""

    def __init__(self, give_out: Callable[[Seen], None]) -> None:
        self._give_out = give_out
        self._open: dict[str | int, Seen] = {}
        self._unnamed = 0
        self._engines: dict[str, _Engine] = {}
        self._writers: dict[str | None, _Writer] = {}

    def restart(self) -> None:
        """A new process: ids from before mean other requests now."""
        for seen in self._open.values():
            self._out(seen)
        self._open.clear()
        self._engines.clear()
        self._writers.clear()

    finish = restart

    def _out(self, seen: Seen) -> None:
        seen.is_out = True
        self._give_out(seen)

    def _seen(self, request_id: str | None, line: LogLine) -> Seen:
        """The open request of this id, or a new one; the others are older now."""
        key: str | int
        if request_id is None:
            self._unnamed += 1
            key, seen = self._unnamed, None
        else:
            key, seen = request_id, self._open.pop(request_id, None)
        if seen is None:
            record = line.record
            seen = Seen(request_id, record.offset, record.line, line.time)
        self._open[key] = seen
        while len(self._open) > MAX_OPEN:
            self._out(self._open.pop(next(iter(self._open))))
        return seen

    def _close(self, request_id: str) -> None:
        seen = self._open.pop(request_id, None)
        if seen is not None:
            self._out(seen)

    def take_lookup(self, lookup: Lookup, line: LogLine) -> str | None:
        """Enter it; the reason if it says nothing new."""
        before = self._open.get(lookup.request_id)
        if before is not None and before.lookup is not None:
            was_used = before.load is not None or before.store is not None
            if was_used and without_suffix(lookup.request_id) is not None:
                return "resumed_lookup"  # such ids are made once: it was preempted
            if was_used or before.lookup.prompt_tokens != lookup.prompt_tokens:
                self._close(lookup.request_id)
        seen = self._seen(lookup.request_id, line)
        seen.lookup = lookup
        if seen.wants_load:
            self._engine(line).wait(seen)
        else:
            self._engine(line).waiting.pop(seen.offset, None)
        return None

    def take_intent(self, intent: StoreIntent, line: LogLine) -> None:
        """Remember whose the next store of this process is."""
        self._writer(line).intents.append(intent)

    def take_fetch(self, fetch: Fetch, line: LogLine) -> None:
        """Remember where the next load of this process comes from."""
        self._writer(line).fetch = fetch

    def take_move(self, move: Move, line: LogLine) -> None:
        """Enter what one worker moved."""
        if move.direction == "store":
            self._take_store(move, line)
        else:
            self._take_load(move, line)

    def _take_store(self, move: Move, line: LogLine) -> None:
        intent = self._intent_of(move, self._writer(line).intents)
        request_id = move.request_id
        if request_id is None and intent is not None:
            request_id = intent.request_id
        seen = self._seen(request_id, line)
        if seen.store is None:
            seen.store = PooledMove("store", line.record, line.time)
        skipped = None if intent is None else intent.skipped_tokens
        seen.store.add(move, line.writer, (move.tokens, move.wanted_tokens, skipped))

    def _intent_of(self, move: Move, intents: deque[StoreIntent]) -> StoreIntent | None:
        """The announcement of a store: of the same id, else of as many tokens, else the last."""
        for intent in intents:
            is_named = move.request_id in (None, intent.request_id)
            if is_named and intent.tokens == move.wanted_tokens:
                intents.remove(intent)
                return intent
        return intents.pop() if intents and move.request_id is None else None

    def _take_load(self, move: Move, line: LogLine) -> None:
        writer = self._writer(line)
        step = (move.tokens, move.wanted_tokens, move.total_tokens)
        if move.request_id is not None:
            seen = self._seen(move.request_id, line)
        else:
            seen = self._waiting_for(move, step, line)
        if seen.load is None:
            seen.load = PooledMove("load", line.record, line.time)
            self._engine(line).begin(seen, line.writer)
        fetch, writer.fetch = writer.fetch, None
        if fetch is not None and seen.load.backend is None:
            seen.load.backend, seen.load.fetched_chunks = fetch.backend, fetch.chunks
        seen.load.add(move, line.writer, step)

    def _waiting_for(self, move: Move, step: Step, line: LogLine) -> Seen:
        """The request that a load without id belongs to; nobody's if none fits."""
        engine = self._engine(line)
        known = engine.rank_of(move, step, line.writer) or engine.waiting_for(move)
        if known is None and line.writer is None:
            known = engine.same_as(step)
        return known or self._seen(None, line)

    def take_found(self, found: Found, line: LogLine) -> str | None:
        """Enter a look-up of the multiprocess server; the reason if it says nothing new."""
        if found.request_id is not None:
            before = self._open.get(found.request_id)
            if before is not None and before.found is not None:
                if found.asked_keys is None and before.found.found_keys == found.found_keys:
                    return "repeated_lookup"
                if before.load is not None and without_suffix(found.request_id) is None:
                    self._close(found.request_id)
        seen = self._seen(found.request_id, line)
        seen.found = found
        if found.found_keys and seen.load is None:
            self._engine(line).wait(seen)
        else:
            self._engine(line).waiting.pop(seen.offset, None)
        return None

    def take_server_move(self, move: ServerMove, line: LogLine, *, key_tokens: int) -> int | None:
        """Enter what the server moved for one rank; tokens a key, where a load proves them."""
        if move.direction == "store":
            seen = self._seen(None, line)
            seen.store = _server_move(move, line)
            return None
        engine = self._engine(line)
        waiting = [seen for seen in engine.waiting.values() if _keys(seen) and not seen.is_out]
        chosen = next((seen for seen in waiting if _keys(seen) * key_tokens == move.tokens), None)
        proof = None
        if len(waiting) == 1:
            chosen = waiting[0]
            keys = _keys(chosen)
            proof = move.tokens // keys if move.tokens % keys == 0 else None
        if chosen is None:
            self._pool_server_move(move, line, engine)
            return None
        chosen.load = _server_move(move, line)
        engine.begin(chosen, line.writer)
        return proof

    def _pool_server_move(self, move: ServerMove, line: LogLine, engine: _Engine) -> None:
        last = engine.recent[-1][1] if engine.recent else None
        load = None if last is None or last.is_out else last.load
        if load is not None and load.tokens == move.tokens:
            load.pool(move.duration_ns, move.tokens)
        else:
            self._seen(None, line).load = _server_move(move, line)

    def _engine(self, line: LogLine) -> _Engine:
        match = _ENGINE.search(line.process or "")
        name = match[1] if match is not None else ""
        if len(self._engines) >= _MAX_WRITERS and name not in self._engines:
            self._engines.clear()
        return self._engines.setdefault(name, _Engine())

    def _writer(self, line: LogLine) -> _Writer:
        if len(self._writers) >= _MAX_WRITERS and line.writer not in self._writers:
            self._writers.clear()
        return self._writers.setdefault(line.writer, _Writer())


def _fits(move: Move, lookup: Lookup) -> bool:
    """Whether a load without id can be the one that this look-up led to.

    Whole chunks are loaded, so more may be wanted than the look-up said; the total is that of the
    prompt or, in some versions, of the hit.
    """
    is_total = move.total_tokens in (None, lookup.prompt_tokens, lookup.hit_tokens)
    return is_total and lookup.load_tokens <= move.wanted_tokens <= lookup.prompt_tokens


def _keys(seen: Seen) -> int:
    return 0 if seen.found is None else seen.found.found_keys


def _server_move(move: ServerMove, line: LogLine) -> PooledMove:
    pooled = PooledMove(move.direction, line.record, line.time)
    pooled.pool(move.duration_ns, move.tokens)
    return pooled
