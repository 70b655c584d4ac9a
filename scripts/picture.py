#!/usr/bin/env python3
"""Take the picture of the README: the first screen of the report on sample_traces/, in Chromium.

`scripts/picture.py [REPORT.html]` takes it of a report that is there. Fonts differ between
machines, so that no test compares bytes; one looks at the size.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kvtrace import analyze  # noqa: E402
from tests.report import chromium  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1180, 820


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            report = Path(sys.argv[1]).resolve()
        else:
            analyze([ROOT / "sample_traces"], output=Path(folder))
            report = Path(folder) / "report.html"
        PICTURE.parent.mkdir(exist_ok=True)
        chromium.PATIENCE_S = 300.0  # a busy machine draws charts slowly; nobody waits here
        with chromium.Chromium() as browser:
            browser.open(report, width=WIDTH, height=HEIGHT)
            browser.screenshot(PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
