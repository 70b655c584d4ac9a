"""The page as text: policy, escaping, sections, size, determinism."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest

from kvtrace.audit.record import AuditRecord, Outcome, ReplayWindow, Table
from kvtrace.report.html import MAX_HTML_BYTES, json_block, marked, render_html
from kvtrace.report.sections import SECTIONS
from kvtrace.schema.manifest import Note
from tests.report.records import make_bare_record, make_file, make_record, quantity

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}\u2028%{x}"
ALLOWED_TAGS = {"script", "style", "meta"}


class Page(HTMLParser):
    """Tags, attributes and inline texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[tuple[str, dict[str, str | None], str]] = []
        self.text = ""
        self._open: tuple[str, dict[str, str | None]] | None = None
        self._raw = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open, self._raw = (tag, dict(attrs)), ""

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._raw += data
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        if self._open is not None and tag == self._open[0]:
            self.inline.append((*self._open, self._raw))
            self._open = None

    def blocks(self) -> list[str]:
        """JSON data blocks."""
        return [raw for _, attrs, raw in self.inline if attrs.get("type") == "application/json"]


@pytest.fixture(scope="module")
def full() -> str:
    return render_html(make_record(), lang="en")


def policy_of(html: str) -> str:
    match = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert match is not None
    return match.group(1).replace("&#39;", "'")


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_policy_allows_exactly_the_inline_texts(full: str) -> None:
    page = Page(full)
    directives = dict(part.strip().split(" ", 1) for part in policy_of(full).split(";"))
    scripts = [raw for tag, attrs, raw in page.inline if tag == "script" and "type" not in attrs]
    styles = [raw for tag, _, raw in page.inline if tag == "style"]
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].split() == [digest(script) for script in scripts]
    assert directives["style-src"].split() == [*(digest(style) for style in styles), digest("")]
    assert directives["style-src-attr"] == "'unsafe-inline'"
    assert len(scripts) == 3
    assert len(styles) == 1


def test_policy_stands_before_everything_that_it_governs(full: str) -> None:
    assert full.index("Content-Security-Policy") < full.index("<style>") < full.index("<script")


def test_nothing_is_fetched_and_no_handler_is_inline(full: str) -> None:
    for tag, attrs in Page(full).tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not [name for name in attrs if name.startswith("on")], tag
        assert "src" not in attrs
        href = attrs.get("href") or "#"
        assert href.startswith("#"), href


def poison(value: object) -> object:
    """`value` with every free text in it hostile; closed sets and keys stay."""
    if isinstance(value, dict):
        keep = {"outcome", "confidence", "severity", "kind", "action_kind", "evidence_grade"}
        keep |= {"basis", "role", "clock", "compression", "unit", "binds", "columns", "units", "id"}
        keep |= {"load_basis", "state", "says", "what", "why_option"}
        return {k: v if k in keep else poison(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poison(one) for one in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


def poisoned_record() -> AuditRecord:
    raw = msgspec.to_builtins(make_record())
    dirty = poison({k: v for k, v in raw.items() if k != "tables"})
    assert isinstance(dirty, dict)
    dirty["tables"] = {
        f"{key}{HOSTILE if key.startswith('extra') else ''}": {
            **poison(table),  # type: ignore[dict-item]
            "id": table["id"],
            "columns": table["columns"],
            "units": table["units"],
        }
        for key, table in raw["tables"].items()
    }
    dirty["data"]["files"][0]["ignored_by_reason"] = {HOSTILE: 3}
    dirty["data"]["files"][0]["rejected_by_reason"] = {HOSTILE: 1}
    dirty["reproduce"]["settings"] = {HOSTILE: HOSTILE}
    dirty["reproduce"]["inputs"] = {HOSTILE: HOSTILE}
    for option in dirty["options"]:
        option["binds"] = f"link:{HOSTILE}"
        option["id"] = f"{option['id']}{HOSTILE}"
    for finding in dirty["findings"]:
        finding["id"] = f"{finding['id']}{HOSTILE}"
    return msgspec.convert(dirty, AuditRecord)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_hostile_text_in_every_field_stays_text(lang: str) -> None:
    html = render_html(poisoned_record(), lang="zh" if lang == "zh" else "en")
    page = Page(html)
    scripts = [one for one in page.inline if one[0] == "script" and "type" not in one[1]]
    assert len(scripts) == 3
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert "alert(1)" in page.text
    assert "{{7*7}}" in page.text
    for block in page.blocks():
        assert "<" not in block
        assert "\u2028" not in block
        json.loads(block)


def test_hostile_option_titles_are_not_markup_inside_charts() -> None:
    page = Page(render_html(poisoned_record(), lang="en"))
    charts = [json.loads(block) for block in page.blocks()]
    names = [str(y) for c in charts for trace in c.get("data", []) for y in trace.get("y", [])]
    dirty = [name for name in names if "script" in name]
    assert dirty
    assert all("<script" not in name and "&lt;" in name for name in dirty)


def test_undecodable_file_names_can_be_encoded() -> None:
    record = make_record()
    record.data.files = [make_file("caf\udce9.jsonl")]
    html = render_html(record, lang="en")
    assert rb"caf\udce9.jsonl" in html.encode("utf-8")


def test_same_record_gives_the_same_bytes(full: str) -> None:
    assert render_html(make_record(), lang="en") == full


def test_sections_come_in_reading_order(full: str) -> None:
    places = [full.index(f'id="{section}"') for section in SECTIONS]
    assert places == sorted(places)


def test_ids_are_unique_and_links_lead_somewhere(full: str) -> None:
    page = Page(full)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [(attrs.get("href") or "")[1:] for tag, attrs in page.tags if tag == "a"]
    assert set(targets) <= set(ids)


def test_every_table_of_the_record_is_on_the_page(full: str) -> None:
    record = make_record()
    empty = {id for id, table in record.tables.items() if not table.rows}
    for id in record.tables.keys() - empty:
        assert f'id="table-{id.replace("/", "-").replace("_", "-")}"' in full, id
    assert "quality/ttft_above_e2e: no offending row" in Page(full).text


def test_ratios_stand_beside_their_numerator_and_denominator(full: str) -> None:
    text = Page(full).text.replace("\u00a0", " ")
    assert "37.36 %" in text
    assert "54,098,411 of 144,793,823 tokens" in text
    assert "105,710 of 288,500 blocks" in text


def test_conservation_is_checked_not_assumed() -> None:
    record = make_record()
    assert "✓ holds" in Page(render_html(record, lang="en")).text
    record.data.files[0].rows_in += 1
    assert "✕ does not add up" in Page(render_html(record, lang="en")).text


def test_severity_is_a_word_and_a_shape_not_only_a_colour(full: str) -> None:
    badges = re.findall(r'class="badge"><svg[^>]*>.*?</svg>\s*(\w+)', full, re.DOTALL)
    assert {"Critical", "Warning", "Note"} <= set(badges)


def test_modelled_figures_say_so_in_their_title(full: str) -> None:
    for title in ("All options", "Mean TTFT by option, and what it is made of"):
        assert re.search(rf"{title}\s*<span class=\"tag modelled\">modelled</span>", full), title


def test_unconfirmed_assumptions_are_highlighted(full: str) -> None:
    assert full.count('<tr class="unconfirmed">') == 2
    assert full.count('<li class="unconfirmed">') == 2
    assert "⚠ unconfirmed" in full


def test_cut_tables_say_how_long_they_were(full: str) -> None:
    assert "The first 2 of 9,000 rows" in Page(full).text.replace("\u00a0", " ")


def test_generated_at_is_shown_only_when_it_is_recorded(full: str) -> None:
    assert "Generated" not in Page(full).text
    record = make_record()
    record.generated_at = "2026-01-02T03:04:05Z"
    assert "2026-01-02T03:04:05Z" in render_html(record, lang="en")


def test_bare_record_gives_reasons_instead_of_empty_charts() -> None:
    html = render_html(make_bare_record(), lang="en")
    page = Page(html)
    assert not [attrs for _, attrs in page.tags if (attrs.get("class") or "").startswith("chart ")]
    assert 'class="chart"' not in html
    assert html.count('class="missing"') >= 8
    assert "the source has token counts but no block identity" in page.text
    assert "--kv-events-config" in page.text


def test_unknown_ratio_is_a_word_never_zero() -> None:
    text = Page(render_html(make_bare_record(), lang="en")).text
    reuse = text[text.index("How much of the Prefill is reusable") :]
    reuse = reuse[: reuse.index("How large the KV of a request is")]
    assert "Reuse is unknown" in reuse
    assert "%" not in reuse


def test_one_unknown_ratio_among_known_ones_is_a_word() -> None:
    text = Page(render_html(make_record(), lang="en")).text
    observed = text[text.index("Cached, as the engine reported") :][:60]
    assert "unknown" in observed


def test_p99_below_its_count_is_withheld() -> None:
    record = make_record()
    for option in record.options:
        option.ttft_s.p99 = None
    text = Page(render_html(record, lang="en")).text
    assert "withheld" in text
    assert "P99 is withheld where too few requests carry it" in text


def test_page_has_its_language(full: str) -> None:
    assert '<html lang="en">' in full
    assert '<html lang="zh-Hans">' in render_html(make_record(), lang="zh")


def huge_table(id: str) -> Table:
    columns = [f"column_{i}" for i in range(30)]
    return Table(
        id=id,
        title=id,
        query=id,
        columns=columns,
        units=["name"] * 30,
        meanings=[HOSTILE * 4] * 30,
        rows=[["x" * 300] * 30 for _ in range(2_000)],
    )


def test_page_stays_under_4_mb_for_a_huge_record() -> None:
    record = make_record()
    record.tables |= {f"reuse/huge_{i}": huge_table(f"reuse/huge_{i}") for i in range(4)}
    record.data.files = [make_file("d" * 3_000 + str(i), file_id=i) for i in range(1_000)]
    record.data.notes = [Note(code=f"n{i}", message="m" * 9_000) for i in range(1_000)]
    html = render_html(record, lang="en")
    assert len(html.encode("utf-8")) <= MAX_HTML_BYTES
    assert "of 2,000 rows" in html.replace("\u00a0", " ")
    assert "of 1,000 rows" in html.replace("\u00a0", " ")


def test_full_page_is_far_below_the_limit(full: str) -> None:
    assert len(full.encode("utf-8")) < 2_500_000


def test_data_blocks_cannot_end_their_element() -> None:
    block = json_block(json.dumps({"a": "</script>&\u2028"}, ensure_ascii=False))
    assert "<" not in block
    assert json.loads(block) == {"a": "</script>&\u2028"}


def test_backticks_become_code_and_markup_stays_text() -> None:
    assert marked("set `--x <y>` & go") == "set <code>--x &lt;y&gt;</code> &amp; go"
    assert marked("a lone ` mark") == "a lone ` mark"


def text_of(record: AuditRecord, *, zh: bool = False) -> str:
    return Page(render_html(record, lang="zh" if zh else "en")).text.replace("\u00a0", " ")


def test_page_is_titled_by_the_input_that_was_given() -> None:
    record = make_record()
    record.reproduce.command = "kvtrace analyze 'my logs' --llm X"
    assert re.search(r"<title>[^<]* · my logs</title>", render_html(record, lang="en"))
    record.reproduce.command = "kvtrace analyze 'no end"
    assert re.search(r"<title>[^<]*conversation[^<]*</title>", render_html(record, lang="en"))


@pytest.mark.parametrize(
    ("outcome", "heading"),
    [("does_not_pay", "What would change this"), ("pays_only_if", "Only if")],
)
def test_conditions_are_headed_by_what_they_are(outcome: Outcome, heading: str) -> None:
    record = make_record()
    record.verdict.outcome = outcome
    record.verdict.conditions = ["9 times the load"]
    assert re.search(rf"<h3>{heading}</h3><ul class=\"points\"><li>9 times", html_of(record))


def html_of(record: AuditRecord) -> str:
    return render_html(record, lang="en")


def test_replayed_window_and_its_ceiling_stand_beside_the_hit_ratios() -> None:
    record = make_record()
    record.replay_window = ReplayWindow(
        requests=2_345,
        of_requests=12_031,
        span_s=3_600.0,
        is_whole_trace=False,
        is_peak_hour=True,
        prompt_tokens=30_000_000,
        reusable_tokens=11_400_000,
        reusable_ratio_tokens=0.38,
    )
    text = text_of(record)
    assert "the peak hour, 2,345 of 12,031 requests; --depth full replays all" in text
    assert "at most 38 %" in text
    assert "that starts empty" in text
    assert "warmed" not in text
    record.replay_window.counts_history = True
    record.replay_window.warmup_requests = 1_510
    text = text_of(record)
    assert "Caches warmed by 1,510 earlier requests." in text
    assert "an unlimited cache that holds what came before would hit 38 %" in text
    record.replay_window.is_whole_trace = True
    record.replay_window.requests = 12_031
    assert "Replayed: the whole trace, 12,031 requests." in text_of(record)


def test_origin_of_an_assumption_is_a_badge() -> None:
    record = make_record()
    record.assumptions[0].origin_state = "estimated"
    assert '<span class="tag who estimated">our estimate</span>' in html_of(record)


def test_titles_do_not_repeat_what_the_badge_says(full: str) -> None:
    heads = re.findall(r"<summary>([^<]*) <span class=\"tag", full)
    assert heads
    assert not [head for head in heads if head.endswith(("(modelled)", "(measured)"))]


def test_tables_that_know_nothing_of_their_topic_are_left_out() -> None:
    record = make_record()
    record.tables["latency/summary"] = Table(
        id="latency/summary",
        title="Latency",
        query="latency/summary",
        columns=["requests", "ttft_p50_ms"],
        units=["requests", "ms"],
        meanings=["", ""],
        rows=[[12_031, None]],
    )
    assert 'id="table-latency-summary"' not in html_of(record)
    record.tables["latency/summary"].rows[0][1] = 12.0
    assert 'id="table-latency-summary"' in html_of(record)


def row_of(html: str, id: str) -> str:
    """Text of one row of the table of options."""
    row = re.search(rf'<th scope="row" data-exact="{id}">.*?</tr>', html, re.DOTALL)
    assert row is not None
    return " ".join(Page(row.group()).text.replace("\u00a0", " ").split())


def test_an_option_says_whether_it_carries_the_load_and_keeps_the_slo() -> None:
    record = make_record()
    option = record.options[0]
    assert "✓ yes load 0.65" in row_of(html_of(record), option.id)
    details = html_of(record).split('id="table-option-details"')[1].split("</table>")[0]
    assert "TTFT p99 1.62 s against 1.62 s" in details.replace("\u00a0", " ")
    assert f"{option.title}: TTFT" not in details
    option.is_feasible, option.keeps_slo, option.instances_at_slo = False, False, None
    row = row_of(html_of(record), option.id)
    assert row.count("✕ no") == 2
    assert "✓" not in row
    assert "✕ no mean load 0.65, but its queue does not clear" in row
    option.offered_load = 1.2
    assert "✕ no load 1.20" in row_of(html_of(record), option.id)
    assert "takes more than 4" in row
    option.keeps_slo = None
    assert "takes more than" not in row_of(html_of(record), option.id)


def test_times_of_an_overloaded_option_are_marked_and_explained() -> None:
    record = make_record()
    assert "num void" not in html_of(record)
    assert "how long the window was" not in text_of(record)
    record.options[0].is_feasible = False
    assert html_of(record).count('class="num void"') == 4
    assert "how long the window was" in text_of(record)


def test_instances_saved_at_the_slo_stand_with_their_interval() -> None:
    record = make_record()
    option = record.options[-1]
    assert "unknown3 of 4 suffice" in row_of(html_of(record), option.id)
    option.whole_instances_saved = quantity(
        "whole_instances_saved", 1.0, "instances", low=1.0, high=1.5, source="by a replay on 3"
    )
    assert "11 – 1.53 of 4 suffice" in row_of(html_of(record), option.id)
    details = html_of(record).split('id="table-option-details"')[1].split("</table>")[0]
    assert "by a replay on 3" in details


def test_cells_of_two_lines_copy_as_their_value() -> None:
    record = make_record()
    option = record.options[2]
    option.cost = quantity("cost", 9_800.0, "USD", low=1_000.0, high=20_000.0)
    row = html_of(record).split(f'"row" data-exact="{option.id}"')[1].split("</tr>")[0]
    assert re.findall(r'<td[^>]* data-exact="([^"]*)"', row) == [
        "true",
        "true",
        "",
        "9800.0",
        "4310.0",
    ]
