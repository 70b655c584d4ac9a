"""The profile as a TOML file: read with checks, and written."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from kvtrace.errors import Location, UsageError
from kvtrace.synth.draws import zipf_weights
from kvtrace.synth.profile import Distribution, Prefix, Profile, Quantiles, Rhythm, Spread, Workload
from kvtrace.synth.profiletables import (
    LARGE,
    EngineTable,
    PrefixesTable,
    ProfileTable,
    RhythmTable,
    SpreadTable,
    TurnsTable,
    WorkloadTable,
)
from kvtrace.synth.story import StoryEngine

_RHYTHM_PARTS: Final = 96
"""Parts of the period of a wave."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A profile file, ready to be told."""

    profile: Profile
    engine: StoryEngine
    reuse: float | None
    takes_nearest: bool = False
    """Where `reuse` cannot be had, the nearest to it will do."""


def read_profile(path: Path) -> ProfileTable:
    """The tables of a profile file.

    Raises:
        UsageError: KVT-U060 it cannot be read; KVT-U061 what it says cannot be used.
    """
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise UsageError(
            "KVT-U060",
            "the profile cannot be read",
            where=Location(path=str(path)),
            cause=error.strerror,
            hint="kvtrace synth --from DATASET -o DIR writes one into DIR",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unusable(str(path), str(error)) from error
    return parse_profile(document, str(path))


def parse_profile(document: Mapping[str, object], path: str) -> ProfileTable:
    """The tables of a profile.

    Raises:
        UsageError: KVT-U061, a key or value cannot be used.
    """
    try:
        table = msgspec.convert(document, ProfileTable)
        load_profile(table)
    except (msgspec.ValidationError, _BadTable) as error:
        raise _unusable(path, str(error)) from error
    return table


class _BadTable(ValueError):
    """Values that contradict each other."""


def _unusable(path: str, cause: str) -> UsageError:
    return UsageError(
        "KVT-U061",
        "the profile cannot be used",
        where=Location(path=path),
        cause=cause,
        hint="docs/synth.md shows every key",
    )


def load_profile(table: ProfileTable, *, seed: int | None = None) -> Loaded:
    """The profile that the tables describe."""
    return Loaded(
        profile=Profile(
            seed=table.seed if seed is None else seed,
            block_size_tokens=table.block_size_tokens,
            workloads=tuple(map(_workload, table.workload)),
        ),
        engine=_engine(table.engine),
        reuse=table.reuse,
    )


def _engine(table: EngineTable) -> StoryEngine:
    given = {
        name: value
        for name, value in msgspec.structs.asdict(table).items()
        if value is not None and name != "speed"
    }
    engine = replace(StoryEngine(), **given)
    if table.speed == 1.0:
        return engine
    return replace(
        engine,
        effective_flops_per_s=engine.effective_flops_per_s * table.speed,
        prefill_overhead_s=engine.prefill_overhead_s / table.speed,
        pool_bytes_per_s=engine.pool_bytes_per_s * table.speed,
        pcie_bytes_per_s=engine.pcie_bytes_per_s * table.speed,
        decode_s_per_token=engine.decode_s_per_token / table.speed,
    )


def _workload(table: WorkloadTable) -> Workload:
    if table.think_s is not None and table.gap_s is not None:
        raise _BadTable(f"`{table.name}` has think_s and gap_s: give one of them")
    prefixes = _prefixes(table)
    pause = table.gap_s if table.gap_s is not None else table.think_s
    drawn = table.prefixes if not prefixes else None
    return Workload(
        name=table.name,
        start_s=table.start_s,
        duration_s=table.duration_s,
        sessions=table.sessions,
        arrivals=table.arrivals.process,
        cv=table.arrivals.cv,
        rhythm=_rhythm(table.rhythm),
        turns=_turns(table.turns),
        turns_mean=table.turns.mean,
        turns_min=table.turns.min,
        turns_max=table.turns.max,
        shared_roots=drawn.count if drawn is not None else 0,
        root_tokens=_distribution(drawn.tokens if drawn is not None else 1.0),
        root_zipf=drawn.zipf if drawn is not None else 0.0,
        prefixes=prefixes,
        unshared_weight=table.unshared_weight if prefixes else 0.0,
        first_tokens=_distribution(table.first_tokens),
        first_holds_prefix=table.first_holds_prefix,
        cuts_at_end=table.cuts_at_end,
        stratified=table.stratified,
        turn_tokens=_distribution(table.turn_tokens),
        output_tokens=_distribution(table.output_tokens),
        think_s=_distribution(0.0 if pause is None else pause),
        pause_from="reply" if table.gap_s is None else "arrival",
        keeps_replies=table.keeps_replies,
        context_max_tokens=table.context_max_tokens,
    )


def _turns(table: TurnsTable) -> Distribution | None:
    if table.quantiles is None:
        return None
    return _distribution(SpreadTable(quantiles=table.quantiles, shares=table.shares))


def _prefixes(table: WorkloadTable) -> tuple[Prefix, ...]:
    """The prefixes that are stated one by one, and those with documents behind them."""
    if table.prefix and (table.prefixes is not None or table.documents is not None):
        raise _BadTable(f"`{table.name}` has prefix and prefixes or documents: give one of them")
    if table.prefix:
        stated = tuple(Prefix(one.tokens, one.weight, one.within, one.text) for one in table.prefix)
        for index, one in enumerate(stated):
            if one.within is not None and one.within >= index:
                raise _BadTable(f"prefix {index} of `{table.name}` is within a later one")
        return stated
    if table.documents is None:
        return ()
    roots = _level(table.prefixes) if table.prefixes is not None else []
    # A root is only ever chosen with one of its documents.
    prefixes = [Prefix(tokens, 1e-12) for tokens, _ in roots]
    documents = _level(table.documents)
    for index, (root_tokens, root_weight) in enumerate(roots or [(0, 1.0)]):
        prefixes += [
            Prefix(root_tokens + tokens, root_weight * weight, index if roots else None)
            for tokens, weight in documents
        ]
    return tuple(prefixes)


def _level(table: PrefixesTable) -> list[tuple[int, float]]:
    """(tokens, weight) of each text of a level; lengths are spread evenly over the shares."""
    tokens = _distribution(table.tokens)
    weights = zipf_weights(table.count, table.zipf)
    return [
        (max(1, round(tokens.at((index * 0.618034 + 0.5) % 1.0))), weight)
        for index, weight in enumerate(weights)
    ]


def _distribution(said: float | SpreadTable) -> Distribution:
    if not isinstance(said, SpreadTable):
        if not 0 <= said <= LARGE:
            raise _BadTable(f"{said} is no length or time")
        return Spread(median=said, sigma=0.0, low=0.0, high=LARGE)
    if (said.median is None) == (said.quantiles is None):
        raise _BadTable("a distribution has either `median` or `quantiles`")
    if said.quantiles is None:
        if said.low > said.high:
            raise _BadTable("`low` of a distribution is above `high`")
        return Spread(said.median or 0.0, said.sigma, said.low, said.high)
    values = said.quantiles
    shares = said.shares or [i / max(len(values) - 1, 1) for i in range(len(values))]
    is_rising = all(a <= b for a, b in pairwise(values))
    is_whole = len(shares) == len(values) > 1 and shares[0] == 0.0 and shares[-1] == 1.0
    if not is_rising or not is_whole or shares != sorted(shares):
        raise _BadTable(
            "`quantiles` are two or more values that do not fall, and `shares` as many from 0 to 1"
        )
    return Quantiles(tuple(shares), tuple(values))


def _rhythm(table: RhythmTable | None) -> Rhythm | None:
    if table is None:
        return None
    if (table.weights is None) == (table.peak_to_trough is None):
        raise _BadTable("a rhythm has either `weights` or `peak_to_trough`")
    if table.weights is not None:
        if not table.weights or sum(table.weights) <= 0.0:
            raise _BadTable("the weights of a rhythm are all zero")
        return Rhythm(tuple(table.weights), table.period_s)
    ratio = table.peak_to_trough or 1.0
    swing = (ratio - 1.0) / (ratio + 1.0)
    peak = table.peak_s / table.period_s
    parts = ((part + 0.5) / _RHYTHM_PARTS - peak for part in range(_RHYTHM_PARTS))
    # Rounded, so that the last bit of a cosine does not matter.
    weights = tuple(round(1.0 + swing * math.cos(2.0 * math.pi * part), 9) for part in parts)
    return Rhythm(weights, table.period_s)


def dump_profile(table: ProfileTable, comments: tuple[str, ...] = ()) -> str:
    """The profile as TOML, with comments in front."""
    document = msgspec.to_builtins(table)
    lines = [f"# {comment}" for comment in comments]
    _put_table(lines, "", document)
    return "\n".join(lines) + "\n"


def _put_table(lines: list[str], name: str, table: Mapping[str, object]) -> None:
    later: list[tuple[str, str, dict[str, object]]] = []
    for key, value in table.items():
        path = f"{name}.{key}" if name else key
        if isinstance(value, list) and value and isinstance(value[0], dict):
            later += [(path, f"[[{path}]]", one) for one in value]
        elif isinstance(value, dict) and not name:
            later.append((path, f"[{path}]", value))
        elif value not in (None, [], {}):
            lines.append(f"{key} = {_toml(value)}")
    for path, head, inner in later:
        lines += ["", head]
        _put_table(lines, path, inner)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_toml(one)}" for key, one in value.items() if one is not None)
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)
