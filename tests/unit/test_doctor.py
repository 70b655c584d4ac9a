"""`kvtrace doctor`: what it finds is what is there, and bad settings are a finding."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.api import doctoring
from tests.conftest import REPO

NAME = re.compile(r"([A-Za-z0-9_-]+)>=([0-9.]+)")


def test_the_libraries_are_those_of_the_project() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert dict(NAME.match(one).groups() for one in project["dependencies"]) == doctoring.CORE  # type: ignore[union-attr,misc]
    extras = {
        extra: {NAME.match(one)[1] for one in names}  # type: ignore[index]
        for extra, names in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")  # for those who work on kvtrace
    }
    assert {extra: set(names) for extra, (names, _) in doctoring.EXTRAS.items()} == extras


def test_here_nothing_is_broken_and_it_is_told_twice_alike() -> None:
    found = api.doctor()
    assert [one for one in found.checks if one.standing == "broken"] == []
    document = json.loads(found.to_json())
    assert document["is_broken"] is False
    sections = {one["section"] for one in document["checks"]}
    assert {"environment", "libraries", "extras", "machine", "configuration"} <= sections
    assert found.lines()[-1].endswith("next: kvtrace analyze logs/")


def test_each_setting_stands_with_its_origin_and_secrets_stay_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "team.toml"
    config.write_text('llm = "Llama-3.1-8B"\nsalt = "very-secret-words"\n')
    monkeypatch.setenv("KVTRACE_TP", "4")
    found = api.doctor(config=config)
    stated = {one.name: (one.value, one.origin) for one in found.settings}
    assert stated["llm"] == ("Llama-3.1-8B", str(config))
    assert stated["tp"] == (4, "environment")
    assert stated["lang"] == ("en", "default")
    assert "very-secret-words" not in found.to_json() + "\n".join(found.lines())


def test_a_setting_that_cannot_be_used_is_broken_and_named(tmp_path: Path) -> None:
    config = tmp_path / "team.toml"
    config.write_text("tp = 900\n")
    found = api.doctor(config=config)
    assert found.is_broken
    [bad] = [one for one in found.checks if one.standing == "broken"]
    assert bad.name == "KVT-S003"
    assert "`tp`" in bad.said
    assert found.lines()[-1] == "1 broken: see BAD above"


def test_a_library_that_is_absent_or_too_old_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"polars": None, "duckdb": "1.9.9", "xxhash": "4.10.0"}
    monkeypatch.setattr(doctoring, "_version", lambda name: versions.get(name, "999"))
    found = {one.name: one for one in api.doctor().checks}
    assert (found["polars"].standing, found["polars"].said) == ("broken", "not installed")
    assert found["duckdb"].said == "1.9.9, needs 2.0.1 or newer"
    assert "duckdb>=2.0.1" in found["duckdb"].hint
    assert found["xxhash"].standing == "ok"  # 4.10 is newer than 4.1


def test_a_library_that_kills_its_process_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashes.py").write_text("import os; os._exit(3)\n")
    (tmp_path / "raises.py").write_text("raise ImportError('no such symbol')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    faults = doctoring._load(("json", "crashes", "raises", "csv"))
    assert set(faults) == {"crashes", "raises"}
    assert "no such symbol" in faults["raises"]
