"""Hardware by the name of a GPU, or by a file."""

from __future__ import annotations

from pathlib import Path

from kvtrace.cost.gpus import built_in_hardware
from kvtrace.cost.hardware import HardwareProfile


def load_hardware(name_or_file: str) -> HardwareProfile:
    """The profile of a built-in GPU in its usual host, or a user's TOML over one.

    Raises:
        UsageError: unknown GPU, with close names; or a file with unknown keys or unclear units.
    """
    path = Path(name_or_file)
    if path.suffix == ".toml":
        from kvtrace.cost.hardware_file.read import load_hardware_file

        return load_hardware_file(path)
    return built_in_hardware(name_or_file)
