"""Answers of an API that hold their entries in a list: one record, many rows.

A record may also be one entry alone (exports write them line by line). A record has one outcome,
so what becomes of the entries inside an answer is counted here and noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from kvtrace.ingest.contract import ReadContext, Record
from kvtrace.ingest.values.jsonfields import Ignored, decode_json
from kvtrace.ingest.values.rawvalues import NO_VALUE
from kvtrace.units import MIB

MAX_ANSWER_BYTES: Final = 256 * MIB
_LISTS: Final = ("data", "result")


class _Answer(msgspec.Struct, gc=False):
    data: msgspec.Raw = NO_VALUE
    result: msgspec.Raw = NO_VALUE


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_ENTRIES: Final = msgspec.json.Decoder(list[msgspec.Raw])

EntryT = TypeVar("EntryT")


class Answers(Generic[EntryT]):
    """Reads records that are answers, or entries alone."""

    def __init__(self, parse: Callable[[Record, bytes], EntryT | Ignored]) -> None:
        """`parse` gives what one entry becomes; it raises msgspec's errors for what is unusable."""
        self._parse = parse
        self._left_out: dict[str, int] = {}
        self._refused: dict[str, int] = {}

    def rows(self, record: Record) -> list[EntryT] | Ignored:
        """The rows of one record.

        Raises:
            msgspec.DecodeError: not JSON, or of its entries not one can be used.
        """
        answer = decode_json(_ANSWER, record.data)
        for value in (answer.data, answer.result):
            data = bytes(value)
            if data[:1] == b"[":
                return self._entries(record, _ENTRIES.decode(data))
            if data[:1] == b"{":
                return self._alone(record, data)
        return self._alone(record, record.data)

    def _alone(self, record: Record, data: bytes) -> list[EntryT] | Ignored:
        parsed = self._parse(record, data)
        return parsed if isinstance(parsed, Ignored) else [parsed]

    def _entries(self, record: Record, entries: list[msgspec.Raw]) -> list[EntryT]:
        rows: list[EntryT] = []
        refused: msgspec.ValidationError | None = None
        for entry in entries:
            try:
                parsed = self._parse(record, bytes(entry))
            except msgspec.ValidationError as bad:
                refused = bad
                self._refused[str(bad)] = self._refused.get(str(bad), 0) + 1
                continue
            if isinstance(parsed, Ignored):
                self._left_out[parsed.reason] = self._left_out.get(parsed.reason, 0) + 1
            else:
                rows.append(parsed)
        if refused is not None and not rows:
            raise refused
        return rows

    def finish(self, context: ReadContext) -> None:
        """Say what became of the entries that gave no row."""
        if self._left_out:
            context.note(
                "entries_left_out",
                f"Entries of the API's answers that are no requests: {_listed(self._left_out)}.",
            )
        if self._refused:
            context.note(
                "entries_refused",
                f"Entries of the API's answers that cannot be used: {_listed(self._refused)}.",
                severity="warning",
            )


def _listed(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{name} ({count:,})" for name, count in most[:5])


def entries_of(objects: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """The entries of decoded records: of their lists, or they themselves."""
    for item in objects:
        held = next(
            (item[name] for name in _LISTS if isinstance(item.get(name), list | dict)), item
        )
        for entry in held if isinstance(held, list) else (held,):
            if isinstance(entry, dict):
                yield entry
