"""The stays of blocks, worked out by hand from their events."""

from __future__ import annotations

import polars as pl
import pytest

from kvtrace.reuse.stays import build_block_stays
from kvtrace.schema.facts import BLOCK_STAYS
from kvtrace.schema.tables import BLOCK_EVENTS

FILE = 1 << 44
Cell = int | str | None


def stays(*rows: dict[str, Cell]) -> pl.DataFrame:
    """The stays of events, one a nanosecond unless they say otherwise."""
    events = [
        {
            "event_key": number,
            "position": 0,
            "source_id": 0,
            "observed_at_ns": number,
            "clock": "utc",
            "instance": "a",
            "change": "stored",
            "block_key": 1,
            "medium": "device",
            **row,
        }
        for number, row in enumerate(rows)
    ]
    frame = build_block_stays(pl.DataFrame(events, schema=BLOCK_EVENTS.polars_schema()))
    assert dict(frame.schema) == BLOCK_STAYS.polars_schema()
    return frame


def test_no_event_is_no_stay() -> None:
    assert stays().equals(BLOCK_STAYS.empty())
    assert stays({"change": "removed"}, {"change": "cleared", "block_key": None}).is_empty()


def test_stays_begin_and_end_with_the_events_that_change_what_is_held() -> None:
    # Blocks 1 and 2 on instances a, b, c; a announces block 2 again at 6 (it is held), copies it
    # to its host at 7, drops it from HBM at 8, stores it from there at 9, and loses all at 12.
    found = stays(
        {"block_tokens": 16},
        {"block_key": 2},
        {"instance": "b"},
        {"change": "removed"},
        {"block_key": 2, "change": "removed"},
        {"block_key": 2},
        {"block_key": 2},
        {"block_key": 2, "medium": "host"},
        {"block_key": 2, "change": "removed"},
        {"block_key": 2},
        {"instance": "b", "change": "removed"},
        {"instance": "b", "block_key": 2},
        {"change": "cleared", "block_key": None, "medium": None},
        {"instance": "b", "block_key": 2, "change": "removed"},
        {"block_tokens": 16},
        {"instance": "c", "block_key": 2},
    )
    columns = ("event_key", "instance", "block_key", "medium", "end_event_key", "began", "ended")
    assert found.select(columns).rows() == [
        (0, "a", 1, "device", 3, "computed", "removed"),
        (1, "a", 2, "device", 4, "computed", "removed"),
        (2, "b", 1, "device", 10, "computed", "removed"),
        (5, "a", 2, "device", 8, "computed", "removed"),
        (7, "a", 2, "host", 12, "copied", "cleared"),
        (9, "a", 2, "device", 12, "loaded", "cleared"),
        (11, "b", 2, "device", 13, "computed", "removed"),
        (14, "a", 1, "device", None, "computed", "open"),
        (15, "c", 2, "device", None, "computed", "open"),
    ]
    assert found.select("event_key", "place", "since_stored_ns", "since_held_ns").rows() == [
        (0, "first_seen", None, None),
        (1, "first_seen", None, None),
        (2, "other_instance_holds", 2, 0),
        (5, "same_instance_removed", 4, 1),
        (7, None, None, None),
        (9, "lower_tier_holds", 2, 0),
        (11, "other_instance_holds", 2, 0),
        (14, "same_instance_removed", 12, 4),
        (15, "other_instance_removed", 4, 2),
    ]
    assert found["from_medium"].to_list() == [*[None] * 4, "device", "host", *[None] * 3]
    assert found["started_at_ns"].equals(found["event_key"].alias("started_at_ns"))
    assert found["ended_at_ns"].equals(found["end_event_key"].alias("ended_at_ns"))
    assert found["block_tokens"].to_list() == [16, *[None] * 6, 16, None]


def test_a_move_ends_one_stay_and_begins_another_with_its_tokens() -> None:
    found = stays(
        {"block_tokens": 16},
        {"change": "moved", "from_medium": "device", "medium": "host"},
        {"medium": "remote"},
        {"change": "removed", "medium": None},
    )
    columns = ("medium", "block_tokens", "began", "from_medium", "ended", "end_event_key")
    assert found.select(columns).rows() == [
        ("device", 16, "computed", None, "moved", 1),
        ("host", 16, "moved", "device", "removed", 3),
        ("remote", 16, "written", None, "removed", 3),
    ]


def test_a_medium_that_nobody_says_is_announced_and_ends_with_any_removal_without_one() -> None:
    found = stays({"medium": None}, {"change": "removed", "medium": None})
    assert found.select("medium", "began", "ended", "place").rows() == [
        (None, "announced", "removed", None)
    ]


def test_a_new_file_whose_batches_start_again_is_a_new_process() -> None:
    found = stays(
        {"sequence": 7},
        {"sequence": 8, "event_key": FILE},
        {"sequence": 0, "event_key": 2 * FILE},
    )
    assert found.select("event_key", "end_event_key", "ended", "place").rows() == [
        (0, 2 * FILE, "restarted", "first_seen"),
        (2 * FILE, None, "open", "same_instance_removed"),
    ]


@pytest.mark.parametrize("clock", ["order", "relative", "monotonic"])
def test_files_whose_clocks_cannot_be_compared_are_worlds_of_their_own(clock: str) -> None:
    found = stays({"clock": clock}, {"clock": clock, "instance": "b", "event_key": FILE})
    assert found["place"].to_list() == ["first_seen", "first_seen"]
    assert found["started_at_ns"].null_count() == (2 if clock == "order" else 0)


def test_without_names_every_file_is_an_instance() -> None:
    found = stays({"instance": None}, {"instance": None, "event_key": FILE})
    assert found["instance"].null_count() == 2
    assert found["place"].to_list() == ["first_seen", "other_instance_holds"]


def test_a_removal_without_an_instant_ends_a_stay_of_unknown_length() -> None:
    # Events without an instant stand before all others; a restart later is not their end.
    found = stays(
        {"observed_at_ns": None},
        {"observed_at_ns": None, "change": "removed"},
        {"change": "cleared", "block_key": None, "medium": None},
    )
    assert found.select("end_event_key", "ended", "ended_at_ns").rows() == [(1, "removed", None)]
