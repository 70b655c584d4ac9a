"""Both languages in one page: what differs is numbered, what is the same stands once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtrace.report.bilingual import merge_languages
from kvtrace.report.html import MAX_HTML_BYTES, render_bilingual, render_html
from kvtrace.report.texts import Lang
from tests.report.chromium import Chromium, Events
from tests.report.records import make_bare_record, make_record
from tests.report.test_html import poisoned_record


def test_words_that_differ_are_numbered_and_kept_once() -> None:
    ours = '<main><p>same</p><p>one</p><p class="a">one</p><br></main>'
    other = '<main><p>same</p><p>eins</p><p class="a">eins</p><br></main>'
    page, words = merge_languages(ours, other)
    assert page == (
        '<main><p>same</p><p data-l="0">one</p><p class="a" data-l="0">one</p><br></main>'
    )
    assert json.loads(words) == {"blocks": {}, "texts": ["eins"]}


def test_element_with_other_elements_in_it_is_replaced_as_a_whole() -> None:
    page, words = merge_languages(
        "<p>use <code>x</code></p>", "<p><code>x</code> benutzen<b>!</b></p>"
    )
    assert page == '<p data-l="0">use <code>x</code></p>'
    assert json.loads(words)["texts"] == ["<code>x</code> benutzen<b>!</b>"]


def test_attributes_that_differ_are_numbered_with_their_plain_text() -> None:
    page, words = merge_languages(
        '<a title="a &amp; b" href="#x">k</a>', '<a title="c &amp; d" href="#x">k</a>'
    )
    assert page == '<a title="a &amp; b" href="#x" data-la="title:0">k</a>'
    assert json.loads(words)["texts"] == ["c & d"]


def block(data: str) -> str:
    return f'<div><script type="application/json" id="f">{data}</script></div>'


def test_figure_has_a_table_of_its_words() -> None:
    page, words = merge_languages(
        block('{"x":["a","b","a"],"n":1}'), block('{"x":["A","b","A"],"n":1}')
    )
    assert page == block('{"x":["a","b","a"],"n":1}')
    assert json.loads(words)["blocks"] == {"f": {"heads": {"a": "A"}, "map": {}}}


def test_figure_says_what_stands_before_a_colon_once() -> None:
    ours, other = '["a: 1","a: 2","a","b: c"]', '["A: 1","A: 2","A","B：C"]'
    _, words = merge_languages(block(ours), block(other))
    assert json.loads(words)["blocks"] == {"f": {"heads": {"a": "A"}, "map": {"b: c": "B：C"}}}


def test_text_that_stays_keeps_its_head_out_of_the_table() -> None:
    _, words = merge_languages(block('["a: 1","a","a: 9"]'), block('["A: 1","A","a: 9"]'))
    wanted = {"heads": {}, "map": {"a": "A", "a: 1": "A: 1"}}
    assert json.loads(words)["blocks"] == {"f": wanted}


@pytest.mark.parametrize("other", ['["A","B"]', '["a","B"]', '["A"]'], ids=["two", "kept", "less"])
def test_figure_whose_words_no_table_says_is_there_twice(other: str) -> None:
    _, words = merge_languages(block('["a","a"]'), block(other))
    assert json.loads(words)["blocks"] == {"f": {"whole": json.loads(other)}}


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        ("<main><section>a</section></main>", "<main><p>a</p></main>"),
        ("<p>a", "<p>a</p>"),
        ("<p>a</p></p>", "<p>a</p>"),
    ],
    ids=["another page", "not closed", "closed twice"],
)
def test_pages_that_are_not_the_same_are_refused(ours: str, other: str) -> None:
    with pytest.raises(ValueError, match=r"element|same page"):
        merge_languages(ours, other)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_its_marks_the_page_is_that_of_its_language(lang: Lang) -> None:
    record = make_record()
    page = re.sub(r' data-la?="[^"]*"', "", render_bilingual(record, lang=lang))
    page = re.sub(r'<script type="application/json" id="other">.*?</script>\n', "", page)
    assert page == render_html(record, lang=lang)


def test_both_languages_cost_less_than_half_of_another_page() -> None:
    record = make_record()
    both = len(render_bilingual(record, lang="en").encode())
    one = len(render_html(record, lang="en").encode())
    scripts = 1_500_000  # plotly.js, which is there once
    assert both < MAX_HTML_BYTES
    assert both - one < (one - scripts) / 2


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


def write(folder: Path, html: str) -> Path:
    path = folder / "report.html"
    path.write_bytes(html.encode("utf-8"))
    return path


WORDS = "document.getElementById('main').innerText"
CLICK = "document.getElementById('language').click()"
AXES = (
    "[...document.querySelectorAll('.chart .xtitle, .chart .legendtext')].map(t => t.textContent)"
)


def as_script(texts: list[str]) -> str:
    """A script string that holds the JSON of `texts` as the browser writes it."""
    return json.dumps(json.dumps(texts, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.browser
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_switch_shows_the_page_of_the_other_language(
    browser: Chromium, tmp_path: Path, lang: Lang
) -> None:
    other: Lang = "zh" if lang == "en" else "en"
    record = make_record()
    browser.open(write(tmp_path, render_html(record, lang=other)))
    wanted, wanted_axes = browser.evaluate(WORDS), browser.evaluate(AXES)
    browser.open(write(tmp_path, render_bilingual(record, lang=lang)))
    browser.evaluate("localStorage.clear()")
    browser.open(tmp_path / "report.html")
    before, axes = browser.evaluate(WORDS), browser.evaluate(AXES)
    browser.evaluate(CLICK)
    browser.wait_for(f"JSON.stringify({AXES}) === {as_script(wanted_axes)}")
    assert browser.evaluate(WORDS) == wanted != before
    assert browser.evaluate("document.documentElement.lang").startswith(other)
    browser.evaluate(CLICK)
    browser.wait_for(f"JSON.stringify({AXES}) === {as_script(axes)}")
    assert browser.evaluate(WORDS) == before
    assert browser.events == Events()


@pytest.mark.browser
def test_choice_is_remembered_and_the_address_wins(browser: Chromium, tmp_path: Path) -> None:
    path = write(tmp_path, render_bilingual(make_bare_record(), lang="en"))
    lang = "document.documentElement.lang"
    browser.open(path)
    browser.evaluate("localStorage.clear()")
    browser.open(path)
    assert browser.evaluate(lang) == "en"
    browser.evaluate(CLICK)
    browser.open(path)
    assert browser.evaluate(lang) == "zh-Hans"
    browser.evaluate("location.hash = '#lang=en'")
    browser.wait_for(f"{lang} === 'en'")
    browser.evaluate("localStorage.clear()")


@pytest.mark.browser
def test_hostile_text_does_nothing_in_either_language(browser: Chromium, tmp_path: Path) -> None:
    browser.open(write(tmp_path, render_bilingual(poisoned_record(), lang="en")))
    browser.evaluate(CLICK)
    assert browser.events == Events()
    assert browser.evaluate("document.querySelectorAll('img, .chart a').length") == 0
