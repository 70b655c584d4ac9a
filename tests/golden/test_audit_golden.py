"""Old `audit.json` files stay readable, and mean what they meant.

`audit_v1.json` was written by schema version 1; write a new file for a new version, never edit it.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

from kvtrace.audit import jsonio

GOLDEN = Path(__file__).parent / "audit_v1.json"


def test_a_record_of_version_1_is_read() -> None:
    record = jsonio.load(GOLDEN.read_bytes(), path=str(GOLDEN))
    assert record.schema_version == 1
    assert record.verdict.outcome == "pays"
    assert record.verdict.option == "pool_dram_rdma_direct"
    assert [number.id for number in record.verdict.carrying_numbers] == [
        "reusable_tokens_beyond_local",
        "move_over_recompute_at_median_hit",
        "value_minus_cost_usd_per_month",
    ]
    assert record.verdict.carrying_numbers[0].value == 7_200_000
    assert {option.id for option in record.options} == {
        "hbm_only",
        "kv_routing",
        "dram_idle",
        "pool_dram_rdma_direct",
    }
    assert record.data.prompt_tokens == 20_000_000
    assert record.reuse.reusable_tokens == 13_993_000


def test_a_record_of_version_1_is_still_valid() -> None:
    jsonschema.validate(json.loads(GOLDEN.read_bytes()), jsonio.schema())
