"""Python reprs in log lines: where a quoted text ends, what stands outside quotes, dicts as JSON.

Prompts are printed with `repr` and may imitate any log line, so what stands behind them must be
found by scanning the repr itself. Every scan here is linear: possessive quantifiers, which do not
backtrack.
"""

from __future__ import annotations

import functools
import json
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
_INT_LIST = re.compile(r"\[(?:\d++(?:, ?\d++)*+)?\]")
_TOKEN = re.compile(
    rf"(?P<text>{_SINGLE}|{_DOUBLE})(?P<rest> \.\.\. (?:{_SINGLE}|{_DOUBLE}))?"
    r"|(?P<name>\b(?:None|True|False|nan|inf)\b)|(?P<cut>\] \.\.\. \[)|[()]",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}
_NAMES: Final = {"None": "null", "True": "true", "False": "false", "nan": "null", "inf": "null"}
_BRACKETS: Final = {"(": "[", ")": "]"}


def string_end(text: str, start: int) -> int | None:
    """Index behind the quoted string (or `None`) that starts at `start`; None if it never ends."""
    if text.startswith("None", start):
        return start + 4
    pattern = _STRING.get(text[start : start + 1])
    match = pattern.match(text, start) if pattern is not None else None
    return match.end() if match is not None else None


def int_list_length(text: str) -> int | None:
    """How many integers the list repr holds; None if it is not a whole list of integers."""
    return None if _INT_LIST.fullmatch(text) is None else checked_list_length(text)


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
    none of these stays as it is, and the decoder will refuse it.
    """
    if '"' not in text and "\\" not in text and "(" not in text:
        plain = text.replace("'", '"')
        for name, value in _PLAIN_VALUES:
            plain = plain.replace(name, value)
        if "None" not in plain and "True" not in plain and "False" not in plain:
            return plain
    return _TOKEN.sub(_json_token, text)


_PLAIN_VALUES: Final = tuple(
    (f'": {name}{end}', f'": {value}{end}')
    for name, value in (("None", "null"), ("True", "true"), ("False", "false"))
    for end in ",}"
)
"""Values of keys; a name inside a text is left to the careful way."""


def _json_token(match: re.Match[str]) -> str:
    found = match.group()
    if match["name"]:
        return _NAMES[found]
    if match["cut"]:
        return ", "
    if not match["text"]:
        return _BRACKETS[found]
    rest = match["rest"]
    return json.dumps(_unquoted(match["text"]) + (_unquoted(rest[5:]) if rest else ""))


def _unquoted(quoted: str) -> str:
    text = quoted[1:-1]
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        return _ESCAPED.get(match[4], match[4])
    number = int(code, 16)
    return chr(number) if number <= sys.maxunicode else "\ufffd"
