"""The wheel carries what the code reads, and every way to install it finds its queries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPO

pytestmark = pytest.mark.slow

ASIDE = ("README.md", "LICENSE", "pyproject.toml", ".gitignore")
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
}
PROBE = """
import kvtrace
from kvtrace.query.catalog import load_catalog
print(kvtrace.__file__)
print(len(load_catalog().names()))
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=CLEAN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def packaged(checkout: Path, folder: str) -> set[str]:
    """Files under a folder of the checkout that a person would expect in the wheel."""
    return {
        path.relative_to(checkout).as_posix()
        for path in (checkout / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build reads, copied, so that nothing is written into the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ASIDE:
        shutil.copy(REPO / name, copy / name)
    for name in ("kvtrace", "queries"):
        shutil.copytree(REPO / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=checkout)
    (found,) = out.glob("kvtrace-*.whl")
    return found


def test_wheel_holds_the_package_and_its_data(wheel: Path, checkout: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = packaged(checkout, "kvtrace")
    assert any(name.startswith("kvtrace/report/templates/") for name in wanted)
    assert any(name.startswith("kvtrace/report/assets/") for name in wanted)
    assert any(name.startswith("kvtrace/cost/data/") for name in wanted)
    assert any(name.endswith(".schema.json") for name in wanted)
    assert wanted - names == set()


def test_wheel_holds_every_query(wheel: Path, checkout: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    queries = packaged(checkout, "queries")
    assert any(name.endswith(".sql") for name in queries)
    assert {f"kvtrace/{name}" for name in queries} - names == set()


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"kvtrace"}
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in names)


def test_wheel_is_pure_and_carries_licences(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def environment(folder: Path) -> Path:
    """A bare environment that borrows the installed dependencies, but not kvtrace."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder))
    borrowed = Path(str(site).strip()) / "borrowed.pth"
    borrowed.write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return python


def install(python: Path, *what: str | Path, cwd: Path) -> None:
    run(
        sys.executable,
        *("-m", "pip", "--python", python, "install", "--quiet", "--no-input", "--no-index"),
        *("--no-deps", "--no-build-isolation", "--force-reinstall"),
        *what,
        cwd=cwd,
    )


@pytest.mark.parametrize("way", ["wheel", "folder", "editable"])
def test_every_way_to_install_finds_the_queries(
    way: str, wheel: Path, checkout: Path, tmp_path: Path
) -> None:
    python = environment(tmp_path / "env")
    what = {"wheel": (wheel,), "folder": (checkout,), "editable": ("--editable", checkout)}[way]
    install(python, *what, cwd=tmp_path)

    where, count = run(python, "-c", PROBE, cwd=tmp_path).split()
    assert Path(where).is_relative_to(checkout if way == "editable" else tmp_path / "env")
    assert int(count) == len(list((checkout / "queries").rglob("*.sql")))

    assert "analyze" in run(tmp_path / "env" / "bin" / "kvtrace", "--help", cwd=tmp_path)
