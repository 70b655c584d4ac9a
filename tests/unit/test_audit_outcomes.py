"""The four outcomes from a log to the verdict, with everything stated that decides.

A service of 70B on two or three instances of eight H100: each document is asked for again after all
others were, so LRU in HBM (1.2 M tokens an instance) never holds it, and a pool of 4 TiB (13 M
tokens) always does.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kvtrace import api
from kvtrace.api.stages import audit_input
from kvtrace.audit.build import build_audit
from kvtrace.audit.record import AuditRecord
from kvtrace.config import resolve_settings
from kvtrace.exec.progress import SilentProgress

BLOCK = 512
FLEET = """
pool_nodes = 2
pool_dram_bytes = "4TiB"
pool_nics_per_node = 2
dram_idle_bytes_per_instance = "64GiB"
gpu_usd_per_hour = 3.0

[gpu_nodes]
dram_room = "0B"
nvme_free = "0B"

[gpu_contract]
kind = "reserved"
until = 2026-05-31
"""
"""No room for more DRAM or SSD: in the GPU nodes, as much as the pool has would do as well, and
cost less."""
AFTER_THE_CONTRACT = "2026-06-30T00:00:00+00:00"


def write_log(
    path: Path,
    *,
    requests: int = 3600,
    per_second: float = 1.0,
    documents: int = 300,
    document_blocks: int = 32,
    has_blocks: bool = True,
    quiet_hours: int = 0,
    output_tokens: int = 8,
) -> Path:
    """Poisson arrivals; documents in turn, each followed by half a block of its own.

    After the busy part one request an hour, so that the log covers a day.
    """
    chance = random.Random(1)
    fresh, now_s, rows = documents * document_blocks, 0.0, []
    for index in range(requests + quiet_hours):
        now_s += chance.expovariate(per_second) if index < requests else 3600.0
        first = index % documents * document_blocks
        row: dict[str, Any] = {
            "timestamp": round(now_s * 1000),
            "input_length": document_blocks * BLOCK + BLOCK // 2,
            "output_length": output_tokens,
        }
        if has_blocks:
            row["hash_ids"] = [*range(first, first + document_blocks), fresh + index]
        rows.append(row)
    if not has_blocks:
        start = datetime(2024, 5, 10)
        lines = [
            f"{start + timedelta(milliseconds=row['timestamp'])},{row['input_length']},8"
            for row in rows
        ]
        path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines) + "\n")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def audit(
    log: Path,
    *,
    instances: int = 3,
    fleet: str = FLEET,
    unstated: tuple[str, ...] = (),
    **changed: str,
) -> AuditRecord:
    """As `kvtrace analyze` with everything stated; `changed` settings as told."""
    file = log.with_suffix(".toml")
    file.write_text(fleet)
    stated: dict[str, Any] = {
        "llm": "Meta-Llama-3.1-70B",
        "hardware": "H100-SXM5",
        "tp": 8,
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "instances": instances,
        "fleet": str(file),
        **changed,
    }
    flags = {name: value for name, value in stated.items() if name not in unstated}
    settings = resolve_settings(flags, environment={}, cwd=log.parent)
    outcome = api.ingest([log], output=log.parent / "out", settings=settings)
    inputs = audit_input(outcome.dataset, [log], settings, SilentProgress())
    return build_audit(replace(inputs, generated_at=AFTER_THE_CONTRACT))


def test_pays(tmp_path: Path) -> None:
    # 9.8 M tokens of documents: more than the HBM of three instances holds with KV in fp8, too.
    log = write_log(tmp_path / "log.jsonl", requests=7200, documents=600, quiet_hours=23)
    record = audit(log)
    verdict = record.verdict
    assert verdict.outcome == "pays", verdict.headline
    options = {option.id: option for option in record.options}
    assert verdict.option is not None
    pool = options[verdict.option]
    # Two instances keep what HBM alone needs three for: $17,520 against about $5,000 a month.
    assert pool.instances_at_slo == 2
    assert options["hbm_only"].instances_at_slo == 3
    assert pool.whole_instances_saved is not None
    assert pool.whole_instances_saved.low == 1
    assert any("KV-centric routing does not with 2" in reason for reason in verdict.reasons)
    assert any("It is the same with slow moves and fast" in reason for reason in verdict.reasons)
    money = verdict.carrying_numbers[2]
    assert isinstance(money.low, float)
    assert money.low > 0


def test_a_rival_that_keeps_the_slo_with_fewer_instances_takes_the_saving(tmp_path: Path) -> None:
    # 2 TiB of idle DRAM an instance hold every document: no network, no pool.
    log = write_log(tmp_path / "log.jsonl")
    verdict = audit(log, fleet=FLEET.replace("64GiB", "2TiB")).verdict
    assert verdict.outcome == "does_not_pay"
    assert "KV-centric routing already serves the hits" in verdict.headline


def test_a_pool_that_alone_carries_the_load_saves_no_instance_while_it_may_be_down(
    tmp_path: Path,
) -> None:
    log = write_log(tmp_path / "log.jsonl", requests=5760, per_second=1.6)
    record = audit(log, instances=1)
    verdict = record.verdict
    assert verdict.outcome == "pays_only_if"
    assert any("no option without a pool carries this load" in one for one in verdict.conditions)
    options = {option.id: option for option in record.options}
    assert not options["hbm_only"].is_feasible
    assert options["hbm_only"].usd_saved_per_month is None
    assert options["pool_dram_rdma_direct"].is_feasible
    assert any("cannot carry this load on 1 instance" in reason for reason in verdict.reasons)
    assert any("kept as the reserve" in reason for reason in verdict.reasons)
    money = verdict.carrying_numbers[2]
    assert isinstance(money.low, float)
    assert money.low < 0


def test_reuse_before_the_busiest_hour_is_not_erased(tmp_path: Path) -> None:
    # Six hours; each of 3 000 prompts is used twice, two hours apart: half of all tokens.
    rows = []
    for index in range(3_000):
        first_s = index * 2.4
        blocks = list(range(index * 20, index * 20 + 20))
        for use_s in (first_s, first_s + 7_200 + (index % 2) * 7_200):
            rows.append(
                {
                    "timestamp": round(use_s * 1000),
                    "input_length": 20 * BLOCK,
                    "output_length": 8,
                    "hash_ids": blocks,
                }
            )
    rows.sort(key=lambda row: int(str(row["timestamp"])))
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = audit(log)
    assert record.reuse.reusable_ratio_tokens == pytest.approx(0.5, abs=0.01)
    assert "ever used again" not in record.verdict.headline
    window = record.replay_window
    assert window is not None
    assert window.is_peak_hour
    assert window.counts_history
    # The first of equally busy hours is the log's first: nothing came before it.
    assert window.reusable_tokens == 0
    assert record.verdict.outcome == "cannot_tell"
    assert record.verdict.next_measurement is not None
    assert "--depth full" in record.verdict.next_measurement.flag


def test_twenty_requests_prove_nothing(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "log.jsonl", requests=20, per_second=0.005, documents=3, document_blocks=1
    )
    verdict = audit(log).verdict
    assert verdict.outcome == "cannot_tell"


def test_a_rival_with_kv_in_fp8_is_a_condition_and_not_a_rival(tmp_path: Path) -> None:
    # 4.9 M tokens of documents: in fp8 the HBM of three instances holds them all.
    record = audit(write_log(tmp_path / "log.jsonl", quiet_hours=23))
    assert record.verdict.outcome == "pays_only_if"
    assert "accuracy is not evaluated here" in record.verdict.headline
    # Where a pool would save an instance, every mix without one is asked in fp8, too.
    narrow = {option.id for option in record.options if option.is_quantised}
    assert {"kv_routing_fp8", "dram_idle_kv_routing_fp8"} <= narrow
    assert record.verdict.rival == "HBM only"
    frontier = record.frontier
    assert frontier is not None
    # One of them keeps the SLO for nothing; among KV as it is, HBM alone does, which is today.
    assert frontier.cheapest in narrow
    assert frontier.cheapest_as_it_is not in narrow


def test_an_hour_of_log_does_not_stand_for_every_hour_of_a_month(tmp_path: Path) -> None:
    verdict = audit(write_log(tmp_path / "log.jsonl")).verdict
    assert verdict.outcome == "pays_only_if"
    assert "the month is like this window: 60.3 min of log do not show" in verdict.headline
    assert any("a month is this window of 60.3 min, repeated" in r for r in verdict.reasons)


def test_pays_only_if_a_setting_holds(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl")
    record = audit(log, unstated=("kv_dtype",))
    assert record.verdict.outcome == "pays_only_if"
    assert any("kv_dtype" in condition for condition in record.verdict.conditions)
    assert record.verdict.confidence == "low"


def test_does_not_pay_where_all_prefill_is_worth_less_than_the_pool(tmp_path: Path) -> None:
    # Three documents of one block, every three seconds: a few hundredths of an instance at most.
    log = write_log(
        tmp_path / "log.jsonl", requests=1200, per_second=0.33, documents=3, document_blocks=1
    )
    # No DRAM idles: a pool of it, which buys nothing, is no option.
    verdict = audit(log, fleet=FLEET.replace("64GiB", "0GiB")).verdict
    assert verdict.outcome == "does_not_pay"
    assert "even if it made all prefill free" in verdict.headline


def test_cannot_tell_without_blocks(tmp_path: Path) -> None:
    verdict = audit(write_log(tmp_path / "log.csv", has_blocks=False)).verdict
    assert verdict.outcome == "cannot_tell"
    assert verdict.next_measurement is not None


LIGHT: dict[str, Any] = {"requests": 1100, "per_second": 0.3, "quiet_hours": 23}


def test_kv_so_small_that_hbm_holds_all_of_it_leaves_a_pool_nothing(tmp_path: Path) -> None:
    # MLA: 70 kB a token and copy; 300 documents of 4 096 tokens are 1.2 M tokens.
    log = write_log(tmp_path / "log.jsonl", document_blocks=8, **LIGHT)
    record = audit(log, llm="DeepSeek-V3", hardware="H200-SXM", weight_dtype="fp8")
    assert record.verdict.outcome == "does_not_pay"
    assert "HBM already serves the hits" in record.verdict.headline
    assert {"hits_end_at_hbm", "tp_replicates_kv"} <= {one.id for one in record.findings}


def test_a_fleet_that_decodes_has_no_instance_to_give_back(tmp_path: Path) -> None:
    # 1 200 tokens of output after each prompt: prefill keeps the instances busy 8 % of the time.
    log = write_log(tmp_path / "log.jsonl", output_tokens=1200, **LIGHT)
    verdict = audit(log).verdict
    assert verdict.outcome == "does_not_pay"
    assert "would not remove a whole instance of 8 GPUs" in verdict.headline
    assert any("where prefill does not bind, no GPU is saved" in one for one in verdict.reasons)


def test_a_pool_that_pays_does_not_where_its_copies_are_fragmented(tmp_path: Path) -> None:
    # The log of `test_pays`, moved in pieces of 4 KiB: 2 % of the rate of PCIe.
    node = tmp_path / "node.toml"
    node.write_text('gpu = "H100-SXM5"\n\n[moves]\nchunk = "4KiB"\n')
    record = audit(write_log(tmp_path / "log.jsonl", quiet_hours=23), hardware=str(node))
    assert record.verdict.outcome == "does_not_pay"
    assert any("in pieces of 4 KiB" in one for one in record.verdict.reasons)
    assert any("gathered into larger pieces" in one for one in record.verdict.conditions)
    assert "fragmented_copies" in {one.id for one in record.findings}


def test_an_option_is_paid_for_no_instance_that_its_own_count_keeps(tmp_path: Path) -> None:
    # Pools that were replayed on the stated fleet alone keep the SLO there: whatever prefill they
    # free, the row that counts five instances may not sell two, and the cheapest mix is not it.
    log = write_log(tmp_path / "log.jsonl", requests=7200, documents=600, quiet_hours=23)
    record = audit(log, instances=4)
    counted = [one for one in record.options if one.whole_instances_saved is not None]
    unasked = [one for one in counted if one.family == "pool" and one.instances_at_slo == 4]
    assert unasked
    for option in counted:
        saved, need = option.whole_instances_saved, option.instances_at_slo
        assert saved is not None
        if need is not None and isinstance(saved.value, float):
            assert saved.value <= max(0, option.instances - need), option.id
