"""The scripts that a newcomer and CI run: executable, valid, clear when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPO

SCRIPTS = (
    "scripts/demo",
    "scripts/test",
    "scripts/check",
    "scripts/lock",
    "scripts/example_report",
    ".ci/run",
)
BASH = shutil.which("bash") or "bash"


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_executable_strict_and_valid(name: str) -> None:
    path = REPO / name
    text = path.read_text(encoding="utf-8")
    assert os.access(path, os.X_OK)
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    subprocess.run([BASH, "-n", str(path)], check=True)


def test_ci_ends_in_exactly_the_test_script() -> None:
    lines = (REPO / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "exec scripts/test"


def shell(script: str, *, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a few lines with the scripts' shared functions loaded."""
    lines = ("set -euo pipefail", f"root={REPO}", '. "$root/scripts/_env.sh"', script)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    return subprocess.run(
        [BASH, "-c", "\n".join(lines)],
        env=environment if path is None else {**environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_machine_without_a_new_python_is_told_so(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = shell("python=$(find_python)", path=str(tmp_path))
    assert done.returncode == 2
    assert "needs Python 3.11 or newer" in done.stderr
    assert "hint: " in done.stderr


def test_fingerprint_follows_content_and_names_but_not_caches(tmp_path: Path) -> None:
    def fingerprint() -> str:
        done = shell(f'python=$(find_python); fingerprint "{tmp_path}"')
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "a").write_text("1")
    first = fingerprint()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert fingerprint() == first
    (tmp_path / "a").write_text("2")
    second = fingerprint()
    assert second != first
    (tmp_path / "a").rename(tmp_path / "b")
    assert fingerprint() not in {first, second}


def test_an_environment_of_the_same_lock_is_kept(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("")
    env = tmp_path / "env"
    env.mkdir()
    (env / "kept").write_text("")
    script = f"""
        python=$(find_python)
        fingerprint "{lock}" > "{env}/locks.sha256"
        sync_environment "{env}" "{lock}"
    """
    done = shell(script)
    assert done.returncode == 0, done.stderr
    assert (env / "kept").exists()
