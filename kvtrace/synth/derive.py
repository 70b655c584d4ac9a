"""A profile from a dataset's own statistics: lengths, pauses, arrivals, shared prefixes, reuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Final

import polars as pl

from kvtrace.errors import InputError, Location
from kvtrace.store.dataset import Dataset
from kvtrace.synth.chains import Chain, Path, find_chains, shared_paths
from kvtrace.synth.profilefile import load_profile
from kvtrace.synth.profiletables import (
    ArrivalsTable,
    EngineTable,
    PrefixTable,
    ProfileTable,
    RhythmTable,
    SpreadTable,
    TurnsTable,
    WorkloadTable,
)
from kvtrace.synth.reuse import TOLERANCE, Pilot
from kvtrace.synth.story import StoryEngine
from kvtrace.units import NS_PER_S

_TURN_CLASSES: Final = (1, 2, 4, 8, 16, 32, 1 << 30)
"""Upper ends: conversations of about as many turns are one workload."""
_LENGTH_CLASSES: Final = (2_000, 8_000, 32_000, 1 << 60)
"""Upper ends in tokens of the first prompt."""
_SMALLEST_CLASS: Final = 12
"""Conversations below which a class is taken together with its neighbour."""
_SHARES: Final = (
    *(0.0, 0.005, 0.01, 0.02, 0.05),
    *(round(0.1 + 0.05 * step, 2) for step in range(17)),
    *(0.95, 0.98, 0.99, 0.995, 1.0),
)
_MOST_PREFIXES: Final = 100
"""Shared prefixes that are stated one by one in a workload; rarer ones are left to `reuse`."""
_ONLY_WITHIN: Final = 1e-9
"""Weight of a prefix that is there for the longer ones that begin with it."""
_RHYTHM_PARTS: Final = 24
"""Parts of the trace that may have rates of their own, at most, and starts that a part needs."""
_STARTS_A_PART: Final = 4
_STEADY_CV: Final = (0.85, 1.2)
"""Between these, arrivals are taken as Poisson."""
_UTILISATION: Final = 0.3
"""Share of the time that the engine of the story computes prompts."""
_ROOM: Final = 4
"""Times the tokens that run at once that its HBM holds."""
_UNKNOWN_OUTPUT: Final = 100.0
_MOST_REUSE: Final = 0.9999
DEFAULT_BLOCK_TOKENS: Final = 64
_COLUMNS: Final = (
    "request_key",
    "session_key",
    "arrived_at_ns",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
)


@dataclass(frozen=True, slots=True)
class Derived:
    """A profile, and what it cannot hold of its dataset."""

    table: ProfileTable
    requests: int
    has_blocks: bool
    """Whether reuse comes from block ids; else from cached counts, if at all."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Columns of the rows in order of arrival."""

    arrived_s: list[float]
    prompts: list[int]
    outputs: list[int | None]

    @property
    def span_s(self) -> float:
        return max(self.arrived_s[-1] - self.arrived_s[0], 1.0)


def derive_profile(dataset: Dataset, *, seed: int) -> Derived:
    """The profile of a dataset's `ok` headline requests with known length and arrival.

    Raises:
        InputError: KVT-S006, there are none, or they have no clock.
    """
    rows = _rows(dataset)
    if rows.is_empty():
        raise InputError(
            "KVT-S006",
            "no profile can be made: no request has a known length and arrival",
            where=Location(str(dataset.directory)),
            hint="`kvtrace query DATASET coverage/fields` shows which columns are known",
        )
    reuse, block_tokens = _reuse(dataset, rows)
    chains = find_chains(rows, reuse, block_tokens)
    facts = _Facts(
        arrived_s=[ns / NS_PER_S for ns in rows["arrived_at_ns"].to_list()],
        prompts=rows["prompt_tokens"].to_list(),
        outputs=rows["output_tokens"].to_list(),
    )
    shared = shared_paths(chains)
    prefixes = _Prefixes(shared, block_tokens)
    arrivals = _arrivals(chains, facts)
    workloads = [
        _workload(
            name,
            [chains[i] for i in members],
            facts,
            arrivals,
            prefixes.of([shared[i] for i in members]),
        )
        for name, members in _classes(chains, facts)
    ]
    table = ProfileTable(
        seed=seed,
        block_size_tokens=block_tokens,
        engine=_engine(facts, block_tokens),
        workload=workloads,
    )
    ratio, has_blocks = _reuse_ratio(rows, reuse), not reuse.is_empty()
    notes = _notes(facts, ratio, rows, has_blocks)
    if ratio is not None:
        least, most = Pilot(load_profile(table).profile).reach()
        table.reuse = round(min(max(ratio, least), most), 4)
        if abs(table.reuse - ratio) > TOLERANCE:
            notes = (*notes, f"a reuse of {ratio:.1%} cannot be had with these conversations")
    return Derived(table, len(rows), has_blocks, notes)


def _rows(dataset: Dataset) -> pl.DataFrame:
    parts = dataset.parts("requests")
    if not parts:
        return pl.DataFrame()
    return (
        pl.scan_parquet(parts)
        .filter((pl.col("status") == "ok") & pl.col("is_headline") & (pl.col("clock") != "order"))
        .select(*_COLUMNS)
        .drop_nulls(["arrived_at_ns", "prompt_tokens"])
        .sort("arrived_at_ns", "request_key")
        .collect()
    )


def _reuse(dataset: Dataset, rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The reuse facts of the rows, and the block size of most of them."""
    facts = dataset.table("reuse").join(rows.select("request_key"), on="request_key", how="semi")
    domains = dataset.manifest.domains
    if facts.is_empty() or not domains:
        return facts.clear(), DEFAULT_BLOCK_TOKENS
    return facts, max(domains, key=lambda domain: domain.block_refs).block_size_tokens


def _reuse_ratio(rows: pl.DataFrame, reuse: pl.DataFrame) -> float | None:
    """Reusable / prompt tokens; without blocks cached / prompt tokens where that is known."""
    if not reuse.is_empty():
        found, prompts = reuse.filter("is_reusable")["token_count"], rows["prompt_tokens"]
    else:
        known = rows.drop_nulls("cached_tokens")
        found, prompts = known["cached_tokens"], known["prompt_tokens"]
    total = int(prompts.sum())
    return round(min(int(found.sum()) / total, _MOST_REUSE), 4) if total else None


def _notes(
    facts: _Facts, ratio: float | None, rows: pl.DataFrame, has_blocks: bool
) -> tuple[str, ...]:
    notes = []
    if not has_blocks:
        repeats = (
            "no prompt repeats another"
            if rows["session_key"].is_null().all()
            else "turns repeat the turns before them"
        )
        shared = (
            f"nothing else is shared: {repeats}"
            if ratio is None
            else f"so much is shared that an unlimited cache catches what caches did, {ratio:.1%}"
        )
        notes.append(f"the dataset has no block ids; {shared}")
    if all(output is None for output in facts.outputs):
        notes.append(f"output lengths are unknown: {_UNKNOWN_OUTPUT:.0f} tokens are assumed")
    return tuple(notes)


# Classes of conversations


def _classes(chains: Sequence[Chain], facts: _Facts) -> list[tuple[str, list[int]]]:
    """Conversations of about the same turns and first length: (name, indices)."""
    found: dict[tuple[int, int], list[int]] = {}
    for index, chain in enumerate(chains):
        turns = next(i for i, end in enumerate(_TURN_CLASSES) if len(chain.requests) <= end)
        first = facts.prompts[chain.requests[0]]
        length = next(i for i, end in enumerate(_LENGTH_CLASSES) if first <= end)
        found.setdefault((turns, length), []).append(index)
    classes = [found[key] for key in sorted(found)]
    merged: list[list[int]] = []
    for members in classes:
        if merged and min(len(merged[-1]), len(members)) < _SMALLEST_CLASS:
            merged[-1] = sorted(merged[-1] + members)
        else:
            merged.append(members)
    return [(f"class-{number}", members) for number, members in enumerate(merged, start=1)]


def _arrivals(chains: Sequence[Chain], facts: _Facts) -> ArrivalsTable:
    """Poisson, or gamma with the coefficient of variation of the gaps between starts."""
    starts = [facts.arrived_s[chain.requests[0]] for chain in chains]
    gaps = [b - a for a, b in pairwise(starts)]
    mean = fmean(gaps) if gaps else 0.0
    cv = pstdev(gaps) / mean if mean > 0.0 else 1.0
    if _STEADY_CV[0] <= cv <= _STEADY_CV[1]:
        return ArrivalsTable()
    return ArrivalsTable(process="gamma", cv=round(min(max(cv, 0.05), 20.0), 3))


def _workload(
    name: str,
    chains: Sequence[Chain],
    facts: _Facts,
    arrivals: ArrivalsTable,
    begins: tuple[list[PrefixTable], float],
) -> WorkloadTable:
    turns = [float(len(chain.requests)) for chain in chains]
    steps = [step for chain in chains for step in pairwise(chain.requests)]
    grown = [max(facts.prompts[b] - facts.prompts[a], 1) for a, b in steps]
    pauses = [facts.arrived_s[b] - facts.arrived_s[a] for a, b in steps]
    outputs = [facts.outputs[i] for chain in chains for i in chain.requests]
    known = [output for output in outputs if output is not None]
    prefixes, unshared = begins
    return WorkloadTable(
        name=name,
        sessions=len(chains),
        duration_s=round(facts.span_s, 3),
        arrivals=arrivals,
        rhythm=_rhythm([facts.arrived_s[chain.requests[0]] for chain in chains], facts),
        turns=TurnsTable(quantiles=_quantiles(turns).quantiles, shares=_quantiles(turns).shares)
        if max(turns) > 1
        else TurnsTable(),
        prefix=prefixes,
        unshared_weight=unshared,
        first_tokens=_quantiles([facts.prompts[chain.requests[0]] for chain in chains]),
        first_holds_prefix=True,
        turn_tokens=_quantiles(grown) if grown else 1.0,
        output_tokens=_quantiles(known) if known else _UNKNOWN_OUTPUT,
        gap_s=_quantiles([round(pause, 6) for pause in pauses]) if pauses else None,
        keeps_replies=False,
        cuts_at_end=False,
        stratified=True,
        context_max_tokens=max(facts.prompts[i] for chain in chains for i in chain.requests),
    )


def _quantiles(values: Sequence[float]) -> SpreadTable:
    """Values at `_SHARES`, straight between neighbours."""
    ordered = sorted(values)
    last = len(ordered) - 1
    points = []
    for share in _SHARES:
        place = share * last
        low = int(place)
        high = min(low + 1, last)
        points.append(round(ordered[low] + (place - low) * (ordered[high] - ordered[low]), 6))
    return SpreadTable(quantiles=points, shares=list(_SHARES))


def _rhythm(starts: Sequence[float], facts: _Facts) -> RhythmTable | None:
    """Relative rates of equal parts of the trace."""
    parts = min(_RHYTHM_PARTS, len(starts) // _STARTS_A_PART)
    if parts < 2:
        return None
    part_s = facts.span_s / parts
    counts = Counter(min(int((start - facts.arrived_s[0]) / part_s), parts - 1) for start in starts)
    weights = [float(counts[part]) for part in range(parts)]
    return RhythmTable(period_s=round(facts.span_s, 3), weights=weights)


class _Prefixes:
    """The prefixes that conversations share, over all classes."""

    def __init__(self, paths: Sequence[Path], block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._ends = {atom: end for path in paths for atom, end in path}
        self._parent = {b[0]: a[0] for path in paths for a, b in pairwise(path)}
        held = Counter(atom for path in paths for atom, _ in path)
        worth = {atom: count * self._ends[atom] for atom, count in held.items()}
        best = sorted(worth, key=lambda atom: (-worth[atom], atom))[:_MOST_PREFIXES]
        self._text = {
            atom: f"prefix-{number}"
            for number, atom in enumerate(
                sorted(best, key=lambda atom: (self._ends[atom], atom)), start=1
            )
        }

    def of(self, paths: Sequence[Path]) -> tuple[list[PrefixTable], float]:
        """The prefixes that these conversations begin with, and how many begin with none.

        A conversation that begins with a rarer one counts for the longest stated prefix in it.
        """
        chosen = Counter(
            next((atom for atom, _ in reversed(path) if atom in self._text), None) for path in paths
        )
        unshared = float(chosen.pop(None, 0))
        wanted = {above for atom in chosen if atom is not None for above in self._lineage(atom)}
        kept = sorted(wanted, key=lambda atom: (self._ends[atom], atom))
        index = {atom: place for place, atom in enumerate(kept)}
        tables = []
        for atom in kept:
            above = self._lineage(atom)[1:]
            tables.append(
                PrefixTable(
                    tokens=self._ends[atom] * self._block_tokens,
                    weight=float(chosen[atom]) or _ONLY_WITHIN,
                    within=index[above[0]] if above else None,
                    text=self._text[atom],
                )
            )
        return tables, unshared if tables else 0.0

    def _lineage(self, atom: int) -> list[int]:
        """The stated prefix and the stated ones that it begins with, the longest first."""
        lineage = []
        step: int | None = atom
        while step is not None:
            if step in self._text:
                lineage.append(step)
            step = self._parent.get(step)
        return lineage


# The engine


def _engine(facts: _Facts, block_tokens: int) -> EngineTable:
    """An engine that keeps up with the trace: fast enough, with room for what runs at once."""
    story = StoryEngine()
    busy_s = sum(story.prefill_s(new_tokens=n, cached_tokens=0) for n in facts.prompts)
    decode_s = sum(
        (_UNKNOWN_OUTPUT if output is None else output) * story.decode_s_per_token * prompt
        for prompt, output in zip(facts.prompts, facts.outputs, strict=True)
    )
    speed = max(1.0, round(busy_s / facts.span_s / _UTILISATION, 1))
    running = decode_s / speed / (1.0 - _UTILISATION) / facts.span_s
    room = max(story.kv_capacity_tokens, round(_ROOM * running), 2 * max(facts.prompts))
    chunk = story.pool_chunk_tokens
    return EngineTable(
        speed=speed,
        kv_capacity_tokens=-(-room // block_tokens) * block_tokens,
        pool_chunk_tokens=-(-chunk // block_tokens) * block_tokens,
    )
