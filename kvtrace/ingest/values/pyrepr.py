"""Python reprs in log lines: where a quoted text ends, what stands outside quotes, dicts as JSON.

Prompts are printed with `repr` and may imitate any log line, so what stands behind them must be
found by scanning the repr itself. Every scan here is linear: possessive quantifiers, which do not
backtrack.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Final

_SINGLE: Final = r"'[^'\\]*+(?:\\.[^'\\]*+)*+'"
_DOUBLE: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBERS: Final = r"\[[0-9, -]*+\]"
"""A flat list of integers, stepped over in one go."""
_STRING: Final = {
    "'": re.compile(_SINGLE, re.DOTALL),
    '"': re.compile(_DOUBLE, re.DOTALL),
}
_TEXT = re.compile(rf"({_SINGLE}|{_DOUBLE})(?: \.\.\. ({_SINGLE}|{_DOUBLE}))?", re.DOTALL)
_BETWEEN: Final = frozenset((", ", ": ", "{", "}", "], ", ": [", "}, {"))
"""What mostly stands between texts, and is JSON as it is."""
_OUTSIDE: Final = (
    ("(", "["),
    (")", "]"),
    ("] ... [", ", "),
    ("None", "null"),
    ("True", "true"),
    ("False", "false"),
    ("nan", "null"),
    ("inf", "null"),
)
"""Outside texts; a name inside another word makes something that no decoder takes either."""
_LONG_ESCAPE = re.compile(r"\\U([0-9a-f]{8})")
_CONTROLS: Final = {code: f"\\u{code:04x}" for code in range(32)}
_FEW_QUOTES: Final = 10_000
_CHARS_PER_QUOTE: Final = 4
"""No repr of a request has more quotes than one in so many characters; it would take too long."""


def string_end(text: str, start: int) -> int | None:
    """Index behind the quoted string (or `None`) that starts at `start`; None if it never ends."""
    if text.startswith("None", start):
        return start + 4
    pattern = _STRING.get(text[start : start + 1])
    match = pattern.match(text, start) if pattern is not None else None
    return match.end() if match is not None else None


def checked_list_length(text: str) -> int:
    """How many integers a list repr holds that is known to be whole."""
    return 0 if len(text) == 2 else text.count(",") + 1


@functools.lru_cache(maxsize=64)
def outside_pattern(stop: str, marks: str = "") -> re.Pattern[str]:
    """A pattern that runs, from outside quotes, up to the first `stop` that is outside quotes.

    `stop` is a pattern that starts with a quote or with one of `marks`. The match ends where `stop`
    matches, at the end of the text, or at a quote that never closes.
    """
    plain = rf"[^'\"\[{marks}]++|{_SINGLE}|{_DOUBLE}|{_NUMBERS}"
    piece = rf"{plain}|[\[{marks}]"
    return re.compile(rf"(?:(?!{stop})(?:{piece}))*+", re.DOTALL)


def repr_to_json(text: str) -> str:
    """JSON of a repr of dicts, lists, tuples, numbers, texts and constants; for a JSON decoder.

    A text that was cut in the middle (two quoted texts with ` ... ` between) becomes one. What is
    none of these stays as it is, and the decoder will refuse it; so does what is mostly quotes.
    """
    if '"' not in text and "\\" not in text and "(" not in text and " ... " not in text:
        plain = text.replace("'", '"')
        for name, value in _PLAIN_VALUES:
            plain = plain.replace(name, value)
        if "None" not in plain and "True" not in plain and "False" not in plain:
            return plain
    if text.count('"') + text.count("'") > max(_FEW_QUOTES, len(text) // _CHARS_PER_QUOTE):
        return text
    pieces: list[str] = []
    at = 0
    for match in _TEXT.finditer(text):
        start, end = match.span()
        pieces.append(_outside(text[at:start]))
        first, rest = match.groups()
        pieces.append(_json_text(first) if rest is None else _joined(first, rest))
        at = end
    pieces.append(_outside(text[at:]))
    return "".join(pieces)


_PLAIN_VALUES: Final = tuple(
    (f'": {name}{end}', f'": {value}{end}')
    for name, value in (("None", "null"), ("True", "true"), ("False", "false"))
    for end in ",}"
)
"""Values of keys; a name inside a text is left to the careful way."""


def _outside(text: str) -> str:
    if text not in _BETWEEN:
        for written, value in _OUTSIDE:
            text = text.replace(written, value)
    return text


def _joined(first: str, rest: str) -> str:
    return _json_text(first)[:-1] + _json_text(rest)[1:]


def _json_text(quoted: str) -> str:
    """The JSON text of a quoted one. Passes over the whole instead of one step an escape."""
    inner = quoted[1:-1].replace("\0", "\\u0000")
    if "\\" in inner:
        inner = inner.replace("\\\\", "\0")  # the second of a pair starts no escape
        inner = inner.replace("\\'", "'").replace('\\"', '"').replace("\\x", "\\u00")
        if "\\U" in inner:
            inner = _LONG_ESCAPE.sub(_character, inner)
    if '"' in inner:
        inner = inner.replace('"', '\\"')
    if not inner.isprintable():
        inner = inner.replace("\0", "\\\\").translate(_CONTROLS)
    return f'"{inner}"'


def _character(match: re.Match[str]) -> str:
    number = int(match[1], 16)
    if number <= 0xFFFF:
        return f"\\u{number:04x}"
    return chr(number) if number <= sys.maxunicode else "\ufffd"
