"""The names of the package are verbs, also where a part of it has the same name."""

from __future__ import annotations

import importlib

import pytest

import kvtrace
from kvtrace import api


@pytest.mark.parametrize("name", ["ingest", "query", "replay", "report"])
def test_a_verb_stays_one_when_the_part_of_its_name_is_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = importlib.import_module(f"kvtrace.{name}")
    assert getattr(kvtrace, name) is part  # so that `kvtrace.ingest.pipeline` is found, too
    monkeypatch.setattr(api, name, lambda *given, **named: (given, named))
    assert getattr(kvtrace, name)("logs/", output="out") == (("logs/",), {"output": "out"})
