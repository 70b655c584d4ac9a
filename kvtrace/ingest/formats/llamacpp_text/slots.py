"""The tasks that the slots of one server work on: events go in, a row comes out for each task.

Task ids start again with the process and slots interleave, so a task is known by its process, its
slot and its place in the file. The first position kept in the cache after the start of a task is
its hit; later ones are the progress of its chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kvtrace.ingest.contract import LineTime, LogLine, RequestRow
from kvtrace.ingest.formats.llamacpp_text.lines import Event, OwnClock
from kvtrace.ingest.values.jsonfields import flag_lengths, mean_per_token_ns
from kvtrace.schema.manifest import Status

ClockKey = tuple[OwnClock, int]
"""A clock of lines: that of the epoch, or that of one start of a process."""
OTHER: Final = "other_engine_line"
_UNKNOWN_TASK: Final = "line_of_unknown_task"


@dataclass(slots=True)
class Task:
    """One task while its lines come in."""

    number: int | None
    offset: int
    line: int
    time: LineTime
    own: tuple[OwnClock, int] | None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    is_hit_known: bool = False
    """The first position was seen, or its line was damaged: a later one is no hit."""
    computed_tokens: int | None = None
    prefill_ns: int | None = None
    output_tokens: int | None = None
    decode_ns: int | None = None
    is_cancelled: bool = False
    is_child: bool = False

    def row(self, *, is_ended: bool) -> RequestRow:
        """The task as a request; what no line said is null."""
        prompt = self.prompt_tokens
        flags = ["parallel_sample"] if self.is_child else []
        if self.cached_tokens is not None and self.computed_tokens is not None:
            total = self.cached_tokens + self.computed_tokens
            prompt = total if prompt is None else prompt
            if total != prompt:
                flags.append("total_mismatch")
        status: Status = "ok" if is_ended else "open"
        row = RequestRow(
            offset=self.offset,
            line=self.line,
            prompt_tokens=prompt,
            cached_tokens=self.cached_tokens,
            computed_tokens=self.computed_tokens,
            output_tokens=self.output_tokens,
            prefill_ns=self.prefill_ns,
            ttft_ns=self.prefill_ns,
            ttft_from=None if self.prefill_ns is None else "scheduled",
            tpot_ns=mean_per_token_ns(self.decode_ns, self.output_tokens),
            status="cancelled" if self.is_cancelled else status,
            flags=tuple(flags),
        )
        flag_lengths(row)
        return row


@dataclass(slots=True)
class Server:
    """The slots of one process."""

    give: Callable[[Task, ClockKey | None, bool], None]
    """Takes a task that is done with, its clock, and whether its end was seen."""
    new_run: Callable[[], int]
    run: int = 0
    """Number of the start of a process that the lines are of."""
    uptime_ns: int = 0
    """Largest time since the start so far."""
    tasks: dict[int, Task] = field(default_factory=dict)
    timed_slot: int | None = None
    """Slot that the next timing lines without prefix are of."""
    has_timing: bool = False
    """A timing line came since `timed_slot` was set."""

    def restart(self) -> None:
        """The process started again: nothing that was open will end."""
        for slot in list(self.tasks):
            self._close(slot, is_ended=False)
        self.timed_slot = None
        self.run = self.new_run()
        self.uptime_ns = 0

    def take(self, event: Event, line: LogLine, own: tuple[OwnClock, int] | None) -> str | None:
        """Enter the event; None if it contributed to a row, else the reason why it did not."""
        if event.kind == "cancelled":
            return self._cancel(event)
        if event.kind == "header":
            return self._header(event)
        slot = event.slot
        if slot is None:
            slot = self.timed_slot
            self.has_timing = True
            if slot is None:
                return _UNKNOWN_TASK
        elif event.kind in ("launched", "prompt"):
            return self._begin(event, slot, line, own)
        task = self.tasks.get(slot)
        if task is None or (event.task is not None and task.number != event.task):
            return OTHER if event.kind == "released" else _UNKNOWN_TASK
        return self._enter(event, slot, task)

    def lose(self, slot: int | None, task: int | None) -> None:
        """A line of the task was damaged: it may have been its hit."""
        found = self.tasks.get(-1 if slot is None else slot)
        if found is not None and found.number == task:
            found.is_hit_known = True

    def _begin(
        self, event: Event, slot: int, line: LogLine, own: tuple[OwnClock, int] | None
    ) -> str | None:
        task = self.tasks.get(slot)
        is_new = task is None or task.number != event.task or event.kind == "launched"
        if is_new or task is None:
            self._close(slot, is_ended=False)
            record = line.record
            task = Task(event.task, record.offset, record.line, line.time, own)
            self.tasks[slot] = task
        task.is_child |= event.is_child
        if event.kind == "prompt":
            task.prompt_tokens = event.tokens
        return None

    def _enter(self, event: Event, slot: int, task: Task) -> str | None:
        if event.kind == "hit":
            if task.is_hit_known:
                return "later_chunk"
            task.cached_tokens, task.is_hit_known = event.tokens, True
        elif event.kind == "prefill":
            task.computed_tokens, task.prefill_ns = event.tokens, event.elapsed_ns
        elif event.kind == "decode":
            task.output_tokens, task.decode_ns = event.tokens, event.elapsed_ns
        else:
            self._close(slot, is_ended=True)
            if self.timed_slot == slot:
                self.timed_slot = None
        return None

    def _header(self, event: Event) -> str | None:
        """Timing lines follow; whose they are is unknown if those of another task are still due."""
        is_due = self.timed_slot is not None and not self.has_timing
        task = self.tasks.get(-1 if event.slot is None else event.slot)
        is_known = task is not None and task.number == event.task
        self.timed_slot = event.slot if is_known and not is_due else None
        self.has_timing = False
        return None if is_known else _UNKNOWN_TASK

    def _cancel(self, event: Event) -> str | None:
        for task in self.tasks.values():
            if task.number == event.task:
                task.is_cancelled = True
                return None
        return OTHER

    def _close(self, slot: int, *, is_ended: bool) -> None:
        task = self.tasks.pop(slot, None)
        if task is not None:
            self.give(task, self._clock_of(task), is_ended or task.output_tokens is not None)

    def _clock_of(self, task: Task) -> ClockKey | None:
        if task.own is None:
            return None
        kind = task.own[0]
        return (kind, self.run if kind == "relative" else 0)
