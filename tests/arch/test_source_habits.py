"""Habits that a reader relies on: docstrings, sorted exports, sizes, words that stay out."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator

import pytest

import kvtrace
from tests.arch.source import Source, sources
from tests.conftest import REPO

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public_definitions(source: Source) -> Iterator[Documented]:
    """Public functions and classes of a module, and public methods of those classes."""
    for node in source.tree.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    child
                    for child in node.body
                    if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not child.name.startswith("_")
                )


def exports(source: Source) -> list[str] | None:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            names = ast.literal_eval(node.value)
            assert isinstance(names, list | tuple)
            return [str(name) for name in names]
    return None


def sort_key(name: str) -> tuple[int, list[str | int]]:
    """Constants, then classes, then the rest, numbers by value: the order that ruff keeps."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    parts: list[str | int] = [
        int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)
    ]
    return kind, parts


def is_overload(node: Documented) -> bool:
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def test_every_public_definition_has_a_docstring() -> None:
    silent = [
        f"{source.where(node)} {node.name}"
        for source in sources()
        for node in public_definitions(source)
        if ast.get_docstring(node) is None and not is_overload(node)
    ]
    assert silent == []


def test_every_module_has_a_docstring() -> None:
    silent = [
        source.module
        for source in sources()
        if source.tree.body and ast.get_docstring(source.tree) is None
    ]
    assert silent == []


def test_exports_are_sorted_and_distinct() -> None:
    unsorted = [
        source.module
        for source in sources()
        if (names := exports(source)) is not None and names != sorted(set(names), key=sort_key)
    ]
    assert unsorted == []


def test_exports_are_defined_where_they_are_exported() -> None:
    missing = []
    for source in sources():
        defined = {name for node in ast.walk(source.tree) for name in _bound(node)}
        missing += [
            f"{source.module}.{name}" for name in exports(source) or [] if name not in defined
        ]
    assert missing == []


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, Documented):
        return [node.name]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return []


def test_modules_stay_short() -> None:
    long = [
        f"{source.module}: {source.line_count} lines"
        for source in sources()
        if source.line_count > MODULE_LINES_MAX
    ]
    assert long == []


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        text = node.body[0]
        lines -= (text.end_lineno or text.lineno) - text.lineno + 1
    return lines


KERNELS = {"arc_hits", "ranked_hits", "s3_fifo_hits"}
"""Loops that run uncompiled over lists and compiled over arrays: a compiler takes one function."""


def test_functions_stay_short() -> None:
    long = [
        f"{source.where(node)} {node.name}: {length} lines"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name not in KERNELS
        and (length := code_lines(node)) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_kernels_are_there() -> None:
    names = {
        node.name
        for source in sources()
        if source.module.startswith("kvtrace.reuse.policies")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef)
    }
    assert names >= KERNELS


def test_version_is_said_once() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == kvtrace.__version__


# Written in halves, so that this file does not hold what it forbids: places of one machine, and
# hosts of package registries (the locks must work with whatever index a person has).
FORBIDDEN = tuple(
    left + right
    for left, right in (
        ("/wo", "rk/main"),
        ("/wo", "rk/steering"),
        ("/wo", "rk/shared"),
        ("/wo", "rk/.library"),
        ("/fa", "rm/"),
        ("fa", "rm-bench"),
        ("fa", "rm-studio"),
        ("DEVELO", "PERS.md"),
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("registry.npm", "js"),
        ("deb.deb", "ian.org"),
    )
)


def tracked_files() -> list[str]:
    if shutil.which("git") is None or not (REPO / ".git").exists():
        pytest.skip("not a git checkout, so what is tracked is not known")
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.split("\0") if name]


def test_no_tracked_file_names_a_workplace_or_a_registry() -> None:
    names = tracked_files()
    assert "tests/arch/test_source_habits.py" in names
    guilty = []
    for name in names:
        path = REPO / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            guilty += [f"{name}: {word}" for word in FORBIDDEN if word in text]
    assert guilty == []


@pytest.mark.parametrize("lock", ["run", "build", "dev"])
def test_locks_pin_and_hash_every_package_without_an_address(lock: str) -> None:
    text = (REPO / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index-url" not in text
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9][a-z0-9.\-]*==\S+ ", entry), entry
    assert text.count("--hash=sha256:") >= len(entries)


def test_locks_cover_what_the_project_asks_for() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = {
        line.split("==")[0]
        for line in (REPO / "requirements" / "run.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }
    wanted = {re.split(r"[><=\[; ]", name)[0].lower() for name in project["dependencies"]}
    assert wanted <= locked
