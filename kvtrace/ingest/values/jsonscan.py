"""Where the values of a JSON stream end, found chunk by chunk in time linear in any junk.

A value that stands whole in a chunk is one match of a regular expression; one that goes on past it,
or is nested deeper than that expression, is followed with arrays. A backslash inside brackets
escapes the next byte; kinds of brackets are not told apart: what is not JSON is for the reader.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FILLER: Final = rb'[^"{}\[\]\\]++|\\.'
_NESTING: Final = 32
"""Levels that one match goes through; real logs have fewer than ten."""
_GAP: Final = re.compile(rb"[ \t\r\n,]*+")
_GAP_OF_ARRAYS: Final = re.compile(rb"(?:[ \t\r\n,]++|\[[ \t\r\n,]*+\])*+")
_TEXTS: Final = re.compile(rb"(?:[ \t\r\n,]++|" + _TEXT + rb")*+", re.DOTALL)
_TEXT_REST: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_BARE_IN_ARRAY: Final = re.compile(rb"[^\n{\[\]]*+")
_SMALLEST_WINDOW: Final = 2_048
_LARGEST_WINDOW: Final = 262_144
_QUOTE, _BACKSLASH, _OPENS, _CLOSES = ord('"'), ord("\\"), ord("{"), ord("}")
_CASE_BIT: Final = ord("{") ^ ord("[")
"""The one bit by which square brackets differ from curly ones."""

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


@functools.cache
def _whole_value() -> re.Pattern[bytes]:
    """An object or array of up to `_NESTING` levels."""
    inner = rb""
    for _ in range(_NESTING):
        inner = rb"[\[{](?:" + _FILLER + rb"|" + _TEXT + inner + rb")*+[\]}]"
        inner = rb"|" + inner
    return re.compile(inner[1:], re.DOTALL)


@dataclass(slots=True)
class JsonScanner:
    """Where the scan stands between two chunks; finds where the current value ends.

    A value is an object, an array, a run of texts, or a bare one: a number, a name or junk. Bare
    ones end with their line, or at a bracket inside an array.
    """

    in_array: bool = False
    """Inside an array at the top: its elements are the values."""
    value: Literal["nested", "texts", "bare"] | None = None
    depth: int = 0
    in_text: bool = False
    escaped: bool = False

    def between(self, chunk: bytes, at: int) -> int:
        """Past spaces, commas and brackets of a top-level array; may start a value."""
        gap = (_GAP if self.in_array else _GAP_OF_ARRAYS).match(chunk, at)
        at = gap.end() if gap else at
        mark = chunk[at : at + 1]
        if mark == b"[" and not self.in_array:
            self.in_array = True
            return at + 1
        if mark == b"]" and self.in_array:
            self.in_array = False
            return at + 1
        if mark:
            self.value = "nested" if mark in (b"{", b"[") else "texts" if mark == b'"' else "bare"
            self.depth, self.in_text, self.escaped = 0, False, False
        return at

    def value_end(self, chunk: bytes, at: int) -> tuple[int, bool]:
        """(position, whether the value ends there) in this chunk."""
        if self.value == "bare":
            return self._bare_end(chunk, at)
        if self.value == "texts":
            return self._texts_end(chunk, at)
        if self.depth == 0:
            whole = _whole_value().match(chunk, at)
            if whole is not None:
                return whole.end(), True
        size = _SMALLEST_WINDOW
        while at < len(chunk):
            end, is_done = self._follow(chunk, at, min(size, len(chunk) - at))
            if is_done:
                return end, True
            at, size = end, min(2 * size, _LARGEST_WINDOW)
        return at, False

    def _bare_end(self, chunk: bytes, at: int) -> tuple[int, bool]:
        if self.in_array:
            found = _BARE_IN_ARRAY.match(chunk, at)
            end = found.end() if found else at
        else:
            end = chunk.find(b"\n", at)
        return (len(chunk), False) if end in (-1, len(chunk)) else (end, True)

    def _texts_end(self, chunk: bytes, at: int) -> tuple[int, bool]:
        """Past the texts that follow each other: none of them is a record of its own."""
        while at < len(chunk):
            if self.escaped:
                self.escaped = False
                at += 1
            elif self.in_text:
                rest = _TEXT_REST.match(chunk, at)
                at = rest.end() if rest else at
                self.in_text = chunk[at : at + 1] != b'"'
                self.escaped = chunk[at : at + 1] == b"\\"
                at += 1
            else:
                run = _TEXTS.match(chunk, at)
                at = run.end() if run else at
                if at < len(chunk) and chunk[at] != _QUOTE:
                    return at, True
                self.in_text = at < len(chunk)
                at += self.in_text
        return len(chunk), False

    def _follow(self, chunk: bytes, at: int, size: int) -> tuple[int, bool]:
        """Go through `size` bytes of a nested value."""
        codes = np.frombuffer(chunk, dtype=np.uint8, count=size, offset=at)
        plain = self._unescaped(codes)
        quotes = (codes == _QUOTE) & plain
        in_text = (np.cumsum(quotes, dtype=np.int32) + self.in_text) & 1
        folded = codes | _CASE_BIT
        counts = plain & (in_text == 0)
        steps = ((folded == _OPENS) & counts).astype(np.int8)
        steps -= (folded == _CLOSES) & counts
        depths = np.cumsum(steps, dtype=np.int32) + self.depth
        ends = (depths <= 0) & (steps != 0)
        first = int(ends.argmax())
        if ends[first]:
            return at + first + 1, True
        self.depth, self.in_text = int(depths[-1]), bool(in_text[-1])
        return at + size, False

    def _unescaped(self, codes: Bytes) -> Mask:
        """Which bytes stand behind no backslash that counts; remembers one at the end."""
        plain = np.ones(len(codes), dtype=np.bool_)
        plain[0] = not self.escaped
        slashes = np.flatnonzero((codes == _BACKSLASH) & plain)
        self.escaped = False
        if len(slashes):
            starts = slashes[np.diff(slashes, prepend=-2) != 1]
            ends = slashes[np.diff(slashes, append=len(codes) + 1) != 1]
            hit = ends[(ends - starts) % 2 == 0] + 1
            self.escaped = bool(len(hit)) and int(hit[-1]) == len(codes)
            plain[hit[: len(hit) - self.escaped]] = False
        return plain
