"""The site: every page is in the navigation, every link leads somewhere, nothing is fetched."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import REPO
from tests.docs.blocks import pages
from tests.report.chromium import Chromium, find_chromium


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    sys.path.insert(0, str(REPO / "scripts"))
    yield importlib.import_module("stage_docs")
    sys.path.remove(str(REPO / "scripts"))


def _targets(entries: object) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        for value in entries.values():
            yield from _targets(value)
    elif isinstance(entries, list):
        for entry in entries:
            yield from _targets(entry)


def test_every_page_stands_once_in_the_navigation(script: ModuleType) -> None:
    config = tomllib.loads((REPO / "zensical.toml").read_text(encoding="utf-8"))
    listed = list(_targets(config["project"]["nav"]))
    docs = [path.relative_to(REPO / "docs").as_posix() for path in (REPO / "docs").rglob("*.md")]
    wanted = sorted([*docs, *script.ROOT_PAGES.values()])
    assert sorted(listed) == [page for page in wanted if not page.startswith("model/plots/")]


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(REPO).as_posix())
def test_every_page_has_a_title_and_its_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), f"{path}: {target}"


def test_the_picture_of_the_report_is_a_small_png() -> None:
    picture = (REPO / "docs" / "images" / "report.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) <= 300_000, "scripts/picture.py takes it"


def test_links_follow_their_pages_into_the_site(script: ModuleType) -> None:
    def staged(text: str) -> str:
        moved: str = script.staged_text(text, "docs/model/cost.md")
        return moved

    assert staged("[a](../replay.md#tiers)") == "[a](../replay.md#tiers)"
    assert staged("[a](../../ARCHITECTURE.md)") == "[a](../architecture.md)"
    assert staged("[a](../../pyproject.toml)") == "a"
    assert staged("![a](plots/x.svg) [b](https://example.com/)") == (
        "![a](plots/x.svg) [b](https://example.com/)"
    )
    with pytest.raises(SystemExit, match=r"there is no docs/nowhere\.md"):
        staged("[a](../nowhere.md)")


def test_what_comes_from_another_host_is_found(script: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "a" / "index.html"
    page.parent.mkdir()
    page.write_text(
        '<link rel="canonical" href="https://example.com/"><a href="https://example.com/">x</a>'
        '<script src="../own.js"></script><img src=//cdn.example.com/i.png>'
        '<script src="https://unpkg.com/iframe-worker/shim"></script>'
    )
    script.own_worker(tmp_path)
    assert '<script src="../assets/worker.js">' in page.read_text(encoding="utf-8")
    assert script.fetched(tmp_path) == ["a/index.html: //cdn.example.com/i.png"]


@pytest.fixture(scope="module")
def site(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built as `scripts/docs` builds it."""
    tmp_path = tmp_path_factory.mktemp("site")
    script.stage(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    script.own_worker(tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.slow
def test_the_site_builds_strictly_and_fetches_nothing(script: ModuleType, site: Path) -> None:
    assert script.fetched(site) == []
    assert '"location":"faq.html"' in (site / "search.json").read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.slow
def test_search_works_from_the_file_system_without_a_network(site: Path) -> None:
    find_chromium()
    with Chromium() as browser:
        page = site / "capture" / "vllm.html"
        browser.call("Page.navigate", url=page.as_uri())
        browser.wait_for("typeof __index === 'object' && document.readyState === 'complete'")
        browser.evaluate(
            "{ const worker = new Worker(document.querySelector('#__config').textContent"
            '.match(/[^"]*workers.search[^"]*/)[0]);'
            " worker.onmessage = (event) => { window.answer = event.data.type; };"
            " worker.postMessage({ type: 0, data: __index }); }"
        )
        browser.wait_for("window.answer === 1")  # the index is read; 4 would be a failure
        assert [
            url for url in browser.events.requests if not url.startswith(("file:", "data:"))
        ] == []
