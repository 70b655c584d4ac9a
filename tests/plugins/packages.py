"""Packages with an entry point, laid out as an installer leaves them."""

from __future__ import annotations

from pathlib import Path

OURGATE = Path(__file__).parent / "ourgate"


def install(folder: Path, *, name: str, code: str, target: str, version: str = "1.0") -> Path:
    """A package of one module with one entry point of the group, in this folder."""
    module = target.partition(":")[0]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[kvtrace.ingesters]\n{module} = {target}\n")
    return folder


def install_ourgate(folder: Path) -> Path:
    """The example package, as `pip install tests/plugins/ourgate` would leave it."""
    code = (OURGATE / "ourgate" / "__init__.py").read_text(encoding="utf-8")
    return install(folder, name="kvtrace-ourgate", code=code, target="ourgate:FORMAT")
