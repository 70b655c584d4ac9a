"""The express lane of text logs: commonest lines in their plainest layers, told from their bytes.

One pattern runs over a block of whole lines: it matches line by line, from each line's start, what
dialects say of their commonest messages, and access lines; every other line is for the careful way,
which peels, decodes and parses. Nothing here depends on the lines before: the lane may run ahead,
or elsewhere. What it gives for a line is what the careful way gives; tests hold the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kvtrace.ingest.contract import ExpressKind, ToldLine
from kvtrace.ingest.textlog.prefixes import yearless_stamp

HEALTH_PATHS: Final = ("/health", "/metrics", "/ping", "/version", "/load", "/v1/health")
_HEALTH: Final = tuple(path.encode() for path in HEALTH_PATHS)
_PROCESS: Final = rb"(?:\(((?!ServeReplica)[A-Za-z][\w.:/-]{0,120}+ pid=\d++)\) )?+"
_ACCESS: Final = (
    rb'(?:INFO|WARNING|ERROR): ++[!-~]{1,80}+ (?:\d++ )?+- "[A-Z]{3,10}+ ([!-~]{1,2000}+)'
    rb' HTTP/1\.[\d.]{1,4}+" \d{3}(?: [A-Za-z -]{1,22}+)?+'
)
_PREFIX: Final = (
    rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) (\[)?+"
    rb"[\w./-]{1,160}+:\d{1,6}+\] "
)
_ODD: Final = (b"\r", b"\x1b", b"\0")
"""Bytes that a layer put there: such lines go the careful way."""
_PATH: Final = 2
_FIRST_KIND: Final = 5
"""Groups in front: writer, path of an access line, time stamp, bracket."""


class Run(NamedTuple):
    """Lines that were told, one after the other, and the line behind them, which was not."""

    told: list[ToldLine]
    told_lines: int
    access: int
    """Lines of an access log among them."""
    health: int
    """Those of health checks."""
    start: int
    """Where the line for the careful way starts in the block."""
    end: int
    """Behind its line end; equal to `start` where the block ends without such a line."""
    lines: int
    """Lines of the block before it."""


class ExpressLane:
    """The lines of some kinds, told from blocks of whole lines."""

    def __init__(self, kinds: Sequence[ExpressKind]) -> None:
        self._kinds: dict[int, tuple[int, ExpressKind]] = {}
        group, patterns = _FIRST_KIND, []
        for number, kind in enumerate(kinds):
            self._kinds[group] = number, kind
            patterns.append(b"(" + kind.pattern + b")")
            group += 1 + re.compile(kind.pattern).groups
        told = b"|".join(patterns)
        self._pattern = re.compile(
            rb"%s(?:%s|%s(?:%s))\n|[^\n]*+\n?" % (_PROCESS, _ACCESS, _PREFIX, told)
        )

    def scan(self, data: bytes, at: int, lines: int) -> Iterator[Run]:
        """The lines from `at` on, in order; `lines` is the number of lines before it."""
        kinds, is_odd = self._kinds, any(mark in data for mark in _ODD)
        told: list[ToldLine] = []
        count = access = health = 0
        good_stamp, last_writer = b"", None
        last: tuple[object, ...] = ()
        """Writer, stamp, bracket and first group of the line told last."""
        for match in self._pattern.finditer(data, at):
            group = match.lastindex
            if is_odd and group is not None and any(mark in match[0] for mark in _ODD):
                group = None
            if group == _PATH:
                if match[_PATH].startswith(_HEALTH):
                    health += 1
                else:
                    access += 1
                lines += 1
                continue
            if group is not None:
                number, kind = kinds[group]
                head = match.group(1, 3, 4, group + 1)
                if kind.closes and head == last and told and told[-1][0] in kind.closes:
                    told[-1] = (*told[-1][:-1], (number, match.start(), lines))
                    last = ()
                    count += 1
                    lines += 1
                    continue
                writer, stamp, bracket, value = last = head
                if kind.read is not None:
                    value = kind.read(match, group + 1)
                if stamp != good_stamp and yearless_stamp(stamp) is not None:
                    good_stamp = stamp
                if value is not None and stamp == good_stamp:
                    if writer == last_writer:
                        writer = last_writer  # one object: less to write and to compare
                    last_writer = writer
                    place = match.start(), lines
                    told.append((number, *place, writer, good_stamp, bracket, value, None))
                    count += 1
                    lines += 1
                    continue
            yield Run(told, count, access, health, match.start(), match.end(), lines)
            told, count, access, health, last = [], 0, 0, 0, ()
            lines += 1
