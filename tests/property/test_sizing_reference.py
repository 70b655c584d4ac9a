"""Sharing scopes and sizes of a pool against plain Python on random trees of prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Param, Session
from kvtrace.query.catalog import load_catalog
from tests.property.test_continuations_reference import BLOCK, talks
from tests.traces import Traced, create_tables, tables

CATALOG = load_catalog()
TOKEN_BYTES = 8.0


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


def tokens_of(request: Traced, place: int) -> int:
    is_partial = request.tail_tokens > 0 and place == len(request.blocks) - 1
    return request.tail_tokens if is_partial else BLOCK


def leading_run(request: Traced, held: set[int]) -> int:
    """Tokens of the blocks before the first that is not held."""
    saved = 0
    for place, block in enumerate(request.blocks):
        if block not in held:
            break
        saved += tokens_of(request, place)
    return saved


@given(talks(), st.lists(st.sampled_from([None, 1, 2]), min_size=40, max_size=40))
@settings(max_examples=20, deadline=None)
def test_a_tenant_keeps_what_its_own_requests_held(
    session: Session, requests: list[Traced], tenants: list[int | None]
) -> None:
    named = [
        replace(one, columns={**one.columns, "tenant_key": tenants[i % 40]})
        for i, one in enumerate(requests)
    ]
    create_tables(session, tables(named, block_size_tokens=BLOCK))
    everybody: set[int] = set()
    own: defaultdict[int | None, set[int]] = defaultdict(set)
    kept = anybody = 0
    for one in named:
        tenant = one.columns["tenant_key"]
        assert tenant is None or isinstance(tenant, int)
        if tenant is not None:
            anybody += leading_run(one, everybody)
            kept += leading_run(one, own[tenant])
        everybody.update(one.blocks)
        own[tenant].update(one.blocks)
    frame = CATALOG.run(session, "sharing/scopes").frame
    for row in frame.iter_rows(named=True):
        if row["scope"] != "tenant":
            continue
        if row["known_requests"] == 0:
            assert row["reusable_tokens"] is None
            continue
        assert row["reusable_tokens"] == kept
        assert row["global_reusable_tokens"] == anybody
        assert row["lost_tokens"] == anybody - kept


@given(
    talks(),
    st.lists(st.sampled_from([None, 1, 2]), min_size=40, max_size=40),
    st.lists(st.sampled_from([None, 1, 2]), min_size=40, max_size=40),
)
@settings(max_examples=20, deadline=None)
def test_a_user_is_one_of_its_tenant(
    session: Session,
    requests: list[Traced],
    tenants: list[int | None],
    users: list[int | None],
) -> None:
    whose = [(tenants[i % 40], users[i % 40]) for i in range(len(requests))]
    named = [
        replace(one, columns={**one.columns, "tenant_key": tenant, "user_key": user})
        for one, (tenant, user) in zip(requests, whose, strict=True)
    ]
    create_tables(session, tables(named, block_size_tokens=BLOCK))
    own: defaultdict[tuple[int | None, int | None], set[int]] = defaultdict(set)
    kept = 0
    for one, group in zip(named, whose, strict=True):
        if group[1] is not None:
            kept += leading_run(one, own[group])
            own[group].update(one.blocks)
    frame = CATALOG.run(session, "sharing/scopes").frame
    for row in frame.filter(scope="user").iter_rows(named=True):
        groups = {group for group in whose if group[1] is not None}
        assert row["groups"] == (len(groups) or None)
        assert row["reusable_tokens"] == (kept if groups else None)


@given(talks(), st.integers(0, 12), st.integers(1, 12))
@settings(max_examples=20, deadline=None)
def test_a_pool_serves_what_the_capacity_curve_says(
    session: Session, requests: list[Traced], held: int, pool: int
) -> None:
    create_tables(session, tables(requests, block_size_tokens=BLOCK))
    block_bytes = BLOCK * TOKEN_BYTES
    sizes: dict[str, Param] = {
        "kv_bytes_per_token": TOKEN_BYTES,
        "held_bytes": held * block_bytes,
        "pool_sizes": [pool * block_bytes],
    }
    rows = CATALOG.run(session, "sizing/pool_curve", sizes).frame.to_dicts()
    curve = CATALOG.run(session, "reuse/capacity_curve", {"capacities": [held, held + pool]}).frame
    hits = dict(zip(curve["capacity_blocks"], curve["hit_tokens"], strict=True))
    if not hits:
        assert rows == []
        return
    [row] = rows
    assert row["hit_tokens"] == hits[held + pool]
    assert row["pool_hit_tokens"] == hits[held + pool] - hits[held]


@given(talks(), st.integers(0, 8), st.floats(1e6, 1e9), st.floats(1e-4, 1e-2))
@settings(max_examples=20, deadline=None)
def test_no_size_of_a_pool_is_worth_more_than_the_best_one(
    session: Session, requests: list[Traced], held: int, price: float, worth: float
) -> None:
    create_tables(session, tables(requests, block_size_tokens=BLOCK))
    block_bytes = BLOCK * TOKEN_BYTES
    params: dict[str, Param] = {
        "kv_bytes_per_token": TOKEN_BYTES,
        "held_bytes": held * block_bytes,
        "usd_per_reused_token": worth,
        "windows_per_month": 1.0,
    }
    priced: dict[str, Param] = {"media": ["any"], "media_usd_per_gb_month": [price]}
    best = CATALOG.run(session, "sizing/pool_size", params | priced).frame.to_dicts()
    sizes: dict[str, Param] = {"pool_sizes": [blocks * block_bytes for blocks in range(1, 30)]}
    curve = CATALOG.run(session, "sizing/pool_curve", params | sizes).frame.to_dicts()
    if not best:
        assert all(row["hit_tokens"] == 0 for row in curve)
        return
    net = best[0]["net_usd_per_month"]
    assert net >= 0.0
    for row in curve:
        cost = row["pool_bytes"] / 1e9 * price
        assert row["value_usd_per_month"] - cost <= net + 1e-9 * max(1.0, cost)
