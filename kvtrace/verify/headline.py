"""The headline numbers from the rows, against the queries, the manifest and the audit record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.duckdb_session import Param
from kvtrace.query.catalog import load_catalog
from kvtrace.schema.manifest import Manifest
from kvtrace.store.dataset import Dataset
from kvtrace.verify.caches import Seen, distinct_blocks, lru, unlimited
from kvtrace.verify.check import Check, Number, compared, not_compared
from kvtrace.verify.rows import Request, block_sizes, by_arrival

MAX_SEEN_REFS: Final = 50_000_000
"""Block references up to which the unlimited cache is stepped through, one id at a time."""
MAX_LRU_REFS: Final = 5_000_000
"""Block references up to which LRU is: three caches, each touched once a reference."""
LRU_SHARES: Final = (0.01, 0.1, 0.5)
"""Capacities that are stepped through, as shares of the distinct blocks."""
_SEEN_LIMIT: Final = (
    f"more than {MAX_SEEN_REFS:,} block references are not stepped through one by one"
)
_LRU_LIMIT: Final = f"more than {MAX_LRU_REFS:,} block references are not simulated one by one"


@dataclass(frozen=True, slots=True)
class Ground:
    """What the rows say, computed in plain Python."""

    by_status: dict[str, int]
    prompt_tokens: int | None
    """Of `ok` requests; null where none is known. So are the next."""
    output_tokens: int | None
    cached_tokens: int | None
    observed_cached: int
    """Cached tokens of requests that know them and a prompt; the prompts of these come next."""
    observed_prompt: int
    all_prompt_tokens: int | None
    """Of requests of every status; so are the next four."""
    all_output_tokens: int | None
    all_cached_tokens: int | None
    all_block_refs: int | None
    all_distinct_blocks: int | None
    block_refs: int
    seen: Seen | None
    """Null above MAX_SEEN_REFS."""
    lru: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Hit blocks and tokens by capacity; empty where it is not simulated."""
    lru_reason: str = ""
    """Why it is not."""

    def kv_bytes(self, bytes_per_token: float) -> float | None:
        """KV bytes of all prompts of `ok` requests."""
        return None if self.prompt_tokens is None else self.prompt_tokens * bytes_per_token


def ground_of(requests: Sequence[Request], manifest: Manifest) -> Ground:
    """All of it, from the rows."""
    served = [request for request in requests if request.status == "ok"]
    observed = [
        (one.cached_tokens, one.prompt_tokens)
        for one in served
        if one.cached_tokens is not None and one.prompt_tokens is not None
    ]
    refs = sum(request.block_refs for request in served)
    domains, sizes = by_arrival(requests), block_sizes(manifest)
    seen = unlimited(domains, sizes) if refs <= MAX_SEEN_REFS else None
    hits, reason = _lru_hits(domains, sizes, refs, seen)
    return Ground(
        by_status=dict(sorted(Counter(one.status for one in requests).items())),
        prompt_tokens=_total([one.prompt_tokens for one in served]),
        output_tokens=_total([one.output_tokens for one in served]),
        cached_tokens=_total([one.cached_tokens for one in served]),
        observed_cached=sum(cached for cached, _ in observed),
        observed_prompt=sum(prompt for _, prompt in observed),
        all_prompt_tokens=_total([one.prompt_tokens for one in requests]),
        all_output_tokens=_total([one.output_tokens for one in requests]),
        all_cached_tokens=_total([one.cached_tokens for one in requests]),
        all_block_refs=sum(one.block_refs for one in requests) or None,
        all_distinct_blocks=distinct_blocks(requests) if refs <= MAX_SEEN_REFS else None,
        block_refs=refs,
        seen=seen,
        lru=hits,
        lru_reason=reason,
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _lru_hits(
    domains: Mapping[int, Sequence[Request]],
    sizes: Mapping[int, int],
    refs: int,
    seen: Seen | None,
) -> tuple[dict[int, tuple[int, int]], str]:
    """Hits by capacity, or why there are none."""
    if seen is None or not refs:
        return {}, _SEEN_LIMIT if refs else "no block of a prompt is known"
    if refs > MAX_LRU_REFS:
        return {}, _LRU_LIMIT
    if len({sizes[domain] for domain in domains}) > 1:
        return {}, "blocks of the cache domains differ in size"
    capacities = sorted({max(1, int(seen.distinct_blocks * share)) for share in LRU_SHARES})
    return {capacity: lru(domains, sizes, capacity) for capacity in capacities}, ""


Row = Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class _Answers:
    """Rows of the queries that readers see."""

    statuses: list[Row]
    reuse: Row
    curve: list[Row]
    """At the capacities that were simulated."""
    kv: Row


def _ask(dataset: Dataset, capacities: Sequence[int], bytes_per_token: float | None) -> _Answers:
    catalog = load_catalog()
    size = dataset.manifest.totals.block_size_tokens  # of all domains: others are not simulated
    curve: dict[str, Param] = {"capacities": capacities, "block_size_tokens": size}
    with dataset.session() as session:

        def rows(name: str, params: Mapping[str, Param]) -> list[Row]:
            return list(catalog.run(session, name, params).frame.iter_rows(named=True))

        return _Answers(
            statuses=rows("coverage/statuses", {}),
            reuse=rows("reuse/summary", {})[0],
            curve=rows("reuse/capacity_curve", curve) if capacities else [],
            kv=rows("kv/summary", {"kv_bytes_per_token": bytes_per_token})[0],
        )


def check_queries(
    dataset: Dataset, ground: Ground, bytes_per_token: float | None
) -> Iterator[Check]:
    """Against the queries that readers see: they must be equal to the last digit."""
    answers = _ask(dataset, list(ground.lru), bytes_per_token)
    statuses = {str(row["status"]): row["requests"] for row in answers.statuses}
    for status in sorted(set(statuses) | set(ground.by_status)):
        yield compared(
            f"query/requests_{status}",
            ground.by_status.get(status, 0),
            statuses.get(status, 0),
            unit="requests",
            why="coverage/statuses",
        )
    yield from _reuse(ground, answers.reuse)
    yield from _curve(ground, {row["capacity_blocks"]: row for row in answers.curve})
    yield _bytes(ground, bytes_per_token, answers.kv["kv_bytes_requested"])


def _reuse(ground: Ground, row: Mapping[str, Number]) -> Iterator[Check]:
    name = "reuse/summary"
    yield compared(
        "query/prompt_tokens", ground.prompt_tokens, row["prompt_tokens"], unit="tokens", why=name
    )
    refs = ground.block_refs or None
    yield compared("query/block_refs", refs, row["block_refs"], unit="blocks", why=name)
    for field_name, unit in (
        ("reusable_blocks", "blocks"),
        ("reusable_tokens", "tokens"),
        ("requests_with_reuse", "requests"),
    ):
        id = f"query/{field_name}"
        if ground.seen is None:
            yield not_compared(id, _SEEN_LIMIT, unit=unit, kvtrace=row[field_name])
            continue
        value = getattr(ground.seen, field_name) if refs else None
        if field_name == "reusable_tokens" and ground.prompt_tokens is None:
            value = None
        why = f"a set of the ids seen so far, in order of arrival; {name}"
        yield compared(id, value, row[field_name], unit=unit, why=why)


def _curve(ground: Ground, curve: Mapping[Number, Mapping[str, Number]]) -> Iterator[Check]:
    if not ground.lru:
        yield not_compared("query/lru_hit_blocks", ground.lru_reason, unit="blocks")
    for capacity, hits in ground.lru.items():
        row = curve.get(capacity, {})
        for column, unit, value in zip(
            ("hit_blocks", "hit_tokens"), ("blocks", "tokens"), hits, strict=True
        ):
            yield compared(
                f"query/lru_{column}_at_{capacity}",
                value,
                row.get(column),
                unit=unit,
                why=f"an ordered dict of {capacity:,} blocks, step by step; reuse/capacity_curve",
            )


def _bytes(ground: Ground, bytes_per_token: float | None, said: Number) -> Check:
    id = "query/kv_bytes_requested"
    if bytes_per_token is None:
        return not_compared(id, "no audit beside the dataset says which LLM", unit="bytes")
    why = f"prompt tokens × {bytes_per_token:,.12g} bytes; kv/summary"
    return compared(id, ground.kv_bytes(bytes_per_token), said, unit="bytes", why=why)


def check_manifest(manifest: Manifest, ground: Ground) -> Iterator[Check]:
    """Against the totals that the manifest keeps."""
    totals = manifest.totals
    counted = (
        ("requests", "requests", sum(ground.by_status.values()), totals.requests),
        ("prompt_tokens", "tokens", ground.all_prompt_tokens, totals.prompt_tokens),
        ("output_tokens", "tokens", ground.all_output_tokens, totals.output_tokens),
        ("cached_tokens", "tokens", ground.all_cached_tokens, totals.cached_tokens),
        ("block_refs", "blocks", ground.all_block_refs, totals.block_refs),
    )
    for name, unit, value, said in counted:
        yield compared(f"manifest/{name}", value, said, unit=unit, why="totals of the manifest")
    if ground.seen is None:
        yield not_compared("manifest/distinct_blocks", _SEEN_LIMIT, unit="blocks")
    else:
        yield compared(
            "manifest/distinct_blocks",
            ground.all_distinct_blocks,
            totals.distinct_blocks,
            unit="blocks",
            why="a set of ids for each cache domain; totals of the manifest",
        )


def check_audit(record: AuditRecord, ground: Ground) -> Iterator[Check]:
    """Against the record that renders the report."""
    data, reuse = record.data, record.reuse
    pairs: list[tuple[str, str, Number, Number]] = [
        ("requests", "requests", sum(ground.by_status.values()), data.requests),
        ("prompt_tokens", "tokens", ground.all_prompt_tokens, data.prompt_tokens),
        ("output_tokens", "tokens", ground.all_output_tokens, data.output_tokens),
        ("cached_tokens", "tokens", ground.all_cached_tokens, data.cached_tokens),
        (
            "observed_hit_ratio_tokens",
            "ratio",
            _ratio(ground.observed_cached, ground.observed_prompt),
            reuse.observed_hit_ratio_tokens,
        ),
        (
            "kv_bytes_requested",
            "bytes",
            None
            if ground.prompt_tokens is None
            else ground.prompt_tokens * record.kv.bytes_per_token,
            record.kv.bytes_requested,
        ),
    ]
    for status, count in ground.by_status.items():
        pairs.append(
            (f"requests_{status}", "requests", count, data.requests_by_status.get(status, 0))
        )
    for name, unit, value, said in pairs:
        yield compared(f"audit/{name}", value, said, unit=unit, why="audit.json")
    yield from _audit_reuse(record, ground)


def _audit_reuse(record: AuditRecord, ground: Ground) -> Iterator[Check]:
    reuse, seen = record.reuse, ground.seen
    reason = reuse.unknown_reason or (_SEEN_LIMIT if seen is None else "")
    values: tuple[tuple[str, str, Number, Number], ...] = ()
    if seen is not None:
        values = (
            ("reusable_blocks", "blocks", seen.reusable_blocks, reuse.reusable_blocks),
            ("reusable_tokens", "tokens", seen.reusable_tokens, reuse.reusable_tokens),
            (
                "reusable_ratio_tokens",
                "ratio",
                _ratio(seen.reusable_tokens, ground.prompt_tokens),
                reuse.reusable_ratio_tokens,
            ),
            (
                "reusable_ratio_blocks",
                "ratio",
                _ratio(seen.reusable_blocks, ground.block_refs),
                reuse.reusable_ratio_blocks,
            ),
        )
    if reason:
        yield not_compared("audit/reusable_tokens", reason, unit="tokens")
        return
    for name, unit, value, said in values:
        yield compared(f"audit/{name}", value, said, unit=unit, why="audit.json")


def _ratio(part: int, whole: int | None) -> float | None:
    return part / whole if whole else None
