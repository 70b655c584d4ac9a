"""The page under axe-core: no serious or critical violation, light and dark, closed and open."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvtrace.report.html import render_html
from tests.report.chromium import Chromium
from tests.report.records import make_bare_record, make_record

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]


def _axe() -> str:
    """The pinned script from the cache; where nobody fetched it the test skips and says how."""
    spec = importlib.util.spec_from_file_location("fetch_axe", ROOT / "scripts" / "fetch_axe.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    script: str | None = module.cached()
    if script is None:
        pytest.skip("axe-core is not in the cache: run scripts/fetch_axe.py (npm and a network)")
    return script


@pytest.fixture(scope="module")
def axe() -> str:
    return _axe()


@pytest.fixture(scope="module")
def browser(axe: str) -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


def violations(browser: Chromium, axe: str) -> list[dict[str, Any]]:
    """What axe calls serious or critical, with the elements that it names."""
    browser.evaluate(axe)
    found = browser.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then((result) => JSON.stringify("
        "result.violations.map((one) => ({ id: one.id, impact: one.impact,"
        " nodes: one.nodes.slice(0, 5).map((node) => node.html.slice(0, 160)) }))))"
    )
    return [one for one in json.loads(found) if one["impact"] in ("serious", "critical")]


def page_of(folder: Path, html: str) -> Path:
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8")
    return path


def test_axe_would_see_a_violation(browser: Chromium, axe: str, tmp_path: Path) -> None:
    """The watch itself: a button without a name is reported."""
    html = render_html(make_bare_record(), lang="en").replace("<main", "<button></button><main", 1)
    browser.open(page_of(tmp_path, html))
    assert [one["id"] for one in violations(browser, axe)] == ["button-name"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
def test_page_has_no_serious_violation(
    browser: Chromium, axe: str, tmp_path: Path, dark: bool, opened: bool
) -> None:
    browser.open(page_of(tmp_path, render_html(make_record(), lang="en")), dark=dark)
    if opened:
        browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        browser.wait_for(
            "[...document.querySelectorAll('.chart')].every((c) => c.dataset.drawn === 'true')"
        )
    assert violations(browser, axe) == []


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_bare_and_narrow_page_has_no_serious_violation(
    browser: Chromium, axe: str, tmp_path: Path, lang: str
) -> None:
    html = render_html(make_bare_record(), lang="zh" if lang == "zh" else "en")
    browser.open(page_of(tmp_path, html), width=390)
    assert violations(browser, axe) == []
