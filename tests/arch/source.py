"""The product's source as the architecture tests read it: parsed, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import REPO


@dataclass(frozen=True)
class Source:
    """One module of kvtrace."""

    module: str
    path: Path
    tree: ast.Module
    line_count: int

    @property
    def package(self) -> str:
        """`kvtrace.ingest` for `kvtrace.ingest.formats.azure`; the module itself at the top."""
        return ".".join(self.module.split(".")[:2])

    def where(self, node: ast.AST) -> str:
        """A place that a person can open."""
        return f"{self.path.relative_to(REPO)}:{getattr(node, 'lineno', 1)}"


@dataclass(frozen=True)
class Import:
    """One imported name; `inside` tells whether it stands in a function."""

    source: Source
    node: ast.Import | ast.ImportFrom
    module: str
    name: str | None
    inside: bool

    @property
    def root(self) -> str:
        """First part of the imported module."""
        return self.module.split(".")[0]

    def __str__(self) -> str:
        return f"{self.source.where(self.node)} imports {self.module}"


@cache
def sources() -> tuple[Source, ...]:
    """Every module of the package, in order of name."""
    found = []
    for path in sorted((REPO / "kvtrace").rglob("*.py")):
        parts = path.relative_to(REPO).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found.append(Source(module, path, ast.parse(text), len(text.splitlines())))
    return tuple(found)


def imports(source: Source) -> Iterator[Import]:
    """Every import of a module, those inside functions and type-checking blocks included."""
    yield from _imports(source, source.tree, inside=False)


def _imports(source: Source, node: ast.AST, *, inside: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(source, child, alias.name, None, inside)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                yield Import(source, child, child.module or "", alias.name, inside)
        else:
            nested = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(source, child, inside=inside or nested or _type_checking(child))


def _type_checking(node: ast.AST) -> bool:
    """An `if TYPE_CHECKING:` block never runs, so it counts as a place that costs nothing."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
