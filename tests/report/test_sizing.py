"""The sizing section and the scopes: which sentence stands for which numbers, in both languages."""

from __future__ import annotations

import re
from typing import Literal

import pytest

from kvtrace.audit.record import AuditRecord, Cell
from kvtrace.audit.sharing.record import SharingScope
from kvtrace.audit.sizing.record import (
    BreakEvenContention,
    BreakEvenPath,
    BreakEvenReuse,
    ResidencyRule,
    Sizing,
)
from kvtrace.report.format import NBSP
from kvtrace.report.html import render_html
from kvtrace.report.questions import sizing_parts
from kvtrace.report.questions.part import Part
from kvtrace.report.questions.scopes import scopes
from kvtrace.report.texts import load_texts
from tests.report.records import make_bare_record, make_record, make_table, quantity

SIZE_COLUMNS = {
    "medium": "name",
    "usd_per_gb_month": "USD/GB-month",
    "held_bytes": "bytes",
    "best_bytes": "bytes",
    "best_hit_tokens": "tokens",
    "value_usd_per_month": "USD/month",
    "cost_usd_per_month": "USD/month",
    "knee_bytes": "bytes",
    "knee_hit_tokens": "tokens",
    "all_bytes": "bytes",
    "all_hit_tokens": "tokens",
}


def part_of(record: AuditRecord, id: str, lang: Literal["en", "zh"] = "en") -> Part:
    return {part.id: part for part in sizing_parts(record, load_texts(lang))}[id]


def said(part: Part) -> str:
    return " ".join((*part.sentences, *part.points)).replace(NBSP, " ")


def sized(best: float | None, price: float | None = 0.5) -> AuditRecord:
    """A record whose pool is worth its price up to `best`."""
    record = make_record()
    row: list[Cell] = [
        "pool_dram",
        price,
        2.0**33,
        best,
        700,
        90.0,
        40.0,
        2.0**31,
        600,
        2.0**34,
        900,
    ]
    record.tables["sizing/pool_size"] = make_table(
        "sizing/pool_size", "Sizes", SIZE_COLUMNS, [row], query="sizing/pool_size"
    )
    return record


def pointed(**changes: object) -> AuditRecord:
    """A record with one break-even point of each kind; `changes` are of the reuse."""
    record = make_record()
    reuse = BreakEvenReuse(
        option="pool_dram_tcp",
        title="DRAM pool over TCP",
        rival="Idle host DRAM",
        needed=quantity("needed", 0.25, "ratio", low=0.1, high=0.6),
        present_ratio_tokens=0.05,
        ceiling_ratio_tokens=0.3,
        load_times=5.0,
        value=quantity("value", 200.0, "USD/month"),
        cost=quantity("cost", 1000.0, "USD/month"),
    )
    for name, value in changes.items():
        setattr(reuse, name, value)
    record.sizing = Sizing(
        numbers=[],
        residency=[],
        reuse=[reuse],
        paths=[_path("pool_tcp", move_s=2.0), _path("pool_rdma_direct", move_s=0.1)],
        contention=[_contention(3), _contention(0)],
    )
    return record


def _path(name: str, *, move_s: float) -> BreakEvenPath:
    return BreakEvenPath(
        path=name,
        title=name.replace("_", " "),
        needed=quantity(f"needed:{name}", 2e9, "bytes/s"),
        given_bytes_per_s=1e9,
        prompt_tokens=1000,
        cached_tokens=800,
        move_s=move_s,
        recompute_s=1.0,
    )


def _contention(flows: int) -> BreakEvenContention:
    return BreakEvenContention(
        option=f"pool_{flows}",
        title=f"pool with {flows}",
        link="ports",
        flows=flows,
        mean_in_flight=0.5,
        peak_in_flight=4.0,
    )


def test_the_best_size_stands_with_its_worth_and_its_cost() -> None:
    record = sized(2.0**32)
    sizes = [quantity("nearly_all_bytes", 2.0**31, "bytes")]
    record.sizing = Sizing(numbers=sizes, residency=[], reuse=[], paths=[], contention=[])
    text = said(part_of(record, "pool_size"))
    assert "Recommended size of DRAM: 4 GiB, behind 8 GiB" in text
    assert "GPU time of $90.00/month for $40.00/month" in text
    # The one that keeps nearly all hits is another size, and no size adds two points.
    assert (
        "Size that keeps nearly all hits (all but two points of the prompt tokens): 2 GiB" in text
    )
    assert "no size of a pool adds two points" in text
    record.sizing.numbers.append(quantity("smallest_that_adds_bytes", 2.0**30, "bytes"))
    text = said(part_of(record, "pool_size"))
    assert "Smallest pool that adds hits" in text
    assert "no size of a pool" not in text
    assert text.count("Recommended size") == 1


def test_no_size_and_no_price_are_two_sentences() -> None:
    assert "Recommended size of DRAM: none" in said(part_of(sized(0.0), "pool_size"))
    assert "is unknown" in said(part_of(sized(None, None), "pool_size"))


def test_a_need_above_all_tokens_is_said_to_be_out_of_reach() -> None:
    text = said(part_of(pointed(), "break_even"))
    assert "from 25 % (10 % – 60 %) of the prompt tokens beyond it on" in text
    assert "5 × of this load" in text.replace("5.00", "5")
    never = said(part_of(pointed(needed=quantity("needed", 3.0, "ratio")), "break_even"))
    assert "more than there are" in never


def test_a_slow_path_and_a_lost_hit_are_said_so() -> None:
    record = pointed()
    record.verdict.option = "pool_3"
    text = said(part_of(record, "break_even"))
    assert "is not worth moving over pool tcp" in text
    assert "is worth moving over pool rdma direct above 2 GB/s per GPU" in text.replace("2.00", "2")
    assert "pool with 3: up to 3 loads" in text
    assert "pool with 0: the median hit is slower than recomputing even alone" in text


def test_an_endless_tier_and_a_rule_with_its_interval() -> None:
    record = make_record()
    rules: list[ResidencyRule] = [
        ResidencyRule(tier="a", title="idle", price=None, residency=None, is_endless=True),
        ResidencyRule(
            tier="b",
            title="bought",
            price=None,
            residency=quantity("until", 60.0, "s", low=30.0, high=90.0),
            within_ratio_tokens=0.5,
            kept_bytes=2.0**30,
        ),
        ResidencyRule(tier="c", title="unpriced", price=None, residency=None),
    ]
    record.sizing = Sizing(numbers=[], residency=rules, reuse=[], paths=[], contention=[])
    record.tables["sizing/tier_rules"] = make_table(
        "sizing/tier_rules", "Rules", {"tier": "name"}, [["a"]], query=None
    )
    part = part_of(record, "residency")
    assert len(part.points) == 2
    assert "idle: as long as it fits" in said(part)
    assert "bought: within 60.0 s (30.0 s – 90.0 s). Of the reused tokens 50 %" in said(part)


def test_a_full_link_is_named() -> None:
    record = make_record()
    columns = {
        "option_id": "name",
        "link_id": "name",
        "usable_bytes_per_s": "bytes/s",
        "p99_bytes_per_s": "bytes/s",
        "mean_utilisation": "ratio",
        "p99_utilisation": "ratio",
        "peak_utilisation": "ratio",
        "limit": "ratio",
        "is_within": "flag",
    }
    rows: list[list[Cell]] = [
        ["a", "pcie", 1e10, 1e9, 0.1, 0.1, 0.1, 0.7, True],
        ["b", "nic", 1e9, 9e8, 0.5, 0.9, 0.95, 0.7, False],
    ]
    record.tables["sizing/link_budget"] = make_table(
        "sizing/link_budget", "Links", columns, rows, query=None
    )
    assert "nic of b is above 70 % in its P99 minute: 90 %" in said(part_of(record, "links"))
    record.tables["sizing/link_budget"].rows.pop()
    assert "Every link of every option stays below 70 %" in said(part_of(record, "links"))


def scoped() -> AuditRecord:
    record = make_record()
    columns = {"scope": "name", "lost_tokens": "tokens", "known_requests": "requests"}
    columns |= {"reusable_tokens": "tokens", "lost_ratio_tokens": "ratio"}
    record.tables["sharing/scopes"] = make_table(
        "sharing/scopes", "Scopes", columns, [["tenant", 40, 9, 60, 0.4]], query="sharing/scopes"
    )
    known = {"known_requests": 9, "requests": 10, "reaching_requests": 2}
    record.sharing = [
        SharingScope(
            scope="tenant",
            groups=3,
            reusable_tokens=60,
            lost_tokens=40,
            lost_ratio_tokens=0.4,
            isolation=quantity("isolation", 12.0, "USD/month", low=4.0, high=30.0),
            **known,  # type: ignore[arg-type]
        ),
        SharingScope(
            scope="user",
            groups=None,
            known_requests=0,
            requests=10,
            reusable_tokens=None,
            lost_tokens=None,
            lost_ratio_tokens=None,
            reaching_requests=None,
            unknown_reason="nobody says",
            flag="`--mapping`",
        ),
    ]
    return record


def test_isolation_has_its_price_and_an_unknown_scope_its_flag() -> None:
    part = scopes(scoped(), load_texts("en"))
    text = said(part)
    assert "3 tenants (9 requests name one)" in text
    assert "gives up 40 tokens (40 % of what" in text
    assert "worth $12.00/month ($4.00/month – $30.00/month)" in text
    assert "Users: nobody says. To know it: `--mapping`." in text


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_sentence_is_filled_in_both_languages(lang: Literal["en", "zh"]) -> None:
    records = [sized(2.0**32), sized(0.0), sized(None, None), pointed(), scoped()]
    for record in records:
        html = render_html(record, lang=lang)
        section = html[html.index('<section class="part" id="economics">') :]
        assert not re.search(r"\{[a-z_]+\}", section[: section.index("</section>")])


def test_an_old_record_says_what_is_missing_in_one_line() -> None:
    parts = sizing_parts(make_bare_record(), load_texts("en"))
    assert [part.id for part in parts] == ["unanswered"]
    assert scopes(make_bare_record(), load_texts("en")).missing is not None
