"""Names of columns for people, in the language of the page; raw names stay with the copied CSV.

A column with words of its own (`head.<column>`) has these. All others are put together from the
parts of their name: `reusable_ratio_tokens` is a share of tokens, `ttft_p99_ms` a P99 of TTFT.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.report.format import is_count, safe_text
from kvtrace.report.texts import Texts

_UNIT: Final = re.compile(r"_(?:ns|us|ms|s|bytes_per_s|per_s)$")
_STATISTIC: Final = re.compile(r"_(p10|p50|p90|p95|p99|mean|low|high)$")
_SHARE: Final = re.compile(r"_ratio(?:_(tokens|blocks|requests))?$")
_MONEY: Final = re.compile(r"_?usd(?:_per_(month|gb_month|million|ms))?$")
MAX_HEAD: Final = 60


def heading(texts: Texts, column: str, unit: str) -> str:
    """The head of a column, with its unit where the cells leave that out."""
    own = f"head.{column}"
    words = texts(own) if texts.has(own) else _composed(texts, column)
    if not is_count(unit) or unit in ("", "count", "id", "key", "rank"):
        return words
    named = texts.or_code("word", unit)
    return words if named in words else texts("heading.unit", words=words, unit=named)


def _composed(texts: Texts, column: str) -> str:
    """Statistic, share and money are said behind the thing that they are of."""
    ends: list[str] = []
    name = _UNIT.sub("", column)
    while (found := _STATISTIC.search(name)) is not None:
        ends.insert(0, texts(f"statistic.{found.group(1)}"))
        name = _UNIT.sub("", name[: found.start()])
    if (share := _SHARE.search(name)) is not None:
        name = name[: share.start()]
        ends.insert(0, texts(f"share.{share.group(1) or 'of'}"))
    elif (money := _MONEY.search(name)) is not None:
        name = name[: money.start()]
        ends.insert(0, texts(f"money.{money.group(1) or 'usd'}"))
    space = texts("heading.space")
    words = space.join(_word(texts, part) for part in name.split("_") if part)
    every = [words, *ends] if words else ends
    return safe_text(texts("heading.join").join(every), limit=MAX_HEAD)


def _word(texts: Texts, part: str) -> str:
    return texts.or_code("word", part)
