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


@pytest.mark.slow
def test_the_site_builds_strictly_and_fetches_nothing(script: ModuleType, tmp_path: Path) -> None:
    script.stage(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    script.own_worker(site)
    assert script.fetched(site) == []
    assert '"location":"faq.html"' in (site / "search.json").read_text(encoding="utf-8")
