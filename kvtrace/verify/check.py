"""One comparison of two numbers that should be the same, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Verdict = Literal["pass", "fail", "cannot_compare"]
Number = int | float | None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A number computed twice."""

    id: str
    """Stable: group/number."""
    independent: Number
    """By the second way: recomputed from the rows, or what an engine counted."""
    kvtrace: Number
    """What kvtrace says."""
    unit: str
    tolerance: float = 0.0
    """Largest difference that passes, in the same unit; 0: they must be equal."""
    verdict: Verdict
    why: str
    """What was compared with what; for cannot_compare the reason."""


def compared(
    id: str,
    independent: Number,
    kvtrace: Number,
    *,
    unit: str,
    why: str,
    tolerance: float = 0.0,
) -> Check:
    """Pass where both are known and within the tolerance; fail where one alone is known."""
    if independent is None and kvtrace is None:
        return not_compared(id, "unknown on both sides", unit=unit)
    is_known = independent is not None and kvtrace is not None
    is_same = is_known and abs((independent or 0) - (kvtrace or 0)) <= tolerance
    return Check(
        id=id,
        independent=independent,
        kvtrace=kvtrace,
        unit=unit,
        tolerance=tolerance,
        verdict="pass" if is_same else "fail",
        why=why,
    )


def not_compared(id: str, why: str, *, unit: str = "", kvtrace: Number = None) -> Check:
    """A number that nothing can be held against, and why."""
    return Check(
        id=id, independent=None, kvtrace=kvtrace, unit=unit, verdict="cannot_compare", why=why
    )


def has_failed(checks: Sequence[Check]) -> bool:
    """Whether any comparison failed."""
    return any(check.verdict == "fail" for check in checks)
