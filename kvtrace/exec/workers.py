"""map(fn, specs) in this process, or in others on this machine that hold what all tasks share.

A task is a pure function of what is shared and of its spec, so that who works on it, and how many
do, changes only the order in which results come. What is shared goes to each process once. They are
programs of their own that import the function: nothing of this process runs again in them, its main
module included, and no thread of it is copied. A process that is killed is started again with the
task that it had. They end with this process, whatever ends it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from math import inf
from queue import SimpleQueue
from threading import Event, Lock, Thread
from types import TracebackType
from typing import BinaryIO, Final, Generic, Self, TypeVar

from kvtrace.errors import ModelError

Shared = TypeVar("Shared")
Spec = TypeVar("Spec")
Result = TypeVar("Result")

ATTEMPTS: Final = 3
"""A task whose process is killed so often is given up."""
THREAD: Final = "kvtrace worker"
START_S: Final = 1.0
"""Seconds that a process needs until it works, generously: it imports numpy and the engine."""
_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from kvtrace.exec.workers import serve; "
    "serve(sys.stdin.buffer, sys.stdout.buffer)"
)
_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL


def processors() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def enough_workers(
    stated: int | None, *, tasks: int, seconds: float, bytes_each: float = 0.0
) -> int:
    """Processes for tasks that take `seconds` in all, of which each holds `bytes_each`.

    What is stated holds. Else one a processor, as far as memory that is free has room for them,
    where that saves more than their start takes; 1: this process alone.
    """
    if stated is not None:
        return max(1, stated)
    count = min(processors(), tasks, int(_free_bytes() // max(1.0, bytes_each)))
    return count if count > 1 and seconds - seconds / count > START_S else 1


def _free_bytes() -> float:
    """Physical memory that nobody uses; without end where the system does not say."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return inf


class Workers(Generic[Shared]):
    """Who works on tasks: up to `count` processes, started when they are needed; 1: this one.

    A context manager; its processes end with it.
    """

    def __init__(self, shared: Shared, *, count: int) -> None:
        self._shared = shared
        self._count = count if sys.executable else 1
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def map(
        self, fn: Callable[[Shared, Spec], Result], specs: Sequence[Spec]
    ) -> Generator[tuple[int, Result]]:
        """(place of a spec, what `fn` makes of it), in the order in which they end.

        `fn` is a function of a module. An exception of a task is raised here. Close the generator
        where it may be left early: tasks under way are stopped then.

        Raises:
            ModelError: KVT-X001, the processes of a task were killed again and again.
        """
        if min(self._count, len(specs)) <= 1:
            for place, spec in enumerate(specs):
                yield place, fn(self._shared, spec)
            return
        todo, stop = deque(enumerate(specs)), Event()
        done: SimpleQueue[tuple[int, Result | None, BaseException | None]] = SimpleQueue()
        threads = [
            Thread(target=self._work, args=(fn, todo, done, stop), name=THREAD, daemon=True)
            for _ in range(min(self._count, len(specs)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in specs:
                place, result, error = done.get()
                if error is not None:
                    raise error
                yield place, result  # type: ignore[misc]
        finally:
            stop.set()
            self._stop_busy()
            for thread in threads:
                thread.join()

    def ordered(
        self,
        fn: Callable[[Shared, Spec], Result],
        specs: Sequence[Spec],
        *,
        on_result: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """What `fn` makes of each spec, in their order; `on_result` is called as each ends."""
        found: dict[int, Result] = {}
        for place, result in self.map(fn, specs):
            found[place] = result
            on_result()
        return [found[place] for place in range(len(specs))]

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().end()

    def _stop_busy(self) -> None:
        """End those that work for nobody any more."""
        with self._lock:
            for process in self._busy:
                process.kill()

    def _work(
        self,
        fn: Callable[[Shared, Spec], Result],
        todo: deque[tuple[int, Spec]],
        done: SimpleQueue[tuple[int, Result | None, BaseException | None]],
        stop: Event,
    ) -> None:
        """One thread a process: it waits for its answers."""
        while not stop.is_set():
            try:
                place, spec = todo.popleft()
            except IndexError:
                return
            try:
                done.put((place, self._ask(fn, spec, stop), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where the results are taken
                done.put((place, None, error))

    def _ask(self, fn: Callable[[Shared, Spec], Result], spec: Spec, stop: Event) -> Result:
        """What a process answers; another one is asked where it was killed."""
        for _ in range(ATTEMPTS):
            process = self._take(stop)
            try:
                is_good, answer = process.answer(fn, spec)
            except (OSError, EOFError, pickle.UnpicklingError):
                self._drop(process)
                continue
            with self._lock:
                self._busy.discard(process)
                self._idle.append(process)
            if not is_good:
                raise answer  # type: ignore[misc]
            return answer  # type: ignore[return-value]
        raise ModelError(
            "KVT-X001",
            f"a worker process was killed {ATTEMPTS} times on the same task",
            hint="memory may be short: `--workers 1` needs least",
        )

    def _take(self, stop: Event) -> _Process:
        """A process that is free, or a new one; none once nobody waits for its answer."""
        with self._lock:
            if stop.is_set():
                raise InterruptedError
            process = self._idle.pop() if self._idle else _Process(self._shared)
            self._busy.add(process)
            return process

    def _drop(self, process: _Process) -> None:
        with self._lock:
            self._busy.discard(process)
        process.kill()
        process.end()


class _Process:
    """A worker process; what is shared is sent with the first task."""

    def __init__(self, shared: object) -> None:
        self._shared = shared
        self._is_told = False
        path = [entry or os.getcwd() for entry in sys.path]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-c", _PROGRAM, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # an interrupt is the business of the process that started it
        )

    def answer(self, fn: Callable[..., object], spec: object) -> tuple[bool, object]:
        """(whether it went well, the result or the exception) of a task.

        Raises:
            OSError, EOFError, pickle.UnpicklingError: the process is gone.
        """
        sink, source = self._process.stdin, self._process.stdout
        if sink is None or source is None:
            raise EOFError
        if not self._is_told:
            pickle.dump(self._shared, sink, _PROTOCOL)
            self._is_told = True
        pickle.dump((fn, spec), sink, _PROTOCOL)
        sink.flush()
        is_good, answer = pickle.load(source)  # noqa: S301 - what our own process wrote
        return bool(is_good), answer

    def kill(self) -> None:
        """End it now, whatever it does."""
        self._process.kill()

    def end(self) -> None:
        """Let it end, and wait for that."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was not sent yet has nobody to go to
                    continue
        self._process.wait()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Work on tasks until there are no more; whatever the tasks print goes to stderr."""
    sys.stdout = sys.stderr
    try:
        shared = pickle.load(source)  # noqa: S301 - what the process that started this one wrote
        while True:
            fn, spec = pickle.load(source)  # noqa: S301
            try:
                answer = pickle.dumps((True, fn(shared, spec)), _PROTOCOL)
            except Exception as error:  # noqa: BLE001 - it is raised in the other process
                answer = pickle.dumps((False, error), _PROTOCOL)
            sink.write(answer)
            sink.flush()
    except (EOFError, BrokenPipeError):
        return
