#!/usr/bin/env python3
"""Lay the pages of the site into a folder: docs/, and the pages that stand at the root.

Links between pages follow them; a link to anything else of the repository becomes its text.
`--check SITE` says whether a page of a built site would fetch anything from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "sample_traces/README.md": "sample-traces.md",
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|link)\b[^>]*?"
    r"\b(?:src|href)=[\"']?(?P<from>[^\"'> ]+)"
)
SHIM = re.compile(r"https://unpkg\.com/iframe-worker/shim")
"""A script of another host that the generator asks for, so that search works from files."""
CANONICAL = re.compile(r"<link\b[^>]*rel=[\"']?canonical[^>]*>")


def home_of(path: str) -> str | None:
    """Where a file of the repository stands in the site; None: nowhere."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path == "docs/model":
        return "model/cost.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def staged_text(text: str, source: str) -> str:
    """The page with its links as they have to be in the site."""
    here = home_of(source)
    assert here is not None

    def moved(link: re.Match[str]) -> str:
        target, anchor = link["target"], link["anchor"] or ""
        if re.match(r"[a-z]+:", target):
            return link[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        if not (ROOT / path).exists():
            raise SystemExit(f"{source}: there is no {path}")
        home = home_of(path)
        if home is None:
            return link["text"]
        return f"[{link['text']}]({os.path.relpath(home, os.path.dirname(here) or '.')}{anchor})"

    return LINK.sub(moved, text)


def stage(out: Path) -> None:
    """Fill `out` with the configuration and all pages."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "docs")
    shutil.copy(ROOT / "zensical.toml", out / "zensical.toml")
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    for source in (*pages, *ROOT_PAGES):
        text = (ROOT / source).read_text(encoding="utf-8")
        (out / "docs" / str(home_of(source))).write_text(
            staged_text(text, source), encoding="utf-8"
        )


def fetched(site: Path) -> list[str]:
    """What the pages of a built site would load from another host: page and address."""
    found = []
    for page in sorted(site.rglob("*.html")):
        text = CANONICAL.sub("", page.read_text(encoding="utf-8"))
        found += [
            f"{page.relative_to(site)}: {load['from']}"
            for load in LOADS.finditer(text)
            if re.match(r"(?:[a-z]+:)?//", load["from"])
        ]
    return found


def own_worker(site: Path) -> None:
    """Let search use the worker of docs/assets instead of that of another host."""
    for page in sorted(site.rglob("*.html")):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(SHIM.sub(f"{up}assets/worker.js", text), encoding="utf-8")


def main() -> None:
    """Lay the pages, or finish and check a site."""
    if sys.argv[1] == "--check":
        own_worker(Path(sys.argv[2]))
        outside = fetched(Path(sys.argv[2]))
        if outside:
            raise SystemExit("loaded from another host:\n" + "\n".join(outside))
        return
    stage(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
