"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
SHARED = REPO.parent / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of handed material; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared material beside the checkout ({SHARED.name}/)")
    return SHARED
