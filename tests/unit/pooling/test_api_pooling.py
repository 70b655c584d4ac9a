"""The verb `pooling` and what `analyze` makes unasked, on a small trace in Mooncake's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.api.opened import whole_trace
from kvtrace.api.pool_tables import (
    ASSUMED_INSTANCES,
    block_bytes,
    derive_for_audit,
    fleet_bytes,
    level_of,
    plan_pools,
)
from kvtrace.api.setup import choose_deployment, choose_fleet
from kvtrace.config import Settings, resolve_settings
from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.fleet import default_fleet
from kvtrace.errors import UsageError
from kvtrace.exec.progress import SilentProgress
from kvtrace.reuse.pooling import Level
from kvtrace.store.dataset import Dataset

TURNS = ([1, 2], [3, 4], [1, 2, 5], [3, 4, 6], [1, 2, 5, 7], [3, 4, 6, 8])


@pytest.fixture(autouse=True)
def no_user_config(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("nobody")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of two conversations that take turns, three turns each."""
    place = tmp_path_factory.mktemp("pooling")
    rows = [
        {
            "timestamp": 3000 * turn,
            "input_length": 512 * len(blocks),
            "output_length": 4,
            "hash_ids": blocks,
        }
        for turn, blocks in enumerate(TURNS)
    ]
    log = place / "chat.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    api.ingest([log], output=place / "out", settings=resolve_settings({"block_size": 512}))
    return place / "out"


def test_private_caches_and_a_pool_are_told_in_two_tables(folder: Path) -> None:
    # By turns over 3 instances every turn of a conversation meets caches that never saw it, until
    # both repeat: request 3 ([3, 4, 6]) comes to instance 0, which held [1, 2] only; no hit at all.
    # One cache without limit serves 2 + 2 + 3 + 3 = 10 of 18 blocks.
    outcome = api.pooling(folder, instances=[3], routings=["round_robin"], capacity="18")
    rows = {row["capacity_blocks"]: row for row in outcome.tables[0].rows()}
    assert rows[6]["private_hit_blocks"] == 0
    assert rows[6]["pooled_hit_blocks"] == 10
    assert rows[8]["block_refs"] == 18
    assert rows[8]["added_hit_ratio_tokens"] == 10 / 18
    assert [table.name for table in outcome.tables] == ["pooling/hit_ratio", "pooling/added"]


def test_a_pool_above_private_caches_adds_what_they_do_not_hold(folder: Path) -> None:
    # One conversation an instance: HBM of 2 blocks and DRAM of 1 keep the 3 blocks that turn 3 has
    # in common with turn 2, and all 2 of turn 1, so that the pool adds nothing over both.
    # HBM alone: of turn 1 both blocks are there (2), of [1, 2, 5] the first two only.
    outcome = api.pooling(
        folder, instances=[2], routings=["session_sticky"], hbm="2", dram="1", pool="100"
    )
    over_hbm, over_both = outcome.tables[1].rows()
    assert (over_hbm["dram_blocks"], over_both["dram_blocks"]) == (0, 1)
    assert over_hbm["hbm_hit_blocks"] == 8
    assert over_hbm["over_hbm_and_dram_hit_blocks"] == 2
    assert over_both["dram_hit_blocks"] == 2
    assert over_both["over_hbm_and_dram_hit_blocks"] == 0
    assert over_both["over_hbm_hit_blocks"] == 2


def test_the_same_question_again_writes_nothing(folder: Path) -> None:
    api.pooling(folder, instances=[2])
    before = api.open_dataset(folder).parts("pool_hits")
    api.pooling(folder, instances=[2])
    assert api.open_dataset(folder).parts("pool_hits") == before
    api.pooling(folder, instances=[4])
    assert api.open_dataset(folder).parts("pool_hits") != before


def test_the_outcome_is_one_document_and_a_text(folder: Path) -> None:
    outcome = api.pooling(folder, instances=[2], capacity="50%", pool="0")
    document = json.loads(outcome.to_json())
    assert document["params"]["total_capacity_blocks"] == [4]
    assert document["tables"]["pooling/added"] == []
    assert len(document["tables"]["pooling/hit_ratio"]) == 6
    text = "\n".join(outcome.summary())
    assert "by the full-block rule, the logs name none" in text
    assert "session_sticky" in text


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"routings": ["round_robbin"]}, "KVT-U043"),
        ({"instances": [0]}, "KVT-U044"),
        ({"instances": []}, "KVT-U044"),
        ({"capacity": "none"}, "KVT-U040"),
    ],
)
def test_what_cannot_be_asked_is_refused(folder: Path, asked: dict[str, object], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        api.pooling(folder, **asked)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.hint


def test_a_dataset_without_blocks_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "lengths.csv"
    log.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
        encoding="utf-8",
    )
    api.ingest([log], output=tmp_path / "out")
    with pytest.raises(UsageError) as caught:
        api.pooling(tmp_path / "out")
    assert caught.value.code == "KVT-U042"


def audit_params(dataset: Dataset, settings: Settings, *, is_full: bool) -> dict[str, object]:
    """The parameters of what an audit makes."""
    deployment, filled = choose_deployment(settings, dataset.manifest)
    trace = whole_trace(dataset)
    assert trace is not None
    setup = choose_fleet(filled, deployment, trace, dataset.manifest)
    made = derive_for_audit(dataset, trace, setup, SilentProgress(), is_full=is_full)
    return dict(made.manifest.derived.get("pool_hits", {}))


def test_an_audit_shows_the_stated_number_of_instances_else_a_few_and_its_own(folder: Path) -> None:
    dataset = api.open_dataset(folder)
    stated = audit_params(dataset, resolve_settings({"instances": 3}), is_full=False)
    assert stated["instances"] == [3]
    unknown = audit_params(api.open_dataset(folder), resolve_settings(), is_full=False)
    # nobody says how many: the replays assume one instance for so small a load
    assert unknown["instances"] == [1, *ASSUMED_INSTANCES]


def test_an_audit_leaves_a_long_trace_alone_unless_everything_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvtrace.api.pool_tables.MOST_REQUESTS", 5)
    api.pooling(folder, instances=[7])
    kept = audit_params(api.open_dataset(folder), resolve_settings(), is_full=False)
    assert kept["instances"] == [7]
    full = audit_params(api.open_dataset(folder), resolve_settings(), is_full=True)
    assert full["instances"] == [1, *ASSUMED_INSTANCES]


def test_sizes_of_a_deployment_become_whole_blocks(folder: Path) -> None:
    # Llama 3.1 70B in bf16: 327 680 bytes a token, 167 772 160 a block of 512 tokens.
    dataset = api.open_dataset(folder)
    deployment, filled = choose_deployment(resolve_settings(), dataset.manifest)
    trace = whole_trace(dataset)
    assert trace is not None
    fleet = choose_fleet(filled, deployment, trace, dataset.manifest).fleet
    level = level_of(deployment, fleet, trace.block_size_tokens)
    assert level.hbm_blocks == int(deployment.hbm_cache_bytes) // 167_772_160
    assert level.dram_blocks == int(fleet.dram_idle_bytes_per_instance.value) // 167_772_160
    assert level.pool_blocks == int(fleet.pool_dram_bytes.value) // 167_772_160


def test_levels_without_a_pool_or_anything_below_it_are_left_out(folder: Path) -> None:
    dataset = api.open_dataset(folder)
    trace = whole_trace(dataset)
    assert trace is not None
    for level in (Level(5, 5, 0), Level(0, 0, 5)):
        plan = plan_pools(dataset, trace, level, instances=[2], routings=["round_robin"])
        assert plan.levels == ()


def test_a_capacity_has_one_number_of_blocks_wherever_it_is_counted() -> None:
    # A block is 16 tokens; an odd size leaves a part of a block on each of three instances.
    deployment = build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=8)
    fleet = default_fleet(deployment, 3)
    level = level_of(deployment, fleet, 16)
    size = fleet_bytes(deployment.hbm_cache_bytes, deployment, instances=3, block_tokens=16)
    assert size // block_bytes(deployment, 16) == 3 * level.hbm_blocks
    whole = deployment.hbm_cache_bytes * 3 // (deployment.kv_bytes_per_token * 16)
    assert whole > 3 * level.hbm_blocks
