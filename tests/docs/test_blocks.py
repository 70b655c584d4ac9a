"""Every code block of the documentation runs, or is read by the reader that it is meant for."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from kvtrace.config import resolve_settings
from kvtrace.cost.fleet.file import read_fleet_file
from kvtrace.ingest.mapping.parse import load_mapping
from kvtrace.scenarios.document import load_scenario
from kvtrace.scenarios.plan import read_plan
from kvtrace.synth.profilefile import load_profile, read_profile
from tests.docs.blocks import Block, all_blocks
from tests.docs.shell import Shell, expected_codes, joined
from tests.docs.workspace import build

MOST_NOT_RUN: Final = 20
"""Blocks that need a server, a cluster or a network. A new one is a decision, not a way out."""

BLOCKS: Final = all_blocks()
PAGES: Final = tuple(page for page, blocks in BLOCKS.items() if blocks)


def _hardware(shell: Shell, path: Path) -> None:
    _line(shell, f"kvtrace hardware --hardware {path}", "the hardware file")


def _fitted(shell: Shell, path: Path) -> None:
    whole = shell.folder / "whole.toml"
    part = path.read_text(encoding="utf-8")
    whole.write_text(f'gpu = "RTX-4090"\n{part}', encoding="utf-8")
    _hardware(shell, whole)


def _topology(shell: Shell, path: Path) -> None:
    scenario = shell.folder / "with-topology.toml"
    scenario.write_text(f'base = "pool_dram_rdma_direct"\ntopology = "{path}"\n', encoding="utf-8")
    _line(shell, "kvtrace replay reports/logs --scenario with-topology.toml", "the topology")


def _settings(shell: Shell, path: Path) -> None:
    resolve_settings(config=path, environment={}, cwd=shell.folder)


READERS: Final[dict[str, Callable[[Shell, Path], object]]] = {
    "fleet.toml": lambda _, path: read_fleet_file(path),
    "kvtrace.toml": _settings,
    "pyproject.toml": lambda _, path: tomllib.loads(path.read_text(encoding="utf-8")),
    "gateway.toml": lambda _, path: load_mapping(path),
    "map.toml": lambda _, path: load_mapping(path),
    "ours.toml": lambda _, path: read_plan(load_scenario(str(path))),
    "contention.toml": lambda _, path: read_plan(load_scenario(str(path))),
    "scheduler.toml": lambda _, path: read_plan(load_scenario(str(path))),
    "topology.toml": _topology,
    "gpu.toml": _hardware,
    "chat.toml": lambda _, path: load_profile(read_profile(path)),
    "part-of-fitted.toml": _fitted,
}
"""The reader of a TOML block, by the name of the file that its title says it is."""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The folder with what the pages name, and every file that a block of a page is."""
    made = build(tmp_path_factory.mktemp("docs"))
    for blocks in BLOCKS.values():
        _write_files(made.folder, blocks)
    return made


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run(page: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)
    shutil.rmtree(shell.folder / "reports" / "sample", ignore_errors=True)  # a tutorial is new
    _write_files(shell.folder, BLOCKS[page])
    names: dict[str, object] = {"__name__": "docs"}
    for block in BLOCKS[page]:
        if block.not_run is None:
            _check(block, shell, names)


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    not_run = [block for blocks in BLOCKS.values() for block in blocks if block.not_run]
    assert len(not_run) <= MOST_NOT_RUN, [block.place for block in not_run]
    assert all(len((block.not_run or "").split()) >= 2 for block in not_run)


def test_text_is_no_place_to_hide_a_command() -> None:
    hidden = [
        block.place
        for blocks in BLOCKS.values()
        for block in blocks
        if block.language == "text" and re.search(r"^\$|^kvtrace \w+ [^\[]*$", block.text, re.M)
    ]
    # usage lines of the command reference: `kvtrace VERB [OPTIONS] …`
    assert hidden == []


def _write_files(folder: Path, blocks: list[Block]) -> None:
    for block in blocks:
        if block.file is not None and block.file != "kvtrace.toml":
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


def _check(block: Block, shell: Shell, names: dict[str, object]) -> None:
    match block.language:
        case "bash":
            for line in joined(block.text):
                _line(shell, line, block.place)
        case "console":
            _session(shell, block)
        case "python":
            exec(compile(block.text, block.place, "exec"), names)
        case "toml":
            _toml(block, shell)
        case "sql":
            path = shell.folder / (block.file or "block.sql")
            path.write_text(block.text, encoding="utf-8")
            _line(shell, f"kvtrace query reports/logs {path}", block.place)
        case "json":
            json.loads(block.text)
        case "jsonl":
            assert [json.loads(line) for line in block.text.splitlines()]
        case "yaml":
            assert yaml.safe_load(block.text)
        case "csv":
            assert len({len(row) for row in csv.reader(block.text.splitlines())}) == 1
        case "text":
            pass
        case other:
            pytest.fail(f"{block.place}: no way to run a block of `{other}`")


def _toml(block: Block, shell: Shell) -> None:
    assert block.file is not None, f'{block.place}: say what it is: title="fleet.toml"'
    reader = READERS[Path(block.file).name]
    path = shell.folder / ("settings" if block.file == "kvtrace.toml" else "") / block.file
    path.parent.mkdir(exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    reader(shell, path)


def _line(shell: Shell, line: str, place: str) -> str:
    done = shell.run(line)
    assert done.code in expected_codes(line), f"{place}: {line}\n{done.out}{done.err}"
    return done.out


def _session(shell: Shell, block: Block) -> None:
    """A block of `$ command` lines, each followed by what it prints on stdout."""
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, _, printed = part.partition("\n")
        assert _line(shell, line, block.place) == printed.rstrip("\n") + "\n" * bool(printed), (
            f"{block.place}: `{line}` prints something else; run scripts/refresh_docs.py"
        )
