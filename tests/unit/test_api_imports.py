"""What a verb of `kvtrace.api` loads, and that its names are the verbs."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import kvtrace.api as api


def test_a_replay_loads_neither_readers_nor_renderers() -> None:
    """They would take longer to load than a short trace takes to replay."""
    code = "import sys, kvtrace.api as api; api.replay; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "kvtrace.replay.engine" in loaded
    wrong = ("kvtrace.ingest", "kvtrace.report.html", "kvtrace.synth", "scipy", "numba", "plotly")
    assert [name for name in loaded if name.startswith(wrong)] == []


def test_no_module_hides_the_verb_of_its_name() -> None:
    """`from kvtrace.api import x` is a module where somebody has imported `kvtrace.api.x`."""
    homes = {name: getattr(api, name).__module__ for name in api.__all__}
    assert all(home.startswith("kvtrace.") for home in homes.values())
    assert not {home.removeprefix("kvtrace.api.") for home in homes.values()} & set(api.__all__)
    assert import_module("kvtrace.api.ledgers").ledger is api.ledger
