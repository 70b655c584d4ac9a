"""Who shares on the Mooncake conversation trace: the figures of docs/sharing.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from kvtrace.reuse.parents import cut_prompts, find_parents
from kvtrace.reuse.trace import order_requests
from kvtrace.schema.tables import TABLES
from tests.traces import Traced, mooncake_requests, tables

pytestmark = pytest.mark.shared
CATALOG = load_catalog()
REQUESTS = 12_031


@pytest.fixture(scope="module")
def requests(shared_dir: Path) -> list[Traced]:
    return mooncake_requests(shared_dir / "traces" / "mooncake_conversation.jsonl.zst")


@pytest.fixture(scope="module")
def made(requests: list[Traced]) -> dict[str, pl.DataFrame]:
    return tables(requests, block_size_tokens=512)


@pytest.fixture(scope="module")
def session(made: dict[str, pl.DataFrame]) -> Iterator[Session]:
    with Session() as opened:
        for name, table in TABLES.items():
            opened.create_table(name, made.get(name, table.empty()))
        yield opened


def test_about_a_third_goes_on_from_an_earlier_request(session: Session) -> None:
    row = CATALOG.run(session, "sharing/how_known").frame.row(0, named=True)
    assert (row["known_from"], row["requests"], row["continuations"]) == ("blocks", 12_031, 3_898)


@pytest.mark.parametrize(
    ("limit", "found"), [(2, 3_257), (4, 3_807), (8, 3_889), (12, 3_898), (10**6, 3_898)]
)
def test_the_limit_on_branches_hardly_matters(
    made: dict[str, pl.DataFrame], limit: int, found: int
) -> None:
    ordered = order_requests(made["requests"], made["blocks"])
    full = made["continuations"]["full_blocks"].to_numpy()
    prompts = cut_prompts(ordered.runs, full)
    parents = find_parents(prompts, ordered.ints("prompt_tokens", unknown=0), root_branches=limit)
    assert int((parents >= 0).sum()) == found


def test_no_turn_follows_its_parent_within_one_tick_of_the_clock(
    made: dict[str, pl.DataFrame],
) -> None:
    # The clock steps by 3 s; a rule that took shared prefixes for conversations would link
    # requests of the same instant.
    assert made["continuations"]["gap_ns"].min() == 5_999_000_000


def test_shares_add_up_to_all_reuse(session: Session) -> None:
    frame = CATALOG.run(session, "sharing/continuation_and_sharing").frame
    assert dict(frame.select("kind", "reusable_blocks").iter_rows()) == {
        "continuation": 78_981,
        "continuation_and_sharing": 9_114,
        "repeated_prompt": 1_919,
        "sharing": 15_696,
    }
    assert frame["reusable_blocks"].sum() == 105_710
    assert frame["reusable_tokens"].sum() == 54_098_411


def test_generated_tokens_add_at_most_a_hundredth(session: Session) -> None:
    frame = CATALOG.run(session, "generated/kept_outputs").frame
    assert dict(frame.select("assumption", "reusable_tokens").iter_rows()) == {
        "outputs_kept": 55_450_603,
        "outputs_kept_that_fit": 55_356_395,
        "prompts_alone": 54_098_411,
    }


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_multiples_of_the_block_equal_chains_that_are_chunked_again(
    session: Session, requests: list[Traced], times: int
) -> None:
    seen: set[int] = set()
    hits = 0
    for one in requests:
        full = one.blocks[: len(one.blocks) - (one.tail_tokens > 0)]
        # Ids are chained, so the last id of a group names the group and all before it.
        groups = full[times - 1 :: times]
        hits += next((i for i, name in enumerate(groups) if name not in seen), len(groups))
        seen.update(groups)
    frame = CATALOG.run(session, "block_size/what_if", {"block_sizes": [512 * times]}).frame
    row = frame.row(0, named=True)
    assert (row["reusable_blocks_low"], row["reusable_blocks_high"]) == (hits, hits)
    assert row["certainty"] == "exact"


def test_every_request_begins_with_one_root(session: Session) -> None:
    top = CATALOG.run(session, "sharing/top_prefixes", {"limit_prefixes": 2}).frame
    columns = ("node", "parent_node", "depth_blocks", "requests", "conversations")
    assert top.select(columns).rows() == [(1, None, 1, REQUESTS, 8_133), (2, 1, 145, 17, 11)]
    roots = CATALOG.run(session, "sharing/roots").frame
    assert roots["requests"].sum() == REQUESTS
