"""What the values of a field look like over the first records, without keeping one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final, Literal

from kvtrace.ingest.clocks import parse_iso
from kvtrace.ingest.mapping.clock import as_number, is_date
from kvtrace.ingest.mapping.values import Keys, opened
from kvtrace.ingest.values.instants import epoch_power, parse_web_log_time

Kind = Literal[
    "date", "number", "flag", "text", "ids", "numbers", "messages", "objects", "object", "mixed"
]
"""date: written with year to second; ids: a list of texts; numbers: a list of whole numbers;
messages: a list of objects with role and content; objects: another list of objects."""
_LONG_TEXT: Final = 200
_MOST: Final = 0.9
_EPOCH_S: Final = (946_684_800, 4_102_444_800)
_ABSENT: Final = ("", "-", "null")
_HASH: Final = re.compile(r"(?:0[xX])?[0-9a-fA-F]{8,64}")


@dataclass(frozen=True, slots=True)
class Shape:
    """One field over the first records."""

    keys: Keys
    kind: Kind
    known: int
    """Records with a value."""
    records: int
    distinct: int
    is_rising: bool = False
    """Numbers or dates that hardly ever fall."""
    is_whole: bool = False
    middle: Decimal | None = None
    """Median of numbers."""
    low: Decimal | None = None
    high: Decimal | None = None
    epoch: int | None = None
    """Power of ten from the unit to seconds, of epoch numbers."""
    is_of_units: bool = False
    """Epoch numbers of several units."""
    is_zoned: bool = True
    """Dates with a zone."""
    has_blanks: bool = False
    """Texts of several words."""
    longest: int = 0
    """Characters of texts, or elements of lists."""
    highest: int = 0
    """Largest element of lists of numbers."""
    looks_hashed: bool = False
    """A list of texts that are hexadecimal hashes."""

    @property
    def coverage(self) -> float:
        """Share of the records that have a value."""
        return self.known / max(self.records, 1)

    @property
    def is_long_text(self) -> bool:
        """Texts of prompts rather than names."""
        return self.kind == "text" and self.longest >= _LONG_TEXT


def known_values(values: Sequence[object]) -> list[object]:
    """The values that are not null, empty or `-`."""
    return [
        value
        for value in values
        if value is not None and not (isinstance(value, str) and value.strip() in _ABSENT)
    ]


def shape_of(keys: Keys, values: Sequence[object], records: int) -> Shape | None:
    """The shape of these values; None if there are none."""
    known = known_values(values)
    if not known:
        return None
    distinct = len({repr(value) for value in known})
    base = Shape(keys, "mixed", len(known), records, distinct)
    first = known[0]
    if isinstance(first, bool) or (isinstance(first, str) and first.lower() in ("true", "false")):
        return _changed(base, "flag")
    if isinstance(first, list) or (isinstance(first, str) and first.lstrip()[:1] == "["):
        return _list_shape(base, known)
    if isinstance(first, dict) or (isinstance(first, str) and first.lstrip()[:1] == "{"):
        return _changed(base, "object" if all(opened(value) for value in known) else "mixed")
    texts = [str(value).strip() if isinstance(value, str) else _digits(value) for value in known]
    numbers = [number for text in texts if (number := as_number(text)) is not None]
    if len(numbers) >= _MOST * len(known):
        return _number_shape(base, numbers)
    if sum(map(is_date, texts)) >= _MOST * len(known):
        return _date_shape(base, texts)
    has_blanks = any(" " in text for text in texts)
    return _changed(base, "text", longest=max(map(len, texts)), has_blanks=has_blanks)


def _changed(base: Shape, kind: Kind, **changes: object) -> Shape:
    fields = {name: getattr(base, name) for name in ("keys", "known", "records", "distinct")}
    return Shape(**{**fields, "kind": kind, **changes})


def _digits(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _is_rising(values: Sequence[Decimal | int]) -> bool:
    falls = sum(later < earlier for earlier, later in pairwise(values))
    return len(values) > 1 and falls <= (1 - _MOST) * (len(values) - 1) and values[0] != values[-1]


def _number_shape(base: Shape, numbers: Sequence[Decimal]) -> Shape:
    ordered = sorted(numbers)
    middle = ordered[len(ordered) // 2]
    power = epoch_power(middle)
    if power is not None and not _EPOCH_S[0] <= middle.scaleb(power) < _EPOCH_S[1]:
        power = None
    return _changed(
        base,
        "number",
        is_rising=_is_rising(numbers),
        is_whole=all(number == number.to_integral_value() for number in numbers),
        middle=middle,
        low=ordered[0],
        high=ordered[-1],
        epoch=power,
        is_of_units=power is not None and len({epoch_power(number) for number in ordered}) > 1,
    )


def _date_shape(base: Shape, texts: Sequence[str]) -> Shape:
    found = [time for text in texts if (time := parse_iso(text) or parse_web_log_time(text))]
    return _changed(
        base,
        "date",
        is_rising=_is_rising([time.ns for time in found]),
        is_zoned=all(time.is_zoned for time in found),
    )


def _list_shape(base: Shape, known: Sequence[object]) -> Shape:
    lists = [list(opened(value).values()) for value in known]
    items = [item for held in lists for item in held[:1_000]]
    longest = max(map(len, lists), default=0)
    if not items:
        return base
    if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        whole = [item for item in items if isinstance(item, int)]
        return _changed(base, "numbers", longest=longest, highest=max(whole))
    if all(isinstance(item, str) for item in items):
        hashed = all(_HASH.fullmatch(item) for item in items if isinstance(item, str))
        return _changed(base, "ids", longest=longest, looks_hashed=hashed)
    if all(isinstance(item, dict) for item in items):
        is_chat = all(
            "role" in item and "content" in item for item in items if isinstance(item, dict)
        )
        return _changed(base, "messages" if is_chat else "objects", longest=longest)
    return base
