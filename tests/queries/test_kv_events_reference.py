"""The KV event queries against plain Python on random event streams, event by event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from kvtrace.reuse.stays import build_block_stays
from kvtrace.schema.tables import BLOCK_EVENTS
from tests.traces import create_tables

CATALOG = load_catalog()
SECOND = 1_000_000_000
STEP = 1 << 44
LOWER = ("host", "disk")
Row = dict[str, object]

OPS = (
    "store device",
    "store device",
    "store host",
    "store disk",
    "store remote",
    "remove device",
    "remove device",
    "remove host",
    "remove remote",
    "remove any",
    "move device host",
    "move host device",
    "clear",
    "rotate",
    "restart",
)


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    """Events of up to three instances, some over several files, in any order of the table."""
    is_timed = draw(st.booleans())
    rows: list[Row] = []
    files = {"a": 0, "b": 1, "c": 2}
    numbers = Counter[str]()
    at_ns = 0
    for offset in range(draw(st.integers(0, 30))):
        instance = draw(st.sampled_from("abc"))
        op, *media = draw(st.sampled_from(OPS)).split()
        at_ns += draw(st.sampled_from([0, 1, SECOND, 3 * SECOND]))
        if op in ("rotate", "restart"):
            files[instance] = max(files.values()) + 1
            if op == "restart":
                numbers[instance] = 0
            continue
        numbers[instance] += 1
        key = None if op == "clear" else draw(st.integers(1, 3))
        rows.append(
            {
                "event_key": files[instance] * STEP + offset,
                "position": 0,
                "source_id": 0,
                "observed_at_ns": at_ns if is_timed else None,
                "clock": "utc" if is_timed else "order",
                "instance": instance,
                "sequence": numbers[instance],
                "change": {"store": "stored", "remove": "removed", "move": "moved"}.get(
                    op, "cleared"
                ),
                "block_key": key,
                "parent_key": None,
                "block_tokens": None if key is None or op != "store" else 16 * key,
                "medium": None if op == "clear" or media == ["any"] else media[-1],
                "from_medium": media[0] if op == "move" else None,
            }
        )
    return draw(st.permutations(rows))


@dataclass
class Computed:
    """One block that began to be stored in HBM."""

    origin: str
    tokens: int
    at_ns: int | None
    since_stored_ns: int | None
    since_held_ns: int | None


@dataclass
class Block:
    """What is known of one block of a world at some moment."""

    holders: set[tuple[str, str]] = field(default_factory=set)
    """(instance, medium)"""
    had: set[str] = field(default_factory=set)
    stored_ns: int | None = None
    removed_ns: int | None = None


@dataclass
class Fleet:
    """Plays events in order and writes down what was computed, and how long blocks stayed."""

    blocks: dict[tuple[int, int], Block] = field(default_factory=lambda: defaultdict(Block))
    computed: list[Computed] = field(default_factory=list)
    stays: list[tuple[str, int | None]] = field(default_factory=list)
    """(medium, length or None without clock) of ended stays."""
    begun: dict[tuple[int, int, str, str], int | None] = field(default_factory=dict)
    announced_again: int = 0
    moved: Counter[tuple[str, str | None, str]] = field(default_factory=Counter)
    last: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)

    def play(self, row: Row) -> None:
        key, file = row["block_key"], int(str(row["event_key"])) // STEP
        world = -1 if row["clock"] == "utc" else file
        instance, number = str(row["instance"]), int(str(row["sequence"]))
        at = row["observed_at_ns"]
        at_ns = at if isinstance(at, int) else None
        seen = self.last.get((world, instance))
        self.last[world, instance] = (file, number)
        if row["change"] == "cleared" or (seen and seen[0] != file and number < seen[1]):
            for one, block in list(self.blocks.items()):
                for holder in sorted(block.holders):
                    if one[0] == world and holder[0] == instance:
                        self.empty(world, one[1], *holder, at_ns)
        if not isinstance(key, int):
            return
        medium, change = row["medium"], row["change"]
        if change == "removed":
            for tier in ("device", "host", "disk", "remote") if medium is None else (str(medium),):
                self.empty(world, key, instance, tier, at_ns)
        elif change == "moved":
            self.moved["moved", str(row["from_medium"]), str(medium)] += 1
            self.empty(world, key, instance, str(row["from_medium"]), at_ns)
            self.fill(world, key, instance, str(medium), at_ns)
        else:
            self.store(world, key, instance, str(medium), at_ns)

    def store(self, world: int, key: int, instance: str, tier: str, at_ns: int | None) -> None:
        block = self.blocks[world, key]
        own = {medium for name, medium in block.holders if name == instance}
        if tier in own:
            self.announced_again += tier == "device"
            return
        if tier == "device":
            self.computed.append(self.judged(block, own, instance, key, at_ns))
        elif "device" in own:
            self.moved["copied", "device", tier] += 1
        else:
            self.moved["written", None, tier] += 1
        self.fill(world, key, instance, tier, at_ns)

    def judged(
        self, block: Block, own: set[str], instance: str, key: int, at_ns: int | None
    ) -> Computed:
        pooled = any(medium == "remote" for _name, medium in block.holders)
        if not block.had:
            origin = "first"
        elif pooled or own & set(LOWER):
            origin = "lower_tier_holds"
            source = next((medium for medium in LOWER if medium in own), "remote")
            self.moved["loaded", source, "device"] += 1
        elif any(name != instance for name, _medium in block.holders):
            origin = "other_instance_holds"
        else:
            is_own = instance in block.had
            origin = "same_instance_removed" if is_own else "other_instance_removed"
        stored = held = None
        if origin != "first":
            stored = None if at_ns is None or block.stored_ns is None else at_ns - block.stored_ns
            if block.holders:
                held = 0
            elif at_ns is not None and block.removed_ns is not None:
                held = at_ns - block.removed_ns
        return Computed(origin, 16 * key, at_ns, stored, held)

    def fill(self, world: int, key: int, instance: str, tier: str, at_ns: int | None) -> None:
        block = self.blocks[world, key]
        if (instance, tier) not in block.holders:
            block.holders.add((instance, tier))
            block.had.add(instance)
            block.stored_ns = at_ns
            self.begun[world, key, instance, tier] = at_ns

    def empty(self, world: int, key: int, instance: str, tier: str, at_ns: int | None) -> None:
        block = self.blocks[world, key]
        if (instance, tier) in block.holders:
            block.holders.remove((instance, tier))
            block.removed_ns = at_ns
            start = self.begun.pop((world, key, instance, tier))
            self.stays.append((tier, None if start is None or at_ns is None else at_ns - start))


def played(rows: list[Row]) -> Fleet:
    """The rows in the order of their time, then of their place in the files."""
    fleet = Fleet()
    for row in sorted(rows, key=lambda row: (row["observed_at_ns"] or 0, row["event_key"])):
        fleet.play(row)
    return fleet


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


def create_events(session: Session, rows: list[Row]) -> None:
    """The tables of events and of stays."""
    events = pl.DataFrame(rows, schema=BLOCK_EVENTS.polars_schema())
    create_tables(session, {"block_events": events, "block_stays": build_block_stays(events)})


def run(session: Session, query: str, rows: list[Row]) -> pl.DataFrame:
    create_events(session, rows)
    return CATALOG.run(session, f"kv_events/{query}").frame


def bucket_s(age_ns: int | None) -> int | None:
    """The power of two at or below the age in seconds; 0 below 1 s."""
    if age_ns is None:
        return None
    bucket = 1 if age_ns >= SECOND else 0
    while bucket and 2 * bucket * SECOND <= age_ns:
        bucket *= 2
    return bucket


@given(streams())
@settings(max_examples=300, deadline=None)
def test_restored_tokens_equal_the_reference(session: Session, rows: list[Row]) -> None:
    fleet = played(rows)
    expected: dict[tuple[str, int | None], list[Computed]] = defaultdict(list)
    for one in fleet.computed:
        if one.origin != "first":
            expected[one.origin, bucket_s(one.since_stored_ns)].append(one)
    frame = run(session, "restored_tokens", rows)
    found = {
        (row["place"], row["since_stored_bucket_s"]): (
            row["restored_blocks"],
            row["restored_tokens"],
            row["since_held_p50_s"],
        )
        for row in frame.rows(named=True)
    }
    assert found.keys() == expected.keys()
    for name, many in expected.items():
        blocks, tokens, held_s = found[name]
        assert (blocks, tokens) == (len(many), sum(one.tokens for one in many))
        held = sorted(one.since_held_ns for one in many if one.since_held_ns is not None)
        if held:
            middle = (held[(len(held) - 1) // 2] + held[len(held) // 2]) / 2
            assert held_s == pytest.approx(middle / SECOND)
        else:
            assert held_s is None


@given(streams())
@settings(max_examples=150, deadline=None)
def test_summary_equals_the_reference(session: Session, rows: list[Row]) -> None:
    fleet = played(rows)
    frame = run(session, "restored_summary", rows)
    if not rows:
        assert frame.is_empty()
        return
    row = frame.row(0, named=True)
    new = [one for one in fleet.computed if one.origin != "lower_tier_holds"]
    again = [one for one in new if one.origin != "first"]
    assert row["events"] == len(rows)
    assert row["computed_blocks"] == len(new)
    assert (row["computed_tokens"] or 0) == sum(one.tokens for one in new)
    assert row["restored_blocks"] == len(again)
    assert (row["restored_tokens"] or 0) == sum(one.tokens for one in again)
    assert row["announced_again_blocks"] == fleet.announced_again
    loaded = [one for one in fleet.computed if one.origin == "lower_tier_holds"]
    assert (row["loaded_tokens"] or 0) == sum(one.tokens for one in loaded)


@given(streams())
@settings(max_examples=150, deadline=None)
def test_stays_equal_the_reference(session: Session, rows: list[Row]) -> None:
    fleet = played(rows)
    frame = run(session, "residency", rows)
    ended, still = Counter(tier for tier, _ in fleet.stays), Counter(key[3] for key in fleet.begun)
    found = {row["medium"]: (row["stays"], row["open_stays"]) for row in frame.rows(named=True)}
    assert found == {
        tier: (ended[tier] + still[tier], still[tier]) for tier in sorted(ended | still)
    }
    for row in frame.rows(named=True):
        lengths = [length for tier, length in fleet.stays if tier == row["medium"]]
        known = sorted(length for length in lengths if length is not None)
        if known:
            middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
            assert row["stay_p50_s"] == pytest.approx(middle / SECOND)


@given(streams())
@settings(max_examples=150, deadline=None)
def test_moves_equal_the_reference(session: Session, rows: list[Row]) -> None:
    fleet = played(rows)
    frame = run(session, "moves", rows).select("kind", "from_medium", "to_medium", "moved_blocks")
    found = {(kind, start, end): blocks for kind, start, end, blocks in frame.rows()}
    assert found == dict(fleet.moved)


@given(streams())
@settings(max_examples=150, deadline=None)
def test_slices_add_up_to_the_whole(session: Session, rows: list[Row]) -> None:
    fleet = played(rows)
    frame = run(session, "over_time", rows)
    timed = [one for one in fleet.computed if one.at_ns is not None]
    assert len(frame) <= 24
    assert frame["computed_blocks"].sum() == sum(one.origin != "lower_tier_holds" for one in timed)
    assert frame["restored_blocks"].sum() == sum(
        one.origin not in ("first", "lower_tier_holds") for one in timed
    )
    ended = sum(tier == "device" and length is not None for tier, length in fleet.stays)
    assert frame["removed_blocks"].sum() == ended


@given(streams())
@settings(max_examples=25, deadline=None)
def test_rows_do_not_depend_on_threads_or_row_order(rows: list[Row]) -> None:
    names = [name for name in CATALOG.names() if name.startswith("kv_events/")]
    found = []
    for threads, ordered in ((1, rows), (4, rows[::-1])):
        with Session(threads=threads) as session:
            create_events(session, ordered)
            found.append([CATALOG.run(session, name).frame for name in names])
    for first, second in zip(*found, strict=True):
        assert first.equals(second)
