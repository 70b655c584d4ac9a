"""Values of query parameters: from text that a person typed, and as SQL text to paste."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from kvtrace.duckdb_session import Param
from kvtrace.errors import UsageError
from kvtrace.query.header import UNTYPED

_TRUTH: Final = {"true": True, "false": False}


def _truth(text: str) -> bool:
    return _TRUTH[text.strip().lower()]


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_BIGINT_MOST: Final = 2**63 - 1


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > _BIGINT_MOST:
        raise ValueError(text)
    return value


_PARSERS: Final[dict[str, Callable[[str], int | float | str | bool]]] = {
    "BIGINT": _whole,
    "DOUBLE": _finite,
    "VARCHAR": str,
    "BOOLEAN": _truth,
}
_EXAMPLES: Final = {
    "BIGINT": "1000",
    "DOUBLE": "0.5",
    "VARCHAR": "text",
    "BOOLEAN": "true",
    "BIGINT[]": "1000,10000",
    "DOUBLE[]": "0.5,0.9",
    "VARCHAR[]": "a,b",
}


def parse_param(name: str, kind: str, text: str) -> Param:
    """The value of a parameter of this SQL type from text; `null` is null.

    Of an undeclared type: a number, truth value or `[list]` where the text is one, else the text.

    Raises:
        UsageError: the text is not of the type.
    """
    if text.strip().lower() == "null":
        return None
    if kind == UNTYPED:
        return _guessed(text)
    parse = _PARSERS[kind.removesuffix("[]")]
    try:
        if not kind.endswith("[]"):
            return parse(text)
        items = text.strip().removeprefix("[").removesuffix("]")
        return [parse(item.strip()) for item in items.split(",") if item.strip()]  # type: ignore[return-value]
    except (ValueError, KeyError) as error:
        raise UsageError(
            "KVT-Q023",
            f"`{text}` is not a {kind} for parameter `{name}`",
            hint=f"write it as `{name}={_EXAMPLES[kind]}`",
        ) from error


def _guessed(text: str) -> Param:
    """A whole number, a number, a truth value or a list of one of them where the text is one."""
    is_list = text.startswith("[") and text.endswith("]")
    for kind in ("BIGINT", "DOUBLE", "BOOLEAN"):
        try:
            return parse_param("", kind + "[]" * is_list, text)
        except UsageError:
            continue
    return parse_param("", "VARCHAR[]", text) if is_list else text


def to_sql(value: Param) -> str:
    """A value as SQL text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, (int, float)):
        return repr(value) if math.isfinite(value) else f"'{value}'"
    return "[" + ", ".join(to_sql(item) for item in value) + "]"
