"""Whether a log holds all requests of its service, and what that does to the reuse that it shows.

A request that is missing takes the reuse of its successors with it: a true reuse of 0.374 reads
0.27 where every second request is logged and 0.05 at one in a hundred. Whole conversations may be
missing without harm to the ratio (0.37 to 0.39 down to one in ten), only to load and totals.

Each test is asked only where its evidence is plenty, and needs a clear answer: thinning leaves no
trace in arrivals alone (a thinned Poisson process is one), nor in hashed blocks without sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from kvtrace.ingest.sampling.blocks import BlockEvidence, numbered_blocks, unexplained_hits
from kvtrace.ingest.sampling.sessions import missing_parents, missing_turns
from kvtrace.ingest.sampling.times import counted_by_engine, slow_edge_ms
from kvtrace.ingest.sources import Source
from kvtrace.schema.manifest import CacheDomain, Note
from kvtrace.schema.sampling import (
    KEPT_FACT,
    KIND_FACT,
    LOST_REUSE_FACT,
    SAMPLING_BIAS,
    SESSION_SAMPLED,
    SamplingKind,
)

_WHOLE: Final = 0.95
"""A log that keeps more than this is taken as whole: some requests fail before they are logged."""
_PART: Final = 0.8
"""Below this share of what the engine counted, the log holds a part; retries are counted twice."""
_LOST_REUSE: Final = 0.01
_LITTLE_LOST: Final = 0.01
_RATE_FACTS: Final = ("sampling_rate", "sample_rate", "log_sampling_rate", "request_sampling_rate")
_SESSION_RATE_FACTS: Final = ("session_sampling_rate",)
_THRESHOLD_FACT: Final = "slow_log_threshold_ms"
_DROPPED_FACTS: Final = ("trace_rows_dropped", "log_lines_dropped")
_LOST_LINES: Final[dict[str, str]] = {
    "ray_deduplicates": "Ray drops lines that repeat (RAY_DEDUP_LOGS=0 keeps them)",
    "trace_rows_dropped": "the tracer dropped rows when it could not keep up",
    "log_lines_dropped": "the logger dropped lines when it could not keep up",
    "log_rate_limited": "the logger writes no more than a set number of lines a second",
}
"""Notes of readers that mean that rows are missing, in words."""
_LOST_EVENTS: Final = ("kv_events_lost", "events of the KV cache are missing by their numbers")


@dataclass(frozen=True, slots=True)
class Sampling:
    """What is missing from a log."""

    kind: SamplingKind
    kept_share: float | None = None
    """Of the service's requests, where a test can tell."""
    lost_reuse_share: float | None = None
    """Of the block references of the logged requests: first seen here, yet computed before."""
    evidence: tuple[str, ...] = ()
    """Sentences without full stop."""

    @property
    def is_biased(self) -> bool:
        """Reuse from this log is a lower bound."""
        return self.kind in {"requests", "slow_only", "lost_lines"}

    def notes(self) -> list[Note]:
        """What the manifest says of it; nothing for a log that seems whole."""
        why = "; ".join(self.evidence)
        if self.kind == "none":
            return []
        if self.kind == "sessions":
            text = (
                f"The log seems to hold whole conversations of a part of the traffic: {why}. "
                "Ratios of reuse hold; load, totals and capacities are those of the part"
            )
            return [Note(code=SESSION_SAMPLED, message=text, severity="warning")]
        text = f"Requests are missing from this log: {why}. Reuse read from it is a lower bound"
        if self.kind == "slow_only":
            text += ", and its latencies are those of slow requests"
        return [Note(code=SAMPLING_BIAS, message=text, severity="warning")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTables:
    """What the tests look at: one headline source, normalised."""

    requests: pl.DataFrame
    """Rows of the headline, all statuses."""
    samples: pl.DataFrame
    """Of all sources."""
    blocks: pl.DataFrame
    keys: pl.DataFrame
    domains: Sequence[CacheDomain] = ()
    """Of the headline; `blocks` and `keys` may hold others too."""
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    """Engine facts of the headline."""
    note_codes: frozenset[str] = frozenset()
    """Left by the readers of the headline."""


@dataclass(slots=True)
class _Findings:
    """What the tests said, by what it means."""

    inside: list[str] = field(default_factory=list)
    """Requests are missing inside conversations."""
    part: list[str] = field(default_factory=list)
    """The log holds a part of the requests; which one is open."""
    whole: list[str] = field(default_factory=list)
    """Conversations are whole."""
    slow: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    lost_reuse: float | None = None


def note_sampling(
    headline: Source | None,
    sources: Sequence[Source],
    frames: Mapping[str, pl.DataFrame],
    domains: Sequence[CacheDomain],
) -> Sampling:
    """Ask all tests of a normalised dataset; leaves notes and facts with the headline's first file.

    `frames` holds the tables of the dataset: requests, samples, blocks and keys.
    """
    if headline is None or headline.requests.is_empty():
        return Sampling("none")
    facts: dict[str, str | int | float] = {}
    codes = {code for code, _ in headline.notes}
    for read in headline.files:
        codes.update(note.code for note in read.entry.notes)
        if read.context is not None:
            codes.update(note.code for note in read.context.notes)
            facts.update(read.context.engine_facts)
    if headline.grade != "A":
        codes |= {
            note.code
            for source in sources
            for read in source.files
            for note in read.entry.notes
            if note.code == _LOST_EVENTS[0]
        }
    found = detect_sampling(
        LogTables(
            requests=frames["requests"].filter("is_headline"),
            samples=frames["samples"],
            blocks=frames["blocks"],
            keys=frames["keys"],
            domains=[one for one in domains if one.source_id == headline.source_id],
            facts=facts,
            note_codes=frozenset(codes),
        )
    )
    first = headline.files[0]
    first.entry.notes.extend(found.notes())
    if first.context is not None and found.kind != "none":
        first.context.engine_facts[KIND_FACT] = found.kind
        if found.kept_share is not None:
            first.context.engine_facts[KEPT_FACT] = round(found.kept_share, 4)
        if found.lost_reuse_share is not None:
            first.context.engine_facts[LOST_REUSE_FACT] = round(found.lost_reuse_share, 4)
    return found


def detect_sampling(log: LogTables) -> Sampling:
    """What is missing from a log, by all tests together."""
    found = _Findings()
    _configured(log.facts, found)
    _conversations(log.requests, found)
    _blocks(log, found)
    _counters(log, found)
    _slow(log, found)
    found.lost.extend(_lost_lines(log))
    kept = min(found.kept, default=None)
    if found.slow:
        kind: SamplingKind = "slow_only"
    elif found.inside:
        kind = "requests"
    elif found.part:
        kind = "sessions" if found.whole else "requests"
    else:
        kind = "lost_lines" if found.lost else "none"
    if kind == "sessions" and found.lost:
        kind = "lost_lines"
    sentences = [*found.slow, *found.inside, *found.part, *found.lost]
    if kind == "sessions":
        sentences.extend(found.whole)
    return Sampling(kind, kept, found.lost_reuse, tuple(sentences))


def _configured(facts: Mapping[str, str | int | float], found: _Findings) -> None:
    """Rates that the log states itself."""
    for name in (*_RATE_FACTS, *_SESSION_RATE_FACTS):
        rate = facts.get(name)
        if not isinstance(rate, int | float) or not 0 < rate < 1:
            continue
        found.kept.append(float(rate))
        found.part.append(f"it states {name} {rate:g}")
        if name in _SESSION_RATE_FACTS:
            found.whole.append("it is sampled by session")


def _conversations(requests: pl.DataFrame, found: _Findings) -> None:
    """Turns and parents that the rows name and that are not there."""
    for seen, what in (
        (missing_turns(requests), "turns between the first and the last one of a conversation"),
        (missing_parents(requests), "parents that requests name"),
    ):
        if seen is None:
            continue
        sentence = f"{seen.present:,} of {seen.expected:,} {what} are in it"
        if seen.share < _WHOLE:
            found.inside.append(sentence)
            found.kept.append(seen.share)
        else:
            found.whole.append(sentence)


def _blocks(log: LogTables, found: _Findings) -> None:
    """Blocks that were numbered or cached by requests that are not there."""
    evidence = BlockEvidence.of(log.requests, log.blocks, log.keys, log.domains)
    numbered = numbered_blocks(evidence)
    if numbered is not None and numbered.kept_share < _WHOLE:
        share = f"{numbered.missing:,} of {numbered.numbered:,} block numbers are never used"
        found.kept.append(numbered.kept_share)
        if numbered.lost_share >= _LOST_REUSE:
            found.lost_reuse = numbered.lost_share
            found.inside.append(
                f"{share}, and {100 * numbered.lost_share:.1f} % of the blocks were numbered by "
                "an earlier request that is not in it"
            )
        else:
            found.part.append(share)
            found.whole.append("no block was numbered by a missing request")
    hits = unexplained_hits(evidence)
    if hits is not None:
        found.inside.append(
            f"the engine served {hits.cached:,} cached tokens of which {hits.unexplained:,} belong "
            "to no earlier request of this log"
        )


def _counters(log: LogTables, found: _Findings) -> None:
    """What the engine counted, against the rows of the same time."""
    counted = counted_by_engine(log.requests, log.samples)
    if counted is None or counted.share >= _PART:
        return
    found.kept.append(counted.share)
    found.part.append(
        f"it holds {counted.logged:,.0f} of the {counted.counted:,.0f} {counted.unit} that the "
        "engines counted in the same time"
    )


def _slow(log: LogTables, found: _Findings) -> None:
    """Requests below a duration are not logged."""
    threshold = log.facts.get(_THRESHOLD_FACT)
    if isinstance(threshold, int | float) and threshold > 0:
        found.slow.append(f"only requests of {threshold:g} ms and more are logged, as it states")
        return
    edge = slow_edge_ms(log.requests)
    if edge is not None:
        found.slow.append(
            f"no request takes less than {edge:,} ms end to end, and many take just more: as if "
            "only slow ones were logged"
        )


def _lost_lines(log: LogTables) -> Iterator[str]:
    """What readers said of lines that are missing."""
    dropped = [log.facts.get(name) for name in _DROPPED_FACTS]
    known = [count for count in dropped if isinstance(count, int | float)]
    if known and sum(known) < _LITTLE_LOST * max(len(log.requests), 1):
        return
    for code, words in (*_LOST_LINES.items(), _LOST_EVENTS):
        if code in log.note_codes:
            yield words
