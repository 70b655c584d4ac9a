"""What `explain` says of names: every code, finding, option and query, and close ones of typos."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from kvtrace import api
from kvtrace.api.explain_names import names_to_explain
from kvtrace.audit.findings.registry import CHECKS
from kvtrace.audit.gates.names import MONEY
from kvtrace.audit.record import AuditRecord
from kvtrace.errors import UsageError
from kvtrace.replay.options.recipes import recipes
from kvtrace.report.explain.codes import error_codes, explain_code
from kvtrace.report.explain.findings import all_thresholds
from kvtrace.report.explain.names import finding_ids
from kvtrace.report.explain.options import explain_option
from kvtrace.report.explain.terms import OUTCOMES, glossary
from kvtrace.report.sections import GLOSSARY
from kvtrace.scenarios.document import OPTIONS
from tests.conftest import REPO, Analysed


def said(name: str, **more: object) -> dict[str, list[str]]:
    """Facts of the first explanation, by label."""
    (first, *_) = api.explain(name, **more).explanations  # type: ignore[arg-type]
    facts: dict[str, list[str]] = {"title": [first.title], "kind": [first.kind]}
    for one in (*first.facts, *first.in_audit):
        facts.setdefault(one.label, []).append(one.text)
    return facts


def test_every_code_of_the_tree_is_explained() -> None:
    # A code that is made in a new way would stand here without a sentence.
    text = "".join(path.read_text("utf-8") for path in (REPO / "kvtrace").rglob("*.py"))
    codes = set(re.findall(r"KVT-[A-Z]\d{3}\b", text))
    assert len(codes) > 150
    silent = [code for code in sorted(codes) if explain_code(code) is None]
    assert silent == []
    assert codes == set(error_codes())


def test_a_code_says_its_sentence_its_hint_and_its_exit_code() -> None:
    facts = said("kvt-a003")
    assert facts["title"] == ["the audit cannot be read"]
    assert facts["do"] == ["pass the `audit.json` that `kvtrace analyze` wrote"]
    assert facts["exit code"] == ["3: input that cannot be used"]
    assert facts["raised in"] == ["kvtrace/api/outputs.py"]


def test_a_code_of_a_look_up_says_what_is_looked_up() -> None:
    assert said("KVT-C021")["title"] == ["`{name}` is not a known LLM"]


def test_every_finding_has_its_threshold_action_and_check() -> None:
    for check in CHECKS:
        facts = said(check.id)
        assert facts["kind"] == ["finding"]
        assert check.threshold.source in facts["threshold"][0]
        assert facts["check"] == [check.production_check]
        assert facts["do"][0].startswith(check.action)


def test_completion_knows_every_finding_without_loading_them() -> None:
    assert sorted(finding_ids()) == sorted(check.id for check in CHECKS)
    assert api.names_to_explain("net_neg") == ["net_negative", "net_negative_hits"]
    code = (
        "import sys; from kvtrace import api; api.names_to_explain('x');"
        "print([one for one in ('polars', 'duckdb', 'numpy', 'plotly') if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO, check=True
    )
    assert done.stdout.strip() == "[]"


def test_options_are_explained_by_their_parts() -> None:
    ids = {*OPTIONS, *(one.option_id for one in recipes(4))}
    assert len(ids) > 100
    assert [one for one in sorted(ids) if explain_option(one) is None] == []
    facts = said("pool_ssd_rdma_bounce_400g_fp8_isolated")
    assert "DRAM and SSD" in facts["title"][0]
    assert "host bounce" in facts["title"][0]
    assert "400 Gb/s" in facts["title"][0]
    assert len(facts["with"]) == 2
    assert said("dram_idle_kv_routing")["with"] == said("hbm_only_kv_routing")["with"]
    assert explain_option("pool_dram") is None


def test_words_of_the_report_are_explained() -> None:
    assert set(glossary()) == set(GLOSSARY)
    assert said("Net-negative hit") == said("net_negative")
    assert said("prefix_hit_ratio")["kind"] == ["metric"]
    assert said("requests.ttft_ns")["null"] == ["the source does not say"]
    assert said("kv_dtype")["kind"] == ["setting"]
    assert said("reuse/summary")["kind"] == ["query"]
    assert all(said(name)["kind"] == ["verdict"] for name in OUTCOMES)
    assert said("net_negative_share")["used by"] == ["net_negative_hits"]
    assert "net_negative_share" in all_thresholds()


def test_a_name_of_several_things_has_several_explanations() -> None:
    kinds = [one.kind for one in api.explain("cached_tokens").explanations]
    assert kinds[0] == "metric"
    assert kinds.count("column") >= 1


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("net_negativ_hits", "net_negative_hits"),
        ("reuse/sumary", "reuse/summary"),
        ("KVT-A099", "KVT-A00"),
        ("pool_dram_tpc", "pool_dram_tcp"),
    ],
)
def test_a_typo_is_answered_with_close_names(typed: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        api.explain(typed)
    assert caught.value.code == "KVT-U086"
    assert meant in str(caught.value.hint)


def test_an_audit_adds_its_evidence(samples: Analysed) -> None:
    record: AuditRecord = samples.record
    found = record.findings[0]
    facts = said(found.id, audit=samples.folder)
    assert found.message in facts["found"][0]
    assert len(facts["evidence"]) >= len(found.evidence)
    absent = next(check.id for check in CHECKS if check.id not in {f.id for f in record.findings})
    assert said(absent, audit=samples.folder)["found"] == ["no: not in this audit"]
    option = record.options[-1]
    loads = f"{option.hit_cost.net_negative_hits:,} of {option.hit_cost.hits:,}"
    assert said(option.id, audit=samples.folder)["loads"][0].startswith(loads)
    assumed = record.assumptions[0]
    assert assumed.source in said(assumed.id, audit=samples.folder)["value"][0]
    note = record.data.validity[0]
    told = api.explain(note.code, audit=samples.folder).explanations[-1]
    assert (told.kind, told.in_audit[0].text) == ("note", note.message)
    verdict = said(record.verdict.outcome, audit=samples.folder)
    assert record.verdict.headline in verdict["verdict"][0]


def test_json_has_the_same_facts() -> None:
    (document,) = json.loads(api.explain("net_negative_hits").to_json())
    assert document["kind"] == "finding"
    assert {one["label"] for one in document["facts"]} >= {"asks", "threshold", "do", "check"}


def test_money_that_gates_know_is_explained_and_completed() -> None:
    for name in MONEY:
        assert said(name)["kind"] == ["number"]
        assert name in names_to_explain(name)


def test_a_hint_has_nothing_left_to_fill_in() -> None:
    assert not any("{" in one for one in said("KVT-U091")["do"])
