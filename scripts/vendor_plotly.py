#!/usr/bin/env python3
"""Vendor the plotly.js cartesian bundle: `vendor_plotly.py TARBALL`, the tarball from `npm pack`.

Get the tarball with `npm pack plotly.js-cartesian-dist-min@4.1.1` (the plotly.js that plotly.py 7.1
speaks). The bundle draws bars, scatters, boxes, histograms and heat maps; it has no sankey,
waterfall or table traces. Writes the bundle, its MIT licence and the sha256 that a test checks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "plotly.js-cartesian-dist-min"
VERSION: Final = "4.1.1"
ASSETS: Final = Path(__file__).resolve().parents[1] / "kvtrace" / "report" / "assets"


def read_member(archive: tarfile.TarFile, name: str) -> bytes:
    """Bytes of one regular file of the package."""
    member = archive.extractfile(f"package/{name}")
    if member is None:
        raise SystemExit(f"{name} is not a file of the package")
    return member.read()


def vendor(tarball: Path) -> str:
    """Write the assets from the tarball; returns the sha256 of the bundle."""
    with tarfile.open(tarball) as archive:
        manifest = json.loads(read_member(archive, "package.json"))
        if (manifest["name"], manifest["version"]) != (PACKAGE, VERSION):
            raise SystemExit(f"expected {PACKAGE} {VERSION}, got {manifest['name']}")
        bundle = read_member(archive, "plotly-cartesian.min.js")
        licence = read_member(archive, "LICENSE")
    if any(mark in bundle for mark in (b"</script", b"<!--", b"\r", b"\0")):
        raise SystemExit("the bundle cannot stand inside a script element as it is")
    digest = hashlib.sha256(bundle).hexdigest()
    (ASSETS / "plotly-cartesian.min.js").write_bytes(bundle)
    (ASSETS / "plotly-cartesian.LICENSE.txt").write_bytes(licence)
    (ASSETS / "plotly-cartesian.sha256").write_text(f"{digest}  plotly-cartesian.min.js\n")
    return digest


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tarball", type=Path)
    sys.stdout.write(f"{vendor(parser.parse_args().tarball)}\n")


if __name__ == "__main__":
    main()
