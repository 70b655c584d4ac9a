"""Engines of one log under names of their own, where several servers give theirs the same label."""

from __future__ import annotations

import msgspec

_MAX_PROCESSES = 256
"""Processes of one name in a pod; what is beyond shares the last name."""
_Owner = tuple[str, int]
"""(pod, place among the processes of one name in it)"""


class _Process(msgspec.Struct, gc=False):
    writer: str | None
    may_be_gone: bool = False
    """Its server started again, and it has not written since."""


class EngineNames:
    """Names of engines in samples: the label, and a number where another server has it too."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, str | None, str | None], list[_Process]] = {}
        self._numbers: dict[_Owner, int] = {}
        self._first: dict[str | None, _Owner] = {}

    def name(self, label: str | None, process: str | None, writer: str | None) -> str | None:
        """The name of the engine that a process gives this label: `Engine 000`, `Engine 000 @2`.

        Processes of different names that a server has (`APIServer`, `EngineCore_DP0`) mean the same
        engine by a label. No name of a host or pod is in it.
        """
        pod = _pod_of(writer)
        place = _place(self._processes.setdefault((pod, label, process), []), writer)
        owner = (pod, place)
        number = self._numbers.setdefault(owner, len(self._numbers) + 1)
        if self._first.setdefault(label, owner) == owner:
            return label
        return f"@{number}" if label is None else f"{label} @{number}"

    def restart(self, writer: str | None) -> None:
        """A server starts: its processes may follow those that were there before in its pod."""
        pod = _pod_of(writer)
        for (other, _label, _process), processes in self._processes.items():
            if other == pod:
                for process in processes:
                    process.may_be_gone = True


def _pod_of(writer: str | None) -> str:
    return "" if writer is None else writer.partition("@")[2]


def _place(processes: list[_Process], writer: str | None) -> int:
    for place, process in enumerate(processes):
        if process.writer == writer:
            process.may_be_gone = False
            return place
    for place, process in enumerate(processes):
        if process.may_be_gone:
            processes[place] = _Process(writer)
            return place
    if len(processes) < _MAX_PROCESSES:
        processes.append(_Process(writer))
    return len(processes) - 1
