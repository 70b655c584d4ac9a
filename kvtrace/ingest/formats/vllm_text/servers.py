"""The request books of the servers in one log, told apart by the process that writes a line.

Requests are named by the API server (several of them with --api-server-count, or two servers in one
log). V0 and torn lines name no process: they belong to whoever knows the id.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from kvtrace.ingest.contract import LineTime, LogLine, Record
from kvtrace.ingest.formats.vllm_text.book import RequestBook
from kvtrace.ingest.formats.vllm_text.messages import RequestEvent

_MAX_BOOKS: Final = 64
"""Servers whose requests are held at once; the one that came first makes room."""


class ServerBooks:
    """One book for each API server."""

    def __init__(self, new_book: Callable[[], RequestBook]) -> None:
        self._new_book = new_book
        self._books: dict[str | None, RequestBook] = {}
        self._names: dict[str | None, str | None] = {}
        self.servers = 0
        """API servers that named themselves."""

    def take(
        self,
        event: RequestEvent,
        record: Record,
        time: LineTime,
        process: str | None,
        writer: str | None,
    ) -> str | None:
        """Enter the event; None if it contributed, else the reason why it did not."""
        book = self.book_of(event.request_ids[0], process, writer)
        return book.take(event, record, time)

    def restart(self, line: LogLine) -> None:
        """A server says that it starts: it and its helpers have new requests from now on.

        Another server of the same name, with another process id, goes on.
        """
        for writer, book in self._books.items():
            is_other = writer is not None and self._names[writer] == line.process
            if writer == line.writer or line.writer is None or not is_other:
                book.close()

    def close(self) -> None:
        """The log has ended."""
        for book in self._books.values():
            book.close()

    def book_of(self, request_id: str, process: str | None, writer: str | None) -> RequestBook:
        """The book in which a line of this process means the request."""
        if not is_api_server(process):
            writer = None
        book = self._books.get(writer)
        if writer is None and len(self._books) > (book is not None):
            return self._knowing(request_id, book)
        return book if book is not None else self._open(writer, process)

    def _knowing(self, request_id: str, unnamed: RequestBook | None) -> RequestBook:
        """For a line of no API server: the book that knows the id, else the only or last one."""
        if len(self._books) > 1:
            for book in self._books.values():
                if book.knows(request_id):
                    return book
        return unnamed if unnamed is not None else next(reversed(self._books.values()))

    def _open(self, writer: str | None, name: str | None) -> RequestBook:
        if len(self._books) >= _MAX_BOOKS:
            oldest = next(iter(self._books))
            self._books.pop(oldest).close()
            del self._names[oldest]
        book = self._books[writer] = self._new_book()
        self._names[writer] = name
        self.servers += writer is not None
        return book


@functools.lru_cache(maxsize=1024)
def is_api_server(process: str | None) -> bool:
    """Whether this process takes requests: `APIServer`, `ApiServer_0`; to JSON `MainProcess`."""
    return process is not None and process.lower().startswith(("apiserver", "mainprocess"))
