"""A code names one fault: it stands in one module, so that looking it up finds its place."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.conftest import REPO

_CODE = re.compile(r'"(KVT-[A-Z]\d{3})"')


def test_every_error_code_is_raised_in_one_module() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path in sorted((REPO / "kvtrace").rglob("*.py")):
        for code in _CODE.findall(path.read_text(encoding="utf-8")):
            places[code].add(path.relative_to(REPO).as_posix())
    assert len(places) > 30
    assert {code: sorted(found) for code, found in places.items() if len(found) > 1} == {}
