"""What a log that misses requests can carry: reuse as a lower bound, and no word against a pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, known_only, measured
from kvtrace.audit.record import NextMeasurement, Validity
from kvtrace.audit.words import percent
from kvtrace.schema.manifest import Note, SourceEntry
from kvtrace.schema.sampling import (
    KEPT_FACT,
    KIND_FACT,
    LOST_REUSE_FACT,
    SAMPLING_BIAS,
    SESSION_SAMPLED,
)

_REMEDY: Final[dict[str, str]] = {
    "requests": "the same log with sampling off (rate 1), or sampled by session, not by request",
    "sessions": "the same log with sampling off (rate 1) for two busy hours",
    "slow_only": "the same log of all requests: unset SGLANG_LOG_REQUEST_EXCEEDED_MS, or the "
    "gateway's slow-request threshold",
    "lost_lines": "the same log without losses: RAY_DEDUP_LOGS=0, no rate limit of the logger "
    "(journald RateLimitBurst=0), a file instead of a pipe",
}
_WHAT: Final[dict[str, str]] = {
    "requests": "requests are missing from it, and with them the reuse of those that follow",
    "sessions": "it holds whole conversations, but of a part of the load only",
    "slow_only": "only slow requests are in it, and short ones that bring and find blocks are not",
    "lost_lines": "lines of it are lost, and with them the reuse of requests that follow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGap:
    """Requests of the service that the log does not hold."""

    what: str
    """What is missing, for people; goes on after `it`."""
    evidence: str
    """How that is known, for people."""
    hides_reuse: bool
    """Reuse is a lower bound. False: only the load is that of a part."""
    measurement: NextMeasurement
    """The log that would hold all."""


@dataclass(frozen=True, slots=True)
class SampledLog:
    """What ingest found missing from the headline's log."""

    kind: str
    kept_share: float | None
    lost_share: float | None
    message: str
    """Of the note, with its evidence."""

    @property
    def hides_reuse(self) -> bool:
        """Reuse read from the log is a lower bound."""
        return self.kind != "sessions"


def sampled_log(sources: Sequence[SourceEntry], notes: Sequence[Note]) -> SampledLog | None:
    """What is missing from the log of the headline; None for a log that seems whole."""
    note = next((one for one in notes if one.code in {SAMPLING_BIAS, SESSION_SAMPLED}), None)
    if note is None:
        return None
    headline = next((source for source in sources if source.role == "headline"), None)
    facts = {} if headline is None else headline.engine_facts
    kind = facts.get(KIND_FACT)
    known = kind if isinstance(kind, str) and kind in _WHAT else None
    default = "sessions" if note.code == SESSION_SAMPLED else "requests"
    return SampledLog(
        kind=known or default,
        kept_share=_share(facts.get(KEPT_FACT)),
        lost_share=_share(facts.get(LOST_REUSE_FACT)),
        message=note.message,
    )


def _share(value: str | int | float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def log_gap(log: SampledLog | None) -> LogGap | None:
    """What the verdict must know of it."""
    if log is None:
        return None
    part = "" if log.kept_share is None else f" (about {percent(log.kept_share)} of the load)"
    return LogGap(
        what=f"{_WHAT[log.kind]}{part}",
        evidence=log.message,
        hides_reuse=log.hides_reuse,
        measurement=NextMeasurement(
            question="What do the requests reuse that are missing from this log?"
            if log.hides_reuse
            else "What do the options do under the whole load?",
            flag=_REMEDY[log.kind],
            hours=2.0,
            settles="counts all requests of the service, so that reuse, working set and load are "
            "those that a pool would meet",
        ),
    )


def at_least(log: SampledLog | None) -> str | None:
    """Why reuse is a lower bound; None where it is not."""
    return log.message if log is not None and log.hides_reuse else None


def sampling_validity(log: SampledLog | None, reusable_ratio: float | None) -> Iterator[Validity]:
    """What reuse and load from this log are worth."""
    if log is None:
        return
    if not log.hides_reuse:
        yield Validity(code=SESSION_SAMPLED, severity="warning", message=log.message)
        return
    known = "" if reusable_ratio is None else f". At least {percent(reusable_ratio)} is reusable"
    lost = ""
    if log.lost_share is not None:
        lost = (
            f", and another {percent(log.lost_share)} of the blocks had been computed before by "
            "requests that are missing"
        )
    message = f"{log.message}{known}{lost}"
    yield Validity(code=SAMPLING_BIAS, severity="critical", message=message)


def log_is_sampled(evidence: Evidence) -> Hit | None:
    """Requests of the service are missing from the log."""
    log = sampled_log(evidence.data.sources, evidence.data.notes)
    if log is None:
        return None
    reusable = evidence.reuse.reusable_ratio_tokens
    parts = [log.message]
    if log.hides_reuse and reusable is not None:
        parts.append(f"At least {percent(reusable)} of the prompt tokens are reusable")
    parts.append("Load, working set and the size of any cache are those of the logged part")
    return Hit(
        severity="critical" if log.hides_reuse else "warning",
        confidence="high" if log.kept_share is not None else "medium",
        message=". ".join(parts),
        evidence=known_only(
            measured("log_kept_share", log.kept_share, "ratio", "ingest"),
            measured("log_lost_reuse_share", log.lost_share, "ratio", "ingest"),
            measured("reusable_ratio_tokens_at_least", reusable, "ratio", "reuse/summary")
            if log.hides_reuse
            else measured("reusable_ratio_tokens", reusable, "ratio", "reuse/summary"),
        ),
    )


def is_part(evidence: Evidence) -> bool:
    """A cache that holds the working set of this log need not hold that of the service."""
    return sampled_log(evidence.data.sources, evidence.data.notes) is not None
