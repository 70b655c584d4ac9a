"""The committed example is what this checkout makes of the samples.

Byte for byte on one kind of processor; on another the last digits of sums may differ.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO, Analysed

EXAMPLE = REPO / "reports" / "example"
FILES = ("audit.json", "report.html")
AGAIN = "scripts/example_report makes it again, where the change is meant"


NUMBER = re.compile(r"(?<![\w+/])-?\d+\.\d+(?:e[-+]?\d+)?")


def is_same(one: str, other: str) -> bool:
    """Whether all is equal but the last digits of fractions."""
    if one == other:
        return True
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    return NUMBER.sub("#", one) == NUMBER.sub("#", other) and all(
        math.isclose(float(left), float(right), rel_tol=1e-9) for left, right in numbers
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the script makes, with settings of this machine that it must not take."""
    target = tmp_path_factory.mktemp("example")
    done = subprocess.run(
        [REPO / "scripts" / "example_report", target],
        env={**os.environ, "PYTHON_OF_KVTRACE": sys.executable, "KVTRACE_LANG": "zh"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(target)
    return target


def test_the_script_makes_a_report_of_the_samples_alone(made: Path, samples: Analysed) -> None:
    assert sorted(one.name for one in made.iterdir()) == list(FILES)
    audit = json.loads((made / "audit.json").read_bytes())
    assert audit["data"]["dataset_digest"] == samples.record.data.dataset_digest
    assert audit["generated_at"] is None
    page = (made / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) <= 4_000_000
    for text in (page, (made / "audit.json").read_text(encoding="utf-8")):
        assert str(REPO) not in text
        assert str(made) not in text


def test_the_committed_example_is_what_the_script_makes(made: Path) -> None:
    committed = {one.name: one.read_text(encoding="utf-8") for one in EXAMPLE.glob("*")}
    assert set(committed) == set(FILES)
    for name, data in committed.items():
        again = (made / name).read_text(encoding="utf-8")
        assert is_same(data, again), f"{name} differs: {AGAIN}"


def test_only_last_digits_may_differ() -> None:
    assert is_same('{"a": 0.12345678901234, "b": "x"}', '{"a": 0.12345678901233, "b": "x"}')
    assert not is_same('{"a": 0.1234}', '{"a": 0.1235}')
    assert not is_same('{"a": 1}', '{"a": 2}')
    assert not is_same('{"a": 0.5, "b": 0.5}', '{"a": 0.5}')
