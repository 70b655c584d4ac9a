"""A scenario that raises reuse and ruins latency is a red finding of `kvtrace replay`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.audit.findings.net_negative_loads import Run, Trial, judge
from kvtrace.config import Settings, resolve_settings

POISON = """
llm = "Meta-Llama-3.1-70B"
tp = 8
instances = 4
routing = "round_robin"
hbm_blocks = 60

[tier.pool]
scope = "shared"
capacity_blocks = 1000
holds_hbm = true
read = [{ kind = "pull", links = ["pool_read"] }]
write = [{ kind = "pull", links = ["pool_write"] }]

[link.pool_read]
rate = "1GB/s"

[link.pool_write]
rate = "0.8GB/s"
"""


def test_the_poison_is_red_with_its_numbers_and_its_remedy(tmp_path: Path) -> None:
    # The trace of test_replay_poison.py: the first four of eight blocks are one of 25 roots, which
    # change instances. 5 prompts of 4 096 tokens a second compute 6.7 GB of KV a second, of which
    # the pool writes 0.8; the four blocks of a hit (671 MB) take 0.67 s of all it reads.
    rows = [
        {
            "timestamp": 200 * index,
            "input_length": 8 * 512,
            "output_length": 2,
            "hash_ids": [10 * (index % 25) + i for i in range(4)]
            + [1000 + 10 * index + i for i in range(4)],
        }
        for index in range(200)
    ]
    log = tmp_path / "poison.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    scenario = tmp_path / "ours.toml"
    scenario.write_text(POISON, encoding="utf-8")
    settings = resolve_settings({"block_size": 512}, environment={}, cwd=Path("/"))
    api.ingest([log], output=tmp_path / "out", settings=settings)
    asked = api.ReplayAsk(scenarios=(str(scenario),))
    outcome = api.replay(tmp_path / "out", asked=asked, settings=settings)
    document = json.loads(outcome.to_json())
    (told,) = document["scenarios"]
    (finding,) = document["findings"]
    assert (finding["scenario"], finding["severity"]) == ("ours", "critical")
    assert finding["title"] == "Reuse rises and TTFT collapses: loads are net-negative"
    numbers = {one["id"].removesuffix(":ours"): one["value"] for one in finding["evidence"]}
    assert numbers["hit_tokens"] == told["hit_tokens"] > 2 * numbers["hit_tokens_without"]
    assert numbers["ttft_mean_ratio"] > 10
    assert numbers["net_negative_requests"] == told["net_negative"]["requests"]
    assert numbers["net_negative_bytes"] == told["net_negative"]["bytes"] > 0
    assert numbers["net_negative_lost_s"] == told["net_negative"]["lost_s"] > 0
    assert numbers["ttft_mean_s_with_arbiter"] <= 1.02 * numbers["ttft_mean_s_without"]
    assert 'load_decision = "arbiter"' in finding["action"]
    assert finding["threshold"]["value"] == 2
    text = "\n".join(outcome.summary())
    assert "!! critical: Reuse rises and TTFT collapses" in text
    # The tables hold what was asked for, not the trials.
    assert [row["scenario"] for row in api.query(tmp_path / "out", "replay/summary").rows()] == [
        "ours"
    ]
    _a_sweep_is_judged_alike(tmp_path / "out", asked, settings, finding["message"])


def _a_sweep_is_judged_alike(
    folder: Path, asked: api.ReplayAsk, settings: Settings, message: str
) -> None:
    """The same scenario as the start of a sweep has the same numbers; its cure has no finding."""
    swept = api.sweep(
        folder,
        ["load_decision=never"],
        asked=asked,
        one_at_a_time=True,
        workers=1,
        settings=settings,
    )
    document = json.loads(swept.to_json())
    (finding,) = document["findings"]
    assert (finding["run"], finding["severity"], finding["message"]) == (0, "critical", message)
    assert "!! critical" in "\n".join(swept.summary())
    (window,) = document["windows"]
    assert (window["requests"], window["is_busiest_hour"]) == (200, False)


ALONE = Run(
    requests=10,
    prompt_tokens=1000,
    hit_tokens=100,
    loaded_requests=0,
    net_negative_requests=0,
    net_negative_bytes=0.0,
    net_negative_lost_s=0.0,
    ttft_mean_s=1.0,
)
POOLED = replace(
    ALONE,
    hit_tokens=300,
    loaded_requests=8,
    net_negative_requests=6,
    net_negative_bytes=5e9,
    net_negative_lost_s=12.0,
    ttft_mean_s=4.0,
)
TRIAL = Trial(
    scenario="ours",
    tiers=("pool",),
    told=POOLED,
    without=ALONE,
    arbiter=replace(POOLED, hit_tokens=150, ttft_mean_s=0.9),
    thresholds={"pool": None},
    is_confirmed=True,
)


def test_the_finding_states_both_runs_and_what_was_lost() -> None:
    found = judge(TRIAL)
    assert found is not None
    assert found.message == (
        "ours: with pool hit tokens go from 10.0 % (100 of 1,000) to 30.0 % (300 of 1,000) of the "
        "prompt tokens, and mean TTFT from 1,000 ms to 4,000 ms, 4 times as long, over 10 "
        "requests; 6 of 8 loaded hits take longer than recomputing what they bring: 5 GB moved "
        "for them, 12.0 s lost (modelled)"
    )
    assert "mean TTFT 900 ms, 0.9 times that without the tiers" in found.action
    assert "pool: no threshold pays" in found.action
    assert found.confidence == "medium"


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, "critical"),
        ({"ttft_mean_s": 1.5}, "warning"),  # slower, no collapse
        ({"net_negative_requests": 1}, "warning"),  # 1 of 8 loads: not most of them
        ({"net_negative_requests": 0}, None),  # other things made it slow
        ({"ttft_mean_s": 1.02}, None),  # what tiers may cost
        ({"hit_tokens": 100}, None),  # reuse does not rise
        ({"ttft_mean_s": None}, None),
    ],
)
def test_it_is_red_only_where_reuse_rises_and_most_loads_lose(
    changes: dict[str, float | None], severity: str | None
) -> None:
    found = judge(replace(TRIAL, told=replace(POOLED, **changes)))  # type: ignore[arg-type]
    assert (found and found.severity) == severity


def test_the_remedy_is_what_the_arbiter_was_replayed_to_do() -> None:
    slow = judge(replace(TRIAL, arbiter=replace(POOLED, ttft_mean_s=3.0)))
    assert slow is not None
    assert slow.action.startswith("Leave the tier out: an arbiter is not enough")
    none = judge(replace(TRIAL, arbiter=None, thresholds={"pool": 640}, is_confirmed=False))
    assert none is not None
    assert none.action == (
        "Leave the tier out; a static threshold (pool: from 640 tokens on) leaves its writes as "
        "they are"
    )
    assert none.confidence == "low"
