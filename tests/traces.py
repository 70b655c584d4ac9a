"""Small traces as the tables that ingest writes, from plain lists of block keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from weakref import WeakKeyDictionary

import polars as pl

from kvtrace.duckdb_session import Session
from kvtrace.reuse.continuations import build_continuations
from kvtrace.reuse.facts import build_reuse_of
from kvtrace.reuse.trace import order_requests
from kvtrace.schema.manifest import CacheDomain
from kvtrace.schema.tables import BLOCKS, REQUESTS, TABLES
from tests import zstd

Value = bool | int | float | str | list[str] | None
DEFAULTS: dict[str, Value] = {
    "source_id": 0,
    "is_headline": True,
    "clock": "relative",
    "status": "ok",
    "is_benchmark": False,
    "flags": [],
}

EMPTY = {name: table.empty() for name, table in TABLES.items()}
_FILLED: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()
"""The tables with rows of the sessions that `create_tables` has filled."""


@dataclass
class Traced:
    """One request: its block keys (any hashable) and any columns of the requests table."""

    blocks: Sequence[int] = ()
    tail_tokens: int = 0
    columns: dict[str, Value] = field(default_factory=dict)
    cache_domain: int = 0


def requests_frame(rows: Sequence[dict[str, Value]]) -> pl.DataFrame:
    """A requests table; `request_key` counts from 0 where it is not given."""
    filled = [{**DEFAULTS, "request_key": key, **row} for key, row in enumerate(rows)]
    return pl.DataFrame(filled, schema=REQUESTS.polars_schema())


def blocks_frame(requests: Sequence[Traced], keys: Sequence[int]) -> pl.DataFrame:
    """A blocks table whose dense ids are ranks of first (request, position) in file order."""
    dense: dict[tuple[int, int], int] = {}
    used: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    for key, request in zip(keys, requests, strict=True):
        run: list[int] = []
        for position, block in enumerate(request.blocks):
            name = (request.cache_domain, block)
            if name not in dense:
                dense[name] = used.get(request.cache_domain, 0)
                used[request.cache_domain] = dense[name] + 1
            if run and dense[name] != run[1] + run[2]:
                rows.append((key, request.cache_domain, *run, 0))
                run = []
            run = [run[0], run[1], run[2] + 1] if run else [position, dense[name], 1]
        if run:
            rows.append((key, request.cache_domain, *run, request.tail_tokens))
    return pl.DataFrame(rows, schema=BLOCKS.polars_schema(), orient="row")


def domain(cache_domain: int = 0, block_size_tokens: int = 4) -> CacheDomain:
    """A cache domain of source 0."""
    return CacheDomain(
        cache_domain=cache_domain,
        source_id=0,
        scope="file",
        block_size_tokens=block_size_tokens,
        block_size_reason="test",
        partial_tail="counted",
        ids="chained",
        block_refs=0,
        distinct_blocks=0,
    )


def tables(
    requests: Sequence[Traced],
    *,
    block_size_tokens: int = 4,
    kernel: Literal["auto", "numpy", "numba"] = "auto",
) -> dict[str, pl.DataFrame]:
    """The requests, blocks and fact tables; a prompt is as long as its blocks unless given."""
    rows: list[dict[str, Value]] = []
    for key, request in enumerate(requests):
        tokens = len(request.blocks) * block_size_tokens or None
        if tokens and request.tail_tokens:
            tokens += request.tail_tokens - block_size_tokens
        rows.append({"request_key": key, "prompt_tokens": tokens, **request.columns})
    frame = requests_frame(rows)
    blocks = blocks_frame(requests, frame["request_key"].to_list())
    domains = [domain(number, block_size_tokens) for number in blocks["cache_domain"].unique()]
    ordered = order_requests(frame, blocks)
    return {
        "requests": frame,
        "blocks": blocks,
        "reuse": build_reuse_of(ordered, domains, kernel=kernel),
        "continuations": build_continuations(ordered, domains),
    }


def create_tables(session: Session, made: Mapping[str, pl.DataFrame]) -> None:
    """Every table of the dataset in this session; one that is not named is empty.

    A table that was empty and stays so is left as it is: a session can be filled again and again
    at the price of the tables with rows. Nothing else may create or fill its tables.
    """
    filled = _FILLED.get(session)
    frames = EMPTY | dict(made)
    for name, frame in frames.items():
        if filled is None or name in filled or not frame.is_empty():
            session.create_table(name, frame)
    _FILLED[session] = {name for name, frame in frames.items() if not frame.is_empty()}


def mooncake_requests(path: Path, *, block_size_tokens: int = 512) -> list[Traced]:
    """The requests of a Mooncake trace (`timestamp` ms, lengths, `hash_ids`)."""
    lines = zstd.decompress(path.read_bytes()).splitlines()
    return [
        Traced(
            blocks=row["hash_ids"],
            tail_tokens=row["input_length"] % block_size_tokens,
            columns={
                "arrived_at_ns": row["timestamp"] * 1_000_000,
                "prompt_tokens": row["input_length"],
                "output_tokens": row["output_length"],
            },
        )
        for row in map(json.loads, lines)
    ]
