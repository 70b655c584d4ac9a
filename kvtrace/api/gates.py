"""The gates of `--fail-on`, as functions: read them before a run, judge them on its audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtrace.api.results import Audit
from kvtrace.audit.gates.judge import Judged, judge
from kvtrace.audit.gates.language import parse_gates
from kvtrace.report.format import safe_text


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """What every gate came to, in the order in which they were given."""

    judged: tuple[Judged, ...]

    @property
    def has_passed(self) -> bool:
        """Whether no gate failed and none that must be judged was left open."""
        return not any(one.blocks for one in self.judged)

    def lines(self) -> list[str]:
        """Each gate that does not pass with its number, then how many passed."""
        shown = [_line(one) for one in self.judged if one.state != "passed"]
        blocked = sum(one.blocks for one in self.judged)
        passed = len(self.judged) - blocked
        return [*shown, f"gates: {passed:,} passed, {blocked:,} failed"] if self.judged else []


def check_gates(texts: Sequence[str]) -> None:
    """Refuse gates that no audit can answer, before the work of making one.

    Raises:
        UsageError: text that is no gate, an unknown name or value; close matches are named.
    """
    parse_gates(texts, option_ids=None)


def judge_gates(audit: Audit, texts: Sequence[str]) -> GateOutcome:
    """The gates on an audit; each that holds, or cannot be judged, fails.

    Raises:
        UsageError: text that is no gate, an unknown name or value; close matches are named.
    """
    options = [option.id for option in audit.record.options]
    return GateOutcome(tuple(judge(parse_gates(texts, option_ids=options), audit.record)))


def _line(one: Judged) -> str:
    reason = safe_text(one.reason, limit=len(one.reason))
    if one.state == "failed":
        return f"gate failed: {one.gate.text}: {reason}"
    verdict = "passes, as it says `unless unknown`" if one.gate.passes_unknown else "so it fails"
    return f"gate cannot be judged: {one.gate.text}: {reason}; {verdict}"
