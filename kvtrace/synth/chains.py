"""Conversations in a dataset: which request goes on from which, and what their prompts begin with.

Block ids tell it where there are any: a request goes on from the last request of a conversation if
it begins with the blocks of that prompt, and those blocks were that conversation's own. Else the
session of the source tells it; else every request stands alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import polars as pl

_SLACK_FROM: Final = 4
"""From so many full blocks on a prompt may change its last one (a template, a stop token)."""


Path: TypeAlias = tuple[tuple[int, int], ...]
"""(atom, blocks up to its end) of the leading atoms of a prompt."""


@dataclass(slots=True)
class Chain:
    """One conversation: indices of its requests in order of arrival."""

    requests: list[int] = field(default_factory=list)
    path: Path = ()
    """Of the first prompt."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A run of blocks of one request; see the reuse table."""

    number: int
    blocks: int
    is_reusable: bool
    previous: int | None
    """Index of the request that held it before."""
    first: int
    """Index of the request that held it first."""


def find_chains(rows: pl.DataFrame, reuse: pl.DataFrame, block_tokens: int) -> list[Chain]:
    """The conversations of these rows, in order of their start.

    `rows` has request_key, session_key and prompt_tokens, in order of arrival.
    """
    if not reuse.is_empty():
        full = (rows["prompt_tokens"] // block_tokens).to_list()
        return _by_blocks(atoms_of(rows, reuse), full)
    if rows["session_key"].is_not_null().any():
        return _by_session(rows["session_key"].to_list())
    return [Chain([index]) for index in range(len(rows))]


def _by_session(sessions: list[int | None]) -> list[Chain]:
    chains: list[Chain] = []
    of_session: dict[int, Chain] = {}
    for index, session in enumerate(sessions):
        known = None if session is None else of_session.get(session)
        if known is None:
            known = Chain()
            chains.append(known)
            if session is not None:
                of_session[session] = known
        known.requests.append(index)
    return chains


def atoms_of(rows: pl.DataFrame, reuse: pl.DataFrame) -> list[list[Atom]]:
    """The atoms of each row, in prompt order."""
    place = rows.select("request_key", pl.int_range(pl.len(), dtype=pl.Int64).alias("index"))
    by_key = place.rename({"index": "at"})
    facts = (
        reuse.lazy()
        .join(place.lazy(), on="request_key")
        .join(
            by_key.lazy().rename({"request_key": "previous_request_key", "at": "previous"}),
            on="previous_request_key",
            how="left",
        )
        .join(
            by_key.lazy().rename({"request_key": "first_request_key", "at": "first"}),
            on="first_request_key",
            how="left",
        )
        .with_columns(pl.struct("cache_domain", "atom").rank("dense").alias("number"))
        .select("index", "position", "number", "block_count", "is_reusable", "previous", "first")
        .sort("index", "position")
        .collect()
    )
    atoms: list[list[Atom]] = [[] for _ in range(len(rows))]
    for index, _, number, blocks, is_reusable, previous, first in facts.iter_rows():
        atoms[index].append(
            Atom(number, blocks, is_reusable, previous, index if first is None else first)
        )
    return atoms


def _by_blocks(atoms: list[list[Atom]], full: list[int]) -> list[Chain]:
    """`full` are the full blocks of each prompt."""
    chain_of: list[int] = []
    chains: list[Chain] = []
    for index, own in enumerate(atoms):
        before = _continued(own, full, chain_of, chains)
        if before is None:
            before = len(chains)
            chains.append(Chain(path=_path(own)))
        chain_of.append(before)
        chains[before].requests.append(index)
    return chains


def _continued(
    own: list[Atom], full: list[int], chain_of: list[int], chains: list[Chain]
) -> int | None:
    """The conversation that a request goes on from; None if it begins one."""
    hit, last = 0, None
    for atom in own:
        if not atom.is_reusable:
            break
        hit += atom.blocks
        last = atom
    if last is None or last.previous is None:
        return None
    chain = chain_of[last.previous]
    is_latest = chains[chain].requests[-1] == last.previous
    is_own = chain_of[last.first] == chain if last.first < len(chain_of) else False
    wanted = full[last.previous]
    is_whole = hit >= wanted - (wanted >= _SLACK_FROM)
    return chain if is_latest and is_own and is_whole else None


def _path(own: list[Atom]) -> Path:
    path = []
    until = 0
    for atom in own:
        until += atom.blocks
        path.append((atom.number, until))
    return tuple(path)


def shared_paths(chains: list[Chain]) -> list[Path]:
    """Of each conversation, the leading atoms of its first prompt that another one begins with."""
    held = Counter(number for chain in chains for number, _ in chain.path)
    shared = []
    for chain in chains:
        end = 0
        while end < len(chain.path) and held[chain.path[end][0]] > 1:
            end += 1
        shared.append(chain.path[:end])
    return shared
