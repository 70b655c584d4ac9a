"""Who may import what: layers, one door per heavy library, nothing heavy at start-up."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.arch.source import Import, imports, sources
from tests.conftest import REPO

DOORS = {
    "duckdb": ("kvtrace.duckdb_session",),
    "plotly": ("kvtrace.report.charts",),
    "ray": ("kvtrace.exec.ray",),
    "typer": ("kvtrace.cli",),
    "rich": ("kvtrace.cli",),
}
INSIDE_FUNCTIONS_ONLY = ("scipy", "numba", "plotly")
HEAVY = ("polars", "duckdb", "scipy", "plotly", "numba", "numpy", "llvmlite", "jinja2")


def every_import() -> list[Import]:
    return [found for source in sources() for found in imports(source)]


def test_import_contracts_hold() -> None:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_replay_reads_no_figure_of_its_own() -> None:
    readers = [
        str(one)
        for one in every_import()
        if one.source.module.startswith("kvtrace.replay.")
        and one.name in ("read_toml", "read_csv", "read_constant")
    ]
    assert readers == []


def test_the_walk_finds_imports_inside_functions_too() -> None:
    found = {
        (one.root, one.inside)
        for one in every_import()
        if one.source.module == "kvtrace.synth.samples"
    }
    assert ("backports", False) in found
    assert any(one.inside for one in every_import())


@pytest.mark.parametrize("library", sorted(DOORS))
def test_a_heavy_library_has_one_door(library: str) -> None:
    strangers = [
        str(one)
        for one in every_import()
        if one.root == library
        and not any(
            one.source.module == door or one.source.module.startswith(f"{door}.")
            for door in DOORS[library]
        )
    ]
    assert strangers == []


@pytest.mark.parametrize("library", INSIDE_FUNCTIONS_ONLY)
def test_a_slow_library_is_imported_inside_functions(library: str) -> None:
    at_import_time = [str(one) for one in every_import() if one.root == library and not one.inside]
    assert at_import_time == []


def test_no_private_name_crosses_a_package() -> None:
    crossings = []
    for one in every_import():
        if one.root != "kvtrace" or one.module == "kvtrace":
            continue
        private = [
            part
            for part in (*one.module.split("."), one.name or "")
            if part.startswith("_") and not part.startswith("__")
        ]
        package = ".".join(one.module.split(".")[:2])
        if private and package != one.source.package:
            crossings.append(f"{one} ({', '.join(private)})")
    assert crossings == []


def test_imports_are_absolute() -> None:
    relative = [str(one) for one in every_import() if getattr(one.node, "level", 0)]
    assert relative == []


PROBE = """
import sys
from kvtrace.__main__ import main
sys.argv = ["kvtrace", "--help"]
try:
    main()
except SystemExit as done:
    assert done.code in (0, None), done.code
print("LOADED", *sorted(set(sys.modules) & set(sys.stdin.read().split())))
"""


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=REPO,
        input=" ".join((*HEAVY, "typer")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "analyze" in done.stdout
    # typer is there, which shows that the probe sees what was imported.
    assert done.stdout.splitlines()[-1] == "LOADED typer"


def test_help_takes_less_than_300_ms_of_processor_time() -> None:
    def cpu_s() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    took = []
    for _ in range(5):
        before = cpu_s()
        subprocess.run(
            [sys.executable, "-m", "kvtrace", "--help"], cwd=REPO, capture_output=True, check=True
        )
        took.append(cpu_s() - before)
    assert min(took) < 0.3
