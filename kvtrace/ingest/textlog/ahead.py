"""Runs the express lane ahead of the reader, in a second process too where a log is large.

What a line says, and the keys of its token ids, depend on nothing before it. So blocks are told in
both processes, by whoever has time, and taken in file order by the first. Without a second process
(another system than Linux, one processor, one that does not start or dies) all is told here. Logs
with few lines for the lane are mostly read past it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import select
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from kvtrace.ingest.contract import ExpressKind, ReadContext, Tally
from kvtrace.ingest.files.frame import LineBlock
from kvtrace.ingest.textlog.express import ExpressLane, Run
from kvtrace.units import MIB

OpenExpress = Callable[[ReadContext], tuple[ExpressKind, ...]]
"""A function of a module, which the second process can import."""
START_BYTES: Final = 16 * MIB
"""Told here before a second process is worth its start."""
AWAY_BLOCKS: Final = 4
"""Blocks with the second process at most, so that it never waits for one."""
SLOT_BYTES: Final = 2 * MIB
"""Longest block that is told there."""
_DEPTH: Final = 12
"""Blocks held at most: what can be told here while a block is awaited."""
_LOW_SHARE: Final = 0.25
_HIGH_SHARE: Final = 0.5
_SKIPPED_BLOCKS: Final = 15
"""Blocks read past the lane after one with few lines for it."""
_PATIENCE_S: Final = 30.0
"""For a block that takes some hundredths; after that the process is taken for stuck."""
_LENGTH: Final = struct.Struct(">Q")
_PLACE: Final = struct.Struct(">QQ")
"""Slot of a block and its length."""
_READ_BYTES: Final = MIB
_PIPE_BYTES: Final = MIB
_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; from kvtrace.ingest.textlog.ahead import serve; "
    "serve(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)"
)


class SecondProcessError(Exception):
    """The second process is gone; what it had is told here."""


class SecondProcess:
    """Tells blocks elsewhere; results come in the order in which the blocks went.

    Blocks go through shared memory, their numbers and results through pipes.
    """

    def __init__(self, open_express: OpenExpress, context: ReadContext) -> None:
        memory = os.memfd_create("kvtrace-blocks")
        try:
            os.ftruncate(memory, AWAY_BLOCKS * SLOT_BYTES)
            self._slots = mmap.mmap(memory, AWAY_BLOCKS * SLOT_BYTES)
            self._process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                [sys.executable, "-c", _PROGRAM, str(memory), *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(memory,),
            )
        except OSError as cause:
            raise SecondProcessError from cause
        finally:
            os.close(memory)
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the second process has no pipes")
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        _widen(self._from)
        self._incoming = bytearray()
        self._results: deque[list[Run]] = deque()
        self._sent = 0
        self.away = 0
        """Blocks whose result was not asked for yet."""
        setup = pickle.dumps((open_express, context.token_key, context.block_size_tokens))
        self._write(_LENGTH.pack(len(setup)) + setup)

    def _write(self, data: bytes) -> None:
        """Write some hundred bytes, for which a pipe has room."""
        try:
            os.write(self._to, data)
        except OSError as cause:
            raise SecondProcessError from cause

    def can_take(self, data: bytes) -> bool:
        """Whether there is room for the block."""
        return self.away < AWAY_BLOCKS and len(data) <= SLOT_BYTES

    def send(self, data: bytes) -> None:
        """Have the lines of a block told.

        Raises:
            SecondProcessError: it is gone.
        """
        slot = self._sent % AWAY_BLOCKS  # its last block has come back: there are so many at most
        self._slots[slot * SLOT_BYTES : slot * SLOT_BYTES + len(data)] = data
        self._write(_PLACE.pack(slot, len(data)))
        self._sent += 1
        self.away += 1

    def has_result(self, *, wait: bool) -> bool:
        """Whether the next block's result is there; with `wait`, there it is.

        Raises:
            SecondProcessError: it will never be.
        """
        try:
            while self._read(wait=wait and not self._results):
                pass
        except (OSError, EOFError, pickle.UnpicklingError) as cause:
            raise SecondProcessError from cause
        return bool(self._results)

    def result(self) -> list[Run]:
        """The next block's result, which has to be there."""
        self.away -= 1
        return self._results.popleft()

    def _read(self, *, wait: bool) -> bool:
        """Read what the pipe holds; whether there was anything."""
        readable, _, _ = select.select([self._from], [], [], _PATIENCE_S if wait else 0.0)
        if readable:
            data = os.read(self._from, _READ_BYTES)
            if not data:
                raise EOFError
            self._incoming += data
            self._unpack()
        elif wait:
            raise TimeoutError
        return bool(readable)

    def _unpack(self) -> None:
        while len(self._incoming) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._incoming)[0]
            if len(self._incoming) < end:
                return
            data = bytes(self._incoming[_LENGTH.size : end])
            del self._incoming[:end]
            self._results.append(pickle.loads(data))  # noqa: S301 - from our own program

    def close(self) -> None:
        """End it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._slots.close()


def _widen(pipe: int) -> None:
    """Make room for whole blocks in a pipe; a smaller one is only slower."""
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def serve(memory: int, source: BinaryIO, sink: BinaryIO) -> None:
    """The second process: tell block after block, until no more come."""
    (size,) = _LENGTH.unpack(source.read(_LENGTH.size))
    open_express, token_key, block_size_tokens = pickle.loads(source.read(size))  # noqa: S301
    context = ReadContext("", Tally(), 0, token_key=token_key, block_size_tokens=block_size_tokens)
    lane = ExpressLane(open_express(context))
    with mmap.mmap(memory, AWAY_BLOCKS * SLOT_BYTES, access=mmap.ACCESS_READ) as slots:
        while len(place := source.read(_PLACE.size)) == _PLACE.size:
            slot, size = _PLACE.unpack(place)
            data = slots[slot * SLOT_BYTES : slot * SLOT_BYTES + size]
            result = pickle.dumps(list(lane.scan(data, 0, 0)), protocol=pickle.HIGHEST_PROTOCOL)
            sink.write(_LENGTH.pack(len(result)))
            sink.write(result)
            sink.flush()


@dataclass(slots=True)
class _Job:
    block: LineBlock
    is_away: bool = False
    runs: list[Run] | None = None


class LookAhead:
    """Blocks of a log with what the express lane tells of them, some of them told elsewhere."""

    def __init__(
        self,
        lane: ExpressLane,
        start: Callable[[], SecondProcess] | None,
        *,
        start_bytes: int = START_BYTES,
    ) -> None:
        self._lane = lane
        self._start = start
        self._start_bytes = start_bytes
        self._second: SecondProcess | None = None
        self._jobs: deque[_Job] = deque()
        self._told_bytes = 0
        self._skip = 0

    def told(self, blocks: Iterable[LineBlock]) -> Iterator[tuple[LineBlock, list[Run] | None]]:
        """Each block in order with its runs; None: it is to be read past the lane."""
        source = iter(blocks)
        try:
            while self._fill(source):
                job = self._jobs[0]
                if job.is_away and not self._await(job):
                    continue
                self._jobs.popleft()
                yield job.block, self._runs_of(job)
        finally:
            if self._second is not None:
                self._second.close()

    def _fill(self, source: Iterator[LineBlock]) -> bool:
        """Hold as many blocks as are of use; whether there is any."""
        depth = 1 if self._second is None else _DEPTH
        while len(self._jobs) < depth:
            block = next(source, None)
            if block is None:
                break
            job = _Job(block)
            if self._second is not None and self._second.can_take(block.data):
                try:
                    self._second.send(block.data)
                    job.is_away = True
                except SecondProcessError:
                    self._give_up()
            self._jobs.append(job)
        return bool(self._jobs)

    def _await(self, first: _Job) -> bool:
        """Whether the first block's result is there; if not, another block was told meanwhile."""
        if self._second is None:
            raise RuntimeError("no process has the block")
        other = next((job for job in self._jobs if not job.is_away and job.runs is None), None)
        try:
            if self._second.has_result(wait=other is None):
                first.runs = self._second.result()
                return True
        except SecondProcessError:
            self._give_up()
            return True
        if other is not None:
            other.runs = list(self._lane.scan(other.block.data, 0, 0))
        return False

    def _give_up(self) -> None:
        if self._second is not None:
            self._second.close()
            self._second = None
        for job in self._jobs:
            job.is_away = False

    def _runs_of(self, job: _Job) -> list[Run] | None:
        if job.runs is not None:
            return job.runs
        if self._skip:
            self._skip -= 1
            return None
        if self._second is not None:
            with contextlib.suppress(SecondProcessError):  # it is seen when a result is awaited
                self._second.has_result(wait=False)
        runs = list(self._lane.scan(job.block.data, 0, 0))
        self._weigh(job.block, runs)
        return runs

    def _weigh(self, block: LineBlock, runs: Sequence[Run]) -> None:
        """Judge by a block told here whether the lane and a second process are worth it."""
        told = sum(run.told_lines + run.access + run.health for run in runs)
        share = told / (told + len(runs))
        if share < _LOW_SHARE:
            self._skip = _SKIPPED_BLOCKS
        elif share >= _HIGH_SHARE:
            self._told_bytes += len(block.data)
            if self._told_bytes >= self._start_bytes and self._start is not None:
                start, self._start = self._start, None
                with contextlib.suppress(SecondProcessError):
                    self._second = start()


def second_process(
    open_express: OpenExpress, context: ReadContext
) -> Callable[[], SecondProcess] | None:
    """How to start a second process; None where one is of no use."""
    if sys.platform != "linux" or not sys.executable or len(os.sched_getaffinity(0)) < 2:
        return None
    return lambda: SecondProcess(open_express, context)
