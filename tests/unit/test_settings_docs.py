"""docs/settings.md names every setting and every key of a fleet file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from kvtrace.config import SETTINGS, resolve_settings
from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.fleet import default_fleet, load_fleet
from kvtrace.cost.fleet.keys import FLAT, fleet_keys
from tests.conftest import REPO

DOCS = (REPO / "docs" / "settings.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml[^\n]*\n(.*?)```", DOCS, re.DOTALL)


def test_every_setting_is_documented() -> None:
    assert [spec.name for spec in SETTINGS if f"| `{spec.name}` |" not in DOCS] == []


def test_the_settings_example_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    (tmp_path / "kvtrace.toml").write_text(EXAMPLES[0])
    settings = resolve_settings(environment={}, cwd=tmp_path)
    assert settings.integer("tp") == 8
    assert settings["llm"].origin == "kvtrace.toml"


def test_the_fleet_example_names_every_key_and_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(EXAMPLES[1])
    example = tomllib.loads(EXAMPLES[1])
    named = {f"{section}.{key}" for section, keys in example.items() for key in keys}
    keys = {key for key in fleet_keys() if not key.startswith("prices.")}
    # An instance's room is in the remark beside that of a node.
    assert {one for one in named if "prices." not in one} == keys - {
        "instances.dram_free",
        "instances.dram_room",
        "instances.nvme_free",
    }
    assert all(f"`{key}`" in DOCS for key in FLAT)
    base = default_fleet(build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=8), 4)
    fleet = load_fleet(path, base)
    assert fleet.pool_nic_bytes_per_s.value == 43e9
    assert fleet.pool_dram_bytes.kind == "given"
