"""The verb `replay` on a small trace in Mooncake's format: scenarios, loads, sweeps, drawings."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.api.traceout import TraceWindow, parse_window
from kvtrace.config import Settings, resolve_settings
from kvtrace.errors import InputError, UsageError
from kvtrace.exec.progress import SilentProgress
from kvtrace.scenarios.load import Load
from kvtrace.store.dataset import Dataset

REPO = Path(__file__).resolve().parents[2]
TURNS = ([1, 2], [3, 4], [1, 2, 5], [3, 4, 6], [1, 2, 5, 7], [3, 4, 6, 8], [9], [1, 2, 5, 7])
SCENARIO = """
title = "One pool over a slow wire"
llm = "Meta-Llama-3.1-70B"
tp = 8
instances = 2
routing = "round_robin"
hbm_blocks = 6

[tier.pool]
scope = "shared"
capacity_blocks = 100
read = [{ kind = "pull", links = ["wire"] }]
write = [{ kind = "pull", links = ["wire"] }]

[link.wire]
rate = "1GB/s"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("replaying")
    rows = [
        {
            "timestamp": 3000 * turn + turn * turn,
            "input_length": 512 * len(blocks),
            "output_length": 4,
            "hash_ids": blocks,
        }
        for turn, blocks in enumerate(TURNS)
    ]
    log = place / "chat.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (place / "slow.toml").write_text(SCENARIO, encoding="utf-8")
    api.ingest([log], output=place / "out", settings=settings())
    return place / "out"


def settings() -> Settings:
    return resolve_settings({"block_size": 512}, environment={}, cwd=Path("/"))


def slow(folder: Path, **changes: object) -> api.ReplayAsk:
    asked = api.ReplayAsk(scenarios=(str(folder.parent / "slow.toml"),))
    return replace(asked, **changes)  # type: ignore[arg-type]


def test_a_scenario_is_told_by_the_queries_and_stays_in_the_dataset(folder: Path) -> None:
    outcome = api.replay(folder, asked=slow(folder), settings=settings())
    document = json.loads(outcome.to_json())
    (told,) = document["scenarios"]
    assert document["options"] == []
    assert (told["scenario"], told["requests"], told["instances"]) == ("slow", 8, 2)
    # 23 blocks of 512 tokens are asked for. Each instance gets the turns of one conversation, and
    # its HBM (6 blocks) has them: 0 + 0 + 2 + 2 + 3 + 3 + 0 blocks. The last request is a turn of
    # the other instance: all of it is in the pool, and its last token is computed.
    assert told["prompt_tokens"] == 23 * 512
    by_tier = {tier["tier"]: tier["hit_tokens"] for tier in told["tiers"]}
    assert by_tier == {"hbm": 10 * 512, "pool": 4 * 512 - 1}
    assert told["hit_tokens"] == sum(by_tier.values())
    assert told["computed_tokens"] == told["prompt_tokens"] - told["hit_tokens"]
    assert told["net_negative"]["requests"] == told["loaded_requests"] == 1
    # 2 047 tokens of 327 680 bytes were read, and each of the 9 blocks was written once.
    (wire,) = told["links"]
    assert wire["read_bytes"] == pytest.approx(2047 * 327_680)
    assert wire["written_bytes"] == pytest.approx(9 * 512 * 327_680)
    assert set(told["ttft_s"]) == {"mean", "p50", "p90", "p99"}
    assert told["engine_wall_s"] > 0
    assert "One pool" in told["title"]
    assert "slow" in "\n".join(outcome.summary())
    rows = api.query(folder, "replay/summary").rows()
    assert [(row["scenario"], row["hit_tokens"]) for row in rows] == [("slow", told["hit_tokens"])]
    assert "engine_wall_s" not in rows[0]
    docs = (REPO / "docs/replay.md").read_text(encoding="utf-8")
    table = docs.split("Of each scenario:\n\n")[1].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    keys = {name for row in table for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert keys - set(told) == set()
    assert len(keys) == 20


def test_thresholds_are_told_as_the_settings_of_engines(folder: Path) -> None:
    outcome = api.replay(folder, asked=slow(folder), settings=settings())
    (told,) = json.loads(outcome.to_json())["scenarios"]
    (pool,) = told["thresholds"]
    # The one load (2 047 tokens of 327 680 bytes over 1 GB/s: 0.67 s) takes longer than computing.
    assert (pool["tier"], pool["basis"], pool["recommended_tokens"]) == ("pool", "replayed", None)
    assert pool["replayed"]["loads"] == 1
    assert pool["replayed"]["gained_without_s"] == pytest.approx(-told["net_negative"]["lost_s"])
    lengths = [one["prompt_tokens"] for one in pool["break_even"]]
    assert lengths == [2048, 8192, 32_768, 131_072]
    assert {one["value"] for one in pool["settings"]} == {None}
    assert any("slow, pool: no threshold pays" in line for line in outcome.summary())

    fast = folder.parent / "fast.toml"
    fast.write_text(SCENARIO.replace("1GB/s", "400GB/s"), encoding="utf-8")
    outcome = api.replay(folder, asked=slow(folder, scenarios=(str(fast),)), settings=settings())
    (told,) = json.loads(outcome.to_json())["scenarios"]
    (pool,) = told["thresholds"]
    # Its one load gains, so that the break-even on empty links goes below it.
    assert (pool["replayed"]["tokens"], pool["basis"]) == (2047, "empty_links")
    tokens = pool["recommended_tokens"]
    assert tokens == max(one["tokens"] for one in pool["break_even"]) < 2047
    named = {one["setting"]: one["value"] for one in pool["settings"]}
    assert named["min_retrieve_tokens"] == named["minCachedTokenDelta"] == tokens
    assert f"LMCache min_retrieve_tokens = {tokens}" in "\n".join(outcome.summary())


def test_preemptions_and_hand_offs_are_told(tmp_path: Path) -> None:
    # Two requests of 512 + 900 tokens each in four blocks of 512: 2 824 > 2 048, so that the second
    # gives way once; apart, the KV of 512 tokens crosses a wire of 1 GB/s.
    row = {"timestamp": 0, "input_length": 512, "output_length": 900}
    log = tmp_path / "two.jsonl"
    rows = [{**row, "hash_ids": [1]}, {**row, "timestamp": 1, "hash_ids": [2]}]
    log.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    api.ingest([log], output=tmp_path / "out", settings=settings())
    alone = SCENARIO.split("[tier.pool]", maxsplit=1)[0]
    for name, text in {
        "preempting": "instances = 1\nkv_admission = 'as_needed'\nhbm_blocks = 4",
        "apart": "instances = 2\nprefill_instances = 1\nhbm_blocks = 8\n"
        "handoff = { out_links = ['wire'], in_links = ['wire'] }\n[link.wire]\nrate = '1GB/s'",
    }.items():
        stated = "\n".join(alone.splitlines()[:4]) + f"\n{text}\n"
        (tmp_path / f"{name}.toml").write_text(stated, encoding="utf-8")
    asked = api.ReplayAsk(
        scenarios=tuple(str(tmp_path / f"{one}.toml") for one in ("preempting", "apart"))
    )
    outcome = api.replay(tmp_path / "out", asked=asked, settings=settings())
    preempting, apart = (one["stages"] for one in json.loads(outcome.to_json())["scenarios"])
    assert (preempting["preemptions"], preempting["preempted_requests"]) == (1, 1)
    assert preempting["handoff_mean_s"] is None
    assert (apart["preemptions"], apart["preempted_mean_s"]) == (0, 0.0)
    # 512 x 327 680 B out and in over one wire
    assert apart["handoff_mean_s"] >= 512 * 327_680 / 1e9
    rows_of = Dataset.open(tmp_path / "out" / "dataset").table("replay_requests").to_dicts()
    waited = [one for one in rows_of if one["preemptions"]]
    assert [(one["run"], one["request_rank"]) for one in waited] == [(0, 1)]
    assert 0 < waited[0]["preempted_s"] < waited[0]["decode_s"]
    assert preempting["preempted_mean_s"] == pytest.approx(waited[0]["preempted_s"] / 2)
    assert [one["handoff_s"] is None for one in rows_of] == [True, True, False, False]


def test_requests_that_find_no_room_are_left_out_and_said(folder: Path) -> None:
    # HBM of 3 blocks: prompts of three and four blocks and their four tokens of output do not fit.
    small = folder.parent / "small.toml"
    small.write_text(SCENARIO.replace("hbm_blocks = 6", "hbm_blocks = 3"), encoding="utf-8")
    outcome = api.replay(folder, asked=slow(folder, scenarios=(str(small),)), settings=settings())
    (told,) = json.loads(outcome.to_json())["scenarios"]
    assert (told["requests"], told["refused_requests"]) == (3, 5)
    assert any(line.startswith("5 requests are left out") for line in outcome.summary())
    none = api.replay(folder, asked=slow(folder), settings=settings())
    assert not any("left out" in line for line in none.summary())


def test_options_are_told_both_ways(folder: Path) -> None:
    outcome = api.replay(folder, options=["recompute", "dram_idle"], settings=settings())
    document = json.loads(outcome.to_json())
    assert [one["id"] for one in document["options"]] == ["recompute", "dram_idle"]
    hits = {one["id"]: sum(one["hit_tokens_by_tier"].values()) for one in document["options"]}
    assert {one["scenario"]: one["hit_tokens"] for one in document["scenarios"]} == hits
    with pytest.raises(UsageError, match="there is no option `dram`"):
        api.replay(folder, options=["dram"], settings=settings())
    other = folder.parent / "other/slow.toml"
    other.parent.mkdir()
    other.write_text(SCENARIO, encoding="utf-8")
    both = (str(folder.parent / "slow.toml"), str(other))
    with pytest.raises(UsageError, match="two scenarios are named `slow`"):
        api.replay(folder, asked=api.ReplayAsk(scenarios=both), settings=settings())


@pytest.mark.parametrize(
    ("load", "requests", "words"),
    [
        (Load(requests=3), 3, "first 3 requests"),
        (Load(growth=2), 16, "sessions superposed x 2"),
        (Load(compress=4.0), 8, "time compressed x 4"),
    ],
)
def test_the_load_is_changed_and_said(folder: Path, load: Load, requests: int, words: str) -> None:
    outcome = api.replay(folder, asked=slow(folder, load=load), settings=settings())
    (told,) = outcome.scenarios
    assert (told["requests"], told["load"]) == (requests, words)
    arrived = Dataset.open(folder / "dataset").table("replay_requests")["arrived_s"]
    whole_s = 21.049
    if load.compress != 1:
        assert arrived.max() == pytest.approx(whole_s / load.compress)
    if load.growth != 1:
        # [9] is a conversation of one turn, as are three others; a copy is whole
        keys = Dataset.open(folder / "dataset").table("replay_requests")["request_key"]
        assert keys.null_count() == 8


def test_logs_are_read_before_they_are_replayed(folder: Path, tmp_path: Path) -> None:
    log = folder.parent / "chat.jsonl"
    direct = api.replay(log, asked=slow(folder), output=tmp_path / "out", settings=settings())
    after_ingest = api.replay(folder, asked=slow(folder), settings=settings())
    for one in (direct, after_ingest):
        one.scenarios[0].pop("engine_wall_s")
    assert direct.scenarios == after_ingest.scenarios
    again = api.replay(tmp_path / "out", asked=slow(folder), settings=settings())
    assert again.requests == len(TURNS)


def test_a_folder_whose_dataset_is_damaged_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    with pytest.raises(InputError):
        api.replay(tmp_path, settings=settings())


def test_thinning_to_nothing_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="no request is left"):
        api.replay(folder, asked=slow(folder, load=Load(thin=0.001)), settings=settings())


def test_a_sweep_is_the_same_for_any_workers_and_goes_on_where_it_was(folder: Path) -> None:
    axes = ["wire.rate=1GB/s,100GB/s"]

    def run(workers: int) -> api.SweepOutcome:
        return api.sweep(
            folder,
            axes,
            asked=slow(folder),
            one_at_a_time=True,
            workers=workers,
            settings=settings(),
        )

    def table() -> bytes:
        (part,) = (folder / "dataset/replay_sweep").iterdir()
        return part.read_bytes()

    first = run(2)
    made = table()
    rows = first.result.frame.to_dicts()
    assert [row["changes"] for row in rows] == ["", "wire.rate=1GB/s", "wire.rate=100GB/s"]
    # The start has this rate itself: it is replayed once.
    assert rows[1]["ttft_mean_ratio"] == 1.0
    assert rows[2]["ttft_mean_ratio"] < 1
    assert sorted(first.wall_s) == [0, 2]
    assert run(1).wall_s == {}
    assert table() == made
    # Two runs, and what the first of them is judged by: without its tier, and with an arbiter.
    assert len([*(folder / "sweeps").iterdir()]) == 4
    contents = Dataset.open(folder / "dataset").table("replay_sweep")["content"].unique()
    kept = [folder / "sweeps" / f"{content}.json" for content in sorted(contents)]
    assert len(kept) == 2
    kept[0].write_text("{", encoding="utf-8")
    kept[1].unlink()
    again = run(1)
    assert len(again.wall_s) == 2
    assert table() == made
    known = json.loads(again.to_json())["runs"]
    assert sorted(row["engine_wall_s"] is None for row in known) == [False, False, True]
    assert "wire.rate=100GB/s" in "\n".join(again.summary())


class Interrupted(SilentProgress):
    """A person who stops a sweep in its second replay."""

    def __init__(self) -> None:
        self.replays = 0

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        self.replays += 1
        if self.replays == 2:
            raise KeyboardInterrupt


def test_an_interrupted_sweep_replays_only_what_is_missing(folder: Path) -> None:
    axes = ["seed=11,12,13"]
    with pytest.raises(KeyboardInterrupt):
        api.sweep(folder, axes, asked=slow(folder), settings=settings(), progress=Interrupted())
    assert sorted(api.sweep(folder, axes, asked=slow(folder), settings=settings()).wall_s) == [1, 2]


def test_timelines_are_drawn_for_a_window(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / "trace.json"
    asked = slow(folder, trace_out=target, window=parse_window("2s..10s"))
    api.replay(folder, asked=asked, settings=settings())
    events = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    drawn = [event for event in slices if event["name"].startswith("request ")]
    assert [event["name"] for event in drawn] == ["request 1", "request 2", "request 3"]
    for request in drawn:
        inside = [
            event
            for event in slices
            if event is not request
            and (event["pid"], event["tid"]) == (request["pid"], request["tid"])
            and request["ts"] <= event["ts"] < request["ts"] + request["dur"]
        ]
        assert sum(event["dur"] for event in inside) == pytest.approx(request["dur"], abs=0.01)
        assert {event["name"] for event in inside} >= {"prefill", "decode"}
    counters = [event for event in events if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"wire"}
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]
    assert names == ["slow: instance 1", "slow: instance 0", "slow: links, bytes/s"]


def test_a_window_is_two_instants() -> None:
    assert parse_window("0s..60s") == TraceWindow(0.0, 60.0)
    assert parse_window("1min..2min") == TraceWindow(60.0, 120.0)
    for text in ("60s", "5s..5s"):
        with pytest.raises(UsageError):
            parse_window(text)


@pytest.mark.parametrize("growth", [1, 2])
def test_in_the_closed_loop_a_turn_comes_when_the_answer_was_read(
    folder: Path, growth: int
) -> None:
    load = Load(closed_loop=True, think_s=2.0, growth=growth)
    outcome = api.replay(folder, asked=slow(folder, load=load), settings=settings())
    assert "closed loop, think time 2 s" in str(outcome.scenarios[0]["load"])
    rows = Dataset.open(folder / "dataset").table("replay_requests").to_dicts()
    logged = [row for row in rows if row["request_key"] is not None]
    assert len(rows) == growth * len(logged) == growth * 8
    # [1, 2] is gone on from by [1, 2, 5], that by [1, 2, 5, 7]; the last request is that prompt
    # again, which goes on from [1, 2, 5] too: it has the same conversation.
    first, second, third = logged[0], logged[2], logged[4]
    for turn, before in ((second, first), (third, second)):
        assert turn["arrived_s"] == pytest.approx(before["arrived_s"] + before["e2e_s"] + 2.0)


def test_thinking_as_logged_is_the_gap_where_no_end_is_known(folder: Path) -> None:
    load = Load(closed_loop=True)
    api.replay(folder, asked=slow(folder, load=load), settings=settings())
    rows = Dataset.open(folder / "dataset").table("replay_requests").to_dicts()
    # [1, 2] came at 0 s, [1, 2, 5] at 6.004 s: so long after the answer it comes now.
    assert rows[2]["arrived_s"] == pytest.approx(rows[0]["e2e_s"] + 6.004)
