"""The page of the samples in Chinese: what is still English is cited, or a name."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from kvtrace.report.html import MAX_HTML_BYTES, render_bilingual, render_html
from tests.conftest import Analysed

INLINE = ("b", "br", "i", "strong")
SENTENCE = re.compile(r"(?:\b[A-Za-z][a-z'-]*[ ,]+){3,}[a-z]+\b")
"""Four English words in a row, the last ones without a capital."""
CITED = re.compile(r"\(?20\d\d|scripts/")
"""A source is cited in its own words, with its year, or the script that fits a constant."""


class Prose(HTMLParser):
    """Texts that stand together on the page, without code."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._text = ""
        self._hidden = 0
        self.feed(html)
        self._end()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "code"):
            self._hidden += 1
            self._text += " `` "
        elif tag not in INLINE:
            self._end()

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "code"):
            self._hidden -= 1
        elif tag not in INLINE:
            self._end()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._text += data

    def _end(self) -> None:
        if self._text.strip("` \n"):
            self.texts.append(self._text.strip())
        self._text = ""


def test_chinese_page_of_the_samples_holds_hardly_any_english_sentence(samples: Analysed) -> None:
    texts = Prose(render_html(samples.record, lang="zh")).texts
    english = [text for text in texts if SENTENCE.search(text)]
    uncited = sorted({text for text in english if not CITED.search(text)})
    assert len(texts) > 5_000
    assert len(english) / len(texts) < 0.01, uncited
    assert len(uncited) <= 25, uncited


def test_english_page_would_be_found_out(samples: Analysed) -> None:
    texts = Prose(render_html(samples.record, lang="en")).texts
    assert sum(SENTENCE.search(text) is not None for text in texts) / len(texts) > 0.02


def test_both_languages_of_the_samples_fit_the_limit(samples: Analysed) -> None:
    assert len(render_bilingual(samples.record, lang="en").encode()) < MAX_HTML_BYTES
