"""Fixtures that all tests share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from kvtrace import api
from kvtrace.audit.record import AuditRecord

REPO = Path(__file__).resolve().parents[1]
SHARED = REPO.parent / "shared"

# The same examples on every machine, so that a failure is never a flicker;
# HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of handed material; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared material beside the checkout ({SHARED.name}/)")
    return SHARED


@dataclass(frozen=True)
class Analysed:
    """An output folder, and the record in it."""

    folder: Path
    record: AuditRecord


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """The samples, analysed once for all tests that only read; who writes makes a copy."""
    folder = tmp_path_factory.mktemp("analysed") / "samples"
    return Analysed(folder, api.analyze([REPO / "sample_traces"], output=folder).record)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Times are compared on request only: a busy machine would make them fail."""
    parser.addoption("--perf", action="store_true", help="run the tests that compare times")
    parser.addoption("--peers", action="store_true", help="run the tests against other tools")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `perf` or `peers` out unless `--perf` or `--peers` asks for them."""
    left_out = [name for name in ("perf", "peers") if not config.getoption(f"--{name}")]
    unasked = [item for item in items if any(map(item.get_closest_marker, left_out))]
    if unasked:
        items[:] = [item for item in items if item not in unasked]
        config.hook.pytest_deselected(items=unasked)
