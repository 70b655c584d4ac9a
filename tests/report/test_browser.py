"""The page in headless Chromium: nothing blocked, nothing fetched, everything drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtrace.report.html import render_html
from tests.report.chromium import Chromium, Events
from tests.report.records import make_bare_record, make_record
from tests.report.test_html import poisoned_record

pytestmark = pytest.mark.browser

CLEAN = Events()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("full"), render_html(make_record(), lang="en"))


def write(folder: Path, html: str) -> Path:
    path = folder / "report.html"
    path.write_bytes(html.encode("utf-8"))
    return path


def test_browser_tests_would_see_a_violation_and_a_request(
    browser: Chromium, tmp_path: Path, page: Path
) -> None:
    """The watch itself: a page that breaks the policy and fetches is reported."""
    html = page.read_text(encoding="utf-8")
    html = html.replace("<body>", "<body><script>document.title = 'x'</script>")
    html = html.replace("default-src 'none'", "default-src 'none'; img-src *")
    html = html.replace("default-src &#39;none&#39;", "default-src &#39;none&#39;; img-src *")
    html = html.replace("<main", "<img src='nowhere.png'><main")
    browser.open(write(tmp_path, html))
    assert browser.events.violations
    assert browser.events.requests
    assert browser.events.console


@pytest.mark.parametrize("width", [1440, 820, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_is_clean_and_fits_the_window(
    browser: Chromium, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    assert browser.events == CLEAN
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


_OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
_SHOWN = (
    "[...document.querySelectorAll('.chart')]"
    ".filter(c => c.closest('details:not([open])') === null)"
)


def open_all(browser: Chromium) -> None:
    """Open every fold and wait for the figures behind them."""
    browser.evaluate(_OPEN_ALL)
    browser.wait_for(f"{_SHOWN}.every(c => c.dataset.drawn === 'true')")


def test_a_closed_fold_draws_its_figures_when_it_opens(browser: Chromium, page: Path) -> None:
    browser.open(page)
    before = "document.querySelectorAll('details:not([open]) .chart[data-drawn]').length"
    assert browser.evaluate(before) == 0
    fold = "document.getElementById('q-net-negative')"
    browser.evaluate(f"{fold}.open = true")
    browser.wait_for(f"{fold}.querySelector('.chart').dataset.drawn === 'true'")
    assert browser.evaluate(f"{fold}.querySelector('.chart svg').clientWidth") > 300


def test_every_chart_is_drawn(browser: Chromium, page: Path) -> None:
    browser.open(page)
    open_all(browser)
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.chart')].map(c =>"
        " c.querySelectorAll('.trace, .point, .bars path').length)"
    )
    assert len(drawn) == 17
    assert min(drawn) > 0
    assert browser.events == CLEAN


def test_charts_follow_the_theme(browser: Chromium, page: Path) -> None:
    ink = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    browser.open(page)
    light = browser.evaluate(ink)
    browser.evaluate("document.getElementById('theme').click()")
    browser.wait_for(f"{ink} !== {light!r}")
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"
    assert browser.events == CLEAN


def test_hostile_text_does_nothing(browser: Chromium, tmp_path: Path) -> None:
    browser.open(write(tmp_path, render_html(poisoned_record(), lang="en")))
    assert browser.events == CLEAN
    assert browser.evaluate("document.querySelectorAll('img, .chart a').length") == 0


def test_bare_record_is_clean_and_draws_nothing(browser: Chromium, tmp_path: Path) -> None:
    browser.open(write(tmp_path, render_html(make_bare_record(), lang="zh")))
    assert browser.events == CLEAN
    assert browser.evaluate("document.querySelectorAll('.chart').length") == 0
    assert browser.evaluate("document.documentElement.lang") == "zh-Hans"


def test_a_link_to_a_finding_opens_it(browser: Chromium, page: Path) -> None:
    browser.open(page)
    first = browser.evaluate("document.querySelector('.finding').id")
    assert browser.evaluate(f"document.getElementById('{first}').open") is False
    browser.evaluate(f"window.location.hash = '{first}'")
    browser.wait_for(f"document.getElementById('{first}').open")
    top = f"document.getElementById('{first}').getBoundingClientRect().top"
    browser.wait_for(f"Math.abs({top}) < 200")


def test_requests_are_filtered_by_kind_and_length(browser: Chromium, page: Path) -> None:
    browser.open(page)
    shown = "[...document.querySelectorAll('#drill-list > li')].map((row) => !row.hidden)"

    def choose(name: str, value: str) -> list[bool]:
        browser.evaluate(
            f"(() => {{ const one = document.querySelector('#drill-filter [name={name}]');"
            f" one.value = '{value}';"
            " one.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )
        found: list[bool] = browser.evaluate(shown)
        return found

    assert browser.evaluate("document.getElementById('drill-filter').hidden") is False
    assert browser.evaluate(shown) == [True, True]
    assert choose("kind", "slow") == [False, True]
    count = browser.evaluate("document.getElementById('drill-count').textContent")
    assert count.startswith("1 of 2")
    assert choose("bucket", "4096") == [False, False]
    assert choose("kind", "") == [True, False]


def test_verdict_is_on_the_first_screen(browser: Chromium, page: Path) -> None:
    browser.open(page, width=1440, height=900)
    assert (
        browser.evaluate("document.getElementById('verdict').getBoundingClientRect().bottom") < 900
    )


_CHART_WIDTHS = f"{_SHOWN}.map(c => [c.querySelector('svg').width.baseVal.value, c.clientWidth])"


def test_verdict_prints_on_one_page(browser: Chromium, page: Path) -> None:
    """A4 less its margins, at 96 px an inch: 184 mm by 269 mm."""
    browser.open(page, width=695, height=1016)
    browser.call("Emulation.setEmulatedMedia", media="print")
    bottom = browser.evaluate("document.getElementById('verdict').getBoundingClientRect().bottom")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert bottom < 1016


def test_charts_keep_their_height_and_follow_the_width(browser: Chromium, page: Path) -> None:
    heights = f"{_SHOWN}.map(c => c.clientHeight)"
    browser.open(page, width=1440)
    before = browser.evaluate(heights)
    browser.resize(width=900, height=700)
    browser.wait_for(f"{_CHART_WIDTHS}.every(([svg, box]) => svg === box)")
    assert browser.evaluate(heights) == before
    assert min(before) >= 150


def test_print_opens_the_folds_but_not_the_tables_behind_figures_and_restores_the_page(
    browser: Chromium, page: Path, tmp_path: Path
) -> None:
    browser.open(page, dark=True)
    browser.evaluate(
        "window.addEventListener('beforeprint', () => { window.seen = ["
        "document.documentElement.dataset.theme,"
        " document.querySelectorAll('details:not([open]):not(.data)').length,"
        " document.querySelectorAll('details.data[open]').length,"
        f" Math.max(...{_CHART_WIDTHS}.map(([svg]) => svg))]; }})"
    )
    browser.print_pdf(tmp_path / "report.pdf")
    assert browser.evaluate("window.seen") == ["light", 0, 0, 640]
    browser.wait_for("document.querySelectorAll('details[open]').length === 0")
    assert browser.evaluate("document.documentElement.dataset.theme ?? 'auto'") == "auto"
    browser.wait_for(f"{_CHART_WIDTHS}.every(([svg, box]) => svg === box)")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert browser.events == CLEAN


def test_text_has_enough_contrast_in_both_themes(browser: Chromium, page: Path) -> None:
    """WCAG AA: 4.5 to 1 for every pair of text and ground that the style names."""
    for dark in (False, True):
        browser.open(page, dark=dark)
        low = browser.evaluate(_CONTRAST)
        assert low == [], low


_CONTRAST = """(() => {
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  };
  const light = (name) => {
    const [r, g, b] = rgb(name);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const pairs = [];
  for (const text of ['--ink', '--soft', '--muted', '--accent'])
    for (const ground of ['--bg', '--paper', '--sunk']) pairs.push([text, ground]);
  for (const tone of ['good', 'warn', 'bad', 'note'])
    for (const ground of [`--${tone}-soft`, '--paper']) pairs.push([`--${tone}`, ground]);
  pairs.push(['--accent-ink', '--accent'], ['--accent', '--accent-soft'],
    ['--muted', '--warn-soft'], ['--muted', '--note-soft'], ['--muted', '--bad-soft']);
  return pairs.map(([a, b]) => [a, b, ratio(a, b)]).filter(([, , r]) => r < 4.5);
})()"""


def test_tables_copy_as_csv_with_exact_values(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    browser.evaluate("document.querySelector('.copy[data-target=table-hit-curve]').click()")
    browser.wait_for("window.copied !== undefined")
    lines = browser.evaluate("window.copied").splitlines()
    assert lines[0] == "capacity_blocks,capacity_bytes,hit_ratio_tokens,hit_ratio_blocks"
    assert lines[1].startswith("1000,167772160000.0,0.0453")
