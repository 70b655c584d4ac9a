"""The page of docs that lists the findings, from the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.findings.check import ActionKind, Check
from kvtrace.audit.findings.net_negative_loads import THRESHOLDS as REPLAY_THRESHOLDS
from kvtrace.audit.thresholds import Threshold

_KINDS: Final[dict[ActionKind, str]] = {
    "move_less": "move less",
    "faster": "faster",
    "nearer": "nearer",
    "measure": "measure first",
    "other": "other",
}
_INTRO: Final = """\
# Findings

Everything that a report can point at, with its threshold, what to do and how to check it. On a
terminal, and with what one audit found:

```bash
kvtrace explain net_negative_hits
kvtrace explain queueing_dominates --audit reports/logs
```

Made by `scripts/gen_finding_docs.py` from the registry in `kvtrace/audit/findings/`; do not edit by
hand.

A finding is a question with a threshold: it is asked of every audit, and speaks only where the data
or the replays cross the threshold. Each one says its evidence with source, how severe it is and how
far to trust it, what to do (grouped: move less · faster · nearer, or measure first), and how to
check it in production. `policy` in a threshold means that kvtrace chose it, so that it can be
argued with.
"""


def render_finding_docs(checks: Sequence[Check]) -> str:
    """The page, in the order of the registry."""
    parts = [_INTRO, _overview(checks)]
    parts += [_section(check) for check in checks]
    parts.append(_replay_section())
    return "\n".join(parts)


def _overview(checks: Sequence[Check]) -> str:
    rows = [f"| `{one.id}` | {one.question} | {_KINDS[one.action_kind]} |" for one in checks]
    return "\n".join(["| finding | question | action |", "|---|---|---|", *rows, ""])


def _section(check: Check) -> str:
    table = "" if check.table is None else f"- Evidence: `{check.table}`\n"
    return (
        f"## {check.id}\n\n"
        f"{check.title}.\n\n"
        f"- Question: {check.question}\n"
        f"- Threshold: {_limit(check.threshold)}\n"
        f"{table}"
        f"- Rests on: {'replays (modelled)' if check.is_replayed else 'logs, or both'}\n"
        f"- Action ({_KINDS[check.action_kind]}): {check.action}\n"
        f"- In production: {check.production_check}\n"
    )


def _limit(threshold: Threshold) -> str:
    unit = f" {threshold.unit}" if threshold.unit else ""
    return f"`{threshold.id}` {threshold.value:,.4g}{unit}. {threshold.source}"


def _replay_section() -> str:
    limits = "\n".join(f"- Threshold: {_limit(one)}" for one in REPLAY_THRESHOLDS)
    return (
        "## reuse_up_ttft_collapse\n\n"
        "A scenario of `kvtrace replay` whose tiers raise reuse and ruin TTFT; see\n"
        "[replay.md](replay.md).\n\n"
        f"{limits}\n"
        "- Rests on: replays with the tiers, without them, and with an arbiter (modelled)\n"
        "- Action (move less): as the replay with an arbiter, or the thresholds by tier, say\n"
    )
