"""What a finding looks for, by which threshold, what to do and how to check it in production."""

from __future__ import annotations

from kvtrace.audit import thresholds
from kvtrace.audit.findings import limits
from kvtrace.audit.findings.registry import CHECKS
from kvtrace.audit.thresholds import Threshold
from kvtrace.report.explain.explanation import Explanation, Fact
from kvtrace.report.format import format_value
from kvtrace.report.texts import load_texts


def explain_finding(name: str) -> Explanation | None:
    """A check of the registry; null: there is none of this id."""
    check = next((one for one in CHECKS if one.id == name), None)
    if check is None:
        return None
    facts = [
        Fact("asks", check.question),
        Fact("threshold", _limit(check.threshold)),
        Fact(
            "do",
            f"{check.action} ({load_texts('en')(f'action.{check.action_kind}.title').lower()})",
        ),
        Fact("check", check.production_check),
    ]
    if check.table is not None:
        facts.append(Fact("evidence", f"table {check.table} of the audit"))
    if check.is_replayed:
        facts.append(Fact("rests on", "replays of the options (modelled)"))
    facts.append(Fact("gate", f"--fail-on finding:{name}"))
    return Explanation(name, "finding", check.title, tuple(facts))


def explain_threshold(name: str) -> Explanation | None:
    """A limit that findings or the verdict use; null: there is none of this id."""
    found = all_thresholds().get(name)
    if found is None:
        return None
    users = ", ".join(check.id for check in CHECKS if check.threshold.id == name)
    facts = (Fact("source", found.source), *((Fact("used by", users),) if users else ()))
    return Explanation(name, "threshold", _value(found), facts)


def all_thresholds() -> dict[str, Threshold]:
    """Every limit by its id."""
    named = [*vars(thresholds).values(), *vars(limits).values()]
    found = {one.id: one for one in named if isinstance(one, Threshold)}
    return found | {check.threshold.id: check.threshold for check in CHECKS}


def _limit(threshold: Threshold) -> str:
    return f"{threshold.id}, {_value(threshold)}; {threshold.source}"


def _value(threshold: Threshold) -> str:
    return format_value(threshold.value, threshold.unit) or f"{threshold.value:g}"
