"""What `analyze` makes of `policy_hits` without being asked."""

from __future__ import annotations

from pathlib import Path

from kvtrace import api
from kvtrace.store.dataset import Dataset
from tests.conftest import REPO


def test_a_quick_audit_reads_the_gaps_at_the_tier_sizes(tmp_path: Path) -> None:
    outcome = api.analyze(
        [REPO / "sample_traces" / "router-trace.jsonl.zst"], output=tmp_path / "out"
    )
    table = outcome.record.tables["policies/gaps"]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert rows
    for row in rows:
        order = [
            int(str(row[f"{bound}_hit_tokens"]))
            for bound in ("lru", "strict_low", "strict_high", "relaxed", "unlimited")
        ]
        assert order == sorted(order)
    dataset = Dataset.open(tmp_path / "out" / "dataset")
    assert dataset.manifest.derived["policy_hits"]["policies"] == ["lru"]


def test_the_tiers_at_hand_are_marked_on_the_curve(tmp_path: Path) -> None:
    outcome = api.analyze(
        [REPO / "sample_traces" / "router-trace.jsonl.zst"], output=tmp_path / "o"
    )
    table = outcome.record.tables["reuse/capacity_marks"]
    labels = {row[table.columns.index("label")] for row in table.rows}
    assert labels == {"hbm", "dram", "pool"}
