"""What `analyze` makes of `policy_hits` without being asked."""

from __future__ import annotations

import pytest

from kvtrace import api
from kvtrace.store.dataset import Dataset
from tests.conftest import REPO, Analysed


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """The trace of the router alone."""
    folder = tmp_path_factory.mktemp("router")
    trace = REPO / "sample_traces" / "router-trace.jsonl.zst"
    return Analysed(folder, api.analyze([trace], output=folder).record)


def test_a_quick_audit_reads_the_gaps_at_the_tier_sizes(router: Analysed) -> None:
    table = router.record.tables["policies/gaps"]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert rows
    for row in rows:
        order = [
            int(str(row[f"{bound}_hit_tokens"]))
            for bound in ("lru", "strict_low", "strict_high", "relaxed", "unlimited")
        ]
        assert order == sorted(order)
    dataset = Dataset.open(router.folder / "dataset")
    assert dataset.manifest.derived["policy_hits"]["policies"] == ["lru"]


def test_the_tiers_at_hand_are_marked_on_the_curve(router: Analysed) -> None:
    table = router.record.tables["reuse/capacity_marks"]
    labels = {row[table.columns.index("label")] for row in table.rows}
    assert labels == {"hbm", "dram", "pool"}
