"""Checks on what the figures can be trusted for: clocks, coverage, counters that flatter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kvtrace.audit.findings.check import Evidence, Hit, measured, modelled
from kvtrace.audit.findings.limits import COVERAGE, HOLE, LOST_HITS, PREEMPTED
from kvtrace.audit.record import Severity
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import count, number, rows_of
from kvtrace.audit.words import percent
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.schema.manifest import Note, SourceEntry

FIELDS_TABLE: Final = "coverage/fields"
TIME_TABLE: Final = "coverage/over_time"
SAMPLES_TABLE: Final = "samples/catalogue"
_CLOCK_NOTES: Final = frozenset(
    {
        "agent_clock_assumed",
        "clock_assumed",
        "mixed_epoch_units",
        "mixed_timestamp_units",
        "mixed_zones",
        "no_common_clock",
        "other_clocks",
        "out_of_order",
        "timestamp_unit_assumed",
        "two_steady_clocks",
    }
)
"""Notes of ingest after which instants of different rows or files may not compare."""
_BUSY_SLICE: Final = 20
"""Mean requests of a slice above which an empty one is no pause: e^-20 is 2e-9."""
_CARRYING: Final = ("prompt_tokens", "arrived_at_ns")
_PREEMPTIONS: Final = ("preemptions", "retracted_requests")
_COUNTS_ALL: Final = "preemptions_counted_as_hits"
_DRAFTERS: Final = frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark", "deepseek_mtp"})
"""Ways of drafting that need the hidden states of the last cached block again."""


def clock_doubtful(evidence: Evidence) -> Hit | None:
    """Ingest found clocks that do not agree, or guessed one."""
    notes = [note for note in _notes(evidence) if note.code in _CLOCK_NOTES]
    if not notes:
        return None
    severity: Severity = "warning" if any(one.severity == "warning" for one in notes) else "info"
    distinct = list(dict.fromkeys(note.message.rstrip(".") for note in notes))
    return Hit(
        severity=severity,
        confidence="high",
        message=". ".join(distinct[:3]),
        evidence=(measured("clock_notes", len(notes), "count", "ingest"),),
    )


def _notes(evidence: Evidence) -> Iterator[Note]:
    """Of everything, of each source and of each file; the same note once."""
    data = evidence.data
    seen = set()
    for notes in (data.notes, *(s.notes for s in data.sources), *(f.notes for f in data.files)):
        for note in notes:
            if (note.code, note.message) not in seen:
                seen.add((note.code, note.message))
                yield note


def coverage_gaps(evidence: Evidence) -> Hit | None:
    """Stretches of the log hold nothing, or requests lack what the figures rest on."""
    empty = _empty_slices(evidence)
    lacking = [
        (str(row.get("field")), share)
        for row in rows_of(evidence.queries, FIELDS_TABLE)
        if row.get("field") in _CARRYING
        and (known := count(row, "known_requests"))
        and (share := ratio(known, evidence.data.requests)) is not None
        and share < COVERAGE.value
    ]
    if not empty and not lacking:
        return None
    parts, proof = [], []
    if empty:
        parts.append(
            f"{empty:,} of {len(rows_of(evidence.queries, TIME_TABLE)):,} equal stretches between "
            f"the first and the last arrival hold no request, all others {_BUSY_SLICE} or more: "
            "the "
            "log has a gap, and reuse across it is not seen"
        )
        proof.append(measured("empty_slices", empty, "count", TIME_TABLE))
    for name, share in lacking:
        parts.append(f"{percent(share)} of the requests say `{name}` (measured)")
        proof.append(measured(f"known_share:{name}", share, "ratio", FIELDS_TABLE))
    return Hit(
        severity="warning",
        confidence="high",
        message=". ".join(parts),
        evidence=tuple(proof),
        table=TIME_TABLE if empty else FIELDS_TABLE,
    )


def _empty_slices(evidence: Evidence) -> int:
    """Slices without a request, where the others hold so many that it is no pause."""
    held = [count(row, "requests") or 0 for row in rows_of(evidence.queries, TIME_TABLE)]
    busy = [n for n in held if n]
    empty = len(held) - len(busy)
    if empty < HOLE.value or not busy or min(busy) < _BUSY_SLICE:
        return 0
    return empty


def preemptions_inflate_hits(evidence: Evidence) -> Hit | None:
    """Requests were preempted, and the engine counts what they find again as hits."""
    seen = [
        (str(row.get("metric")), row)
        for row in rows_of(evidence.queries, SAMPLES_TABLE)
        if row.get("metric") in _PREEMPTIONS and (number(row, "maximum") or 0.0) >= PREEMPTED.value
    ]
    flattered = [source for source in evidence.data.sources if _counts_preempted(source)]
    if not seen or not flattered:
        return None
    named = ", ".join(
        f"{name.replace('_', ' ')} up to {number(r, 'maximum'):,.0f}" for name, r in seen
    )
    engines = ", ".join(sorted({_engine(source) for source in flattered}))
    return Hit(
        severity="warning",
        confidence="medium",
        message=(
            f"The log shows {named} at a time, and {engines} counts the blocks that a request "
            "finds "
            "again after it lost its place as hits: printed hit ratios are upper bounds"
        ),
        evidence=tuple(
            measured(f"{name}_max", number(row, "maximum"), "requests", SAMPLES_TABLE)
            for name, row in seen
        ),
    )


def _counts_preempted(source: SourceEntry) -> bool:
    """VLLM by the note of its reader; SGLang's batch lines in all versions."""
    if source.engine == "vllm":
        return source.engine_facts.get(_COUNTS_ALL) in {"yes", "unknown"}
    return source.engine == "sglang" and "request" not in source.format


def _engine(source: SourceEntry) -> str:
    return f"{source.engine} {source.engine_version or ''}".rstrip()


def hits_cancelled(evidence: Evidence) -> Hit | None:
    """A drafter or checkpoints of a recurrent state make the engine compute matched tokens again.

    Formula: of r matched tokens and a unit of u, r - floor(r / u) u are computed again, and a whole
    unit more with a drafter that needs the last one's hidden states. Source: vLLM RFC 52817 and
    issue 54360 (hits = max(0, floor((n - 1) / u) - 1) u, measured there).
    """
    trace, unit = evidence.trace, _unit_tokens(evidence)
    if trace is None or unit is None or not int(trace.prompt_tokens.sum()):
        return None
    drafter = _drafter(evidence)
    matched = reusable_tokens(trace)
    kept = matched // unit * unit
    if drafter is not None:
        kept = np.maximum(kept - unit, 0)
    lost, prompt = int((matched - kept).sum()), int(trace.prompt_tokens.sum())
    if lost / prompt < LOST_HITS.value:
        return None
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence,
        message=(
            f"{_why_lost(evidence, unit, drafter)}: {lost:,} of {int(matched.sum()):,} reusable "
            f"tokens are computed again, {percent(lost / prompt)} of the prompt tokens (bound of "
            "the replayed requests in an unlimited cache)"
        ),
        evidence=(
            modelled("unit_tokens", unit, "tokens", "shape of the LLM, else the log"),
            modelled("lost_hit_tokens", lost, "tokens", "reuse facts, cut to whole units"),
            modelled("lost_hit_share", lost / prompt, "ratio", "of the prompt tokens"),
        ),
    )


def _unit_tokens(evidence: Evidence) -> int | None:
    """What a hit is cut to: checkpoints of a state, else with a drafter the engine's block."""
    deployment = evidence.deployment
    every = None if deployment is None else deployment.llm.checkpoint_tokens(deployment.kv_dtype)
    if every is not None or _drafter(evidence) is None:
        return every
    sizes = [s.engine_facts.get("block_size") for s in evidence.data.sources]
    known = [size for size in sizes if isinstance(size, int) and size > 0]
    return max(known, default=None)


def _drafter(evidence: Evidence) -> str | None:
    """The drafting method that a log names and that computes a matched block again."""
    named = (source.engine_facts.get("speculative") for source in evidence.data.sources)
    return next((one for one in named if isinstance(one, str) and one in _DRAFTERS), None)


def _why_lost(evidence: Evidence, unit: int, drafter: str | None) -> str:
    deployment = evidence.deployment
    is_hybrid = deployment is not None and bool(deployment.llm.recurrent_layers)
    parts = []
    if deployment is not None and is_hybrid:
        parts.append(
            f"{deployment.llm.name} keeps a recurrent state, which a hit can go on from only at "
            f"checkpoints, every {unit:,} tokens (modelled)"
        )
    if drafter is not None:
        parts.append(f"speculative decoding ({drafter}) computes the last matched {unit:,} again")
    text = ", and ".join(parts)
    return f"{text[0].upper()}{text[1:]}"
