"""The requests of a vLLM log whose lines were told from their bytes: into the same books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kvtrace.ingest.clocks import NO_TIME
from kvtrace.ingest.contract import LineTime, Record, Tally, ToldLine
from kvtrace.ingest.formats.vllm_text.book import RequestBook
from kvtrace.ingest.formats.vllm_text.express import ADDED, BARE, FEATURES, RECEIVED, event_of
from kvtrace.ingest.formats.vllm_text.messages import RequestEvent
from kvtrace.ingest.formats.vllm_text.servers import ServerBooks, is_api_server

Sight = tuple[bytes | None, bytes | None, tuple[str, ...]]
"""Writer, bracket and features of a line: what it says of its writer's version."""
_MAX_REMEMBERED: Final = 4_096


class ToldRequests:
    """Takes told lines in file order."""

    def __init__(
        self,
        books: ServerBooks,
        tally: Tally,
        on_sight: Callable[[tuple[str, ...], str | None, str], None],
    ) -> None:
        self._books = books
        self._tally = tally
        self._on_sight = on_sight
        """Gets features, process and form of prefix, where they are seen for the first time."""
        self._sights: set[Sight] = set()
        self._writers: dict[bytes | None, tuple[str | None, str | None]] = {None: (None, None)}

    def take(
        self,
        told: Sequence[ToldLine],
        *,
        offset: int,
        line: int,
        time_of: Callable[[bytes], LineTime],
    ) -> None:
        """Take lines; see `ExpressReader`. `Added` mostly follows `Received` of its request."""
        tally, books, sights = self._tally, self._books, self._sights
        last_stamp, time = b"", NO_TIME
        last_writer: bytes | None = b""
        named: tuple[str | None, str | None] = (None, None)
        book: RequestBook | None = None
        has_own_book = False
        for kind, start, lines, writer, stamp, bracket, value, closing in told:
            if stamp is not last_stamp:
                last_stamp, time = stamp, time_of(stamp)
            if isinstance(value, bytes):
                event, request_id, features = None, value.decode(), FEATURES[kind]
            elif isinstance(value, RequestEvent):
                event, request_id, features = value, value.request_ids[0], value.features
            else:
                raise TypeError("no value of a line of vLLM")
            if (writer, bracket, features) not in sights:
                self._see((writer, bracket, features))
            if writer is not last_writer:
                last_writer, named, book = writer, self._named(writer), None
                has_own_book = is_api_server(named[0])
            if book is None or not has_own_book:
                book = books.book_of(request_id, *named)
            if kind in (BARE, RECEIVED):
                entry = book.receive(request_id, offset + start, line + lines, time, event)
                tally.used += 1
                if closing is None:
                    continue
                if (writer, bracket, FEATURES[ADDED]) not in sights:
                    self._see((writer, bracket, FEATURES[ADDED]))
                if entry.awaits_added():
                    entry.is_added = True
                    tally.used += 1
                    continue
                kind, start, lines = closing
                event = None
            at = Record(offset + start, line + lines, b"")
            reason = book.take(event or event_of(kind, request_id), at, time)
            if reason is None:
                tally.used += 1
            else:
                tally.ignore(reason)

    def _see(self, sight: Sight) -> None:
        if len(self._sights) >= _MAX_REMEMBERED:
            self._sights.clear()
        self._sights.add(sight)
        writer, bracket, features = sight
        label = "plain" if bracket is None else "bracket"
        self._on_sight(features, self._named(writer)[0], label)

    def _named(self, writer: bytes | None) -> tuple[str | None, str | None]:
        """(process, writer) of what stands in brackets in front of a line."""
        named = self._writers.get(writer)
        if named is None and writer is not None:
            if len(self._writers) >= _MAX_REMEMBERED:
                self._writers = {None: (None, None)}
            text = writer.decode()
            named = self._writers[writer] = (text.partition(" ")[0], text)
        return named or (None, None)
