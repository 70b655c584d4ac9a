"""Queries for Prometheus inside a sentence, found and set as code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_CALL: Final = re.compile(
    r"(?:histogram_quantile|increase|rate|irate|sum|avg|max|min)(?: by \([^()]*\) ?)?\("
)
_METRIC: Final = re.compile(r"(?:vllm|sglang|lmcache|dynamo|trtllm)[:_][a-z0-9_:]*[a-z0-9]")
_JOINT: Final = re.compile(r" ?[*/+-] ?")


def with_code(text: str) -> str:
    """`text` with PromQL calls and names of series between backticks; what stands so stays."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return text
    return "".join(
        f"`{part}`" if index % 2 else "".join(_pieces(part)) for index, part in enumerate(parts)
    )


def _pieces(text: str) -> Iterator[str]:
    at = 0
    for start, end in _joined(text, list(_found(text))):
        yield text[at:start]
        yield f"`{text[start:end]}`"
        at = end
    yield text[at:]


def _joined(text: str, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbours with only an operator between them are one query."""
    spans: list[tuple[int, int]] = []
    for start, end in found:
        if spans and _JOINT.fullmatch(text[spans[-1][1] : start]):
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans


def _found(text: str) -> Iterator[tuple[int, int]]:
    """Calls with their brackets, and names of series outside of them, in order."""
    at = 0
    while at < len(text):
        calls = (one for one in (_CALL.search(text, at), _METRIC.search(text, at)) if one)
        first = min(calls, key=lambda one: one.start(), default=None)
        if first is None:
            return
        end = first.end() if first[0][-1] != "(" else _closed(text, first.end())
        if end:
            yield first.start(), end
        at = end or first.end()


def _closed(text: str, at: int) -> int:
    """The place behind the bracket that closes the one before `at`; 0: none does."""
    depth = 1
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return 0
