"""The language of gates: conditions joined by `and`, read without evaluating anything.

    gate      = condition { " and " condition } [ " unless unknown" ]
    condition = "finding:" ID | NAME OPERATOR VALUE
    OPERATOR  = "=" | "!=" | ">" | ">=" | "<" | "<="

A gate fails when all its conditions hold. Names are looked up in `names`; nothing else exists.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.findings.registry import CHECKS
from kvtrace.audit.gates.names import CARRYING, MONEY, NUMBERS, OPTION_NUMBERS, ORDERED, OUTCOMES
from kvtrace.errors import UsageError

FINDING: Final = "finding:"
_COMPARED: Final = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|!=|==|=|>|<)\s*(\S.*?)\s*")
_UNLESS_UNKNOWN: Final = re.compile(r"\s+unless\s+unknown\s*$")
_AND: Final = re.compile(r"\s+and\s+")
_MEANT: Final = {"=>": ">=", "=<": "<=", "=!": "!=", "<>": "!=", "><": "!="}
_TURNED: Final = re.compile("=>|=<|=!|<>|><")
"""Comparisons as people type them by mistake."""
_EXAMPLE: Final = "as `verdict=does_not_pay`, `finding:net_negative_hits` or `span_s<3600`"


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison, or one finding that is looked for (`name` is then its id)."""

    name: str
    operator: str
    value: float | str
    is_finding: bool = False

    def __str__(self) -> str:
        if self.is_finding:
            return f"{FINDING}{self.name}"
        value = f"{self.value:g}" if isinstance(self.value, float) else self.value
        return f"{self.name}{self.operator}{value}"


@dataclass(frozen=True, slots=True)
class Gate:
    """What must not hold."""

    text: str
    """As it was typed, without blanks at its ends."""
    conditions: tuple[Condition, ...]
    passes_unknown: bool
    """`unless unknown`: a gate that cannot be judged passes."""


def parse_gates(texts: Iterable[str], *, option_ids: Sequence[str] | None) -> tuple[Gate, ...]:
    """The gates of repeated flags, each a gate or several with commas between.

    `option_ids` are the options of the record; null: not known yet, any word may name one.

    Raises:
        UsageError: KVT-G001 text that is no gate, KVT-G002 a name that nothing has, KVT-G003 a
            value that the name cannot have, KVT-G004 `=>` where `>=` is meant.
    """
    parts = (part for text in texts for part in text.split(","))
    return tuple(_gate(part.strip(), option_ids) for part in parts)


def _gate(text: str, option_ids: Sequence[str] | None) -> Gate:
    body = _UNLESS_UNKNOWN.sub("", text)
    conditions = tuple(_condition(part, option_ids) for part in _AND.split(body))
    return Gate(text, conditions, passes_unknown=body != text)


def _condition(text: str, option_ids: Sequence[str] | None) -> Condition:
    if text.strip().startswith(FINDING):
        ident = text.strip().removeprefix(FINDING).strip()
        _check_known(ident, [check.id for check in CHECKS], "finding")
        return Condition(ident, "", "", is_finding=True)
    found = _COMPARED.fullmatch(text)
    turned = _TURNED.search(text)
    if turned is not None:
        meant = text.strip().replace(turned[0], _MEANT[turned[0]])
        message = f"`{turned[0]}` is no comparison, in `{text.strip()}`"
        raise UsageError("KVT-G004", message, hint=f"`{meant}`")
    if found is None:
        message = f"`{text}` is no gate" if text else "a gate is empty"
        raise UsageError("KVT-G001", message, hint=f"NAME, a comparison and a value, {_EXAMPLE}")
    name, operator, value = found.groups()
    operator = "=" if operator == "==" else operator
    if name == "verdict":
        return Condition(name, _equality(name, operator), _word(name, value, OUTCOMES))
    if name in ORDERED:
        return Condition(name, operator, _word(name, value, ORDERED[name]))
    _check_name(name, option_ids)
    return Condition(name, operator, _number(name, value))


def _check_name(name: str, option_ids: Sequence[str] | None) -> None:
    option, _, field = name.partition(".")
    if field:
        if option_ids is not None:
            _check_known(option, option_ids, "option")
        _check_known(field, [*OPTION_NUMBERS], f"number of option `{option}`,")
        return
    _check_known(name, ["verdict", *ORDERED, *NUMBERS, *MONEY, *CARRYING], "number")


def _check_known(name: str, known: Sequence[str], what: str) -> None:
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    shown = " or ".join(f"`{one}`" for one in close)
    listed = f"one of {', '.join(sorted(set(known)))}"
    raise UsageError(
        "KVT-G002",
        f"a gate names {what} `{name}`, which does not exist",
        hint=f"did you mean {shown}" if close else listed,
    )


def _equality(name: str, operator: str) -> str:
    if operator not in {"=", "!="}:
        raise _wrong_value(f"`{name}` has no order", f"`{name}=…` or `{name}!=…`")
    return operator


def _word(name: str, value: str, known: Sequence[str]) -> str:
    exact = {one.lower(): one for one in known}
    if value.lower() not in exact:
        raise _wrong_value(f"`{name}` is never `{value}`", f"one of {', '.join(known)}")
    return exact[value.lower()]


def _number(name: str, text: str) -> float:
    """A number; `20%` is 0.2."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _wrong_value(f"`{name}` is not compared with `{text}`", f"a number, `{name}>0.2`")
    return value / 100 if text.endswith("%") else value


def _wrong_value(message: str, hint: str) -> UsageError:
    return UsageError("KVT-G003", message, hint=hint)
