"""Gates on a record: passed, failed, or cannot be judged; each with the number that decided.

A gate that cannot be judged counts as failed, unless it says `unless unknown`: an unknown number
must not pass a review in silence.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvtrace.audit.gates.language import Condition, Gate
from kvtrace.audit.gates.names import ORDERED, Number, number_of
from kvtrace.audit.record import AuditRecord

State = Literal["passed", "failed", "cannot_be_judged"]
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """What a gate came to."""

    gate: Gate
    state: State
    reason: str
    """The numbers or words that were compared."""

    @property
    def blocks(self) -> bool:
        """Whether it makes the run fail."""
        is_open = self.state == "cannot_be_judged" and not self.gate.passes_unknown
        return self.state == "failed" or is_open


@dataclass(frozen=True, slots=True)
class _Finding:
    holds: bool | None
    """None: unknown."""
    reason: str


def judge(gates: Sequence[Gate], record: AuditRecord) -> list[Judged]:
    """Each gate in order; all conditions of a gate must hold for it to fail."""
    return [_judge(gate, record) for gate in gates]


def _judge(gate: Gate, record: AuditRecord) -> Judged:
    found = [_look(condition, record) for condition in gate.conditions]
    reason = "; ".join(one.reason for one in found)
    if any(one.holds is False for one in found):
        return Judged(gate, "passed", reason)
    if any(one.holds is None for one in found):
        return Judged(gate, "cannot_be_judged", reason)
    return Judged(gate, "failed", reason)


def _look(condition: Condition, record: AuditRecord) -> _Finding:
    if condition.is_finding:
        return _finding(condition.name, record)
    if condition.name == "severity":
        return _severity(condition, record)
    if isinstance(condition.value, str):
        return _word(condition, record)
    return _number(condition, condition.value, number_of(record, condition.name))


def _finding(ident: str, record: AuditRecord) -> _Finding:
    found = next((one for one in record.findings if one.id == ident), None)
    if found is None:
        return _Finding(False, f"{ident} was not found")
    return _Finding(True, f"{found.severity}, {found.title}: {found.message}")


def _severity(condition: Condition, record: AuditRecord) -> _Finding:
    """Any finding of such a severity."""
    ids = [one.id for one in record.findings if _ranked(condition, one.severity)]
    noun = "finding" if len(ids) == 1 else "findings"
    return _Finding(bool(ids), f"{len(ids):,} {noun}{': ' if ids else ''}{', '.join(ids)}")


def _word(condition: Condition, record: AuditRecord) -> _Finding:
    words: dict[str, str] = {
        "verdict": record.verdict.outcome,
        "confidence": record.verdict.confidence,
        "grade": record.data.evidence_grade,
    }
    actual = words[condition.name]
    return _Finding(_ranked(condition, actual), f"{condition.name} is {actual}")


def _ranked(condition: Condition, actual: str) -> bool:
    """Compare two words, by their order where they have one."""
    if condition.name not in ORDERED:
        return (actual == condition.value) == (condition.operator == "=")
    order = ORDERED[condition.name]
    wanted = order.index(str(condition.value))
    return _COMPARE[condition.operator](order.index(actual), wanted)


def _number(condition: Condition, limit: float, number: Number) -> _Finding:
    if number.value is None:
        return _Finding(None, f"{condition.name} is unknown: {number.why}")
    unit = "" if number.unit in {"", "ratio"} else f" {number.unit}"
    spread, inside = "", ""
    if number.low is not None and number.high is not None and number.low != number.high:
        spread = f" ({number.low:,.6g} to {number.high:,.6g})"
        if number.low <= limit <= number.high:
            inside = ", the limit lies inside its interval"
    holds = _COMPARE[condition.operator](number.value, limit)
    return _Finding(holds, f"{condition.name} is {number.value:,.6g}{spread}{unit}{inside}")
