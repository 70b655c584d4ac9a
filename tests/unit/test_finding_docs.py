"""docs/findings.md says what the registry says, and the registry is whole."""

from __future__ import annotations

import re

from kvtrace.audit.findings.docs import render_finding_docs
from kvtrace.audit.findings.registry import CHECKS
from kvtrace.query.catalog import load_catalog
from tests.conftest import REPO


def test_page_is_up_to_date() -> None:
    page = (REPO / "docs" / "findings.md").read_text(encoding="utf-8")
    assert page == render_finding_docs(CHECKS), "run scripts/gen_finding_docs.py"


def test_every_finding_is_listed_with_its_action_and_its_check_in_production() -> None:
    page = render_finding_docs(CHECKS)
    for check in CHECKS:
        section = page.split(f"## {check.id}\n")[1].split("\n## ")[0]
        assert check.action in section
        assert f"In production: {check.production_check}" in section
        assert f"`{check.threshold.id}`" in section


def test_tables_of_findings_are_queries_or_tables_of_the_record() -> None:
    built = {
        "links/modelled_and_measured",
        "moves/measured_and_modelled",
        "replay/measured_prefill",
        "replay/move_by_kv_bucket",
    }
    named = {check.table for check in CHECKS if check.table}
    assert named - built <= set(load_catalog().names())


def test_metrics_of_vllm_that_are_named_are_among_those_that_ingest_reads() -> None:
    # Histograms and counters by their base names, as readers of /metrics know them.
    known = (REPO / "kvtrace" / "ingest" / "prometheus" / "engines.py").read_text(encoding="utf-8")
    beside = {"request_decode_time_seconds", "e2e_request_latency_seconds"}  # read, not used
    for check in CHECKS:
        for name in re.findall(r"vllm:(\w+)", check.production_check):
            base = re.sub(r"_(?:total|bucket|sum|count)$", "", name)
            assert f'"{base}"' in known or base in beside, (check.id, name)
