"""Pickles as plain JSON, read by a process of its own that imports nothing and may do nothing.

A pickle is a program. Here every name in it becomes the same inert object, so no call in it does
anything; the reading process has no writable file, no new process, and limits of memory and time.
It gives wanted fields only, as JSON lines; texts stay behind unless their field is named.

The file runs as a script as well: the child needs no installed package, only the standard library.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Final

MIB: Final = 1 << 20
_BASE_BYTES: Final = 512 * MIB
_BYTES_PER_BYTE: Final = 24
"""What an object takes over what it takes in the pickle: an integer of 3 bytes becomes 36."""
_MAX_MEMORY_BYTES: Final = 8 << 30
_BASE_CPU_S: Final = 20
_BYTES_PER_CPU_S: Final = 4 * MIB
_SLACK: Final = 3
"""Wall time over CPU time: the machine is shared."""
_ENVIRONMENT: Final = ("LD_LIBRARY_PATH",)
"""What the interpreter itself may need to start."""
_MAX_LINE_BYTES: Final = 256 * MIB
_MAX_TEXT_CHARS: Final = 512
_MAX_DEPTH: Final = 8
_VALUES_PER_BYTE: Final = 2
"""A value takes a byte of the pickle or more, so more values than this are a few, many times."""
_SPARE_VALUES: Final = 100_000
_MAX_ABSOLUTE: Final = (1 << 64) - 1
_CAUSES: Final = {
    "memory": "it takes too much memory",
    "recursion": "it is nested too deeply",
    "persistent_id": "it points to objects outside itself",
    "pickle": "it is no whole pickle",
    "shape": "it is no dict with a list of rows",
    "expansion": "it repeats its values too often",
    "limit": "reading it ran into the limit of memory or time",
    "platform": "this system cannot limit a process (only Unix can)",
}


class InertPickleError(ValueError):
    """A pickle that cannot be read; `cause` says why, without a word of it."""

    def __init__(self, slug: str) -> None:
        super().__init__(_CAUSES.get(slug, _CAUSES["limit"]))
        self.slug = slug


# --- the parent ---


def inert_rows(
    data: bytes, *, rows_key: str, fields: Collection[str], texts: Collection[str]
) -> Iterator[bytes]:
    """JSON of the pickled dict without its rows, then of each row: elements of its list `rows_key`.

    Dicts and objects give their `fields`, at any depth; texts of `texts` only, others are null.

    Raises:
        InertPickleError: the pickle is damaged, of another shape, or more than the limits allow.
    """
    request = json.dumps(
        {"size": len(data), "rows_key": rows_key, "fields": [*fields], "texts": [*texts]}
    )
    command = [sys.executable, "-I", "-S", "-B", str(Path(__file__).resolve()), request]
    process = subprocess.Popen(  # noqa: S603 - our own file, no shell, arguments of our making
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    )
    killer = threading.Timer(_SLACK * _cpu_limit_s(len(data)), process.kill)
    killer.daemon = True
    try:
        killer.start()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the child has no pipes")
        feeder = threading.Thread(target=_feed, args=(process.stdin, data), daemon=True)
        feeder.start()
        yield from _lines_until_end(process.stdout)
        feeder.join()
    finally:
        killer.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _feed(pipe: IO[bytes], data: bytes) -> None:
    """Give the child its bytes; a child that died early has said so on its other pipe."""
    with contextlib.suppress(OSError):
        pipe.write(data)
        pipe.close()


def _lines_until_end(pipe: IO[bytes]) -> Iterator[bytes]:
    """The child's lines; it must say itself that it is done."""
    while True:
        line = pipe.readline(_MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise InertPickleError("limit")
        if line.startswith(b"!"):
            slug = line[1:-1].decode("ascii", "replace")
            if slug == "done":
                return
            raise InertPickleError(slug)
        yield line[:-1]


def _cpu_limit_s(size: int) -> int:
    return _BASE_CPU_S + size // _BYTES_PER_CPU_S


# --- the child ---


class _InertType(type):
    """A class that cannot be changed by what is being read."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise pickle.UnpicklingError("inert")


class Inert(metaclass=_InertType):
    """Stands for every object of a pickle. It takes whatever it is made of and does nothing."""

    __slots__ = ("state",)
    state: object

    def __new__(cls, *arguments: object, **named: object) -> Inert:
        """An object without fields, whatever it is called with."""
        made = object.__new__(cls)
        made.state = None
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state

    def append(self, value: object) -> None:
        """Forget the value."""

    extend = append
    add = append

    def __setitem__(self, key: object, value: object) -> None:
        """Forget the value."""


class _Refused(Exception):
    """The pickle asks for what is never done, or repeats itself without end."""

    def __init__(self, slug: str) -> None:
        super().__init__(slug)
        self.slug = slug


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[Inert]:
        return Inert

    def persistent_load(self, pid: object) -> object:
        raise _Refused("persistent_id")


class Projection:
    """What of the objects goes out: numbers and texts of wanted fields, within a budget."""

    def __init__(self, fields: Collection[str], texts: Collection[str], budget: int) -> None:
        self._fields = frozenset(fields)
        self._texts = frozenset(texts)
        self._left = budget

    def plain(self, value: object, name: str = "", depth: int = 0) -> object:
        """The value as JSON knows it; null for what may not go out."""
        self._spend(1)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if -_MAX_ABSOLUTE <= value <= _MAX_ABSOLUTE else None
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, str):
            return value if name in self._texts and len(value) <= _MAX_TEXT_CHARS else None
        if depth >= _MAX_DEPTH:
            return None
        if isinstance(value, list | tuple):
            return self._listed(value, name, depth)
        if isinstance(value, Inert):
            return self._state(value.state, depth)
        return self._dict(value, depth) if isinstance(value, dict) else None

    def _state(self, state: object, depth: int) -> object:
        """Fields of an object; with slots, its state is a pair of dicts."""
        if isinstance(state, tuple) and len(state) == 2:
            parts = [part for part in state if isinstance(part, dict)]
            state = {key: value for part in parts for key, value in part.items()}
        return self._dict(state, depth) if isinstance(state, dict) else None

    def _listed(self, values: list[object] | tuple[object, ...], name: str, depth: int) -> object:
        self._spend(len(values))
        numbers = [value for value in values if type(value) is int]
        if len(numbers) == len(values):
            return [n if -_MAX_ABSOLUTE <= n <= _MAX_ABSOLUTE else None for n in numbers]
        return [self.plain(value, name, depth + 1) for value in values]

    def _dict(self, items: dict[object, object], depth: int) -> dict[str, object]:
        return {
            key: self.plain(value, key, depth + 1)
            for key, value in items.items()
            if isinstance(key, str) and key in self._fields
        }

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise _Refused("expansion")


def load_inert(data: bytes) -> object:
    """The pickled object with every named thing inert. Call it in a limited process only."""
    return _InertUnpickler(io.BytesIO(data), encoding="latin-1").load()


def _limit_process(size: int) -> None:
    """No new files, no written ones, no children, bounded memory and time."""
    import resource

    memory = min(_BASE_BYTES + _BYTES_PER_BYTE * size, _MAX_MEMORY_BYTES)
    seconds = _cpu_limit_s(size)
    limits = {
        "RLIMIT_AS": memory,
        "RLIMIT_CPU": seconds,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_NOFILE": 3,
        "RLIMIT_NPROC": 0,
        "RLIMIT_CORE": 0,
    }
    for name, limit in limits.items():
        which = getattr(resource, name, None)
        if which is not None:
            resource.setrlimit(which, (limit, limit))


def _answer(request: dict[str, object], source: IO[bytes], out: IO[bytes]) -> None:
    """Read the pickle from `source` and write its JSON lines."""
    size, rows_key = request["size"], request["rows_key"]
    fields, texts = request["fields"], request["texts"]
    if not isinstance(size, int) or not isinstance(fields, list) or not isinstance(texts, list):
        raise _Refused("shape")
    document = load_inert(source.read())
    rows = document.get(rows_key) if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(rows, list):
        raise _Refused("shape")
    projection = Projection(fields, texts, _VALUES_PER_BYTE * size + _SPARE_VALUES)
    rest = {key: value for key, value in document.items() if key != rows_key}
    for value in (rest, *rows):
        plain = projection.plain(value)
        out.write(json.dumps(plain, separators=(",", ":")).encode("ascii") + b"\n")


def main(argument: str) -> None:
    """What the child does; its last line says how it ended."""
    request = json.loads(argument)
    out = sys.stdout.buffer
    try:
        _limit_process(int(request["size"]))
        _answer(request, sys.stdin.buffer, out)
        slug = "done"
    except ImportError:
        slug = "platform"
    except MemoryError:
        slug = "memory"
    except RecursionError:
        slug = "recursion"
    except _Refused as refused:
        slug = refused.slug
    except Exception:  # noqa: BLE001 - whatever the pickle makes of itself, it is only damaged
        slug = "pickle"
    out.write(f"!{slug}\n".encode("ascii"))
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
